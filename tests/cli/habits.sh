#!/bin/bash
# habits.sh PROGRAM - words that users of other programs type: each means an option here, to the same bits, or is
# answered with the line to write, which then works.
program=$1 command=
here=$(realpath "$0")
. "$(dirname "$0")/jobs.sh"

task=(--batch-size 48 --max-steps 3 --no-test --quiet)
# same "WORDS" "OPTIONS" - both give the same weights.
same() {
    local words options
    read -ra words <<<"$1"
    read -ra options <<<"$2"
    run 0 train "${task[@]}" "${options[@]}"
    whole=$(hash_of)
    run 0 train "${task[@]}" "${words[@]}"
    ends_alike
}
# means "WORDS" TEXT... - the words are refused as the option that they mean.
means() {
    local words
    read -ra words <<<"$1"
    fails 2 "${@:2}" -- "${words[@]}"
}
# answered "WORDS" LINE - the words are refused with this line to write.
answered() {
    local words
    read -ra words <<<"$1"
    fails 2 "" -- "${words[@]}"
    check "$line: the line to write is not '$2'" test "$(sed -n 's/.*: \(lockstep .*\)/\1/p' err)" = "$2"
}

# Other names of options.
same "--arch fc --learning-rate .3 --opt adam" "--model fc --lr .3 --optimizer adam"
same "-a fc --workers 0 --print-freq 1 --device cpu" "--model fc --num-workers 0 --log-interval 1 --devices cpu"
task+=(--model mlp)
means "train --arch xyzzy" "--model: no model 'xyzzy'"
means "train -a xyzzy" "--model: no model 'xyzzy'"
means "train --learning-rate x" "--lr 'x'"
means "train --opt xyzzy" "--optimizer: no optimiser 'xyzzy'"
means "train --workers x" "--num-workers 'x'"
means "train -jx" "--num-workers 'x'"
means "train -j x" "--num-workers 'x'"
means "train --print-freq 0" "--log-interval '0'"
means "train -p 0" "--log-interval '0'"
means "train --device nowhere" "--devices: no device 'nowhere'"
means "train --gpu x" "--gpu-ids 'x'"
means "train --lr-scheduler xyzzy" "--schedule: no schedule 'xyzzy'"
means "train --port x" "--master-port 'x'"
means "run --port x true" "--master-port 'x'"
means "train --dist-url udp://x:1 --rank 0 --world-size 2" "udp://"
means "train --dist-backend xyzzy -n 2" "--backend: no backend 'xyzzy'"
same "--dist-backend gloo -n 2" "--backend auto -n 2"
same "--dist-backend gloo" ""
means "eval --arch xyzzy model.pth" "model.pth"
means "bench train --arch xyzzy" "--model: no model 'xyzzy'"
means "info --arch xyzzy" "--model: no model 'xyzzy'"
same "--amp --devices cpu" "--precision bf16 --devices cpu"
line="train --cuda"
timeout -s KILL 60 "$program" train "${task[@]}" --cuda >out 2>err </dev/null
check "$line: means a GPU" grep -q cuda out err
means "train --precision fp16" "there is no fp16 here; bf16 takes its place and needs no loss scaling; write '--precision bf16'"
means "train --precision half" "there is no fp16 here"
means "train --precision float16" "there is no fp16 here"
means "train --precision float32" "did you mean 'fp32'?"
means "train --precision bfloat16" "did you mean 'bf16'?"
same "--clip-grad-norm .1" "--clip-norm .1"
same "--clip-grad .1" "--clip-norm .1"
same "--max-grad-norm .1" "--clip-norm .1"
same "--dataset digits --optim sgd --num-epochs 1 --grad-accum 2" "--data digits --optimizer sgd --epochs 1 --accumulate 2"
same "--gradient_accumulation_steps 2" "--accumulate 2"
means "train --dataset absent" "--data: no data set and no folder 'absent'"
means "train --data-path nowhere --data mnist" "--data-dir nowhere"
run 0 train "${task[@]}" --ckpt by-word
check "$line: saves" test -d by-word
fails 2 "--amp (--precision bf16) and --precision fp32 contradict" -- train --amp --precision fp32
fails 2 "--arch mlp and --model fc contradict" -- train --arch mlp --model fc
fails 2 "--model fc and -a mlp contradict" -- train --model fc -a mlp
fails 2 "no option '--momentun'; did you mean '--momentum'?" -- train --momentun .9

# Parameters of the optimiser and of the schedule.
same "--opt sgd --momentum .9 --weight-decay 1e-4 --nesterov" "--optimizer sgd:momentum=.9,weight_decay=1e-4,nesterov"
same "--optimizer adamw --wd .1" "--optimizer adamw:weight_decay=.1"
same "--wd .1" "--optimizer adadelta:weight_decay=.1"
same "--optimizer sgd:momentum=0.9,lr=.2 --momentum .9" "--optimizer sgd:momentum=.9 --lr .2"
same "--optimizer sgd:wd=.1" "--optimizer sgd:weight_decay=.1"
same "--schedule step:step_size=2,gamma=.1" "--schedule step:size=2,gamma=.1"
same "--schedule cosine:T_max=14,eta_min=.1" "--schedule cosine:epochs=14,min=.1"
same "--batch-size 30000 --schedule multistep:milestones=1,2,gamma=.1" \
    "--batch-size 30000 --schedule multistep:milestones=1/2,gamma=.1"
same "--schedule onecycle:max_lr=.1,pct_start=.5" "--schedule onecycle:pct_start=.5 --lr .1"
same "--schedule onecycle:max_lr=.1 --lr .1" "--schedule onecycle --lr .1"
same "--schedule onecycle:anneal_strategy=linear" "--schedule onecycle:linear=1"
same "--schedule onecycle:anneal_strategy=cos" "--schedule onecycle"
same "--optimizer rmsprop:rho=.9" "--optimizer rmsprop:alpha=.9"
same "--optimizer adam:betas=.8,.99,eps=1e-6" "--optimizer adam:beta1=.8,beta2=.99,eps=1e-6"
same "--optimizer adamw:betas=.8/.99" "--optimizer adamw:beta1=.8,beta2=.99"
# plateau_is WORDS TEXT - the schedule is written so in the first line of --json.
plateau_is() {
    run 0 train --model mlp --max-steps 1 --json --schedule "$1"
    said out "\"schedule\":\"$2\""
}
plateau_is plateau:mode=max,threshold_mode=abs,min_lr=1e-4 plateau:accuracy=1,abs=1,min=1e-4
plateau_is plateau:mode=min,threshold_mode=rel,patience=3 plateau:accuracy=0,abs=0,patience=3
fails 2 "mode has no 'auto' here" -- train --schedule plateau:mode=auto
fails 2 "max_lr=.1 in --schedule and --lr 0.2 contradict" -- train --schedule onecycle:max_lr=.1 --lr .2
fails 2 "lr=.2 in --optimizer" "contradict" -- train --schedule onecycle:max_lr=.1 --optimizer sgd:lr=.2 --lr .1
for words in total_steps=10 steps_per_epoch=10 epochs=3; do
    fails 2 "the cycle is as long as the run, which --epochs or --max-steps set: leave $words out" -- \
        train --schedule onecycle:$words
done
for words in "StepLR:step_size=3 step:size=30,gamma=.1" "CosineAnnealingLR cosine:epochs=90" "onecyclelr onecycle" \
    "ReduceLROnPlateau plateau:factor=.1,patience=10"; do
    fails 2 "is written here as in --schedule ${words#* }" -- train --schedule "${words% *}"
done
same "--schedule multistep:gamma=.1,milestones=1,2" "--schedule multistep:milestones=1/2,gamma=.1"
fails 2 "--momentum .9 and --optimizer sgd:momentum=.8 contradict" -- train --optimizer sgd:momentum=.8 --momentum .9
fails 2 "lr=.1 in --optimizer and --lr 0.2 contradict" -- train --optimizer sgd:lr=.1 --lr .2
fails 2 "'size' is given twice" -- train --schedule step:size=1,step_size=2
fails 2 "the optimiser adadelta has no momentum" "write --optimizer sgd:momentum=.9,weight_decay=1e-4" -- \
    train --momentum .9 --wd 1e-4
fails 2 "the optimiser adam has no momentum" "write --optimizer sgd:momentum=.9" -- train --opt adam --momentum .9
fails 2 "adadelta has no momentum" "write --optimizer sgd:momentum=.9" -- info --model mlp --momentum .9
fails 2 "the optimiser adadelta has no nesterov" "write --optimizer sgd:momentum=.9,nesterov" -- train --nesterov
fails 2 "one word too many, '.9'" "write sgd:momentum=.9" -- train --optimizer sgd:momentum .9
fails 2 "write --schedule=step:size=2,gamma=.5" -- train --schedule=step:size=2,gamma .5
fails 2 "a parameter's name is missing" -- train --optimizer sgd:momentum=.9,
fails 2 "--momentum 'much' must be a number" -- train --opt sgd --momentum much
fails 2 "--weight-decay needs a value" -- train --weight-decay
fails 2 "--nesterov takes no value" -- train --nesterov=1
fails 2 "momentum=2 is out of range" -- train --opt sgd --momentum 2
fails 2 "--lr 'x' must be a number" -- train --optimizer sgd:lr=x
fails 2 "PyTorch's rate rises again" "write epochs=10" -- train --epochs 14 --schedule cosine:T_max=10
fails 2 "from the end of the warm-up" "write epochs=12" -- train --epochs 10 --schedule cosine:T_max=10,warmup=2
fails 2 "T_max counts calls of step()" -- train --schedule cosine:T_max=10,by_step
# A file has lower precedence than the command line; its keys are the names of options.
echo "optimizer: {name: sgd, momentum: .5, lr: .1}" >recipe.yaml
same "--config recipe.yaml --momentum .9 --wd .1" "--optimizer sgd:momentum=.9,weight_decay=.1 --lr .1"
same "--config recipe.yaml --lr .2" "--optimizer sgd:momentum=.5 --lr .2"
same "--config recipe.yaml --optimizer sgd:lr=.3" "--optimizer sgd --lr .3"
# Keys of other programs' files are taken as their words on a command line are.
printf '%s\n' "learning-rate: .2" "opt: sgd" "momentum: .9" "weight-decay: 1e-4" "nesterov: true" "print_freq: 2" >recipe.yaml
same "--config recipe.yaml" "--optimizer sgd:momentum=.9,weight_decay=1e-4,nesterov --lr .2"
same "--config recipe.yaml --learning-rate .3" "--optimizer sgd:momentum=.9,weight_decay=1e-4,nesterov --lr .3"
same "--config recipe.yaml --optimizer adam" "--optimizer adam --lr .2"
printf '%s\n' "nesterov: false" "wd: .1" "optimizer: {name: sgd, momentum: .5}" "amp: false" >recipe.yaml
same "--config recipe.yaml" "--optimizer sgd:momentum=.5,weight_decay=.1"
echo "optimizer: {name: adam, betas: [.8, .99]}" >recipe.yaml
same "--config recipe.yaml" "--optimizer adam:beta1=.8,beta2=.99"
printf '%s\n' "num_epochs: 1" "dataset: digits" "optim: sgd" >recipe.yaml
same "--config recipe.yaml" "--data digits --optimizer sgd --epochs 1"
printf '%s\n' "arch: xyzzy" >recipe.yaml
fails 2 "--model: no model 'xyzzy'" "--model is from recipe.yaml:1" -- train --config recipe.yaml
printf '%s\n' "arch: fc" "model: mlp" >recipe.yaml
fails 2 "recipe.yaml:2: model is at recipe.yaml:1 already" -- train --config recipe.yaml
echo "momentum: .9" >recipe.yaml
fails 2 "recipe.yaml:1: 'momentum' is a parameter of optimizer" "write 'optimizer: {name: NAME, momentum: .9}'" -- \
    train --config recipe.yaml
printf '%s\n' "optimizer: sgd:momentum=.5" "momentum: .9" >recipe.yaml
fails 2 "'momentum' is given twice" -- train --config recipe.yaml
printf '%s\n' "opt: sgd" "momentum: [1]" >recipe.yaml
fails 2 "recipe.yaml:2: momentum wants a number" -- train --config recipe.yaml
echo "amp: true" >recipe.yaml
same "--config recipe.yaml --devices cpu" "--precision bf16 --devices cpu"
echo "precision: tf32" >recipe.yaml
fails 2 "--precision tf32: the CPU computes in fp32 or bf16" "--precision is from recipe.yaml:1" -- \
    train --config recipe.yaml --devices cpu
echo "amp: 1" >recipe.yaml
fails 2 "recipe.yaml:1: amp must be true or false" -- train --config recipe.yaml
echo "pretrained: true" >recipe.yaml
fails 2 "recipe.yaml:1: no option 'pretrained'; 'lockstep train --pretrained' says what to write" -- \
    train --config recipe.yaml
# A resumed run knows its optimiser; what is typed beside must be the same.
run 0 train "${task[@]}" --optimizer sgd:momentum=.9 --lr .1 --checkpoint kept --save-every 3
run 0 train --resume kept --max-steps 4 --momentum .9 --quiet
fails 2 "--optimizer sgd:momentum=.8 contradicts the checkpoint" -- train --resume kept --momentum .8 --quiet
fails 2 "--lr 0.2 contradicts the checkpoint" -- train --resume kept --optimizer sgd:momentum=.9,lr=.2 --quiet
run 0 train --resume kept --max-steps 4 --optimizer sgd:momentum=.9,lr=.1 --quiet

# Numbers in --devices are GPUs.
for words in "--devices 0,1" "--device 0" "--gpu 0"; do
    line="train $words"
    # shellcheck disable=SC2086 # words
    timeout -s KILL 60 "$program" train "${task[@]}" $words >out 2>err </dev/null
    check "$line: means a GPU" grep -q cuda out err
done
fails 2 "--devices '2' may be a GPU or a number of devices" "'--gpu-ids 2'" "'-n 2'" -- train --devices 2

# Words that are answered with the line to write, which has the words of the user.
answered "train --patience 3 --lr .1" "lockstep train --early-stop 3 --lr .1"
said err "plateau:patience=N"
answered "train --milestones 30,60" "lockstep train --schedule multistep:milestones=30,60"
answered "train --step-size 3 --lr .1" "lockstep train --schedule step:size=3 --lr .1"
answered "train --save-freq 10" "lockstep train --save-every 10 --checkpoint DIR"
answered "train --save-freq 10 --checkpoint ck" "lockstep train --save-every 10 --checkpoint ck"
answered "train --run-name first" "lockstep train --log-dir first"
answered "train --deterministic --lr .1" "lockstep train --lr .1"
answered "train --fp16 --model mlp" "lockstep train --precision bf16 --model mlp"
answered "eval model.pth --half" "lockstep eval model.pth --precision bf16"
answered "train --dropout .5 --lr .1" "lockstep train --lr .1"
said err "--model cnn:dropout=0"
answered "eval model.pth --drop .5" "lockstep eval model.pth"
answered "train --pretrained -a resnet18 --epochs 3" "lockstep train --init-from resnet18.pth -a resnet18 --epochs 3"
said err "torchvision.models.resnet18(weights=\"DEFAULT\")" "--init-skip"
answered "train --pretrained" "lockstep train --init-from MODEL.pth"
answered "train --evaluate --resume run/best --data tiny --lr .1" "lockstep eval run/best --data tiny"
answered "train --evaluate --resume auto --init-from a:b/c" "lockstep eval a:b/c"
answered "train -e --model mlp --init-from m.pth" "lockstep eval m.pth --model mlp"
answered "train --test-only" "lockstep eval FILE"
answered "train -b256" "lockstep train --batch-size 256"
answered "train -b 256" "lockstep train --batch-size 256"
answered "train mnist --epochs 1" "lockstep train --data mnist --epochs 1"
answered "train --local-rank=0 --lr .1" "lockstep train --lr .1"
answered "train --max-restarts 3 -n 2" "lockstep run --max-restarts 3 -n 2 lockstep train"
answered "train --tensorboard --lr .1" "lockstep train --log-dir runs --lr .1"
fails 2 "--output-dir a and --log-dir b contradict" -- train --output-dir a --log-dir b
# The folder's configuration has the options of this program, and gives the same bits.
run 0 train --arch mlp --opt sgd:lr=.1 --momentum .9 --schedule step:step_size=3 --max-steps 3 --output-dir runs --quiet
whole=$(hash_of)
run 0 train --config runs/*/config.yaml --quiet
ends_alike
rm -rf runs
for words in "--output-dir runs" "--tensorboard runs" "--tensorboard=runs"; do
    # shellcheck disable=SC2086 # words
    run 0 train "${task[@]}" $words
    check "$line: makes a folder for the run" compgen -G "runs/*/run.json" >/dev/null
    rm -rf runs
done

# Nodes and ranks.
run 0 train "${task[@]}" --standalone
run 0 train "${task[@]}" --standalone -n 2
fails 2 "--standalone and --nnodes 2 contradict" -- train --standalone --nnodes 2 --node-rank 0
answered "train -g 2" "lockstep train -n 2"
answered "train -n 1 -g 2" "lockstep train --nnodes 1 -n 2"
answered "train -n 2 -g 4" "lockstep train --nnodes 2 -n 4 --node-rank 0 --master-addr HOST"
answered "train --gpus 2" "lockstep train -n 2"
answered "train --ranks 2 --lr .1" "lockstep train -n 2 --lr .1"
answered "train --np 2" "lockstep train -n 2"
answered "train -np 2" "lockstep train -n 2"
answered "train -nr 1" "lockstep train --node-rank 1 --nnodes 2 --master-addr HOST"
answered "train --nr 1 --nnodes 3 -n 4 --master-addr h" "lockstep train --node-rank 1 --nnodes 3 -n 4 --master-addr h"
answered "train -ip h" "lockstep train --master-addr h --nnodes 2 --node-rank 1"
answered "train --nodes 3" "lockstep train --nnodes 3 --node-rank 1 --master-addr HOST"
answered "train -N 3" "lockstep train --nnodes 3 --node-rank 1 --master-addr HOST"
answered "train --hosts a,b -n 4" "lockstep train -n 4 --nnodes 2 --node-rank 1 --master-addr HOST"
answered "train --hostfile hosts" "lockstep train --nnodes 2 --node-rank 1 --master-addr HOST"
answered "run -m module --x" "lockstep run python3 -m module --x"
answered "run --module module" "lockstep run python3 -m module"
answered "run --no_python -n 2 ./program -n 3" "lockstep run -n 2 ./program -n 3"
answered "run --use-env true" "lockstep run true"
answered "run --rdzv-backend=c10d --nnodes 2 --rdzv-endpoint h:1 true" \
    "lockstep run --nnodes 2 --rdzv-endpoint h:1 --node-rank 1 true"
answered "run --rdzv-id 7 -n 2 true" "lockstep run -n 2 true"
answered "run -n 2 -g 4 -nr 0 -ip 10.0.0.1 python3 train.py -n 2" \
    "lockstep run --nnodes 2 -n 4 --node-rank 0 --master-addr 10.0.0.1 python3 train.py -n 2"
# A line of the playground: two nodes with two ranks each. The answers of both nodes make a job of four.
run 0 train "${task[@]}"
whole=$(hash_of)
port=$(free_port) jobs=()
for node in 0 1; do
    answered "train -n 2 -g 2 -nr $node -ip 127.0.0.1 --port $port ${task[*]}" \
        "lockstep train --nnodes 2 -n 2 --node-rank $node --master-addr 127.0.0.1 --port $port ${task[*]}"
    read -ra words < <(sed -n "s/.*: lockstep \(.*\)/\1/p" err | sed "s/ --quiet//")
    timeout -s KILL 60 "$program" "${words[@]}" >node.$node 2>node.err.$node </dev/null &
    jobs+=($!)
done
all_finish "${jobs[@]}"
check "four ranks on two nodes" grep -q "4 ranks" node.0
check "the bits of one rank" grep -q "State hash $whole" node.0

# Every word of the table is in this script.
tr '_' '-' <"$here" >script
for name in train run eval bench info; do
    "$program" help --man $name | sed -n '/OPTIONS OF OTHER/,/EXIT STATUS/p' | sed 's/\\-/-/g; s/\\f[BR]//g' |
        grep -oE '(^|,)--?[A-Za-z][A-Za-z0-9-]*' | tr -d ',' | grep -vE '^-(name|f)$' >words
    [ $name = eval ] || [ $name = info ] || check "$name: words are listed" test "$(wc -l <words)" -gt 5
    while read -r word; do
        check "$word of $name is tested" grep -qE -- "[\" (]$word([\" =]|\$)" script
    done <words
done

conclude

#!/bin/bash
# config.sh PROGRAM CONFIGS - the program with files of options. The recipes in CONFIGS run on tiny data of the
# same formats, shortened by flags; a file gives the same weights as the same flags; errors name file and line.
# Exits with 77 where the build cannot read YAML.
program=$1 command=train
configs=$(realpath "$2")
. "$(dirname "$0")/jobs.sh"
unset LOCKSTEP_ISA
export LOCKSTEP_DATA=$scratch/data HOME=$scratch XDG_CACHE_HOME=$scratch/cache

echo 'epochs: 0' >empty.yaml
"$program" train --config empty.yaml >out 2>err
if grep -q 'reads no YAML' err; then
    echo "skipped: $(cat err)"
    exit 77
fi

# Tiny data under the names that the recipes use.

noise() { seq 1 400000 | gzip -nc; } # bytes without much order
cifar() { # FILE COUNT SKIP LABEL-BYTES CLASSES
    local i
    for ((i = 0; i < $2; i++)); do
        [ "$4" -eq 1 ] || byte $((i % 20))
        byte $((i * 3 % $5))
        tail -c +$(($3 + 3072 * i)) noise | head -c 3072
    done >"data/$1"
}
mkdir -p data/mnist data/cifar10 data/cifar100
noise >noise
tail -c +20 noise | idx data/mnist/train 60
tail -c +100000 noise | idx data/mnist/t10k 30
for i in 1 2 3 4 5; do cifar cifar10/data_batch_$i.bin 6 $((i * 40000)) 1 10; done
cifar cifar10/test_batch.bin 10 100 1 10
cifar cifar100/train.bin 40 200 2 100
cifar cifar100/test.bin 20 90000 2 100

# The recipes.

# same FILE-ARGUMENTS -- FLAGS - both runs end with the same weights.
same() {
    local file=()
    while [ "$1" != -- ]; do
        file+=("$1")
        shift
    done
    shift
    run 0 "${file[@]}"
    local hash
    hash=$(hash_of)
    run 0 "$@"
    check "$line: another hash than with ${file[*]}" test -n "$hash" -a "$hash" = "$(hash_of)"
}

check "there are five recipes" test "$(cd "$configs" && LC_ALL=C && echo *.yaml)" = \
    "cifar10-pyramidnet.yaml cifar100-resnet18.yaml mnist-cnn-dropout2d.yaml mnist-cnn.yaml mnist-mlp.yaml"
short=(--threads 1 --num-workers 0)

same --config "$configs/mnist-cnn-dropout2d.yaml" --epochs 1 "${short[@]}" -- --model cnn:dropout2d=1 --data mnist \
    --optimizer adadelta --lr 1 --gamma .7 --seed 2020 --epochs 1 "${short[@]}"
same --config "$configs/cifar10-pyramidnet.yaml" --model pyramidnet:blocks=1,alpha=6 --max-steps 2 --batch-size 16 \
    --no-test "${short[@]}" -- --model pyramidnet:blocks=1,alpha=6 --data cifar10 --augment crop=4,flip \
    --optimizer sgd:momentum=.9,weight_decay=1e-4 --lr .1 --schedule step:size=2,gamma=.1 --epochs 4 --max-steps 2 \
    --batch-size 16 --no-test "${short[@]}"
# The width of resnet18 is fixed, so a small network stands in for it here.
small=(--model resnet20:width=4 --epochs 6 --max-steps 6 --batch-size 20 --test-batch-size 20)
same --config "$configs/cifar100-resnet18.yaml" "${small[@]}" "${short[@]}" -- \
    --data cifar100 "${small[@]}" "${short[@]}" \
    --augment flip,crop=4,jitter=.3/.2/.4/.4,affine=15/.1/.5/1.25/5,grayscale=.1,vflip=.5 \
    --init kaiming_normal:zero_bias --optimizer sgd:momentum=.9,nesterov=1,weight_decay=1e-4 --lr .064 \
    --schedule cosine:warmup=5 --label-smoothing .1
same --config "$configs/mnist-mlp.yaml" "${short[@]}" -- --model mlp --data mnist --optimizer adam --schedule constant \
    --batch-size 128 --epochs 3 "${short[@]}"
same --config "$configs/mnist-cnn.yaml" --epochs 1 "${short[@]}" -- --data mnist --epochs 1 "${short[@]}"

# As they are: the first step of the networks themselves.
run 0 --config "$configs/cifar100-resnet18.yaml" --max-steps 1 --batch-size 2 --no-test "${short[@]}"
said out "model resnet18:cifar=1 " "config $configs/cifar100-resnet18.yaml"
run 0 --config "$configs/cifar10-pyramidnet.yaml" --epochs 0 --no-test "${short[@]}"
said out "(24253410 parameters)" "model pyramidnet:blocks=17,alpha=270 "

# Ranks, from the file or from the line.
cat "$configs/mnist-mlp.yaml" >ranks.yaml
echo 'nproc: 2' >>ranks.yaml
same --config ranks.yaml "${short[@]}" -- --config "$configs/mnist-mlp.yaml" --parallel single "${short[@]}"
run 0 --config ranks.yaml -n 3 "${short[@]}"
said out "3 ranks" "config ranks.yaml"
run 0 --config "$configs/cifar10-pyramidnet.yaml" --model pyramidnet:blocks=1,alpha=6 --max-steps 1 --batch-size 8 \
    --no-test -n 2 "${short[@]}"
said out "[rank 1] "

# Messages.

run 0 --config "$configs/mnist-mlp.yaml" --epochs 0 --json "${short[@]}"
said out "\"config\":\"$configs/mnist-mlp.yaml\""
run 0 --model mlp --epochs 0 --json "${short[@]}"
said out '"config":""'

bad() { printf '%s\n' "$@" >bad.yaml; }
bad 'lr: 1' 'batchsize: 3'
refused "bad.yaml:2:" "'batchsize'" "'batch-size'" -- --config bad.yaml
bad 'lr: 1' '' 'lr: 2'
refused "bad.yaml:3:" "line 1 already" -- --config bad.yaml
bad 'epochs: some'
refused "bad.yaml:1:" "--epochs 'some'" -- --config bad.yaml --epochs 1
bad 'a: [1'
refused "bad.yaml:2:" "not valid YAML" -- --config bad.yaml
bad 'config: bad.yaml'
refused "bad.yaml:1:" "'config'" -- --config bad.yaml
refused "--config is given twice" -- --config empty.yaml --config empty.yaml
refused "no-such.yaml" "--config" -- --config no-such.yaml
refused "--config needs a value" -- --config
# Errors that are found by the run name file and line, too.
bad '# mine' 'optimizer: {name: sgdd}'
refused "'sgdd'" "'sgd'" "(--optimizer is from bad.yaml:2)" -- --config bad.yaml
bad 'data: digits' 'augment: [crop: 99999]'
refused "--augment 'crop=99999': write crop=N" "(--augment is from bad.yaml:2)" -- --config bad.yaml
bad 'test-augment: flip'
refused "--test-augment 'flip': flip is random" "(--test-augment is from bad.yaml:1)" -- --config bad.yaml
bad 'model: mlp' 'init-from: absent.pth'
refused "--init-from: " "absent.pth" "(--init-from is from bad.yaml:2)" -- --config bad.yaml
bad 'model: {name: cnn, dropuot: 0}'
refused "dropuot" "(--model is from bad.yaml:1)" -- --config bad.yaml
bad 'data: mnsit'
refused "'mnsit'" "(--data is from bad.yaml:1)" -- --config bad.yaml
bad 'data: mnist' 'schedule: constant'
refused "--gamma" "(--schedule is from bad.yaml:2)" -- --config bad.yaml --gamma .5
bad 'parallel: ddp'
refused "--stages" "(--parallel is from bad.yaml:1)" -- --config bad.yaml --stages 2
run 0 --config bad.yaml --help
said out "--config FILE.yaml"

# Other commands use their options of a recipe.

run 0 --config "$configs/mnist-mlp.yaml" --epochs 1 --save-model m.safetensors "${short[@]}"
command=eval
run 0 m.safetensors --config "$configs/mnist-mlp.yaml" --threads 1
said out "/30 ("
command=bench
run 0 train --config "$configs/mnist-mlp.yaml" --steps 1 --threads 1 --nproc 1 --json
said out '"img_per_s"'

check "processes are left: $(left)" test -z "$(left)"
conclude

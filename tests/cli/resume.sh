#!/bin/bash
# resume.sh PROGRAM - runs that are saved, killed and resumed in other layouts to the same bits. Options are taken
# from the checkpoint; an option that contradicts it is refused with both values.
program=$1 command=train
. "$(dirname "$0")/jobs.sh"

task=(--model cnn --batch-size 24 --epochs 1 --max-steps 12 --no-test --log-interval 1 --lr .5)

run 0 "${task[@]}" --save-model whole.safetensors
whole=$(hash_of)

# A run that is killed, and the same command again.

run 0 "${task[@]}" --checkpoint all --save-every 3 --keep 2
ends_alike
check "the last two stay, not $(steps_of all)" test "$(steps_of all)" = "9 12 "
said out "Checkpoint saved to all/step-000000012"
check "nothing unfinished is left" test -z "$(ls -d all/.lk-* 2>/dev/null)"

# part STEPS OPTIONS... - the first steps of the run, saved in ck.
part() {
    rm -rf ck
    run 0 "${task[@]}" --checkpoint ck --save-every 3 --max-steps "$@"
}
rest=(--resume ck --max-steps 12)

# A short wait lets the save reach the disk before the run dies.
LOCKSTEP_FAULT='delay:step=8,seconds=1;kill:step=8' run 137 "${task[@]}" --checkpoint ck --save-every 3 --resume auto
said out "no checkpoint in ck yet: the run begins"
run 0 "${task[@]}" --checkpoint ck --save-every 3 --resume auto --save-model again.safetensors
said out "going on from ck/step-00000000" "of 12 steps are done"
ends_alike
check "the saved models are the same bytes" cmp whole.safetensors again.safetensors

# Other layouts, with options from the checkpoint.

for layout in "-n 2" "-n 3 --backend tcp" "--devices cpu:0,cpu:1" "-n 2 --stages 2 --pipelined" "--threads 1" \
    "-n 4 --stages 2 --micro-batch 4"; do
    part 5
    # shellcheck disable=SC2086 # several words
    run 0 "${rest[@]}" $layout
    said out "going on from ck/step-000000005: 5 of 12 steps are done"
    check "$line: no step twice" test "$(grep -c '^Train Epoch' out)" -le 7
    ends_alike
done
part 4 -n 3
LOCKSTEP_FAULT=kill:rank=1,step=6 run 137 "${rest[@]}" -n 3
said err "killed by SIGKILL" "the last checkpoint is ck/step-000000004"
run 0 "${rest[@]}"
ends_alike

# The message names the checkpoint that a resumed run uses, also if it was finished while rank 0 waited for the
# dead rank.
part 3 -n 2
LOCKSTEP_FAULT='delay:rank=1,step=7,seconds=2;kill:rank=1,step=7' run 137 "${rest[@]}" -n 2
said err "killed by SIGKILL" "the last checkpoint is ck/step-000000006; --resume auto goes on from there"
run 0 "${rest[@]}"
said out "going on from ck/step-000000006"
ends_alike
# The message does not promise a checkpoint that is still being written.
part 3 -n 2
LOCKSTEP_FAULT='delay:op=save,step=6,seconds=3;kill:rank=1,step=8' run 137 "${rest[@]}" -n 2
said err "the last checkpoint is ck/step-000000003, and one of step 6 is being written"
run 0 "${rest[@]}"
ends_alike

# Contradictions.

part 3
contradicts() { # TEXT TEXT ARGUMENTS...
    run 2 "${rest[@]}" "${@:3}"
    said err "$1" "$2"
    check "$line: the checkpoint is untouched" "$program" verify --quiet ck
}
contradicts "--model mlp contradicts the checkpoint ck/step-000000003" "--model cnn" --model mlp
contradicts "--batch-size 32" "--batch-size 24" --batch-size 32
contradicts "--seed 2" "--seed 1" --seed 2
contradicts "--lr 0.25" "--lr 0.5" --lr .25
contradicts "--optimizer adam" "--optimizer adadelta" --optimizer adam
contradicts "--schedule step:size=1,gamma=0.5" "gamma=0.7" --gamma .5
contradicts "8 shards contradict" "--reshard" --shards 8
contradicts "--bn shard" "--bn batch" --bn shard
run 0 "${rest[@]}" --model cnn --seed 1 --lr 5e-1 --schedule step:gamma=.70,size=1 --batch-size 24
ends_alike

part 3
run 0 "${rest[@]}" --shards 8 --reshard
said out "8 shards instead of the checkpoint's 16 (--reshard)"
other=$(hash_of)
check "$line: other shards, other bits" test ${#other} -eq 16 -a "$other" != "$whole"

# Changed data are refused: one bit of a pixel is enough.
mkdir -p pixels
seq 1 400000 | idx pixels/train 60
seq 1 400000 | idx pixels/t10k 50
run 0 --model mlp --data pixels --epochs 1 --batch-size 20 --checkpoint seen
printf x | dd of=pixels/train-images-idx3-ubyte bs=1 seek=30000 conv=notrunc status=none
run 1 --resume seen --epochs 2
said err "--data pixels has 60 training samples" "was trained on 60 training samples"

# Folders that are in use.

refused "ck" "--resume auto" -- "${task[@]}" --checkpoint ck
refused "newer" "step-000000012" -- --resume ck/step-000000009
refused "--checkpoint" -- --resume auto
refused "--checkpoint DIR" -- --save-every 5
refused "epoch, or a whole number" -- --checkpoint x --save-every often
refused "--resume" -- --reshard
refused "--resume 'nowhere': there is no such folder" -- --resume nowhere
mkdir bare
refused "--resume 'bare': there is no checkpoint in that folder" -- --resume bare
touch file
refused "--checkpoint 'file/below'" "'file' is not a folder" -- --checkpoint file/below
run 0 "${task[@]}" --max-steps 2 --checkpoint runs/of/today
check "$line: the folders around it are made" test -f runs/of/today/step-000000002/model.safetensors
run 0 --resume ck/step-000000009 --checkpoint other --reshard --shards 8
said out "going on from ck/step-000000009"

# A run does not save into the folder of another run, whatever it resumes from.
run 0 "${task[@]}" --max-steps 3 --checkpoint another --seed 7 --save-every 1
for from in other other/step-000000012; do
    refused "another run" "--resume another" -- --resume $from --checkpoint another --epochs 2 --max-steps 20 --shards 8
    check "$line: it is as it was" test "$(steps_of another)" = "1 2 3 "
done

# A save that takes longer than the timeout of ranks.
small=(--model mlp --max-steps 9 --no-test --batch-size 16)
run 0 "${small[@]}"
few=$(hash_of)
LOCKSTEP_FAULT='delay:op=save,seconds=8' run 0 "${small[@]}" --checkpoint slow --save-every 3 -n 2 --timeout 4
hash_is "$few"
check "$line: the wait for a save is no time of steps" grep -qE '^ +time .*: [0-4]\.[0-9]+ s in steps, ' out
# An option value that cannot be a note must not end the run.
run 0 "${task[@]}" --checkpoint latin --save-model $'d\xe9.safetensors'
ends_alike
# A failed start leaves no folder.
run 2 --checkpoint leave --data nonsense
check "$line: no empty folder" test ! -e leave
# The resumed run saves the model at the end, as the first command asked.
rm -f asked.safetensors
run 0 "${task[@]}" --checkpoint asks --max-steps 4 --save-model asked.safetensors
rm asked.safetensors
run 0 --resume asks --max-steps 12
check "$line: --save-model is not forgotten" cmp whole.safetensors asked.safetensors

# The best checkpoint, a longer run, and eval.

learn=(--model mlp --data pixels --optimizer sgd --lr .05 --batch-size 20 --epochs 2) # 3 steps an epoch
run 0 "${learn[@]}" --checkpoint best
two=$(hash_of)
said out "the best so far"
check "a checkpoint is told once" test "$(grep -c 'Checkpoint saved to best/step-000000003' out)" -eq 1
said out "Checkpoint best/step-000000003 now has its test, the best so far"
check "best leads to a checkpoint" test -f best/best/model.safetensors
run 0 "${learn[@]}" --epochs 3 --resume best
three=$(hash_of)
run 0 "${learn[@]}" --epochs 3
hash_is "$three" # two epochs and one more are three
check "three epochs are not two" test "$two" != "$three"

# A failed evaluation does not lose the training.
LOCKSTEP_FAULT=alloc:op=eval run 1 "${learn[@]}" --checkpoint failed --save-every 100000
said err "no memory" "a checkpoint was saved to failed/step-000000003"
run 0 --resume failed
hash_is "$two"

# A kill between the best checkpoint and the link to it.
rm -rf best
run 0 "${learn[@]}" --epochs 1 --lr 1e-30 --checkpoint best --keep 1
rm best/best
run 0 --resume best --epochs 3
check "best is found again" test "$(readlink best/best)" = step-000000003
check "and stays" test "$(steps_of best)" = "3 9 "

test_line() { grep '^Test set' "$1" | tail -1; }
rm -rf best
run 0 "${learn[@]}" --checkpoint best --save-model two.safetensors
test_line out >tested
"$program" eval best/step-000000006 >out 2>err
check "eval of a checkpoint knows its model and data" cmp tested <(test_line out)
check "a model and its checkpoint are the same" "$program" compare two.safetensors best/step-000000006

# Checkpoints that are skipped.

part 6
truncate -s -1 ck/step-000000006/optimizer.safetensors
run 0 "${rest[@]}" -n 2
said out "passed over: ck/step-000000006" "going on from ck/step-000000003"
ends_alike
check "what was passed over is whole again" "$program" verify --quiet ck
part 6
truncate -s -1 ck/step-000000006/optimizer.safetensors
run 0 "${rest[@]}" -n 2 --quiet
said err "lockstep train: passed over: ck/step-000000006"

conclude

#!/bin/bash
# verify.sh PROGRAM - `lockstep verify`, and compare and info of checkpoints: exit statuses, and messages for every kind
# of damage.
program=$1 command=train
. "$(dirname "$0")/jobs.sh"
unset LOCKSTEP_DATA
export HOME=$scratch XDG_CACHE_HOME=$scratch/cache

# expect COMMAND STATUS ARGUMENTS... - the command ends with this status.
expect() { command=$1 run "${@:2}"; }
train=(--data digits --batch-size 16 --threads 1 --no-test --quiet --save-every 2)

run 0 "${train[@]}" --model mlp --max-steps 4 --checkpoint ck
run 0 "${train[@]}" --model mlp --max-steps 4 --checkpoint other --seed 2
run 0 "${train[@]}" --model resnet20 --max-steps 2 --checkpoint deep

# Whole checkpoints.

expect verify 0 ck
said out "step-000000002: whole; 8 tensors of the model and " "step-000000004: whole; " " of the optimiser, " " kB"
check "$line: a line each" test "$(wc -l <out)" -eq 2
expect verify 0 ck/step-000000004
said out "step-000000004: whole"
check "$line: one line" test "$(wc -l <out)" -eq 1
expect verify 0 ck/step-000000004/ --quiet
check "$line: prints nothing" test ! -s out -a ! -s err
expect verify 0 ck --json
said out '"checkpoint":"ck/step-000000002","whole":true,"model_tensors":8,"optimizer_tensors":'
ln -s step-000000002 ck/best
mkdir ck/.lk-1-1.tmp
expect verify 0 ck
said out "step-000000002: whole (the best)" ".lk-1-1.tmp: an unfinished save, which does no harm"
expect verify 0 ck/best
said out "best: whole"

# The old checkpoint of a save that was killed, where names cannot be exchanged.
mkdir killed
cp -r ck/step-000000002 killed/.lk-was-step-000000002.tmp
expect verify 0 killed
said out ".lk-was-step-000000002.tmp: whole (this is step-000000002, which a killed save was replacing: "
expect verify 0 killed --json
said out '"checkpoint":"killed/.lk-was-step-000000002.tmp","whole":true'
cp -r ck/step-000000002 killed
expect verify 0 killed
said out "step-000000002: whole; " ".lk-was-step-000000002.tmp: an unfinished save, which does no harm"
rm -r killed/step-000000002 killed/.lk-was-step-000000002.tmp/model.safetensors
expect verify 2 killed
said out ".lk-was-step-000000002.tmp: an unfinished save, which does no harm"

mkdir nothing
for dir in nothing absent; do
    expect verify 2 $dir
    said err "nothing to verify: '$dir'"
done
expect verify 2
said err "a checkpoint, or a folder of them"

# compare and info.

expect compare 0 ck/step-000000002 ck/best
check "$line: is silent" test ! -s out -a ! -s err
expect compare 0 ck/step-000000004 ck/step-000000004/model.safetensors
check "$line: is silent" test ! -s out -a ! -s err
expect compare 1 ck/step-000000002 ck/step-000000004
said out "chunk1.1.weight: " " elements differ, largest absolute difference " "optimiser " "position step: 2 against 4" \
    "differ: 8 parameters, " " of the optimiser's tensors, "
check "$line: options are the same" test "$(grep -c '^option' out)" -eq 0
expect compare 1 --quiet ck/step-000000002 ck/step-000000004
check "$line: prints nothing" test ! -s out -a ! -s err
expect compare 1 ck/step-000000004 other/step-000000004
said out "option --seed: 1 against 2"
check "$line: the position is the same" test "$(grep -c '^position step' out)" -eq 0
expect compare 1 deep/step-000000002 ck/step-000000002
said out "buffer bn1.running_mean: only in the first: f32 [16]" "buffers, "
expect compare 1 deep/step-000000002/model.safetensors ck/step-000000002
said out "conv1.weight: only in the first" "differ: "
# Another number of epochs does not change the result before the first epoch ends.
run 0 "${train[@]}" --model mlp --max-steps 4 --checkpoint longer --epochs 20
expect compare 0 ck/step-000000004 longer/step-000000004
check "$line: is silent" test ! -s out -a ! -s err
expect compare 2 ck ck/step-000000004
said err "ck has 2 checkpoints; name one of them, as ck/step-000000004"

expect info 0 ck/step-000000004
said out "position:" "options:" "--model            mlp" "model:" "chunk1.1.weight" "optimiser:" "steps" "hash "
grep -q '^  step  *4$' out || complain "$line: the step is not told"
# The first epoch is 1 here, as in the lines of training.
grep -q '^  epoch  *1$' out || complain "$line: the epoch is not counted from 1"
expect convert 0 ck/best model.pth
expect compare 0 ck/best model.pth

# Damage.

# damaged TEXT... - all commands refuse the checkpoint in `bad`, with these texts.
damaged() {
    expect verify 1 bad
    said out "step-000000004: damaged: bad/step-000000004/" "$@"
    expect verify 1 bad/step-000000004 --json
    said out '"whole":false,"why":"'
    expect verify 1 bad --quiet
    check "$line: prints nothing" test ! -s out -a ! -s err
    expect compare 2 bad/step-000000004 ck/step-000000004
    said err "$@"
    expect info 1 bad/step-000000004
    said err "$@"
}
anew() {
    rm -rf bad
    mkdir bad
    cp -r ck/step-000000002 ck/step-000000004 bad
}
here=bad/step-000000004
# flip FILE OFFSET - flips the lowest bit of a byte; a negative offset counts from the end.
flip() {
    local at=$2 byte
    [ "$at" -ge 0 ] || at=$(($(stat -c %s "$1") + at))
    byte=$(od -An -tu1 -j "$at" -N 1 "$1")
    printf '%b' "\\x$(printf %02x $((byte ^ 1)))" | dd of="$1" bs=1 seek="$at" conv=notrunc status=none
}

anew
flip $here/model.safetensors -1
damaged 'model.safetensors: tensor "chunk2.2.bias" differs from what was saved'
anew
flip $here/optimizer.safetensors 100
damaged "optimizer.safetensors: its header differs from what was saved"
anew
flip $here/checkpoint.json 100
damaged "checkpoint.json is damaged: it differs from what was saved"
anew
truncate -s 1000 $here/model.safetensors
damaged "model.safetensors is cut short: 1000 of "
anew
truncate -s 1000 $here/checkpoint.json
damaged "checkpoint.json is damaged: it is cut short"
anew
cp deep/step-000000002/model.safetensors $here
damaged "model.safetensors is another file than was saved: it has 128 tensors"
anew
cp other/step-000000004/model.safetensors $here
damaged "model.safetensors is another file than was saved: its tensors have the same names and shapes, and all differ"
anew
rm $here/optimizer.safetensors
damaged "optimizer.safetensors is missing"
anew
sed -i 's/^"version": 1,/"version": 7,/' $here/checkpoint.json
damaged "checkpoint.json is damaged: it says that a later version of lockstep made it, of format 7"

# A folder with the name of a checkpoint but without notes is a damaged checkpoint.
anew
rm $here/checkpoint.json
expect verify 1 bad
said out "step-000000002: whole" "step-000000004: damaged: bad/step-000000004 is no checkpoint"

conclude

#!/bin/bash
# replicas.sh PROGRAM - a bit that flips at one rank: no state computed after the flip is saved or resumed from, and
# the resumed run ends with the bits of an undisturbed run. Checkpoints that were set aside are never used.
program=$1 command=train
. "$(dirname "$0")/jobs.sh"

# 240 images: an epoch has 30 steps.
mkdir pixels
seq 1 400000 | idx pixels/train 240
seq 1 400000 | idx pixels/t10k 40
task=(--model mlp --data pixels --batch-size 8 --max-steps 120 --epochs 9 --no-test --keep 9)
agreed_of() { sed -n 's/^ *"agreed": "\([0-9]*\)",*$/\1/p' "$1/checkpoint.json"; }
set_aside() { ls "$1" | sed -n 's/^suspect-step-0*//p' | tr '\n' ' '; }

run 0 "${task[@]}" --save-model whole.safetensors
whole=$(hash_of)

# Saves.

# flipped FAULT STEP SAVED OPTIONS... - the run ends at that step, where replicas are compared, with these
# checkpoints. It resumes to the same bits.
flipped() {
    rm -rf ck
    LOCKSTEP_FAULT=$1 run 1 "${task[@]}" --checkpoint ck "${@:4}"
    said err "step $2: " "replicas must be equal to the bit"
    check "$line: ck has '$(steps_of ck)', not '$3'" test "$(steps_of ck)" = "$3"
    set -- "$1" "$2" "${3% }" "${@:4}"
    if [ -n "$3" ]; then
        said err "the last checkpoint is ck/step-000000$(printf %03d "${3##* }")" "--resume auto goes on from there"
    else
        said err "no checkpoint in ck"
    fi
    run 0 "${task[@]}" --checkpoint ck "${@:4}" --resume auto
    ends_alike
}
flipped flip:rank=0,step=92 100 "" -n 3 --save-every 100 --check-every 1000
flipped flip:rank=0,step=92 120 "30 60 90 " -n 3 --check-every 1000
flipped flip:rank=1,step=92 100 "50 " -n 3 --save-every 50 --check-every 1000
flipped flip:rank=0,step=55 100 "50 " -n 2 --save-every 50 --check-every 0
flipped flip:rank=1,step=112 120 "100 " --devices cpu:0,cpu:1 --save-every 100 --check-every 0
flipped flip:rank=2,step=92 100 "50 " -n 4 --stages 2 --save-every 50 --check-every 1000
# Between two saves.
flipped flip:rank=1,step=62 70 "50 " -n 2 --save-every 50 --check-every 10
said out "going on from ck/step-000000050"
check "$line: a checkpoint notes when replicas were equal" test "$(agreed_of ck/step-000000120)" = 120
run 0 "${task[@]}" --checkpoint alone --save-every 50
for step in 050 100 120; do
    check "$line: the same bytes in every layout" cmp {ck,alone}/step-000000$step/checkpoint.json
done

# The model, and evaluations.

for every in 0 1000; do
    LOCKSTEP_FAULT=flip:rank=0,step=119 run 1 "${task[@]}" -n 2 --check-every $every --save-model spoilt.safetensors
    said err "step 120: ranks 0 and 1 differ"
    check "$line: a model that differs between ranks is not saved" test ! -e spoilt.safetensors
done
# Replicas are compared before an evaluation: ranks that differ are not evaluated, and nothing is saved.
tested=(--model mlp --data pixels --batch-size 8 --epochs 1)
LOCKSTEP_FAULT='flip:rank=0,step=29;kill:rank=1,op=eval' run 1 "${tested[@]}" -n 2 --check-every 0 --save-every 1000 \
    --checkpoint untested
said err "step 30: ranks 0 and 1 differ"
check "$line: nothing is saved" test -z "$(steps_of untested)"

# Checkpoints that were set aside.

# A damaged checkpoint that is newer than the last step at which replicas were equal is set aside.
rm -rf ck
run 0 "${task[@]}" --max-steps 80 --save-every 20 --checkpoint ck
truncate -s -1 ck/step-000000080/model.safetensors
ln -sfn step-000000080 ck/best
LOCKSTEP_FAULT=flip:rank=1,step=62 run 1 "${task[@]}" -n 2 --check-every 10 --save-every 20 --checkpoint ck --resume auto
said err "step 70: ranks 0 and 1 differ" "set aside" "ck/suspect-step-000000080" "ck/step-000000060"
check "$line: set aside is '$(set_aside ck)'" test "$(set_aside ck)" = "80 "
check "$line: best does not lead there" test ! -e ck/best -a ! -L ck/best
refused "ck/suspect-step-000000080" "replicas differed" "--resume ck" -- --resume ck/suspect-step-000000080
ln -s suspect-step-000000080 ck/mine
refused "ck/mine" "replicas differed" -- --resume ck/mine
rm ck/mine
check "verify tells of it" grep -q '^suspect-step-000000080: set aside' <("$program" verify ck)
# Its model can be loaded, with a warning.
cp -r ck/step-000000060 suspect-step-000000060
for path in suspect-step-000000060 suspect-step-000000060/model.safetensors; do
    "$program" eval $path --model mlp --dry-run >out 2>err </dev/null
    said err "lockstep eval: $path" "its weights may be wrong"
    run 0 "${task[@]}" --max-steps 1 --init-from $path
    said err "lockstep train: $path" "its weights may be wrong"
done
run 0 "${task[@]}" --max-steps 1 --init-from ck/step-000000060
check "$line: a sound one needs none" test "$(grep -c 'may be wrong' err)" -eq 0
run 0 "${task[@]}" -n 3 --save-every 20 --checkpoint ck --resume auto
said out "going on from ck/step-000000060"
ends_alike
rm -rf ck
mkdir -p ck/suspect-step-000000080
run 0 "${task[@]}" --save-every 100 --checkpoint ck --resume auto
said out "no checkpoint in ck yet: the run begins"
ends_alike

conclude

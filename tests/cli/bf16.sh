#!/bin/bash
# bf16.sh PROGRAM - training in bf16 on the CPU: it learns as in fp32, is named in the first lines and in checkpoints, and
# is kept by a run that resumes.
program=$1 command=train
. "$(dirname "$0")/jobs.sh"

right() { sed -n 's/^Test set: .*Accuracy: \([0-9]*\)\/10000 .*/\1/p' out; }
# The mlp in both precisions classifies 9,500 of 10,000 test samples, and 150 at most lie between them.
task=(--model mlp --max-steps 900 --devices cpu)
run 0 "${task[@]}"
check "$line: fp32 is not named" test "$(grep -c '^precision' out)" -eq 0
whole=$(right)
run 0 "${task[@]}" --precision bf16
check "$line: no line with the precision" grep -qx 'precision bf16' out
half=$(right)
check "mlp: $whole in fp32, $half in bf16" test "$whole" -ge 9500 -a "$half" -ge 9500 \
    -a $((whole - half)) -le 150 -a $((half - whole)) -le 150

# The loss of the cnn, 2.3 before the first step, falls below 1.8 in both.
last_loss() { sed -n 's/^Train Epoch: .*Loss: //p' out | tail -1; }
task=(--model cnn --batch-size 16 --max-steps 41 --no-test --devices cpu)
run 0 "${task[@]}"
whole=$(last_loss)
run 0 "${task[@]}" --precision bf16
half=$(last_loss)
check "cnn: $whole in fp32, $half in bf16" awk -v a="$whole" -v b="$half" \
    'BEGIN { exit !(a && b && a < 1.8 && b < 1.8 && a - b < .3 && b - a < .3) }'

# The state is that of one rank with any number of ranks, and not that of fp32.
task=(--model mlp --max-steps 20 --no-test --quiet)
run 0 "${task[@]}"
plain=$(tail -1 out)
run 0 "${task[@]}" --precision bf16 --threads 1
one=$(tail -1 out)
check "$line: the state of fp32" test "$plain" != "$one"
run 0 "${task[@]}" --precision bf16 -n 3
check "$line: '$(tail -1 out)', not '$one'" test "$(tail -1 out)" = "$one"
LOCKSTEP_ISA=scalar run 0 "${task[@]}" --precision bf16
check "$line, scalar: '$(tail -1 out)', not '$one'" test "$(tail -1 out)" = "$one"

# A checkpoint keeps the precision.
run 0 --model mlp --max-steps 10 --no-test --quiet --precision bf16 --checkpoint half
run 0 --resume half --max-steps 20 --no-test --quiet --save-model half.safetensors
check "$line: '$(grep State out)', not '$one'" test "$(grep State out)" = "$one"
run 0 --resume half/step-000000010 --checkpoint other --max-steps 20 --no-test --precision fp32
said out "precision fp32 instead of bf16"

command=eval
run 0 half.safetensors --model mlp --precision bf16
said out "Test set: "
fails 2 "--precision tf32: the CPU computes in fp32 or bf16" -- half.safetensors --model mlp --precision tf32 --devices cpu
# Without a GPU no advice names one.
CUDA_VISIBLE_DEVICES= fails 2 "choose one of them; no GPU can be used here" -- half.safetensors --model mlp --precision tf32
CUDA_VISIBLE_DEVICES= fails 2 "write '--devices cpu'" -- half.safetensors --model mlp --precision tf32 --devices cuda:0

conclude

#!/bin/bash
# bf16.sh PROGRAM - training in bf16 on the CPU: it learns as in fp32, is named in the first lines and in checkpoints, and
# is kept by a run that resumes.
program=$1 command=train
. "$(dirname "$0")/jobs.sh"

hundredths() { sed -n 's/^Test set: .*Accuracy: \([0-9]*\)\/10000 .*/\1/p' out; }
# learns MODEL STEPS LEAST - both precisions reach LEAST of 10,000 test samples, and 150 at most lie between them.
learns() {
    local task=(--model "$1" --max-steps "$2" --devices cpu) whole half
    run 0 "${task[@]}"
    check "$line: fp32 is not named" test "$(grep -c '^precision' out)" -eq 0
    whole=$(hundredths)
    run 0 "${task[@]}" --precision bf16
    check "$line: no line with the precision" grep -qx 'precision bf16' out
    half=$(hundredths)
    check "$1: $whole in fp32, $half in bf16" test "$whole" -ge "$3" -a "$half" -ge "$3" \
        -a $((whole - half)) -le 150 -a $((half - whole)) -le 150
}
learns mlp 400 9300
learns cnn 40 7500

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

echo "$checks checks, $failures failures"
exit $((failures > 0))

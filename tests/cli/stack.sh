#!/bin/bash
# stack.sh PROGRAM - a stack limit of 64 KB changes neither what commands do nor how they handle signals.
program=$1 command=train
. "$(dirname "$0")/jobs.sh"

small() { # ARGUMENTS... - of the program, within the limit
    (ulimit -s 64 && exec timeout -s KILL 120 "$program" "$@") >out 2>err </dev/null
    status=$?
    line="ulimit -s 64; lockstep $*"
    check "$line: exit status $status" test $status -eq 0
}
if ! (ulimit -s 64 && timeout 10 true) 2>/dev/null; then
    echo "skipped: the limit on the stack (ulimit -s) cannot be set, or is too low for any program"
    exit 77
fi
task=(--data digits --max-steps 3 --batch-size 32 --no-test --quiet)
run 0 "${task[@]}" --model mlp --save-model whole.safetensors
for mode in "-n 1" "-n 2" "-n 2 --backend tcp" "--devices cpu:0,cpu:1" "--threads 2 --num-workers 2 --checkpoint ck"; do
    # shellcheck disable=SC2086 # several words
    small train "${task[@]}" --model mlp $mode --save-model small.safetensors
    check "$line: other bits" "$program" compare whole.safetensors small.safetensors
done
small train "${task[@]}" --model resnet18:cifar --max-steps 1 --batch-size 4
small train "${task[@]}" --resume ck --max-steps 4
small eval whole.safetensors --model mlp --data digits
small verify ck
small info --model resnet18:cifar
small run -n 2 true
# A signal is handled as without the limit.
line="ulimit -s 64; train and SIGTERM"
begin bash -c 'ulimit -s 64; exec "$@"' bash "$program" train --data digits --model mlp --max-steps 1000000 --no-test
trains() { grep -q 'Train Epoch' out; }
await 30 trains || complain "$line: does not train"
kill -TERM $job
finish $job
check "$line: exit status $status" test $status -eq 143
said err "SIGTERM after step"

conclude

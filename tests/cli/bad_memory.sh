#!/bin/bash
# bad_memory.sh PROGRAM - a run that does not fit into memory is refused at all ranks before it begins. The
# message says how much memory the run needs and for what, how much there is, and what to change; that change
# is enough.
program=$1 command=train
. "$(dirname "$0")/jobs.sh"

limit=250000 # kB of address space a process
task=(--model cnn --batch-size 1500 --test-batch-size 50 --dry-run --threads 1 --num-workers 0)
if ! (ulimit -v $limit && "$program" --version) >/dev/null 2>&1; then
    echo "skipped: the limit on memory (ulimit -v) cannot be set, or the program needs more than that to start"
    exit 77
fi
# limited STATUS ARGUMENTS... - like run, with a memory limit.
limited() {
    local wanted=$1
    shift
    line="$command $*"
    (ulimit -v $limit && exec timeout -s KILL 60 "$program" "$command" "$@") >out 2>err </dev/null
    local status=$?
    check "$line: exit status $status, not $wanted" test $status -eq "$wanted"
}
# Prints the number after a text in the file err.
number_after() { grep -oE -- "$1 [0-9]+" err | head -n 1 | grep -oE '[0-9]+$'; }
# Puts the options of the first advice in err into `advised`. A smaller program leaves room for larger waves, a
# larger one for smaller batches only.
read_advice() {
    local first
    first=$(grep -oE 'It would fit with [^()]*' err | head -n 1)
    advised=()
    [[ $first =~ --bn\ shard ]] && advised+=(--bn shard)
    [[ $first =~ --micro-batch\ ([0-9]+) ]] && advised+=(--micro-batch "${BASH_REMATCH[1]}")
    [[ $first =~ batches\ of\ ([0-9]+) ]] && advised+=(--batch-size "${BASH_REMATCH[1]}")
    check "$line: no advice" test ${#advised[@]} -gt 0
}

limited 1 "${task[@]}"
said err "lockstep: this rank needs 5" " MB of memory, but ulimit -v leaves " " MB. It needs 4" \
    " MB for activations of 1500 samples, " " MB for gradients" "It would fit with --micro-batch " "; or raise the limit"
check "$line: one line" test "$(wc -l <err)" -eq 1 -a ! -s out
wave=$(number_after --micro-batch)
check "$line: no whole shard in --micro-batch ${wave:-0}" test "${wave:-0}" -ge 94
limited 0 "${task[@]}" --micro-batch "${wave:-1}"

# Each process has the limit for itself; threads of one process share it.
limited 1 "${task[@]}" -n 2
said err "this rank needs 2" " MB for activations of 750 samples" "It would fit with --micro-batch "
check "$line: the reason is given once, and repeated by who was told" test \
    "$(grep -c '^lockstep: this rank needs\|^\[[01]\] lockstep: this rank needs' err)" -eq 1
check "$line: ranks are left" test -z "$(left)"
read_advice
limited 0 "${task[@]}" -n 2 "${advised[@]}"
limited 1 "${task[@]}" --devices cpu:0,cpu:1
said err "lockstep: 2 ranks of this process need 5" " A rank needs 2" "It would fit with --micro-batch "
read_advice
limited 0 "${task[@]}" --devices cpu:0,cpu:1 "${advised[@]}"

# BatchNorm over the batch allows no waves.
limited 1 "${task[@]}" --model resnet20:width=4 --batch-size 1000
said err " of memory, but ulimit -v leaves " "It would fit with --bn shard --micro-batch " "or with batches of "
batch=$(number_after 'batches of')
read_advice
limited 0 "${task[@]}" --model resnet20:width=4 --batch-size 1000 "${advised[@]}"
limited 0 "${task[@]}" --model resnet20:width=4 --batch-size "${batch:-1}"

# More memory than any host has.
run 1 "${task[@]}" --model resnet20:width=4096 --batch-size 60000
said err " TB of memory, but the " " TB for activations of 60000 samples" " GB for parameters"

conclude

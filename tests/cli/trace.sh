#!/bin/bash
# trace.sh PROGRAM - `train --trace`: the file is a valid trace of all ranks on one clock, in every mode; the bits of the
# run stay the same; a rank that is slowed on purpose is named with the part in which it is slow.
program=$1 command=train
here=$(dirname "$(realpath "$0")")
. "$here/jobs.sh"
unset LOCKSTEP_FAULT

# valid RANKS FIRST LAST KINDS... - trace.json must be valid, with spans of all these kinds.
valid() {
    if ! command -v python3 >/dev/null; then
        check "$line: the file does not end" grep -qx ']}' trace.json
        return
    fi
    check "$line: the trace is not valid" python3 "$here/trace.py" trace.json "$@"
}

task=(--data digits --model mlp --batch-size 32 --max-steps 6 --no-test)
run 0 "${task[@]}"
whole=$(hash_of)
check "a trace that was not asked for" test ! -e trace.json

# traced RANKS KINDS ARGUMENTS... - traces steps 3 to 5 of the task.
traced() {
    local ranks=$1 kinds=$2
    shift 2
    rm -f trace.json
    run 0 "${task[@]}" --trace 3-5 "$@"
    ends_alike
    said out "Trace of steps 3-5 written to trace.json" "trace: "
    # shellcheck disable=SC2086 # several words
    valid "$ranks" 3 5 $kinds
}
summed="data forward backward update sums check bucket"
traced 1 "data forward backward update check" -n 1
traced 1 "data forward backward update" --threads 2 --num-workers 0 --micro-batch 8
traced 3 "$summed" -n 3
traced 2 "$summed" -n 2 --backend tcp --bucket-mb .05 --num-workers 2
traced 2 "$summed" --devices cpu:0,cpu:1 --threads 2
traced 2 "data forward backward update wait message" -n 2 --stages 2 --pipelined --micro-batch 8
traced 2 "$summed save" -n 2 --checkpoint ck --save-every 4
LOCKSTEP_PROGRESS_THREAD=1 traced 2 "$summed" -n 2
# An evaluation between two traced steps.
run 0 --data digits --model mlp --batch-size 6000 --test-batch-size 5000 --epochs 2 --trace 10-11 -n 2 --trace-file ev.json
mv ev.json trace.json
valid 2 10 11 eval
# The last steps of a run, and more than there are; a folder of its own.
mkdir -p deep/er
run 0 "${task[@]}" --trace 5-99 --trace-file deep/er/t.json --quiet
said out "Trace of steps 5-6 written to deep/er/t.json"
# In the run folder.
rm -f trace.json
run 0 "${task[@]}" --trace 3-4 -n 2 --log-dir runs
check "$line: a trace beside the run folder" test ! -e trace.json
check "$line: no trace in the run folder" mv runs/*/trace.json .
valid 2 3 4 data
check "$line: the configuration has the trace" test "$(grep -c trace runs/*/config.yaml)" = 0
# A resumed run: steps that are done, and steps that are half done.
run 0 "${task[@]}" --resume ck --trace 2-4 --max-steps 8
said err "--trace 2-4: these steps are done"
rm -f trace.json
run 0 "${task[@]}" --resume ck --trace 6-10 --max-steps 10
said out "Trace of steps 9-10 written"
valid 1 9 10 data

# A rank that is slow says where. A fifth of a second is far more than a step needs.
slowed() { # FAULT RANK PART ARGUMENTS...
    local fault=$1 rank=$2 part=$3
    shift 3
    LOCKSTEP_FAULT=$fault run 0 "${task[@]}" --trace 3-5 "$@"
    said out "trace: rank $rank holds the steps back: $part takes"
    ends_alike
}
slowed 'slow:rank=1,op=data,seconds=.2' 1 data -n 3
slowed 'slow:rank=2,op=backward,seconds=.2' 2 backward -n 3
slowed 'slow:rank=0,op=forward,seconds=.2' 0 forward --devices cpu:0,cpu:1
slowed 'slow:rank=1,op=data,seconds=.2' 1 data --devices cpu:0,cpu:1
slowed 'slow:rank=1,op=forward,seconds=.05' 1 forward -n 2 --stages 2 --pipelined --micro-batch 8
LOCKSTEP_FAULT='slow:rank=1,op=backward,seconds=.2' run 0 "${task[@]}" --trace 3-5 -n 2 --json
said out '"event":"trace"' '"slowest":1,"part":"backward"' '"holds_back":true'

# Mistakes are found before the first step.
fails 2 "--trace 'five' is neither a step nor a range" -- "${task[@]}" --trace five
fails 2 "--trace '5-4'" -- "${task[@]}" --trace 5-4 -n 2
fails 2 "--trace 7: the run has only 6 steps" -- "${task[@]}" --trace 7
fails 2 "--trace-file t.json: give the steps too" -- "${task[@]}" --trace-file t.json
fails 2 "--trace-file 'none/t.json' cannot be written" "a folder that exists" -- "${task[@]}" --trace 1 --trace-file none/t.json
# A disk that is full costs the trace, not the run.
LOCKSTEP_FAULT='write:step=5,nth=2' run 0 "${task[@]}" --trace 3-5 --trace-file full.json
said err "the trace was not written: " "No space left"
ends_alike
check "$line: a torn file" test ! -e full.json

conclude

#!/usr/bin/env bash
# terminal.sh PROGRAM PTY_SCREEN - what `lockstep train` shows on a terminal of 40, 80 and 200 columns: while it runs,
# after Ctrl-C, at the end; and that nothing of it gets into pipes.
program=$1 command=terminal
# shellcheck source=jobs.sh
source "$(dirname "$(realpath "$0")")/jobs.sh"
pty=$2
unset NO_COLOR

# on COLUMNS STATUS TEXT ACTION ... -- ARGUMENTS - runs lockstep train on a terminal; its screens are in out.
on() {
    local columns=$1 wanted=$2 pairs=()
    shift 2
    while [ "$1" != -- ]; do
        pairs+=("$1" "$2")
        shift 2
    done
    shift
    line="$columns columns: train $*"
    timeout -k 5 100 "$pty" "$columns" "${pairs[@]}" -- "$program" train "$@" >out 2>err </dev/null
    check "$line: exit status $? instead of $wanted" test $? -eq "$wanted"
}
# The screen after the line "=== NAME".
screen() { awk -v name="=== $1" '/^=== / { on = $0 == name; next } on' out; }
# The progress line of a screen: its last line.
last() { screen "$1" | grep -v '^$' | tail -n 1; }
has() { # SCREEN WORD...
    local word name=$1
    shift
    for word in "$@"; do check "$line: '$word' is not on the screen" grep -qF -- "$word" <(screen "$name"); done
}
lacks() { # SCREEN WORD...
    local word name=$1
    shift
    for word in "$@"; do check "$line: '$word' is on the screen" test -z "$(screen "$name" | grep -F -- "$word")"; done
}
narrower() { check "$line: the progress line takes $(last "$1" | wc -m) columns" test "$(last "$1" | wc -m)" -le "$2"; }

if ! "$pty" 80 -- true >/dev/null 2>&1; then
    echo "skipped: no terminal can be had"
    exit 77
fi

long=(--model mlp --no-test --epochs 1000)
declare -A parts=([40]="step loss" [80]="epoch step loss acc ETA" [200]="epoch [. step loss acc lr img/s ETA MB")
for columns in 40 80 200; do
    for ranks in 1 2; do
        # Running, then Ctrl-C.
        on $columns 130 "loss " look "loss " ctrl-c -- "${long[@]}" -n $ranks
        read -ra words <<<"${parts[$columns]}"
        has "loss " "${words[@]}"
        narrower "loss " $columns
        lacks "loss " "Train Epoch"
        has end "SIGINT after step"
        lacks end "ETA " "/938000" "^C"
    done
    has "loss " "seed 1"
    # The end: nothing of the progress line is left, and the table has all rows.
    on $columns 0 -- --model mlp --max-steps 200 -n 2
    has end "Test set: " "  accuracy " "  time " "  speed " "  steps " "  peak memory " "  slowest rank "
    lacks end "ETA " "testing"
    check "$line: the last line" grep -q '^State hash' <(last end)
done
has end "options: batch-size 64, epochs 14, max-steps 200, optimizer adadelta, lr 1, schedule step:size=1,gamma=0.7"
on 200 130 "2 ranks" look "2 ranks" ctrl-c -- "${long[@]}" --devices cpu:0,cpu:1
narrower "2 ranks" 200

# Something is shown before the first step is done, and how far a long one is.
LOCKSTEP_FAULT=delay:step=1,op=step,seconds=3 on 80 130 "step 0/" look "next 0%" look "next 0%" ctrl-c -- "${long[@]}"
has "step 0/" "epoch 1/"
has "next 0%" "next 0% 0:02"

# A terminal that becomes narrow while the run goes on.
on 200 0 " lr " size=40 -- --model mlp --no-test --max-steps 4000

# Lines of intervals that were asked for stay above the progress line; every rank's own lines, too.
on 80 0 -- --model mlp --no-test --max-steps 300 -n 2 --log-interval 100 --log-ranks all
has end "Train Epoch: 1 [0/60000 (0%)]" "[rank 0] ends at" "[rank 1] ends at"
lacks end "ETA "
check "$line: three lines and three of each rank" test "$(screen end | grep -c 'Train Epoch: ')" -eq 9

# An error is printed once, and no progress line is left.
for ranks in 1 2; do
    on 200 1 "step " look -- --model mlp --lr 1e6 --optimizer sgd -n $ranks
    check "$line: the error is printed $(screen end | grep -c 'is nan') times" \
        test "$(screen end | grep -c 'is nan')" -eq 1
    lacks end "ETA "
done

# Colours: only on a terminal, and not with NO_COLOR. --quiet: results only.
on 200 0 "State hash" raw=bytes -- --model mlp --max-steps 50
check "$line: no colour" grep -q $'\033\\[32m' bytes
NO_COLOR=1 on 200 0 "State hash" raw=bytes -- --model mlp --max-steps 50
check "$line: a colour in spite of NO_COLOR" test "$(grep -c $'\033\\[[0-9]*m' bytes)" -eq 0
on 80 0 "State hash" raw=bytes -- --model mlp --max-steps 50 --quiet
check "$line: more than results" test "$(screen end | grep -c -v -e '^Test set: ' -e '^Total ' -e '^State hash ' -e '^$')" -eq 0
check "$line: control characters" test "$(grep -c $'\033' bytes)" -eq 0
TERM=dumb line="a pipe"
for ranks in 1 2; do
    "$program" train --model mlp --max-steps 50 -n $ranks >out 2>&1 </dev/null
    check "$line: control characters" test "$(grep -c $'\033\\|\r' out)" -eq 0
done

# Evaluation.
"$program" train --model mlp --max-steps 1 --no-test --save-model m.safetensors >out 2>&1
line="80 columns: eval"
"$pty" 80 "Test set" raw=bytes -- "$program" eval m.safetensors --model mlp --test-batch-size 1 >out 2>err
check "$line: testing is not shown" grep -q 'testing' bytes
check "$line: the last line" grep -q '^Test set: ' <(last end)

conclude

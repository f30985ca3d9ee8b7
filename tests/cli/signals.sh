#!/bin/bash
# signals.sh PROGRAM - signals to a training run: SIGINT and SIGTERM finish the step and save, a second one ends the run
# at once, SIGUSR1 saves. A fault stops or delays the run in step 3, so that signals always arrive in that step.
program=$1 command=train
. "$(dirname "$0")/jobs.sh"

task=(--model mlp --batch-size 48 --max-steps 8 --no-test --quiet --log-interval 1 --optimizer adam)
run 0 "${task[@]}" --save-model whole.safetensors

# Processes of the job in the given state; T: stopped.
in_state() {
    local file
    for file in $(grep -lsz "^MARK=$MARK\$" /proc/[0-9]*/environ); do
        grep -ls "^State:.$1" "${file%environ}status" 2>/dev/null
    done | tr -dc '0-9\n'
}
has_stopped() { [ -n "$(in_state T)" ]; }
# A signal, given as a mask, is pending for the process.
is_pending() { (($((16#$(sed -n 's/^ShdPnd:[^0-9a-f]*//p' "/proc/$1/status"))) & $2)); }

# halted FAULT OPTIONS... - starts a run in the background, waits until it has stopped in step 3, and sets $held to the
# stopped processes. (A background job of a script ignores SIGINT by default.)
halted() {
    local fault=$1
    shift
    line="train $*"
    rm -rf ck
    begin env --default-signal=INT LOCKSTEP_FAULT="$fault" "$program" train "${task[@]}" "$@"
    await 30 has_stopped || complain "$line: does not stop in step 3"
    held=$(in_state T | head -1)
}
ends_with() { # STATUS
    finish $job
    check "$line: exit status $status, not $1" test $status -eq "$1"
    check "$line: nobody is left" test -z "$(left)"
}
quietly() { "$@" >/dev/null; }
# There is one checkpoint, of the step that the message names, and it resumes to the same bits with one rank and with
# two.
resumes() { # SIGNAL WHO
    local step ranks
    step=$(sed -n "s/.*$1 after step \([0-9]*\);.*/\1/p" err | head -1)
    said err "lockstep train: ${2-}$1 after step" "Go on with: lockstep train --resume ck"
    check "$line: the step at hand is finished, and no other begun: $step" test "${step:-0}" -ge 3 -a "${step:-9}" -le 4
    check "$line: a checkpoint of step $step alone" test "$(steps_of ck)" = "$step "
    check "$line: it is whole" quietly "$program" verify ck
    cp -r ck ck.again
    for ranks in 1 2; do
        run 0 --resume ck --checkpoint ck -n $ranks --save-model resumed.safetensors
        said out "going on from " "$step of 8 steps are done"
        check "$line: other bits" "$program" compare whole.safetensors resumed.safetensors
        rm -rf ck resumed.safetensors
        mv ck.again ck 2>/dev/null
    done
}

# One process.
told="the step is finished first; a second signal ends the run at once"
for signal in TERM INT; do
    halted stop:step=3,op=step --checkpoint ck --save-every 1000
    kill -$signal "$held"
    kill -CONT "$held"
    ends_with $((128 + $(kill -l $signal)))
    said err "lockstep train: interrupted by SIG$signal: $told"
    resumes SIG$signal
done
halted stop:step=3,op=step
kill -INT "$held"
kill -CONT "$held"
ends_with 130
said err "SIGINT after step" "nothing was saved" "--checkpoint DIR"
halted stop:step=3,op=step --devices cpu:0,cpu:1 --checkpoint ck --save-every 1000
kill -TERM "$held"
kill -CONT "$held"
ends_with 143
resumes SIGTERM

# A signal that was ignored at the start stays ignored.
line="train under nohup"
begin env --ignore-signal=TERM --ignore-signal=USR1 LOCKSTEP_FAULT=stop:step=3,op=step "$program" train "${task[@]}"
await 30 has_stopped || complain "$line: does not stop in step 3"
held=$(in_state T | head -1)
kill -TERM "$held"
kill -USR1 "$held"
kill -CONT "$held"
ends_with 0

# Two ranks: a signal to the launcher, and a signal to one rank.
for signal in TERM INT; do
    halted stop:rank=1,step=3,op=step -n 2 --checkpoint ck --save-every 1000
    kill -$signal $job
    ends_with $((128 + $(kill -l $signal)))
    said err "lockstep train: interrupted by SIG$signal: the ranks finish this step first; a second signal ends them at once"
    cause_last err "^lockstep train: interrupted by SIG$signal\$" 0
    resumes SIG$signal
done
halted stop:rank=1,step=3,op=step -n 2
kill -INT $job
ends_with 130
said err "nothing was saved" "--checkpoint DIR"
for rank in 0 1; do
    halted stop:rank=$rank,step=3,op=step -n 2 --checkpoint ck --save-every 1000
    kill -TERM "$held"
    kill -CONT "$held"
    ends_with 143
    check "$line: rank $rank is named" grep -q "^lockstep train: rank $rank on host .* (pid $held) got SIGTERM" err
    [ $rank -eq 0 ] && who= || who="rank $rank on host $(hostname) got "
    resumes SIGTERM "$who"
done
# Stages agree on the step, too.
halted stop:rank=1,step=3,op=step -n 2 --stages 2 --checkpoint ck --save-every 1000
kill -TERM $job
ends_with 143
resumes SIGTERM

# SIGUSR1 saves, and the run continues to its end.
saves_and_goes_on() {
    local steps
    ends_with 0
    steps=$(steps_of ck)
    check "$line: saved in step 3 or 4, and at the end: $steps" grep -qE '^(3 |4 |3 4 |4 5 )8 $' <<<"$steps"
    check "$line: all whole" quietly "$program" verify ck
    check "$line: other bits" "$program" compare whole.safetensors saved.safetensors
    rm -f saved.safetensors
}
halted stop:step=3,op=step --checkpoint ck --save-every 1000 --save-model saved.safetensors
kill -USR1 "$held"
kill -CONT "$held"
saves_and_goes_on
halted stop:rank=1,step=3,op=step -n 2 --checkpoint ck --save-every 1000 --save-model saved.safetensors
kill -USR1 $job
check "$line: the launcher passes SIGUSR1 on" await 30 is_pending "$held" $((1 << ($(kill -l USR1) - 1)))
kill -CONT "$held"
saves_and_goes_on
halted stop:step=3,op=step
kill -USR1 "$held"
kill -CONT "$held"
ends_with 0

# A second signal ends the run at once, although the step takes ten minutes. Two signals at almost the same time would
# count as one, so the signal is repeated.
ends_at_once() { # SIGNAL STATUS
    rm -rf ck
    begin env --default-signal=INT LOCKSTEP_FAULT=delay:step=3,op=step,seconds=600 "$program" train "${task[@]}" \
        --checkpoint ck --save-every 1000 "${@:3}"
    line="train ${*:3} and SIG$1 twice"
    await 30 in_step_3 || complain "$line: does not come to step 3"
    await 30 told_again "$1" || complain "$line: does not end"
    ends_with "$2"
    check "$line: nothing is saved" test -z "$(steps_of ck)"
    check "$line: no word of going on" test "$(grep -c 'Go on with' err)" -eq 0
}
in_step_3() { [ "$(cat out 2>/dev/null | grep -c '^Train Epoch')" -eq 2 ]; }
told_again() {
    kill -"$1" $job 2>/dev/null
    sleep .25
    gone $job
}
ends_at_once TERM 143
said err "lockstep train: interrupted by SIGTERM: $told"
cause_last err '^lockstep train: interrupted by SIGTERM again: the run ends at once$' 0
ends_at_once INT 130
ends_at_once INT 130 -n 2

# Before the first step one signal is enough, and nothing is saved.
line="train that waits for a rank"
begin env --default-signal=INT "$program" train "${task[@]}" --init-method "file://$scratch/meeting" --rank 0 --world-size 2
await 30 test -e meeting || complain "$line: does not wait"
kill -USR1 $job
kill -INT $job
ends_with 130

conclude

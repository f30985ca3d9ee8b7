#!/bin/bash
# resume_cross.sh PROGRAM BUILD - checkpoints that move between machines. The program for the other architecture
# (x86-64 on an arm64 host, else arm64), built in BUILD and run by an emulator, and PROGRAM of this machine save the same
# bytes, and each resumes the other's checkpoints to the same bits. Exits with 77 (skipped) and a reason where that is
# impossible.
program=$1 command=train
build=$(realpath -m "$2") native=$(realpath "$1")
"$(dirname "$0")/../../tools/cross" --program "$build" || exit
. "$(dirname "$0")/jobs.sh"
emulated=$build/emulated
best=neon
[ "$(uname -m)" != aarch64 ] || best=avx2

# on MACHINE ARGUMENTS... - must succeed. A step of the cnn takes seconds in an emulator.
on() {
    line="$1: train ${*:2}"
    timeout -s KILL 300 "${!1}" train "${@:2}" >out 2>err </dev/null
    local status=$?
    check "$line: exit status $status" test $status -eq 0
}
# Keeps one checkpoint, as if the run had ended there.
take() { # FOLDER STEP
    rm -rf ck
    mkdir ck
    cp -r "$1/step-00000000$2" ck
}

check "the program is for the other architecture" grep -q $best <("$emulated" info)

for case in "cnn --batch-size 16 --max-steps 3" "mlp --batch-size 32 --max-steps 9 --optimizer adam"; do
    read -ra task <<<"--model $case --epochs 1 --no-test --quiet --log-interval 1"
    rm -rf from_*
    on emulated "${task[@]}" --checkpoint from_emulated --save-every 1 --keep 9
    whole=$(hash_of)
    check "$line: no state hash" test -n "$whole"
    on native "${task[@]}" --checkpoint from_native --save-every 1 --keep 9
    ends_alike
    check "$case: all checkpoints are the same bytes" diff -r from_emulated from_native
    check "$case: there are some" test -f from_emulated/step-000000003/optimizer.safetensors

    take from_emulated 1
    on native --resume ck --checkpoint ck -n 2
    said out "going on from ck/step-000000001"
    ends_alike
    take from_native 2
    on emulated --resume ck --checkpoint ck
    said out "going on from ck/step-000000002"
    ends_alike
done

# A run that is stopped by a signal on one machine. The delay makes the signal arrive during a step.
rm -rf ck
line="emulated: stopped"
begin env LOCKSTEP_FAULT=delay:step=4,seconds=5 "$emulated" train "${task[@]}" --checkpoint ck
await 60 grep -q '\[64/' out || complain "$line: the third step does not come"
kill -TERM $job
finish $job
check "$line: exit status $status" test $status -eq 143
said err "SIGTERM after step" "lockstep train --resume ck"
on native --resume ck --checkpoint ck
said out "of 9 steps are done"
ends_alike

conclude

#!/bin/bash
# contained.sh PROGRAM - no process of a job is left when its processes are killed by name, as by
# `pkill -9 lockstep`, nor where /proc is not mounted.
program=$1 command=run
. "$(dirname "$0")/jobs.sh"

# Each rank starts a process that ignores signals, has a session of its own and shares no file with the rank.
family='setsid sh -c "trap \"\" TERM HUP INT; exec sleep 1000" >/dev/null 2>&1 </dev/null & echo ready; exec sleep 999'
# Processes of this script's jobs: those whose file FILE under /proc/PID matches a pattern.
named() { # FILE PATTERN
    local file folder
    for file in $(grep -lsz "^MARK=$MARK\$" /proc/[0-9]*/environ); do
        folder=${file%/environ}
        [ "$folder" = /proc/$$ ] || ! tr '\0' ' ' <"$folder/$1" | grep -q "$2" || echo "${folder#/proc/}"
    done 2>/dev/null
}
nobody_left() { [ -z "$(left)$(named comm lk-guard)" ]; }
sleepers() { [ "$(named cmdline '^sleep 1000' | wc -l)" -eq "$1" ]; }

# pkill matches the name, pkill -f matches the whole command line.
for file in comm cmdline; do
    line="run -n 2, all that is called lockstep in $file is killed"
    begin "$program" run -n 2 sh -c "$family"
    await 30 ready 2 out || complain "$line: no ranks"
    await 30 sleepers 2 || complain "$line: no grandchildren"
    check "$line: there is a guard" test "$(named comm lk-guard | wc -l)" -eq 1
    mapfile -t victims < <(named $file lockstep)
    check "$line: launcher and keeper are hit" test ${#victims[@]} -ge 2
    kill -STOP "${victims[@]}" # none of them acts before all are hit
    kill -KILL "${victims[@]}"
    wait $job 2>/dev/null
    check "$line: nobody is left" await 10 nobody_left
done

# Without /proc the launcher knows the ranks and their process groups, and ends them as quickly.
line="run -n 2 without /proc"
if unshare -rm sh -c 'mount -t tmpfs none /proc' 2>/dev/null; then
    begin unshare -rm sh -c 'mount -t tmpfs none /proc && exec "$0" "$@"' "$program" run -n 2 sh -c \
        'trap "" TERM; sleep 1000 & echo ready; [ $RANK = 0 ] || { while ! [ -e go ]; do sleep .05; done; exit 5; }; wait'
    await 30 ready 2 out || complain "$line: no ranks"
    began=$SECONDS
    touch go
    finish $job
    check "$line: exit status $status" test $status -eq 5
    check "$line: the end took $((SECONDS - began)) s" test $((SECONDS - began)) -le 5
    cause_last err '^lockstep run: rank 1 .* exited with status 5$' 0
    check "$line: nobody is left" await 10 nobody_left
    # A process that left the group of its rank is not found; the launcher soon says so.
    line="run -n 1 without /proc, a child in a session of its own"
    begin unshare -rm sh -c 'mount -t tmpfs none /proc && exec "$0" "$@"' "$program" run -n 1 sh -c "$family & sleep 1; exit 6"
    began=$SECONDS
    finish $job
    check "$line: exit status $status" test $status -eq 6
    check "$line: the end took $((SECONDS - began)) s" test $((SECONDS - began)) -le 6
    said err "without /proc, processes that left the process group of their rank cannot be found: some are left"
    mapfile -t victims < <(named cmdline '^sleep')
    kill -KILL "${victims[@]}"
else
    echo "skipped: unshare(1) may not make namespaces here, so /proc is always there"
fi

conclude

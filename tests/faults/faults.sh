#!/bin/bash
# faults.sh LOCKSTEP VICTIM STRANGER - ranks, keepers and launchers that die or are stopped, at every
# moment and in every call; strangers that connect; missing resources. Each case has the right message
# in time, and no process or file is left.
source "$(dirname "$(realpath "$0")")/apart.sh"
program=$(realpath "$1") victim=$(realpath "$2") stranger=$(realpath "$3")
source "$(dirname "$(realpath "$0")")/../port.sh"

moments=(before during after)
calls=(allreduce reduce reduce_scatter allgather gather scatter broadcast alltoall barrier message)
declare -A backend=([shm]="--backend shm" [tcp]="--backend tcp" [auto]="--backend auto --hosts 2")
declare -A exits=([kill]=137 [segv]=139 [exit]=3)
declare -A says=([kill]="was killed by SIGKILL" [segv]="was killed by SIGSEGV (segmentation fault)"
    [exit]="exited with status 3")

# A rank dies.

# died BACKEND KIND RANK MOMENT [CALL]
died() {
    local way=$1 kind=$2 rank=$3 moment=$4 call=${5:-allreduce} other pid
    # A rank that waits for others to join must end at SIGTERM.
    local stubborn=1
    [ "$moment" != before ] || stubborn=0
    start -n 3 "$victim" ${backend[$way]} --fault "$kind" --in "$rank" --when "$moment" --call "$call" \
        --iterations 1000000 --stubborn $stubborn --delay 900000
    finish
    status_is "${exits[$kind]}"
    took "$rank"
    pid=$(<"pid.$rank")
    grep -q "^lockstep run: rank $rank on host [^ ]* (pid $pid) ${says[$kind]}" err || complain "the cause is not told"
    tail -n 1 err | grep -q "^lockstep run: rank $rank" || complain "the cause is not told last"
    [ "$moment" != before ] || return
    for other in 0 1 2; do
        # The last rank does not join when the rendezvous fails.
        if [ $other -ne "$rank" ] && { [ "$moment" != during ] || [ $other -ne 2 ]; }; then
            grep -q "^\[$other\] victim: .*rank $rank .*died" err || complain "rank $other does not tell who died"
        fi
    done
}

# died_joining BACKEND RANK MICROSECONDS: RANK is killed at that time.
died_joining() {
    start -n 3 "$victim" ${backend[$1]} --fault kill --in "$2" --when joining --delay "$3" --iterations 1000000
    finish
    status_is 137
    took "$2"
    said err "lockstep run: rank $2 on host" "was killed by SIGKILL"
}

# A rank is stopped.

is_stopped() { [ -f "fault.$1" ] && grep -q '^State:.[Tt]' "/proc/$(<"pid.$1")/status" 2>/dev/null; }
# stopped BACKEND RANK MOMENT [CALL]: RANK is stopped for a moment.
stopped() {
    start -n 3 "$victim" ${backend[$1]} --fault stop --in "$2" --when "$3" --call "${4:-allreduce}"
    until_true 10 is_stopped "$2" || complain "rank $2 was not stopped"
    rest 0.2 # the job must not end in this time
    kill -0 "$launcher" 2>/dev/null || complain "the job ended while a rank was stopped"
    kill -CONT "$(<"pid.$2")"
    finish
    status_is 0
}
# noticed BACKEND RANK MOMENT: RANK is stopped until there is a notice.
noticed() {
    start -n 3 "$victim" ${backend[$1]} --fault stop --in "$2" --when "$3"
    until_true 10 is_stopped "$2"
    local notice="rank $2 (pid $(<"pid.$2")) is stopped (SIGSTOP); awaited, 29[0-9] s left"
    until_true 10 grep -q "^lockstep run: $notice" err ||
        complain "the launcher does not tell who is stopped"
    if [ "$3" = inside ]; then
        until_true 10 grep -q "notice: rank [0-2] waits in allreduce .*for .*rank.*$2.* s left" err ||
            complain "no rank tells whom it waits for"
    fi
    kill -0 "$launcher" 2>/dev/null || complain "the job ended while a rank was stopped"
    kill -CONT "$(<"pid.$2")"
    finish
    status_is 0
}
# given_up BACKEND RANK MOMENT: RANK is stopped; the launcher ends the job after the timeout.
given_up() {
    start -n 3 --timeout 2 "$victim" ${backend[$1]} --fault stop --in "$2" --when "$3"
    finish
    status_is 1
    grep -q "^lockstep run: rank $2 on host .* stayed stopped for 2 s" err || complain "the cause is not told"
    echo $(($(tr -d . <<<"$ended") - $(tr -d . <"fault.$2") - 2000000)) >took
}
# timed_out BACKEND RANK MOMENT: RANK is stopped; the other ranks end the job after their timeout.
timed_out() {
    start -n 3 "$victim" ${backend[$1]} --fault stop --in "$2" --when "$3" --timeout 2
    finish
    status_is 1
    local whom=$2
    grep -Eq -e "^\[.\] victim: .*rank(s [0-2] and)? $whom( of 3 .*|, .*| |$).*2 s" \
        -e "^\[.\] victim: .*waited 2 s in .* for ranks? .*$whom" err ||
        complain "no rank names the one that is stopped"
    grep -q "^lockstep run: rank [0-2] on host .* exited with status 1" err || complain "the cause is not told"
    # Leaving a stopped rank 0 takes one second more.
    ((${ended/./} - $(tr -d . <"fault.$2") < 2000000 + bound_us)) || complain "took too long"
}
# absent RANK SECONDS LAUNCHER'S VICTIM'S: RANK never joins. The last two are timeouts; the victim's
# counts unless it is 0.
absent() {
    start -n 3 --timeout "$3" "$victim" --backend tcp --when absent --in "$1" --timeout "$4"
    finish
    status_is 1
    if [ "$1" = 0 ]; then
        said err "rank 0 of 3 " "gave up after $2 s"
    else
        said err "rank $1 of 3 has not joined within $2 s"
    fi
}

# gone BACKEND RANK: RANK exits with status 0 and has not joined; the others learn it long before the timeout.
gone() {
    start -n 3 "$victim" ${backend[$1]} --when gone --in "$2"
    finish
    status_is 1
    said err "rank $2 of 3 exited with status 0 before it joined"
}

# Launcher and keeper.

keeper_of() {
    local pid
    for pid in $(marked "$FAULTS_MARK"); do
        [ "$(<"/proc/$pid/comm")" != lockstep-keeper ] || echo "$pid"
    done
}
all_joined() { [ "$(cat out 2>/dev/null | grep -c 'joined:')" -eq 3 ]; }
# start_family: each of three ranks has a child that ignores all signals except SIGKILL.
start_family() {
    start -n 3 "$victim" ${backend[$1]} --iterations 1000000 --child 1 "${@:2}"
    until_true 10 all_joined || complain "the ranks did not join"
}
# measure_end: waits until all processes of the case have ended.
measure_end() {
    local begin=$EPOCHREALTIME
    until_true 5 unmarked "$FAULTS_MARK" || complain "processes are left after 5 s"
    ended=$EPOCHREALTIME
    echo $((${ended/./} - ${begin/./})) >took
}
launcher_killed() {
    start_family "$1"
    kill -KILL "$launcher"
    wait "$launcher" 2>/dev/null
    measure_end
}
keeper_killed() {
    start_family "$1"
    local begin=$EPOCHREALTIME keeper
    keeper=$(keeper_of)
    kill -KILL "$keeper"
    finish
    status_is 1
    echo $((${ended/./} - ${begin/./})) >took
    said err "keeper of the ranks (pid $keeper) was killed; all ranks were ended"
}
# signalled BACKEND NAME STATUS: the launcher and the ranks end at the signal.
signalled() {
    start -n 3 "$victim" ${backend[$1]} --iterations 1000000
    until_true 10 all_joined
    local begin=$EPOCHREALTIME
    kill "-$2" "$launcher"
    finish
    echo $((${ended/./} - ${begin/./})) >took
    status_is "$3"
    said err "interrupted by SIG$2"
}
# Whether the launcher is still the forked shell: a shell with an EXIT trap loses a SIGTERM between
# fork and exec.
still_shell() { [ "/proc/$launcher/exe" -ef "/proc/$BASHPID/exe" ]; }
# early SIGNAL SECONDS: signals the launcher SECONDS after its start. Not SIGINT, which the shell
# ignores at first for background processes.
early() {
    start -n 3 "$victim" --iterations 1000000 --child 1
    while still_shell; do :; done
    rest "$2"
    kill "-$1" "$launcher"
    finish
    status_is $((128 + $(kill -l "$1")))
    until_true 8 unmarked "$FAULTS_MARK" || complain "processes are left"
}
# Ranks that ignore the signal are killed after the grace period.
deaf() {
    start_family tcp --stubborn 1
    kill -TERM "$launcher"
    finish
    status_is 143
}
# After a second signal the launcher does not wait for the ranks any longer.
impatient() {
    start_family shm --stubborn 1
    kill -TERM "$launcher"
    rest 0.5 # sooner, the two signals would count as one
    local begin=$EPOCHREALTIME
    kill -TERM "$launcher"
    finish
    us=$((${ended/./} - ${begin/./}))
    echo $us >took
    ((us < 3000000)) || complain "took $us us"
    status_is 143
}
terminal_closed() {
    script -qefc "exec $program run -n 3 $victim --iterations 1000000" /dev/null >out 2>err </dev/null &
    local terminal=$!
    until_true 10 all_joined || complain "the ranks did not join"
    kill -KILL $terminal
    wait $terminal 2>/dev/null
    measure_end
}
reader_gone() {
    "$program" run -n 3 bash -c 'while echo a line; do :; done' 2>err | head -n 1 >out
    status=${PIPESTATUS[0]}
    [ "$status" -ne 0 ] || complain "status 0 although nobody reads"
}
suspended() {
    # The job has its own process group, whose parent is in another group of the session: the kernel
    # drops SIGTSTP in orphaned groups.
    set -m
    start -n 3 "$victim" --backend tcp --iterations 1000 --pause 0.005
    set +m
    until_true 10 all_joined
    kill -TSTP "$launcher"
    until_true 5 grep -q '^State:.T' "/proc/$launcher/status" || complain "the launcher does not stop"
    until_true 5 grep -q '^State:.T' "/proc/$(<pid.1)/status" || complain "the ranks do not stop"
    kill -CONT "$launcher"
    finish
    status_is 0
}

# What is missing or in the way.

# full_memory SIZE TEXT VICTIM'S ARGUMENTS...
full_memory() {
    local size=$1 text=$2
    shift 2
    unshare -m sh -c 'mount -t tmpfs -o size="$0" none /dev/shm && "$@"
        status=$?; ls /dev/shm >left; exit $status' "$size" \
        "$program" run -n 3 "$victim" "$@" >out 2>err
    status=$?
    status_is 1
    said err "$text" "/dev/shm"
    [ ! -s left ] || complain "left in /dev/shm: $(<left)"
}
busy_port() {
    local port other
    port=$(free_port)
    "$victim" --init "tcp://127.0.0.1:$port" --rank 0 --world 2 --timeout 60 >out.holder 2>&1 &
    other=$!
    until_true 5 grep -q "$(printf ':%04X 00000000:0000 0A' "$port")" /proc/net/tcp || complain "nobody listens"
    start -n 2 --master-port "$port" "$victim"
    finish
    status_is 1
    said err "$port"
    grep -qi "in use" err || complain "the launcher does not tell that the port is in use"
    "$victim" --init "tcp://127.0.0.1:$port" --rank 0 --world 2 --timeout 5 >out 2>err.second
    status=$?
    status_is 1
    said err.second "as the same rank" "pid $other"
    kill -KILL $other
    wait $other 2>/dev/null
}
wrong_token() {
    local port first
    port=$(free_port)
    "$victim" --init "tcp://127.0.0.1:$port" --rank 0 --world 2 --timeout 2 --token one >out 2>err.0 &
    first=$!
    LOCKSTEP_TOKEN=two "$victim" --init "tcp://127.0.0.1:$port" --rank 1 --world 2 --timeout 1 >>out 2>err.1
    status=$?
    status_is 1
    said err.1 "rank 0 of 2" "token"
    wait $first
    status=$?
    status_is 1
    said err.0 "rank 1 of 2 has not joined within 2 s"
}
# Two jobs without launchers use one port: the rank of the other job is refused.
same_port() {
    local port rank pids=()
    port=$(free_port)
    for rank in 0 1; do
        "$victim" --init "tcp://127.0.0.1:$port" --rank $rank --world 2 --timeout 10 --token one --shards 7 \
            >out.$rank 2>err.$rank &
        pids+=($!)
    done
    "$victim" --init "tcp://127.0.0.1:$port" --rank 1 --world 2 --timeout 1 --token other >out.2 2>err.2
    status=$?
    status_is 1
    for rank in 0 1; do
        wait "${pids[$rank]}"
        status=$?
        status_is 0
    done
}
two_jobs() {
    local one two
    start -n 2 "$victim" --backend auto --iterations 200 --shards 7
    one=$launcher
    (mkdir second && cd second && exec "$program" run -n 3 "$victim" --iterations 200 --shards 7) >out.2 2>err.2 &
    two=$!
    launcher=$one
    finish
    status_is 0
    wait $two
    status=$?
    status_is 0
    [ "$(grep -c 'of 2' out)" -eq 2 ] && [ "$(grep -c 'of 3' out.2)" -eq 3 ] || complain "a rank joined the other job"
    [ "$(cat out out.2 | grep -o 'sum.*' | sort -u | wc -l)" -eq 1 ] || complain "the sums differ"
}
# strangers BACKEND: strangers connect before and during the job.
strangers() {
    local visitor begin
    "$stranger" over.strangers >out.strangers 2>&1 &
    visitor=$!
    begin=$EPOCHREALTIME
    start -n 3 "$victim" ${backend[$1]} --iterations 300 --pause 0.003 --shards 7
    finish
    status_is 0
    ((${ended/./} - ${begin/./} < 10000000)) || complain "strangers delayed the job"
    touch over.strangers
    wait $visitor || complain "no stranger got through to a port"
}
stale_file() {
    start -n 2 "$victim" --init "file://$PWD/meeting" --when absent --in 1 --timeout 30
    until_true 5 test -f meeting || complain "rank 0 wrote no file"
    kill -KILL "$(<pid.0)"
    finish
    status_is 137
    start -n 2 "$victim" --init "file://$PWD/meeting" --timeout 5
    finish
    status_is 1
    said err "meeting is stale" "remove it"
    rm -f meeting
    start -n 2 "$victim" --init "file://$PWD/meeting" --timeout 5
    finish
    status_is 0
    [ ! -e meeting ] || complain "the file is left"
}
no_program() {
    start -n 3 ./nothing-of-this-name
    finish
    [ $status -ne 0 ] || complain "status 0"
    said err "nothing-of-this-name"
}

# All of them.

for way in shm tcp auto; do
    for kind in kill exit segv; do
        for rank in 0 1; do
            for moment in "${moments[@]}"; do
                with "$way-$kind-$rank-$moment" died $way $kind $rank "$moment"
            done
            for call in "${calls[@]}"; do
                with "$way-$kind-$rank-in-$call" died $way $kind $rank inside "$call"
            done
        done
    done
    for ((delay = 200; delay <= 6000; delay += 200)); do
        with "$way-joining-$delay" died_joining $way $((delay / 200 % 3)) $delay
    done
    # The next job removes a named segment whose owner was killed.
    wait
    with "$way-next" stopped $way 1 after
    leftovers "deaths over $way"
    side_by_side=8 # these cases sleep most of the time
    for rank in 0 1; do
        for moment in "${moments[@]}"; do
            with "$way-stop-$rank-$moment" stopped $way $rank "$moment"
        done
        for call in "${calls[@]}"; do
            with "$way-stop-$rank-in-$call" stopped $way $rank inside "$call"
        done
    done
    leftovers "stops over $way"
    side_by_side=4
done
for way in shm tcp auto; do
    with "launcher-killed-$way" launcher_killed $way
    with "keeper-killed-$way" keeper_killed $way
    with "sigint-$way" signalled $way INT 130
    with "sigterm-$way" signalled $way TERM 143
    with "sighup-$way" signalled $way HUP 129
done
with impatient impatient
with deaf deaf
with suspended suspended
with reader-gone reader_gone
if command -v script >/dev/null; then
    with terminal-closed terminal_closed
else
    echo "no script(1): the closed terminal is left out"
fi
with busy-port busy_port
with wrong-token wrong_token
with same-port same_port
with two-jobs two_jobs
with stale-file stale_file
with no-program no_program
side_by_side=24
for delay in 0.0{01..24}; do
    with "early-kill-$delay" early KILL $delay
done
for delay in 0.0{01..24}; do
    with "early-term-$delay" early TERM $delay
done
leftovers "launchers"
for way in shm tcp auto; do
    for rank in 0 1; do
        with "$way-noticed-$rank" noticed $way $rank inside
        with "$way-noticed-$rank-before" noticed $way $rank before
        for moment in before during inside; do
            with "$way-given-up-$rank-$moment" given_up $way $rank $moment
            with "$way-timed-out-$rank-$moment" timed_out $way $rank $moment
        done
    done
done
for rank in 0 1 2; do
    with "absent-$rank" absent $rank 3 300 3
    with "absent-$rank-by-launcher" absent $rank 2 2 0
    with "gone-$rank" gone tcp $rank
    with "gone-$rank-auto" gone auto $rank
done
leftovers "ranks that are awaited"
if [ "$FAULTS_APART" = yes ]; then
    side_by_side=1 # strangers connect to every port
    for way in shm tcp auto; do
        with "strangers-$way" strangers $way
    done
    with full-memory full_memory 64k 'left; enlarge it or use `backend` tcp' --backend shm
    with full-memory-auto full_memory 64k 'left; enlarge it or use `backend` tcp' --backend auto
    with full-memory-later full_memory 24m 'left; enlarge it or use `backend` tcp' --backend shm --alloc 20000000
else
    echo "no namespaces here: strangers and a full /dev/shm are left out"
fi
leftovers "strangers and a full /dev/shm"
summary

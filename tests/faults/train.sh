#!/bin/bash
# train.sh LOCKSTEP - ranks of `lockstep train` that die, are stopped or fail during training, in every
# mode; launchers that are interrupted; full disks and full memory. Each case has the right message in
# time, and no process or file is left.
source "$(dirname "$(realpath "$0")")/apart.sh"
program=$(realpath "$1")
bound_us=${LOCKSTEP_FAULTS_BOUND_US:-3000000}

# No case trains to the end of these options.
long=(--model cnn --batch-size 16 --no-test --quiet --log-ranks all --log-interval 1)

# Jobs.

# begin COMMAND...: runs COMMAND in the background.
begin() {
    env --default-signal=INT,QUIT "$@" >out 2>err </dev/null &
    launcher=$!
}
await_training() { # WORLD
    until_true 30 all_train "$1" || complain "not all ranks train"
}
pid_of() { cat out* | sed -n "s/.*\[rank $1\] host .* pid \([0-9]*\),.*/\1/p"; }
# strike PID RANK SIGNAL: without such a process the job is ended.
strike() {
    pid=$1
    echo "$EPOCHREALTIME" >"fault.$2"
    [ -n "$pid" ] && kill "-$3" "$pid" && return
    complain "there is no rank $2"
    kill -KILL "$launcher"
}
fell() { strike "$(pid_of "$1")" "$1" "$2"; } # RANK SIGNAL
# last_is FILE PATTERN: the cause is the last message, before the last lines of the rank.
last_is() {
    grep -v '^its last lines\|^    ' "$1" | tail -n 1 | grep -q -- "$2" || complain "the last word is not '$2'"
}
# reason_is F|G PATTERN: the reason is the last line of the rank's tail after the launcher's line or,
# without a tail, the last line before it.
reason_is() {
    grep -v '^lockstep [a-z]*: rank [0-9]* on host \|^its last lines of stderr:$' err | tail -n 1 |
        grep -q"$1" -- "$2" || complain "the reason '$2' is not at the end"
}

# A rank dies.

# Counts the processes that report the death of process $pid.
mourners() { grep -c "lockstep: rank [0-9]* (host [^ ]*, pid $pid) died" <(cat err*); }
# died RANK WORLD PROCESSES COMMAND...: RANK is killed during training; all others report it.
died() {
    local rank=$1 processes=$3
    begin "${@:4}"
    await_training "$2"
    fell "$rank" KILL
    finish
    status_is 137
    took "$rank"
    [ "$(mourners)" -eq $((processes - 1)) ] || complain "$(mourners) processes tell who died, not $((processes - 1))"
    last_is err "^lockstep [a-z]*: rank [0-9]* on host [^ ]* (pid $pid) was killed by SIGKILL"
}
# Ranks are on two hosts in turn: auto uses both transports.
died_on_hosts() { # RANK COUNT OPTIONS...
    died "$1" "$2" "$2" "$program" run -n "$2" sh -c 'LOCKSTEP_HOSTID=faults-$((RANK % 2)) exec "$0" train "$@"' \
        "$program" "${long[@]}" --backend auto "${@:3}"
}
# by_hand RANK COUNT SIGNAL TEXT OPTIONS...: there is no launcher; the last message of all other ranks
# is TEXT.
by_hand() {
    local rank=$1 count=$2 signal=$3 text=$4 r pids=()
    for ((r = 0; r < count; r++)); do
        "$program" train "${long[@]}" "${@:5}" --init-method "file://$PWD/meeting" --rank $r --world-size "$count" \
            >out.$r 2>err.$r </dev/null &
        pids+=($!)
    done
    launcher=${pids[rank]}
    await_training "$count"
    fell "$rank" "$signal"
    for r in "${!pids[@]}"; do
        [ "$r" -ne "$rank" ] || continue
        wait "${pids[r]}"
        status=$?
        status_is 1
        tail -n 1 "err.$r" | grep -Eq "^lockstep: $text" || complain "rank $r does not tell last: $text"
    done
    ended=$EPOCHREALTIME
    [ ! -e meeting ] || complain "the file is left"
}
died_by_hand() { # RANK COUNT OPTIONS...
    by_hand "$1" "$2" KILL "rank $1 \\(host [^ ]*, pid [0-9]*\\) died" "${@:3}"
    wait "$launcher" 2>/dev/null
    took "$1"
}
stopped_by_hand() { # RANK COUNT OPTIONS...
    by_hand "$1" "$2" STOP ".*waited 2 s in .* for ranks? ([0-9, and]* )?$1" --timeout 2 "${@:3}"
    kill -KILL "$pid"
    wait "$launcher" 2>/dev/null
    ((${ended/./} - $(tr -d . <"fault.$1") < 2000000 + bound_us)) || complain "took too long"
}
# The launcher's child is the guard, whose child is the keeper, whose children are the ranks in their
# order.
children() { cat "/proc/$1/task/$1/children" 2>/dev/null; }
child() { children "$1" | tr -d ' '; }
ranks_of() { children "$(child "$(child "$1")")"; }
three_ranks() { [ "$(ranks_of "$launcher" | wc -w)" -eq 3 ]; }
# died_after SECONDS RANK COMMAND...: RANK is killed SECONDS after its start.
died_after() {
    local rank=$2
    begin "${@:3}"
    until_true 10 three_ranks || complain "there are no three ranks"
    rest "$1"
    strike "$(ranks_of "$launcher" | tr -s ' ' '\n' | sed -n "$((rank + 1))p")" "$rank" KILL
    finish
    status_is 137
    took "$rank"
    last_is err "^lockstep train: rank $rank on host [^ ]* (pid $pid) was killed by SIGKILL"
}
in_test() { grep -q 'Train Epoch' out; }
# A rank is killed while the ranks test the model.
died_testing() { # RANK COMMAND...
    begin "${@:2}" --max-steps 1
    until_true 30 in_test || complain "no rank trains"
    rest 0.3
    ! grep -q 'Test set' out || complain "the test is over already"
    fell "$1" KILL
    finish
    status_is 137
    took "$1"
    last_is err "^lockstep train: rank $1 on host [^ ]* (pid $pid) was killed by SIGKILL"
}

# A rank is stopped.

# stopped RANK WORLD COMMAND...: RANK is stopped for longer than the timeout of 2 s.
stopped() {
    begin "${@:3}" --timeout 2
    await_training "$2"
    fell "$1" STOP
    finish
    status_is 1
    local us=$((${ended/./} - $(tr -d . <"fault.$1") - 2000000))
    echo "$us" >took
    ((us > -100000)) || complain "not awaited: ended after $((us + 2000000)) us"
    ((us < bound_us)) || complain "took $us us longer than the timeout"
    grep -q -e "rank [0-9]* on host .* (pid $pid) stayed stopped for 2 s" -e "waited 2 s in .* for ranks\? .*$1" err ||
        complain "nobody names the rank that is stopped"
}
# RANK is stopped for a moment: training continues.
paused() { # RANK COMMAND...
    begin "${@:2}" --max-steps 100
    until_true 30 rank_trains "$1" || complain "rank $1 does not train"
    fell "$1" STOP
    rest 0.5
    kill -CONT "$pid"
    finish
    status_is 0
    said out "State hash"
}

# A launcher is interrupted.

# interrupted SIGNAL STATUS WORLD COMMAND...
interrupted() {
    begin "${@:4}" --save-model model.safetensors
    await_training "$3"
    echo "$EPOCHREALTIME" >fault.launcher
    kill "-$1" "$launcher"
    finish
    status_is "$2"
    took launcher
    tail -n 1 err | grep -q "interrupted by SIG$1" || complain "the last word is not of SIG$1"
    [ -z "$(find . -name '*model*')" ] || complain "left: $(find . -name '*model*')"
}
# SIGINT to the launcher and all ranks, as a terminal sends it for Ctrl-C.
ctrl_c() { # WORLD COMMAND...
    set -m
    begin "${@:2}"
    set +m
    await_training "$1"
    echo "$EPOCHREALTIME" >fault.launcher
    kill -INT -- "-$launcher"
    finish
    status_is 130
    took launcher
}
launcher_killed() { # WORLD COMMAND...
    begin "${@:2}"
    await_training "$1"
    kill -KILL "$launcher"
    echo "$EPOCHREALTIME" >fault.launcher
    wait "$launcher" 2>/dev/null
    until_true 5 unmarked "$FAULTS_MARK" || complain "processes are left after 5 s"
    ended=$EPOCHREALTIME
    took launcher
}

# A rank fails by itself.

# failed STATUS RANK TEXT COMMAND...: RANK exits with STATUS; its reason TEXT comes last.
failed() {
    local wanted=$1 rank=$2 text=$3
    begin timeout -s KILL 60 "${@:4}"
    finish
    status_is "$wanted"
    last_is err "^lockstep [a-z]*: rank $rank on host [^ ]* (pid [0-9]*) exited with status $wanted"
    reason_is F "$text"
}
# One of three ranks runs PREPARATION first.
one_fails() { # RANK PREPARATION TEXT OPTIONS...
    failed "${status_wanted:-1}" "$1" "$3" "$program" run -n 3 sh -c \
        '[ "$RANK" != "$0" ] || '"$2"'; exec "$@"' "$1" "$program" train "${long[@]}" "${@:4}"
}
bad_data() {
    status_wanted=2
    one_fails "$1" 'set -- "$@" --data ./nowhere' "'./nowhere'"
}
torn_data() {
    local f
    mkdir torn
    for f in train-images-idx3 train-labels-idx1 t10k-images-idx3 t10k-labels-idx1; do
        printf '\0\0\10\1\0\0\0\100' >"torn/$f-ubyte"
    done
    one_fails "$1" 'set -- "$@" --data torn' torn
}
# A rank that fails in a call of the group makes all ranks fail with its reason, in any order.
no_memory() {
    begin "$program" run -n 3 sh -c '[ "$RANK" != "$0" ] || ulimit -v "$1"; shift; exec "$@"' "$1" "$2" "${train[@]}"
    finish
    status_is 1
    last_is err "^lockstep run: rank [0-2] on host"
    reason_is G "lockstep: .*memory"
}
# The kilobytes of address space in which the program and its libraries can be loaded.
room_to_load() {
    local room
    for ((room = 16000; room < 200000; room += 1000)); do
        (ulimit -v $room && exec "$program" --version) >/dev/null 2>&1 && break
    done
    echo $room
}
# The disk is full when the model is saved.
full_disk() { # RANK PATH OPTIONS...
    mkdir disk0 disk1 disk2
    mount -t tmpfs -o size=64k none "disk$1" || complain "no disk"
    failed 1 "$1" "No space left on device" "$program" train "${long[@]}" --model mlp --max-steps 3 \
        --save-model "$2" "${@:3}"
    [ -z "$(ls -A "disk$1")" ] || complain "left on the full disk: $(ls -A "disk$1")"
    umount "disk$1"
}
full_memory() { # SIZE OPTIONS...
    unshare -m sh -c 'mount -t tmpfs -o size="$0" none /dev/shm && "$@"
        status=$?; ls /dev/shm >left; exit $status' "$1" "$program" train "${long[@]}" "${@:2}" >out 2>err
    status=$?
    status_is 1
    reason_is G "/dev/shm.*left; enlarge it or use --backend tcp"
    [ ! -s left ] || complain "left in /dev/shm: $(<left)"
}
# Options differ between ranks: all ranks have the same message.
disagreed() { # TEXT OPTIONS...
    begin "$program" run -n 3 sh -c 'exec "$0" train '"$2" "$program"
    finish
    status_is 1
    reason_is F "$1"
}

# All of them.

train=("$program" train "${long[@]}")
nested=(--parallel dp --devices cpu:0,cpu:1)
side_by_side=2 # these cases compute
for rank in 0 1 3; do
    with "train-4-kill-$rank" died $rank 4 4 "${train[@]}" -n 4
done
for way in shm tcp; do
    with "run-2-$way-kill-1" died 1 2 2 "$program" run -n 2 "${train[@]}" --backend $way
    with "run-2-$way-kill-0" died 0 2 2 "$program" run -n 2 "${train[@]}" --backend $way
    with "hand-3-$way-kill-2" died_by_hand 2 3 --backend $way
    with "hand-3-$way-kill-0" died_by_hand 0 3 --backend $way
    with "nested-$way-kill-2" died 2 4 2 "$program" run -n 2 "${train[@]}" --backend $way "${nested[@]}"
    for rank in 0 1 2; do
        with "stages-$way-kill-$rank" died $rank 3 3 "${train[@]}" -n 3 --parallel pp --backend $way
        with "pipeline-$way-kill-$rank" died $rank 3 3 "${train[@]}" -n 3 --stages 3 --pipelined --backend $way
    done
    with "grid-$way-kill-3" died 3 4 4 "${train[@]}" -n 4 --stages 2 --pipelined --backend $way
    with "resnet-$way-kill-1" died 1 3 3 "${train[@]}" -n 3 --model resnet20 --backend $way
done
with train-dp-kill-0 died 0 4 2 "${train[@]}" -n 2 "${nested[@]}"
with hosts-kill-1 died_on_hosts 1 4
with hosts-pipeline-kill-2 died_on_hosts 2 4 --stages 2 --pipelined
with hand-pipeline-kill-1 died_by_hand 1 3 --stages 3 --pipelined
for rank in 0 2; do
    with "testing-kill-$rank" died_testing $rank "$program" train --model cnn --quiet --log-ranks all -n 3
done
leftovers "deaths in mid-training"
for delay in 0 .005 .01 .02 .03 .05 .08 .12 .2; do
    with "start-kill-$delay" died_after $delay 1 "${train[@]}" -n 3
    with "start-kill-$delay-pp" died_after $delay 0 "${train[@]}" -n 3 --parallel pp --backend tcp
done
leftovers "deaths at the start"
side_by_side=4 # these cases wait
for way in shm tcp; do
    with "stop-$way-0" stopped 0 3 "${train[@]}" -n 3 --backend $way
    with "stop-$way-2" stopped 2 3 "${train[@]}" -n 3 --backend $way
    with "stop-$way-pipeline" stopped 1 3 "${train[@]}" -n 3 --stages 3 --pipelined --backend $way
    with "stop-$way-nested" stopped 2 4 "${train[@]}" -n 2 "${nested[@]}" --backend $way
    with "stop-$way-hand" stopped_by_hand 1 3 --backend $way
    with "stop-$way-hand-0" stopped_by_hand 0 3 --backend $way
    with "stop-$way-hand-stages" stopped_by_hand 1 3 --backend $way --stages 3 --pipelined
    with "pause-$way-1" paused 1 "${train[@]}" -n 3 --backend $way
done
leftovers "stops"
side_by_side=2
for signal in "INT 130" "TERM 143" "HUP 129"; do
    with "train-${signal% *}" interrupted $signal 3 "${train[@]}" -n 3
    with "pipeline-${signal% *}" interrupted $signal 2 "${train[@]}" -n 2 --stages 2 --backend tcp
done
with ctrl-c ctrl_c 3 "${train[@]}" -n 3
with ctrl-c-nested ctrl_c 4 "${train[@]}" -n 2 "${nested[@]}"
with launcher-killed launcher_killed 3 "${train[@]}" -n 3
with launcher-killed-tcp launcher_killed 3 "${train[@]}" -n 3 --backend tcp --stages 3
leftovers "interruptions"
room=$(room_to_load)
for rank in 0 2; do
    with "bad-data-$rank" bad_data $rank
    with "torn-data-$rank" torn_data $rank
    for memory in 0 10000 20000 40000; do
        with "no-memory-$rank-$memory" no_memory $rank $((room + memory))
    done
done
with disagreed-seed disagreed "rank 1 has --seed 2, rank 0 has --seed 1" '--seed $((1 + (RANK == 1)))'
with disagreed-model disagreed "rank 2 has a model" '--model $([ $RANK = 2 ] && echo mlp || echo cnn)'
if [ "$FAULTS_APART" = yes ]; then
    with full-disk-0 full_disk 0 disk0/model.safetensors -n 3
    with full-disk-1 full_disk 1 'disk{rank}/model.safetensors' -n 3
    with full-disk-stages full_disk 0 disk0/model.safetensors -n 2 --stages 2
    with full-memory full_memory 64k -n 3
    with full-memory-later full_memory 4m -n 3
else
    echo "no namespaces here: full disks and a full /dev/shm are left out"
fi
leftovers "failures"
summary

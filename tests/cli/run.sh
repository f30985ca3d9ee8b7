#!/bin/bash
# run.sh PROGRAM - `lockstep run`: variables, output, exit statuses, first causes, signals, restarts, and several
# nodes on this host.
program=$1 command=run
. "$(dirname "$0")/jobs.sh"

# One node: torchrun's variables.
show='echo "$RANK/$LOCAL_RANK/$WORLD_SIZE/$LOCAL_WORLD_SIZE/$NODE_RANK/$GROUP_RANK/$GROUP_WORLD_SIZE/$MASTER_ADDR/$TORCHELASTIC_RESTART_COUNT"'
run 0 -n 2 true
check "true says nothing" test ! -s out -a ! -s err
for n in 1 2 3; do
    run 0 -n $n sh -c "$show"
    for ((r = 0; r < n; r++)); do echo "[$r] $r/$r/$n/$n/0/0/1/127.0.0.1/0"; done >wanted
    check "variables of $n ranks" cmp -s wanted <(sort out)
done
run 0 --nproc_per_node=2 --standalone sh -c 'echo "$MASTER_PORT ${#LOCKSTEP_TOKEN} $LOCKSTEP_TOKEN $LOCKSTEP_RUN_ID"'
check "ranks share port, token and id" test "$(sed 's/^...//' out | sort -u | wc -l)" -eq 1
said out " 64 "
run 0 --nproc auto sh -c 'echo here'
check "auto starts a rank a core" test "$(wc -l <out)" -eq "$("$program" info | sed -n 's/^ *cpu *\([0-9]*\) core.*/\1/p')"
run 0 -n 1 -- sh -c 'echo args "$@"' sh -n 5 --max-restarts -- -x
said out "[0] args -n 5 --max-restarts -- -x"
LOCKSTEP_TOKEN=mine run 0 -n 1 sh -c 'echo "token $LOCKSTEP_TOKEN"'
said out "token mine"
run 0 -n 2 cat
check "ranks read nothing" test ! -s out

# Output: every line has a prefix and is whole, and stdout and stderr stay apart.
run 0 -n 3 sh -c 'for i in 1 2 3 4 5 6 7 8 9; do echo "out-$RANK-$i-$(printf %0200d $i)"; echo "err-$RANK" >&2; done; printf end'
check "no torn line" test "$(grep -cE '^\[([0-2])\] (out-\1-[1-9]-0{199}[1-9]|end)$' out)" -eq 30 -a "$(wc -l <out)" -eq 30
check "stderr apart" test "$(grep -cE '^\[([0-2])\] err-\1$' err)" -eq 27 -a "$(wc -l <err)" -eq 27
run 0 -n 2 --log-dir logs/deep sh -c 'echo "line of $RANK"; echo "trouble of $RANK" >&2'
for r in 0 1; do check "log of rank $r" test "$(sort logs/deep/rank_$r.log | tr '\n' ' ')" = "line of $r trouble of $r "; done

line="run | head"
timeout -s KILL 60 bash -c '"$0" run -n 2 yes 2>err | head -1 >out; exit ${PIPESTATUS[0]}' "$program"
check "$line: ends like a writer of a closed pipe, quietly" test $? -eq 141 -a ! -s err
if [ -w /dev/full ]; then
    line="run >/dev/full"
    timeout -s KILL 60 "$program" run -n 2 yes >/dev/full 2>err
    status=$?
    check "$line: exit status $status, not 1" test $status -eq 1
    said err "cannot be written" "No space left on device"
fi

# A rank fails: the exit status is the rank's, the cause is printed last, and the other ranks are stopped.
run 3 -n 3 sh -c '[ $RANK = 1 ] && { echo first >&2; echo last words >&2; exit 3; }; exec sleep 50'
cause_last err '^lockstep run: rank 1 on host .* (pid [0-9]*) exited with status 3$' 0
check "the last words are printed once" test "$(grep -c 'last words' err)" -eq 1
# If other ranks have printed after the failed rank, its last lines are repeated.
run 3 -n 2 sh -c 'case $RANK in
    0) trap "echo late >&2; exit 1" TERM; : >deaf; sleep 50 & wait ;;
    1) while [ ! -e deaf ]; do sleep .01; done; echo first >&2; echo last words >&2; exit 3 ;;
    esac'
cause_last err '^lockstep run: rank 1 on host .* (pid [0-9]*) exited with status 3$' 3
said err "[0] late" "its last lines of stderr:" "    first" "    last words"
line="run, stdout and stderr in one file"
timeout -s KILL 60 "$program" run -n 2 sh -c 'case $RANK in
    0) trap "echo late; exit 1" TERM; : >deaf.too; sleep 50 & wait ;;
    1) while [ ! -e deaf.too ]; do sleep .01; done; echo last words >&2; exit 3 ;;
    esac' >err 2>&1 </dev/null
said err "[0] late" "its last lines of stderr:" "    last words"
# Earlier lines of the rank, and output between them, change nothing.
timeout -s KILL 60 "$program" run -n 2 sh -c '[ $RANK = 0 ] && exec sleep 50
    echo older >&2; sleep .2; echo result; sleep .2; echo last words >&2; exit 3' >err 2>&1 </dev/null
said err "[1] older" "[1] result" "[1] last words"
check "last words at the end are printed once" test "$(grep -c 'last words' err)" -eq 1
check "nobody is left" test -z "$(left)"
run 139 -n 2 sh -c '[ $RANK = 0 ] && kill -SEGV $$; exec sleep 50'
cause_last err '^lockstep run: rank 0 .* was killed by SIGSEGV (segmentation fault)' 0
run 7 -n 2 sh -c '[ $RANK = 0 ] && exit 0; sleep .3; exit 7'
said err "rank 1 on host" "exited with status 7"
run 137 -n 2 sh -c 'sleep 50 & [ $RANK = 1 ] && kill -KILL $$; trap "" TERM; wait'
check "grandchildren and the deaf are stopped" test -z "$(left)"
refused "nosuchprogram" -- -n 2 nosuchprogram

# Restarts: all ranks restart, each time with a new port and token. A rank fails only after the other has printed.
run 0 -n 2 --max-restarts 3 sh -c 'echo "$TORCHELASTIC_RESTART_COUNT $LOCKSTEP_TOKEN"
    : >spoke.$TORCHELASTIC_RESTART_COUNT.$RANK
    while [ ! -e spoke.$TORCHELASTIC_RESTART_COUNT.$((1 - RANK)) ]; do sleep .01; done
    [ $TORCHELASTIC_RESTART_COUNT = 2 ]'
check "three rounds" test "$(sort -u out | grep -c '\] [012] ')" -eq 6
check "a token each" test "$(sed 's/.* //' out | sort -u | wc -l)" -eq 3
said err "restart 1 of 3" "restart 2 of 3"
check "two restarts are enough" test "$(grep -c 'restart [0-9] of' err)" -eq 2
run 5 -n 1 --max-restarts 1 sh -c 'exit 5'
cause_last err 'exited with status 5$' 0

# Signals.
interrupt() { # SIGNAL STATUS PROGRAM...
    line="run and $1"
    begin "$program" run -n 2 --max-restarts 9 "${@:3}"
    await 20 ready 2 out || complain "$line: ranks do not come up"
    kill -"$1" $job
    finish $job
    check "$line: exit status $status, not $2" test $status -eq "$2"
    cause_last err "^lockstep run: interrupted by SIG$1\$" 0
    check "$line: nobody is left" test -z "$(left)"
}
interrupt TERM 143 sh -c 'echo ready; exec sleep 50'
interrupt HUP 129 sh -c 'echo ready; exec sleep 50'
# A background job of a script ignores SIGINT by default.
line="run and INT"
begin env --default-signal=INT "$program" run -n 2 \
    sh -c 'trap "echo saved; exit 1" INT; echo ready; while :; do sleep .05; done'
await 20 ready 2 out || complain "$line: ranks do not come up"
kill -INT $job
finish $job
check "$line: exit status $status, not 130" test $status -eq 130
check "$line: ranks may save" test "$(grep -c saved out)" -eq 2
cause_last err "^lockstep run: interrupted by SIGINT\$" 0
line="run and KILL"
begin "$program" run -n 2 sh -c 'echo ready; sleep 50'
await 20 ready 2 out || complain "$line: ranks do not come up"
check "$line: somebody is there before" test -n "$(left)"
kill -KILL $job
finish $job
check "$line: nobody is left" await 10 eval 'test -z "$(left)"'

# Cores: each rank gets whole cores, of those that the launcher may use.
own=$(sed -n 's/^Cpus_allowed_list:[^0-9]*\([0-9]*\).*/\1/p' /proc/self/status)
if [ "$(nproc)" -eq 1 ] || ! type taskset >/dev/null 2>&1; then
    echo "one core, or no taskset(1): a launcher with fewer cores is left out"
elif "$program" run -n 1 --bind core true 2>&1 | grep -q hwloc; then
    echo "no hwloc in this build: --bind core is left out"
else
    line="taskset -c $own run --bind core"
    taskset -c "$own" timeout -s KILL 60 "$program" run -n 2 --bind core grep Cpus_allowed_list /proc/self/status \
        >out 2>err </dev/null
    check "$line: exit status" test $? -eq 0
    check "$line: every rank has this core" test "$(grep -cE "Cpus_allowed_list:[[:space:]]+$own\$" out)" -eq 2
fi
run 0 -n 1 --timeout 2.5 sh -c 'echo "for $LOCKSTEP_TIMEOUT s"'
said out "for 2.5 s"
export LOCKSTEP_TIMEOUT=7.5
run 0 -n 1 sh -c 'echo "for $LOCKSTEP_TIMEOUT s"'
said out "for 7.5 s"
run 0 -n 1 --timeout 2.5 sh -c 'echo "for $LOCKSTEP_TIMEOUT s"'
said out "for 2.5 s"
LOCKSTEP_TIMEOUT=soon
refused "LOCKSTEP_TIMEOUT is 'soon'" -- -n 1 true
unset LOCKSTEP_TIMEOUT
run 0 -n 1 sh -c 'echo "for $LOCKSTEP_TIMEOUT s"'
said out "for 300 s"

# Mistakes on the command line.
refused "wants a program" -- -n 2
refused "'--nproc-per-nod'" "'--nproc-per-node'" -- --nproc-per-nod 2 true
refused "--nproc-per-node 'two'" "auto" -- -n two true
refused "--nproc-per-node '0'" -- -n 0 true
refused "gpu" "auto" -- --nproc-per-node gpu true
refused "'-nr'" "--node-rank" -- -nr 1 true
refused "'-ip'" "--master-addr" -- -ip 10.0.0.1 true
refused "'-m'" "python3 -m" -- -m module
refused "'--no_python'" "lockstep run true" -- --no_python true
refused "--bind 'cores'" "'core'" -- --bind cores true
refused "--node-rank" "--nnodes 2" -- --nnodes 2 true
refused "--node-rank 2" "--nnodes 2" -- --nnodes 2 --node-rank 2 true
refused "--standalone" -- --standalone --nnodes 2 --node-rank 0 true
refused "env://" "tcp://" -- --init-method env:// true
refused "udp://" "tcp://" -- --init-method udp://a:1 true
refused "give one" -- --init-method tcp://127.0.0.1:9 --master-port 9 true
refused "give one" -- --init-method tcp://127.0.0.1:9 --rdzv-endpoint 127.0.0.1:9 true
echo 'print(1)' >script.py
refused "script.py" "python3 script.py" -- script.py

# Several nodes on this host.
# nodes "NPROC NPROC ..." OPTIONS... - starts a launcher for each node in the background; their ids are in $jobs, their
# output in out.K and err.K.
nodes() {
    local counts=($1) node
    line="nodes $*"
    jobs=()
    rm -f out* err*
    for node in "${!counts[@]}"; do
        timeout -s KILL 60 "$program" run --nnodes ${#counts[@]} --node-rank "$node" -n "${counts[$node]}" "${@:2}" \
            >out.$node 2>err.$node </dev/null &
        jobs+=($!)
    done
}
# ended STATUS - all launchers end with this status.
ended() {
    local node
    for node in "${!jobs[@]}"; do
        finish "${jobs[$node]}"
        check "$line: node $node ends with $status, not $1" test $status -eq "$1"
    done
}
host=$(uname -n)

nodes "2 1" --master-addr 127.0.0.1 --master-port "$(free_port)" sh -c "$show"
ended 0
check "two nodes: variables" cmp -s <(sort out.0 out.1) - <<END
[$host:0] 0/0/3/2/0/0/2/127.0.0.1/0
[$host:1] 1/1/3/2/0/0/2/127.0.0.1/0
[$host:2] 2/0/3/1/1/1/2/127.0.0.1/0
END
check "two nodes: the user's secret" test -s "$XDG_CONFIG_HOME/lockstep/secret"
check "two nodes: no line about it" test ! -s err.0
export LOCKSTEP_INSECURE=1
nodes "1 1" --master-port "$(free_port)" true
ended 0
said err.0 "LOCKSTEP_INSECURE is 1: anyone who can reach 127.0.0.1:" "may join"
unset LOCKSTEP_INSECURE
export LOCKSTEP_TOKEN=secret
nodes "1 3 2" --rdzv-endpoint "127.0.0.1:$(free_port)" sh -c 'echo "$RANK of $WORLD_SIZE at $MASTER_PORT"'
ended 0
unset LOCKSTEP_TOKEN
check "three nodes: ranks" test "$(cat out.* | sed 's/.*] //; s/ at .*//' | sort | tr '\n' ' ')" = \
    "0 of 6 1 of 6 2 of 6 3 of 6 4 of 6 5 of 6 "
check "three nodes: one port" test "$(sed 's/.* at //' out.* | sort -u | wc -l)" -eq 1
check "three nodes: with a token there is nothing to say" test ! -s err.0
nodes "1 1" --init-method "file://$scratch/meeting" sh -c 'echo "$LOCKSTEP_TOKEN"'
ended 0
check "by file: one token" test "$(sed 's/.* //' out.* | sort -u | grep -c '^[0-9a-f]\{64\}$')" -eq 1
check "by file: it is removed" test ! -e meeting

nodes "2 2" --master-port "$(free_port)" sh -c '[ $RANK = 2 ] && { echo bad thing >&2; exit 3; }; exec sleep 50'
ended 3
# The failed rank's node has just printed its lines, the other node has not.
cause_last err.0 "^lockstep run: rank 2 on host $host (pid [0-9]*) exited with status 3\$" 2
said err.0 "    bad thing"
cause_last err.1 "^lockstep run: rank 2 on host $host (pid [0-9]*) exited with status 3\$" 0
said err.1 "bad thing"
check "$line: nobody is left" test -z "$(left)"
# The crash is the cause, although another rank fails as soon as the keeper has reaped the dead rank, and may be
# reported first.
nodes "1 1 1" --master-port "$(free_port)" sh -c '[ $RANK = 2 ] && { echo $$ >new; mv new going; kill -ABRT $$; }
    [ $RANK = 1 ] && { while [ ! -e going ] || [ -e "/proc/$(cat going)" ]; do sleep .01; done; exit 1; }; exec sleep 50'
ended 134
for node in 0 1 2; do cause_last err.$node "^lockstep run: rank 2 .* was killed by SIGABRT" 0; done

nodes "1 1" --master-port "$(free_port)" --max-restarts 2 sh -c 'echo "$TORCHELASTIC_RESTART_COUNT"
    [ $RANK = 0 ] && { : >heard; exit 0; }
    while [ ! -e heard ]; do sleep .01; done; [ $TORCHELASTIC_RESTART_COUNT = 1 ]'
ended 0
for node in 0 1; do
    said err.$node "restart 1 of 2"
    check "$line: two rounds" test "$(sed 's/.* //' out.$node | tr '\n' ' ')" = "0 1 "
done

# A program that is missing on one node.
line="nodes with a program missing"
mkdir -p only && cp "$(type -P true)" only/mytrue
port=$(free_port)
rm -f out* err*
PATH=$scratch/only:$PATH timeout -s KILL 60 "$program" run --nnodes 2 --node-rank 0 --master-port $port mytrue >out.0 2>err.0 </dev/null &
job=$!
timeout -s KILL 60 "$program" run --nnodes 2 --node-rank 1 --master-port $port mytrue >out.1 2>err.1
check "$line: bad usage where it is missing" test $? -eq 2
finish $job
check "$line: failure elsewhere" test $status -eq 1
said err.0 "node 1 (host $host)" "mytrue"
said err.1 "mytrue"

# A launcher is killed: the others name it. The launchers themselves must be the jobs here.
kill_agent() { # VICTIM
    local port node victim=$1
    port=$(free_port)
    line="nodes and node $victim killed"
    rm -f out* err*
    jobs=()
    for node in 0 1 2; do
        "$program" run --nnodes 3 --node-rank $node --master-port "$port" sh -c 'echo ready; exec sleep 50' \
            >out.$node 2>err.$node </dev/null &
        jobs+=($!)
    done
    await 20 ready 3 out.0 out.1 out.2 || complain "$line: ranks do not come up"
    kill -KILL "${jobs[$victim]}"
    for node in 0 1 2; do
        finish "${jobs[$node]}"
        [ $node -eq $victim ] && continue
        check "$line: node $node ends with $status, not 1" test $status -eq 1
        cause_last err.$node "^lockstep run: node $victim (host $host) disappeared\$" 0
    done
    check "$line: nobody is left" await 10 eval 'test -z "$(left)"'
}
kill_agent 1
kill_agent 0

# A signal to one launcher ends all.
port=$(free_port)
line="nodes and SIGTERM"
rm -f out* err*
jobs=()
for node in 0 1; do
    "$program" run --nnodes 2 --node-rank $node --master-port "$port" --max-restarts 3 sh -c 'echo ready; exec sleep 50' \
        >out.$node 2>err.$node </dev/null &
    jobs+=($!)
done
await 20 ready 2 out.0 out.1 || complain "$line: ranks do not come up"
kill -TERM "${jobs[1]}"
ended 143
for node in 0 1; do cause_last err.$node "^lockstep run: interrupted by SIGTERM\$" 0; done
check "$line: nobody is left" test -z "$(left)"

# A port that is in use is named; an interrupted wait leaves no file.
line="nodes that wait"
port=$(free_port)
begin env LOCKSTEP_INSECURE=1 "$program" run --nnodes 2 --node-rank 0 --master-port "$port" true
await 20 grep -qs "may join" err || complain "$line: node 0 does not wait"
timeout -s KILL 60 "$program" run -n 1 --master-port "$port" true >out.1 2>err.1 </dev/null
check "$line: a port that is taken is a failure" test $? -eq 1
check "$line: a port that is taken is named" grep -q "$port" err.1
kill -TERM $job
finish $job
check "$line: interrupted" test $status -eq 143
begin "$program" run --nnodes 2 --node-rank 0 --init-method "file://$scratch/meeting" true
check "$line: the file comes" await 20 test -e meeting
kill -TERM $job
finish $job
check "$line: the file goes" test ! -e meeting
rm -f out* err*
run 1 --nnodes 2 --node-rank 0 --master-port "$(free_port)" --timeout 1 true
said err "node 1 of 2 has not joined within 1 s" "without --master-addr node 0 is at 127.0.0.1, so all 2 nodes must be on"

conclude

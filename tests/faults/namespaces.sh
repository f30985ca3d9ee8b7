#!/bin/bash
# namespaces.sh LOCKSTEP VICTIM STRANGER - jobs on several hosts: network namespaces with an address
# each on one bridge, and host names of their own. Jobs with and without launchers; a host that is cut
# off; ranks, launchers and nodes that end early.
set -u
PATH=$PATH:/usr/sbin:/sbin
hosts=3
net=10.77.0
# Everything is in namespaces that end with this test.
if [ -z "${FAULTS_APART:-}" ]; then
    for flags in -mn -rmn; do
        if unshare $flags bash -c 'mount -t tmpfs none /run && mkdir /run/netns && ip link add probe0 type bridge &&
            ip netns add h && ip link add probe1 type veth peer name eth0 netns h && : >/run/u &&
            unshare --uts=/run/u hostname h && nsenter --net=/run/netns/h --uts=/run/u true' >/dev/null 2>&1; then
            FAULTS_APART=yes exec unshare $flags bash "$0" "$@"
        fi
    done
    echo "skipped: this user may not make network namespaces here, or there is no ip(8)"
    exit 77
fi
program=$(realpath "$1") victim=$(realpath "$2") stranger=$(realpath "$3")
source "$(dirname "$(realpath "$0")")/common.sh"

make_hosts() {
    local h
    mount -t tmpfs none /run && mkdir /run/netns && mount -t tmpfs none /dev/shm &&
        ip link set lo up && ip link add bridge type bridge && ip link set bridge up || return 1
    for ((h = 1; h <= hosts; h++)); do
        ip netns add "h$h" && ip link add "v$h" type veth peer name eth0 netns "h$h" &&
            ip link set "v$h" master bridge up && ip -n "h$h" addr add "$net.$h/24" dev eth0 &&
            ip -n "h$h" link set lo up && ip -n "h$h" link set eth0 up &&
            : >"/run/uts$h" && unshare --uts="/run/uts$h" hostname "host$h" || return 1
    done
    # Addresses can be used when the bridge forwards.
    for ((h = 2; h <= hosts; h++)); do
        until_true 10 reaches "$h" || return 1
    done
}
# reaches HOST: whether host 1 reaches HOST: a port on which nobody listens refuses.
reaches() {
    nsenter --net=/run/netns/h1 timeout 1 bash -c "LC_ALL=C; : </dev/tcp/$net.$1/9" 2>&1 | grep -q refused
}
# on HOST COMMAND...: with own_homes, each host has a home folder of its own; otherwise they share one.
own_homes=
on() {
    local host=$1
    shift
    if [ "$own_homes" ]; then
        mkdir -p "home$host" && export HOME=$PWD/home$host
        unset XDG_CONFIG_HOME
    fi
    exec nsenter "--net=/run/netns/h$host" "--uts=/run/uts$host" env --default-signal=INT,QUIT "$@"
}
listening() {
    local h
    for ((h = 1; h <= hosts; h++)); do
        nsenter "--net=/run/netns/h$h" cat /proc/net/tcp | awk '$4 == "0A" { print $2 }'
    done
}

# Ranks started by hand.

# spread INIT LAYOUT VICTIM'S ARGUMENTS...: starts rank r on the r-th host of LAYOUT.
pids=()
spread() {
    local init=$1 layout=($2) r
    shift 2
    pids=()
    for r in "${!layout[@]}"; do
        (on "${layout[r]}" "$victim" --init "$init" --rank "$r" --world ${#layout[@]} "$@" >"out.$r" 2>"err.$r") &
        pids+=($!)
    done
}
# gathered STATUS: all ranks must end with STATUS.
gathered() {
    local r
    for r in "${!pids[@]}"; do
        wait "${pids[r]}"
        status=$?
        [ $status -eq "$1" ] || complain "rank $r: exit status $status, not $1"
    done
    ended=$EPOCHREALTIME
}
one_sum() { # RANKS - all ranks must have the sum of one process
    local wanted
    wanted=$("$victim" --init "file://$PWD/alone" --rank 0 --world 1 --iterations 0 --shards 21 | grep '^sum')
    [ -n "$wanted" ] || complain "no sum of one process"
    [ "$(cat out* | grep -o 'sum.*' | sort | uniq -c | tr -s ' ')" = " $1 $wanted" ] || complain "the sums differ"
}
by_hand() { # INIT LAYOUT BACKEND [CALL]
    local layout=($2)
    spread "$1" "$2" --backend "$3" --call "${4:-allreduce}" --shards 21 --timeout 20
    gathered 0
    one_sum ${#layout[@]}
    # If no two ranks share a host, auto is tcp.
    local used=$3
    [ "$(printf '%s\n' "${layout[@]}" | sort | uniq -d)" ] || used=tcp
    [ "$(cat out.* | grep -c "joined: $used")" -eq ${#layout[@]} ] || complain "not all ranks use $used"
}
through_file() { # LAYOUT BACKEND
    by_hand "file://$PWD/meeting" "$1" "$2"
    [ ! -e meeting ] || complain "the file is left"
}
# Each rank gets its variables as a scheduler or a shell sets them.
start_env() { # LAYOUT TIMEOUT
    local layout=($1) r
    pids=()
    for r in "${!layout[@]}"; do
        (on "${layout[r]}" env RANK="$r" WORLD_SIZE=${#layout[@]} MASTER_ADDR="$net.${layout[0]}" MASTER_PORT=29500 \
            "$victim" --shards 21 --timeout "$2" >"out.$r" 2>"err.$r") &
        pids+=($!)
    done
}
by_env() { # LAYOUT
    local layout=($1)
    start_env "$1" 20
    gathered 0
    one_sum ${#layout[@]}
}
# slowly COMMAND...: the link of host 2 carries 100 Mbit/s.
slowly() {
    tc qdisc add dev v2 root tbf rate 100mbit burst 256kbit latency 400ms &&
        ip netns exec h2 tc qdisc add dev eth0 root tbf rate 100mbit burst 256kbit latency 400ms ||
        complain "cannot limit the rate"
    "$@"
    tc qdisc del dev v2 root
    ip netns exec h2 tc qdisc del dev eth0 root
}
secret=.config/lockstep/secret
both_told() { # FILE FILE - of rank or node 0 on host 1, and of another on host 2
    said "$1" "the peer at $net.2 has another secret than this host (~/$secret)" \
        "run there: scp $net.1:$secret ~/$secret"
    said "$2" "the peer at $net.1 closed the connection when it saw our proof: it has another secret than this host" \
        "run here: scp $net.1:$secret ~/$secret"
}
# Ranks on hosts whose secrets differ do not join, and say how to copy the secret; with the copy they join.
secrets() {
    own_homes=yes
    spread "tcp://$net.1:29500" "1 2" --timeout 3
    gathered 1
    both_told err.0 err.1
    # torchrun's agent has the port, so that the ranks try the ports that follow.
    export TORCHELASTIC_RUN_ID=1
    start_env "1 2" 4
    gathered 1
    both_told err.0 err.1
    unset TORCHELASTIC_RUN_ID
    cmp -s home1/$secret home2/$secret && complain "the secrets are equal"
    cp home1/$secret home2/$secret
    by_hand "tcp://$net.1:29500" "1 2 1" tcp
    by_env "2 1 2"
}
node_secrets() {
    own_homes=yes
    launch "1 1" --master-addr "$net.1" --timeout 3 true
    gathered 1
    both_told err.0 err.1
    cp home1/$secret home2/$secret
    nodes "2 1" tcp --master-addr "$net.1"
}
# no_secret COMMAND...: with homes of their own, hosts find each other in a way that needs no secret, and make none.
no_secret() {
    own_homes=yes
    "$@"
    [ -z "$(find home? -type f)" ] || complain "a file was made: $(find home? -type f)"
}
with_token() {
    LOCKSTEP_TOKEN=abc no_secret by_hand "tcp://$net.1:29500" "1 2 3" tcp
}
insecure() {
    LOCKSTEP_INSECURE=1 no_secret by_hand "tcp://$net.1:29500" "1 2 3" tcp
    said err.0 "anyone who can reach $net.1:29500 may join"
}
# The host of the last rank does not reach the first.
unreachable() {
    spread "tcp://$net.99:29500" "2" --world 2 --rank 1 --timeout 2
    gathered 1
    said err.0 "rank 0 of 2" "$net.99" "29500" "rank 1 gave up after 2 s"
}
not_mine() { # the address is not on the host of rank 0
    spread "tcp://$net.2:29500" "1" --world 2 --rank 0 --timeout 2
    gathered 1
    said err.0 "$net.2"
}
all_ranks_joined() { [ "$(cat out* | grep -c 'joined:')" -eq "$1" ]; }
# cut HOST: drops the packets of HOST; mend HOST: ends that.
cut() { ip link set "v$1" down; }
mend() { ip link set "v$1" up; }
# partition LAYOUT BACKEND CALL HOST: HOST is cut off during a collective; every rank ends and names a
# rank of the other side.
partition() {
    local layout=($1) r begin us
    spread "tcp://$net.1:29500" "$1" --backend "$2" --call "$3" --iterations 1000000 --timeout 8
    until_true 10 all_ranks_joined ${#layout[@]} || complain "the ranks did not join"
    rest 0.2
    begin=$EPOCHREALTIME
    cut "$4"
    gathered 1
    mend "$4"
    us=$((${ended/./} - ${begin/./}))
    echo "$us" >cut_us
    ((us < 12000000)) || complain "took $us us"
    for r in "${!layout[@]}"; do
        grep -Eq 'victim: another rank .*: rank [0-9]+ \(host host[0-9], pid [0-9]+\) cannot be reached' "err.$r" ||
            complain "rank $r does not tell who cannot be reached: $(grep '^victim' "err.$r")"
    done
}

# Rank 2 has a shorter timeout than rank 1: it loses rank 0 and ends first. Rank 1 must still name
# rank 0. Flushed neighbour tables keep the kernel from closing the connection.
uneven() {
    local r timeouts=(16 16 4)
    for r in 0 1 2; do
        (on $((r + 1)) "$victim" --init "tcp://$net.1:29500" --rank $r --world 3 --backend tcp --iterations 1000000 \
            --timeout "${timeouts[r]}" >"out.$r" 2>"err.$r") &
        pids[r]=$!
    done
    until_true 10 all_ranks_joined 3 || complain "the ranks did not join"
    cut 1
    for r in 2 3; do
        ip -n h$r neigh flush dev eth0
    done
    gathered 1
    mend 1
    for r in 1 2; do
        said "err.$r" "rank 0 (host host1, pid " ") cannot be reached"
    done
}

# Launchers.

# launch NPROCS RUN'S ARGUMENTS...: starts a node on each host; NPROCS are their numbers of ranks.
launch() {
    local nprocs=($1) k
    shift
    pids=()
    for k in "${!nprocs[@]}"; do
        (on $((k + 1)) "$program" run --nnodes ${#nprocs[@]} --node-rank "$k" -n "${nprocs[k]}" "$@" \
            >"out.$k" 2>"err.$k" </dev/null) &
        pids+=($!)
    done
}
nodes() { # NPROCS BACKEND RUN'S ARGUMENTS...
    local nprocs=($1) n total=0
    for n in "${nprocs[@]}"; do
        total=$((total + n))
    done
    launch "$1" "${@:3}" --timeout 20 "$victim" --backend "$2" --shards 21
    gathered 0
    one_sum $total
    [ "$(cat out.* | grep -c "of $total,")" -eq $total ] || complain "not $total ranks"
    grep -q '^\[host2:' out.1 || complain "the host is not in the prefix"
}
nodes_file() {
    nodes "2 1" auto --init-method "file://$PWD/meeting"
    [ ! -e meeting ] || complain "the file is left"
}
# Both nodes report the cause last.
nodes_failed() { # KIND RANK HOST STATUS TEXT
    local k
    launch "2 2" --master-addr "$net.1" --timeout 20 "$victim" --fault "$1" --in "$2" --iterations 1000000
    gathered "$4"
    took "$2"
    for k in 0 1; do
        grep -v '^ \|^its last' "err.$k" | tail -n 1 |
            grep -q "^lockstep run: rank $2 on host host$3 (pid $(<"pid.$2")) $5" ||
            complain "node $k does not tell the cause last"
    done
}
# end_of_cut HOST MICROSECONDS: cuts HOST off; all processes must fail within that time.
end_of_cut() {
    local begin us k
    begin=$EPOCHREALTIME
    cut "$1"
    for k in "${!pids[@]}"; do
        wait "${pids[k]}"
        status=$?
        [ $status -ne 0 ] || complain "process $k: exit status 0"
    done
    ended=$EPOCHREALTIME
    mend "$1"
    us=$((${ended/./} - ${begin/./}))
    echo "$us" >cut_us
    ((us < $2)) || complain "took $us us"
}
# nodes_cut HOST: HOST is cut off; the launchers and all ranks end.
nodes_cut() {
    local k lost
    launch "2 1 2" --master-addr "$net.1" --timeout 8 "$victim" --backend auto --iterations 1000000 --timeout 8
    until_true 10 all_ranks_joined 5 || complain "the ranks did not join"
    end_of_cut "$1" 20000000
    for k in 0 1 2; do
        # A node that is cut off loses node 0; node 0 loses that node, or any if it is cut off itself.
        lost="$(($1 - 1)) (host host$1)"
        if [ $k -eq $(($1 - 1)) ]; then
            lost="0 (host host1)"
            [ $k -ne 0 ] || lost='[12] (host host[23])'
        fi
        tail -n 1 "err.$k" | grep -q "^lockstep run: node $lost disappeared" ||
            complain "node $k does not name the one that is lost"
    done
}
# A launcher is killed: the other node reports the lost node.
nodes_killed() { # NODE
    local k
    launch "2 1" --master-addr "$net.1" --timeout 8 "$victim" --iterations 1000000 --child 1
    until_true 10 all_ranks_joined 3 || complain "the ranks did not join"
    k=$((1 - $1))
    kill -KILL "${pids[$1]}"
    local begin=$EPOCHREALTIME
    wait "${pids[k]}"
    status=$?
    ended=$EPOCHREALTIME
    echo $((${ended/./} - ${begin/./})) >took
    [ $status -ne 0 ] || complain "exit status 0"
    said "err.$k" "node $1 (host host$(($1 + 1))) disappeared"
    wait "${pids[$1]}" 2>/dev/null
}
nodes_absent() { # node 1 never joins
    (on 1 "$program" run --nnodes 2 --node-rank 0 --master-addr "$net.1" -n 1 --timeout 2 true >out.0 2>err.0) &
    pids=($!)
    gathered 1
    said err.0 "node 1"
}

# Training.

# The result of one process is in $scratch.
task=(--model cnn --batch-size 32 --max-steps 4 --quiet --log-interval 1 --no-test --optimizer adam)
long=(--model cnn --quiet --log-ranks all --log-interval 1 --no-test)
losses() { sed -n 's/^\(\[[^]]*\] \)\?\(Train Epoch\|State hash\)/\2/p' "$@"; }
train_alone() {
    "$program" train "${task[@]}" --save-model "$scratch/alone.safetensors" >"$scratch/alone.out" 2>&1 &&
        [ "$(losses "$scratch/alone.out" | wc -l)" -eq 5 ]
}
# spread_training INIT LAYOUT OPTIONS...: starts a process on each host of LAYOUT.
spread_training() {
    local init=$1 layout=($2) r
    shift 2
    pids=()
    for r in "${!layout[@]}"; do
        (on "${layout[r]}" "$program" train --init-method "$init" --rank "$r" --world-size ${#layout[@]} "$@" \
            >"out.$r" 2>"err.$r" </dev/null) &
        pids+=($!)
    done
}
# launch_training NPROC OPTIONS...: starts a node with NPROC ranks on each host.
launch_training() {
    local nproc=$1 k
    shift
    pids=()
    for ((k = 0; k < hosts; k++)); do
        (on $((k + 1)) "$program" train --nnodes "$hosts" --node-rank "$k" -n "$nproc" "$@" \
            >"out.$k" 2>"err.$k" </dev/null) &
        pids+=($!)
    done
}
# trained WORLD: rank 0 has the losses of one process, and WORLD equal models are saved.
trained() {
    local r difference
    gathered 0
    cmp -s <(losses "$scratch/alone.out") <(losses out.0) || complain "other losses than in one process"
    for ((r = 0; r < $1; r++)); do
        difference=$("$program" compare "$scratch/alone.safetensors" "model_$r.safetensors" 2>&1) ||
            complain "the model of rank $r is another: $difference"
        [ -z "$difference" ] || complain "compare says: $difference"
    done
    [ "$(ls model_*)" = "$(seq -f 'model_%g.safetensors' 0 $(($1 - 1)) | sort)" ] || complain "not $1 models"
    grep -q "[ ,]$1 ranks over " out.0 || complain "not $1 ranks"
}
each_saves=(--save-model "model_{rank}.safetensors")
train_by_hand() { # INIT LAYOUT OPTIONS...
    local layout=($2)
    spread_training "$1" "$2" "${task[@]}" "${each_saves[@]}" --timeout 20 "${@:3}"
    trained ${#layout[@]}
}
train_through_file() { # LAYOUT OPTIONS...
    train_by_hand "file://$PWD/meeting" "$@"
    [ ! -e meeting ] || complain "the file is left"
}
train_nested() { # OPTIONS...
    spread_training "tcp://$net.3:29500" "3 1 2" "${task[@]}" "${each_saves[@]}" --timeout 20 --parallel dp \
        --devices cpu:0,cpu:1 "$@"
    trained 6
}
train_nodes() { # NPROC OPTIONS...
    launch_training "$1" "${task[@]}" "${each_saves[@]}" --timeout 20 "${@:2}"
    trained $(($1 * hosts))
}
train_cut() { # LAYOUT HOST OPTIONS...
    local layout=($1) r
    spread_training "tcp://$net.1:29500" "$1" "${long[@]}" --timeout 8 "${@:3}"
    until_true 30 all_train ${#layout[@]} || complain "not all ranks train"
    end_of_cut "$2" 12000000
    for r in "${!layout[@]}"; do
        tail -n 1 "err.$r" | grep -Eq 'lockstep: rank [0-9]+ \(host host[0-9], pid [0-9]+\) cannot be reached' ||
            complain "rank $r does not tell who cannot be reached: $(tail -n 1 "err.$r")"
    done
}
train_nodes_cut() { # HOST
    local k
    launch_training 1 "${long[@]}" --master-addr "$net.1" --timeout 8
    until_true 30 all_train 3 || complain "not all ranks train"
    end_of_cut "$1" 20000000
    for k in 0 1 2; do
        tail -n 1 "err.$k" | grep -q "^lockstep train: node [0-2] (host host[1-3]) disappeared" ||
            complain "node $k does not name one that is lost: $(tail -n 1 "err.$k")"
    done
}
# A rank is killed: all nodes report it last.
train_nodes_kill() { # RANK OPTIONS...
    local k pid
    launch_training 2 "${long[@]}" --master-addr "$net.1" --timeout 20 "${@:2}"
    until_true 30 all_train 6 || complain "not all ranks train"
    pid=$(cat out* | sed -n "s/.*\[rank $1\] host .* pid \([0-9]*\),.*/\1/p")
    echo "$EPOCHREALTIME" >"fault.$1"
    kill -KILL "$pid"
    gathered 137
    took "$1"
    for k in 0 1 2; do
        grep -v '^ \|^its last' "err.$k" | tail -n 1 |
            grep -q "^lockstep train: rank $1 on host host[1-3] (pid $pid) was killed by SIGKILL" ||
            complain "node $k does not tell the cause last"
    done
}

# mpiexec of MPICH starts ranks on three hosts and names none of them: the address of rank 0 and the token come over
# PMI, and the hosts' homes differ. The shell stands for ssh.
train_mpiexec() { # TASKS-OF-A-HOST TASKS RANKS OPTIONS...
    own_homes=yes
    cat >remote <<-'EOF'
	#!/bin/bash
	while [[ $1 == -* ]]; do shift; done
	h=${1##*.}
	shift
	mkdir -p "home$h"
	HOME=$PWD/home$h exec nsenter "--net=/run/netns/h$h" "--uts=/run/uts$h" bash -c "$*"
	EOF
    chmod +x remote
    (on 1 timeout 60 mpiexec.hydra -hosts "$net.1,$net.2,$net.3" -ppn "$1" -localhost "$net.1" -iface eth0 \
        -launcher ssh -launcher-exec "$PWD/remote" -n "$2" "$program" train "${task[@]}" "${each_saves[@]}" "${@:4}" \
        >out.0 2>err.0 </dev/null) &
    pids=($!)
    trained "$3"
    [ -z "$(find home? -type f)" ] || complain "a secret was made"
}

make_hosts || { echo "FAILED: cannot make hosts"; exit 1; }
before="$(listening) $(segments)"
side_by_side=1 # the cases use the same ports
for way in tcp auto; do
    with "hand-2-$way" by_hand "tcp://$net.1:29500" "1 1 2 2" $way
    with "hand-3-$way" by_hand "tcp://$net.2:29500" "2 1 3 1 2" $way
    with "file-2-$way" through_file "1 2 1 2" $way
    with "file-3-$way" through_file "3 2 1" $way
    for call in reduce reduce_scatter allgather gather scatter broadcast alltoall barrier message; do
        with "hand-3-$way-$call" by_hand "tcp://$net.1:29500" "1 2 3 1 2" $way $call
    done
    with "nodes-2-$way" nodes "2 2" $way --master-addr "$net.1"
    with "nodes-3-$way" nodes "1 3 2" $way --master-addr "$net.1" --master-port 29777
    with "nodes-init-$way" nodes "2 1" $way --init-method "tcp://$net.1:29600"
done
with nodes-file nodes_file
with slow-tcp slowly by_hand "tcp://$net.1:29500" "1 2 3 2" tcp
with slow-env slowly by_env "2 1 3"
with slow-nodes slowly nodes "2 1" auto --master-addr "$net.1"
with env-3 by_env "2 1 3 2"
with secrets secrets
with node-secrets node_secrets
with token-alone with_token
with insecure insecure
with file-alone no_secret through_file "1 2 3" tcp
leftovers "jobs that end well"
with unreachable unreachable
with not-mine not_mine
with nodes-absent nodes_absent
with nodes-exit-1 nodes_failed exit 3 2 3 "exited with status 3"
with nodes-exit-0 nodes_failed exit 1 1 3 "exited with status 3"
with nodes-kill-1 nodes_failed kill 2 2 137 "was killed by SIGKILL"
with nodes-kill-0 nodes_failed kill 0 1 137 "was killed by SIGKILL"
with nodes-launcher-1 nodes_killed 1
with nodes-launcher-0 nodes_killed 0
leftovers "jobs that end badly"
with cut-2-tcp partition "1 1 2 2" tcp allreduce 2
with cut-2-auto partition "1 1 2 2" auto allreduce 2
with cut-1-auto partition "1 2 3" auto allgather 1
with cut-3-auto partition "1 1 2 3 3" auto alltoall 3
with cut-1-uneven uneven
with cut-2-barrier partition "1 2 3" tcp barrier 2
with nodes-cut-2 nodes_cut 2
with nodes-cut-1 nodes_cut 1
leftovers "partitions"
train_alone || { echo "FAILED: one process does not train"; exit 1; }
for way in tcp auto; do
    with "train-hand-$way" train_by_hand "tcp://$net.1:29500" "1 2 3" --backend $way
    with "train-hand-5-$way" train_by_hand "tcp://$net.2:29500" "2 1 3 1 2" --backend $way
    with "train-file-$way" train_through_file "3 2 1" --backend $way
    with "train-nested-$way" train_nested --backend $way
    with "train-stages-$way" train_by_hand "tcp://$net.1:29500" "1 2 3" --backend $way --stages 3
    with "train-grid-$way" train_through_file "1 2 3 3" --backend $way --stages 2 --pipelined
    with "train-nodes-$way" train_nodes 2 --backend $way --master-addr "$net.1"
    with "train-nodes-stages-$way" train_nodes 1 --backend $way --master-addr "$net.1" --stages conv2,fc1 --pipelined
done
with train-nodes-file train_nodes 1 --init-method "file:///run/meeting"
with train-nodes-init train_nodes 2 --init-method "tcp://$net.1:29600" --bucket-mb .0625
with train-slow slowly train_by_hand "tcp://$net.1:29500" "1 2 3"
if type mpiexec.hydra >/dev/null 2>&1; then
    with train-mpiexec train_mpiexec 2 5 5
    with train-mpiexec-nodes train_mpiexec 1 3 6 -n 2
else
    echo "mpiexec.hydra is not installed: ranks of MPICH's launcher are not tested"
fi
leftovers "training that ends well"
with train-cut-2-tcp train_cut "1 2 3" 2 --backend tcp
with train-cut-1-auto train_cut "1 2 3 3" 1 --backend auto
with train-cut-stages train_cut "1 2 3" 2 --stages 3 --pipelined
with train-nodes-cut-3 train_nodes_cut 3
with train-nodes-kill-3 train_nodes_kill 3
with train-nodes-kill-0 train_nodes_kill 0 --stages 2
leftovers "training that ends badly"
summary

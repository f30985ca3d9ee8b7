#!/bin/bash
# by_hand.sh HOST HOST... - trains on hosts without a scheduler: ssh starts the same line on each of them. The first host is
# node 0, prints the results, and must be reachable by its name from the others. This folder and lockstep have the same
# path on all hosts. Other options: OPTIONS='--model mlp --epochs 1' RANKS=4 examples/cluster/by_hand.sh HOST HOST...
set -eu
[ $# -gt 0 ] || {
    echo "usage: by_hand.sh HOST HOST..." >&2
    exit 2
}

# Real data must be on every host: run `lockstep data get mnist` there first.
OPTIONS=${OPTIONS:---model cnn --data mnist}
# Ranks on each host: a number, gpu or auto (a rank for each core). The ranks of a host share its cores as threads, so two
# ranks use all cores, too. On CPUs all hosts together have at most 16 ranks, unless OPTIONS has a larger --shards:
# auto fails where the hosts have more cores than that.
RANKS=${RANKS:-2}

# The whole path of lockstep: a command of ssh often has a shorter PATH than a login, without ~/.local/bin.
program=$(command -v lockstep) || {
    echo "by_hand.sh: lockstep is not in PATH ($PATH)" >&2
    exit 1
}

first=$1 count=$# node=0
for host in "$@"; do
    line="${program@Q} train --nnodes $count --node-rank $node --master-addr $first -n $RANKS $OPTIONS"
    # -tt: when this script ends, ssh ends what it has started on the host.
    ssh -tt "$host" "cd ${PWD@Q} && $line" &
    node=$((node + 1))
done
# The status of the first node that failed, or 0.
status=0
while [ $node -gt 0 ]; do
    wait -n || status=$?
    node=$((node - 1))
done
exit $status

#!/bin/bash
# by_hand.sh HOST HOST... - trains on hosts without a scheduler: ssh starts the same line on each of them. The first host is
# node 0, prints the results, and must be reachable by its name from the others. lockstep is in the same place on all.
set -eu
[ $# -gt 0 ] || { echo "usage: by_hand.sh HOST HOST..." >&2; exit 2; }

OPTIONS=${OPTIONS:---model cnn --data mnist}
# Ranks on each host: a number, gpu or auto.
RANKS=${RANKS:-auto}

first=$1 count=$# node=0
for host in "$@"; do
    # -tt: when this script ends, ssh ends what it has started on the host.
    ssh -tt "$host" "cd $PWD && lockstep train --nnodes $count --node-rank $node --master-addr $first -n $RANKS $OPTIONS" &
    node=$((node + 1))
done
# The status of the first node that failed, or 0.
status=0
while [ $node -gt 0 ]; do
    wait -n || status=$?
    node=$((node - 1))
done
exit $status

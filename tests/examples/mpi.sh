#!/bin/bash
# mpi.sh PROGRAMS - examples under the mpirun of Open MPI and of MPICH, without an MPI in the program: three processes
# are three ranks, so they print once what the example prints alone, with the same bits; a single process runs alone.
# Status 77: there is no mpirun.
set -u
programs=$(realpath "$1")
. "$(dirname "$0")/../mpi.sh"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cd "$scratch" || exit 1
unset LOCKSTEP_TOKEN_FILE RANK WORLD_SIZE LOCAL_RANK MASTER_ADDR MASTER_PORT LOCKSTEP_BACKEND
export LOCKSTEP_TOKEN="the token of a test"

fail() {
    echo "FAILED: $*"
    head -n 40 out
    exit 1
}
# check NAME COUNT - the example as COUNT processes prints what it prints alone.
check() {
    timeout -s KILL 100 "$launcher" -n "$2" "$programs/$1" >out 2>&1 </dev/null || fail "$mpi, $1, $2: exit status $?"
    cmp -s "alone.$1" out || fail "$mpi, $1, $2: not the lines of $1 alone"
}
examples=(14_own_op 19_k_means)
for name in "${examples[@]}"; do
    timeout -s KILL 100 "$programs/$name" >"alone.$name" </dev/null || exit 1
    [ -s "alone.$name" ] || exit 1
done

found=0
for mpi in openmpi mpich; do
    launcher=$(launcher_of $mpi) || continue
    found=1
    for name in "${examples[@]}"; do
        check "$name" 3
        check "$name" 1
    done
    # This example starts ranks itself without a launcher.
    timeout -s KILL 100 "$launcher" -n 3 "$programs/08_collectives" >out 2>&1 </dev/null || fail "$mpi: 08_collectives"
    [ "$(grep -c 'the sum over 3 ranks is 6' out)" -eq 1 ] || fail "$mpi, 08_collectives: not three ranks"
done
[ $found -eq 1 ] || exit 77

#!/bin/bash
# mpi.sh RANKS PLUGINS - groups over MPI with Open MPI and MPICH: the processes are RANKS (mpi_ranks.c), started by
# mpirun; PLUGINS is the folder of the plug-ins. Status 77: there is no MPI.
set -u
ranks=$(realpath "$1")
export LOCKSTEP_PLUGINS=$2 LOCKSTEP_TOKEN="the token of a test"
. "$(dirname "$0")/../mpi.sh"
. "$(dirname "$0")/../port.sh"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cd "$scratch" || exit 1
read -r -a mpis <<<"$(mpis_here "$LOCKSTEP_PLUGINS" | tr '\n' ' ')"
[ ${#mpis[@]} -gt 0 ] || exit 77

failures=0
complain() {
    failures=$((failures + 1))
    echo "FAILED: $line: $*"
    tail -n 20 out
}
# start COUNT CASE [HOSTS] - runs the case under mpirun, by the command in $through; sets $status.
through=()
start() {
    line="$mpi, $1 processes: ${*:2}"
    head -c 65536 /dev/zero >page
    PORT=$(free_port) timeout -s KILL 100 "$(launcher_of "$mpi")" -n "$1" "${through[@]}" "$ranks" "$2" page "${@:3}" \
        >out 2>&1 </dev/null
    status=$?
}
fine() { # COUNT CASE [HOSTS]
    start "$@"
    [ $status -eq 0 ] || complain "exit status $status"
}
# fails TEXT COUNT CASE - ends with another status than 0, in time, and says the text.
fails() {
    start "${@:2}"
    if [ $status -eq 0 ] || [ $status -ge 124 ] && [ $status -ne 137 ]; then complain "exit status $status"; fi
    grep -q -- "$1" out || complain "'$1' is not said"
}

for mpi in "${mpis[@]}"; do
    for count in 2 3 5; do
        fine $count collectives
        fine $count sums
        fine $count split
    done
    fine 4 sums aabb
    fine 4 sums abab
    fine 4 collectives aabb
    fine 2 threads
    fine 3 threads
    fine 2 threads_split
    fine 3 again
    fine 2 forked
    # mpirun ends the job when one process dies. A shell around each rank hides the death, so that the control finds it.
    SECONDS=0
    rm -f said.*
    through=(bash -c '"$@" 2>"said.${OMPI_COMM_WORLD_RANK:-$PMI_RANK}"' shell)
    start 3 killed
    through=()
    grep -q "rank [02]: rank 1 .* died" said.* || complain "the survivors do not say who died"
    [ $SECONDS -le 20 ] || complain "the survivors took $SECONDS s"
    start 3 killed
    [ $status -ne 0 ] || complain "exit status $status"
    fails "rank 1 gave up: of a test" 3 give_up
done
echo "MPI: ${mpis[*]}; $failures failures"
[ $failures -eq 0 ]

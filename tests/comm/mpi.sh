#!/bin/bash
# mpi.sh RANKS PLUGINS - groups over MPI with Open MPI and MPICH: the processes are RANKS (mpi_ranks.c), started by
# mpirun; PLUGINS is the folder of the plug-ins. Status 77: there is no MPI.
set -u
ranks=$(realpath "$1")
export LOCKSTEP_PLUGINS=$2 LOCKSTEP_TOKEN="the token of a test"
. "$(dirname "$0")/under_mpi.sh"
begin_mpi "$LOCKSTEP_PLUGINS"

# start COUNT CASE [HOSTS] - runs the case under mpirun; sets $status.
start() { start_ranks "$1" "$ranks" "${@:2}"; }
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
    start_killed 3 killed
    start 3 killed
    [ $status -ne 0 ] || complain "exit status $status"
    fails "rank 1 gave up: of a test" 3 give_up
done
end_mpi

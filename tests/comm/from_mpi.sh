#!/bin/bash
# from_mpi.sh RANKS PLUGINS EXAMPLE - groups of the communicators of an MPI program, with Open MPI and MPICH: the programs are
# RANKS_openmpi and RANKS_mpich (from_mpi_ranks.c), started by mpirun; PLUGINS is the folder of the plug-ins,
# EXAMPLE_openmpi and EXAMPLE_mpich are the example (examples/mpi). Status 77: there is no MPI.
set -u
ranks=$(realpath "$(dirname "$1")")/$(basename "$1")
export LOCKSTEP_PLUGINS=$2
example=$(realpath "$(dirname "$3")")/$(basename "$3")
. "$(dirname "$0")/under_mpi.sh"
begin_mpi "$LOCKSTEP_PLUGINS"

# start COUNT CASE [BACKEND] - runs the case under mpirun; sets $status.
start() {
    BACKEND=${3:-auto} start_ranks "$1" "${ranks}_$mpi" "$2"
    line+=" ${3:-}"
}

for mpi in "${mpis[@]}"; do
    for backend in shm tcp mpi; do
        fine 3 collectives $backend
        fine 3 halves $backend
    done
    line="$mpi: the example"
    timeout -s KILL 100 "$(launcher_of "$mpi")" -n 3 "${example}_$mpi" >out 2>&1 </dev/null || complain "exit status $?"
    [ "$(grep -cE 'rank ([02] is in a group of 2, which MPI counts as 2|1 is in a group of 1, which MPI counts as 1)$' \
        out)" -eq 3 ] || complain "not the expected lines"
    fine 2 bits
    fine 4 bits mpi
    fine 2 again mpi
    fine 3 again
    fine 2 errors
    fine 2 single
    fine 2 level
    SECONDS=0
    start 3 late
    [ "$(grep -c 'rank [02] goes on' out)" -eq 2 ] || complain "no error in time"
    [ $SECONDS -le 20 ] || complain "it took $SECONDS s"
    # Each rank is a host of its own: auto uses MPI between hosts.
    through=(bash -c 'LOCKSTEP_HOSTID=host$$ exec "$@"' shell)
    fine 3 halves
    for backend in shm mpi; do
        start_killed 3 killed $backend
        [ $status -ne 0 ] || complain "exit status $status"
    done
done
end_mpi

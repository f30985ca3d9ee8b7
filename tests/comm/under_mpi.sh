# shellcheck shell=bash
# under_mpi.sh - what the scripts of groups under mpirun share: a temporary folder, the start of ranks, checks. Sourced.
. "$(dirname "$0")/../mpi.sh"
. "$(dirname "$0")/../port.sh"

# begin_mpi PLUGINS - goes to a temporary folder and sets $mpis to the MPI libraries here; status 77 if there is none.
begin_mpi() {
    scratch=$(mktemp -d)
    trap 'rm -rf "$scratch"' EXIT
    cd "$scratch" || exit 1
    read -r -a mpis <<<"$(mpis_here "$1" | tr '\n' ' ')"
    [ ${#mpis[@]} -gt 0 ] || exit 77
    failures=0 line=
}
complain() {
    failures=$((failures + 1))
    echo "FAILED: $line: $*"
    tail -n 20 out
}
# start_ranks COUNT PROGRAM CASE ARGUMENT... - runs `PROGRAM CASE page ARGUMENT...` under the mpirun of $mpi, by the
# command in $through, with a free PORT; page is a file of zeros. Sets $status; the output is in the file out.
through=()
start_ranks() {
    line="$mpi, $1 processes: ${*:3}"
    head -c 65536 /dev/zero >page
    PORT=$(free_port) timeout -s KILL 100 "$(launcher_of "$mpi")" -n "$1" "${through[@]}" "$2" "$3" page "${@:4}" \
        >out 2>&1 </dev/null
    status=$?
}
# fine COUNT CASE ARGUMENT... - `start`, which the script defines, must end with status 0.
fine() {
    start "$@"
    [ $status -eq 0 ] || complain "exit status $status"
}
# mpirun ends the job when one process dies. A shell around each rank hides the death for some seconds, so that the
# control finds it first.
# start_killed ARGUMENT... - as start, with such shells: the survivors must say soon that rank 1 died.
start_killed() {
    SECONDS=0
    rm -f said.*
    through=(bash -c '"$@" 2>"said.${OMPI_COMM_WORLD_RANK:-$PMI_RANK}"; code=$?; [ $code -ne 137 ] || sleep 5; exit $code' shell)
    start "$@"
    through=()
    grep -q "rank [02]: rank 1 .* died" said.* || complain "the survivors do not say who died"
    [ $SECONDS -le 20 ] || complain "the survivors took $SECONDS s"
}
# end_mpi - prints the number of failures; its status is 0 if there was none.
end_mpi() {
    echo "MPI: ${mpis[*]}; $failures failures"
    [ "$failures" -eq 0 ]
}

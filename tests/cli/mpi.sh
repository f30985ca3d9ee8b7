#!/bin/bash
# mpi.sh PROGRAM - `lockstep train` under mpirun of Open MPI and MPICH: the transport that is chosen, plug-ins that are
# missing or of the other MPI, sums of MPI's own, and failures. train_modes.sh tests the bits of all modes.
program=$1 command=train
tests=$(realpath "$(dirname "$0")/..")
. "$tests/cli/jobs.sh"
. "$tests/mpi.sh"
plugins=$(dirname "$program")
read -r -a mpis <<<"$(mpis_here "$plugins" | tr '\n' ' ')"
[ ${#mpis[@]} -gt 0 ] || exit 77

head -c 200000 /dev/urandom >noise
mkdir grey
idx grey/train 104 <noise
idx grey/t10k 75 <noise
task=(--data "$scratch/grey" --model mlp --batch-size 32 --epochs 2 --max-steps 6 --quiet --log-interval 1 --no-test)
# under MPI COUNT STATUS COMMAND... - the command under mpirun ends with STATUS, or in time with any other than 0 for
# "not0".
under() {
    local mpi=$1 count=$2 wanted=$3 status
    shift 3
    SECONDS=0
    line="$mpi x $count: $*"
    timeout -s KILL 60 "$(launcher_of "$mpi")" -n "$count" "$@" >out 2>err </dev/null
    status=$?
    if [ "$wanted" = not0 ]; then
        check "$line: exit status $status after $SECONDS s" test $status -ne 0 -a $SECONDS -lt 50
    else
        check "$line: exit status $status, not $wanted" test $status -eq "$wanted"
    fi
}
nobody_left() { [ -z "$(left)" ]; }
# The first line on stderr is Lockstep's own.
own_first() { check "$line: the first line is not Lockstep's" grep -q '^lockstep: ' <(head -1 err); }

run 0 "${task[@]}"
whole=$(hash_of)
check "the program is linked with no MPI" test -z "$(ldd "$program" | grep -i mpi)"
run 0 --help
said out "auto|shm|tcp|mpi|nccl"
timeout 60 "$program" info >out 2>err
for mpi in "${mpis[@]}"; do line=info said out "$plugins/lockstep-$mpi.so"; done

# Without a launcher of an MPI.
run 2 "${task[@]}" -n 2 --backend mpi
said err "no MPI launcher has started this process" "mpirun -n 4 lockstep train" "leave --backend mpi out"

for mpi in "${mpis[@]}"; do
    # Without options: shared memory on one host.
    under "$mpi" 3 0 "$program" train "${task[@]}"
    said out "3 ranks over shm"
    ends_alike
    under "$mpi" 3 0 "$program" train "${task[@]}" --backend mpi
    said out "3 ranks over mpi"
    ends_alike
    # Several nodes, as far as the launcher says: MPI. Hosts differ by $LOCKSTEP_HOSTID.
    cat >node <<'END'
export OMPI_COMM_WORLD_LOCAL_SIZE=1 MPI_LOCALNRANKS=1 OMPI_COMM_WORLD_LOCAL_RANK=0 MPI_LOCALRANKID=0
export LOCKSTEP_HOSTID=node-${OMPI_COMM_WORLD_RANK:-$PMI_RANK}
exec "$@"
END
    under "$mpi" 3 0 bash node "$program" train "${task[@]}"
    said out "3 ranks over mpi"
    ends_alike
    LOCKSTEP_PLUGINS=$scratch MASTER_ADDR=127.0.0.1 under "$mpi" 3 0 bash node "$program" train "${task[@]}"
    said out "3 ranks over tcp"
    ends_alike

    # One task on each node, which starts the ranks of its node: these are no processes of MPI.
    for ranks in 1 2; do
        under "$mpi" 2 0 bash node "$program" train "${task[@]}" -n $ranks
        ends_alike
        check "$line: not over mpi" grep -q "$((2 * ranks)) ranks over \(auto\|tcp\)" out
    done
    under "$mpi" 2 not0 bash node "$program" train "${task[@]}" -n 1 --backend mpi
    said err "start every rank with mpirun" "leave --backend mpi out"

    # MPI's own sums.
    under "$mpi" 3 0 "$program" train "${task[@]}" --backend mpi --reduce engine
    said out "--reduce engine: mpi adds gradients up in an order of its own"
    check "$line: once" test "$(grep -c 'order of its own' out)" -eq 1
    check "$line: shards are no advice for sums of MPI" test "$(grep -c 'partial sums' out)" -eq 0
    check "$line: a hash" test ${#whole} -eq 16
    cp out engine
    under "$mpi" 3 0 "$program" train "${task[@]}" --backend mpi --reduce engine --bucket-mb .0625
    check "$line: losses like the other run" test "$(grep -c '^Train' out)" -eq "$(grep -c '^Train' engine)"
    LOCKSTEP_PROGRESS_THREAD=1 under "$mpi" 3 0 "$program" train "${task[@]}" --backend mpi --reduce engine
    check "$line: losses like the other run" test "$(grep -c '^Train' out)" -eq "$(grep -c '^Train' engine)"
    under "$mpi" 2 not0 "$program" train "${task[@]}" --backend mpi --reduce engine --parallel dp --devices cpu:0,cpu:1
    said err "start one process for each rank"
    under "$mpi" 2 not0 "$program" train "${task[@]}" --backend tcp --reduce engine
    said err "NCCL or MPI"
    under "$mpi" 2 not0 "$program" train "${task[@]}" --reduce engine
    said err "between devices of kind cpu; add --backend mpi, or choose --reduce tree"

    # Plug-ins that do not fit.
    LOCKSTEP_PLUGINS=$scratch under "$mpi" 2 not0 "$program" train "${task[@]}" --backend mpi
    said err "lockstep-$mpi.so, is in none of these folders: $scratch"
    own_first
    LOCKSTEP_MPI=lam under "$mpi" 2 not0 "$program" train "${task[@]}" --backend mpi
    said err "LOCKSTEP_MPI is 'lam'"
    echo "no library" >lockstep-$mpi.so
    LOCKSTEP_PLUGINS=$scratch under "$mpi" 2 not0 "$program" train "${task[@]}" --backend mpi
    said err "cannot be loaded"
    rm lockstep-$mpi.so
    for other in "${mpis[@]}"; do
        [ "$other" = "$mpi" ] && continue
        LOCKSTEP_MPI=$other under "$mpi" 2 not0 "$program" train "${task[@]}" --backend mpi
        said err "LOCKSTEP_MPI"
    done

    # A process that never starts MPI: the others do not wait for ever.
    # shellcheck disable=SC2016
    under "$mpi" 2 not0 sh -c '[ "${OMPI_COMM_WORLD_RANK:-$PMI_RANK}" = 0 ] || exec sleep 20; exec "$@"' sh \
        "$program" train "${task[@]}" --backend mpi --timeout 1
    said err "has not started within 1 s"

    # A failure ends the job: Lockstep's message comes first, then MPI_Abort.
    cat >differ <<'END'
[ "${OMPI_COMM_WORLD_RANK:-$PMI_RANK}" != 1 ] || set -- "$@" --seed 2
exec "$@"
END
    under "$mpi" 3 not0 bash differ "$program" train "${task[@]}" --backend mpi
    own_first
    said err "--seed"
    # A rank that is killed.
    LOCKSTEP_FAULT=kill:rank=1,step=3 under "$mpi" 3 not0 "$program" train "${task[@]}" --backend mpi
    check "$line: takes $SECONDS s" test $SECONDS -le 30
    line="after $mpi"
    check "$line: nobody is left" await 10 nobody_left
done
conclude

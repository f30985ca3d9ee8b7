#!/bin/bash
# schedulers.sh PROGRAM - tasks of mpirun, srun and other schedulers, recognised by their variables. They are refused
# if no option makes them one job, and the command that the message suggests works.
program=$1 command=train
. "$(dirname "$0")/jobs.sh"
for name in OMPI_COMM_WORLD_{SIZE,RANK} MV2_COMM_WORLD_{SIZE,RANK} PMI_{SIZE,RANK} PMIX_RANK \
    SLURM_{STEP_NUM_TASKS,PROCID,NTASKS,STEP_ID}; do
    unset "$name"
done

task=(--model mlp --batch-size 48 --max-steps 2 --no-test --quiet)
run 0 "${task[@]}"
hash=$(sed -n 's/^State hash //p' out)

# One of several tasks of each scheduler.
tasks() { # NAME SIZE_VARIABLE RANK_VARIABLE
    local -x "$2=2" "$3=0"
    refused "$1 has started 2 tasks, and each of them would train alone" "lockstep train -n 2" "--nnodes \$$2" \
        "--node-rank \$$3" "unset $2" -- "${task[@]}"
    refused "$1" "unset $2" -- "${task[@]}" -n 2
    command=run
    refused "$1" "start a job of its own" "lockstep run -n 2 PROGRAM" -- -n 2 true
    command=train
    local -x "$3=1"
    refused "$1" -- "${task[@]}"
    local -x "$2=1" "$3=0"
    run 0 "${task[@]}"
}
tasks "mpirun of Open MPI" OMPI_COMM_WORLD_SIZE OMPI_COMM_WORLD_RANK
tasks "mpirun of MVAPICH" MV2_COMM_WORLD_SIZE MV2_COMM_WORLD_RANK
tasks "mpiexec of MPICH or Intel MPI" PMI_SIZE PMI_RANK
tasks srun SLURM_STEP_NUM_TASKS SLURM_PROCID
PMIX_RANK=1 refused "PMIx has started several tasks" "unset PMIX_RANK" -- "${task[@]}"
PMIX_RANK=0 run 0 "${task[@]}"
# The message names Slurm where variables of both Slurm and PMI are set.
SLURM_STEP_NUM_TASKS=2 PMI_SIZE=2 refused "srun" -- "${task[@]}"

# A batch script is one process, whatever the number of tasks is.
SLURM_NTASKS=4 SLURM_PROCID=0 run 0 "${task[@]}" -n 2

# Options that say how to join are followed, and other commands ignore the variables.
export OMPI_COMM_WORLD_SIZE=2
RANK=0 WORLD_SIZE=1 run 0 "${task[@]}"
run 0 "${task[@]}" --init-method "file://$scratch/nobody" --rank 0 --world-size 1 --save-model m.pth
command=info
run 0
command=compare
run 0 m.pth m.pth
command='eval'
run 0 m.pth --model mlp --dry-run
command=train
# The suggested command makes the tasks the nodes of one job.
refused -- "${task[@]}"
line=$(sed -n "s/.* sh -c '\(lockstep train .*\) -n 4'.*/\1/p" err)
check "there is a line to write" test -n "$line"
ln -s "$program" lockstep
line="${line/HOST/127.0.0.1} --master-port $(free_port) -n 1"
rm -f out* err*
for rank in 0 1; do
    OMPI_COMM_WORLD_RANK=$rank PATH=$scratch:$PATH timeout -s KILL 60 sh -c "$line ${task[*]}" \
        >out.$rank 2>err.$rank </dev/null &
    jobs[rank]=$!
done
all_finish "${jobs[@]}"
check "$line: other bits than one process" test "$(sed -n 's/^State hash //p' out.0)" = "$hash"

conclude

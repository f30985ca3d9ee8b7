#!/bin/bash
# schedulers.sh PROGRAM - tasks of mpirun, srun and other launchers, by their variables: they join by themselves and
# give the bits of one process, or say why they cannot. Real launchers are used where they are installed.
program=$1 command=train
. "$(dirname "$0")/jobs.sh"
while read -r name; do
    unset "$name"
done < <(env | sed -n 's/^\(\(OMPI\|MV2\|PMIX\?\|MPI\|SLURM\|PBS\)_[A-Z0-9_]*\)=.*/\1/p')

task=(--model mlp --batch-size 48 --max-steps 2 --no-test)
run 0 "${task[@]}"
whole=$(hash_of)

# pair VARIABLES_OF_TASK_0 VARIABLES_OF_TASK_1 ARGUMENTS... - two tasks with these variables, separated by blanks, both
# end with status 0, and rank 0 prints the hash of one process.
pair() {
    local rank vars=("$1" "$2") ids=()
    shift 2
    line="${vars[0]} lockstep train $*"
    rm -f out* err*
    for rank in 0 1; do
        # shellcheck disable=SC2086 # several variables
        env ${vars[rank]} timeout -s KILL 60 "$program" train "$@" >out.$rank 2>err.$rank </dev/null &
        ids[rank]=$!
    done
    all_finish "${ids[@]}"
    sed 's/.*"state_hash":"\([^"]*\)".*/State hash \1/' out.0 >out
    ends_alike
    check "$line: the second task prints a result" test -z "$(sed -n '/^State hash/p' out.1)"
}
job=$$ # a job's number decides its ports
slurm() { # RANK SIZE NODE NODES LOCAL_RANK TASKS_PER_NODE HOSTS
    echo "SLURM_JOB_ID=$job SLURM_STEP_ID=0 SLURM_PROCID=$1 SLURM_STEP_NUM_TASKS=$2 SLURM_NTASKS=$2 SLURM_NODEID=$3" \
        "SLURM_STEP_NUM_NODES=$4 SLURM_LOCALID=$5 SLURM_STEP_TASKS_PER_NODE=$6 SLURM_STEP_NODELIST=$7"
}
one=$(slurm 0 2 0 1 0 2 n1) two=$(slurm 1 2 0 1 1 2 n1)
first=$(slurm 0 2 0 2 0 '1(x2)' localhost,other) second=$(slurm 1 2 1 2 0 '1(x2)' localhost,other)

pair "$one" "$two" "${task[@]}"
check "the first line" grep -qx "Slurm job $job: 2 tasks on 1 node" <(head -1 out)
pair "$first" "$second" "${task[@]}"
check "the first line" grep -qx "Slurm job $job: 2 tasks on 2 nodes, localhost is first" <(head -1 out)
pair "$one" "$two" "${task[@]}" --init-method env:// --json
check "the first object" grep -q "\"started_by\":\"Slurm job $job: 2 tasks on 1 node\"" out.0
# R4's script exports all except the rank.
export WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT GPUS_PER_NODE=2
MASTER_PORT=$(free_port)
pair "$first" "$second" "${task[@]}"
unset WORLD_SIZE MASTER_ADDR MASTER_PORT GPUS_PER_NODE
# A file instead of a host and a port.
pair "$first" "$second" "${task[@]}" --init-method "file://$scratch/slurm"
# A job array is a group only with such a method.
array="SLURM_JOB_ID=$job SLURM_ARRAY_TASK_COUNT=2 SLURM_ARRAY_TASK_MIN=1 SLURM_ARRAY_TASK_MAX=2 SLURM_ARRAY_TASK_ID="
pair "${array}1" "${array}2" "${task[@]}" --init-method "file://$scratch/array"
SLURM_JOB_ID=$job SLURM_ARRAY_TASK_COUNT=2 SLURM_ARRAY_TASK_ID=0 run 0 "${task[@]}"
SLURM_JOB_ID=$job SLURM_ARRAY_TASK_COUNT=3 SLURM_ARRAY_TASK_MIN=1 SLURM_ARRAY_TASK_MAX=4 SLURM_ARRAY_TASK_ID=3 \
    refused "the indices of this job array of 3 jobs have gaps" "--array=0-2" "--rank and --world-size" -- "${task[@]}" \
    --init-method "file://$scratch/array"
# One task on each node starts the node's ranks.
pair "$first" "$second" "${task[@]}" -n 2
check "four ranks" grep -q "4 ranks" out
check "the first line" grep -qx "Slurm job $job: 2 tasks on 2 nodes, localhost is first" <(head -1 out)
# GPUs of a node, and cores of a task.
pair "$one SLURM_GPUS_ON_NODE=4" "$two SLURM_GPUS_ON_NODE=4" "${task[@]}"
said err.0 "Slurm gives this node 4 GPUs and 2 tasks"
check "one line of rank 0" test "$(cat err.0 err.1 | wc -l)" -eq 1
pair "$one SLURM_GPUS_ON_NODE=2" "$two SLURM_GPUS_ON_NODE=2" "${task[@]}"
check "nothing to say" test ! -s err.0
if [ "$(nproc)" -gt 1 ]; then
    SLURM_STEP_ID=0 SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=1 SLURM_CPUS_PER_TASK=1 run 0 "${task[@]}"
    said out "cpu with 1 thread,"
    ends_alike
fi
# Launchers of MPI on one node.
pair "OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_LOCAL_RANK=0 OMPI_COMM_WORLD_LOCAL_SIZE=2 PMIX_NAMESPACE=$job" \
    "OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_LOCAL_RANK=1 OMPI_COMM_WORLD_LOCAL_SIZE=2 PMIX_NAMESPACE=$job" \
    "${task[@]}"
check "the first line" grep -qx "Open MPI: 2 tasks on 1 node" <(head -1 out)
# MPICH has no name for a job: the process that started the tasks stands for it, which here is this script.
pair "PMI_RANK=0 PMI_SIZE=2 MPI_LOCALRANKID=0 MPI_LOCALNRANKS=2" \
    "PMI_RANK=1 PMI_SIZE=2 MPI_LOCALRANKID=1 MPI_LOCALNRANKS=2" "${task[@]}"
# What a task needs and does not have: `info --group` has the sentence of the training.
lacks() { # VARIABLES TEXT...
    # shellcheck disable=SC2086
    local -x ${1?}
    local why
    run 2 "${task[@]}"
    said err "${@:2}"
    why=$(sed 's/^lockstep: //' err)
    command=info run 0 --group
    said out "lockstep train refuses to start: $why"
}
host="does not say on which host its rank 0 is: give all its tasks the variable MASTER_ADDR"
lacks "RANK=0 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1" "env:// needs the variable MASTER_PORT, which is not set"
lacks "FLUX_TASK_RANK=0 FLUX_JOB_SIZE=4 FLUX_TASK_LOCAL_ID=0 FLUX_JOB_NNODES=2 FLUX_JOB_ID=f1" "Flux $host"
lacks "MV2_COMM_WORLD_RANK=0 MV2_COMM_WORLD_SIZE=2 MV2_COMM_WORLD_LOCAL_RANK=0 MV2_COMM_WORLD_LOCAL_SIZE=1" "MVAPICH $host"
lacks "JSM_NAMESPACE_RANK=0 JSM_NAMESPACE_SIZE=2 JSM_NAMESPACE_LOCAL_RANK=0 JSM_NAMESPACE_LOCAL_SIZE=1" "jsrun $host"
lacks "$(slurm 0 2 0 2 0 '1(x2)' 'n[1-')" "Slurm $host"
lacks "OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_LOCAL_RANK=0 OMPI_COMM_WORLD_LOCAL_SIZE=1 PMIX_NAMESPACE=1
    LOCKSTEP_PLUGINS=$scratch" "Open MPI $host; or let MPI connect the ranks: the plug-in for Open MPI"
lacks "WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=4000 SLURM_PROCID=1" "the variable RANK is not set" \
    "SLURM_PROCID is '1', but SLURM_STEP_ID is not set, so this process is no task of srun" "WORLD_SIZE is '2'"
# A host that is not found, at ports that follow from the job.
strange() {
    # shellcheck disable=SC2086
    local -x ${1?}
    run 1 "${task[@]}" --timeout 1
    said err "does not answer at no.such.host.invalid, ports" "cannot find the host 'no.such.host.invalid'"
}
strange "$(slurm 1 2 1 2 0 '1(x2)' no.such.host.invalid,other)"
# The real ones.
if type mpirun.openmpi >/dev/null 2>&1; then
    begin timeout 60 mpirun.openmpi --allow-run-as-root --oversubscribe -n 2 "$program" train "${task[@]}"
    finish "$job"
    line="mpirun of Open MPI"
    ends_alike
else
    echo "mpirun.openmpi is not installed: only its variables are tested"
fi
if type mpiexec.hydra >/dev/null 2>&1; then
    # The token comes over PMI: no secret is made. The second program of a task finds PMI closed, and uses the secret.
    secret=$XDG_CONFIG_HOME/lockstep/secret
    rm -rf "$XDG_CONFIG_HOME"
    begin timeout 60 mpiexec.hydra -n 3 "$program" train "${task[@]}"
    finish "$job"
    line="mpiexec of MPICH"
    ends_alike
    check "$line: a secret was made" test ! -e "$secret"
    begin timeout 60 mpiexec.hydra -n 2 "$program" info --group
    finish "$job"
    said out "lockstep train joins as rank 1 of 2; rank 0 sends its address and a token through the launcher's channel"
    begin timeout 60 mpiexec.hydra -n 2 sh -c "'$program' train ${task[*]} >first; '$program' train ${task[*]}"
    finish "$job"
    line="mpiexec of MPICH, twice"
    ends_alike
    check "$line: no secret" test -e "$secret"
    # A process that never joins: the others do not wait for ever.
    begin timeout 60 mpiexec.hydra -n 2 sh -c "[ \$PMI_RANK = 0 ] || exec sleep 5; '$program' train ${task[*]} --timeout 1"
    finish "$job"
    said err "not all 2 processes of the job came to the launcher's barrier (PMI) within 1 s"
else
    echo "mpiexec.hydra is not installed: only its variables are tested"
fi
job=$$

# refused_by VARIABLES TEXT... -- ARGUMENTS...
refused_by() {
    local settings=$1
    shift
    # shellcheck disable=SC2086
    local -x ${settings?}
    refused "$@"
}
# Several tasks of a node do not each start ranks.
refused_by "$one" "each task would start 2 ranks of its own (Slurm job $job: 2 tasks on 1 node)" \
    "Leave -n of lockstep train out" "srun lockstep train ..." "srun --ntasks-per-node=1 --ntasks=1 lockstep train -n 2" -- "${task[@]}" -n 2
refused_by "OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_LOCAL_RANK=0 OMPI_COMM_WORLD_LOCAL_SIZE=2" \
    "Leave -n of lockstep train out, and every task is a rank: mpirun -n 2 lockstep train ..." -- "${task[@]}" -n 2
command=run
refused_by "$one" "srun PROGRAM" "srun --ntasks-per-node=1 --ntasks=1 lockstep run -n 2 PROGRAM" -- -n 2 true
command=train
# The same quantity with two values.
refused_by "$one WORLD_SIZE=4" "WORLD_SIZE says that the world size is 4" "SLURM_STEP_NUM_TASKS of Slurm says 2" -- \
    "${task[@]}"
refused_by "$two RANK=0 WORLD_SIZE=2" "RANK says that the rank is 0" "SLURM_PROCID of Slurm says 1" -- "${task[@]}"
# Tasks that cannot know enough.
refused_by "PMIX_RANK=0 PMIX_NAMESPACE=1" "PMIx does not say how many tasks there are" "WORLD_SIZE" -- "${task[@]}"
OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_LOCAL_RANK=0 OMPI_COMM_WORLD_LOCAL_SIZE=1 \
    PMIX_NAMESPACE=1 run 2 "${task[@]}"
said err "Open MPI does not say on which host its rank 0 is: give all its tasks the variable MASTER_ADDR"
# Tasks without others train alone.
PBS_JOBID=1.pbs PBS_NODENUM=0 PBS_TASKNUM=1 PBS_NODEFILE=$scratch/none run 0 "${task[@]}"
ends_alike
said err "PBS job 1.pbs does not say how many tasks it has, so this process trains alone" "PBS_NODEFILE names $scratch/none"
run 0 "${task[@]}" --backend mpi
ends_alike
said err "--backend mpi has no effect, because no launcher has started ranks" "mpirun -n 4 lockstep train --backend mpi"
PMI_RANK=0 PMI_SIZE=1 run 0 "${task[@]}"
ends_alike
OMPI_COMM_WORLD_SIZE=1 OMPI_COMM_WORLD_RANK=0 run 0 "${task[@]}" -n 2
ends_alike
# A launcher inside a task is the one that counts.
OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_RANK=1 RANK=0 WORLD_SIZE=1 LOCAL_RANK=0 run 0 "${task[@]}"
ends_alike
said err "one of the 2 tasks of Open MPI trains alone here, because WORLD_SIZE is 1" "mpirun lockstep train"
SLURM_STEP_ID=0 SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=2 OMPI_COMM_WORLD_SIZE=1 OMPI_COMM_WORLD_RANK=0 \
    OMPI_COMM_WORLD_LOCAL_RANK=0 run 0 "${task[@]}"
ends_alike
said err "one of the 2 tasks of Slurm trains alone here, because OMPI_COMM_WORLD_SIZE is 1" "srun lockstep train"

# An allocation outside of its tasks.
body="SLURM_JOB_ID=$job SLURM_NTASKS=6 SLURM_PROCID=0 SLURM_JOB_NUM_NODES=3 SLURM_JOB_NODELIST=n[1-3]"
refused_by "$body" "Slurm job $job has 6 tasks, and this process is none of them" "srun lockstep train" "-n 1" -- \
    "${task[@]}"
refused_by "$body WORLD_SIZE=6 MASTER_ADDR=n1 MASTER_PORT=1" "none of them" "srun lockstep train" -- "${task[@]}"
in_body() {
    # shellcheck disable=SC2086
    local -x ${body?}
    "$@"
}
in_body run 0 "${task[@]}" -n 2
said err "uses 1 of the 3 nodes of Slurm job $job" "srun --ntasks-per-node=1 --ntasks=3 lockstep train"
ends_alike
SLURM_NTASKS=4 SLURM_PROCID=0 run 0 "${task[@]}" -n 2
# A service of Kubernetes, and values that are no numbers.
MASTER_PORT=tcp://10.0.0.1:80 run 0 "${task[@]}"
ends_alike
refused_by "RANK=$(printf '1%.0s' {1..4000}) WORLD_SIZE=2" "the variable RANK is '1111" "lockstep train -n 4" -- "${task[@]}"
refused_by "SLURM_STEP_ID=0 SLURM_PROCID=1 SLURM_STEP_NUM_TASKS=1" "SLURM_PROCID is '1' and SLURM_STEP_NUM_TASKS '1'" \
    "start the tasks by one srun" -- "${task[@]}"
refused_by "SLURM_STEP_ID=0 SLURM_PROCID=7 SLURM_STEP_NUM_TASKS=4" "SLURM_PROCID is '7' and SLURM_STEP_NUM_TASKS '4'" \
    "start the tasks by one srun" -- "${task[@]}"

# What is known, and why.
command=info
run 0 --group
said out "started by no launcher that is known" "lockstep train trains alone"
know() { # VARIABLES TEXT...
    # shellcheck disable=SC2086
    local -x ${1?}
    run 0 --group
    said out "${@:2}"
    run 0 --group --json
    check "$line: one object" test "$(wc -l <out)" -eq 1
}
know "$second WORLD_SIZE=2" "started by Slurm job $job: 2 tasks on 2 nodes, localhost is first" \
    "rank                 1                    SLURM_PROCID (Slurm)" \
    "world size           2                    WORLD_SIZE (the environment)" \
    "host of rank 0       localhost            SLURM_STEP_NODELIST (Slurm)" "lockstep train joins as rank 1 of 2"
know "$one RANK=0 WORLD_SIZE=3 LOCAL_RANK=0 MASTER_ADDR=a MASTER_PORT=4000" "started by a launcher that sets torchrun's variables: 3 tasks" \
    "left out: Slurm, in a task of which another launcher has started this process" "inside Slurm job $job" \
    "joins as rank 0 of 3 at a, port 4000"
know "TORCHELASTIC_RUN_ID=a RANK=0 WORLD_SIZE=3 LOCAL_RANK=0 MASTER_ADDR=a MASTER_PORT=4000" "started by torchrun: 3 tasks" \
    "RANK (torchrun)"
know "LOCKSTEP_RUN_ID=a RANK=0 WORLD_SIZE=3 LOCAL_RANK=0 MASTER_ADDR=a MASTER_PORT=4000" \
    "started by lockstep run: 3 tasks" "RANK (lockstep run)"
know "$one SLURM_GPUS_ON_NODE=4" "joins as rank 0 of 2" "note: Slurm gives this node 4 GPUs and 2 tasks"
know "$second MASTER_ADDR=localhost" "note: MASTER_ADDR is localhost, which every node takes for itself, and there are 2 nodes"
know "$one RANK=0 WORLD_SIZE=1 LOCAL_RANK=0" "trains alone in this process: one of the 2 tasks of Slurm"
know "$one WORLD_SIZE=4" "problem: the variable WORLD_SIZE" "lockstep train refuses to start"
know "$body" "inside Slurm job $job, which has 6 tasks on 3 nodes" "lockstep train refuses to start" "srun lockstep train"
refused "takes no file" -- --group m.pth
command=train

# Options that say how to join are followed, and other commands ignore the variables.
export OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_RANK=0
run 0 "${task[@]}" --init-method "file://$scratch/nobody" --rank 0 --world-size 1 --save-model m.pth
command=info
run 0
command=compare
run 0 m.pth m.pth
command='eval'
run 0 m.pth --model mlp --dry-run

conclude

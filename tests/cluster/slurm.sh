#!/bin/bash
# slurm.sh PROGRAM REPOSITORY BUILD - submits every file of examples/cluster to a Slurm of four nodes, and compares the
# result with that of one process; a sweep; a task that is killed, a job that is cancelled, a time limit with --requeue;
# all commands of docs/clusters.md. Nothing is left running.
. "$(dirname "$0")/cluster.sh"
program=$(realpath "$1") repository=$(realpath "$2") build=$(realpath "$3")
examples=$repository/examples/cluster
unset LOCKSTEP_TOKEN LOCKSTEP_TOKEN_FILE LOCKSTEP_FAULT RANK WORLD_SIZE LOCAL_RANK MASTER_ADDR MASTER_PORT
for name in $(compgen -e | grep -E '^(SLURM|SBATCH|PBS|OMPI|PMI)'); do unset "$name"; done

checks=0 failures=0 line='' held=''
complain() {
    failures=$((failures + 1))
    echo "FAILED: $*"
    [ ! -s "${out:-}" ] || tail -n 12 "$out" | sed 's/^/    /'
}
check() {
    checks=$((checks + 1))
    "${@:2}" || complain "$line: $1"
}
# said TEXT... - every text is in the output of the job.
said() {
    local text
    for text in "$@"; do check "'$text' is not in the output" grep -qF -- "$text" "$out"; done
}
is() { [ "$1" = "$2" ]; }

start_cluster || {
    tail -n 5 $scratch/log/*
    echo "FAILED: Slurm does not start"
    exit 1
}
cd $scratch/work || exit 1
# The program that jobs find; the first run of a job may have a fault.
cat >$scratch/bin/lockstep <<END
#!/bin/bash
[ -z "\${FIRST_FAULT-}" ] || [ -n "\${SLURM_RESTART_COUNT-}" ] || export LOCKSTEP_FAULT=\$FIRST_FAULT
exec $program "\$@"
END
chmod +x $scratch/bin/lockstep
export PATH=$scratch/bin:$PATH PROGRAM=$build/examples/06_debug_group
base="--model mlp --batch-size 48 --no-test --quiet --log-interval 1"
task="$base --max-steps 6"
export OPTIONS=$task
# hash_alone STEPS - the state hash of one process.
# shellcheck disable=SC2086
hash_alone() { timeout 60 "$program" train $base --max-steps "$1" | sed -n 's/^State hash //p'; }
whole=$(hash_alone 6) line="one process"
check "there is a hash" test -n "$whole"

# Jobs.

# submit FILE SBATCH_OPTIONS... - sets $job and $out, the file of its output.
submit() {
    line="sbatch ${*:2} $(basename "$1")"
    job=$(timeout 30 sbatch --parsable "${@:2}" "$1") || complain "$line is refused"
    out=$scratch/work/$(basename "$1" .sbatch | tr _ -)-$job.out
}
# completes [JOB] - the job ends well.
completes() {
    ended 180 "${1:-$job}"
    check "the job is $state with $status" is "$state $status" "COMPLETED 0:0"
}
# alike RANKS... - one rank has printed a state hash, that of one process, and the run had so many ranks.
alike() {
    check "state hash $(sed -n 's/^State hash //p' "$out" | tr '\n' ' ')" is "$(sed -n 's/^State hash //p' "$out")" "$whole"
    said "$1 ranks over "
}
example() { # FILE RANKS SBATCH_OPTIONS...
    submit "$examples/$1.sbatch" "${@:3}"
    completes
    alike "$2"
}
# stopped_task JOB - sets $held to the process of the job that a fault has stopped.
stopped_task() {
    local folder
    for folder in /proc/[0-9]*; do
        grep -qsxz "SLURM_JOB_ID=$1" "$folder/environ" && grep -qs '^State:.T' "$folder/status" &&
            held=${folder#/proc/} && return
    done
    return 1
}
# Nothing is left of a job: no task, and no process of Slurm that watched its tasks.
no_task() { ! grep -qsxz "SLURM_JOB_ID=$1" /proc/[0-9]*/environ && ! grep -qs "^slurmstepd: \[$1\." /proc/[0-9]*/cmdline; }
has_user_signal() { # PROCESS
    local mask
    mask=$(sed -n 's/^ShdPnd:[^0-9a-f]*//p' "/proc/$1/status" 2>/dev/null)
    ((16#${mask:-0} & 1 << ($(kill -l USR1) - 1)))
}
# Slurm has requeued the job. Some versions send SIGCONT with the signal before the time limit; otherwise this does.
is_requeued() {
    stopped_task "$job" && has_user_signal "$held" && kill -CONT "$held"
    state_is "$job" PENDING && [ "$(field "$job" Restarts)" = 1 ]
}

# Examples.

example one_node 4
said "Slurm job $job: 4 tasks on 1 node"
example three_nodes 6
said "Slurm job $job: 6 tasks on 3 nodes, n"
example gpus 4
RANKS=2 example task_per_node 4

submit "$examples/debug_group.sbatch" --nodelist=n[1-3]
completes
said "rank                 0                    SLURM_PROCID" "lockstep train joins as rank 0 of 6 at n1"
for rank in 0 1 2 3 4 5; do
    said "host n$((rank / 2 + 1)): rank $rank of 6, local rank $((rank % 2)) of 2, over auto: 1 + ... + 6 = 21"
done

# Every task of an array is a job of its own, with a file of output of its own.
array() { # FILE
    local index
    submit "$1"
    for index in 0 1 2 3; do
        ended 180 "${job}_$index"
        check "task $index is $state with $status" is "$state $status" "COMPLETED 0:0"
    done
    cat array-"${job}"_?.out >"$out"
    alike 4
    check "the file of the rendezvous is removed" test ! -e "rendezvous-$job"
}
array "$examples/array.sbatch"
# The same with both numbers as options.
sed 's/^lockstep train /&--rank $SLURM_ARRAY_TASK_ID --world-size $SLURM_ARRAY_TASK_COUNT /' "$examples/array.sbatch" \
    >array.sbatch
check "the options are in the file" grep -q 'train --rank' array.sbatch
array array.sbatch

# The environment of the Slurm script in docs/guide.md, as that script sets it: the rank is left to SLURM_PROCID.
cat >r4.sbatch <<'END'
#!/bin/bash
#SBATCH --job-name=r4
#SBATCH --output=r4-%j.out
#SBATCH --nodes=3
#SBATCH --ntasks-per-node=2
#SBATCH --gres=gpu:2
export MASTER_PORT=$(expr 10000 + $(echo -n $SLURM_JOBID | tail -c 4))
export WORLD_SIZE=$(($SLURM_NNODES * $SLURM_NTASKS_PER_NODE))
echo "WORLD_SIZE="$WORLD_SIZE
master_addr=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
export MASTER_ADDR=$master_addr
echo "MASTER_ADDR="$MASTER_ADDR
export GPUS_PER_NODE=2
srun lockstep train $OPTIONS
srun $PROGRAM
END
submit r4.sbatch --nodelist=n[1-3]
completes
alike 6
said "WORLD_SIZE=6" "MASTER_ADDR=n1" "host n3: rank 5 of 6, local rank 1 of 2"

# Without Slurm: ssh and PBS's pbs_tmrsh run a command on a host.
cat >$scratch/bin/ssh <<'END'
#!/bin/bash
# ssh [-tt] HOST COMMAND...
[ "$1" != -tt ] || shift
exec nsenter --net="/run/netns/$1" --uts="/run/uts${1#n}" sh -c "${*:2}"
END
cp $scratch/bin/ssh $scratch/bin/pbs_tmrsh
chmod +x $scratch/bin/{ssh,pbs_tmrsh}
line="by_hand.sh n1 n2" out=$scratch/work/by-hand.out
RANKS=2 timeout 180 "$examples/by_hand.sh" n1 n2 >"$out" 2>&1
check "exit status $?" is $? 0
alike 4
line="nodes.pbs" out=$scratch/work/pbs.out
printf 'n3\nn3\nn4\nn4\n' >nodefile
PBS_JOBID=7.control PBS_NODEFILE=$PWD/nodefile PBS_O_WORKDIR=$PWD PBS_ENVIRONMENT=PBS_BATCH PBS_NODENUM=0 PBS_TASKNUM=1 \
    RANKS=2 timeout 180 bash "$examples/nodes.pbs" >"$out" 2>&1
check "exit status $?" is $? 0
alike 4

# A sweep: a job for each cell, collected when the jobs have ended.
line="sweep --slurm" out=$scratch/work/sweep.out
# shellcheck disable=SC2086
timeout 120 lockstep sweep --nproc 1,2 -o swept --slurm=--time=5 -- train $task --threads 1 >"$out" 2>&1
check "exit status $?" is $? 0
said "[1/2] nproc 1: job " "[2/2] nproc 2: job "
for job in $(cat swept/*/slurm-job); do completes; done
check "a core for each rank" is "$(field "$job" NumCPUs)" 2
timeout 120 lockstep sweep -o swept >"$out" 2>&1
check "exit status $?" is $? 0
check "both cells have the weights of one process" is "$(grep -c "done .* $whole" "$out")" 2

# What else Slurm does.

# direct OPTIONS... -- COMMAND... - srun without a script; sets $status.
direct() {
    line="srun $*" out=$scratch/work/direct.out
    timeout 180 srun "$@" >"$out" 2>&1
    status=$?
}
# shellcheck disable=SC2086
direct --nodes=3 --ntasks=5 lockstep train $task
check "exit status $status" is $status 0
alike 5
# Tasks that are not as many as the GPUs of their node.
# shellcheck disable=SC2086
direct --nodes=1 --ntasks=3 --gres=gpu:2 lockstep train $task
check "exit status $status" is $status 0
alike 3
said "Slurm gives this node 2 GPUs and 3 tasks"
# Several tasks, and none of them started by srun.
printf '#!/bin/bash\nlockstep train %s\n' "$task" >alone.sbatch
submit alone.sbatch --ntasks=4 --output=alone-%j.out
ended 180 "$job"
check "the job is $state" is "$state" FAILED
said "Slurm job $job has 4 tasks, and this process is none of them" "srun lockstep train"
# The same, submitted in a task of srun: sbatch passes the variables of that task's step on.
line="sbatch in a task of srun" out=$scratch/work/left-over.out
timeout 90 srun --ntasks=1 sbatch --wait --nodes=2 --ntasks=4 --output="$out" --wrap "lockstep train $task" >/dev/null 2>&1
check "exit status $?" is $? 2
said "has 4 tasks, and this process is none of them" "srun lockstep train"
# One task on each node in a job of more tasks, by the command that a message says.
printf '#!/bin/bash\nsrun --ntasks-per-node=1 --ntasks=2 lockstep train -n 2 %s\n' "$task" >crowded.sbatch
submit crowded.sbatch --nodes=2 --ntasks=4 --output=crowded-%j.out
completes
alike 4
# Two jobs at once on the same hosts.
submit "$examples/three_nodes.sbatch"
first=$job first_out=$out
submit "$examples/three_nodes.sbatch"
completes
alike 6
out=$first_out
completes "$first"
alike 6

# A task that is killed: the job ends, and says which rank it was.
FIRST_FAULT=stop:rank=3,step=3,op=step submit "$examples/three_nodes.sbatch" --nodelist=n[1-3]
await 180 stopped_task "$job" || complain "$line: no task stops"
[ -z "$held" ] || kill -KILL "$held"
ended 180 "$job"
check "the job is $state with $status" is "$state" FAILED
said "rank 3 (host n2, pid $held) died"
check "a process is left" await 20 no_task "$job"

# A job that is cancelled is not brought back by --requeue.
OPTIONS="$base --max-steps 1000000" FIRST_FAULT=stop:rank=1,step=3,op=step submit "$examples/requeue.sbatch" --nodes=1
await 180 stopped_task "$job" || complain "$line: no task stops"
timeout 20 scancel "$job"
ended 180 "$job"
check "the job is $state" is "$state" CANCELLED
said "SIGTERM after step" "Slurm is ending job $job already"
check "a process is left" await 20 no_task "$job"

# The time limit.

# A signal before the time limit with --requeue, in tasks of srun and in a script that starts the ranks itself. Rank 1 stops
# itself in step 3, and goes on when Slurm has sent the signal, which takes up to half a minute.
cat >script.sbatch <<'END'
#!/bin/bash
#SBATCH --output=%x-%j.out --open-mode=append --requeue --ntasks=2 --job-name=script
exec lockstep train -n 2 --checkpoint "checkpoints-$SLURM_JOB_ID" --requeue $OPTIONS
END
limited() { # FILE SIGNAL
    OPTIONS="$base --max-steps 300" FIRST_FAULT=stop:rank=1,step=3,op=step submit "$1" --time=15 --signal="$2@890" --nodes=1
}
limited "$examples/requeue.sbatch" USR1
requeued=$job requeued_out=$out
limited script.sbatch B:USR1
script=$job script_out=$out
goes_on() { # FILE JOB OUTPUT
    line="$1 at its time limit" job=$2 out=$3
    await 180 is_requeued || complain "$line: the job is $(field "$job" JobState), not requeued"
    said "SIGUSR1 after step" "asks Slurm to requeue job $job"
    check "a process of the first run is left" await 20 no_task "$job"
    # Slurm would wait for two minutes; its daemon on the node refuses a job that it has ended in the same second.
    sleep 2
    timeout 20 scontrol update "JobId=$job" StartTime=now
    completes
    check "the job was not started again" is "$(field "$job" Restarts)" 1
    said "no checkpoint in checkpoints-$job yet: the run begins" "going on from checkpoints-$job/step-"
    alike 2
}
whole=$(hash_alone 300)
goes_on requeue.sbatch "$requeued" "$requeued_out"
goes_on script.sbatch "$script" "$script_out"

# The page.

line="docs/clusters.md" out=$scratch/work/page.out
check "a node is not idle: $(sinfo)" await 20 are_idle
if command -v python3 >/dev/null; then
    DOCS_ON_SLURM=yes timeout 300 python3 "$repository/tests/docs/commands.py" "$program" "$repository" "$build" \
        docs/clusters.md >"$out" 2>&1
    check "exit status $?" is $? 0
else
    echo "docs/clusters.md is left out: there is no python3"
fi

# Nothing is left.

line="the end" out=''
check "a node is not idle: $(sinfo)" await 20 are_idle
check "no process of a job is left: $(others)" await 10 none_else
check "Slurm stops" stop_cluster
check "no file is left in /dev/shm" test -z "$(ls /dev/shm)"
echo "$checks checks, $failures failures, $SECONDS s"
[ $failures -eq 0 ]

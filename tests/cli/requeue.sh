#!/bin/bash
# requeue.sh PROGRAM - --requeue with a scontrol of this script: what is refused, what is asked for and when, and that the
# next start of the same line goes on to the same bits. tests/cluster/slurm.sh has a real Slurm.
program=$1 command=train
. "$(dirname "$0")/jobs.sh"
for name in $(compgen -e SLURM_); do unset "$name"; done

task=(--model mlp --batch-size 48 --max-steps 8 --no-test --quiet --log-interval 1 --optimizer adam)
run 0 "${task[@]}"
whole=$(hash_of)

# What a user can do wrong.
refused "--requeue puts a job of Slurm back into its queue" "SLURM_JOB_ID is not set" "sbatch --requeue" -- \
    "${task[@]}" --checkpoint ck --requeue
export SLURM_JOB_ID=17 SLURM_PROCID=0
refused "--requeue" "give the folder with --checkpoint DIR" -- "${task[@]}" --requeue
path=$PATH
mkdir bin none
PATH=$scratch/none
line="train --requeue without scontrol"
"$program" train "${task[@]}" --checkpoint ck --requeue >out 2>err </dev/null
status=$?
PATH=$path
check "$line: exit status $status, not 2" test $status -eq 2
said err "scontrol, which is in no folder of \$PATH" "leave --requeue out"
check "$line: no checkpoint" test -z "$(steps_of ck)"

# scontrol: prints what is in shown and answer, notes what it was asked, and ends the process that asks, as Slurm does.
# Its first questions for the job fail, as many as the number in busy.
cat >bin/scontrol <<END
#!/bin/bash
echo "\$*" >>$scratch/asked
if [ "\$1" = show ]; then
    if [ "\$(grep -c show $scratch/asked)" -le "\$(cat $scratch/busy)" ]; then
        echo "slurm_load_jobs error: Unable to contact slurm controller" >&2
        exit 1
    fi
    cat $scratch/shown
    exit
fi
[ ! -s $scratch/hangs ] || exec sleep 60
cat $scratch/answer >&2
[ ! -s $scratch/answer ] || exit 1
kill -TERM \$PPID
END
chmod +x bin/scontrol
PATH=$scratch/bin:$path
: >answer
: >hangs
echo 0 >busy
shown() { echo "JobId=17 JobName=x JobState=$1 Reason=None Requeue=$2 Restarts=0 BatchFlag=$3 Reboot=0" >shown; }

has_stopped() {
    local file
    for file in $(grep -lsz "^MARK=$MARK\$" /proc/[0-9]*/environ); do
        grep -qs '^State:.T' "${file%environ}status" && held=${file//[!0-9]/} && return
    done
    return 1
}
# halted RANK OPTIONS... - starts a run that stops itself in step 3, and sets $held to the stopped process.
halted() {
    line="train --requeue ${*:2}"
    rm -f asked
    begin env LOCKSTEP_FAULT="stop:rank=$1,step=3,op=step" "$program" train "${task[@]}" --checkpoint ck --save-every 1000 \
        --requeue "${@:2}"
    await 30 has_stopped || complain "$line: does not stop in step 3"
}
ends_with() { # STATUS
    finish $job
    check "$line: exit status $status, not $1" test $status -eq "$1"
    check "$line: nobody is left" test -z "$(left)"
}

# The signal before the time limit: the run saves and asks once; the same line goes on from there.
goes_on() { # OPTIONS...
    check "$line: what Slurm was asked: $(cat asked)" test "$(tail -1 asked)" = "requeue 17"
    check "$line: it was asked once" test "$(grep -c requeue asked)" -eq 1
    said err "from where the job's next run goes on" "asks Slurm to requeue job 17"
    run 0 "${task[@]}" --checkpoint ck --save-every 1000 --requeue "$@"
    said out "going on from ck/step-"
    ends_alike
    rm -rf ck
}
shown RUNNING 1 1
for signal in USR1 TERM; do
    halted 0
    said out "no checkpoint in ck yet: the run begins"
    kill -$signal "$held"
    kill -CONT "$held"
    ends_with 143 # by the SIGTERM of scontrol
    said err "SIG$signal after step"
    goes_on
done
halted 1 -n 2
kill -USR1 $job
kill -CONT "$held"
ends_with 143
goes_on -n 2

# Ranks that are the tasks of a job array: each asks for its own task.
line="ranks of a job array"
rm -f asked out* err*
for rank in 0 1; do
    SLURM_JOB_ID=$((17 + rank)) SLURM_ARRAY_JOB_ID=17 SLURM_ARRAY_TASK_ID=$rank SLURM_ARRAY_TASK_COUNT=2 \
        LOCKSTEP_FAULT=stop:rank=1,step=3,op=step "$program" train "${task[@]}" --checkpoint ck --save-every 1000 --requeue \
        --init-method "file://$scratch/meeting" --rank $rank --world-size 2 >out.$rank 2>err.$rank </dev/null &
    ids[rank]=$!
done
await 30 has_stopped || complain "$line: do not stop in step 3"
kill -USR1 "$held"
kill -CONT "$held"
for id in "${ids[@]}"; do
    finish "$id"
    check "$line: exit status $status, not 143" test $status -eq 143
done
check "$line: what Slurm was asked" test "$(grep requeue asked | sort | tr '\n' ' ')" = "requeue 17 requeue 18 "
rm -rf ck

# A controller that does not answer is asked again, and is asked to requeue the job even if it does not say the state of
# the job: by no answer, or by one without a state.
for questions in 3 1000; do
    echo $questions >busy
    halted 0
    said err "it is not known whether Slurm would requeue job 17 (scontrol show -o job 17: slurm_load_jobs error: Unable"
    kill -USR1 "$held"
    kill -CONT "$held"
    ends_with 143
    check "$line: asked $(grep -c show asked) times" test "$(grep -c show asked)" -ge 4
    echo 0 >busy
    goes_on
done
echo "JobId=17 JobName=x" >shown
halted 0
kill -USR1 "$held"
kill -CONT "$held"
ends_with 143
goes_on

# A job that cannot be requeued says so at the start, and runs.
shown RUNNING 0 1
run 0 "${task[@]}" --checkpoint ck --requeue
said err "lockstep train: job 17 was submitted so that Slurm does not requeue it (Requeue=0)" "sbatch --requeue"
rm -rf ck
shown RUNNING 1 0
run 0 "${task[@]}" --checkpoint ck --requeue
said err "Slurm requeues batch jobs only, and job 17 is none"
refused "--requeue starts the same line again" "write --resume auto" -- --checkpoint ck2 --resume ck/step-000000008 \
    --requeue
rm -rf ck

# A job that was cancelled is not brought back; a refusal has Slurm's words; an answer is not waited for forever. In each
# case the checkpoint is there.
shown COMPLETING 1 1
halted 0
kill -TERM "$held"
kill -CONT "$held"
ends_with 1
said err "Slurm is ending job 17 already (JobState=COMPLETING), so it is not requeued" \
    "submit the job again: it goes on from ck/step-"
check "$line: it was not asked" test "$(grep -c requeue asked)" -eq 0
check "$line: it is saved" test -n "$(steps_of ck)"
rm -rf ck
shown RUNNING 1 1
echo "Requested operation is presently disabled for job 17" >answer
halted 0
kill -USR1 "$held"
kill -CONT "$held"
ends_with 1
said err "scontrol requeue 17: Requested operation is presently disabled" "submit the job again: it goes on from ck/step-"
rm -rf ck
echo yes >hangs
halted 0
kill -USR1 "$held"
kill -CONT "$held"
ends_with 1
said err "scontrol requeue 17: scontrol had not ended after 20 seconds and was killed"
check "$line: it is saved" test -n "$(steps_of ck)"

conclude

#!/bin/bash
# sweep.sh PROGRAM - `lockstep sweep`: cells, table and picture; what is done is kept; failures; signals; Slurm's
# commands, played by scripts.
program=$1 command=sweep
. "$(dirname "$0")/runs.sh"
. "$(dirname "$0")/jobs.sh"
train=(-- train --data digits --model mlp --batch-size 16 --no-test --log-interval 1)
picture=sweep.svg
command -v gnuplot >/dev/null || { echo "not checked without gnuplot: pictures" && picture=report.html; }

# The run folders of a sweep.
runs_of() { find "$1" -name run.json | sort; }
# states STATE... - the table has these states, in this order.
states() {
    local found
    found=$(awk '/state hash/ {on = 1; next} NF == 0 {on = 0} on {printf "%s ", $(NF - 5)}' out)
    check "$line: states $found" test "$found" = "$* "
}

run 0 --nproc 1,2 --seed 1,2 -o grid "${train[@]}" --threads 1 --max-steps 2
said out "[1/4] nproc 1, seed 1: done in" "[4/4] nproc 2, seed 2: done in" "grid/report.html"
states "done done done done"
hashes=$(awk '$3 == "done" {print $1, $2, $NF}' out)
check "$line: one weight for each seed" test "$(awk '{print $2, $3}' <<<"$hashes" | sort -u | wc -l)" -eq 2
check "$line: no picture" test -s grid/$picture -a -s grid/report.html -a -s grid/sweep.json
said grid/$picture "1 rank, seed 1" "2 ranks, seed 2" "Speed-up"
parses grid/$picture
said grid/nproc=2,seed=1/output.txt "State hash"

# The same line again, with one value more: what is done is kept.
runs_of grid >before
run 0 --nproc 1,2 --seed 1,2,3 -o grid "${train[@]}" --threads 1 --max-steps 2
check "$line: four are kept" test "$(grep -c 'done before' out)" -eq 4
check "$line: two are new" test "$(grep -c 'done in' out)" -eq 2
check "$line: a finished cell ran again" test "$(runs_of grid | comm -12 - before | wc -l)" -eq 4
# The table again.
rm grid/report.html
run 0 -o grid
states "done done done done done done"
check "$line: no page" test -s grid/report.html
mkdir nothing
line="sweep without gnuplot"
timeout 60 env PATH="$scratch/nothing" "$program" sweep -o grid >out 2>err
status=$?
check "$line: exit status $status" test $status -eq 0
said err "warning: " "gnuplot-nox"

# Lists of values with commas, and flags; names of folders.
run 0 --drop-last true,false --augment 'none;crop=2,flip' --output=odd "${train[@]}" --threads 1 --max-steps 1
states "done done done done"
said out "drop-last true, augment crop=2,flip"
check "$line: folders" test -d odd/drop-last=true,augment=none
said odd/$picture "augment none, no drop-last" "augment crop=2,flip, drop-last"

# A failed cell is named, the rest goes on, and the next try runs it again.
run 1 --data absent,digits -o failing -- train --model mlp --no-test --threads 1 --max-steps 1
said err "data absent failed with status 2" "failing/data=absent/output.txt"
states "failed done"
said out "1 of 2 cells are not done"
run 1 --nproc 2 -o ranks -- train --data absent --model mlp
said err "nproc 2 failed with status 2: --data: no data set and no folder 'absent'" "(ranks/nproc=2/output.txt)"
runs_of failing/data=digits >before
run 1 --data absent,digits -o failing -- train --model mlp --no-test --threads 1 --max-steps 1
check "$line: the finished cell ran again" cmp -s before <(runs_of failing/data=digits)
run 1 -o failing
states "failed done"

# A full disk: figures come from run.json, its error is shown, and only files that were written are named.
run 0 --seed 5 -o full -- train --data digits --model mlp --threads 1 --max-steps 1
said out "full/report.html" "full/$picture"
wanted=$(awk '$2 == "done" {print $3, $4}' out)
rm -f full/sweep.svg
for file in full/*/*/metrics.jsonl; do : >"$file"; done
sed -i 's/"status":/"error": "no space here", "status":/' full/*/*/run.json
run 1 -o full
check "$line: figures" test "$(awk '$2 == "done" {print $3, $4}' out)" = "$wanted"
said err "seed 5: no space here" "no run has rows that could be drawn; full/sweep.svg is not written"
said out "full/report.html"
lacks out sweep.svg

# A cell that is killed hard: the signal is named, with the word of the table.
begin env LOCKSTEP_FAULT=delay:seconds=20,step=5 "$program" sweep --seed 1 -o hard "${train[@]}" --threads 1 \
    --max-steps 20
line="sweep and a killed cell"
await 60 grep -qs 'Train Epoch' hard/seed=1/output.txt || complain "the cell does not start"
kill -KILL "$(sed -n -E 's/.*"pid":\s*([0-9]+).*/\1/p' hard/seed=1/*/run.json)"
finish "$job"
check "$line: exit status $status" test $status -eq 1
said err "seed 1 stopped, killed by SIGKILL: it gave no reason (hard/seed=1/output.txt)"
lacks err "Train Epoch"
states stopped

# Killed: the training ends, too; the same line runs the interrupted cell again, and only it.
steps=(--max-steps 2,20 -o killed "${train[@]}" --threads 1)
begin env LOCKSTEP_FAULT=delay:seconds=5,step=5 "$program" sweep "${steps[@]}"
await 60 compgen -G 'killed/max-steps=20/*/run.json' >/dev/null || complain "the second cell does not start"
runs_of killed/max-steps=2 >before
kill -KILL "$job"
finish "$job"
idle() { [ -z "$(left)" ]; }
check "training ends with its sweep" await 30 idle
run 0 "${steps[@]}"
states "done done"
said out "[1/2] max-steps 2: done before" "[2/2] max-steps 20: done in"
check "$line: the finished cell ran again" cmp -s before <(runs_of killed/max-steps=2)
check "$line: one run" test "$(runs_of killed/max-steps=20 | wc -l)" -eq 1
# A signal ends the training and the sweep.
begin "$program" sweep --max-steps 100000,2 -o stopped "${train[@]}" --threads 1 --log-interval 1000
line="sweep and SIGTERM"
await 60 compgen -G 'stopped/max-steps=100000/*/run.json' >/dev/null || complain "the first cell does not start"
fails_meanwhile=$("$program" sweep --max-steps 100000,2 -o stopped "${train[@]}" --threads 1 --log-interval 1000 2>&1)
check "two sweeps in one folder: $fails_meanwhile" grep -q "another sweep runs in stopped" <<<"$fails_meanwhile"
kill -TERM "$job"
finish "$job"
check "$line: exit status $status" test $status -eq 143
check "$line: processes are left" await 30 idle
said out "stopped; the same line goes on" "2 of 2 cells are not done"

# The number of a killed process may belong to another process now.
run 0 --seed 1,2 -o reused "${train[@]}" --threads 1 --max-steps 1
sed -i -E "s/\"status\":\s*\"done\"/\"status\": \"running\"/; s/\"pid\":\s*[0-9]*/\"pid\": $$/" reused/seed=1/*/run.json
run 1 -o reused
states "stopped done"
run 0 --seed 1,2 -o reused "${train[@]}" --threads 1 --max-steps 1
said out "[1/2] seed 1: done in" "[2/2] seed 2: done before"
# A run on another host may live; the other cells do not wait for it.
sed -i -E 's/"status":\s*"done"/"status": "running"/; s/"host":\s*"[^"]*"/"host": "node99"/' reused/seed=1/*/run.json
run 1 --seed 1,2,3 -o reused "${train[@]}" --threads 1 --max-steps 1
said err "seed 1 is still running and is left alone" "remove its folder, reused/seed=1/"
states "running done done"

# Slurm: sbatch keeps the job, squeue lists it until it has run.
mkdir slurm
cat >slurm/sbatch <<'END'
#!/bin/bash
job=$(($(cat jobs/count 2>/dev/null || echo 40) + 1))
mkdir -p jobs
echo $job >jobs/count
printf '%s\n' "$@" >jobs/$job.arguments
cat >jobs/$job.sh
echo $job
END
cat >slurm/squeue <<'END'
#!/bin/bash
echo "$*" >>jobs/questions
known=0
for job in ${!#//,/ }; do
    [ -e "jobs/$job.sh" ] && known=1 && echo $job
done
[ $known = 1 ] || { echo "slurm_load_jobs error: Invalid job id specified" >&2; exit 1; }
END
chmod +x slurm/*
jobs=(--nproc 1,2 -o "by job's" --slurm="-p long  --time=5" "${train[@]}" --threads 1 --max-steps 2)
PATH=$scratch/slurm:$PATH run 0 "${jobs[@]}"
said out "[1/2] nproc 1: job 41" "[2/2] nproc 2: job 42" "lockstep sweep -o 'by job'\\''s'"
states "running running"
said jobs/42.arguments --parsable --nodes=1 --cpus-per-task=2 --output="by job's/nproc=2/output.txt" -p long --time=5
PATH=$scratch/slurm:$PATH run 0 "${jobs[@]}"
said out "[2/2] nproc 2: job 42 waits or runs"
# One question for all cells, before the first and for the table.
: >jobs/questions
PATH=$scratch/slurm:$PATH run 0 "${jobs[@]}"
check "$line: $(wc -l <jobs/questions) questions" test "$(wc -l <jobs/questions)" -eq 2
said jobs/questions "41,42"
for job in 41 42; do
    sh jobs/$job.sh >"by job's/nproc=$((job - 40))/output.txt" 2>&1
    rm jobs/$job.sh
done
PATH=$scratch/slurm:$PATH run 0 -o "by job's"
states "done done"
# A job that was killed hard could not write how it ended; it is submitted again, the living one is left alone.
abroad() { # FOLDER - its run says that it is running on another host.
    sed -i -E 's/"status":\s*"done"/"status": "running"/; s/"host":\s*"[^"]*"/"host": "node99"/' "$1"/*/run.json
}
for cell in 1 2; do abroad "by job's/nproc=$cell"; done
: >jobs/42.sh
PATH=$scratch/slurm:$PATH run 0 "${jobs[@]}"
said out "[1/2] nproc 1: job 43" "[2/2] nproc 2: job 42 waits or runs"
rm jobs/4*.sh
PATH=$scratch/slurm:$PATH run 0 -o "by job's" --slurm
states "failed stopped"
# A job that runs although its number cannot be kept.
printf '#!/bin/sh\nmkdir blocked/nproc=3/slurm-job && echo 45\n' >slurm/sbatch
PATH=$scratch/slurm:$PATH fails 1 "job 45 was submitted, but blocked/nproc=3/slurm-job cannot be written: Is a directory" \
    "'scancel 45'" -- --nproc 3 -o blocked --slurm "${train[@]}"
printf '#!/bin/sh\necho "sbatch: error: no such partition" >&2\nexit 1\n' >slurm/sbatch
PATH=$scratch/slurm:$PATH fails 1 "sbatch refused the job: sbatch: error: no such partition" -- --nproc 3 -o other \
    --slurm "${train[@]}"

# Words of other programs.
run 0 --learning-rate .1,.2 -o words "${train[@]}" --threads 1 --max-steps 1
said out "[2/2] lr .2: done in"
# Errors.
refused "grid has a sweep with other options of train" "-o" -- --nproc 1,2 --seed 1,2 -o grid "${train[@]}"
refused "over other options" -- --lr 1,2 -o grid "${train[@]}" --threads 1 --max-steps 2
refused "nowhere has no sweep" -- -o nowhere
refused "no option '--lrr'; did you mean '--lr'?" -- --lrr 1 -- train
refused "--lr 'x' must be a number" -- --lr 1,x -o new -- train
refused "--optimizer: no optimiser 'xyzzy'" -- --optimizer 'sgd;xyzzy' -o new -- train
refused "--model: no model 'xyzzy'" -- --lr 1,2 -o new -- train --model xyzzy
refused "absent.yaml" -- --lr 1,2 -o new -- train --config absent.yaml
refused "-n '0'" -- --nproc 1,0 -o new -- train
refused "--lr has the value '1' twice" -- --lr 1,2,1 -o new -- train
refused "--lr has an empty value" -- --lr 1, -o new -- train
refused "--lr needs values" -- --lr
refused "--lr is given twice" -- --lr 1 --lr 2 -- train
refused "--lr .1,.01 before train and --lr .5 after it contradict" -- --lr .1,.01 -o new -- train --lr .5
refused "--lr .1,.01 before train and --learning-rate=.5 after it contradict" -- --lr .1,.01 -o new -- \
    train --learning-rate=.5
refused "--nproc 1,2 before train and -n4 after it contradict" -- --nproc 1,2 -o new -- train -n4
refused "--checkpoint is not possible in a sweep" -- --lr 1,2 -o new -- train --checkpoint ck
refused "--log-dir is not possible in a sweep" -- --log-dir a,b -o new -- train
refused "what is to be swept is missing" -- --lr 1,2
refused "no option has a list" -- -o new -- train
refused "'eval' cannot be swept" -- --lr 1,2 -- eval
refused "options of sbatch begin with '-'" -- --slurm train --lr 1,2 -- train
refused "more than 10000 combinations" -- --seed "$(seq -s , 101)" --max-steps "$(seq -s , 100)" -o new -- train
check "no folder of a refused sweep" test ! -e new

conclude

#!/bin/bash
# train_ranks.sh PROGRAM - `lockstep train` with several ranks: every way to start and every mode give the same bits;
# output, saved files, refused options, and failures.
program=$1 command=train
. "$(dirname "$0")/jobs.sh"

task=(--model mlp --batch-size 48 --max-steps 5 --no-test --quiet --log-interval 2 --optimizer adam)
task_hash=
hash_of() { sed -n 's/^\(\[0\] \)\?State hash //p' "$@"; }
# The hash and the log lines must be those of the run with one rank.
same() { # FILE
    check "$line: other bits" test "$(hash_of "$1")" = "$task_hash"
    check "$line: other losses" cmp -s <(sed 's/^\[0\] //' "$1" | grep '^Train Epoch') losses
}
# equal OPTIONS... - a run with these options must be equal to the first run.
equal() {
    run 0 "${task[@]}" "$@"
    same out
}
# together COUNT OPTIONS... - starts COUNT processes by hand; @ stands for the rank.
together() {
    local count=$1 rank jobs=()
    shift
    line="train by hand x $count $*"
    rm -f out* err*
    for ((rank = 0; rank < count; rank++)); do
        timeout -s KILL 60 "$program" train "${task[@]}" "${@//@/$rank}" >out.$rank 2>err.$rank </dev/null &
        jobs+=($!)
    done
    all_finish "${jobs[@]}"
}

run 0 "${task[@]}" --save-model single.safetensors
task_hash=$(hash_of out)
check "there is a hash" test ${#task_hash} -eq 16
grep '^Train Epoch' out >losses
check "there are losses" test "$(wc -l <losses)" -eq 3

# Ranks that `lockstep train` starts.
equal -n 1
equal -n 1 --parallel ddp
equal -n 2
said out "ddp, 2 ranks over shm with "
check "$line: rank 0 alone speaks, and bare" test "$(grep -c -v -e '^data ' -e '^options: ' -e '^learning rate: ' -e '^Train' -e '^Total' -e '^State' out)" -eq 0
equal -n 3 --backend tcp --parallel ddp
said out "3 ranks over tcp" "16 shards are not 3 replicas times a power of two" "--shards 24 is faster"
equal --nproc=4 --bucket-mb .001 --check-every 1
equal -n 2 --threads 2 --micro-batch 5 --num-workers 0
equal -n 2 --check-every 0
if "$program" train -n 2 --bind core --dry-run --no-test --model mlp 2>&1 | grep -q hwloc; then
    echo "no hwloc in this build: --bind core is left out"
else
    equal -n 2 --bind core
    equal -n 1 --bind core
fi
equal -n 1 --master-addr 127.0.0.1 --master-port "$(free_port)"
equal -n 1 --init-method "file://$scratch/meeting"

# More than 16 replicas have other bits; --quiet does not hide that.
run 0 --model mlp --batch-size 34 --max-steps 1 --no-test -n 17 --threads 1
said out "17 shards instead of the usual 16, because there are 17 replicas: --shards 17 has this result"
run 0 --model mlp --batch-size 34 --max-steps 1 --no-test -n 17 --threads 1 --quiet
check "$line: two lines" test "$(wc -l <out)" -eq 2
said err "lockstep train: 17 shards instead of the usual 16, because there are 17 replicas: --shards 17 has this result"
run 0 --model mlp --batch-size 34 --max-steps 1 --no-test -n 17 --threads 1 --quiet --shards 17
check "$line: nothing on stderr" test ! -s err

# Devices of one process and of several.
equal --devices cpu:0,cpu:1
said out "dp, 2 ranks over inproc"
equal --parallel dp --devices cpu:0 cpu:1 cpu:2
equal --devices cpu:0,cpu:0,cpu
said out "dp, 3 ranks over inproc"
equal -n 2 --devices cpu:0,cpu:1,cpu:2,cpu:3 --log-ranks all
said out "ddp, 4 ranks" "device cpu:3" "[rank 3] Train Epoch: 1 [0/60000 (0%)]" "12 of 48 samples" "[rank 2] ends at"
check "$line: true local ranks" test "$(grep -o 'local rank [0-3], device cpu:[0-3]' out | sort | tr '\n' '/')" = \
    "local rank 0, device cpu:0/local rank 1, device cpu:1/local rank 2, device cpu:2/local rank 3, device cpu:3/"
equal -n 2 --parallel dp --devices cpu:0,cpu:1
said out "dp, 4 ranks"

# Stages.
equal -n 2 --parallel pp
said out "pp, 2 stages x 1 replica (stage 1 begins with "
equal -n 2 --stages chunk2 --pipelined
said out "stage 1 begins with chunk2.0"
equal --stages 2 --devices cpu:0,cpu:1
equal -n 4 --stages 2 --pipelined --micro-batch 4
said out "2 stages x 2 replicas"
equal -n 3 --stages +3

# Variables of a launcher.
line="run train"
timeout -s KILL 60 "$program" run -n 3 "$program" train "${task[@]}" >out 2>err </dev/null
check "$line: exit status" test $? -eq 0
same out
line="variables of torchrun"
port=$(free_port)
rm -f out* err*
for rank in 0 1; do
    RANK=$rank LOCAL_RANK=$rank WORLD_SIZE=2 LOCAL_WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$port \
        TORCHELASTIC_RUN_ID=none TORCHELASTIC_USE_AGENT_STORE=True \
        timeout -s KILL 60 "$program" train "${task[@]}" >out.$rank 2>err.$rank </dev/null &
    jobs[rank]=$!
done
for rank in 0 1; do
    finish "${jobs[$rank]}"
    check "$line: rank $rank ends with $status" test $status -eq 0
done
same out.0
check "$line: rank 1 is silent" test ! -s out.1

# Ranks started by hand.
together 2 --init-method "tcp://127.0.0.1:$(free_port)" --rank @ --world-size 2
same out.0
together 3 --init-method "file://$scratch/meeting" --rank @ --world-size 3
same out.0
check "$line: the file goes" test ! -e meeting
together 2 --init-method "file://$scratch/meeting" --rank @ --world-size 2 --devices cpu:0,cpu:1
same out.0
said out.0 "4 ranks"
together 2 --nnodes 2 --node-rank @ --master-addr 127.0.0.1 --master-port "$(free_port)" -n 2
same out.0
said out.0 "4 ranks"
check "$line: node 1 is silent" test ! -s out.1
equal --init-method "file://$scratch/nobody" --rank 0 --world-size 1
check "$line: one is enough" test ! -e nobody

# Saved files.
equal -n 2 --save-model two.safetensors
said out "Model saved to two.safetensors"
check "one and two ranks: same model" test -z "$("$program" compare single.safetensors two.safetensors)"
equal -n 3 --save-model 'final_{rank}.safetensors'
for rank in 0 1 2; do
    check "rank $rank's model" "$program" compare -q single.safetensors final_$rank.safetensors
done
equal -n 2 --save-model 'final_{rank}.pth'
check "two ranks: two files of the same bits" cmp final_0.pth final_1.pth
if "$program" info final_0.pth 2>&1 | grep -q "without libzip"; then
    echo "reading .pth files is left out: this build has no libzip"
else
    check "$line: compare is silent" test -z "$("$program" compare final_0.pth final_1.pth 2>&1)"
    check "a .pth is the same model" "$program" compare -q single.safetensors final_1.pth
fi
equal -n 2 --stages 2 --save-model 'stage_{rank}.safetensors'
for rank in 0 1; do
    check "stage $rank's model is whole" "$program" compare -q single.safetensors stage_$rank.safetensors
done
run 0 -n 2 "${task[@]}" --init-from single.safetensors
second=$(hash_of out)
run 0 "${task[@]}" --init-from single.safetensors
check "$line: other bits from a file" test ${#second} -eq 16 -a "$(hash_of out)" = "$second"

# A step of several batches; clipping; evaluation of each sample once.
run 0 "${task[@]}" --batch-size 144 --shards 48 --clip-norm .5
wanted=$(hash_of out)
for way in "" "-n 2" "-n 3 --stages 3 --pipelined"; do
    run 0 "${task[@]}" --accumulate 3 --clip-norm .5 $way
    check "$line: accumulation has other bits" test ${#wanted} -eq 16 -a "$(hash_of out)" = "$wanted"
done
run 0 --model mlp --epochs 1 --max-steps 2 --quiet --test-batch-size 999
grep '^Test set' out >wanted
run 0 --model mlp --epochs 1 --max-steps 2 --quiet --test-batch-size 999 -n 3
check "$line: another evaluation" cmp -s wanted <(grep '^Test set' out)

# JSON.
run 0 "${task[@]}" -n 2 --json --log-ranks all
said out '"event":"rank_start"' '"event":"rank_step","rank":1' '"ranks":2' '"wait_gradients_s":' '"wait_other_s":' \
    '"parallel":"ddp"' '"replicas":2,"stages":1' '"one_wave":false' "\"state_hash\":\"$task_hash\""
# A rank that is held up works; the other one waits.
LOCKSTEP_FAULT=delay:rank=1,step=2,op=step,seconds=.3 run 0 "${task[@]}" -n 2 --json
above() { awk -v a="$1" -v b="$2" 'BEGIN { exit !(a + 0 > b + 0) }'; }
own=$(sed -n 's/.*{"rank":1,.*"compute_s":\([0-9.e-]*\),.*/\1/p' out) waited=$(sed -n 's/.*{"rank":0,[^}]*"wait_s":\([0-9.e-]*\),.*/\1/p' out)
check "$line: rank 1 has worked for $own s" above "$own" .3
check "$line: rank 0 has waited for $waited s" above "$waited" 0
run 0 "${task[@]}" -n 2 --json --log-ranks all
check "$line: two ends of ranks" test "$(grep -c '"event":"rank_end"' out)" -eq 2

# Ranks in threads on a terminal: no line is printed after the progress line.
line="train --devices cpu:0,cpu:1 --log-ranks all on a terminal"
if script -qec true /dev/null </dev/null >/dev/null 2>&1; then
    rm -f out* err*
    script -qec "'$program' train --model mlp --devices cpu:0,cpu:1 --log-ranks all --log-interval 1 --no-test \
        --max-steps 1500" /dev/null >out 2>err </dev/null
    check "$line: progress is drawn" grep -q 'ETA 0:' out
    check "$line: a line behind the progress line" test "$(grep -c 'ETA .*\(Train Epoch\|\[rank\)' <(tr '\r' '\n' <out))" -eq 0
else
    echo "no terminal can be had: drawing of progress is left out"
fi

# Mistakes on the command line.
refused "--parallel single" "this job has 4" -- "${task[@]}" -n 4 --parallel single
refused "--parallel single" "--parallel dp" -- "${task[@]}" --devices cpu:0,cpu:1 --parallel single
refused "--parallel dp" "--devices cpu:0,cpu:1" -- "${task[@]}" --parallel dp
refused "--parallel ddp" "-n 2" "lockstep run" -- "${task[@]}" --parallel ddp
refused "--stages" "--parallel ddp" -- "${task[@]}" -n 2 --parallel ddp --stages 2
refused "--pipelined" "--parallel pp" -- "${task[@]}" -n 2 --pipelined
refused "--parallel pp" "-n 2" -- "${task[@]}" --parallel pp
refused "--stages '2'" "2 stages" "3 ranks" -- "${task[@]}" -n 3 --stages 2
refused "--stages 'a,b'" "3 stages" "2 ranks" -- "${task[@]}" -n 2 --stages a,b
refused "--stages '0'" -- "${task[@]}" -n 2 --stages 0
refused "--rank is missing" "--rank 0 --world-size 2" -- "${task[@]}" --init-method tcp://127.0.0.1:9
refused "--init-method is missing" -- "${task[@]}" --rank 0 --world-size 2
refused "--world-size is missing" -- "${task[@]}" --rank 0 --init-method tcp://127.0.0.1:9
refused "--rank 2" "--world-size 2" -- "${task[@]}" --rank 2 --world-size 2 --init-method tcp://127.0.0.1:9
refused "by hand" "--nnodes 2" -- "${task[@]}" -n 2 --rank 0
refused "--master-addr" "add -n" -- "${task[@]}" --master-addr 127.0.0.1
refused "env://" "RANK" -- "${task[@]}" --init-method env://
refused "--node-rank" "--nnodes 2" -- "${task[@]}" --nnodes 2
refused "give one" -- "${task[@]}" -n 2 --init-method tcp://127.0.0.1:9 --master-port 9
RANK=1 refused "rank 1 of a job already" -- "${task[@]}" -n 2
RANK=1 refused "WORLD_SIZE is not set" -- "${task[@]}"
WORLD_SIZE=3 refused "RANK is not set" -- "${task[@]}"
refused "cpu:0 to cpu:1" "3 processes" -- "${task[@]}" -n 3 --devices cpu:0,cpu:1
refused "need no backend" "-n 2" -- "${task[@]}" --devices cpu:0,cpu:1 --backend shm
refused "need no backend" -- "${task[@]}" -n 1 --devices cpu:0,cpu:1 --backend tcp
run 2 "${task[@]}" -n 1 --init-method nowhere://x
said err "nowhere://x"
refused "did you mean 'shm'" -- "${task[@]}" --backend shn
refused "this build has nothing for that between devices of kind cpu" -- "${task[@]}" --devices cpu:0,cpu:1 --backend nccl
refused "this build has nothing for that between devices of kind cpu" -- "${task[@]}" --devices cpu:0,cpu:1 --stages 2 \
    --backend nccl
refused "4096" -- "${task[@]}" --accumulate 300
refused "-nr" "--node-rank 1 --nnodes 2" -- "${task[@]}" -nr 1
refused "-ip" "--master-addr" -- "${task[@]}" -ip 10.0.0.1
refused "--hosts" "mpirun or srun" "--master-addr HOST" -- "${task[@]}" --hosts a,b
refused "--hostfile" "mpirun or srun" -- "${task[@]}" --hostfile hosts
LOCKSTEP_BACKEND=foo refused "LOCKSTEP_BACKEND: no backend 'foo' (known: auto, shm, tcp, mpi, nccl)" -- "${task[@]}"
LOCKSTEP_BACKEND=foo refused "LOCKSTEP_BACKEND: no backend 'foo' (known: auto, shm, tcp, mpi, nccl)" -- "${task[@]}" -n 2
run 2 "${task[@]}" -n 2 --reduce engine
said err "--reduce engine: gradients cannot be summed" "start the ranks with mpirun and --backend mpi"
refused "--local_rank" "LOCAL_RANK" -- "${task[@]}" --local_rank=1

# Ranks with different options.
at_odds() { # OPTION VALUE_OF_RANK_0 VALUE_OF_RANK_1 OPTIONS_OF_BOTH...
    local values=("$2" "$3")
    line="train by hand with $1 ${2:0:40} and ${3:0:40}"
    rm -f out* err*
    for rank in 0 1; do
        timeout -s KILL 60 "$program" train "${task[@]}" "$1" "${values[$rank]}" "${@:4}" \
            --init-method "file://$scratch/meeting" --rank $rank --world-size 2 >out.$rank 2>err.$rank </dev/null &
        jobs[rank]=$!
    done
    for rank in 0 1; do
        finish "${jobs[$rank]}"
        check "$line: rank $rank ends with $status" test $status -eq 1
        said err.$rank "rank 1 has $1 ${3:0:40}" "rank 0 has $1 ${2:0:40}"
    done
}
at_odds --epochs 3 4
at_odds --init kaiming_normal xavier_normal
at_odds --label-smoothing 0.1 0.2
at_odds --backend shm tcp
# Messages name data as they were typed; data are compared whatever their paths are.
mkdir tiny0
printf '\0\0\10\3\0\0\0\2\0\0\0\1\0\0\0\1ab' >tiny0/train-images-idx3-ubyte
printf '\0\0\10\1\0\0\0\2\0\1' >tiny0/train-labels-idx1-ubyte
cp -r tiny0 tiny1
at_odds --data digits tiny1
said err.0 "rank 1 has --data tiny1, 2 training samples of 1x1x1" "rank 0 has --data digits, 60000 training samples"
line="train -n 2 with a wrong LOCKSTEP_CHECKSUM"
for way in shm tcp auto; do
    LOCKSTEP_CHECKSUM=always run 2 "${task[@]}" -n 2 --backend $way
    said err "the variable LOCKSTEP_CHECKSUM is 'always': it must be hosts"
done
together 2 --data tiny@ --max-steps 1 --init-method "file://$scratch/meeting" --rank @ --world-size 2
run 0 "${task[@]}" --seed 2 --save-model another.safetensors
at_odds --init-from single.safetensors another.safetensors
# Option values of any length are compared completely.
zeros=$(printf '0%.0s' {1..110})
long="crop=4,jitter=.1$zeros,grayscale=.1$zeros,affine=5.$zeros,vflip=.5$zeros,flip=.5$zeros"
at_odds --schedule constant cosine --augment "$long"
at_odds --augment "${long}1" "${long}2"

# Mistakes that the ranks find: reported once, then the launcher names the rank.
run 2 "${task[@]}" --shards 16 -n 20
said err "--shards"
check "$line: told once" test "$(grep -c -- --shards err)" -eq 1
cause_last err '^lockstep train: rank 0 .* exited with status 2$' 0
run 2 "${task[@]}" -n 3 --model mpl
check "$line: told once" test "$(grep -c "'mpl'" err)" -eq 1
run 2 "${task[@]}" -n 2 --save-model nofolder/x.safetensors
said err "nofolder" "create it first"
run 1 "${task[@]}" -n 3 --model mlp:hidden=8 --init-from single.safetensors
check "$line: told once" test "$(grep -c 'single.safetensors: key' err)" -eq 1
run 2 "${task[@]}" -n 2 --stages nosuch
said err "no layer 'nosuch' (a stage can begin at: chunk1, chunk2)"
run 1 "${task[@]}" -n 3 --optimizer sgd --lr 1e6 --max-steps 50
said err "smaller learning rate"
check "$line: told once" test "$(grep -c "smaller learning rate" err)" -eq 1
cause_last err '^lockstep train: rank 0 .* exited with status 1$' 0

# A rank dies: all ranks end soon, no process is left, and the cause is printed last.
die() { # SIGNAL STATUS OPTIONS...
    line="train and $1 of a rank: ${*:3}"
    begin "$program" train --model mlp --no-test --log-ranks all "${@:3}"
    await 20 grep -qs 'Train Epoch: 1 \[[1-9]' out || complain "$line: does not come up"
    victim=$(sed -n 's/^\[rank 1\] host .* pid \([0-9]*\), .*/\1/p' out)
    kill -"$1" "$victim"
    finish $job
    check "$line: exit status $status, not $2" test $status -eq "$2"
    check "$line: nobody is left" test -z "$(left)"
}
die KILL 137 -n 3
cause_last err '^lockstep train: rank 1 .* was killed by SIGKILL' 0
die SEGV 139 -n 2 --stages 2 --pipelined
run 1 "${task[@]}" --init-method "file://$scratch/meeting" --rank 0 --world-size 2 --timeout 1
said err "rank 1 of 2 has not joined within 1 s; the address of rank 0 is in $scratch/meeting"
port=$(free_port)
run 1 "${task[@]}" --init-method "tcp://127.0.0.1:$port" --rank 0 --world-size 2 --timeout 1
said err "rank 1 of 2 has not joined within 1 s; rank 0 is at 127.0.0.1, port $port"

# Ranks that were started by hand have no launcher: they watch each other.
line="train by hand and a rank killed"
rm -f out* err*
for rank in 0 1; do
    "$program" train --model mlp --no-test --init-method "file://$scratch/meeting" --rank $rank --world-size 2 \
        >out.$rank 2>err.$rank </dev/null &
    jobs[rank]=$!
done
await 20 grep -qs 'Train Epoch: 1 \[[1-9]' out.0 || complain "$line: does not come up"
kill -KILL "${jobs[1]}"
finish "${jobs[0]}"
check "$line: exit status $status, not 1" test $status -eq 1
said err.0 "rank 1 (host" "died"
finish "${jobs[1]}"
line="train and TERM"
begin "$program" train --model mlp --no-test -n 2
await 20 grep -qs 'Train Epoch' out || complain "$line: does not come up"
kill -TERM $job
finish $job
check "$line: exit status $status, not 143" test $status -eq 143
cause_last err '^lockstep train: interrupted by SIGTERM$' 0
check "$line: nobody is left" test -z "$(left)"
line="train and KILL"
begin "$program" train --model mlp --no-test -n 2
await 20 grep -qs 'Train Epoch' out || complain "$line: does not come up"
kill -KILL $job
finish $job
check "$line: nobody is left" await 10 eval 'test -z "$(left)"'

conclude

#!/bin/bash
# train_modes.sh PROGRAM CASE... - the law, tested by the program: for every mode, number of ranks, threads and stages,
# transport and bucket size, `lockstep compare` finds no difference between the saved model and that of one process,
# and losses and accuracies are the same text. A CASE is a row of the table at the end. train_ranks.sh tests what a
# mode prints, saves and refuses.
program=$1 command=train
cases=("${@:2}")
tests=$(realpath "$(dirname "$0")/..")
. "$tests/cli/jobs.sh"
. "$tests/mpi.sh"

# Data of small and odd sizes.

# 104 samples are three batches of 32 and one of 8, which leaves half of 16 shards empty. 104 and 75 are not multiples
# of most numbers of ranks.
train_count=104 test_count=75
noise() { seq 1 200000 | gzip -nc; } # bytes without much order
cifar() { # NAME COUNT SKIP
    local i
    for ((i = 0; i < $2; i++)); do
        byte $((i * 3 % 10))
        tail -c +$(($3 + 3072 * i)) noise | head -c 3072
    done >"colour/$1"
}
make_data() {
    local i
    mkdir grey colour
    noise >noise
    tail -c +20 noise | idx grey/train $train_count
    tail -c +100000 noise | idx grey/t10k $test_count
    for i in 1 2 3 4 5; do cifar data_batch_$i.bin 13 $((i * 40000)); done
    cifar test_batch.bin 21 100
}

# One task in many ways.

task=()
results() { sed -n 's/^\(\[0\] \)\?\(Train Epoch\|Test set\|State hash\)/\2/p' "$1"; }
# reference OPTIONS... - the run of one process with one thread; all others must be equal to it.
reference() {
    task=("$@")
    run 0 "${task[@]}" --threads 1 --save-model single.safetensors
    results out >wanted
    check "$line: there are losses" test "$(grep -c '^Train Epoch' wanted)" -ge 2
    check "$line: there is a test" grep -q '^Test set' wanted
    check "$line: there is a hash" grep -q '^State hash' wanted
}
same() { # FILE
    check "$line: other lines" cmp -s wanted <(results "$1")
    check "$line: another model" test "$("$program" compare single.safetensors got.safetensors 2>&1; echo $?)" = 0
}
equal() { # OPTIONS...
    rm -f got.safetensors
    run 0 "${task[@]}" "$@" --save-model got.safetensors
    same out
}
launched() { # COUNT OPTIONS...
    rm -f got.safetensors
    line="run -n $1 train ${task[*]} ${*:2}"
    timeout -s KILL 60 "$program" run -n "$1" "$program" train "${task[@]}" "${@:2}" --save-model got.safetensors \
        >out 2>err </dev/null
    check "$line: exit status" test $? -eq 0
    same out
}
by_hand() { # COUNT OPTIONS...
    local rank count=$1 jobs=() port
    rm -f got.safetensors out* err*
    port=$(free_port)
    line="train by hand x $count ${task[*]} ${*:2}"
    for ((rank = 0; rank < count; rank++)); do
        timeout -s KILL 60 "$program" train "${task[@]}" "${@:2}" --save-model got.safetensors --rank $rank \
            --world-size $count --init-method "tcp://127.0.0.1:$port" >out.$rank 2>err.$rank </dev/null &
        jobs+=($!)
    done
    all_finish "${jobs[@]}"
    same out.0
}

by_mpi() { # MPI COUNT OPTIONS...
    rm -f got.safetensors
    line="mpirun of $1 -n $2 train ${task[*]} ${*:3} --backend mpi"
    timeout -s KILL 60 "$(launcher_of "$1")" -n "$2" "$program" train "${task[@]}" "${@:3}" --backend mpi \
        --save-model got.safetensors >out 2>err </dev/null
    check "$line: exit status" test $? -eq 0
    said out " ranks over mpi"
    same out
}

# every_way CUT TWO_CUTS - all modes of the current task. The arguments name the first layers of stages.
every_way() {
    local n
    equal --threads 2
    equal --threads 3 --micro-batch 7
    for n in 2 3 4 5 8 16; do equal -n $n; done
    for n in 1 2 3; do equal -n 2 --threads $n; done
    equal -n 3 --threads 3 --micro-batch 5
    for n in shm tcp auto; do equal -n 3 --backend $n; done
    equal -n 16 --backend tcp
    for n in .0625 .5 1 64; do equal -n 3 --bucket-mb $n; done
    equal -n 2 --bucket-mb .0625 --backend tcp --threads 2
    equal --parallel dp --devices cpu:0,cpu:1
    equal --parallel dp --devices cpu:0,cpu:1,cpu:2 --threads 2
    launched 2 --parallel dp --devices cpu:0,cpu:1
    by_hand 2 --parallel dp --devices cpu:0,cpu:1
    by_hand 3
    for n in "" --pipelined "--pipelined --micro-batch 4"; do
        equal -n 2 --parallel pp $n
        equal -n 3 --parallel pp $n
        equal -n 2 --stages "$1" $n
        equal -n 3 --stages "$2" $n
        equal -n 4 --stages 2 $n
    done
    equal -n 2 --stages 2 --backend tcp --pipelined
    equal --stages 2 --devices cpu:0,cpu:1
    equal --stages 2 --devices cpu:0,cpu:1,cpu:2,cpu:3 --pipelined
    launched 3 --stages 3 --pipelined --threads 2
    launched 2 --stages 2 --parallel pp --devices cpu:0,cpu:1
}
# one_of_each CUT - one run in each mode.
one_of_each() {
    equal -n 2 --backend tcp
    equal -n 3 --bucket-mb .0625
    equal --parallel dp --devices cpu:0,cpu:1
    equal -n 2 --parallel dp --devices cpu:0,cpu:1
    equal -n 2 --stages "$1" --pipelined
    equal -n 4 --stages 2
}
# accumulated CUT OPTIONS... - a step of K batches is equal to a step of one batch K times as large.
accumulated() {
    local cut=$1 n
    reference "${@:2}" --batch-size 60 --shards 15
    task=("${@:2}" --batch-size 20 --shards 5 --accumulate 3)
    for n in "" "--threads 3" "-n 2" "-n 5 --backend tcp" "--devices cpu:0,cpu:1" "-n 2 --stages $cut" \
        "-n 4 --stages 2 --pipelined"; do
        equal $n
    done
}

short=(--data "$scratch/grey" --batch-size 32 --epochs 2 --max-steps 6 --quiet --log-interval 1)
optimizers=(sgd sgd:momentum=.9 adam adadelta)

# The cases.

# The short cases, for `make test`.
case_each() {
    local bn
    reference "${short[@]}" --model cnn --max-steps 4
    one_of_each fc1
    for bn in batch shard; do
        reference "${short[@]}" --model resnet20:width=4 --bn $bn --max-steps 4
        one_of_each layer3
    done
}
case_mlp() {
    reference "${short[@]}" --model mlp --optimizer adam
    every_way chunk2 chunk1.3,chunk2
    accumulated chunk2 "${short[@]}" --model mlp --epochs 6
}
case_cnn() {
    reference "${short[@]}" --model cnn --optimizer adadelta --max-steps 5
    every_way fc1 conv2,fc1
    accumulated fc1 "${short[@]}" --model cnn --epochs 4 --max-steps 4
}
resnet() { # BN
    reference "${short[@]}" --model resnet20:width=4 --bn "$1" --optimizer sgd:momentum=.9 --max-steps 5
    every_way layer2 layer2,layer3
    accumulated layer3 "${short[@]}" --model resnet20:width=4 --bn "$1" --epochs 4 --max-steps 4
}
case_resnet_batch() { resnet batch; }
case_resnet_shard() { resnet shard; }
case_optimizers() {
    local optimizer bn
    for optimizer in "${optimizers[@]}"; do
        reference "${short[@]}" --model mlp --optimizer "$optimizer" --clip-norm .5
        one_of_each chunk2
        reference "${short[@]}" --model cnn --optimizer "$optimizer" --max-steps 3
        one_of_each fc1
        for bn in batch shard; do
            reference "${short[@]}" --model resnet20:width=4 --optimizer "$optimizer" --bn $bn --max-steps 4
            one_of_each layer3
        done
    done
}
# every_way_by_mpi - all modes of the current task over MPI, with 2, 3 and 5 ranks, with each MPI that is here.
every_way_by_mpi() {
    local mpi n mode
    for mpi in "${mpis[@]}"; do
        for n in 2 3 5; do
            by_mpi "$mpi" $n
            for mode in "" --pipelined; do by_mpi "$mpi" $n --parallel pp $mode; done
        done
        by_mpi "$mpi" 4 --stages 2
        by_mpi "$mpi" 4 --stages 2 --pipelined --micro-batch 4
        by_mpi "$mpi" 3 --bucket-mb .0625 --threads 2
        by_mpi "$mpi" 2 --parallel dp --devices cpu:0,cpu:1
    done
}
case_mpi() {
    local bn
    read -r -a mpis <<<"$(mpis_here "$(dirname "$program")" | tr '\n' ' ')"
    [ ${#mpis[@]} -gt 0 ] || exit 77
    reference "${short[@]}" --model mlp --optimizer adam
    every_way_by_mpi
    for bn in batch shard; do
        reference "${short[@]}" --model resnet20:width=4 --bn $bn --max-steps 4
        every_way_by_mpi
    done
}
# The network at full width, on colour images with augmentation.
case_colour() {
    local bn
    for bn in batch shard; do
        reference --data "$scratch/colour" --model resnet20 --bn $bn --batch-size 32 --epochs 2 --max-steps 4 --quiet \
            --log-interval 1 --optimizer sgd:momentum=.9,weight_decay=.0001
        one_of_each layer3
        equal -n 3 --stages 3 --pipelined --threads 2
    done
}

make_data
for name in "${cases[@]}"; do
    begun=$SECONDS
    declare -F "case_$name" >/dev/null || { echo "there is no case '$name'" && exit 1; }
    "case_$name"
    echo "$name: $((SECONDS - begun)) s"
done
line="after all"
check "$line: nobody is left" test -z "$(left)"
conclude

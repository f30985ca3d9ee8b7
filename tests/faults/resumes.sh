# resumes.sh - functions for kills.sh, campaign.sh and torture.sh: small jobs with short epochs, random
# numbers, the results of runs without faults, and checks of a folder of checkpoints. Sourced after
# common.sh.

# The folder for data and references; the folder of common.sh has only cases.
kept=$(mktemp -d)
trap 'clean_up; rm -rf "$kept"' EXIT
trap 'exit 1' INT TERM

# read_options COUNT ARGUMENTS... - reads --COUNT, --seed and --jobs, each with a number. In a
# /dev/shm of its own every file counts as left.
read_options() {
    local count=$1
    shift
    while [ $# -gt 0 ]; do
        case $1 in
        "--$count") declare -g "$count=$2" ;;
        --seed) seed=$2 ;;
        --jobs) side_by_side=$2 ;;
        *) echo "$(basename "$0"): no option $1" && exit 2 ;;
        esac
        shift 2
    done
    [ "$FAULTS_APART" = no ] || segments() { ls -A /dev/shm; }
    before="$(listening) $(segments)"
}

# Jobs.

# The pixels of the images are bytes of untrained weights: they look random and are equal on all
# machines.
source "$(dirname "$(realpath "$0")")/../idx.sh"
make_data() {
    mkdir "$kept/data"
    "$program" train --data digits --model mlp --max-steps 1 --no-test --quiet \
        --save-model "$kept/noise.safetensors" >"$kept/out" 2>&1 </dev/null || give_up
    tail -c +2000 "$kept/noise.safetensors" | idx "$kept/data/train" 256
    tail -c +100000 "$kept/noise.safetensors" | idx "$kept/data/t10k" 64
}
# give_up: ends the script, as nothing can be tested.
give_up() {
    echo "FAILED: a run without faults does not end well:"
    cat "$kept/out"
    exit 1
}

# The options of each job; an epoch has 6 batches, the last one smaller.
declare -A recipes=(
    [mlp]="--model mlp --optimizer adam --clip-norm 1 --epochs 8 --save-every 4"
    [short]="--model debug --optimizer adam --epochs 2 --save-every 4"
    [resnet]="--model resnet20:width=2 --optimizer sgd:momentum=.9 --epochs 3 --save-every 5"
    [shard]="--model resnet20:width=2 --bn shard --epochs 3 --save-every 3"
    [cnn]="--model cnn --epochs 2 --save-every 5"
)
declare -A hashes milliseconds
# options JOB: sets $options.
options() {
    read -ra options <<<"${recipes[$1]}"
    options+=(--data "$kept/data" --batch-size 48)
}
# reference JOB...: the results of one process without faults.
reference() {
    local job began
    for job in "$@"; do
        options "$job"
        began=${EPOCHREALTIME/./}
        "$program" train "${options[@]}" --checkpoint "$kept/$job" --keep 2 \
            --save-model "$kept/$job.safetensors" >"$kept/out" 2>&1 </dev/null || give_up
        milliseconds[$job]=$(((${EPOCHREALTIME/./} - began) / 1000))
        hashes[$job]=$(sed -n 's/^State hash //p' "$kept/out")
        [ -n "${hashes[$job]}" ] || give_up
        rm -rf "${kept:?}/$job"
    done
}

# Draws.

# draw COUNT: from 0, in $drawn. A subshell would draw apart, so nothing is returned.
draw() { drawn=$(((RANDOM * 32768 + RANDOM) % $1)); }
# pick WORD...: in $picked.
pick() {
    draw $#
    picked=${@:drawn+1:1}
}
# pick_mode OTHER: a world size that is not OTHER in $world, a way to divide the work
# among so many ranks in $mode.
pick_mode() {
    local devices i
    world=$1
    until [ "$world" -ne "$1" ]; do
        pick 1 2 3 5
        world=$picked
    done
    devices=cpu:0
    for ((i = 1; i < world; i++)); do
        devices+=,cpu:$i
    done
    if [ "$world" -eq 1 ]; then
        pick "--parallel single" "--threads 1 --num-workers 0" "--threads 2 --micro-batch 64" "-n 1"
    else
        pick "-n $world" "-n $world --backend tcp" "-n $world --backend shm --threads 2 --bucket-mb .05" \
            "-n $world --parallel ddp --num-workers 0" "-n $world --stages $world" \
            "-n $world --stages $world --pipelined" "-n $world --stages $world --pipelined --backend tcp" \
            "--devices $devices" "--devices $devices --stages $world --pipelined"
    fi
    read -ra mode <<<"$picked"
}

# Checkpoints.

steps_in() { find "$1" -maxdepth 1 -name 'step-*' 2>/dev/null | sed 's/.*step-0*//' | sort -n; }
# What is written aside, there or around.
asides() { find . -name '.lk-*'; }

# sound FOLDER OUT: nothing in it is damaged, and what OUT says was saved is there, or
# a later one.
sound() {
    local name told newest
    newest=$(steps_in "$1" | tail -n 1)
    "$program" verify "$1" >verified 2>&1 </dev/null
    status=$?
    if [ -n "$newest" ]; then
        [ $status -eq 0 ] || complain "verify ends with $status: $(<verified)"
    else
        [ $status -eq 2 ] || complain "verify ends with $status where nothing was saved: $(<verified)"
    fi
    [ ! -L "$1/best" ] || [ -e "$1/best/checkpoint.json" ] || complain "best leads nowhere"
    told=$(sed -n 's/^.*Checkpoint saved to .*step-0*\([0-9]*\).*/\1/p' "$2" | tail -n 1)
    [ "${newest:-0}" -ge "${told:-0}" ] || complain "step $told was saved, and is gone: ${newest:-nothing} is there"
    for name in $(ls -A "$1" 2>/dev/null); do
        [[ $name =~ ^((suspect-)?step-[0-9]+|best|\.lk-.*\.tmp)$ ]] || complain "in the folder of checkpoints: $name"
    done
}

# resumed JOB FOLDER ARGUMENTS...: goes on to the reference's bits, and leaves nothing
# aside. The files are again.out, again.err and again.safetensors.
resumed() {
    local job=$1 folder=$2 hash
    timeout -k 5 120 "$program" "${@:3}" --checkpoint "$folder" --keep 2 --resume auto \
        --save-model again.safetensors >again.out 2>again.err </dev/null
    status=$?
    [ $status -eq 0 ] || complain "resuming ends with $status: ${*:3}"
    hash=$(sed -n 's/^.*State hash //p' again.out | tail -n 1)
    [ "$hash" = "${hashes[$job]}" ] || complain "resumed to the hash '$hash', not '${hashes[$job]}': ${*:3}"
    "$program" compare "$kept/$job.safetensors" again.safetensors >compared 2>&1 </dev/null ||
        complain "resumed to another model: $(<compared)"
    [ ! -s compared ] || complain "compare is not silent: $(<compared)"
    [ -z "$(asides)" ] || complain "left aside: $(asides)"
    sound "$folder" again.out
    rm -f again.safetensors
}

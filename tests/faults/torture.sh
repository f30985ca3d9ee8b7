#!/bin/bash
# torture.sh LOCKSTEP MEMORY [--all] - every write and every allocation of a save fails once, each in
# a run of its own: in the first save, in a save that removes an old checkpoint, in the best one, and
# in one that replaces a checkpoint. Each run ends with a message that says what failed and which
# checkpoint is left, and --resume auto continues from there to the bits of a run without failures.
# The same for loading. Without --all only a sample of some cases is run.
source "$(dirname "$(realpath "$0")")/apart.sh"
program=$(realpath "$1") memory=$(realpath "$2")
# Distances between the failures of a sample.
case ${3:-} in
--all) some=1 few=1 rare=1 ;;
"") some=7 few=15 rare=30 ;;
*) echo "torture.sh: no option $3" && exit 2 ;;
esac
source "$(dirname "$(realpath "$0")")/resumes.sh"
side_by_side=${LOCKSTEP_FAULTS_JOBS:-2} # these cases compute

# A case.

# drill FAULT ARGUMENTS...: runs lockstep train with the fault; status 124 if it hangs.
drill() {
    case $1 in
    malloc*) local fault=(LD_PRELOAD="$memory" FAULTS_MALLOC="${1#*nth=}") ;;
    *) local fault=(LOCKSTEP_FAULT="$1") ;;
    esac
    timeout -k 5 60 env "${fault[@]}" "$program" train "${options[@]}" "${@:2}" --checkpoint ck --keep 1 \
        >out 2>err </dev/null
    status=$?
}
# said_by_program FAULT: the program or a rank must report the reason of FAULT.
said_by_program() {
    local text
    case $1 in
    write*) text="No space left on device" ;;
    alloc*) text="no memory for " ;;
    malloc*) text="[Nn]o memory\|Cannot allocate memory\|what was written reads back otherwise" ;;
    esac
    grep -o "lockstep: .*\($text\).*" err | head -n 1 >struck
    [ -s struck ] || complain "nobody says '$text'"
}
# The same line must say from which checkpoint to resume.
tells_last_good() {
    local newest
    newest=$(steps_in ck | tail -n 1)
    if [ -n "$newest" ]; then
        said struck "the last good checkpoint is ck/step-$(printf %09d "$newest");" "--resume auto"
    else
        said struck "there is no checkpoint in ck"
    fi
}
strict=yes
# A failed save leaves no temporary files, unless removing them failed.
cleared() {
    [ -z "$(asides)" ] || grep -q "cannot remove\|cannot read the folder" err || complain "left aside: $(asides)"
}

# A run that succeeds in spite of a failure must have the right result.
ends_alike() {
    [ "$(sed -n 's/^State hash //p' out)" = "${hashes[short]}" ] || complain "ends well, but with other bits"
}

# struck FAULT NTH ARGUMENTS...: a new run with the NTH failure.
struck() {
    options short
    drill "$1,nth=$2" "${@:3}"
    if [ "$status" -ne 0 ]; then
        status_is 1
        said_by_program "$1"
        [ "$strict" = no ] || tells_last_good
        cleared
    else
        ends_alike
    fi
    sound ck out
    resumed short ck train "${options[@]}"
}
# refused FAULT NTH ARGUMENTS...: a run that resumes from a folder with an unfinished save, with the
# NTH failure. No checkpoint may be lost.
refused() {
    options short
    LOCKSTEP_FAULT=kill:step=7,op=step "$program" train "${options[@]}" --checkpoint ck >first 2>&1 </dev/null
    mkdir ck/.lk-1-0.tmp
    touch ck/.lk-1-0.tmp/model.safetensors
    drill "$1,nth=$2" --resume auto "${@:3}"
    if [ "$status" -ne 0 ]; then
        status_is 1
        said_by_program "$1"
    else
        ends_alike
    fi
    sound ck first
    resumed short ck train "${options[@]}" "${@:3}"
}

# All of them.

# in_turn NAME STRIDE COMMAND...: runs COMMAND with a number for its word @, from 1 in steps of
# STRIDE, until no run of a batch has a failure.
in_turn() {
    local name=$1 stride=$2 batch=12 first=1 i hits args total=0
    shift 2
    while :; do
        for ((i = 0; i < batch; i++)); do
            args=("$@")
            with "$name-$((first + i * stride))" "${args[@]/#@/$((first + i * stride))}"
        done
        wait
        hits=0
        for ((i = 0; i < batch; i++)); do
            [ ! -e "$scratch/$name-$((first + i * stride))/struck" ] || hits=$((hits + 1))
        done
        total=$((total + hits)) first=$((first + batch * stride))
        [ $hits -gt 0 ] || break
    done
    echo "torture: $name: $total places failed, $stride apart"
    leftovers "$name"
    [ $total -gt 0 ] || {
        failures=$((failures + 1))
        echo "FAILED: $name never fails"
    }
}
make_data
reference short
in_turn write 1 struck write:op=save @
in_turn alloc-6 1 struck alloc:op=save,step=6 @ # this save removes a checkpoint and is the best one
in_turn alloc $some struck alloc:op=save @
in_turn malloc $few struck malloc @
in_turn write-ranks $some struck write:op=save @ -n 2
in_turn alloc-ranks $few struck alloc:op=save @ -n 2
in_turn write-stages $few struck write:op=save @ -n 2 --stages 2
in_turn alloc-threads $rare struck alloc:op=save @ --devices cpu:0,cpu:1
# Data is copied in the step, before the save begins.
strict=no
in_turn copy $some struck alloc:step=8 @
in_turn load 1 refused alloc:op=load @
in_turn load-ranks $some refused alloc:op=load @ -n 2
# The folder is tested and cleaned before the first step.
in_turn open $some refused write:rank=0 @
for i in 2 3 4 5; do
    with open-first-$i refused write:rank=0 $i
done
leftovers open-first
set -o pipefail # no process dies here
summary | sed 's/; longest from a death .*//'

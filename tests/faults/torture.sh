#!/bin/bash
# torture.sh LOCKSTEP - every write and every allocation of the saves of a run fails
# once, each in a run of its own: the first save, the second, one that replaces what
# is there, the link to the best, the removal of old ones. Each run ends with a word
# that says what failed and what is left, and --resume auto goes on from there to the
# bits of a run that never failed. The same for loading.
set -u
PATH=$PATH:/usr/sbin:/sbin
source "$(dirname "$(realpath "$0")")/apart.sh"
program=$(realpath "$1")
source "$(dirname "$(realpath "$0")")/common.sh"
source "$(dirname "$(realpath "$0")")/resumes.sh"
side_by_side=${LOCKSTEP_FAULTS_JOBS:-2} # they compute
[ "$FAULTS_APART" = yes ] || listening() { :; } # others come and go
before="$(listening) $(segments)"

# ---- a case ---------------------------------------------------------------------------

# drill FAULT ARGUMENTS...: one that hangs has status 124.
drill() {
    LOCKSTEP_FAULT=$1 timeout -k 5 60 "$program" train "${options[@]}" "${@:2}" --checkpoint ck --keep 1 --quiet \
        >out 2>err </dev/null
    status=$?
}
# One line says what failed and where to go on.
tells_last_good() {
    local newest
    newest=$(steps_in ck | tail -n 1)
    if [ -n "$newest" ]; then
        said err "the last good checkpoint is ck/step-$(printf %09d "$newest");" "--resume auto"
    else
        said err "no checkpoint was saved in ck yet"
    fi
    grep -q "lockstep: .*$1" err || complain "nobody says '$1'"
}
declare -A texts=([write]="No space left on device" [alloc]="no memory for ")
# What has failed leaves nothing aside, but where removing is what failed.
cleared() { [ -z "$(asides)" ] || grep -q "cannot remove" err || complain "left aside: $(asides)"; }

# struck ACTION PLACE NTH ARGUMENTS...: a failure that does no harm may be passed over.
struck() {
    options short
    drill "$1:$2,nth=$3" "${@:4}"
    if [ "$status" -ne 0 ]; then
        status_is 1
        tells_last_good "${texts[$1]}"
        cleared
        echo "$(grep -o 'lockstep: .*' err | head -n 1)" >struck
    fi
    sound ck out
    resumed short ck train "${options[@]}"
}
# refused ACTION NTH ARGUMENTS...: of a run that goes on from a folder in which a
# save and a removal were cut short. It loses nothing.
refused() {
    local names
    options short
    LOCKSTEP_FAULT=kill:step=7,op=step "$program" train "${options[@]}" --checkpoint ck --quiet >first 2>&1 </dev/null
    mkdir ck/.lk-1-0.tmp
    touch ck/.lk-1-0.tmp/model.safetensors
    names=$(steps_in ck)
    drill "$1,nth=$2" --resume auto "${@:3}"
    if [ "$status" -ne 0 ]; then
        status_is 1
        grep -q "lockstep: .*${texts[${1%%:*}]}" err || complain "nobody says '${texts[${1%%:*}]}'"
        echo "$(grep -o 'lockstep: .*' err | head -n 1)" >struck
    fi
    [ -z "$(comm -23 <(echo "$names") <(steps_in ck))" ] || [ "$status" -eq 0 ] || complain "a checkpoint is gone"
    sound ck first
    resumed short ck train "${options[@]}" "${@:3}"
}

# ---- all of them -----------------------------------------------------------------------

# in_turn NAME STRIDE COMMAND...: COMMAND with NTH for its word @, which counts up until
# a whole batch of runs meets no fault.
in_turn() {
    local name=$1 stride=$2 batch=16 first=1 i hits args total=0
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
    echo "torture: $name: $total failures"
    leftovers "$name"
    [ $total -gt 0 ] || {
        failures=$((failures + 1))
        echo "FAILED: $name never fails"
    }
}
make_data
reference short
in_turn write 1 struck write op=save @
in_turn alloc 1 struck alloc op=save @
in_turn write-ranks 5 struck write op=save @ -n 2
in_turn alloc-ranks 5 struck alloc op=save @ -n 2
in_turn write-stages 11 struck write op=save @ -n 2 --stages 2
in_turn write-threads 11 struck write op=save @ --devices cpu:0,cpu:1
in_turn snapshot 1 struck alloc step=4 @
in_turn load 1 refused alloc:op=load @
in_turn load-ranks 3 refused alloc:op=load @ -n 2
in_turn open 1 refused write @
summary

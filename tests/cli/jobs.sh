# shellcheck shell=bash
# jobs.sh - shared by scripts that start ranks: a temporary folder, checks, background jobs, and a search for
# processes that they left. Sourced with the variables program and command set.
set -u
source "$(dirname "$(realpath "${BASH_SOURCE[0]}")")/../port.sh"
source "$(dirname "$(realpath "${BASH_SOURCE[0]}")")/../idx.sh"
program=$(realpath "$program")
[ -x "$program" ] || exit 1
scratch=$(mktemp -d)
cd "$scratch" || exit 1
export XDG_CONFIG_HOME=$scratch/.config # for the secret of jobs without a token
unset LOCKSTEP_TOKEN LOCKSTEP_TOKEN_FILE LOCKSTEP_INSECURE RANK WORLD_SIZE LOCAL_RANK MASTER_ADDR MASTER_PORT
export MARK=lockstep-$command-test-$$ # by which the ranks of this script are found

checks=0 failures=0 line=
complain() {
    local file
    failures=$((failures + 1))
    echo "FAILED: $*"
    for file in out* err*; do sed "s/^/    $file: /" "$file" | tail -8; done
}
check() {
    checks=$((checks + 1))
    "${@:2}" || complain "$1"
}
# Lists the processes of this script's jobs that are still running.
left() {
    local file pid
    for file in $(grep -lsz "^MARK=$MARK\$" /proc/[0-9]*/environ); do
        pid=${file#/proc/} pid=${pid%/environ}
        grep -qs '^State:.Z' "/proc/$pid/status" && continue
        { tr '\0' ' ' <"/proc/$pid/cmdline"; } 2>/dev/null | grep -e sleep -e lockstep
    done
}
trap 'rm -rf "$scratch"' EXIT

# run STATUS ARGUMENTS... - `lockstep $command ARGUMENTS` must end with STATUS before a timeout. $command may be
# empty.
run() {
    local wanted=$1
    shift
    line="$command $*"
    timeout -s KILL 60 "$program" ${command:+"$command"} "$@" >out 2>err </dev/null
    local status=$?
    check "$line: exit status $status, not $wanted" test $status -eq "$wanted"
}
# said FILE TEXT... - every text must occur in the file.
said() {
    local file=$1 text
    shift
    for text in "$@"; do check "$line: '$text' is not in $file" grep -qF -- "$text" "$file"; done
}
# fails STATUS TEXT... -- ARGUMENTS... - like run; stderr must be one line that has all texts, and stdout must be
# empty.
fails() {
    local wanted=$1 texts=()
    shift
    while [ "$1" != -- ]; do
        texts+=("$1")
        shift
    done
    shift
    run "$wanted" "$@"
    said err "lockstep: " "${texts[@]}"
    check "$line: more than one line" test "$(wc -l <err)" -eq 1 -a ! -s out
}
refused() { fails 2 "$@"; } # TEXT... -- ARGUMENTS...
# await SECONDS COMMAND... - repeats the command until it succeeds.
await() {
    local end=$((SECONDS + $1))
    while ! "${@:2}"; do
        [ $SECONDS -lt $end ] || return 1
        sleep .05
    done
}
# ready COUNT FILE... - COUNT ranks have printed that they are ready.
ready() { [ "$(cat "${@:2}" 2>/dev/null | grep -c ready)" -eq "$1" ]; }
# begin COMMAND... - starts a background job and sets $job to its id. The shell creates the output files some time
# later, so files of an earlier job are removed first.
begin() {
    rm -f out* err*
    "$@" >out 2>err </dev/null &
    job=$!
}
gone() { ! kill -0 "$1" 2>/dev/null; }
# finish ID - waits for a job, with a timeout, and sets $status to its exit status.
finish() {
    if ! await 60 gone "$1"; then
        complain "$line: does not end"
        kill -KILL "$1"
    fi
    wait "$1"
    status=$?
} 2>/dev/null # where the shell would tell of jobs that were killed
# all_finish ID... - the jobs of ranks 0, 1, ... all end with status 0.
all_finish() {
    local rank=0
    while [ $# -gt 0 ]; do
        finish "$1"
        check "$line: rank $rank ends with $status" test $status -eq 0
        rank=$((rank + 1))
        shift
    done
}
# The last lines of stderr are the cause; its first line must match the pattern.
cause_last() { # FILE PATTERN LINES_AFTER
    check "$line: the cause is not last in $1" grep -q -- "$2" <(tail -n $((1 + $3)) "$1" | head -1)
}
# A run's state hash; the steps of the checkpoints in a folder; whether the run ended with a hash, and with the hash in
# $whole. A run without a hash fails, even if the hash to compare with is missing, too.
hash_of() { sed -n 's/^State hash //p' out; }
steps_of() { ls "$1" 2>/dev/null | sed -n 's/^step-0*//p' | sort -n | tr '\n' ' '; }
hash_is() { check "$line: state hash '$(hash_of)', not '$1'" test ${#1} -eq 16 -a "$(hash_of)" = "$1"; }
ends_alike() { hash_is "$whole"; }
# The last line of a script calls this.
conclude() {
    echo "$checks checks, $failures failures"
    [ $failures -eq 0 ]
}

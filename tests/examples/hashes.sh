#!/bin/bash
# hashes.sh LOCKSTEP PROGRAM LINE - runs an example alone, as 2 and 3 ranks, as 2 stages, and as 2 replicas of 2
# stages: each time it succeeds, prints nothing on stderr, a line that matches LINE, and the same state hash.
set -u
lockstep=$(realpath "$1") program=$(realpath "$2") line=$3
[ -x "$lockstep" ] && [ -x "$program" ] || exit 1
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cd "$scratch" || exit 1
unset LOCKSTEP_TOKEN LOCKSTEP_TOKEN_FILE RANK WORLD_SIZE LOCAL_RANK MASTER_ADDR MASTER_PORT LOCKSTEP_BACKEND

fail() {
    echo "FAILED: $*"
    sed 's/^/    out: /' out
    sed 's/^/    err: /' err
    exit 1
}

wanted=
# check WHAT COMMAND... - the command has the results above.
check() {
    local what=$1 hash
    shift
    timeout -s KILL 200 "$@" >out 2>err </dev/null || fail "$what: exit status $?"
    [ ! -s err ] || fail "$what: it complains"
    grep -qE -- "$line" out || fail "$what: no line matches '$line'"
    hash=$(grep -oE 'State hash [0-9a-f]{16}$' out)
    [ -n "$hash" ] || fail "$what: no state hash"
    wanted=${wanted:-$hash}
    [ "$hash" = "$wanted" ] || fail "$what: $hash, alone it was $wanted"
}
check alone "$program"
check "2 ranks" "$lockstep" run -n 2 "$program"
check "3 ranks" "$lockstep" run -n 3 "$program"
check "2 stages" "$lockstep" run -n 2 "$program" 2
check "2 replicas of 2 stages" "$lockstep" run -n 4 "$program" 2

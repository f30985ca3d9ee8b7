# common.sh - functions for the scripts of this folder: cases that run at once, each in its own
# folder, and checks that nothing is left at the end. Sourced; needs $program, $victim, $stranger.

scratch=$(mktemp -d)
self=$BASHPID
side_by_side=${LOCKSTEP_FAULTS_JOBS:-4}
bound_us=${LOCKSTEP_FAULTS_BOUND_US:-5000000} # from a death to the last end; usually below 1 s
export XDG_CONFIG_HOME=$scratch/.config # for the secret of jobs without a token
export -n LOCKSTEP_TOKEN LOCKSTEP_TOKEN_FILE LOCKSTEP_INSECURE LOCKSTEP_HOSTID RANK WORLD_SIZE MASTER_ADDR MASTER_PORT
ulimit -c 0

# A case.

# complain TEXT...: marks the case as failed.
complain() { echo "$*" >>"$case_folder/failed"; }
# said FILE TEXT...: FILE must contain every text.
said() {
    local file=$1 text
    shift
    for text in "$@"; do
        grep -qF -- "$text" "$file" || complain "'$text' is not in $file"
    done
}
# rest SECONDS: sleeps without starting a process.
exec {never}<> <(:)
rest() { read -rt "$1" -u "$never"; }
# until_true SECONDS COMMAND...: repeats COMMAND until it succeeds.
until_true() {
    local end=$((${EPOCHREALTIME/./} + $1 * 1000000))
    shift
    until "$@"; do
        ((${EPOCHREALTIME/./} < end)) || return 1
        rest 0.01
    done
    return 0
}
status_is() { [ "$status" = "$1" ] || complain "exit status $status, not $1"; }
# took RANK: checks the microseconds from the fault of RANK to $ended.
took() {
    if [ -f "fault.$1" ]; then
        local death
        death=$(<"fault.$1")
        us=$((${ended/./} - ${death/./}))
        echo "$us" >took
        ((us < bound_us)) || complain "took $us us"
    else
        complain "rank $1 did not come to its fault"
    fi
}
# start ARGUMENTS...: runs lockstep run in the background.
start() {
    env --default-signal=INT,QUIT "$program" run "$@" >out 2>err </dev/null &
    launcher=$!
}
finish() {
    wait "$launcher"
    status=$?
    ended=$EPOCHREALTIME
}

# Whether a rank of lockstep train has finished its first step.
rank_trains() { grep -qs "\[rank $1\] Train Epoch: 1 \[[1-9]" out*; }
all_train() { # WORLD
    local r
    for ((r = 0; r < $1; r++)); do
        rank_trains $r || return 1
    done
}

# marked MARK: the processes that were started with the variable FAULTS_MARK=MARK.
marked() {
    local files
    files=$(env -u FAULTS_MARK grep -lsxzF -- "FAULTS_MARK=$1" /proc/[0-9]*/environ)
    echo "${files//[!0-9$'\n']/}"
}
unmarked() { [ -z "$(marked "$1")" ]; }

# run_case NAME COMMAND...: runs COMMAND in a folder of its own; all its processes inherit
# FAULTS_MARK.
run_case() {
    local name=$1
    shift
    case_folder=$scratch/$name
    mkdir -p "$case_folder" && cd "$case_folder" || exit 1
    export FAULTS_MARK=$self/$name TMPDIR=$case_folder/tmp VICTIM_FOLDER=.
    mkdir tmp
    "$@" </dev/null
    # Dead processes have the mark until the kernel has removed them.
    if ! until_true 2 unmarked "$FAULTS_MARK"; then
        local pid
        for pid in $(marked "$FAULTS_MARK"); do
            complain "left running: $pid $(tr '\0' ' ' <"/proc/$pid/cmdline")"
            kill -KILL "$pid"
        done
    fi
    [ -z "$(ls tmp)" ] || complain "left in the folder for temporary files: $(ls tmp)"
    touch over
}

# with NAME COMMAND...: starts a case when fewer than $side_by_side cases run.
cases=0
with() {
    [[ $1 =~ ${LOCKSTEP_FAULTS_ONLY:-.} ]] || return 0
    while [ "$(jobs -rp | wc -l)" -ge "$side_by_side" ]; do
        wait -n
    done
    cases=$((cases + 1))
    run_case "$@" 2>"$scratch/$1.shell" &
}

# What is left of many.

listening() { cat /proc/net/tcp /proc/net/tcp6 2>/dev/null | awk '$4 == "0A" { print $2 }' | sort; }
segments() { find /dev/shm -mindepth 1 -name 'lockstep*' 2>/dev/null | sort; }
failures=0
leftovers() {
    wait
    if ! until_true 2 same_as_before; then
        failures=$((failures + 1))
        echo "FAILED: after '$1' there is left in /dev/shm: $(segments | tr '\n' ' ')," \
            "listening: $(listening | tr '\n' ' ')"
    fi
}
before=
same_as_before() { [ "$(listening) $(segments)" = "$before" ]; }

summary() {
    local folder worst=0 name= us cut=0
    # The shell reports killed processes; these are expected.
    cat "$scratch"/*.shell | grep -v ' Killed ' >&2
    for folder in "$scratch"/*/; do
        if [ ! -e "$folder/over" ]; then
            echo "broke off" >>"$folder/failed"
        fi
        if [ -e "$folder/failed" ]; then
            failures=$((failures + 1))
            echo "FAILED: $(basename "$folder"):"
            sed 's/^/    /' "$folder/failed"
            tail -qn 8 "$folder"/out* "$folder"/err* 2>/dev/null | sed 's/^/    | /'
        fi
        if [ -e "$folder/took" ] && us=$(<"$folder/took") && ((us > worst)); then
            worst=$us name=$(basename "$folder")
        fi
        if [ -e "$folder/cut_us" ] && us=$(<"$folder/cut_us") && ((us > cut)); then
            cut=$us
        fi
    done
    echo "$cases cases in $SECONDS s, $failures failures; longest from a death to the last end:" \
        "$((worst / 1000)) ms ($name)"
    ((cut == 0)) || echo "longest from a partition to the last end: $((cut / 1000)) ms"
    [ "$failures" -eq 0 ]
}

clean_up() {
    local pids
    pids=$(grep -lsz "^FAULTS_MARK=$self/" /proc/[0-9]*/environ | tr -dc '0-9\n')
    [ -z "$pids" ] || kill -KILL $pids 2>/dev/null
    rm -rf "$scratch"
}
trap clean_up EXIT

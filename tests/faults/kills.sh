#!/bin/bash
# kills.sh LOCKSTEP [--kills N] [--seed S] [--jobs J] - SIGKILL to a random rank, to the launcher or
# to all processes of a run at random moments, also inside saves. After each kill no checkpoint is
# damaged and no process is left, and the run continues with another world size and mode to the bits
# of a run that was never stopped. J runs run at once. The same seed gives the same kills, except for
# differences in time.
source "$(dirname "$(realpath "$0")")/apart.sh"
source "$(dirname "$(realpath "$0")")/resumes.sh"
program=$(realpath "$1")
kills=20 seed=$((RANDOM * 32768 + RANDOM)) side_by_side=2
read_options kills "${@:2}"

# One kill.

over() { ! kill -0 "$launcher" 2>/dev/null; }
children() { cat "/proc/$1/task/$1/children" 2>/dev/null; }
# The launcher's child is the guard, whose child is the keeper, whose children are the ranks. Ranks
# that are threads have no process of their own.
find_processes() {
    guard=$(children "$launcher")
    guard=${guard// /}
    keeper=${guard:+$(children "$guard")}
    keeper=${keeper// /}
    read -ra ranks <<<"${keeper:+$(children "$keeper")}"
}
has_ranks() {
    find_processes
    [ ${#ranks[@]} -gt 0 ] || over
}
lines_are() { [ "$(cat out 2>/dev/null | grep -c 'Train Epoch')" -ge "$1" ] || over; }
is_saving() { compgen -G 'ck/.lk-*' >saving || over; }

# Waits for the drawn moment: a time, a short time after a step, or a save that is under way.
await_moment() {
    case $moment in
    time)
        draw $((milliseconds[$job] * 11 / 10 + 100))
        rest "$((drawn / 1000)).$(printf %03d $((drawn % 1000)))"
        ;;
    step)
        draw 24
        until_true 60 lines_are $((drawn + 1))
        draw 40
        rest "0.0$(printf %02d "$drawn")"
        ;;
    saving)
        draw 3
        local i=$drawn
        until_true 60 is_saving
        for (( ; i > 0; i--)); do
            rest 0.05
            until_true 60 is_saving
        done
        ;;
    esac
}
# Waits for the ranks to start, unless all processes are killed.
strike() {
    find_processes
    case $victim in
    all) kill -KILL "$launcher" $guard $keeper "${ranks[@]}" ;;
    launcher) kill -KILL "$launcher" ;;
    rank)
        until_true 10 has_ranks
        [ ${#ranks[@]} -gt 0 ] || return
        pick "${ranks[@]}"
        kill -KILL "$picked"
        ;;
    esac 2>/dev/null
}

# A third of the kills are faults inside a save, at its start or at one of its writes (rank 0 saves).
# The others come from this script.
pick_kill() {
    fault=
    draw 3
    if [ "$drawn" -eq 0 ]; then
        draw 90
        victim="rank that saves" moment=fault fault=kill:op=save,nth=$((drawn + 1))
        return
    fi
    pick time time step step saving
    moment=$picked
    if [[ " ${mode[*]}" != *" -n "* ]]; then
        victim=all
        return
    fi
    pick rank rank rank all all launcher
    victim=$picked
}
# Starts or resumes a run and kills it; all processes must end soon. Returns false if the run ended
# before the kill.
kill_run() {
    local struck
    rm -f out err
    env ${fault:+LOCKSTEP_FAULT="$fault"} "$program" train "${options[@]}" "${mode[@]}" --checkpoint ck --keep 2 \
        --resume auto --quiet --log-interval 1 --timeout 20 >out 2>err </dev/null &
    launcher=$!
    await_moment
    struck=$EPOCHREALTIME
    [ -n "$fault" ] || strike
    if [ -n "$fault" ]; then
        until_true 60 over || complain "does not end: $fault ${mode[*]}"
        struck=$EPOCHREALTIME
    fi
    until_true 8 unmarked "$FAULTS_MARK" || complain "processes are left after 8 s: $victim of ${mode[*]}"
    ended=$EPOCHREALTIME
    [ ! -e failed ] || return 0
    wait "$launcher"
    status=$?
    [ "$status" -ne 0 ] || return 1
    status_is 137
    us=$((${ended/./} - ${struck/./}))
    [ "$us" -le "$(cat took 2>/dev/null || echo 0)" ] || echo "$us" >took
}

# one_kill: kills a run of $job in ck. A copy of ck resumes to the end in another mode; the next kill
# resumes from ck.
one_kill() {
    local tries=0
    while :; do
        pick_mode 0
        pick_kill
        kill_run && break
        # The run ended before the kill.
        rm -rf ck
        tries=$((tries + 1))
        if [ $tries -ge 40 ]; then
            complain "40 runs were over before they could be killed"
            return
        fi
    done
    [ ! -e failed ] || return
    sound ck out
    rm -rf "$spare"
    [ ! -d ck ] || cp -a ck "$spare"
    local from="${mode[*]}" ranks_then=$world past
    past=$(steps_in ck | tail -n 1)
    pick_mode "$world"
    # The checkpoint has the options that belong to the result.
    draw 2
    if [ -n "$past" ] && [ "$drawn" -eq 0 ]; then
        resumed "$job" ck train "${mode[@]}"
    else
        resumed "$job" ck train "${options[@]}" "${mode[@]}"
    fi
    [ ! -e failed ] || {
        complain "killed: $victim, $moment, ${fault:-from outside}, $from; resumed: ${mode[*]}; job $job"
        return
    }
    echo "$victim;$moment;$ranks_then;$world;${past:-0}" >>kills
    rm -rf ck
    [ ! -d "$spare" ] || mv "$spare" ck
}

# chain NUMBER COUNT: one run that is killed COUNT times.
chain() {
    local i name
    spare=$kept/spare-$1
    RANDOM=$(((seed + $1 * 7919) % 2147483647))
    pick mlp mlp mlp mlp resnet resnet shard cnn
    job=$picked
    options "$job"
    for ((i = 0; i < $2; i++)); do
        [ -e failed ] || one_kill
    done
    for name in *; do
        [[ $name =~ ^(ck|tmp|out|err|again\.(out|err)|saving|verified|compared|kills|took|failed)$ ]] ||
            complain "left beside the checkpoints: $name"
    done
}

# All of them.

count_kills() { cat "$scratch"/*/kills 2>/dev/null | wc -l; }
echo "kills: $kills with seed $seed, $side_by_side side by side"
make_data
reference mlp resnet shard cnn
RANDOM=$((seed % 2147483647))
planned=0 number=0 shown=0
while [ $planned -lt "$kills" ]; do
    draw 4
    count=$((drawn + 1 < kills - planned ? drawn + 1 : kills - planned))
    number=$((number + 1))
    with "chain-$number" chain $number $count
    planned=$((planned + count))
    done=$(count_kills)
    if [ $((done / 20)) -gt $((shown / 20)) ]; then
        shown=$done
        echo "kills: $done so far, after $SECONDS s"
    fi
done
leftovers "kills"
cat "$scratch"/*/kills 2>/dev/null | awk -F ';' '
    { victims[$1]++; moments[$2]++; from[$3]++; to[$4]++; none += $5 == 0 }
    END {
        printf "    of a rank %d, of the rank that saves %d, of the launcher %d, of all at once %d\n",
            victims["rank"], victims["rank that saves"], victims["launcher"], victims["all"]
        printf "    at a drawn time %d, after a drawn step %d, in a save that was seen %d, at a write of a save %d\n",
            moments["time"], moments["step"], moments["saving"], moments["fault"]
        printf "    of 1 rank %d, 2 ranks %d, 3 ranks %d, 5 ranks %d;", from[1], from[2], from[3], from[5]
        printf " resumed by 1 rank %d, 2 ranks %d, 3 ranks %d, 5 ranks %d\n", to[1], to[2], to[3], to[5]
        printf "    before the first checkpoint %d\n", none
    }'
summary
result=$?
done=$(count_kills)
echo "kills: $done of $kills resumed to the same bits"
[ $result -eq 0 ] && [ "$done" -eq "$kills" ]

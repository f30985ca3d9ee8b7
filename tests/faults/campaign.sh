#!/bin/bash
# campaign.sh LOCKSTEP [--trials N] [--seed S] [--jobs J] - faults of every kind that
# $LOCKSTEP_FAULT knows, at random ranks, steps and operations of random jobs in random
# layouts: kills, stops, delays, writes and allocations that fail, bits that change in
# weights and in files. Each run ends in time with nothing torn or left; --resume auto
# goes on in another layout, sometimes through a second fault, to the bits of a run in
# which nothing went wrong. J trials go side by side; a seed draws the same faults again.
source "$(dirname "$(realpath "$0")")/apart.sh"
source "$(dirname "$(realpath "$0")")/resumes.sh"
program=$(realpath "$1")
trials=20 seed=$((RANDOM * 32768 + RANDOM)) side_by_side=2
read_options trials "${@:2}"

declare -A steps=([mlp]=48 [resnet]=18 [shard]=18 [cnn]=12)

# ---- faults --------------------------------------------------------------------------

# pick_rank, pick_step: a key in $picked.
pick_rank() {
    draw "$world"
    picked=rank=$drawn
}
pick_step() {
    draw "${steps[$job]}"
    picked=step=$((drawn + 1))
}
# Where a fault strikes that has no choice of its own, in $where.
pick_place() {
    pick_rank
    where=$picked
    draw 3
    if [ "$drawn" -eq 0 ]; then
        pick allreduce broadcast allgather message eval save barrier
        where+=,op=$picked
        draw 15
        where+=,nth=$((drawn + 1))
    else
        pick_step
        where+=,$picked
    fi
}
# Ranks that are processes of their own, and replicas of each other.
has_processes() { [ "$world" -gt 1 ] && [[ " ${mode[*]}" = *" -n "* ]]; }
has_replicas() { [ "$world" -gt 1 ] && [[ " ${mode[*]}" != *" --stages "* ]]; }
# A sign or a bit of the exponent, of any weight: a bit of the fraction may be rounded away
# in the next step by one rank and have changed the sums of all before.
pick_bit() {
    pick 31 31 31 23 24 25 26 27 28 29 30
    local of=$picked
    draw 100000
    bit=$((drawn * 32 + of))
}
# pick_fault: in $fault, its kind in $kind. What cannot happen in this layout is drawn anew.
pick_fault() {
    while :; do
        pick kill kill stop flip flip flip write alloc delay file
        kind=$picked
        [ $kind != stop ] || has_processes || continue
        [ $kind != flip ] || has_replicas || continue
        break
    done
    pick_place
    case $kind in
    kill | stop) fault=$kind:$where ;;
    delay) fault=delay:$where,seconds=0.7 ;;
    flip)
        pick_bit
        pick_rank
        where=$picked
        pick_step
        fault=flip:$where,$picked,bit=$bit
        ;;
    write)
        draw 90
        fault=write:op=save,nth=$((drawn + 1))
        ;;
    file)
        draw 12
        fault=flip:op=save,nth=$((drawn + 1))
        ;;
    alloc)
        draw 2
        if [ "$drawn" -eq 0 ]; then
            pick_rank
            draw 200
            fault=alloc:$picked,nth=$((drawn + 1))
        else
            fault=alloc:$where
        fi
        ;;
    esac
}

# ---- a trial -------------------------------------------------------------------------

# faulty_run: of $job in ck, with $fault in $mode. Its end is in $status, and nothing
# wrong may have been said to be right.
faulty_run() {
    local limit=20 every hash
    [ $kind != stop ] || limit=2
    pick 0 3 100
    every=$picked
    tried="$fault ${mode[*]} --check-every $every"
    LOCKSTEP_FAULT=$fault timeout -k 5 90 "$program" train "${options[@]}" "${mode[@]}" --check-every "$every" \
        --checkpoint ck --keep 2 --resume auto --quiet --log-interval 1 --timeout $limit \
        --save-model first.safetensors >out 2>err </dev/null
    status=$?
    until_true 8 unmarked "$FAULTS_MARK" || complain "processes are left after 8 s: $tried"
    case $status in
    0)
        hash=$(sed -n 's/^State hash //p' out)
        [ "$hash" = "${hashes[$job]}" ] || complain "ended with 0 and the hash '$hash', not '${hashes[$job]}': $tried"
        ;;
    1) [ ! -e first.safetensors ] || cmp -s first.safetensors "$kept/$job.safetensors" ||
        complain "saved another model: $tried" ;;
    137) [ $kind = kill ] || complain "ends with $status: $tried" ;;
    *) complain "ends with $status: $tried" ;;
    esac
    rm -f first.safetensors
    [ $kind != flip ] || [ $status -eq 0 ] || grep -qE "replicas must be equal|not finite|is -?(nan|inf)" err ||
        complain "a changed bit ends the run, and nobody tells: $tried"
    echo "$kind;$status;$job $tried" >>faults
    sound ck out # which leaves another status
}
# trial NUMBER: one fault or two, then to the end.
trial() {
    local count i story=
    RANDOM=$(((seed + $1 * 7919) % 2147483647))
    for i in 1 2 3 4; do draw 2; done # seeds that are near each other begin alike
    pick mlp mlp resnet shard cnn
    job=$picked world=0
    options "$job"
    pick 1 1 2
    count=$picked
    for ((i = 0; i < count; i++)); do
        pick_mode "$world"
        pick_fault
        faulty_run
        story+="$tried; "
        [ ! -e failed ] || break
    done
    if [ ! -e failed ]; then
        pick_mode "$world"
        resumed "$job" ck train "${options[@]}" "${mode[@]}"
    fi
    [ ! -e failed ] || complain "job $job, faults: ${story}resumed: ${mode[*]}"
}

# ---- all of them ---------------------------------------------------------------------

echo "campaign: $trials trials with seed $seed, $side_by_side side by side"
make_data
reference mlp resnet shard cnn
for ((number = 1; number <= trials; number++)); do
    with "trial-$number" trial $number
    [ $((number % 20)) -ne 0 ] || echo "campaign: $number begun, after $SECONDS s"
done
leftovers "the campaign"
cat "$scratch"/*/faults 2>/dev/null | awk -F ';' '
    { all++; kinds[$1]++; ended[$1] += $2 != 0 }
    END {
        printf "    %d faults;", all
        for (kind in kinds)
            printf " %s %d (%d ended the run)", kind, kinds[kind], ended[kind]
        printf "\n"
    }'
summary
result=$?
echo "campaign: $((trials - failures)) of $trials trials ended with the same bits"
exit $result

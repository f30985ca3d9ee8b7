#!/bin/bash
# campaign.sh LOCKSTEP [--trials N] [--seed S] [--jobs J] - every kind of fault of
# $LOCKSTEP_FAULT, at random ranks, steps and operations of random jobs in random layouts:
# kills, stops, delays, failing writes and allocations, flipped bits in weights and files. Each
# run ends in time and leaves no damaged checkpoint and no process; --resume auto continues in
# another layout, sometimes with a second fault, to the bits of a run without faults. J trials
# run at once; the same seed gives the same faults.
source "$(dirname "$(realpath "$0")")/apart.sh"
source "$(dirname "$(realpath "$0")")/resumes.sh"
program=$(realpath "$1")
trials=20 seed=$((RANDOM * 32768 + RANDOM)) side_by_side=2
read_options trials "${@:2}"

declare -A steps=([mlp]=48 [resnet]=18 [shard]=18 [cnn]=12)

# Faults.

# pick_rank, pick_step: sets $picked to a key of a fault.
pick_rank() {
    draw "$world"
    picked=rank=$drawn
}
pick_step() {
    draw "${steps[$job]}"
    picked=step=$((drawn + 1))
}
# pick_place: sets $where to a random site of a fault.
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
# Whether ranks are processes, and whether they are replicas.
has_processes() { [ "$world" -gt 1 ] && [[ " ${mode[*]}" = *" -n "* ]]; }
has_replicas() { [ "$world" -gt 1 ] && [[ " ${mode[*]}" != *" --stages "* ]]; }
# pick_bit: the sign or a bit of the exponent of a random weight. A bit of the fraction could be
# rounded away in the next step after it has changed the sums of all ranks.
pick_bit() {
    pick 31 31 31 23 24 25 26 27 28 29 30
    local of=$picked
    draw 100000
    bit=$((drawn * 32 + of))
}
# pick_fault: sets $fault and $kind; a fault that this layout cannot have is drawn again.
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

# A trial.

# faulty_run: runs $job in folder ck with $fault in $mode; sets $status. A wrong result must not
# be reported as right.
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
    sound ck out # changes $?
}
# trial NUMBER: one or two faults, then a run to the end.
trial() {
    local count i story=
    RANDOM=$(((seed + $1 * 7919) % 2147483647))
    for i in 1 2 3 4; do draw 2; done # similar seeds begin with similar numbers
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

# All of them.

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

#!/bin/bash
# inject.sh LOCKSTEP VICTIM - faults of $LOCKSTEP_FAULT: each happens once, at its site only, and
# has the same effects as a real fault.
source "$(dirname "$(realpath "$0")")/apart.sh"
program=$(realpath "$1") victim=$(realpath "$2")

# Eight steps; every rank prints a line for each.
train=("$program" train --data digits --model mlp --max-steps 8 --quiet --log-interval 1 --log-ranks all)
untested=("${train[@]}" --no-test)

# drill FAULT COMMAND...: runs COMMAND with the fault; status 124 if it hangs.
drill() {
    LOCKSTEP_FAULT=$1 timeout -k 5 60 "${@:2}" >out 2>err </dev/null
    status=$?
}
steps_are() { # COUNT RANK
    local count
    count=$(grep -c "\[rank $2\] Train Epoch" out)
    [ "$count" -eq "$1" ] || complain "$count steps of rank $2, not $1"
}
# blamed RANK HOW: the last message of the launcher names RANK.
blamed() {
    grep -v '^its last lines\|^    ' err | tail -n 1 | grep -q "^lockstep [a-z]*: rank $1 on host [^ ]* (pid [0-9]*) $2" ||
        complain "the last word is not of rank $1"
}

# Kill, stop, delay.

# unstruck FAULT...: these faults are named at the end as those that never struck, each once.
unstruck() {
    [ "$(grep -c ' never struck' err)" -eq $# ] || complain "not $# faults that never struck"
    for fault; do
        grep -q "lockstep train: LOCKSTEP_FAULT: $fault never struck" err || complain "'$fault never struck' is not told"
    done
}

# killed FAULT RANK STEPS COMMAND...: RANK is killed after STEPS steps.
killed() {
    drill "$1" "${@:4}"
    status_is 137
    steps_are "$3" "$2"
    blamed "$2" "was killed by SIGKILL"
}
# Two processes of two threads: rank 2 is in the second process, which is rank 1 of the launcher.
killed_nested() {
    drill kill:rank=2,step=3 "$program" run -n 2 "${threads[@]}" --parallel dp
    status_is 137
    steps_are 2 2
    blamed 1 "was killed by SIGKILL"
}
# If ranks are threads, all of them die with their process.
killed_whole() { # FAULT RANK STEPS COMMAND...
    drill "$1" "${@:4}"
    status_is 137
    steps_are "$3" "$2"
}
killed_testing() {
    killed kill:rank=1,op=eval 1 8 "${train[@]}" -n 2
    ! grep -q 'Test set' out || complain "the test came to its end"
}
spared() { # FAULT COMMAND...
    drill "$1" "${@:2}"
    status_is 0
    steps_are 8 0
    steps_are 8 1
    said err "$1"
    unstruck "$1"
}
# Of several faults those that struck are not named at the end. A fault without a rank counts at rank 0.
struck_in_part() {
    drill "delay:rank=0,step=2,seconds=.1;alloc:rank=1,op=load;write:op=eval;slow:op=data,seconds=.01" "${two[@]}"
    status_is 0
    unstruck alloc:rank=1,op=load write:op=eval
    said err "write:op=eval never struck at rank 0"
    drill "delay:step=1,seconds=.1" "${two[@]}"
    status_is 0
    unstruck
}
# A job of one rank has no calls of a group.
struck_never_alone() {
    drill "kill:op=allreduce" "${untested[@]}"
    status_is 0
    unstruck kill:op=allreduce
    drill "kill:rank=1" "${untested[@]}"
    status_is 0
    unstruck kill:rank=1
    said err "the job has no such rank"
}
stopped() { # FAULT RANK STEPS COMMAND...
    drill "$1" "${@:4}" --timeout 2
    status_is 1
    steps_are "$3" "$2"
    grep -q -e "rank $2 on host .* stayed stopped for 2 s" -e "waited 2 s in .* for ranks\? .*$2" err ||
        complain "nobody names the rank that is stopped"
}
# The result must be that of a run without delay.
delayed() { # FAULT SECONDS COMMAND...
    "${@:3}" >calm 2>&1 </dev/null
    local began=${EPOCHREALTIME/./}
    drill "$1" "${@:3}"
    ((${EPOCHREALTIME/./} - began >= $2 * 1000000)) || complain "it did not wait"
    status_is 0
    grep -q '^State hash' out || complain "there is no hash"
    [ "$(grep '^State hash' out)" = "$(grep '^State hash' calm)" ] || complain "the result is another"
}

# Memory, disks, bits.

no_memory() { # FAULT RANK COMMAND...
    drill "$1" "${@:3}"
    status_is 1
    said err "no memory for "
    [ "$2" = - ] || blamed "$2" "exited with status 1"
}
# One of two ranks fails, and the group reports it to the other.
no_memory_for_all() { # FAULT COMMAND...
    drill "$1" "${@:2}"
    status_is 1
    said err "no memory for "
}
disk_full() { # FAULT COMMAND...
    drill "$1" "${@:2}" --save-model model.safetensors
    status_is 1
    said err "No space left on device"
    [ -z "$(find . -name '*model*' -o -name '.lk*')" ] || complain "left: $(find . -name '*model*' -o -name '.lk*')"
}
# The check after step 4 finds the bit that changed in step 3. Of three ranks one is named, of two
# both.
flipped() { # FAULT TEXT COMMAND...
    drill "$1" "${@:3}" --check-every 2
    status_is 1
    steps_are 3 0
    grep -q "step 4: $2" err || complain "'step 4: $2' is not told"
}
flipped_in_file() {
    drill flip:op=save,bit=3 "${untested[@]}" --save-model other.safetensors
    status_is 0
    "${untested[@]}" --save-model model.safetensors >calm 2>&1 </dev/null
    [ "$(cmp -l model.safetensors other.safetensors | wc -l)" -eq 1 ] || complain "not one byte is another"
}

# Texts.

refused() { # FAULT TEXT COMMAND...
    drill "$1" "${@:3}"
    status_is 2
    [ ! -s out ] || complain "something was done"
    said err "LOCKSTEP_FAULT" "$2"
}

# All of them.

side_by_side=2 # these cases compute
two=("${untested[@]}" -n 2)
threads=("${untested[@]}" --devices cpu:0,cpu:1)
with kill-step killed kill:rank=1,step=5 1 4 "${two[@]}"
with kill-step-0 killed kill:rank=0,step=5 0 4 "${two[@]}"
with kill-third killed kill:rank=1,op=step,nth=3 1 2 "${two[@]}"
with kill-broadcast killed kill:rank=1,op=broadcast 1 0 "${two[@]}"
with kill-allreduce killed kill:rank=0,op=allreduce,step=4 0 3 "${two[@]}" --backend tcp
with kill-message killed kill:rank=1,op=message,step=2 1 1 "${two[@]}" --stages 2
with kill-eval killed_testing
with kill-nested killed_nested
with kill-threads killed_whole kill:rank=1,step=3 1 2 "${threads[@]}"
with kill-single killed_whole kill:step=8 0 7 "${untested[@]}"
with spared-rank spared kill:rank=2,step=5 "${two[@]}"
with spared-step spared kill:rank=1,step=9 "${two[@]}"
with spared-threads spared kill:rank=1,step=9 "${threads[@]}"
with spared-single struck_never_alone
with spared-some struck_in_part
with spared-launcher spared kill:op=save,rank=1 "${two[@]}"
with delay-step delayed delay:rank=1,step=3,seconds=2 2 "${two[@]}"
with delay-twice delayed "delay:rank=1,step=3,seconds=1;delay:rank=0,step=6,seconds=1" 2 "${two[@]}"
with alloc-0 no_memory alloc:rank=0 0 "${two[@]}"
with alloc-1 no_memory alloc:rank=1,nth=3 1 "${two[@]}"
with alloc-step no_memory_for_all alloc:rank=1,op=step "${two[@]}"
with alloc-broadcast no_memory_for_all alloc:rank=0,op=broadcast "${two[@]}"
with alloc-threads no_memory alloc:rank=1,op=step - "${threads[@]}"
with alloc-single no_memory alloc:nth=20 - "${untested[@]}"
with write-single disk_full write "${untested[@]}"
with write-ranks disk_full write:rank=0,nth=2 "${two[@]}"
with flip-3 flipped flip:rank=1,step=3 "rank 1 differs from the other replicas in chunk1.1.weight" "${untested[@]}" -n 3
with flip-2 flipped flip:rank=0,step=3,bit=22 "ranks 0 and 1 differ in " "${two[@]}"
with flip-threads flipped flip:rank=1,step=3 "ranks 0 and 1 differ in chunk1.1.weight" "${threads[@]}"
with flip-file flipped_in_file
with refused-empty refused "" "is set, but empty" "${untested[@]}"
with refused-action refused "kil:rank=1" "did you mean 'kill'?" "${two[@]}"
with refused-second refused "kill:step=99;stop:op=alreduce" "character 22: no operation 'alreduce'" "${untested[@]}"
with refused-key refused "kill:seconds=1" "character 6: no key 'seconds'" "${untested[@]}"
# LOCKSTEP_FAULT works in every program that uses the library.
with program-kill killed kill:rank=1,op=allreduce,nth=3 1 0 "$program" run -n 3 "$victim" --iterations 1000
with program-fails no_memory alloc:rank=0,op=gather 0 "$program" run -n 2 "$victim" --call gather
leftovers "faults on request"
side_by_side=4 # these cases wait
for way in shm tcp; do
    with "stop-$way" stopped stop:rank=1,step=3 1 2 "${two[@]}" --backend $way
done
with stop-message stopped stop:rank=0,op=message,step=3 0 2 "${two[@]}" --stages 2
leftovers "stops on request"
summary

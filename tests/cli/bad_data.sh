#!/bin/bash
# bad_data.sh PROGRAM IMAGES - files of a data set that change while a run reads them: the run ends at all
# ranks, with an error that names the file and the change.
program=$1 command=train images=$(realpath "$2")
. "$(dirname "$0")/jobs.sh"

# Images are read again in every epoch; the number of epochs is larger than the script waits for.
fresh() {
    rm -rf pets
    mkdir -p pets/train/cat pets/train/dog pets/val/cat
    for number in 1 2 3 4; do cp "$images/rgb.png" "pets/train/cat/$number.png"; done
    cp "$images/palette.png" "$images/grey.png" pets/train/dog
    cp "$images/rgb.png" pets/val/cat
}
task=(--data pets --model mlp --augment 'resize=12,center_crop=12' --batch-size 2 --epochs 1000000 --log-interval 1)
fresh
if "$program" train "${task[@]}" --dry-run 2>&1 | grep 'this build cannot read'; then
    echo "skipped: it takes PNG"
    exit 77
fi

trained() { grep -qs '^Train Epoch: 3' out; }
# upset TEXT CHANGE... -- ARGUMENTS... - makes the change during a run. The run must end with that text about
# pets/train/cat/2.png.
upset() {
    local text=$1 change=()
    shift
    while [ "$1" != -- ]; do
        change+=("$1")
        shift
    done
    shift
    line="$command $* while: ${change[*]}"
    fresh
    begin "$program" train "${task[@]}" "$@"
    check "$line: it does not train" await 60 trained
    "${change[@]}"
    finish "$job"
    check "$line: exit status $status, not 1" test $status -eq 1
    said err "pets/train/cat/2.png" "$text"
    check "$line: ranks are left" test -z "$(left)"
}
# A new file that is renamed over the old one, and a change inside the old one.
shorten() { truncate -s 60 pets/train/cat/2.png; }
replace() { cp "$images/grey.png" pets/new && mv pets/new pets/train/cat/2.png; }
lengthen() { echo more >>pets/train/cat/2.png; }

for way in "--num-workers 0" "-n 2 --num-workers 2" "--devices cpu:0,cpu:1"; do
    upset "bytes and has 60 now; start again" shorten -- $way
    upset "No such file or directory; it was there when the folder was listed" rm pets/train/cat/2.png -- $way
done
upset "changed while it was in use: it had " replace -- --num-workers 2
upset "changed while it was in use: it had " lengthen -- -n 2 --stages 2 --num-workers 0

# An image that was truncated before the run. One rank reads it and reports it, the launcher names that rank,
# and the other ranks do not repeat the error.
once() { # PROCESSES
    check "$line: the reason is told once" test "$(cat err* | grep -c 'pets/train/cat/2.png')" -eq "$1"
    check "$line: calls are listed" test "$(cat err* | grep -c 'the last calls\|done in')" -eq 0
}
fresh
shorten
for way in "-n 3" "-n 3 --checkpoint kept --save-every 1"; do
    run 1 "${task[@]}" --batch-size 3 $way
    said err "lockstep train: rank "
    [ "$way" = "-n 3" ] && once 1
    check "$line: ranks repeat it" test "$(grep -c 'gave up' err)" -eq 0
done
run_by_hand() { # FOLDER...
    local r pids=()
    for r in 0 1 2; do
        timeout -s KILL 60 "$program" train "${task[@]}" --data "${@:r+1:1}" --batch-size 3 --init-method "file://$PWD/meeting" --rank $r \
            --world-size 3 >out.$r 2>err.$r </dev/null &
        pids+=($!)
    done
    wait "${pids[@]}"
}
rm -f err
line="train --rank R --world-size 3 by hand"
run_by_hand pets pets pets
once 3
check "$line: two say whose reason it is" test "$(cat err.* | grep -c 'gave up')" -eq 2

# The images differ in size.
fresh
cp -r pets more
cp "$images/rgb.png" more/train/dog
line="train by hand, with other data"
run_by_hand pets more pets
said err.0 "rank 1 has --data more, 7 training samples of several sizes in 2 classes"

conclude

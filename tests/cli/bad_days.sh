#!/bin/bash
# bad_days.sh PROGRAM - checkpoints under failures: a full or read-only disk, and files that are truncated,
# altered, of another run or of a later version. Each time there is a message, the last good checkpoint is
# intact, no process is left, and the run resumes to the same bits. The script needs a mount namespace for its
# disks; it exits with 77 where it cannot have one.
if [ -z "${BAD_DAYS_APART:-}" ]; then
    for flags in -m -rm; do
        unshare $flags mount -t tmpfs none /mnt 2>/dev/null && BAD_DAYS_APART=yes exec unshare $flags bash "$0" "$@"
    done
    echo "skipped: no file systems of one's own here"
    exit 77
fi
unset BAD_DAYS_APART
program=$1 command=train
. "$(dirname "$0")/jobs.sh"

task=(--model mlp --batch-size 32 --epochs 1 --max-steps 12 --no-test --save-every 3 --keep 9)
run 0 "${task[@]}" --checkpoint whole
whole=$(hash_of)
intact() { check "$line: what is in $1 is whole" "$program" verify --quiet "$1"; }
nobody() { check "$line: nobody is left" test -z "$(left)"; }
copy() { rm -rf "$1" && cp -r whole "$1"; }

# Disks.

mkdir disk
mount -t tmpfs -o size=1800k none disk # two checkpoints of 700 kB
for ranks in 1 2; do
    rm -rf disk/ck
    run 1 "${task[@]}" --checkpoint disk/ck -n $ranks
    said err "No space left on device" "the last good checkpoint is disk/ck/step-000000006" "--resume auto"
    nobody
    intact disk/ck
    check "$line: nothing unfinished is left" test -z "$(ls -d disk/ck/.lk-* 2>/dev/null)"
    run 1 "${task[@]}" --checkpoint disk/ck -n $ranks --resume auto
    said out "going on from disk/ck/step-000000006"
    said err "No space left on device" "the last good checkpoint is disk/ck/step-000000006"
    intact disk/ck
done
mount -o remount,size=8m disk
run 0 "${task[@]}" --checkpoint disk/ck --resume auto
said out "going on from disk/ck/step-000000006"
ends_alike

mount -o remount,ro disk
run 1 "${task[@]}" --checkpoint disk/new
said err "disk/new" "Read-only file system"
run 1 --resume disk/ck/step-000000012
said err "disk/ck" "Read-only file system"
check "$line: no step was taken" test ! -s out
run 0 --resume disk/ck/step-000000009 --checkpoint elsewhere -n 2
ends_alike
umount disk

mkdir disk/ck disk/ck/step-000000003
touch disk/ck/step-000000003/checkpoint.json disk/file
run 1 --resume disk/ck
said err "disk/ck/step-000000003" "no checkpoint in disk/ck is whole, of 1"
refused "disk/file" -- "${task[@]}" --checkpoint disk/file

refused "that is a file" "--init-from" -- --resume disk/file
mkdir disk/taken disk/taken/best
refused "disk/taken" "'best'" -- "${task[@]}" --checkpoint disk/taken
copy renamed
mv renamed/step-000000003 renamed/step-000000099
run 0 --resume renamed
said out "passed over: renamed/step-000000099 is a checkpoint of step 3, unlike its name"

# Files.

# damaged TEXT... - the newest checkpoint is refused where it is named, and skipped otherwise.
damaged() {
    local text
    for text in "$@"; do
        run 1 --resume ck/step-000000012 --checkpoint none
        said err "ck/step-000000012" "$text"
    done
    run 0 --resume ck
    said out "passed over: ck/step-000000012" "going on from ck/step-000000009" "$@"
    ends_alike
    intact ck
}
flip() { # FILE BYTE BIT
    local old
    old=$(od -An -tu1 -j "$2" -N 1 "$1")
    printf "\\x$(printf %02x $((old ^ 1 << $3)))" | dd of="$1" bs=1 seek="$2" conv=notrunc status=none
}

for file in model.safetensors optimizer.safetensors checkpoint.json; do
    copy ck
    truncate -s -7 ck/step-000000012/$file
    damaged "$file"
    copy ck
    rm ck/step-000000012/$file
    if [ $file = checkpoint.json ]; then
        refused "ck/step-000000012" -- --resume ck/step-000000012
        run 0 --resume ck
        ends_alike
    else
        damaged "$file"
    fi
    copy ck
    flip ck/step-000000012/$file 1003 4
    damaged "$file"
done
copy ck
flip ck/step-000000012/model.safetensors 100000 0
damaged "chunk1.1.weight"

run 0 --model mlp:hidden=32 --max-steps 12 --no-test --batch-size 32 --save-model other.safetensors
copy ck
cp other.safetensors ck/step-000000012/model.safetensors
damaged "model.safetensors"
copy ck
cp whole/step-000000009/model.safetensors ck/step-000000012/model.safetensors
damaged "model.safetensors"

copy ck
sed -i 's/^"version": 1,/"version": 2,/' ck/step-000000012/checkpoint.json
damaged "later version"

conclude

#!/bin/bash
# folder.sh PROGRAM IMAGES - training on a folder of images: the same weights with any number of ranks and
# workers, `lockstep eval` of the saved model prints the last test line of training, and errors name files.
program=$1 command=train images=$(realpath "$2")
. "$(dirname "$0")/jobs.sh"

# put FOLDER NAME... - copies these images into the folder.
put() {
    mkdir -p "$1"
    for name in "${@:2}"; do cp "$images/$name" "$1"; done
}
put pets/train/cat rgb.png grey.png rgb.jpg wide.jpg
put pets/train/dog/deeper palette.png rgba.png fine.jpg progressive.jpg cmyk.jpg
put pets/val/cat rgb.png fine.jpg interlaced.png
put pets/val/dog palette.png grey.jpg

augment=(--augment 'resized_crop=28,flip,jitter=.4/.4/.4/.1')
task=(--data pets --model cnn "${augment[@]}" --batch-size 6 --epochs 3 --log-interval 1)
if "$program" train "${task[@]}" --dry-run 2>&1 | grep 'this build cannot read'; then
    echo "skipped: it takes JPEG and PNG"
    exit 77
fi

lines() { grep -e '^Train Epoch' -e '^Test set' "$1"; }
run 0 "${task[@]}" --num-workers 0 --save-model single.safetensors
said out "9 training and 5 test samples, 2 classes"
lines out >wanted
check "two batches and a test an epoch" test "$(wc -l <wanted)" -eq 9
check "epochs differ" test "$(grep '^Train Epoch' wanted | sed 's/.*Loss/Loss/' | sort -u | wc -l)" -eq 6
said out "  loader       could give " " img/s with 1 thread; steps waited "
for way in "--num-workers 2" "--num-workers auto --threads 1" "-n 2 --num-workers 0" "-n 2 --num-workers 2" "-n 3" "-n 2 --stages 2"; do
    run 0 "${task[@]}" $way --save-model other.safetensors
    check "$line: compare is silent" test -z "$("$program" compare single.safetensors other.safetensors 2>&1)"
    check "$line: other tests" cmp -s <(grep '^Test set' out) <(grep '^Test set' wanted)
done
run 0 "${task[@]}" --num-workers 2 --seed 2 --save-model other.safetensors
check "$line: another seed has other weights" test -n "$("$program" compare single.safetensors other.safetensors 2>&1)"

# eval of the saved model transforms images as training does.
command='eval'
for workers in 0 2; do
    run 0 single.safetensors --data pets --model cnn "${augment[@]}" --num-workers $workers
    check "$line: other figures" test "$(grep '^Test set' out)" = "$(grep '^Test set' wanted | tail -n 1)"
done
# With --test-augment, eval does not need the transforms of training.
run 0 single.safetensors --data pets --model cnn --test-augment resize=32,center_crop=28
check "$line: other figures" test "$(grep '^Test set' out)" = "$(grep '^Test set' wanted | tail -n 1)"
refused "--augment: no transform 'foo'" -- single.safetensors --data pets --model cnn --augment foo \
    --test-augment resize=32,center_crop=28
command=train

# Images of equal size need no transform that fixes the size; test images of that size are not changed.
put one/train/cat rgb.png
put one/train/dog rgb.jpg
put one/val/cat rgb.png
same=(--data one --model cnn --batch-size 2 --epochs 1)
run 0 "${same[@]}" --augment none --save-model as_they_are.safetensors
check "$line: no transform is told" test "$(grep -c '^training images' out)" -eq 0
grep '^Test set' out >wanted
run 0 "${same[@]}" --augment flip -n 2
said out "training images: flip; test images: as they are"
run 0 "${same[@]}" --augment none --test-augment resize=29/37 --save-model resized.safetensors
check "$line: compare is silent" test -z "$("$program" compare as_they_are.safetensors resized.safetensors 2>&1)"
command='eval'
run 0 as_they_are.safetensors --data one --model cnn --augment none
check "$line: other figures" cmp -s out wanted
command=train
put one/val/dog grey.png
run 0 "${same[@]}" --augment none
said out "test images: resize="
put one/train/dog grey.png
refused "resized_crop=N" "one/train/cat/rgb.png has 37 by 29 pixels" "one/train/dog/grey.png 11 by 16" -- "${same[@]}" \
    --augment none

# A resumed run must have the same images: their contents are compared, not their times. Bytes after an image's
# end give two different files of one size.
cp -r pets ours
padded() { cp "$images/$1" ours/train/dog/deeper/palette.png && truncate -s 20000 ours/train/dog/deeper/palette.png; }
padded palette.png
run 0 "${task[@]}" --data ours --save-model single.safetensors
run 0 "${task[@]}" --data ours --epochs 1 --checkpoint ck --save-model other.safetensors
cp -r ours copied
find copied -type f -exec touch -d 2001-01-01 {} +
run 0 --resume ck --epochs 3 --data copied --checkpoint on -n 2 --save-model other.safetensors
check "$line: compare is silent" test -z "$("$program" compare single.safetensors other.safetensors 2>&1)"
touch -r ours/train/dog/deeper/palette.png when
padded rgba.png
touch -r when ours/train/dog/deeper/palette.png
for way in "" "-n 2"; do
    run 1 --resume ck --epochs 3 --checkpoint off $way
    said err "--data ours" "the content of at least one of its 9 training images has changed" "ck/step-000000002" "put the images back"
    check "$line: no step was taken" test -z "$(grep '^Train Epoch' out)"
done

# Ranks whose images have the same names but other contents. by_hand ROOT OTHER OPTIONS... - starts two
# processes, each with its own images; both end at once, with one error each.
by_hand() {
    local rank port jobs=() folders=("$1" "$2")
    port=$(free_port)
    line="train by hand --data ${folders[*]} ${*:3}"
    rm -f out.? err.?
    for rank in 0 1; do
        timeout -s KILL 60 "$program" train "${@:3}" --data "${folders[rank]}" --rank $rank --world-size 2 --timeout 100 \
            --init-method "tcp://127.0.0.1:$port" >out.$rank 2>err.$rank </dev/null &
        jobs+=($!)
    done
    for rank in 0 1; do
        finish "${jobs[rank]}"
        check "$line: rank $rank ends with $status" test $status -eq 1
        check "$line: rank $rank took no step" test -z "$(grep '^Train Epoch' out.$rank)"
    done
}
# The first of 16 images is equal, the others are not.
for i in $(seq 10 25); do
    for own in here there; do mkdir -p $own/train/cat && cp "$images/rgb.png" $own/train/cat/$i.png; done
    [ "$i" -eq 10 ] || printf there >>there/train/cat/$i.png
done
small=(--model mlp --augment none --no-test --batch-size 8 --epochs 1 --log-interval 1)
by_hand here there "${small[@]}"
for rank in 0 1; do
    said err.$rank "rank 1 has --data there, whose training images differ in content though names and labels agree" \
        "of 16 of 16 files" "rank 0 has --data here"
done
# The sample at the start misses one changed image of many; resuming detects it and reports it to all ranks.
for i in $(seq 100 229); do cp "$images/rgb.png" here/train/cat/$i.png; done
printf here >>here/train/cat/100.png
rm -r there && cp -r here there
run 0 "${small[@]}" --data here --checkpoint many
printf last >there/tail
dd if=there/tail of=there/train/cat/100.png bs=1 seek=$(($(stat -c %s there/train/cat/100.png) - 4)) conv=notrunc status=none
by_hand here there "${small[@]}" --epochs 2 --resume many
said err.1 "--data there: the content of at least one of its 146 training images has changed"
said err.0 "rank 1 gave up: --data there: the content of at least one of its 146 training images has changed"

# Errors name the file.
refused "--augment: no transform 'foo'" -- "${task[@]}" --augment foo
refused "--test-augment: no transform 'foo'" -- "${task[@]}" --test-augment foo
head -c 700 "$images/fine.jpg" >pets/train/dog/deeper/fine.jpg
printf '\xff\xd9' >>pets/train/dog/deeper/fine.jpg
for way in "" "-n 2"; do
    run 1 "${task[@]}" $way
    said err "pets/train/dog/deeper/fine.jpg: damaged at about byte"
done
head -c 500 "$images/rgb.png" >pets/train/cat/rgb.png
rm pets/train/dog/deeper/fine.jpg
run 1 "${task[@]}"
said err "pets/train/cat/rgb.png: cut off: it ends at byte 500"
mv pets/val away
refused "no test split" "pets lacks val/CLASS" "--no-test" -- "${task[@]}"

conclude

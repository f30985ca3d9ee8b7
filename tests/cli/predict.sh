#!/bin/bash
# predict.sh PROGRAM IMAGES - a saved model knows what it is: `eval` needs no options, with any number of ranks, and
# `predict` prints classes of images. IMAGES is a folder of image files.
program=$1 images=$2 command=""
. "$(dirname "$0")/jobs.sh"
unset LOCKSTEP_DATA
export HOME=$scratch XDG_CACHE_HOME=$scratch/cache
fits=(--test-augment "resize=28,center_crop=28")

run 0 train --model mlp --max-steps 30 --save-model model.safetensors --checkpoint ck
last=$(grep 'Test set' out)
run 0 convert model.safetensors model.pth
# The same file without its notes, as other programs write it.
LC_ALL=C sed 's/lockstep\./lockstop./g' model.safetensors >old.safetensors

# eval.
run 0 eval model.safetensors
check "eval says '$(cat out)', train said '$last'" test "$(cat out)" = "$last"
check "eval has something to say" test ! -s err
run 0 eval model.safetensors --json
cp out one
for n in 2 3; do
    run 0 eval model.safetensors --json -n $n
    check "eval -n $n says another thing" cmp -s out one
done
run 0 eval model.safetensors --json --devices cpu:0,cpu:1
check "eval on two devices says another thing" cmp -s out one
run 0 eval ck/best --json -n 2
check "eval of a checkpoint says another thing" cmp -s out one
run 2 eval model.safetensors --devices cpu:0,cpu:1 -n 3
said err "-n 3" "2 devices are named"
run 1 eval model.safetensors --model cnn
said err "--model cnn contradicts model.safetensors, which says mlp; cnn is used"
run 0 eval model.pth --json
check "eval of a .pth says another thing" cmp -s out one
run 1 eval old.safetensors
said err "old.safetensors does not say which model it has: --model cnn is assumed"
said err "old.safetensors does not say which data it was trained on: --data digits is assumed"
run 0 eval old.safetensors --model mlp --json
said err "lockstep eval: old.safetensors does not say which data it was trained on: --data digits is assumed"
check "the model was given" test "$(grep -c 'which model' err)" -eq 0
run 0 eval old.safetensors --model mlp --data digits --json
check "nothing is assumed: $(cat err)" test ! -s err
check "eval of an old file says another thing" cmp -s out one

# info.
run 0 info model.safetensors
said out "notes:" "mlp" "1x28x28" "0.1307" '["0","1","2"'

# predict.
run 0 predict model.safetensors "$images/rgb.png" "${fits[@]}"
check "not five classes: $(cat out)" test "$(tr -cd % <out | wc -c)" -eq 5
run 0 predict model.safetensors "$images/rgb.png" "${fits[@]}" --top 2 --json
said out '"event":"predict"' '"image":"' '"index":' '"name":"' '"probability":0.'
check "not two classes: $(cat out)" test "$(grep -o '"index"' out | wc -l)" -eq 2
run 0 predict ck/best "$images/rgb.png" "${fits[@]}" --top 2 --json
cp out two
run 0 predict model.pth "$images/rgb.png" "${fits[@]}" --top 2 --json
check "predict by a .pth says another thing" cmp -s out two
run 0 predict old.safetensors "$images/rgb.png" "${fits[@]}" --top 2 --json --model mlp --data digits
check "predict by an old file says another thing" cmp -s out two
# Errors name the file, and the others are read.
mkdir pictures
cp "$images/rgb.png" pictures/a.png
head -c 40 "$images/rgb.png" >pictures/b.png
cp "$images/fine.jpg" pictures/c.jpg
echo nothing >pictures/text
run 1 predict model.safetensors pictures absent.png "${fits[@]}"
said err "pictures/b.png" "absent.png"
said out "pictures/a.png: " "pictures/c.jpg: "
check "not two images: $(cat out)" test "$(wc -l <out)" -eq 2
run 1 predict model.safetensors pictures absent.png "${fits[@]}" --json
check "an object for each image: $(cat out)" test "$(wc -l <out)" -eq 4
said out '"image":"pictures/b.png","error":"' '"image":"absent.png","error":"'
said err "pictures/b.png" "absent.png"
run 0 eval model.safetensors -q
said out "Test set: "
mkdir empty
run 1 predict model.safetensors empty
said err "empty: the folder has no image"
run 1 predict model.safetensors "$images/rgb.png"
said err "37x29 pixels" "28x28" "--test-augment resize=28,center_crop=28"
run 2 predict model.safetensors
said err "a model file and an image"
run 1 predict "$images/rgb.png" model.safetensors
said err "rgb.png is an image, no model"
run 2 predict old.safetensors "$images/rgb.png"
said err "does not say what it is" "--model NAME"

conclude

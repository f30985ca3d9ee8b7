#!/bin/bash
# shared_data.sh PROGRAM - ranks of a host read each data file once: every number of ranks gives the same bits, a damaged
# file is the same error as without ranks, and a rank that dies while it reads ends the job.
program=$1 command=train
. "$(dirname "$0")/jobs.sh"

noise() { "$program" info >/dev/null && head -c "$1" < <(for ((i = 0; i < 40; i++)); do cat "$program"; done); }
mkdir set cifar
idx set/train 256 < <(noise $((256 * 784)))
idx set/t10k 64 < <(noise $((64 * 784)))
gzip -n set/*
for file in data_batch_{1,2,3,4,5} test_batch; do
    for ((i = 0; i < 8; i++)); do byte $i && noise 3072; done >cifar/$file.bin
done

task=(--model mlp --data set --batch-size 48 --epochs 1 --quiet --optimizer adam)
run 0 "${task[@]}"
whole=$(hash_of)
check "there is a hash" test ${#whole} -eq 16
said out "Test set: "
for ranks in 1 2 3 8; do
    run 0 "${task[@]}" -n $ranks
    ends_alike
done
run 0 "${task[@]}" -n 2 --devices cpu:0,cpu:1
ends_alike
run 0 "${task[@]}" --devices cpu:0,cpu:1,cpu:2
ends_alike
run 0 "${task[@]}" -n 2 --backend tcp
ends_alike
run 0 "${task[@]}" -n 3 --val-split .25
divided=$(hash_of)
run 0 "${task[@]}" --val-split .25
hash_is "$divided"

records=(--model mlp --data cifar --batch-size 16 --epochs 1 --quiet --optimizer adam)
run 0 "${records[@]}"
whole=$(hash_of)
for ranks in 2 5; do
    run 0 "${records[@]}" -n $ranks
    ends_alike
done

# Damage after the header, which is found when the images are read.
cp -r set damaged
size=$(stat -c %s damaged/train-images-idx3-ubyte.gz)
printf 'xyz' | dd of=damaged/train-images-idx3-ubyte.gz bs=1 seek=$((size - 7)) conv=notrunc status=none
cp -r cifar wrong
printf '\377' | dd of=wrong/data_batch_4.bin bs=1 seek=3073 conv=notrunc status=none
for folder in damaged wrong; do
    run 1 --model mlp --data $folder --batch-size 16
    alone=$(sed 's/^lockstep: //' err | head -1)
    check "$line: the file is not named" grep -q "$folder/" err
    run 1 --model mlp --data $folder --batch-size 16 -n 3
    said err "$alone"
done

# Ranks that die while they read, with all others waiting for the file; and slow ones. Which rank reads is left to chance.
LOCKSTEP_FAULT=kill:op=read run 137 "${task[@]}" -n 3
said err "was killed by SIGKILL"
LOCKSTEP_FAULT=delay:op=read,seconds=.5 run 0 "${task[@]}" -n 3
check "nothing is left" test -z "$(left)"
conclude

#!/bin/bash
# info.sh PROGRAM - `lockstep info` lists the GPUs. `lockstep info --model` prints published numbers, as text
# and as JSON, and reports mistakes.
program=$1 command=info
. "$(dirname "$0")/jobs.sh"
unset LOCKSTEP_DATA
export HOME=$scratch XDG_CACHE_HOME=$scratch/cache

# The machine may have GPUs or none, and the build may have CUDA or not.
run 0
said out "devices:" "  cpu " "  cuda "
check "$line: neither a GPU nor why there is none" grep -qE 'no GPU: .|cuda:0: .*, compute capability [0-9]+\.[0-9]' out
CUDA_VISIBLE_DEVICES='' run 0
said out "no GPU: "

# The same lists in JSON.
run 0
cp out text
run 0 --json
check "$line: more than one line" test "$(wc -l <out)" -eq 1
said out '{"version":"' '"devices":[{"name":"cpu","summary":"' '{"name":"cuda","summary":"' '"kernels":[{"name":"' \
    '"libraries":[{"name":"' '"present":' '"models":[{"name":"' '"name":"cnn","summary":"' '"params":"' \
    '"optimizers":[{"name":"sgd"' '"schedules":[{"name":"'
if command -v python3 >/dev/null; then
    # Every name of the text is in the JSON.
    check "$line: lists and names" python3 - <<'END'
import json
info, text = json.load(open("out")), open("text").read()
lists = {key: rows for key, rows in info.items() if key != "version"}
assert len(lists) == sum(line.endswith(":") and line[0] != " " for line in text.splitlines()), sorted(lists)
for key, rows in lists.items():
    for row in rows:
        shown = f"  {row['summary']}\n" if key == "rendezvous" else f"\n  {row['name']} "
        assert shown in text, (key, row)
assert "lockstep " + info["version"] in text
END
fi

# A model file and a checkpoint.
"$program" train --model mlp --max-steps 2 --no-test --quiet --save-model mlp.safetensors --checkpoint ck >trained 2>&1
hash=$(sed -n 's/^State hash //p' trained)
run 0 mlp.safetensors
said out "notes:" "hash $hash"
run 0 mlp.safetensors --json
check "$line: more than one line" test "$(wc -l <out)" -eq 1
said out '{"notes":{' '"tensors":[{"name":"' '"dtype":"f32","shape":[' "\"hash\":\"$hash\"}"
run 0 ck/step-000000002 --json
check "$line: more than one line" test "$(wc -l <out)" -eq 1
said out '{"position":{' '"step":"2"' '"options":{' '"model":"mlp"' '"model":{"tensors":[' '"optimizer":{"tensors":['

run 0 --model pyramidnet
said out "pyramidnet for 3x32x32, 10 classes" "24,253,410 in 415 tensors" "880 entries" "4.04 GMAC" "24.2 GFLOP" \
    "64 samples a step, adadelta" "layer3.16.conv2" "271x8x8"
run 0 --model cnn
said out "1,199,882 in 8 tensors" "64x24x24" "10,616,832" "optimiser's state"
run 0 --model cnn --data digits --batch-size 2
said out "cnn for 1x28x28, 10 classes" "2 samples a step"
run 0 --model vgg16:cifar
said out "vgg16:cifar for 3x32x32, 10 classes" "14,728,266"
run 0 --model mlp --micro-batch 4
said out "64 samples a step, 4 at once"
# BatchNorm needs all samples of a step at once.
run 0 --model resnet20 --micro-batch 4
check "$line: 4 at once" test "$(grep -c 'at once' out)" -eq 0

# A step on the device says what computes the layers.
run 0 --model cnn --devices cpu --batch-size 2
said out "on cpu, fp32, 2 samples in 16 shards:" "own kernels compute all layers"
run 0 --model cnn --devices cpu --batch-size 2 --shards 2 --json
said out '"device":"cpu","precision":"fp32","device_layers":[]'
run 0 --model cnn --devices cpu --batch-size 2 --precision auto
said out "on cpu, fp32, 2 samples in 16 shards:"
run 0 --model cnn --devices cpu --batch-size 2 --precision bf16
said out "on cpu, bf16, 2 samples in 16 shards:"
fails 2 "takes one device, as in --devices cpu" -- --model cnn --devices cpu,cpu
fails 2 "add --devices cpu, or --devices cuda:0" -- --model cnn --precision bf16

# The same as one JSON object.

run 0 --model cnn --json --batch-size 32 --optimizer sgd:momentum=.9
check "$line: more than one line" test "$(wc -l <out)" -eq 1
said out '"parameters":1199882' '"entries":8' '"macs":11992448' '"forward_flops":23984896' '"train_flops":71954688' \
    '"batch_size":32' '"input":[1,28,28]' '"name":"fc2","output":[10,1,1],"parameters":1290,"macs":1280' \
    '"memory_bytes":{"parameters":4799552,"gradients":4799552,"optimizer":4799552,'
run 0 --model cnn --json --optimizer sgd
said out '"optimizer":0,'
run 0 --model resnet50:cifar --input 3x32x32 --classes 100 --json
said out '"parameters":23705252' '"classes":100' '"entries":320'

# Mistakes.

refused "no model 'cn'" "'cnn'" -- --model cn
refused "no parameter 'cifra'" "'cifar'" -- --model resnet18:cifra
refused "--input" "3x32x32" -- --model cnn --input 3x32
refused "--input" "3x32x32" -- --model cnn --input 3x32x32x1
refused "--data and --input" -- --model cnn --input 1x28x28 --data digits
refused "vgg16:cifar" -- --model vgg16 --input 3x32x32
refused "no optimiser 'adm'" "'adam'" -- --model cnn --optimizer adm
refused "except --json" "--model NAME" -- --batch-size 2
refused "except --json" -- file.safetensors --json --devices cpu
refused "not both" -- --model cnn file.safetensors

conclude

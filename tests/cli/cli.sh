#!/bin/bash
# cli.sh PROGRAM - runs the program as a user does: exit statuses, messages for every kind of mistake, and the
# files that it writes.
program=$1 command=
files=$(realpath "$(dirname "$0")/../io/data")
. "$(dirname "$0")/jobs.sh"
trap 'chmod -R u+w "$scratch" && rm -rf "$scratch"' EXIT
unset LOCKSTEP_DATA LOCKSTEP_ISA
export HOME=$scratch XDG_CACHE_HOME=$scratch/cache
refused() { fails "$@"; } # STATUS TEXT... -- ARGUMENTS...

# A data set of 96 training and 40 test images of 8x8 grey pixels in IDX files.
bytes() { for number in "$@"; do printf "\\x$(printf %02x "$number")"; done; }
make_split() { # PREFIX COUNT
    {
        bytes 0 0 8 3 0 0 0 "$2" 0 0 0 8 0 0 0 8
        for ((i = 0; i < $2 * 64; i++)); do printf '%b' "\\$(printf %03o $(((i * i / 7 + i) % 251)))"; done
    } >"tiny/$1-images-idx3-ubyte"
    {
        bytes 0 0 8 1 0 0 0 "$2"
        for ((i = 0; i < $2; i++)); do printf '%b' "\\$(printf %03o $((i % 10)))"; done
    } >"tiny/$1-labels-idx1-ubyte"
}
mkdir tiny
make_split train 96
make_split t10k 40
train=(train --model mlp --data tiny --threads 2)

# Help, version and commands.
run 0 --version
said out "lockstep "
run 2
said err "train" "compare"
run 0 help
said out "train" "run" "eval" "compare" "convert" "bench" "info" "help"
for name in train run eval compare convert bench info help; do
    run 0 help $name
    cp out long
    run 0 $name --help
    check "help $name and $name --help are the same" cmp -s out long
done
run 0 help train
said out "--batch-size N" "(default 64)" "--save-model [PATH]" "--bn batch|shard" "(default adadelta)" "(default .7)"
run 0 help compare
said out "the exit status is the result"
check "help compare says nothing of train" test "$(grep -c 'progress' out)" -eq 0
run 0 help eval
said out "one batch only"
run 0 help bench
said out "predict and train run on one device" "bench train, predict: where to compute, on one device"
refused 2 "runs on one device, and 2 are named" -- bench train --devices cpu:0,cpu:1
run 0 info
said out "cnn" "mlp" "resnet20" "digits" "mnist" "adadelta" "step" "cpu"
refused 2 "no command 'trian'" "'train'" -- trian
refused 2 "no command 'xyzzy'" "lockstep help" -- xyzzy
refused 2 "no command 'trian'" -- help trian

# --data-dir without the name of a data set.
for words in "train --dry-run" "eval model.safetensors" "bench train --steps 1" "info --model mlp"; do
    refused 2 "--data-dir nowhere says where data are" "--data mnist --data-dir nowhere" -- $words --data-dir nowhere
done

# Wrong options.
refused 2 "'--epoch'" "'--epochs'" -- train --epoch 3
refused 2 "'--sav_model'" "'--save-model'" -- train --sav_model
refused 2 "--zzzzzzzzz" "--help" -- train --zzzzzzzzz
refused 2 "--epochs needs a value" -- train --epochs
refused 2 "--epochs needs a value" -- train --epochs --quiet
refused 2 "--epochs 'x'" "whole number" -- train --epochs x
refused 2 "--stages needs a value" -- train --stages -n 2
refused 2 "--epochs '-1'" "from 0" -- train --epochs -1
refused 2 "--gpu-ids is empty" "0,1" -- train --gpu-ids ''
refused 2 "--devices is empty" "cuda:0,cuda:1" -- train --devices ''
refused 2 "--batch-size '0'" "from 1" -- train --batch-size 0
refused 2 "--batch-size '-4'" "from 1" -- train --batch_size=-4
refused 2 "--lr '0'" -- train --lr 0
refused 2 "--lr 'nan'" -- train --lr nan
refused 2 "--shards '5000'" "4096" -- train --shards 5000
refused 2 "--bn 'shrad'" "'shard'" -- train --bn shrad
refused 2 "--devices 'gpu'" "cuda" -- train --devices gpu
refused 2 "one device" "--devices cpu:0" -- predict model.safetensors image.png --devices cpu:0,cpu:1
refused 2 "--quiet takes no value" -- train --quiet=1
refused 2 "too many" "'digits'" -- train digits
refused 2 "cnm" "cnn" -- train --model cnm --data tiny
refused 2 "dropuot" "dropout" -- train --model cnn:dropuot=0
refused 2 "sdg" "sgd" -- train --optimizer sdg --data tiny
refused 2 "momentun" "momentum" -- train --optimizer sgd:momentun=.9 --data tiny
refused 2 "stepp" "step" -- train --schedule stepp
refused 2 "--gamma" "--schedule" -- train --schedule constant --gamma .5
refused 2 "flop" "flip" -- train --augment flop --data tiny
refused 2 "hidden=8.5" "whole number" -- train --model mlp:hidden=8.5 --data tiny
refused 2 "size=1.5" "whole number" -- train --schedule step:size=1.5
refused 2 "flip is there twice" -- train --augment flip,flip --data tiny
refused 2 "--save-model is empty" -- train --save-model ''
refused 2 "--save-model is empty" -- train --save-model=
refused 2 "--bn shard" "--sync-bn" "contradict" -- train --bn shard --sync-bn
refused 2 "--bn shard" "--sync-bn" "contradict" -- train --sync-bn --bn shard
refused 2 "'-h -q'" -- train -hq
refused 2 "-q takes no value" "'=3'" -- train -q=3
refused 2 "'none'" "alone" -- train --augment flip,none --data tiny
refused 2 "mnits" "mnist" -- train --data mnits
refused 2 "cifar10" "looked in" "./data" -- train --data cifar10
# A given folder is the only one that is searched.
mkdir -p data && cp -r tiny data/mnist
run 0 train --data mnist --model mlp --dry-run --quiet
for name in "train --data" "info --model mlp --data" "bench data --data" "data verify"; do
    refused 2 "data set 'mnist' was not found; looked in nowhere, which is not there, for mnist/" \
        "--data-dir" "'lockstep data get mnist --data-dir nowhere'" -- $name mnist --data-dir nowhere
done
rm -r data
refused 2 "no transform 'cutout' (known: crop, " -- train --augment cutout --data tiny
refused 2 "-n '0'" "auto, gpu or a whole number from 1" -- train -n 0
refused 2 "-n 'x'" "auto, gpu or a whole number from 1" -- run -n x true
refused 2 "--gpu-devices 'x'" "'--gpu-devices 0,1'" -- train --gpu-devices x
refused 2 "--gpu-idx 'x'" -- train --gpu-idx=x
refused 2 "--no-cuda and --gpu-devices 0,1 contradict" -- train --gpu-devices 0 1 --no-cuda
refused 2 "no program 'train'" "'lockstep run -n 2 lockstep train'" "'lockstep train -n 2'" -- run -n 2 train --model mlp
refused 2 "no program 'eval'" "'lockstep run -n 1 lockstep eval'" -- run eval x.pth
refused 2 "--parallel ddp" "-n 2" "lockstep run" "leave --parallel out" -- train --parallel ddp
refused 2 "wants two" -- compare one
refused 2 "too many" "c" -- compare a b c
refused 2 "what to measure" -- bench
refused 2 "'kernel'" "'kernels'" -- bench kernel
RANK=0 WORLD_SIZE=2 refused 2 "starts its ranks itself" "-n N" -- bench train --model mlp --steps 1
refused 2 "model file" -- eval
check "nothing was written by commands that were refused" test -z "$(find . -name '*safetensors*')"

# Log lines like those of the reference program, and both spellings of options.
run 0 "${train[@]}" --epochs 2 --batch_size=32 --log-interval 2 --save_model model.safetensors
said out "data tiny (96 training and 40 test samples, 10 classes)" "model mlp" "parameters" "cpu with 2 threads" "16 shards" "seed 1"
said out "learning rate: first 1, highest 1, last 0.7"
said out "Train Epoch: 1 [0/96 (0%)]	Loss: " "Train Epoch: 1 [64/96 (67%)]	Loss: " "Train Epoch: 2 [64/96 (67%)]"
said out "Test set: Average loss: " "/40 (" "Total Training Time " "Model saved to model.safetensors" "State hash "
check "one test line an epoch" test "$(grep -c '^Test set: ' out)" -eq 2
check "log lines of batches 0 and 2 only" test "$(grep -c '^Train Epoch: 1 ' out)" -eq 2
check "nothing on stderr" test ! -s err
check "the model was saved" test -s model.safetensors
check "nothing was left beside the model" test "$(find . -name '*model.saf*' -o -name '.lk-*' | wc -l)" -eq 1
said out "options: batch-size 32, epochs 2, optimizer adadelta, lr 1, schedule step:size=1,gamma=0.7"
said out "  accuracy " "  time " "  speed " "  steps        data " " compute " " waiting 0.0 %" "  loader       could give " "  peak memory "
last=$(grep '^Test set: ' out | tail -1)
hash=$(sed -n 's/^State hash //p' out)
# --quiet: the last results only, unless other options ask for lines.
run 0 "${train[@]}" --epochs 2 --batch-size 32 --quiet
check "--quiet prints three lines" test "$(wc -l <out)" -eq 3
said out "$last" "Total Training Time " "State hash $hash"
check "--quiet leaves stderr empty" test ! -s err
run 0 "${train[@]}" --epochs 2 --batch-size 32 --quiet --log-interval 2
said out "data tiny " "Train Epoch: 2 [64/96 (67%)]" "State hash $hash"
check "--quiet has no table" test "$(grep -c '^  ' out)" -eq 0
run 0 "${train[@]}" --epochs 2 --batch-size 32 --quiet --json
said out '"event":"start"' '"event":"step"' '"event":"test"' '"rank_times":[{"rank":0,"device":"cpu","samples":192,"data_s":' \
    '"compute_s":' '"wait_s":0,' "\"state_hash\":\"$hash\""
run 0 "${train[@]}" --dry-run --clip-norm 5 --label-smoothing .1 --bn shard --optimizer sgd:momentum=.9 --lr .5 --drop-last
said out "dry-run, " "optimizer sgd:momentum=.9, lr 0.5, clip-norm 5, label-smoothing 0.1, " ", drop-last" ", bn shard"

# The first lines show the learning rates of the steps: here two of three epochs, one of them a warm-up.
run 0 "${train[@]}" --epochs 2 --batch-size 32 --lr .3 --schedule cosine:by_step=1,warmup=1
said out "learning rate: first 0.1, highest 0.3, last 0.075"
run 0 "${train[@]}" --epochs 2 --batch-size 32 --schedule cosine:warmup=3 --dry-run
said out "the warm-up of 9 steps is longer than the run: the learning rate never reaches its full value"
run 0 "${train[@]}" --epochs 2 --batch-size 32 --schedule cosine:warmup=2
check "a warm-up as long as the run comes to its end" test "$(grep -c 'never reaches' out)" -eq 0
# A finished run says how to continue: with more epochs only if the rates of past steps stay the same.
for schedule in "cosine:warmup_steps=1,by_step" "cosine:epochs=9,by_step" constant; do
    rm -rf done
    run 0 "${train[@]}" --epochs 1 --batch-size 32 --schedule $schedule --checkpoint done
    run 0 train --resume done
    cp out complete
    "$program" train --resume done --epochs 2 >out 2>err </dev/null
    longer=$?
    check "$schedule: what is said of more epochs is true" \
        test "$(grep -c 'a larger one goes on' complete)" -eq $((longer == 0))
done
run 0 "${train[@]}" --epochs 1 --batch-size 32 --schedule cosine:by_step --checkpoint done.too
run 0 train --resume done.too
said out "done.too/step-000000003 has all steps that --epochs 1 asks for, and the rates of --schedule cosine:by_step depend" \
    "the run is complete; --init-from done.too/step-000000003/model.safetensors starts another from its model"
run 0 "${train[@]}" --epochs 2 --batch-size 32 --lr .3 --schedule cosine:by_step=1,warmup=1 --json
said out '"lr_first":0.1' '"lr_highest":0.3' '"lr_last":0.075'
run 0 "${train[@]}" --epochs 2 --batch-size 32 --lr .25 --schedule constant --max-steps 2
said out "learning rate: 0.25 in all steps"

# eval repeats the last test line.
run 0 eval model.safetensors --model mlp --data tiny --threads 1
check "eval says '$(cat out)', train said '$last'" test "$(cat out)" = "$last"
run 0 eval --init-from model.safetensors --model mlp --data tiny --test-batch-size 7
check "eval with another batch size" test "$(cat out)" = "$last"
# eval needs the same option as training where training changes the size of images.
run 0 "${train[@]}" --epochs 1 --augment resize=16 --save-model small.pth
small=$(grep '^Test set: ' out | tail -1)
run 0 eval small.pth --model mlp --data tiny --augment resize=16
check "eval says '$(cat out)', train said '$small'" test "$(cat out)" = "$small"
rm small.pth
refused 1 "model.safetensors" -- eval model.safetensors --model cnn:dropout=0
refused 1 "(the model is cnn; --model NAME says which model the file has)" -- eval model.safetensors --model cnn --data tiny
refused 2 "give one" -- eval model.safetensors --init-from model.safetensors --model mlp --data tiny
refused 2 "absent.safetensors" -- eval absent.safetensors --model mlp --data tiny
run 0 info model.safetensors
said out "weight" "f32" "$hash"

# Keys come from a file, so they are escaped on the terminal.
hostile() { # FILE BYTE
    local header='{"a\u001b[2J\u009b":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}'
    { bytes ${#header} 0 0 0 0 0 0 0 && printf '%s' "$header" && bytes "$2"; } >"$1"
}
hostile one.safetensors 1
hostile two.safetensors 2
run 0 info one.safetensors
said out 'a\u001b[2J\u009b' "u8"
run 1 compare one.safetensors two.safetensors
said out 'a\u001b[2J\u009b: '
refused 1 "one.safetensors" -- eval one.safetensors --model mlp --data tiny
check "no escape character is printed" test -z "$(tr -dc '\033\233' <err)"

# The same bits for every division of the work; other bits for another seed.
run 0 "${train[@]}" --epochs 2 --batch-size 32 --threads 3 --micro-batch 5 --num-workers 0 --save-model again.safetensors
said out "State hash $hash"
run 0 compare model.safetensors again.safetensors
check "compare of equal models prints nothing" test ! -s out -a ! -s err
run 0 "${train[@]}" --epochs 2 --batch-size 32 --seed 2 --save-model other.safetensors
run 1 compare model.safetensors other.safetensors
said out "weight"
run 1 compare --quiet model.safetensors other.safetensors
check "compare --quiet prints nothing" test ! -s out -a ! -s err
refused 2 "absent.safetensors" -- compare model.safetensors absent.safetensors
head -c 100 model.safetensors >cut.safetensors
refused 2 "cut.safetensors" -- compare cut.safetensors model.safetensors

# PyTorch's format is chosen by the file's ending when writing and by its content when reading.
refused 2 "wants a model file" -- convert model.safetensors
refused 2 "model.txt" ".safetensors (" ".pth (PyTorch)" -- convert model.safetensors model.txt
refused 2 "'model'" ".safetensors (" ".pth (PyTorch)" -- convert model.safetensors model
refused 2 "one file" -- convert model.safetensors ./model.safetensors
refused 2 "absent.pth" -- convert absent.pth new.safetensors
run 0 convert model.safetensors model.pth
said out "model.pth" "tensors" "$hash"
if "$program" info model.pth 2>&1 | grep -q "without libzip"; then
    echo "reading .pth files is left out: this build has no libzip"
else
    run 0 compare model.safetensors model.pth
    check "a .pth has the same bits" test ! -s out -a ! -s err
    run 0 convert -q model.pth back.safetensors
    check "convert --quiet prints nothing" test ! -s out -a ! -s err
    check "there and back: the same file" cmp model.safetensors back.safetensors
    run 0 info model.pth
    said out "weight" "f32" "$hash"
    # Names with the prefix of DistributedDataParallel are kept.
    run 0 info "$files/torch_2.15.pth"
    said out "module.conv.weight"
    mv out theirs
    run 0 convert "$files/torch_2.15.pth" module.safetensors
    run 0 info module.safetensors
    check "convert keeps all names" cmp <(cut -c -40 theirs | sort) <(cut -c -40 out | sort)
    run 0 convert module.safetensors module.pth
    run 0 compare module.safetensors "$files/torch_2.15.pth"
    run 0 compare module.pth "$files/torch_2.15.pth"
    run 0 eval model.pth --model mlp --data tiny
    check "eval of a .pth" test "$(cat out)" = "$last"
    run 0 "${train[@]}" --init-from model.pth --epochs 0 --save-model same.pt
    check "through training of no step: the same file" cmp model.pth same.pt
    head -c 5000 model.pth >cut.pth
    refused 1 "cut.pth" -- info cut.pth
    refused 1 "cut.pth" -- convert cut.pth new.safetensors
    check "nothing is left of a conversion that failed" test ! -e new.safetensors
fi

# A run that starts from a file and makes no step changes nothing.
run 0 "${train[@]}" --init-from model.safetensors --epochs 0 --save-model same.safetensors
run 0 compare model.safetensors same.safetensors
refused 1 "cut.safetensors" -- "${train[@]}" --init-from cut.safetensors
refused 2 "--init-from: cannot open absent.safetensors" -- "${train[@]}" --init-from absent.safetensors
run 0 train --data tiny --model mlp:hidden=8 --dry-run --quiet --save-model small.safetensors
refused 1 "small.safetensors" -- "${train[@]}" --init-from small.safetensors

# Short runs.
run 0 "${train[@]}" --dry-run
check "a dry run is one step" test "$(grep -c '^Train Epoch' out)" -eq 1
check "a dry run is one test" test "$(grep -c '^Test set' out)" -eq 1
run 0 "${train[@]}" --max-steps 4 --batch-size 32 --log-interval 1
check "--max-steps 4 is four steps" test "$(grep -c '^Train Epoch' out)" -eq 4
run 0 "${train[@]}" --epochs 1 --no-test
check "--no-test" test "$(grep -c '^Test set' out)" -eq 0
run 0 "${train[@]}" --epochs 1 --gamma 1000
run 0 train --model resnet20:width=2 --data tiny --dry-run --micro-batch 4
said out "--micro-batch has no effect here"
run 0 train --model resnet20:width=2 --data tiny --dry-run --micro-batch 4 --bn shard
check "--micro-batch works with --bn shard" test "$(grep -c 'no effect' out)" -eq 0
run 0 "${train[@]}" --dry-run --save-model
said out "Model saved to tiny_mlp.safetensors"
run 0 "${train[@]}" --dry-run --no-cuda --sync-bn --save-model 'rank-{rank}.safetensors'
check "{rank} is the rank" test -s rank-0.safetensors
run 0 train --model mlp --dry-run
said out "data digits (built in, as --data was not given"

# A path where the model cannot be saved is an error before training.
refused 2 "--save-model" "missing" -- "${train[@]}" --save-model missing/model.safetensors
refused 2 "--save-model" "is not a folder" -- "${train[@]}" --save-model model.safetensors/x.safetensors
refused 2 "--save-model" "is a folder" -- "${train[@]}" --save-model tiny
refused 2 "--save-model" "not a regular file" -- "${train[@]}" --save-model /dev/null
refused 2 "--save-model 'x.onnx'" ".safetensors" ".pth" ".pt" -- "${train[@]}" --save-model x.onnx
refused 2 "--save-model 'x.0'" ".safetensors" -- "${train[@]}" --save-model 'x.{rank}'
run 0 "${train[@]}" --dry-run --save-model bare
check "a name without an ending is safetensors" test "$(head -c 9 bare | tail -c 1)" = '{'
rm bare
refused 2 "--save-model" "/proc/model.safetensors" -- "${train[@]}" --save-model /proc/model.safetensors
mkdir locked && chmod a-w locked
if ! touch locked/probe 2>/dev/null; then
    refused 1 "--save-model" "locked" -- "${train[@]}" --save-model locked/model.safetensors
fi

# A failed run leaves the old model as it was.
cp model.safetensors kept.safetensors
run 1 "${train[@]}" --optimizer sgd --lr 1000000 --epochs 50 --save-model kept.safetensors
said err "lockstep: " "loss" "--lr"
check "a failed run leaves the old model" cmp -s model.safetensors kept.safetensors
check "a failed run leaves no other file" test "$(find . -name '*kept.saf*' -o -name '.lk-*' | wc -l)" -eq 1

# Non-finite weights are neither loaded nor saved.
not_finite() { # FILE - a copy of model.safetensors that ends in a NaN
    { head -c -4 model.safetensors && bytes 0 0 192 127; } >"$1"
}
not_finite nan.safetensors
refused 1 "nan.safetensors: key " "not finite" -- eval nan.safetensors --model mlp --data tiny
refused 1 "nan.safetensors: key " "not finite" -- "${train[@]}" --init-from nan.safetensors
run 0 "${train[@]}" --optimizer sgd --lr 1000000 --epochs 1 --no-test --save-model vast.safetensors
refused 1 "vast.safetensors: the average loss is not finite" "every weight is" -- \
    eval vast.safetensors --model mlp --data tiny

# A limit on file sizes gives an error and no signal, and no file is left. The limit is
# above what ThreadSanitizer's runtime writes at its start.
line="train under ulimit -f"
(ulimit -f 1000 && "$program" train --model cnn --quiet --dry-run --save-model large.safetensors >out 2>err)
check "a limit on file sizes is status 1" test $? -eq 1
said err "large.safetensors" "File too large"
said out "State hash"
said err "large.safetensors is not written"
check "a limit on file sizes leaves nothing" test -z "$(find . -name 'large.saf*' -o -name '.lk-*')"
: >large.safetensors
(ulimit -f 1000 && "$program" train --model cnn --quiet --dry-run --save-model large.safetensors >out 2>err)
said err "large.safetensors is left as it was"
check "no word of a model that is not saved" test "$(grep -c 'Model saved' out)" -eq 0
rm large.safetensors

# Saving follows links; the longest file names work.
mkdir away && ln -s away/target.safetensors link.safetensors
run 0 "${train[@]}" --dry-run --save-model link.safetensors
check "a dangling link's target is written" test -L link.safetensors -a -s away/target.safetensors
cp model.safetensors away/target.safetensors
run 0 "${train[@]}" --dry-run --save-model link.safetensors
check "a link stays" test -L link.safetensors
check "a link's target is replaced" test "$(cmp -s model.safetensors away/target.safetensors; echo $?)" -eq 1
ln -s loop.safetensors loop.safetensors
refused 2 "circle" -- "${train[@]}" --dry-run --save-model loop.safetensors
long=$(printf 'n%.0s' {1..238}).safetensors
run 0 "${train[@]}" --dry-run --save-model "$long"
check "a name of 250 characters" test -s "$long"
refused 2 "too long" -- "${train[@]}" --save-model "nnnnnnnnnn$long"

# A pipe in place of a file is an error; the program does not block.
mkfifo pipe
refused 2 "pipe is not a regular file" -- compare pipe model.safetensors
refused 1 "pipe is not a regular file" -- eval pipe --model mlp --data tiny
refused 1 "pipe is not a regular file" -- "${train[@]}" --init-from pipe
for file in train-images-idx3-ubyte t10k-labels-idx1-ubyte; do
    cp -r tiny piped && rm piped/$file && mkfifo piped/$file
    refused 1 "$file is not a regular file" -- train --data piped --model mlp
    rm -r piped
done

# Malformed data.
cp -r tiny short && head -c 500 tiny/train-images-idx3-ubyte >short/train-images-idx3-ubyte
refused 1 "train-images-idx3-ubyte" -- train --data short --model mlp
cp -r tiny wrong && head -c 48 tiny/t10k-images-idx3-ubyte >wrong/t10k-labels-idx1-ubyte
refused 1 "t10k-labels-idx1-ubyte" -- train --data wrong --model mlp
if command -v gzip >/dev/null; then
    cp -r tiny packed && gzip packed/*
    run 0 train --data packed --model mlp --epochs 2 --batch-size 32 --quiet
    said out "State hash $hash"
    head -c 200 packed/t10k-images-idx3-ubyte.gz >torn && mv torn packed/t10k-images-idx3-ubyte.gz
    run 1 train --data packed --model mlp --batch-size 32 --log-interval 1 --quiet
    said err "t10k-images-idx3-ubyte.gz"
    check "a torn test file is found at once" test "$(grep -c '^Train Epoch' out)" -le 1
    # More data than zlib reads for the header: 512 images that cannot be compressed.
    { bytes 0 0 8 3 0 0 2 0 0 0 0 8 0 0 0 8 && head -c 32768 model.safetensors; } |
        gzip >packed/t10k-images-idx3-ubyte.gz
    { bytes 0 0 8 1 0 0 2 0 && head -c 512 /dev/zero; } | gzip >packed/t10k-labels-idx1-ubyte.gz
    run 0 train --data packed --model mlp --dry-run --quiet
    size=$(wc -c <packed/t10k-images-idx3-ubyte.gz)
    crc=$(od -An -tu1 -j $((size - 6)) -N 1 packed/t10k-images-idx3-ubyte.gz)
    bytes $((crc ^ 1)) | dd of=packed/t10k-images-idx3-ubyte.gz bs=1 seek=$((size - 6)) conv=notrunc 2>/dev/null
    run 1 train --data packed --model mlp --batch-size 32 --log-interval 1 --quiet
    said err "t10k-images-idx3-ubyte.gz" "incorrect data check" "download the file again"
    check "a wrong checksum is found after the first step" test "$(grep -c '^Train Epoch' out)" -eq 1
    run 1 train --data packed --model mlp --max-steps 1 --quiet --save-model learned.safetensors
    said err "incorrect data check" "the model was saved to learned.safetensors"
    run 0 info learned.safetensors
fi
mkdir empty
refused 2 "empty" -- train --data empty --model mlp
cp -r tiny half && rm half/t10k-labels-idx1-ubyte
refused 2 "no test split" "half lacks t10k-labels-idx1-ubyte" "--no-test" -- train --data half --model mlp
run 0 train --data half --model mlp --max-steps 1 --no-test --quiet
rm half/train-images-idx3-ubyte
refused 2 "half lacks train-images-idx3-ubyte" -- train --data half --model mlp
refused 2 "'mnist'" "half lacks train-images-idx3-ubyte" -- train --data mnist --data-dir half
cp -r tiny denied && chmod a-r denied/train-images-idx3-ubyte
if ! cat denied/train-images-idx3-ubyte >/dev/null 2>&1; then
    refused 1 "train-images-idx3-ubyte" "Permission denied" -- train --data denied --model mlp
    chmod a-x denied
    refused 2 "denied" "Permission denied" -- train --data denied --model mlp
fi
chmod u+rwx denied

# With --json every line is one JSON object.
run 0 "${train[@]}" --epochs 1 --batch-size 32 --json
check "json: start, a step line, test, end" test "$(sed 's/.*"event":"\([a-z]*\)".*/\1/' out | tr '\n' ' ')" = \
    "start step test end "
check "json: the hash" grep -q '"state_hash":"[0-9a-f]\{16\}"' out
said out '"img_per_s":' '"first_step_s":' '"loss":' '"accuracy":'
if command -v python3 >/dev/null; then
    check "json: every line parses" python3 -c 'import json, sys; [json.loads(line) for line in sys.stdin]' <out
fi
run 0 eval model.safetensors --model mlp --data tiny --json
said out '"correct":' '"count":40'
run 0 bench train --model mlp --data tiny --batch-size 16 --steps 5 --json
said out '"img_per_s":' '"ms_per_step":'
run 0 bench train --model mlp --data tiny --batch-size 16 --steps 5
said out "img/s"
run 0 bench predict --model mlp --data tiny --steps 5
said out "one sample, 1 thread: median" "% of the peak"
run 0 bench predict --model mlp --data tiny --steps 5 --threads 2 --json
said out '"case":"predict"' '"threads":2' '"median_us":' '"peak_gflops":'
refused 2 "--steps 100001" -- bench predict --model mlp --data tiny --steps 100001
check "$line: one process waits for nobody" test -z "$(grep -E "rank|waiting" out)"
number='[-+.e0-9]+'
for how in "" --independent "--backend tcp --check-every 1 --bucket-mb .01" "--stages 2 --pipelined"; do
    run 0 bench train -n 2 --model mlp --data tiny --batch-size 16 --steps 3 --runs 3 --json $how
    check "$line: one line" test "$(wc -l <out)" -eq 1
    independent=$(test "$how" = --independent && echo true || echo false)
    said out '"ranks":2,' "\"independent\":$independent," '"batch_size":16,' '"threads":'
    for key in img_per_s ms_per_step wait_gradients_percent wait_gradients_percent_most wait_other_percent \
        wait_other_percent_most; do
        check "$line: $key" grep -qE "\"$key\":$number[,}]" out
    done
done
run 0 bench train -n 2 --model mlp --data tiny --batch-size 16 --steps 3
said out "2 ranks" "waiting for gradients"
run 0 bench train -n 2 --independent --model mlp --data tiny --batch-size 16 --steps 3
said out "2 independent ranks"
# Random images of any shape; with two ranks, all ranks draw the same.
run 0 bench train --model mlp --input 3x20x30 --classes 7 --batch-size 16 --steps 5 --json
said out '"data":"3x20x30"' '"batch_size":16,'
run 0 bench train -n 2 --model mlp --input 1x9x9 --batch-size 16 --steps 3 --check-every 1
said out "mlp on 1x9x9"
refused 2 "--input" "3x32x32" -- bench train --model mlp --input 3x20
refused 2 "--input" "1 or 3 channels" -- bench train --model mlp --input 2x20x20
refused 2 "--data and --input" -- bench train --model mlp --input 3x20x20 --data tiny
refused 2 "--classes" "--input" -- bench train --model mlp --classes 7
# An option of another case, also in the words of other programs and beside its own options.
for line in "data --input 3x20x20" "data --classes 7" "predict --stages 2" "predict --shards 4" "layers -n 2" \
    "layers --check-every 1" "train --repeat 3" "train --max-bytes 64" "kernels --model mlp" "kernels --num-workers 1" \
    "kernels --opt sgd --momentum .9" "allreduce --sync-bn" "allreduce --threads 2" "data --runs 1 --steps 3"; do
    words=($line)
    refused 2 "is an option of bench " "; bench ${words[0]} does not use it" -- bench "${words[@]}"
done
refused 2 "--stages is an option of bench train; bench predict" -- bench predict --stages 2
refused 2 "--input is an option of bench layers, train; bench data" -- bench data --input 3x20x20
refused 2 "-n is an option of bench allreduce, train; bench layers" -- bench layers -n 2
printf 'optimizer: sgd\n' >sgd.yaml
refused 2 "--optimizer is an option of bench layers, train; bench kernels" -- bench kernels --config sgd.yaml --momentum .9
refused 2 "--precision is an option of bench layers, predict, train" "from --amp" -- bench data --amp
# A file of options is made for training.
printf 'data: tiny\nmodel: mlp\nepochs: 1\n' >other.yaml
run 0 bench data --config other.yaml --runs 1
# Each layer of a step, beside limits.
run 0 bench layers --model mlp --data tiny --batch-size 16 --steps 3
said out "limits: " " GF/s, and " "linear " "forward" "backward" "% limit" "update" "rest" "step"
run 0 bench layers --model cnn --input 1x16x16 --batch-size 8 --steps 1 --threads 2 --json
said out '"case":"layers","layer":1,"name":"conv1","op":"conv2d","pass":"forward","ms":' '"limit_ms":' '"name":"step"'
refused 2 "--steps 10001" -- bench layers --model mlp --data tiny --steps 10001
refused 2 "--classes" "--input" -- bench layers --model mlp --classes 7
# A failure of all ranks is reported once.
refused 2 "no model 'nope'" -- bench train -n 2 --model nope
refused 2 "--shards 2" -- bench train -n 2 --model mlp --data tiny --shards 1
refused 2 "--independent" "-n 1" -- bench train -n 2 --model mlp --data tiny --batch-size 1 --independent
refused 2 "--independent" "--stages" -- bench train -n 2 --independent --stages 2
refused 2 "'shn'" "auto, shm, tcp, mpi, nccl" -- bench train -n 2 --backend shn

# bench allreduce prints a line for each implementation and size. Open MPI may be missing.
run 0 bench allreduce -n 2 --runs 1 --max-bytes 4096 --json
for peer in "lockstep" "lockstep, plain memory"; do
    check "$line: the sizes of $peer" test "$(grep -F "\"peer\":\"$peer\"" out |
        sed 's/.*"bytes":\([0-9]*\),.*/\1/' | tr '\n' ' ')" = "4 16 64 256 1024 4096 "
done
row="\\{\"bench\":\"allreduce\",\"peer\":\"[^\"]+\",\"backend\":\"auto\",\"ranks\":2,\"bytes\":[0-9]+"
row+=",\"us\":$number,\"algbw_gb_s\":$number,\"busbw_gb_s\":$number\\}"
check "$line: the keys of every line" test -s out -a -z "$(grep -vxE "$row" out)"
if command -v python3 >/dev/null; then
    check "$line: every line parses, the bus factor of two ranks is 1" python3 -c 'import json, sys
for line in sys.stdin:
    row = json.loads(line)
    assert row["us"] > 0 and row["algbw_gb_s"] == row["busbw_gb_s"] > 0' <out
fi
run 0 bench allreduce -n 1 --runs 1 --max-bytes 64 --backend shm
said out "one rank only" "1 rank, backend shm"
check "$line: a row for each size" test "$(grep -cE '^ +(4|16|64) ' out)" -eq 3
refused 2 "'shn'" "auto, shm, tcp, mpi, nccl" -- bench allreduce --backend shn
mkdir broken
printf '#!/bin/sh\nexit 3\n' >broken/mpirun
chmod +x broken/mpirun
PATH=$scratch/broken:$PATH run 0 bench allreduce -n 2 --runs 2 --max-bytes 4 --json
check "$line: told once" test "$(cat err)" = "Open MPI is not measured: mpirun exited with status 3"
check "$line: and left out" test "$(grep -c '"peer":"lockstep' out)" -eq 2 -a "$(wc -l <out)" -eq 2

# Output that cannot be written, and a reader that closes the pipe.
if [ -w /dev/full ]; then
    "$program" info >/dev/full 2>err
    check "a full disk behind stdout is status 1" test $? -eq 1
    check "and is told" grep -q "could not be written: No space left" err
    "$program" compare model.safetensors other.safetensors >/dev/full 2>err
    check "compare that cannot print tells nothing" test $? -eq 2
fi
line="info >&-"
"$program" info >&- 2>err
check "a closed stdout is status 1" test $? -eq 1
check "and says why" grep -q "could not be written: Bad file descriptor" err
line="train | head"
{ "$program" "${train[@]}" --epochs 3 --log-interval 1 2>err || true; } | head -1 >out
check "a closed pipe ends quietly" test ! -s err

conclude

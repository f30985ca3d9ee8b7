#!/bin/bash
# log_resume.sh PROGRAM - run folders and checkpoints: --resume auto with --log-dir alone, what a resumed run keeps, run
# folders as models and to verify, config.yaml from another directory and with --quiet.
program=$1 command=train
. "$(dirname "$0")/jobs.sh"
task=(--model mlp --batch-size 24 --epochs 1 --max-steps 12 --log-interval 2)
count() { find "$1" -mindepth 1 -maxdepth 1 | wc -l; }

run 0 "${task[@]}"
whole=$(hash_of)

# The same line goes on in the folder that it made.
again=("${task[@]}" --log-dir runs --save-every 3 --resume auto)
LOCKSTEP_FAULT='delay:step=8,seconds=1;kill:step=8' run 137 "${again[@]}"
said out "no run of this line in runs has a checkpoint yet: the run begins"
first=$(echo runs/*)
# Another line in the same folder, before it.
run 0 "${task[@]}" --log-dir runs --save-every 3 --resume auto --seed 2
said out "no run of this line in runs has a checkpoint yet"
check "$line: another folder" test "$(count runs)" -eq 2
# Other ranks, and no options of rows: those of the folder.
run 0 --model mlp --batch-size 24 --log-dir runs --resume auto -n 2
said out "going on from $first/checkpoints/step-00000000" "Run folder $first"
ends_alike
check "$line: no new folder" test "$(count runs)" -eq 2
check "$line: a row every two batches" test "$(cut -d, -f2 "$first/metrics.csv" | tr '\n' ' ')" = "step 1 3 5 7 9 11 12 "
check "$line: the first command is kept" grep -q '"command":.*"--max-steps".*"auto"\],' "$first/run.json"
check "$line: the later one is listed" grep -q '^			"command":.*"-n", "2"' "$first/run.json"
for text in '"augment":	"auto"' '"log-interval":	"2"' '"samples":	288'; do
    check "$line: run.json lacks $text" grep -qF "$text" "$first/run.json"
done
test_line=$(grep '^Test set' out)
refused "--resume auto: no run of this line" "add --save-every" -- "${task[@]}" --log-dir runs --resume auto --seed 3

# A repeat that does no step leaves the files as they are, and says the result that is known.
cp -r "$first" before
for steps in 12 6; do
    run 0 --model mlp --batch-size 24 --max-steps $steps --log-dir runs --save-every 3 --resume auto -q --log-interval 2
    ends_alike
    said out "$test_line"
    for file in run.json config.yaml metrics.csv final.safetensors; do
        check "$line: $file is another one" cmp -s "$first/$file" "before/$file"
    done
    run 0 --model mlp --batch-size 24 --max-steps $steps --log-dir runs --save-every 3 --resume auto
    check "$line: a speed without steps" test "$(grep -c '^  speed' out)" -eq 0
    check "$line: run.json is another one" cmp -s "$first/run.json" before/run.json
done

# Seconds count over resumes, also those after the last row: after a kill up to the checkpoint, else all.
timed=("${task[@]}" --log-interval 1000 --log-dir timed --save-every 3 --resume auto)
seconds_of() { sed -nE 's/^\t\t"seconds":\s*([0-9.]+),$/\1/p' timed/*/run.json; }
LOCKSTEP_FAULT='delay:step=2,seconds=1;delay:step=8,seconds=1;kill:step=8' run 137 "${timed[@]}"
run 0 "${timed[@]}"
ends_alike
seconds=$(seconds_of)
check "$line: seconds $seconds, more than the one before the checkpoint" awk -v s="$seconds" 'BEGIN { exit !(s > 1) }'
command=compare run 0 {"$first",timed/*}/checkpoints/step-000000012
sed -i -E 's/^(\t\t"seconds":\s*)[0-9.]+,$/\1 1000,/' timed/*/run.json
run 0 "${timed[@]}" --max-steps 13
seconds=$(seconds_of)
check "$line: seconds $seconds, more than 1000" awk -v s="$seconds" 'BEGIN { exit !(s > 1000) }'

# A run folder as a model, and its checkpoints and final state.
command=
run 0 eval "$first"
said err "the model is $first/final.safetensors"
check "$line: $(cat out), not $test_line" test "$(cat out)" = "$test_line"
run 0 verify "$first"
said out "step-000000012: whole" "final.safetensors: whole; state hash $whole"
cp -r "$first" damaged
printf x | dd of=damaged/final.safetensors bs=1 seek=5000 conv=notrunc status=none
run 1 verify damaged
said out "final.safetensors: damaged: its state hash is" "run.json has $whole"
run 1 verify damaged --json
said out '"whole":false,"why":"its state hash is'
sed -i 's/"status":	"done"/"status":	"running"/' damaged/run.json
run 0 eval damaged
said err "the model is damaged/checkpoints/step-000000012"
rm -r damaged/checkpoints
run 2 eval damaged
said err "damaged is the folder of a run that is not done" "--save-every"
sed -i 's/"hash":/"was":/' damaged/run.json
run 2 verify damaged
said err "nothing to verify: damaged is the folder of a run that is not done"

# Other commands name the file.
for words in "info $first" "compare $first $first" "convert $first to.pth" "train --model mlp --init-from $first"; do
    # shellcheck disable=SC2086 # several words
    run 2 $words
    said err "$first is a run folder; name $first/final.safetensors"
done

# The file of options: its log-interval is not typed, so -q is quiet; its paths are whole.
run 0 train --config "$first/config.yaml" -q
check "$line: is not quiet: $(head -3 out)" test "$(grep -c 'Train Epoch' out)" -eq 0
ends_alike
run 0 train --config "$first/config.yaml" -q --log-interval 4
check "$line: what was typed counts" test "$(grep -c 'Train Epoch' out)" -eq 3
run 0 train "${task[@]}" --init-from "$first/first.safetensors" --log-dir from --no-test
whole=$(hash_of)
(mkdir elsewhere && cd elsewhere && timeout 60 "$program" train --config ../from/*/config.yaml -q) >out 2>err
line="from elsewhere"
ends_alike

# A run.json that cannot be read is not passed over in silence.
cp -r "$first" runs/damaged
head -c 300 "$first/run.json" >runs/damaged/run.json
command=train
run 0 --model mlp --batch-size 24 --log-dir runs --resume auto -q
said err "lockstep train: --resume auto: the folder of a run with checkpoints is passed over: runs/damaged/run.json"
refused "no run of this line" "passed over: runs/damaged/run.json" -- "${task[@]}" --log-dir runs --resume auto --seed 3
rm -r runs/damaged

# Data that were found by name: the file has their folder.
mkdir -p here/data/mnist there
idx here/data/mnist/train 96 </dev/urandom
idx here/data/mnist/t10k 24 </dev/urandom
# named FOLDER VARIABLE - trains in FOLDER; the file must do the same elsewhere.
named() {
    (cd "$1" && LOCKSTEP_DATA=$2 timeout 60 "$program" train --model mlp --data mnist --batch-size 24 --epochs 1 \
        --log-dir named) >out 2>err
    whole=$(hash_of)
    (cd elsewhere && LOCKSTEP_DATA='' timeout 60 "$program" train --config ../"$1"/named/*/config.yaml -q) >out 2>err
    line="data of $1, from elsewhere"
    check "$line: there is no hash" test -n "$whole"
    ends_alike
}
named here ''
named there ../here/data
check "built-in data need no folder" test "$(grep -c data-dir "$first/config.yaml")" -eq 0

conclude

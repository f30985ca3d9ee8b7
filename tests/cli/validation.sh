#!/bin/bash
# validation.sh PROGRAM - results of --val-split and the end by --early-stop: printed, in run.json, in the tables of
# report and sweep.
program=$1 command=train
. "$(dirname "$0")/jobs.sh"
# A small data set: the sanitizers' builds run this script too.
mkdir pixels
seq 1 400000 | idx pixels/train 800
seq 1 400000 | idx pixels/t10k 200
export LOCKSTEP_DATA=$scratch
small=(--model mlp --data pixels)
task=("${small[@]}" --epochs 1 --max-steps 20 --batch-size 32 --val-split .2)
# A rate of almost nothing: no epoch is better than the first.
still=("${small[@]}" --batch-size 9 --lr 1e-30 --optimizer sgd)

# A quiet run prints the results that it has.
run 0 "${task[@]}" --no-test --quiet
said out "Validation set: Average loss: "
check "$line: no test was asked for" test "$(grep -c 'Test set' out)" -eq 0
run 0 "${task[@]}" --quiet
said out "Validation set: " "Test set: "

run 0 "${task[@]}" --log-dir runs
percent=$(sed -n 's/^  validation *\([0-9.]*\) %$/\1/p' out)
check "$line: no validation in the closing table" test -n "$percent"
check "$line: no test in the closing table" grep -q '^  accuracy  ' out
check "$line: run.json lacks it" awk -v p="$percent" '/"val_top1":/ { found = sprintf("%.2f", $2) == p } END { exit !found }' \
    runs/*/run.json
said "$(echo runs/*/run.json)" '"val_loss":' '"val_top5":' '"test_top1":'
check "$line: no early end" test "$(grep -c early_stop runs/*/run.json)" -eq 0
command=report run 0 runs -o page.html
said page.html "<th>best validation %</th>" "<td>$percent</td>"

run 0 "${still[@]}" --epochs 9 --val-split .2 --early-stop 2 --no-test --log-dir early
early="Ended early, after epoch 3 of 9: no better validation accuracy in 2 epochs; the best was"
said out "$early" "after epoch 1" "The best weights were not kept; --save-every epoch keeps them"
command=report run 0 early -o page.html
said page.html "<dt>ended early</dt><dd><code>no better validation accuracy in 2 epochs; the best was" "after epoch 1<"
for text in '"status":	"done"' '"early_stop":' '"data":	"validation"' '"epochs_without_better":	2'; do
    check "run.json lacks $text" grep -qF -- "$text" early/*/run.json
done
run 0 "${still[@]}" --epochs 3 --early-stop 1 --quiet
said out "Ended early, after epoch 2 of 3: no better test accuracy in 1 epoch; " "not kept; --checkpoint DIR keeps them"

# A repeat of a run that has ended early does no step, and changes no file. The last checkpoint has the test result if
# it was saved after the test.
for every in epoch 50; do
    again=("${still[@]}" --epochs 3 --early-stop 1 --log-dir "kept-$every" --save-every "$every" --resume auto)
    run 0 "${again[@]}" --json
    said out '"early_stop":{"data":"test","epochs_without_better":1,"best_step":'
    cp -r "kept-$every" before
    run 0 "${again[@]}"
    said out "Ended early, after epoch 2 of 3" "The best weights are in kept-$every/" "/checkpoints/best"
    for file in run.json config.yaml; do
        check "$line: $file is another one" cmp -s "kept-$every"/*/"$file" before/*/"$file"
    done
    rm -r before
done
said out "--early-stop has ended the run of kept-50/"

command=sweep run 0 --seed 1,2 -o grid -- train "${task[@]}" --no-test
said out "val corr. %" "val loss"
check "$line: a cell's validation" awk '$2 == "done" && $3 > 0 && $4 > 0 && $5 == "-" { n++ } END { exit n != 2 }' out
conclude

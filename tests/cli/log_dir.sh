#!/bin/bash
# log_dir.sh PROGRAM - run folders: what is in them, that their configuration gives the same bits, that a killed and
# resumed run has the rows of an undisturbed one, and what a folder that cannot be made says.
program=$1 command=train
. "$(dirname "$0")/jobs.sh"

task=(--model mlp --batch-size 24 --epochs 1 --max-steps 12 --log-interval 1 --lr .5)
# results FILE - the columns of metrics.csv that do not depend on time.
results() { cut -d, -f1-8 "$1"; }
only() { check "$line: one folder in $1, not: $(ls "$1")" test "$(find "$1" -mindepth 1 -maxdepth 1 | wc -l)" -eq 1; }

run 0 "${task[@]}" --log-dir whole/deep
whole=$(hash_of)
cp out printed
only whole/deep
folder=$(echo whole/deep/*)
for file in run.json config.yaml log.txt metrics.jsonl metrics.csv ranks.jsonl first.safetensors final.safetensors; do
    check "$file is there" test -s "$folder/$file"
done
check "the name says what it is: $folder" grep -q '_digits_mlp_default_n1_b24_adadelta_lr0.5_step-size=1-gamma=0.7_e1$' <<<"$folder"
check "the log is what was printed" cmp "$folder/log.txt" printed
check "the folder is printed" grep -qxF "Run folder $folder" printed
check "a row for each step and the test" test "$(wc -l <"$folder/metrics.jsonl")" -eq 13
check "a row for each step" test "$(wc -l <"$folder/ranks.jsonl")" -eq 12
check "the norm is in each row" test "$(grep -c '"grad_norm":[0-9]' "$folder/metrics.jsonl")" -eq 12
for text in '"status":	"done"' "\"hash\":	\"$whole\"" '"parameters":	59210' '"--max-steps"' '"lr":	"0.5"'; do
    check "run.json lacks $text" grep -qF -- "$text" "$folder/run.json"
done
check "no checkpoint was asked for" test ! -e "$folder/checkpoints"

# The configuration gives the same bits; the folder makes no difference to them.
run 0 --config "$folder/config.yaml"
ends_alike
run 0 "${task[@]}"
ends_alike

# Other layouts have the same rows.
for layout in "-n 2" "-n 2 --stages 2" "--devices cpu:0,cpu:1,cpu:2"; do
    rm -rf other
    # shellcheck disable=SC2086 # several words
    run 0 "${task[@]}" --log-dir other $layout
    ends_alike
    only other
    check "$line: other results" cmp <(results other/*/metrics.csv) <(results "$folder/metrics.csv")
done
run 0 --config other/*/config.yaml
ends_alike

# A run that is killed and goes on, in its folder.
LOCKSTEP_FAULT='delay:step=8,seconds=1;kill:step=8' run 137 "${task[@]}" --log-dir killed --save-every 3
only killed
killed=$(echo killed/*)
check "it is not known to have ended" grep -q '"status":.*"running"' "$killed/run.json"
check "checkpoints are in the folder" test -d "$killed/checkpoints/step-000000006"
check "rows after the checkpoint" grep -q '^train,7,' "$killed/metrics.csv"
LOCKSTEP_FAULT='kill:step=10' run 137 --resume "$killed/checkpoints" --log-dir killed --log-interval 1
run 0 --resume "$killed/checkpoints" --log-dir killed --log-interval 1 -n 2
ends_alike
only killed
check "the rows of the undisturbed run" cmp <(results "$killed/metrics.csv") <(results "$folder/metrics.csv")
check "the same steps as JSON" cmp <(cut -d, -f1,2 "$killed/metrics.jsonl") <(cut -d, -f1,2 "$folder/metrics.jsonl")
check "the same steps of ranks" cmp <(cut -d, -f1 "$killed/ranks.jsonl") <(cut -d, -f1 "$folder/ranks.jsonl")
check "both resumes are noted" test "$(grep -c '"at":' "$killed/run.json")" -eq 2
check "the first state is still there" cmp "$killed/first.safetensors" "$folder/first.safetensors"
check "the final state is the same" cmp "$killed/final.safetensors" "$folder/final.safetensors"
check "time goes on" awk -F, 'NR > 1 { if ($10 < last) exit 1; last = $10 }' "$killed/metrics.csv"

# A run that is stopped, and one that fails.
rm -rf stopped
begin "$program" train --model mlp --log-dir stopped --epochs 1000 --log-interval 1
await 30 test -s "$(echo stopped/*)/metrics.csv" || await 30 grep -q Train out
kill -TERM "$job"
finish "$job"
check "a stopped run says so" grep -q '"status":.*"stopped"' stopped/*/run.json
rm -rf failed
run 1 --model mlp --log-dir failed --lr 1e6 --optimizer sgd --epochs 1
check "a failed run says so" grep -q '"status":.*"failed"' failed/*/run.json
check "and why" grep -q '"error":.*is nan' failed/*/run.json
check "the error is in the log" grep -q 'is nan' failed/*/log.txt

# A peer that dies.
LOCKSTEP_FAULT='kill:rank=1,step=3' run 137 "${task[@]}" --log-dir dead -n 2
check "$line: the run has failed" grep -q '"status":.*"failed"' dead/*/run.json
check "$line: its error names the rank" grep -q '"error":.*rank 1' dead/*/run.json

# Files that cannot become longer than 100 KB, as on a full disk: the run goes on.
(
    ulimit -f 100
    exec timeout -s KILL 60 "$program" train "${task[@]}" --log-dir full
) >out 2>err </dev/null
check "a full disk does not end the run" test $? -eq 0
ends_alike
said err "nothing more is written to full/"
check "it is said once" test "$(grep -c 'nothing more' err)" -eq 1

check "$line: run.json says how it ended" grep -q '"status":.*"done"' full/*/run.json
check "$line: and that rows are missing" grep -q '"error":.*"rows and log are not complete: cannot write' full/*/run.json

# Each write of a step fails once: log, rows as JSON and as CSV, event file, row of ranks.
for nth in 1 2 3 4 5; do
    rm -rf full
    LOCKSTEP_FAULT="write:op=record,step=5,nth=$nth" run 0 "${task[@]}" --log-dir full
    ends_alike
    said err "nothing more is written to full/" "No space left on device"
    check "$line: run.json says how it ended" grep -q '"status":.*"done"' full/*/run.json
    check "$line: and that rows are missing" grep -q '"error":.*"rows and log are not complete: cannot write' full/*/run.json
    check "$line: the same rows in both files" cmp <(cut -d, -f2 full/*/metrics.csv | tail -n +2) \
        <(sed -n 's/.*"step":\([0-9]*\),.*/\1/p' full/*/metrics.jsonl)
    check "$line: rows up to the failure" test "$(wc -l <"$(echo full/*/metrics.jsonl)")" -eq $((nth < 5 ? 4 : 5))
done

# A disk that is really full: somebody else fills it while the run goes on.
mkdir small
if mount -t tmpfs -o size=2m none small 2>/dev/null; then
    line="a full disk"
    LOCKSTEP_FAULT='delay:step=20,seconds=2' begin "$program" train --model mlp --max-steps 300 --no-test --log-interval 1 --log-dir small/runs
    await 30 grep -qsr '^train,19,' small/runs
    dd if=/dev/zero of=small/other bs=4k status=none 2>dd
    finish "$job"
    check "$line: exit status $status" test "$status" -eq 0
    said err "nothing more is written to small/runs/" "No space left on device"
    check "$line: run.json says how it ended" grep -q '"status":.*"done"' small/runs/*/run.json
    check "$line: a half line" test "$(tail -c 2 small/runs/*/metrics.jsonl)" = "}"
    umount small
else
    echo "not checked: a full disk, which needs root"
fi

# A reader that closes its end.
LOCKSTEP_FAULT='delay:step=20,seconds=3' \
    "$program" train "${task[@]}" --max-steps 400 --log-dir closed 2>err | head -n 1 >out
check "a closed pipe is noted" grep -q '"status":.*"stopped"' closed/*/run.json
check "with its reason" grep -q '"error":.*SIGPIPE' closed/*/run.json

touch file
fails 1 "cannot create the folder file/x" -- --log-dir file/x --epochs 1
refused "--save-every saves nowhere" "--log-dir" -- --save-every 3

conclude

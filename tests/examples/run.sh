#!/bin/bash
# run.sh LOCKSTEP PROGRAMS MODELS NAME WAY - runs one example in a temporary folder, alone or as WAY ranks of
# `lockstep run`, which are stages if WAY is N_stages: it succeeds, prints nothing on stderr, prints the expected
# lines, and saves the expected bits.
# Some that run alone copy their models to MODELS for comparison.
set -u
lockstep=$(realpath "$1") program=$(realpath "$2")/$4 models=$(realpath "$3") name=$4 way=$5
[ -x "$lockstep" ] && [ -x "$program" ] || exit 1
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cd "$scratch" || exit 1
unset LOCKSTEP_TOKEN LOCKSTEP_TOKEN_FILE RANK WORLD_SIZE LOCAL_RANK MASTER_ADDR MASTER_PORT LOCKSTEP_BACKEND

fail() {
    echo "FAILED: $name, $way: $*"
    sed 's/^/    out: /' out
    sed 's/^/    err: /' err
    exit 1
}
# said PATTERN COUNT - COUNT lines of the output match the pattern.
said() {
    local found
    found=$(grep -cE -- "$1" out)
    [ "$found" -eq "$2" ] || fail "$found lines match '$1', not $2"
}
# leave - copies the model to MODELS.
leave() { rm -rf "${models:?}/$saved" && mv "$saved" "$models" || fail "nothing is saved"; }
# same_bits FILE - the file is equal to the model in MODELS.
same_bits() { "$lockstep" compare "$models/$1" "$saved" >>out 2>>err || fail "the bits are not those of $1"; }

saved=$name.safetensors
launcher=()
[ "$way" = alone ] || launcher=("$lockstep" run -n "${way%_stages}")
[ "$way" = "${way%_stages}" ] || export STAGES=${way%_stages}
timeout -s KILL 200 "${launcher[@]}" "$program" >out 2>err </dev/null || fail "exit status $?"
[ ! -s err ] || fail "it complains"

case $name in
01_single)
    said '^epoch [12]: loss 0\.[0-9]{4}, accuracy 9[5-9]\.[0-9]{2} %$' 2
    said '^saved 01_single.safetensors$' 1
    leave
    ;;
02_ddp)
    said '^\[0\] epoch [12]: loss 0\.[0-9]{4}, accuracy 9[5-9]\.[0-9]{2} %$' 2
    said '^\[0\] saved 02_ddp.safetensors$' 1
    said '' 3
    same_bits 01_single.safetensors
    ;;
03_data_parallel)
    said '^epoch [12]: loss of the last step 0\.' 2
    said '' 2
    same_bits 01_single.safetensors
    ;;
04_model_parallel)
    said '^stage 0 of 2: layers [0-9]+ to [0-9]+$' 1
    said '^stage 1 of 2: layers [1-9][0-9]* to [0-9]+$' 1
    said '^epoch [12]: loss of the last step 0\.' 2
    said '' 4
    same_bits 01_single.safetensors
    ;;
05_pipeline)
    said '^(in turn|pipelined): stage 0 waited [0-9.]+ s, stage 1 [0-9.]+ s$' 2
    said '^tensors that differ: 0$' 1
    same_bits 01_single.safetensors
    ;;
06_debug_group)
    for ((r = 0; r < way; r++)); do
        said "^\[$r\] host $(uname -n): rank $r of $way, local rank $r of $way, over [a-z]+: 1 \+ ... \+ $way = $((way * (way + 1) / 2))\$" 1
    done
    ! "$program" >out 2>err || fail "it succeeds without a job to join"
    grep -q "lockstep run" err || fail "it does not say how to be started"
    ;;
07_own_model)
    said 'step (0|50|100|150): loss [0-9.]+$' 4
    said '9[5-9][0-9] of 1000 new samples are classified correctly$' 1
    [ "$way" = alone ] && leave || same_bits "$saved"
    ;;
08_collectives)
    said 'the sum over 4 ranks is 10$' 1
    said 'the mean of ones is 1,' 1
    said 'gathered abbcccdddd$' 1
    said 'the sum over 2 ranks is 3$' 2
    ;;
09_checkpoints)
    saved=09_checkpoints.checkpoint
    said 'from step 0 to step (90|75)$' 2
    said 'from step 60 to step 90$' 1
    said 'tensors that differ: 0$' "${way/alone/1}"
    "$lockstep" verify --quiet "$saved" || fail "its checkpoint is damaged"
    if [ "$way" = alone ]; then
        leave
        # A run that is killed in its second save resumes from the first.
        LOCKSTEP_FAULT=kill:op=save,step=40,nth=9 "$program" >out 2>err
        [ $? -eq 137 ] || fail "it is not killed"
        timeout -s KILL 200 "$program" >out 2>err || fail "exit status $? after it was killed"
        said 'from step 20 to step 75$' 1
        said 'tensors that differ: 0$' 1
    fi
    same_bits "$saved"
    ;;
10_predict)
    said '^image [0-4] is a [0-9] \([0-9.]+ %\), feature 0 is [0-9.]+$' 5
    said '^(8[5-9]|9[0-9])[0-9] of 1000 images are classified correctly, in [0-9]+ us each$' 1
    said '' 6
    ;;
15_fine_tune)
    said 'digits.safetensors: [0-9]+ of [0-9]+ test images are right$' 1
    said '15_fine_tune.safetensors: [0-9]+ of [0-9]+ test images are right$' 1
    "$lockstep" compare digits.safetensors "$saved" >>out 2>>err && fail "it learns nothing new"
    said '^conv1' 0
    said '^conv2.weight' 1
    [ "$way" = alone ] && leave || same_bits "$saved"
    ;;
16_own_loop)
    said '2[34][0-9] of 250 test images are right$' 1
    [ "$way" = alone ] && leave || same_bits "$saved"
    ;;
17_train_loop)
    said '59210 parameters, from step 0 to step 240$' 1
    said 'epoch [12]: loss 0\.[0-9]{4}, accuracy [89][0-9]\.[0-9]{2} %$' 2
    said 'best at step 240; saved 17_train_loop.safetensors$' 1
    [ "$(wc -l <17_train_loop.csv)" -eq 2 ] || fail "its table has no row for each epoch"
    [ "$way" = alone ] || { same_bits "$saved" && exit 0; }
    leave
    "$lockstep" train --quiet --model mlp --epochs 2 --batch-size 500 --optimizer adam --save-model "$saved" \
        >>out 2>&1 || fail "lockstep train: exit status $?"
    same_bits "$saved"
    # A run that is killed in its third save resumes from the second.
    rm -r 17_train_loop.checkpoints
    LOCKSTEP_FAULT=kill:op=save,step=120,nth=9 "$program" >out 2>err
    [ $? -eq 137 ] || fail "it is not killed"
    timeout -s KILL 200 "$program" >out 2>err || fail "exit status $? after it was killed"
    said 'from step 100 to step 240$' 1
    same_bits "$saved"
    ;;
18_k_fold)
    saved=18_k_fold.txt
    said 'fold [0-4]: best at step [0-9]+ of [0-9]+, 3[0-9]{2} of 400 correct, model [0-9a-f]{16}$' 5
    said 'mean accuracy [89][0-9]\.[0-9]{2} %$' 1
    sed 's/^\[0\] //' out >"$saved"
    if [ "$way" = alone ]; then leave; else cmp "$models/$saved" "$saved" 2>>err || fail "not the results of one rank"; fi
    ;;
19_k_means)
    said 'centre 0x1\.[0-9a-f]+p[+-][0-9] 0x1\.[0-9a-f]+p[+-][0-9]: 1[0-9]{3} points$' 4
    sed 's/^\[0\] //' out >19_k_means.txt
    saved=19_k_means.txt
    # Without its group the program ends with a message.
    [ "$way" != alone ] || { RANK=0 timeout -s KILL 20 "$program" >failed 2>&1; [ $? -eq 1 ]; } || fail "it needs a group"
    if [ "$way" = alone ]; then leave; else cmp "$models/$saved" "$saved" || fail "the centres have other bits"; fi
    ;;
20_cpp)
    said '^epoch [12]: loss of the last step 0\.[0-9]{4}, 9[5-9][0-9]{2} of 10000 correct$' 2
    said '^state hash [0-9a-f]{16}$' 1
    same_bits 01_single.safetensors
    hash=$(grep -oE '[0-9a-f]{16}$' out)
    "$lockstep" info "$models/01_single.safetensors" | grep -q "hash $hash" || fail "the hash is not that of 01_single"
    ;;
*)
    fail "nothing is known of it"
    ;;
esac

#!/bin/bash
# pages.sh PROGRAM - man pages and completion scripts that the program writes from its tables: they are well-formed,
# have every option of --help, and complete in real shells. What is not installed here is named and left out.
program=$1 command=
. "$(dirname "$0")/jobs.sh"
commands=$("$program" help | sed -n 's/^  \([a-z]*\) .*/\1/p')
there() { command -v "$1" >/dev/null || { echo "$1 is not installed: not tested with it" && false; }; }

# Man pages.
for name in "" $commands; do
    page=lockstep${name:+-$name}.1
    # shellcheck disable=SC2086 # no word without a name
    run 0 help --man $name
    cp out "$page"
    if there groff; then
        check "$page: warnings" test -z "$(groff -ww -man -Tutf8 "$page" 2>&1 >/dev/null)"
    fi
    if there man; then
        check "$page: warnings of man" test -z "$(man --warnings -E UTF-8 -l -Tutf8 -Z "$page" 2>&1 >/dev/null)"
    fi
    if there lexgrog; then
        check "$page: lexgrog finds its name" grep -q "\"${page%.1} - " <(lexgrog "$page")
    fi
done
for name in $commands; do
    check "lockstep.1 names $name" grep -q "lockstep $name" lockstep.1
    # Options and their texts as --help has them.
    sed 's/\\f[BIR]//g; s/\\-/-/g; s/\\(aq/'"'"'/g; s/\\(ga/`/g; s/\\(ti/~/g; s/\\(ha/^/g; s/\\e/\\/g; s/^\\&//' \
        "lockstep-$name.1" >plain
    run 0 help "$name"
    grep -E '^  (-[a-zA-Z], )?--' out | sed -E 's/^  //' >rows
    check "$name has options" test -s rows
    while IFS= read -r row; do
        flag=$(grep -oE -- '--[a-z-]+' <<<"$row" | head -1)
        check "$name: $flag is in its man page" grep -qE -- "^(-[a-zA-Z], )?$flag( |\$)" plain
    done <rows
    check "$name: as many options as --help" \
        test "$(sed '/OPTIONS OF OTHER/,$d' plain | grep -cE '^(-[a-zA-Z], )?--')" -eq "$(wc -l <rows)"
done
check "help texts are in the page" grep -q "samples a step, all shards together (default 64)" lockstep-train.1
fails 2 "no command 'trian'" -- help --man trian
fails 2 "--completion is one script" -- help --completion bash train
fails 2 "--completion 'fish' must be one of none|bash|zsh" -- help --completion fish

# Completion in bash, as the shell calls it.
run 0 help --completion bash
cp out lockstep.bash
mkdir -p folder && : >file.yaml
# completes WORD... - prints what the last word is completed to; '=' is a word of its own, as in bash.
completes() {
    bash --norc -c '
        source ./lockstep.bash
        COMP_WORDS=(lockstep "$@") COMP_CWORD=$#
        complete -p lockstep >/dev/null && { _lockstep lockstep "${!#}" || true; } && printf "%s\n" "${COMPREPLY[@]}"' - "$@" 2>&1
}
# offers "WORD ..." CANDIDATE... - every candidate is offered; a word _ stands for an empty one.
offers() {
    local words candidate
    read -ra words <<<"$1"
    line="bash: lockstep $1"
    completes "${words[@]/#_/}" >out
    for candidate in "${@:2}"; do check "$line: $candidate is not offered" grep -qxF -- "$candidate" out; done
}
# only "WORD ..." CANDIDATE... - these alone are offered.
only() {
    offers "$@"
    check "$line: $(wc -l <out) offers" test "$(sed '/^$/d' out | wc -l)" -eq $(($# - 1))
}
# shellcheck disable=SC2086 # words
offers "_" $commands --help
only "tr" train
only "train --batch" --batch-size
only "train --batch-size _"
only "train --bn _" batch shard
only "train --bn = sh" shard
only "train --bn =" batch shard
only "train --log_ranks _" 0 all
offers "train --model _" cnn resnet18 mlp
only "train --model resnet1" resnet18 resnet101 resnet152
only "train --optimizer ada" adam adamw adadelta
offers "train --schedule _" step cosine
offers "train --data _" mnist digits folder
only "train --checkpoint f" folder
only "train --config f" file.yaml folder
offers "train -n _" auto gpu
offers "train --backend _" shm tcp
only "train xyz"
offers "eval f" file.yaml folder
only "verify f" folder
only "bench k" kernels
only "data ver" verify
only "help --completion z" zsh
offers "run -n 2 bas" bash
# Words of other programs have the values of the options that they stand for; they themselves are not offered.
offers "train --arch _" cnn resnet18 mlp
offers "train -a _" cnn mlp
only "train --opt = ada" adam adamw adadelta
only "eval --workers _" auto
only "train --output-dir f" folder
only "train --arc"
# A sweep has lists of train's options before train, and is train after it.
offers "sweep --" --lr --nproc --drop-last --slurm --output
only "sweep --batch" --batch-size
only "sweep --log-d"
only "sweep --drop-last _" true,false
only "sweep --lr .1,.01 _" train
offers "sweep --model _" cnn mlp
only "sweep --lr .1,.01 -- tr" train
offers "sweep --lr .1,.01 -- train --" --model --lr --nproc --log-interval
only "sweep --lr .1,.01 -- train --sl"
only "sweep --lr .1,.01 train --bn _" batch shard
offers "sweep --lr .1,.01 -- train --arch _" cnn mlp
for name in $commands; do
    # shellcheck disable=SC2046 # words
    offers "$name --" $("$program" help "$name" | sed -nE 's/^  (-[a-zA-Z], )?(--[a-z-]+).*/\2/p')
done
line="shellcheck of the script"
if there shellcheck; then
    check "shellcheck finds nothing" shellcheck -s bash lockstep.bash
fi

# Completion in zsh: a shell on a terminal of its own gets a line and a tab, and prints what it would offer.
if there zsh; then
    run 0 help --completion zsh
    cp out _lockstep
    cat >capture.zsh <<'SCRIPT'
# capture.zsh LINE - prints the candidates that zsh offers at the end of the line.
zmodload zsh/zpty
zpty shell zsh -f -i
zpty -w shell "PS1=; fpath=($PWD \$fpath); autoload -Uz compinit; compinit -u -d $PWD/dump; cd $PWD"
zpty -w shell 'compadd() {
    local -a found
    if [[ ${@[(I)-[OAD]*]} -eq 0 ]]; then builtin compadd -O found "$@"; print -rl -- ""off"er:"${^found}; fi
    builtin compadd "$@"
}'
# The editor of lines says when it reads keys; quotes keep the echo of these commands apart from what they print.
zpty -w shell 'finish() { print at:""end; exit }; zle -N finish; bindkey "^I" complete-word; bindkey "^X" finish'
zpty -w shell 'zle-line-init() { print at:""ready }; zle -N zle-line-init'
until [[ $text == *at:ready* ]]; do zpty -r shell text || exit 1; done
zpty -w -n shell "$1"$'\t'$'\x18'
while zpty -r shell text && [[ $text != *at:end* ]]; do print -r -- "$text"; done
SCRIPT
    # zsh_offers LINE CANDIDATE...
    zsh_offers() {
        local candidate
        line="zsh: $1"
        timeout -s KILL 30 zsh -f capture.zsh "$1" </dev/null 2>&1 | tr -d '\r' | sed -n 's/.*offer://p' >out
        for candidate in "${@:2}"; do check "$line: $candidate is not offered" grep -qxF -- "$candidate" out; done
    }
    zsh_offers "lockstep tr" train
    zsh_offers "lockstep train --bn " batch shard
    zsh_offers "lockstep train --bn=sh" shard
    zsh_offers "lockstep train --model resnet" resnet18 resnet34
    zsh_offers "lockstep train --data " mnist digits folder
    zsh_offers "lockstep train --log" --log-interval --log-ranks
    zsh_offers "lockstep train --config fi" file.yaml
    zsh_offers "lockstep bench k" kernels
    zsh_offers "lockstep help tr" train
    zsh_offers "lockstep train --arch resnet" resnet18 resnet34
    zsh_offers "lockstep train -a resnet" resnet18
    zsh_offers "lockstep sweep --batch" --batch-size
    zsh_offers "lockstep sweep --drop-last=" true,false
    zsh_offers "lockstep sweep --lr .1,.01 -- train --bn " batch shard
    zsh_offers "lockstep sweep --lr .1,.01 -- train --log-in" --log-interval
    zsh_offers "lockstep sweep --lr .1,.01 -- tr" train
    check "zsh reads the script" zsh -n _lockstep
fi

conclude

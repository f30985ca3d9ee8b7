#!/bin/bash
# guide.sh LOCKSTEP REPOSITORY - all options, functions and files that docs/guide.md names exist.
set -u
lockstep=$(realpath "$1") guide=$2/docs/guide.md
failures=0
complain() {
    failures=$((failures + 1))
    echo "FAILED: $*"
}

help=$(for command in train run eval compare bench; do "$lockstep" help $command; done)
grep -q -e '--model' <<<"$help" || complain "no help"
# The first column of tables has options of other programs, the other columns have options of lockstep.
ours=$(sed -E 's/^\|[^|]*\|/|/; s/\\\|//g' "$guide")
# theirs - options of other programs in later columns, and options that lockstep refuses with a hint.
theirs=" --nproc_per_node --init_method --world_size --gpu_devices --ntasks-per-node "
options=$(grep -oE -e '(^|[ `(])--[a-z][a-z_-]*' <<<"$ours" | grep -oE -e '--[a-z_-]+' | sort -u)
[ "$(wc -w <<<"$options")" -gt 30 ] || complain "hardly any options are found"
for option in $options; do
    grep -qE -e "$option( |\$)" <<<"$help" || [[ $theirs == *" $option "* ]] || complain "there is no option $option"
done

functions=$(grep -ohE 'lk_[a-z0-9_]+' "$guide" | sort -u)
[ "$(wc -w <<<"$functions")" -gt 20 ] || complain "hardly any functions are found"
for name in $functions; do
    grep -qw "$name" "$2"/include/lockstep/*.h || complain "there is no $name"
done

for file in $(grep -oE '\]\(\.\./[^)#]+' "$guide" | cut -c 3-); do
    [ -e "$2/docs/$file" ] || complain "there is no $file"
done
for file in $(grep -oE '0[0-9]_[a-z_]+(\.c)?' "$guide" | sed 's/\.c$//' | sort -u); do
    [ -e "$2/examples/$file.c" ] || complain "there is no example $file"
done

[ $failures -eq 0 ]

#!/bin/bash
# steps.sh EXAMPLES - each example has less than a hundred lines; the lines that 02 adds to 01, and 04 adds to 03,
# are steps that are numbered from 1.
set -u
cd "$1" || exit 1
failures=0
complain() {
    failures=$((failures + 1))
    echo "FAILED: $*"
}

for file in *.c *.cpp; do
    lines=$(wc -l <"$file")
    [ "$lines" -lt 100 ] || complain "$file has $lines lines"
    [ "$(head -c $((${#file} + 6)) "$file")" = "/* $file - " ] || complain "$file does not begin with its name"
done

# code FILE NAME - the file without its first comment, with its name replaced by NAME.
code() { sed -n '/^#include/,$p' "$1" | sed "s/${1%.c}/$2/g"; }
# adds_steps BEFORE AFTER COUNT - AFTER has every line of BEFORE, and COUNT steps. A group of added lines begins with
# the number of a step, or closes a brace.
adds_steps() {
    diff -w <(code "$1" name) <(code "$2" name) | awk -v wanted="$3" '
        /^</ { print "line is gone: " $0; bad = 1 }
        /^[0-9]/ { fresh = 1 }
        /^>/ && fresh {
            fresh = 0
            if (match($0, /\/\* [0-9]+\. /) && substr($0, RSTART + 3, RLENGTH - 5) + 0 == steps + 1)
                steps++
            else if ($0 !~ /^>[ }]*$/) {
                print "not step " steps + 1 ": " $0
                bad = 1
            }
        }
        END {
            if (steps != wanted) print steps + 0 " steps, not " wanted
            exit bad || steps != wanted
        }' || complain "$2 differs from $1 in more than its numbered steps"
}
adds_steps 01_single.c 02_ddp.c 6
adds_steps 03_data_parallel.c 04_model_parallel.c 2

[ $failures -eq 0 ]

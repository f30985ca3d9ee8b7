#!/bin/bash
# plot.sh PROGRAM - `lockstep plot`: files of each kind, the legend, odd names and rows, errors.
program=$1 command=plot
. "$(dirname "$0")/runs.sh"
. "$(dirname "$0")/jobs.sh"
if ! command -v gnuplot >/dev/null; then
    echo "skipped: gnuplot is not installed (package gnuplot-nox)"
    exit 77
fi

make_run runs/a 1 1 '"lr":"1","model":"cnn"'
make_run runs/b 2 1 '"lr":"0.1","model":"cnn"'

# magic FILE TEXT - the file begins with this text.
magic() { check "$line: $1 begins otherwise" test "$(head -c ${#2} "$1" | tr -d '\0')" = "$2"; }
run 0 runs/a runs/b -o x.svg
said out "x.svg: 2 runs"
parses x.svg
said x.svg "cnn on mnist, 2 runs" "1 rank, lr 1" "2 ranks, lr 0.1" "Loss" "Accuracy" "seconds" "epochs" "Throughput" \
    "images a second"
# A run that is the only one with its options is not faster than anything.
lacks x.svg seed log-dir threads= Speed-up ideal
check "$line: the picture is large" test "$(stat -c %s x.svg)" -lt 60000
run 0 runs/a runs/b -o x.png
magic x.png $'\x89PNG'
run 0 runs/a runs/b --output=x.pdf
magic x.pdf %PDF
# Folders of runs, and folders of these.
run 0 runs -o y.svg
check "$line: another picture" cmp -s x.svg y.svg
mkdir deep
cp -r runs deep/one
run 0 deep -o y.svg
check "$line: another picture" cmp -s x.svg y.svg
# The default name; runs without a difference in ranks have no speed-up.
make_run same/a 2 2 '"lr":"1"'
make_run same/b 2 2 '"lr":"1"'
run 0 same
said plot.svg "2 runs" "Loss (equal in all 2 runs)" ">a<" ">b<"
lacks plot.svg Throughput Speed-up

# Speed-up: of runs that differ in nothing else. A lone run (lr 3) has none, and its line is in the legend once.
make_run scale/a 1 1 '"lr":"1"'
make_run scale/b 2 1 '"lr":"1"'
make_run scale/c 4 1 '"lr":"3"'
run 0 scale -o scale.svg
said scale.svg "Speed-up over 1 rank, 1 thread" ideal "Throughput and speed-up:" "Loss and accuracy:"
check "$line: the legend has each line once" test "$(grep -oF '>lr 3<' scale.svg | wc -l)" -eq 1
# A line of several runs has no colour of a run: three runs, then lr 1 and lr 3.
check "$line: colours" grep -q "230, 159,   0\|230,159,0\|#e69f00" scale.svg
# Bases that differ.
make_run scale/d 8 1 '"lr":"3"'
run 0 scale -o scale.svg
said scale.svg "Speed-up over the smallest run with the same options"
lacks scale.svg ideal
# Speeds that are far apart: a logarithmic axis.
make_run far/a 1 1 '"lr":"1"'
make_run far/b 100 1 '"lr":"2"'
run 0 far -o far.svg
said far.svg ">100<" ">1000<" ">10000<"
lacks far.svg ">5000<"
# Labels that would be equal when they are cut: the names of the runs.
long=$(printf '%0150d' 0)
make_run cut/first 1 1 "\"data\":\"${long}1\""
make_run cut/second 1 1 "\"data\":\"${long}2\""
run 0 cut -o cut.svg
said cut.svg ">first<" ">second<"

# Texts are shown as they are; gnuplot interprets none of them.
odd=$'it\'s "q" `touch pwned` @x %s {/a} \\\\n <b>&amp; $(touch pwned) \\u001b[2J \xff \xc3\xa9'
make_run odd/a 1 1 "\"data\":\"$(sed 's/"/\\"/g' <<<"$odd")\""
make_run odd/b 1 1 '"data":"'"';system('touch pwned');'"'"'
mv odd/a "odd/a b'c\"d;e"
run 0 odd -o "o'd \"d.svg"
mv "o'd \"d.svg" odd.svg
parses odd.svg
said odd.svg "it's" '`touch pwned`' "\$(touch pwned)" "&lt;b>" "&amp;amp;" "é" "';system('touch pwned');'"
check "$line: a command was executed" test -z "$(find . -name 'pwned*')"
for kind in png pdf; do
    run 0 odd -o "odd.$kind"
    check "$line: a command was executed" test -z "$(find . -name 'pwned*')"
done

# Runs without tests, with NaN, with a single row, still growing.
no_test=1 make_run few/notest 1 1 '"lr":"1"'
make_run few/one 1 1 '"lr":"2"' 1
make_run few/nan 1 1 '"lr":"3"'
sed -i '3,6s/"loss":[0-9.]*/"loss":null/' few/nan/metrics.jsonl
make_run few/none 1 1 '"lr":"4"' 0
make_run few/grows 1 1 '"lr":"5"'
printf '{"kind":"train","step":21,"epo' >>few/grows/metrics.jsonl
run 0 few -o few.svg
said out "few.svg: 5 runs"
parses few.svg
for path in few/*; do
    [ "$path" = few/none ] || run 0 "$path" -o one.svg
done
sed -i 's/"loss":[0-9.e-][0-9.e-]*/"loss":null/; s/"top1":[0-9.e-][0-9.e-]*/"top1":null/' few/nan/metrics.jsonl
fails 1 "nothing to draw: few/nan has no row yet" "--log-interval" -- few/nan -o never.svg
fails 1 "nothing to draw: few/none has no row yet" -- few/none -o never.svg
make_run long/a 1 1 '"lr":"1"' 20000
run 0 long -o long.svg
check "$line: the picture is large" test "$(stat -c %s long.svg)" -lt 60000
# More runs than colours, and than the legend has room for.
for i in $(seq 10 59); do make_run many/$i 1 1 "\"lr\":\"$i\"" 5; done
run 0 many -o many.svg
said many.svg "lr 10" "lr 49" "and 10 more"
lacks many.svg "lr 50"

# Damage: a run inside a folder is left out with a warning, a run that was named is an error.
cp -r runs mixed
make_run mixed/c 1 1 '"lr":"9"'
sed -i '2s/.*/{"kind":/' mixed/c/metrics.jsonl
run 0 mixed -o mixed.svg
said err "warning: mixed/c/metrics.jsonl:2" "is left out"
said out "2 runs"
fails 1 "mixed/c/metrics.jsonl:2" -- mixed/c -o never.svg

# Errors.
mkdir empty
refused "empty is no run folder and has none" "--log-dir DIR" -- empty -o never.svg
refused "cannot open the folder absent" -- absent -o never.svg
refused "'x.jpg' does not" ".svg, .png or .pdf" -- runs -o x.jpg
refused "plot wants run folders" --
refused "-o absent/x.svg: folder 'absent': No such file or directory; create it first" -- runs -o absent/x.svg
mkdir nothing
line="plot without gnuplot"
timeout 60 env PATH="$scratch/nothing" "$program" plot runs -o never.svg >out 2>err
status=$?
check "$line: exit status $status" test $status -eq 2
said err "gnuplot, which is not installed" "gnuplot-nox"
# A gnuplot that fails leaves the old picture as it is.
printf '#!/bin/sh\necho "  first" >&2\necho "it broke" >&2\nexit 3\n' >nothing/gnuplot
chmod +x nothing/gnuplot
cp x.svg kept.svg
PATH=$scratch/nothing:$PATH fails 1 "it ended with status 3 and said: it broke" -- runs -o kept.svg
check "$line: the picture changed" cmp -s x.svg kept.svg
check "no picture of a failure" test ! -e never.svg
check "no other files" test -z "$(find . -name '.lk-*')"
# The user's own settings do not count.
echo "set terminal dumb; bad command" >"$scratch/.gnuplot"
HOME=$scratch run 0 runs -o y.svg
check "$line: another picture" cmp -s x.svg y.svg

conclude

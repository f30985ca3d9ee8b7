#!/bin/bash
# report.sh PROGRAM - `lockstep report`: one page that needs nothing else, with every text escaped.
program=$1 command=report
. "$(dirname "$0")/runs.sh"
. "$(dirname "$0")/jobs.sh"

make_run runs/a 1 1 '"lr":"1","augment":"none"'
make_run runs/b 2 1 '"lr":"0.1","augment":"none"'
run 0 runs -o x.html
said out "x.html: 2 runs"
parses x.html
said x.html "cnn on mnist, 2 runs" "1 rank, lr 1" "2 ranks, lr 0.1" "augment: none" "seed: 7" "Throughput" \
    "All 2 runs ended with the same weights" "0123456789abcdef" "97.50" "prefers-color-scheme:dark" "width=device-width"
lacks x.html "<script" "http://" "https://" "src=" "url(" "@import" "log-dir"
# gnuplot is not needed.
mkdir nothing
timeout 60 env PATH="$scratch/nothing" "$program" report runs/a >out 2>err
status=$?
check "report without gnuplot: exit status $status" test $status -eq 0
said report.html "cnn on mnist, 1 run" "log-dir: runs/a"
lacks report.html Differences Speed-up

# The end of a run is that of run.json, not of its last row; rows that went further, after a resume, win.
make_run ended/a 1 1 '"lr":"1"' 21
sed -i 's/"hash"/"steps_per_epoch":5,"result":{"steps":25,"seconds":118.25},"hash"/' ended/a/run.json
run 0 ended -o ended.html
said ended.html "<td>5</td><td>25</td>" "<td>118.2 s</td>"
sed -i 's/"steps":25/"steps":15/' ended/a/run.json
run 0 ended -o ended.html
said ended.html "<td>4.2</td><td>21</td>"

# Texts are escaped.
make_run "odd/a'b" 1 1 '"data":"<script>alert(1)</script> \"q\" '"'"' & é \u001b[2J \\"'
make_run odd/c 1 1 '"</td>":"<img src=x>"'
printf 'x\xff' >bytes
sed -i "s/\"host\":\"h\"/\"host\":\"$(cat bytes)<i>\"/" odd/c/run.json
run 0 odd -o odd.html
parses odd.html
said odd.html "&lt;script&gt;alert(1)&lt;/script&gt; &quot;q&quot; &#39; &amp; é ?[2J" "&lt;/td&gt;" "x?&lt;i&gt;"
lacks odd.html "<script" "<img" "x?<i>"

# Runs without rows, with NaN, that failed.
make_run few/none 1 1 '"lr":"1"' 0
run 0 few/none -o few.html
said few.html "no rows yet"
parses few.html
make_run few/holes 1 1 '"lr":"2"'
sed -i 's/"loss":[0-9.e-][0-9.e-]*/"loss":null/' few/holes/metrics.jsonl
status_word=failed make_run few/bad 1 1 '"lr":"3"' 7
sed -i 's/"status":"failed"/"status":"failed","error":"a <bad> day"/' few/bad/run.json
run 0 few -o few.html
said few.html "a &lt;bad&gt; day" 'class="text failed"'
lacks few.html nan inf
parses few.html
refused "cannot open the folder absent" -- absent
refused "report wants run folders" --
refused "-o absent/x.html: folder 'absent': No such file or directory; create it first" -- runs -o absent/x.html
refused "'-' names none; write -o report.html" -- runs -o -

conclude

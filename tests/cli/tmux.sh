#!/usr/bin/env bash
# tmux.sh PROGRAM - what a real terminal shows: tmux with 40, 80 and 200 columns, while a run goes on, after Ctrl-C and
# at the end. terminal.sh has the details.
program=$1 command=tmux
# shellcheck source=jobs.sh
source "$(dirname "$(realpath "$0")")/jobs.sh"
if ! command -v tmux >/dev/null; then
    echo "skipped: tmux is not installed"
    exit 77
fi
unset NO_COLOR TMUX
server=lockstep-$$
show() { tmux -L "$server" capture-pane -p -t "$1"; }
shows() { grep -qF -- "$2" <(show "$1"); }
# open NAME COLUMNS ARGUMENTS... - a window in which lockstep train runs, and then its exit status.
open() {
    local name=$1 columns=$2
    shift 2
    tmux -L "$server" -f /dev/null new-session -d -s "$name" -x "$columns" -y 40 \
        "MARK=$MARK '$program' train $*; echo \"status \$?\"; sleep 60"
}
ends() { shows "$1" "status $2"; }
if ! open try 80 --model mlp --max-steps 1; then
    echo "skipped: tmux cannot start"
    exit 77
fi
trap 'tmux -L "$server" kill-server 2>/dev/null; rm -rf "$scratch"' EXIT

for columns in 40 80 200; do
    line="tmux, $columns columns"
    open "run$columns" $columns --model mlp --no-test --epochs 1000 -n 2
    open "end$columns" $columns --model mlp --max-steps 100
    await 30 shows "run$columns" "loss " || complain "$line: there is no progress line"
    show "run$columns" >out
    check "$line: one progress line" test "$(grep -c 'step [0-9]*/[0-9]* ' out)" -eq 1
    check "$line: it is the last line" grep -q 'step .*loss ' <(grep -v '^$' out | tail -n 1)
    tmux -L "$server" send-keys -t "run$columns" C-c
    await 30 ends "run$columns" 130 || complain "$line: Ctrl-C does not end it"
    show "run$columns" >out
    check "$line: what is left after Ctrl-C" test "$(grep -c 'step [0-9]*/\|\^C' out)" -eq 0
    check "$line: the end is not told" grep -q 'SIGINT after step' out
    await 30 ends "end$columns" 0 || complain "$line: a short run does not end"
    show "end$columns" >out
    check "$line: what is left at the end" test "$(grep -c 'step [0-9]*/\|testing' out)" -eq 0
    check "$line: the table and the hash" test "$(grep -c '^  peak memory \|^State hash ' out)" -eq 2
done

conclude

#!/bin/bash
# blamed.sh PROGRAM - a signal to one of several ranks: the last line of the launcher names that rank and no
# other, on one node and on two, and the output of the ranks says which rank got the signal.
program=$1 command=train
. "$(dirname "$0")/jobs.sh"

task=(--model mlp --data digits --max-steps 1000000 --no-test --threads 1 --log-interval 1000000 --log-ranks all)

# pid_of RANK FILE... - the process id in the rank's first line.
pid_of() { cat "${@:2}" 2>/dev/null | sed -n "s/^.*\[rank $1\] host [^ ]*, pid \([0-9]*\),.*/\1/p"; }
# All ranks have begun to train: the line of a step follows the rank's first line.
trains() { # COUNT FILE...
    [ "$(cat "${@:2}" 2>/dev/null | grep -c '^\(\[[^]]*\] \)*\[rank [0-9]*\] Train Epoch')" -eq "$1" ]
}
words() { [ "$1" = TERM ] && echo "got SIGTERM" || echo "was killed by SIGKILL"; }
# blames FILE RANK PID SIGNAL - the first line of the cause names the rank and its process id, and no line of
# the launcher names another rank.
blames() {
    local cause
    cause=$(grep '^lockstep [a-z]*: rank [0-9]* on host [^ ]* (pid ' "$1")
    check "$line: '$cause' is not rank $2" grep -q "^lockstep [a-z]*: rank $2 on host [^ ]* (pid $3) $(words "$4")" \
        <<<"$cause"
    check "$line: several causes" test "$(wc -l <<<"$cause")" -eq 1
}
ends_as() { # SIGNAL
    check "$line: exit status $status" test $status -eq $((128 + $(kill -l "$1")))
}

for backend in shm tcp; do
    for signal in TERM KILL; do
        for rank in 0 1 2 3; do
            line="train -n 4 --backend $backend, SIG$signal to rank $rank"
            begin "$program" train "${task[@]}" -n 4 --backend $backend
            await 30 trains 4 out || complain "$line: does not train"
            pid=$(pid_of $rank out)
            kill -$signal "$pid"
            finish $job
            ends_as $signal
            blames err $rank "$pid" $signal
            [ $signal = KILL ] || [ $rank -eq 0 ] ||
                said err "lockstep train: rank $rank on host $(hostname) got SIGTERM after step "
            check "$line: nobody is left" test -z "$(left)"
        done
    done
done

# Two nodes with two ranks each; both launchers print the same cause.
export LOCKSTEP_TOKEN=$MARK
for signal in TERM KILL; do
    for rank in 0 1 2 3; do
        line="two nodes, SIG$signal to rank $rank"
        rm -f out* err* meeting
        jobs=()
        for node in 0 1; do
            "$program" run --nnodes 2 --node-rank $node --init-method "file://$scratch/meeting" -n 2 \
                "$program" train "${task[@]}" >out.$node 2>err.$node </dev/null &
            jobs+=($!)
        done
        await 30 trains 4 out.0 out.1 || complain "$line: does not train"
        pid=$(pid_of $rank out.0 out.1)
        kill -$signal "$pid"
        for node in 0 1; do
            finish "${jobs[$node]}"
            ends_as $signal
            blames err.$node $rank "$pid" $signal
        done
        check "$line: nobody is left" test -z "$(left)"
    done
done
unset LOCKSTEP_TOKEN

# Ranks that are started by hand: every rank names the rank that was stopped.
by_hand() { # SIGNAL RANK OPTIONS...
    local rank
    rm -f out* err* meeting
    jobs=()
    for rank in 0 1 2; do
        env --default-signal=INT "$program" train "${task[@]}" --init-method "file://$scratch/meeting" \
            --rank $rank --world-size 3 "${@:3}" >out.$rank 2>err.$rank </dev/null &
        jobs+=($!)
    done
    await 30 trains 3 out.0 out.1 out.2 || complain "$line: does not train"
    kill -"$1" "${jobs[$2]}"
}
for stopped in 0 2; do
    line="by hand, SIGINT to rank $stopped"
    by_hand INT $stopped
    for rank in 0 1 2; do
        finish "${jobs[$rank]}"
        ends_as INT
        [ $rank -eq $stopped ] && who= || who="rank $stopped on host $(hostname) got "
        check "$line: rank $rank tells it" grep -q "^lockstep train: ${who}SIGINT after step [0-9]*; " err.$rank
    done
done
for stopped in 0 2; do
    line="by hand, SIGSTOP to rank $stopped"
    by_hand STOP $stopped --timeout 2
    for rank in 0 1 2; do
        [ $rank -ne $stopped ] || continue
        finish "${jobs[$rank]}"
        check "$line: exit status $status of rank $rank" test $status -eq 1
        check "$line: rank $rank names it" grep -q \
            ": that is its timeout; is rank $stopped (host $(hostname), pid ${jobs[$stopped]}) stopped" err.$rank
    done
    kill -KILL "${jobs[$stopped]}"
    finish "${jobs[$stopped]}"
done

conclude

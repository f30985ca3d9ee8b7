#!/bin/bash
# data.sh PROGRAM SERVER PART - `lockstep data` with a server of the test. PART is "failures", which needs no
# data, or "published", which serves the published files of MNIST; they must be below $LOCKSTEP_DATA.
program=$1 command=data web_server=$(realpath "$2") part=$3 published=${LOCKSTEP_DATA:-}
[ -x "$web_server" ] || exit 1
. "$(dirname "$0")/jobs.sh"
lacking=$("$program" info | sed -nE 's/^ *(libcurl|libcrypto) +not in this build.*/\1/p' | xargs)
if [ -n "$lacking" ]; then
    echo "skipped: this build has no $lacking"
    exit 77
fi
if [ "$part" = published ] && [ ! -r "$published/mnist/train-images-idx3-ubyte.gz" ]; then
    echo "skipped: getting MNIST, as its published files are not below LOCKSTEP_DATA"
    exit 77
fi
trap 'stop_server; chmod -R u+w "$scratch" && rm -rf "$scratch"' EXIT
unset LOCKSTEP_DATA LOCKSTEP_DATA_URL
export HOME=$scratch XDG_CACHE_HOME=$scratch/cache no_proxy='*'

empty() { [ -z "$(find "$1" -type f 2>/dev/null)" ]; }

# start_server FAULTS... - serves the folder `served` and sets $url.
server_pid=
start_server() {
    stop_server
    rm -f hold url
    mkfifo hold
    "$web_server" served "$@" <hold >url &
    server_pid=$!
    exec 8>hold
    until [ -s url ]; do sleep .05; done
    url=$(cat url)
}
stop_server() {
    [ -n "$server_pid" ] || return 0
    exec 8>&-
    wait "$server_pid"
    server_pid=
}

mkdir served

test_failures() {
    dd if=/dev/zero of=served/train-images-idx3-ubyte.gz bs=9912422 count=1 2>/dev/null

    # Wrong arguments.
    run 2
    said err "wants what to do: list, get or verify"
    run 2 gett mnist
    said err "'gett'" "'get'"
    run 2 get
    said err "wants a data set" "data list"
    run 2 get mnits
    said err "'mnits'" "'mnist'"
    run 2 list mnist
    said err "too many"
    run 2 get mnist --url somewhere
    said err "--url 'somewhere'" "http://"
    LOCKSTEP_DATA_URL=/folder run 2 get mnist
    said err "LOCKSTEP_DATA_URL '/folder'"
    run 0 --help
    said out "list" "get NAME" "verify NAME" "--url" "--data-dir"

    # The list of data sets.
    run 0 list
    said out "mnist" "lockstep data get mnist" "lockstep data get cifar10" "built in" "bring your own"
    run 0 list --json
    said out '"name":"mnist","found":false' '"download_bytes":11594722' '"name":"digits","found":true'
    check "every line is an object" test "$(grep -c '^{.*}$' out)" -eq "$(wc -l <out)"
    run 0 get digits
    said out "built in"
    run 0 verify digits
    run 2 get imagenet
    said err "bring your own"
    run 2 verify mnist
    said err "was not found" "looked in"

    # Wrong bytes, a missing file, and no server: no file is left.
    start_server
    run 1 get mnist --url "$url"
    said err "cache/lockstep/mnist/train-images-idx3-ubyte.gz: wrong MD5 sum: expected f68b3c2dcbeaaa9fbdd348bbdeb94873, found "
    check "nothing is kept of a wrong file" empty cache
    run 1 get fashion-mnist --data-dir own --url "$url"
    said err "has 9912422 bytes there, and 26421880 are expected"
    check "nothing is kept of a file of the wrong size" empty own
    run 1 get cifar10 --url "$url"
    said err "cifar-10-binary.tar.gz: the server answers 404"
    check "nothing is kept where nothing came" empty cache
    run 1 get mnist --quiet --url "$url"
    check "--quiet prints errors only" test ! -s out -a "$(wc -l <err)" -eq 1
    LOCKSTEP_DATA_URL=$url run 1 get mnist
    said out "fetching $url"
    run 1 get mnist --json --url "$url"
    said out '{"event":"note","text":"fetching '
    check "a file in the folder's place" touch occupied
    run 1 get mnist --data-dir occupied --url "$url"
    said err "cannot create the folder occupied/mnist" "--data-dir"
    if [ "$(id -u)" -ne 0 ]; then
        mkdir locked
        chmod a-w locked
        run 1 get mnist --data-dir locked --url "$url"
        said err "cannot create the folder locked/mnist" "--data-dir"
    fi

    # A full disk, and an interruption: the part stays, and the message names it.
    (
        ulimit -f 1000
        "$program" data get mnist --data-dir full --url "$url" >out 2>err </dev/null
        echo $? >status
    )
    line="lockstep data get with too small a disk"
    check "$line fails" test "$(cat status)" -eq 1
    said err "cannot write full/mnist/train-images-idx3-ubyte.gz.part" "make room"
    check "$line leaves no file" test ! -e full/mnist/train-images-idx3-ubyte.gz
    start_server stall=500000
    line="lockstep data get, interrupted"
    # A background job would ignore SIGINT, so timeout sends it, on SIGALRM. With --foreground, timeout sends
    # it once; a second SIGINT would end the program at once.
    timeout --foreground -s INT --preserve-status 60 "$program" data get mnist --data-dir cut --url "$url" >out 2>err </dev/null &
    waiter=$!
    until [ "$(stat -c %s cut/mnist/train-images-idx3-ubyte.gz.part 2>/dev/null || echo 0)" -ge 500000 ]; do
        kill -0 $waiter 2>/dev/null || break
        sleep .05
    done
    kill -ALRM $waiter
    wait $waiter
    check "$line: exit status" test $? -eq 130
    said err "interrupted; 500000 of 9912422 bytes are in cut/mnist/train-images-idx3-ubyte.gz.part: run the same command"
    check "$line: the part stays" test "$(stat -c %s cut/mnist/train-images-idx3-ubyte.gz.part)" -eq 500000
}

test_published() {
    cp "$published"/mnist/*.gz served/
    # Resuming with a part of another file: the checksum detects it at the end.
    mkdir -p cut/mnist
    head -c 500000 /dev/zero >cut/mnist/train-images-idx3-ubyte.gz.part
    start_server cut=4000000
    run 0 get mnist --data-dir cut --url "$url"
    said out "500000 of 9912422 bytes are there from before" "wrong MD5 sum" "mnist is in cut/mnist"
    check "no part is left" test -z "$(find cut -name '*.part')"
    run 0 verify mnist --data-dir cut
    check "verify names every file" test "$(grep -c ': OK$' out)" -eq 4
    run 0 get mnist --data-dir cut
    said out "nothing to do"

    mkdir -p part/mnist
    head -c 5000000 served/train-images-idx3-ubyte.gz >part/mnist/train-images-idx3-ubyte.gz.part
    start_server
    run 0 get mnist --data-dir part --json --url "$url"
    said out '"event":"get","name":"mnist","path":"part/mnist","fetched":4,"bytes":11594722'
    check "what was fetched in two parts is the file" cmp -s served/train-images-idx3-ubyte.gz \
        part/mnist/train-images-idx3-ubyte.gz

    # Into the cache, where training searches.
    run 0 get mnist --url "$url"
    said out "cache/lockstep/mnist: 11.6 MB fetched"
    stop_server
    run 0 get mnist --url "$url"
    said out "nothing to do"
    run 0 list
    said out "$scratch/cache/lockstep/mnist"
    line="lockstep train on what was fetched"
    "$program" train --data mnist --model mlp --max-steps 1 --no-test >out 2>err
    check "$line" test $? -eq 0
    said out "$scratch/cache/lockstep/mnist"

    # A changed byte and a missing file are reported, and repaired.
    zcat served/t10k-labels-idx1-ubyte.gz | sed 's/\x07/\x08/' | gzip >cache/lockstep/mnist/t10k-labels-idx1-ubyte.gz
    run 1 verify mnist
    said out "t10k-labels-idx1-ubyte.gz: wrong SHA-256 sum: expected ff7bcfd4" "differs from what was published"
    run 1 verify mnist --json
    said out '"event":"verify","name":"mnist"' '"ok":false'
    start_server
    run 0 get mnist --url "$url"
    said out "downloaded again" "mnist is in"
    run 0 verify mnist
    head -c 3000 served/t10k-labels-idx1-ubyte.gz >cache/lockstep/mnist/t10k-labels-idx1-ubyte.gz
    run 1 verify mnist
    said out "t10k-labels-idx1-ubyte.gz: damaged gzip data near byte 3000" "train-labels-idx1-ubyte.gz: OK"
    LOCKSTEP_DATA=$scratch/cache/lockstep run 2 verify mnist --data-dir nowhere
    said err "looked in nowhere, which is not there"
    run 0 get mnist --url "$url"
    rm cut/mnist/t10k-labels-idx1-ubyte.gz
    run 0 get mnist --data-dir cut --quiet --url "$url"
    check "--quiet prints nothing" test ! -s out -a ! -s err
    check "one file was fetched" cmp -s served/t10k-labels-idx1-ubyte.gz cut/mnist/t10k-labels-idx1-ubyte.gz
}

test_"$part"
conclude

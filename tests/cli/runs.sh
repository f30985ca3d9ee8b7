# shellcheck shell=bash
# runs.sh - run folders by hand, for scripts that read them. Sourced before jobs.sh, whose `check` it uses.

# make_run FOLDER RANKS THREADS OPTIONS [STEPS] - a run of so many steps, 5 an epoch. OPTIONS are the inside of a JSON
# object. Rows end with a test after each epoch, unless $no_test is set.
make_run() {
    local folder=$1 ranks=$2 threads=$3 options=$4 steps=${5:-20}
    mkdir -p "$folder"
    cat >"$folder/run.json" <<END
{"format":"lockstep-run-1","name":"$(basename "$folder")","command":["lockstep","train"],"directory":"/tmp",
"started":1800000000,"status":"${status_word:-done}","pid":1,"host":"h","version":"0.1.0","build":"","devices":["cpu"],
"ranks":$ranks,"threads":$threads,"nodes":1,"model":"cnn","data":"mnist","options":{"seed":"7","log-dir":"$folder"${options:+,}$options},
"hash":"0123456789abcdef"}
END
    : >"$folder/metrics.jsonl"
    [ "$steps" -gt 0 ] || return 0
    awk -v steps="$steps" -v speed="$((ranks * threads * 100))" -v test="${no_test:+0}" 'BEGIN {
        for (s = 1; s <= steps; s++) {
            at = "\"step\":" s ",\"epoch\":" s / 5
            printf "{\"kind\":\"train\",%s,\"loss\":%g,\"top1\":%g,\"img_per_s\":%d,\"seconds\":%g}\n",
                at, 2 / s, 100 - 90 / s, speed, s * 100 / speed
            if (s % 5 == 0 && test != "0")
                printf "{\"kind\":\"test\",%s,\"loss\":%g,\"top1\":%g,\"seconds\":%g}\n", at, 3 / s, 100 - 50 / s,
                    s * 100 / speed
        }
    }' >"$folder/metrics.jsonl"
}
# parses FILE - the file is well-formed XML.
parses() {
    if ! command -v python3 >/dev/null; then
        echo "not checked without python3: XML of $1"
        return
    fi
    check "$line: $1 is not well-formed" python3 -c 'import sys, xml.dom.minidom as m; m.parse(sys.argv[1])' "$1"
}
lacks() { # FILE TEXT... - no text occurs in the file.
    local file=$1 text
    shift
    for text in "$@"; do check "$line: '$text' is in $file" test "$(grep -cF -- "$text" "$file")" -eq 0; done
}

#!/usr/bin/env bash
# scale.sh BUILD SOURCE: 8 and 12 simulated hosts, one or two ranks on each, add to the bits of the tree's
# definition; a step on 8 and 12 hosts takes as long as its computation, and not much longer.
set -euo pipefail
build=$1 source=$2
for program in smpirun python3; do
    if ! command -v "$program" >/dev/null; then
        echo "skipped: there is no $program here (tools/setup simgrid)"
        exit 77
    fi
done
cmake --build "$build" --target scale >/dev/null
run=(timeout 400 python3 "$source/bench/scale/run" --build "$build")
"${run[@]}" --check --hosts 8,12 --how tree,direct
"${run[@]}" --check --hosts 5 --how tree --local 2
# The check finds bits that differ: a ring adds in another order.
if "${run[@]}" --check --hosts 12 --how ring >/dev/null; then
    echo "a ring of 12 hosts had the bits of the tree: the check finds nothing"
    exit 1
fi
results=$(mktemp)
trap 'rm -f "$results"' EXIT
"${run[@]}" --hosts 1,8,12 --rates 100 --models cnn --how tree,ring --json "$results"
python3 - "$results" <<'EOF'
import json
import sys

rows = [json.loads(line) for line in open(sys.argv[1])]
assert len(rows) == 6, rows
for r in rows:
    assert r["step"] >= r["compute"] * 0.999999, r
    if r["hosts"] == 1:
        assert r["efficiency"] > 0.9999, r
    else:
        assert 0.5 < r["efficiency"] < 1 and 1 < r["ratio"] < 3 and 0 < r["hidden"] < 1, r
EOF

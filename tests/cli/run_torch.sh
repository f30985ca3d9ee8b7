#!/bin/bash
# run_torch.sh PROGRAM - an unchanged PyTorch script for torchrun runs under `lockstep run`, and `lockstep train` runs
# under torchrun. Exits with 77 (skipped) where there is no PyTorch.
set -u
program=$(realpath "$1")
source "$(dirname "$0")/../port.sh"
tools=$(realpath "$(dirname "$0")/../../tools")
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
unset RANK WORLD_SIZE LOCAL_RANK MASTER_ADDR MASTER_PORT
if ! "$tools/torch_python" --all >"$scratch/pythons" 2>/dev/null; then
    echo "skipped: no Python with PyTorch"
    exit 77
fi
cat >"$scratch/sum.py" <<'END'
import os
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
assert rank == int(os.environ["RANK"]) and world == int(os.environ["WORLD_SIZE"])
x = torch.full((1000,), float(rank + 1))
dist.all_reduce(x)
assert bool((x == world * (world + 1) / 2).all())
dist.barrier()
print(f"rank {rank} of {world} has {x[0].item():.0f}")
dist.destroy_process_group()
END

train=(train --model mlp --max-steps 4 --no-test --quiet --optimizer adam)
hash_of() { sed -n 's/^State hash //p' "$scratch/out"; }
"$program" "${train[@]}" >"$scratch/out" 2>"$scratch/err" </dev/null
single=$(hash_of)

failures=0
expect() { # WHAT WANTED
    if [ "$(sed 's/^\[[^]]*\] //' "$scratch"/out* | grep '^rank' | sort)" != "$2" ]; then
        echo "FAILED: $1"
        tail "$scratch"/out* "$scratch"/err*
        failures=$((failures + 1))
    fi
    rm -f "$scratch"/out* "$scratch"/err*
}
while read -r python; do
    timeout -s KILL 120 "$program" run -n 2 "$python" "$scratch/sum.py" >"$scratch/out" 2>"$scratch/err" </dev/null
    [ $? -eq 0 ] || failures=$((failures + 1))
    expect "$python, one node" "$(printf 'rank 0 of 2 has 3\nrank 1 of 2 has 3')"
    port=$(free_port)
    for node in 0 1; do
        timeout -s KILL 120 "$program" run --nnodes 2 --node-rank $node --master-port "$port" -n 1 "$python" \
            "$scratch/sum.py" >"$scratch/out.$node" 2>"$scratch/err.$node" </dev/null &
    done
    wait
    expect "$python, two nodes" "$(printf 'rank 0 of 2 has 3\nrank 1 of 2 has 3')"
    torchrun=(timeout -s KILL 120 "$python" -m torch.distributed.run)
    if ! "${torchrun[@]}" --nproc_per_node 1 --no_python true >/dev/null 2>&1 </dev/null; then
        echo "the torchrun of $python cannot start anything, and is left out"
        continue
    fi
    "${torchrun[@]}" --nproc_per_node 3 --no_python "$program" "${train[@]}" >"$scratch/out" 2>"$scratch/err" </dev/null
    if [ $? -ne 0 ] || [ ${#single} -ne 16 ] || [ "$(hash_of)" != "$single" ]; then
        echo "FAILED: train under torchrun of $python"
        tail "$scratch/out" "$scratch/err"
        failures=$((failures + 1))
    fi
    rm -f "$scratch"/out* "$scratch"/err*
done <"$scratch/pythons"
[ $failures -eq 0 ]

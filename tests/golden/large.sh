#!/bin/sh
# large.sh PROGRAM DIR - makes the large golden values in DIR if they are missing, then runs PROGRAM on them.
# Exits with 77 (skipped) where there is no PyTorch.
set -eu
program=$1
folder=$2
root=$(cd "$(dirname "$0")/../.." && pwd)

if [ ! -e "$folder/done" ] || [ "$root/tools/golden.py" -nt "$folder/done" ]; then
    python=$("$root/tools/torch_python") || {
        echo "skipped: the large golden values need PyTorch"
        exit 77
    }
    "$python" "$root/tools/golden.py" --large "$folder"
    touch "$folder/done"
fi
exec "$program" "$folder"

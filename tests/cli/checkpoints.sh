#!/bin/bash
# checkpoints.sh PROGRAM IMAGES - runs checkpoints.py with the first Python that has torchvision; exits with 77
# (skipped) where there is none.
here=$(cd "$(dirname "$0")" && pwd)
for python in $("$here/../../tools/torch_python" --all 2>/dev/null); do
    if "$python" -c 'import torchvision' 2>/dev/null; then
        exec "$python" "$here/checkpoints.py" "$(realpath "$1")" "$(realpath "$2")"
    fi
done
echo "skipped: no Python with torchvision"
exit 77

#!/bin/sh
# interop_pth.sh TEST_PTH - runs interop_pth.py with every Python that has PyTorch; exits with 77 (skipped) if none has.
here=$(cd "$(dirname "$0")" && pwd)
pythons=$("$here/../../tools/torch_python" --all 2>/dev/null) || {
    echo "skipped: no Python with PyTorch"
    exit 77
}
for python in $pythons; do
    echo "$python"
    "$python" "$here/interop_pth.py" "$1" || exit 1
done

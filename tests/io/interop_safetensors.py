"""interop_safetensors.py TEST_SAFETENSORS - exchanges files with the safetensors package in both directions; all bytes
must be equal. TEST_SAFETENSORS is the test program that writes and reads a fixed state. Exits with 77 where the package
or numpy is missing."""
import ctypes
import subprocess
import sys
import tempfile
from pathlib import Path

try:
    import numpy
    import safetensors
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

# The list of test_safetensors.c: byte k of tensor t is 7 k + 13 t + 1.
SAMPLES = [
    ("u8.odd", "U8", [3]),
    ("conv1.weight", "F32", [4, 1, 3, 3]),
    ("conv1.bias", "F32", [4]),
    ("f16", "F16", [3, 5]),
    ("bn.num_batches_tracked", "I64", []),
    ("bf16", "BF16", [7]),
    ("scalar", "F32", []),
    ("empty", "F32", [0, 5]),
    ("f64", "F64", [1, 2, 3]),
    ("i32", "I32", [1, 2, 1, 1, 2, 1, 1, 1]),
    ("quote\" back\\ slash/ tab\t \x01\x7f end", "U8", []),
    ("héllo 日 😀", "U8", [2]),
    ("", "U8", [1]),
]
# Name in the file: name in calls of the package, bytes of an element.
DTYPES = {
    "F64": ("float64", 8), "F32": ("float32", 4), "BF16": ("bfloat16", 2), "F16": ("float16", 2),
    "I64": ("int64", 8), "I32": ("int32", 4), "U8": ("uint8", 1),
}


def content(t, dtype, shape):
    count = DTYPES[dtype][1]
    for dim in shape:
        count *= dim
    return bytes((7 * k + 13 * t + 1) & 255 for k in range(count))


def serialize(tensors, metadata):
    """tensors: name -> (dtype, shape, bytes). Versions of the package differ in this call."""
    if hasattr(safetensors, "TensorSpec"):
        held = {name: ctypes.create_string_buffer(data, max(1, len(data))) for name, (_, _, data) in tensors.items()}
        specs = {
            name: safetensors.TensorSpec(dtype=DTYPES[dtype][0], shape=shape, data_ptr=ctypes.addressof(held[name]),
                                         data_len=len(data))
            for name, (dtype, shape, data) in tensors.items()
        }
        return bytes(safetensors.serialize(specs, metadata))
    raw = {name: {"dtype": DTYPES[dtype][0], "shape": shape, "data": data}
           for name, (dtype, shape, data) in tensors.items()}
    return bytes(safetensors.serialize(raw, metadata))


def check_written(path, tensors):
    found = {name: (t["dtype"], list(t["shape"]), bytes(t["data"]))
             for name, t in safetensors.deserialize(path.read_bytes())}
    assert found == tensors, "the package read other tensors than were written"
    with safetensors.safe_open(str(path), framework="np") as file:
        assert file.metadata() == {"format": "pt"}, file.metadata()
        weight = file.get_tensor("conv1.weight")
        assert weight.dtype == numpy.float32 and weight.shape == (4, 1, 3, 3)
        assert weight.tobytes() == tensors["conv1.weight"][2]
        assert file.get_tensor("bn.num_batches_tracked").shape == ()


def main():
    program = sys.argv[1]
    tensors = {name: (dtype, shape, content(t, dtype, shape)) for t, (name, dtype, shape) in enumerate(SAMPLES)}
    with tempfile.TemporaryDirectory() as folder:
        ours, theirs = Path(folder) / "ours.safetensors", Path(folder) / "theirs.safetensors"
        subprocess.run([program, "write", str(ours)], check=True)
        check_written(ours, tensors)
        for metadata in (None, {"format": "pt", "note": "\"é\\"}):
            theirs.write_bytes(serialize(tensors, metadata))
            subprocess.run([program, "read", str(theirs)], check=True)
        # A changed byte must be detected.
        changed = bytearray(theirs.read_bytes())
        changed[-1] ^= 1
        theirs.write_bytes(bytes(changed))
        seen = subprocess.run([program, "read", str(theirs)], stderr=subprocess.PIPE).returncode
        assert seen == 1, "a changed byte was not seen"
    print(f"{len(SAMPLES)} tensors exchanged both ways with safetensors {safetensors.__version__}")


main()

"""interop_pth.py TEST_PTH - exchanges .pth files with PyTorch in both directions; all bits must be equal. TEST_PTH is
the test program that writes and reads a fixed state. Exits with 77 where PyTorch is missing."""
import collections
import subprocess
import sys
import tempfile
from pathlib import Path

try:
    import torch
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

# The list of test_pth.c: byte k of tensor t is 7 k + 13 t + 1.
SAMPLES = [
    ("u8.odd", torch.uint8, [3]),
    ("conv1.weight", torch.float32, [4, 1, 3, 3]),
    ("conv1.bias", torch.float32, [4]),
    ("f16", torch.float16, [3, 5]),
    ("bn.num_batches_tracked", torch.int64, []),
    ("bf16", torch.bfloat16, [7]),
    ("scalar", torch.float32, []),
    ("empty", torch.float32, [0, 5]),
    ("f64", torch.float64, [1, 2, 3]),
    ("i32", torch.int32, [1, 2, 1, 1, 2, 1, 1, 1]),
    ("quote\" back\\ slash/ tab\t \x01\x7f end", torch.uint8, []),
    ("héllo 日 😀", torch.uint8, [2]),
    ("", torch.uint8, [1]),
    ("large", torch.uint8, [3, 70000]),
    ("middle", torch.int32, [300]),
]


def content(t, dtype, shape):
    count = torch.empty((), dtype=dtype).element_size()
    for dim in shape:
        count *= dim
    return bytes((7 * k + 13 * t + 1) & 255 for k in range(count))


def tensor(t, dtype, shape):
    data = content(t, dtype, shape)
    return torch.frombuffer(bytearray(data), dtype=dtype).reshape(shape) if data else torch.empty(shape, dtype=dtype)


def bits(value):
    """The bytes of a tensor in row-major order. A view as bytes needs at least one dimension."""
    flat = value.detach().contiguous().reshape(-1)
    return bytes(flat.view(torch.uint8).tolist()) if flat.numel() else b""


def check_written(path):
    found = torch.load(path, weights_only=True)
    assert isinstance(found, collections.OrderedDict)
    assert list(found) == [name for name, _, _ in SAMPLES], list(found)
    for t, (name, dtype, shape) in enumerate(SAMPLES):
        value = found[name]
        assert value.dtype == dtype and list(value.shape) == shape and value.is_contiguous(), name
        assert not value.requires_grad and value.device.type == "cpu", name
        assert bits(value) == content(t, dtype, shape), f"{name} has other bits"


def variants(state):
    """The same state, saved as users save it."""
    padded = collections.OrderedDict(state)
    weight = state["conv1.weight"]
    padded["conv1.weight"] = torch.cat([weight, weight], 1)[:, 1:]
    padded["f16"] = state["f16"].t().contiguous().t()
    yield state
    yield dict(state, conv_is_a_number=3)
    yield padded
    yield {"epoch": 3, "state_dict": state, "best": torch.tensor(1.0), "history": [0.5, None, (1, "a")]}
    yield {"model_state_dict": collections.OrderedDict(("module." + name, value) for name, value in state.items())}
    yield collections.OrderedDict(
        (name, torch.nn.Parameter(value, requires_grad=value.dtype.is_floating_point)) for name, value in state.items())


def main():
    program = sys.argv[1]
    state = collections.OrderedDict((name, tensor(t, dtype, shape)) for t, (name, dtype, shape) in enumerate(SAMPLES))
    # Shared memory would be one storage in the file.
    state = collections.OrderedDict((name, value.clone()) for name, value in state.items())
    count = 0
    with tempfile.TemporaryDirectory() as folder:
        ours, theirs = Path(folder) / "ours.pth", Path(folder) / "theirs.pth"
        subprocess.run([program, "write", str(ours)], check=True)
        check_written(ours)
        for variant in variants(state):
            for options in ({}, {"pickle_protocol": 4}, {"_use_new_zipfile_serialization": False},
                            {"_use_new_zipfile_serialization": False, "pickle_protocol": 4}):
                torch.save(variant, theirs, **options)
                subprocess.run([program, "read", str(theirs)], check=True)
                count += 1
        # A changed value must be detected.
        state["middle"][299] += 1
        torch.save(state, theirs)
        seen = subprocess.run([program, "read", str(theirs)], stderr=subprocess.PIPE).returncode
        assert seen == 1, "a changed value was not seen"
    print(f"{len(SAMPLES)} tensors written for PyTorch {torch.__version__}, and read from {count} files of its")


main()

"""Inputs and first states that golden files need not hold, and the writer of the files. tests/golden/golden.h repeats the noise."""
import json
import struct

import numpy as np
import torch

DTYPES = {"float32": "F32", "float64": "F64", "int64": "I64", "int32": "I32", "uint8": "U8"}


class File:
    """A .safetensors file under construction."""

    def __init__(self):
        self.tensors = {}

    def add(self, name, value):
        array = value.detach().numpy() if isinstance(value, torch.Tensor) else np.asarray(value)
        assert name not in self.tensors, name
        self.tensors[name] = np.array(array, order="C")

    def write(self, path):
        header, offset = {}, 0
        for name, array in self.tensors.items():
            end = offset + array.nbytes
            header[name] = {"dtype": DTYPES[str(array.dtype)], "shape": array.shape, "data_offsets": [offset, end]}
            offset = end
        text = json.dumps(header, separators=(",", ":")).encode()
        text += b" " * (-len(text) % 8)
        with open(path, "wb") as out:
            out.write(struct.pack("<Q", len(text)) + text)
            for array in self.tensors.values():
                out.write(array.tobytes())


def words(name, count):
    """Random 32-bit words of a name: FNV-1a of it plus the index, through a 32-bit mixer."""
    seed = 2166136261
    for byte in name.encode():
        seed = (seed ^ byte) * 16777619 & 0xFFFFFFFF
    h = (np.arange(count, dtype=np.uint64) * 0x9E3779B9 + seed).astype(np.uint32)
    h ^= h >> np.uint32(16)
    h *= np.uint32(0x85EBCA6B)
    h ^= h >> np.uint32(13)
    h *= np.uint32(0xC2B2AE35)
    return h ^ h >> np.uint32(16)


def noise(name, *shape):
    """Uniform multiples of 2^-15 in [-1,1)."""
    values = ((words(name, int(np.prod(shape))) >> np.uint32(16)).astype(np.float32) - 32768) / 32768
    return torch.from_numpy(values.reshape(shape))


def labels(name, count, classes):
    return torch.from_numpy((words(name, count) >> np.uint32(16)).astype(np.int64) % classes)


def first_value(key, shape):
    """Values of noise_state for an entry: weights like PyTorch's default, a power of two for 1/sqrt(fan_in)."""
    if key.endswith("num_batches_tracked"):
        return torch.tensor(3)
    value = noise(key, *shape)
    if len(shape) >= 2:
        fan_in, k = int(np.prod(shape[1:])), 0
        while 4**k < fan_in:
            k += 1
        return value * 2.0**-k
    if key.endswith((".weight", ".running_var")):
        return 1 + value / 4
    return value / 8


def noise_state(model):
    state = model.state_dict()
    model.load_state_dict({key: first_value(key, value.shape) for key, value in state.items()})
    return model


def train_step(model, optimizer, criterion, x, y):
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    loss.backward()
    optimizer.step()
    return loss.item()

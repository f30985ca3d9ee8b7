"""fixtures.py - small versions of the files that the commands of pages need: data sets of a few samples in the published
formats, a folder of images, and a `lockstep` that trains one batch where a page trains for hours."""
import os
import struct
import zlib

SAMPLES = 24


def write(path, content):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        file.write(content)


def noise(count, seed):
    """Returns pseudo-random bytes, the same in every run."""
    value, out = seed, bytearray()
    for _ in range(count):
        value = (value * 1103515245 + 12345) % (1 << 31)
        out.append(value >> 16 & 255)
    return bytes(out)


def idx(folder):
    for split in ("train", "t10k"):
        pixels = noise(SAMPLES * 784, 1)
        write(f"{folder}/{split}-images-idx3-ubyte", struct.pack(">4I", 0x803, SAMPLES, 28, 28) + pixels)
        labels = bytes(i % 10 for i in range(SAMPLES))
        write(f"{folder}/{split}-labels-idx1-ubyte", struct.pack(">2I", 0x801, SAMPLES) + labels)


def cifar(folder, names, labels):
    """labels(i) returns the label bytes of record i."""
    records = b"".join(labels(i) + noise(3072, i) for i in range(4))
    for name in names:
        write(f"{folder}/{name}", records)


def png(side, seed):
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    rows = b"".join(b"\0" + noise(3 * side, seed + y) for y in range(side))
    header = struct.pack(">2I5B", side, side, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def images(folder):
    for split in ("train", "val"):
        for label in ("cat", "dog"):
            for i in range(2):
                write(f"{folder}/{split}/{label}/{i}.png", png(80, i))


# Where a page shows no output, a run of one batch is enough to check the options. A transcript, and a run with a length of
# its own, is not shortened.
SHORT = """#!/bin/bash
words=" $* "
if [[ $words == *" train "* && ! $words =~ " --max-steps "|" --dry-run "|" --epochs "|" --resume " ]]; then
    set -- "$@" --dry-run
elif [[ $words == *" train "* && $words == *" --epochs "* ]]; then
    set -- "$@" --max-steps 2
fi
exec %s "$@"
"""


def make(folder, lockstep):
    """Fills `folder` with data/ (a $LOCKSTEP_DATA), pets/ and short/lockstep."""
    idx(f"{folder}/data/mnist")
    idx(f"{folder}/data/fashion-mnist")
    cifar(f"{folder}/data/cifar10", [f"data_batch_{i}.bin" for i in range(1, 6)] + ["test_batch.bin"],
          lambda i: bytes([i]))
    cifar(f"{folder}/data/cifar100", ["train.bin", "test.bin"], lambda i: bytes([0, i]))
    images(f"{folder}/pets")
    write(f"{folder}/short/lockstep", (SHORT % lockstep).encode())
    os.chmod(f"{folder}/short/lockstep", 0o755)

#!/usr/bin/env python3
"""Makes the small image files of tests/data/images, and the pixels that Pillow reads from them.

    python tools/images.py tests/data/images

Needs numpy and Pillow. Each image is computed by a formula. Images that Pillow cannot write are not changed.
pixels.safetensors has one uint8 tensor (3, H, W) for each file.
"""
import json
import os
import struct
import sys

import numpy as np
from PIL import Image


def draw(height, width, channels):
    y, x, c = np.mgrid[0:height, 0:width, 0:channels]
    waves = np.sin(x * (0.31 + 0.1 * c)) + np.cos(y * (0.23 - 0.05 * c)) + 0.6 * ((x + 2 * y) % 7 == 0)
    return np.clip(127 + 50 * waves, 0, 255).astype(np.uint8)


KEPT = ("interlaced.png", "cmyk_plain.jpg")


def files():
    rgb = Image.fromarray(draw(29, 37, 3))
    grey = Image.fromarray(draw(16, 11, 1)[:, :, 0])
    cmyk = Image.fromarray(draw(17, 20, 4), mode="CMYK")
    rgba = Image.fromarray(draw(9, 13, 4))
    deep = Image.fromarray((draw(8, 5, 1)[:, :, 0].astype(np.uint16) * 257))
    yield "rgb.jpg", rgb, {"quality": 80}
    yield "fine.jpg", rgb, {"quality": 95, "subsampling": 0}
    yield "wide.jpg", rgb, {"quality": 70, "subsampling": 1}
    yield "progressive.jpg", rgb, {"quality": 80, "progressive": True}
    yield "grey.jpg", grey, {"quality": 80}
    yield "cmyk.jpg", cmyk, {"quality": 80}
    yield "rgb.png", rgb, {}
    yield "grey.png", grey, {}
    yield "rgba.png", rgba, {}
    yield "palette.png", rgb.quantize(16), {}
    yield "bits.png", grey.convert("1"), {}
    yield "deep.png", deep, {}
    yield "thin.png", Image.fromarray(draw(1, 16000, 1)[:, :, 0]).convert("1"), {}


def pixels(path):
    image = Image.open(path)
    if image.mode.startswith("I"):
        # Pillow clips 16 bits instead of scaling them.
        array = (np.asarray(image) >> 8).astype(np.uint8)
        image = Image.fromarray(array)
    return np.ascontiguousarray(np.asarray(image.convert("RGB")).transpose(2, 0, 1))


def write_tensors(path, tensors):
    header, offset = {}, 0
    for name, array in tensors.items():
        header[name] = {"dtype": "U8", "shape": array.shape, "data_offsets": [offset, offset + array.nbytes]}
        offset += array.nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text + b"".join(a.tobytes() for a in tensors.values()))


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    folder, tensors = sys.argv[1], {}
    os.makedirs(folder, exist_ok=True)
    for name, image, options in files():
        path = os.path.join(folder, name)
        image.save(path, **options)
        tensors[name] = pixels(path)
    for name in KEPT:
        tensors[name] = pixels(os.path.join(folder, name))
    write_tensors(os.path.join(folder, "pixels.safetensors"), tensors)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Loads a folder of JPEG images with two workers, by torchvision and by Lockstep in turn.

    python bench/images.py [FOLDER]

Without FOLDER (train/CLASS/*.jpg) it draws 2,000 images of 500x375 pixels in a temporary folder. Both programs decode,
resize a random part to 224x224, flip at random, normalise and make batches of 64. Needs torchvision; prints the medians
and their ratio.
"""
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np
import torch
from PIL import Image
from torchvision import datasets, transforms

COUNT, WORKERS, BATCH, ROUNDS = 2000, 2, 64, 5
PROGRAM = os.environ.get("LOCKSTEP", os.path.join(os.path.dirname(__file__), "..", "build", "lockstep"))


def draw_folder(folder):
    """Smooth shapes with grain: about 45 KB in each file, like photographs of that size."""
    random = np.random.default_rng(0)
    for i in range(COUNT):
        coarse = Image.fromarray(random.integers(0, 256, (24, 32, 3), dtype=np.uint8))
        smooth = np.asarray(coarse.resize((500, 375), Image.BICUBIC), dtype=np.int16)
        grain = random.normal(0, 6, smooth.shape).astype(np.int16)
        path = os.path.join(folder, "train", f"class{i % 10}")
        os.makedirs(path, exist_ok=True)
        image = Image.fromarray(np.clip(smooth + grain, 0, 255).astype(np.uint8))
        image.save(os.path.join(path, f"{i:05d}.jpg"), quality=88)


def torchvision_loader(folder):
    change = transforms.Compose([
        transforms.RandomResizedCrop(224), transforms.RandomHorizontalFlip(), transforms.ToTensor(),
        transforms.Normalize((.485, .456, .406), (.229, .224, .225))])
    data = datasets.ImageFolder(os.path.join(folder, "train"), change)
    return torch.utils.data.DataLoader(data, BATCH, shuffle=True, num_workers=WORKERS, persistent_workers=True)


def time_torchvision(loader):
    began, images = time.perf_counter(), 0
    for x, _ in loader:
        images += len(x)
    return images / (time.perf_counter() - began)


def time_lockstep(folder):
    line = [PROGRAM, "bench", "data", "--data", folder, "--num-workers", str(WORKERS), "--batch-size", str(BATCH),
            "--augment", "resized_crop=224,flip", "--runs", "1", "--json"]
    return json.loads(subprocess.run(line, check=True, stdout=subprocess.PIPE).stdout)["img_per_s"]


def main():
    with tempfile.TemporaryDirectory() as own:
        folder = sys.argv[1] if len(sys.argv) > 1 else own
        if folder == own:
            draw_folder(own)
        loader = torchvision_loader(folder)
        time_torchvision(loader)  # starts the workers, and warms the page cache for both
        rates = [(time_torchvision(loader), time_lockstep(folder)) for _ in range(ROUNDS)]
    theirs, ours = (statistics.median(rate) for rate in zip(*rates))
    print(f"torchvision {theirs:.0f} img/s, lockstep {ours:.0f} img/s, {ours / theirs:.2f}x "
          f"(medians of {ROUNDS} in turn, {WORKERS} workers)")


if __name__ == "__main__":
    main()

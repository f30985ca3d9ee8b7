"""runs.py - writes run folders as `lockstep train --log-dir` does, for tests of the live page."""
import json
import math
import os
import random
import shutil
import time


def row(step, steps_per_epoch, top, seed):
    """A training row of a run that learns, with noise."""
    rng = random.Random(seed * 1000003 + step)
    epoch = step / steps_per_epoch
    loss = 2.3 * math.exp(-epoch / 1.5) + .05 + .06 * rng.random()
    return {"kind": "train", "step": step, "epoch": round(epoch, 4), "loss": round(loss, 5),
            "top1": round(min(100, top * (1 - math.exp(-epoch)) + 2 * rng.random()), 3),
            "top5": round(min(100, 97 + 3 * (1 - math.exp(-epoch))), 3),
            "lr": round(.1 * .7 ** int(epoch), 6), "grad_norm": round(.4 + 2 * loss * rng.random(), 4),
            "img_per_s": round(1850 + 120 * rng.random(), 1), "seconds": round(step * .035, 3)}


class Run:
    """A run folder that grows."""

    def __init__(self, root, name, ranks=2, top=96, started=None, steps_per_epoch=100, **options):
        self.folder = os.path.join(root, name)
        self.name, self.ranks, self.top = name, ranks, top
        self.steps_per_epoch, self.step, self.seed = steps_per_epoch, 0, len(name) + ranks
        os.makedirs(self.folder)
        self.about = {
            "format": "lockstep-run-1", "name": name, "command": ["lockstep", "train", "--data", "mnist", "-n", str(ranks)],
            "directory": "/home/ada", "started": started or time.time() - 60, "status": "running", "pid": 4711,
            "host": "node7", "version": "0.1.0", "build": "gcc 12, arm64", "devices": ["cpu"] * ranks, "ranks": ranks,
            "threads": 1, "nodes": 1, "model": "cnn", "data": "mnist", "classes": 10, "train_count": 60000,
            "test_count": 10000, "parameters": 1199882, "steps_per_epoch": steps_per_epoch,
            "options": {"model": "cnn", "data": "mnist", "batch-size": "64", "lr": "0.1", "optimizer": "adadelta",
                        "seed": "1", **{key.replace("_", "-"): str(value) for key, value in options.items()}}}
        self.describe()
        self.log(f"Lockstep 0.1.0: {ranks} ranks, cnn on mnist, batch 64")

    def path(self, name):
        return os.path.join(self.folder, name)

    def describe(self, **changes):
        self.about.update(changes)
        with open(self.path("run.json.new"), "w") as file:
            json.dump(self.about, file)
        os.rename(self.path("run.json.new"), self.path("run.json"))

    def append(self, name, text):
        with open(self.path(name), "a") as file:
            file.write(text)

    def log(self, line):
        self.append("log.txt", line + "\n")

    def rows(self, rows):
        self.append("metrics.jsonl", "".join(json.dumps(row) + "\n" for row in rows))

    def rank_row(self):
        rng = random.Random(self.step)
        ranks = []
        for rank in range(self.ranks):
            wait, data = 3 + 9 * rng.random() * (rank + 1) / self.ranks, 1 + rng.random()
            ranks.append({"rank": rank, "host": "node7", "device": "cuda:%d" % rank if self.ranks > 2 else "cpu",
                          "img_per_s": round(930 + 40 * rng.random(), 1), "wait_pct": round(wait, 2),
                          "data_pct": round(data, 2), "compute_pct": round(100 - wait - data, 2),
                          "cpu_pct": round(97 + 3 * rng.random(), 1), "memory_mb": round(412 + 5 * rng.random(), 1)})
            if self.ranks > 2:
                ranks[-1].update(gpu_pct=round(88 + 9 * rng.random()), gpu_memory_mb=20480, gpu_celsius=round(61 + 8 * rng.random()))
        return {"step": self.step, "seconds": round(self.step * .035, 3), "ranks": ranks}

    def grow(self, steps, interval=10):
        rows = []
        for _ in range(0, steps, interval):
            self.step += interval
            rows.append(row(self.step, self.steps_per_epoch, self.top, self.seed))
            if self.step % self.steps_per_epoch == 0:
                last = rows[-1]
                rows.append({"kind": "test", "step": self.step, "epoch": last["epoch"], "loss": round(last["loss"] * .9, 5),
                             "top1": round(min(100, last["top1"] + 1), 3), "top5": 99.5, "seconds": last["seconds"]})
                self.log(f"Test set: Average loss: {rows[-1]['loss']:.4f}, Accuracy: {rows[-1]['top1']:.2f}%")
            self.log(f"Train Epoch: {self.step // self.steps_per_epoch + 1} step {self.step} Loss: {rows[-1]['loss']:.6f}")
        self.rows(rows)
        self.append("ranks.jsonl", json.dumps(self.rank_row()) + "\n")

    def remove(self):
        shutil.rmtree(self.folder)

"""interop_tensorboard.py PROGRAM - TensorBoard's own reader loads the event files of a run: every tag, step and value is equal
to metrics.jsonl, and every tensor has a histogram after each epoch. One run is undisturbed, one is killed and resumed.
Exits with 77 where the package tensorboard is missing, or the program was built without protobuf-c."""
import json
import os
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

try:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

PROGRAM = Path(sys.argv[1]).resolve()
OPTIONS = "--model mlp --batch-size 2000 --epochs 2 --log-interval 7".split()
COLUMNS = ["loss", "top1", "top5", "lr", "grad_norm", "img_per_s"]


def train(folder, *options, fault="", status=0):
    environment = dict(os.environ, **({"LOCKSTEP_FAULT": fault} if fault else {}))
    done = subprocess.run([PROGRAM, "train", *options, "--log-dir", folder], env=environment, timeout=100,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert done.returncode == status, done.stdout


def run_of(folder):
    (run,) = folder.iterdir()
    return run


def as_float(value):
    """A number as the 32-bit float that an event file has."""
    return struct.unpack("f", struct.pack("f", value))[0]


def expected(run):
    """{tag: [(step, value)]} of metrics.jsonl."""
    tags = {}
    for line in (run / "metrics.jsonl").read_text().splitlines():
        row = json.loads(line)
        for column in COLUMNS:
            if column in row:
                tags.setdefault(f"{column}/{row['kind']}", []).append((row["step"], as_float(row[column])))
    return tags


def check(run, epochs):
    events = EventAccumulator(str(run), size_guidance={"scalars": 0, "histograms": 0})
    events.Reload()
    wanted = expected(run)
    assert sorted(events.Tags()["scalars"]) == sorted(wanted), (events.Tags()["scalars"], sorted(wanted))
    for tag, values in wanted.items():
        got = [(event.step, event.value) for event in events.Scalars(tag)]
        assert got == values, (tag, got, values)
    keys = ["chunk1.1.weight", "chunk1.1.bias", "chunk1.3.weight", "chunk1.3.bias", "chunk2.0.weight", "chunk2.0.bias",
            "chunk2.2.weight", "chunk2.2.bias"]
    histograms = [f"{what}/{key}" for what in ("weights", "gradients") for key in keys]
    assert sorted(events.Tags()["histograms"]) == sorted(histograms), events.Tags()["histograms"]
    for tag in histograms:
        got = events.Histograms(tag)
        assert [event.step for event in got] == epochs, (tag, got)
        for event in got:
            value = event.histogram_value
            assert sum(value.bucket) == value.num and value.min <= value.max, tag
    print(f"{len(wanted)} scalars of {sum(map(len, wanted.values()))} values, {len(histograms)} histograms: equal")


if "not in this build: TensorBoard" in subprocess.run([PROGRAM, "info"], stdout=subprocess.PIPE, text=True).stdout:
    print("skipped: the program was built without protobuf-c")
    sys.exit(77)
with tempfile.TemporaryDirectory() as scratch:
    whole, parts = Path(scratch, "whole"), Path(scratch, "parts")
    train(whole, *OPTIONS)
    check(run_of(whole), [30, 60])
    train(parts, *OPTIONS, "--save-every", "20", fault="delay:step=47,seconds=1;kill:step=47", status=-9)
    train(parts, "--resume", str(run_of(parts) / "checkpoints"), "--log-interval", "7")
    check(run_of(parts), [30, 60])

#!/usr/bin/env python3
"""`make gpubench`: milliseconds of a step on a GPU, by Lockstep and by PyTorch in alternating runs, with the ratios and
their goals; then the start of a run and a whole run. Takes under five minutes.

PyTorch's step is measured as Python runs it (eager) and captured in a CUDA graph (bench/peer_torch_gpu.py), with the
image layout (channels last or not) whose captured step is faster. Both use the first visible GPU (see
CUDA_VISIBLE_DEVICES). If something is missing, a line says so and the rest is measured. A slow result never fails.
"""
import argparse
import collections
import json
import os
import queue
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PEER = os.path.join(ROOT, "bench", "peer_torch_gpu.py")
DEVICE = "cuda:0"

# goal: speed divided by that of PyTorch's captured step. runs: number of our runs, each of `steps`; the median counts.
Row = collections.namedtuple("Row", "model batch precision goal steps runs")
# Rows with goals come first, in case time runs out.
ROWS = (
    Row("cnn", 64, "tf32", 1.6, 1000, 3),
    Row("cnn", 1024, "tf32", 1.5, 200, 3),
    Row("mlp", 128, "fp32", 1.6, 2000, 3),
    Row("mlp", 128, "tf32", None, 2000, 3),
    Row("pyramidnet", 256, "tf32", 1.3, 20, 1),
    Row("pyramidnet", 256, "bf16", 1.3, 20, 1),
    Row("cnn", 64, "bf16", None, 1000, 3),
    Row("cnn", 64, "fp32", None, 1000, 3),
    Row("cnn", 1024, "bf16", None, 200, 3),
)
LEARNING = {
    "cnn": ["--optimizer", "adadelta", "--lr", "1"],
    "mlp": ["--optimizer", "adam", "--lr", "0.001"],
    "pyramidnet": ["--optimizer", "sgd:momentum=0.9,weight_decay=1e-4", "--lr", "0.1"],
}
RECORDS = 512  # in each of the five files of colour images, which are drawn at random

START_S, WHOLE_S = 1.5, 6  # goals: from exec to the end of the first step, and of 14 epochs of MNIST
KEPT_S = 25  # seconds reserved for these two
STEP_TIMEOUT_S, PEER_TIMEOUT_S, RUN_TIMEOUT_S = 60, 90, 60


class Failed(Exception):
    """A run that gave no figure, and why."""


class Clock:
    """Seconds that are left for everything, without the reserve for the end."""

    def __init__(self, seconds, kept):
        self.end = time.monotonic() + seconds
        self.kept = kept

    def left(self):
        return self.end - self.kept - time.monotonic()

    def bound(self, seconds):
        return max(1, min(seconds, self.left()))


def draw_colours(folder):
    """Makes a folder that Lockstep reads as CIFAR-10, so that images of 3x32x32 need no download."""
    draw = random.Random(1)
    for number in range(1, 6):
        with open(os.path.join(folder, f"data_batch_{number}.bin"), "wb") as file:
            for _ in range(RECORDS):
                file.write(bytes([draw.randrange(10)]) + draw.getrandbits(8 * 3072).to_bytes(3072, "little"))


class Ours:
    def __init__(self, program, colours, clock):
        self.program, self.colours, self.clock = program, colours, clock

    def lines_of(self, words, timeout):
        """The JSON lines a command prints."""
        timeout = self.clock.bound(timeout)
        try:
            done = subprocess.run([self.program, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                  universal_newlines=True, timeout=timeout, check=False)
        except subprocess.TimeoutExpired:
            raise Failed(f"no end after {timeout:.0f} s") from None
        if done.returncode != 0:
            said = [line for line in done.stderr.splitlines() if line.strip()]
            raise Failed(said[-1] if said else f"exit status {done.returncode}")
        return [json.loads(line) for line in done.stdout.splitlines() if line.strip()]

    def step(self, row):
        words = ["bench", "train", "--devices", DEVICE, "--precision", row.precision, "--model", row.model,
                 "--batch-size", str(row.batch), "--steps", str(row.steps), "--runs", str(row.runs), "--json"]
        words += LEARNING[row.model]
        words += ["--data", self.colours, "--augment", "none"] if row.model == "pyramidnet" else []
        return self.lines_of(words, STEP_TIMEOUT_S)[-1]["ms_per_step"]

    def try_out(self):
        """Fails if there is no such GPU, or if the build is without CUDA."""
        self.step(Row("mlp", 128, "fp32", None, 1, 1))

    def has(self, data):
        words = ["train", "--devices", "cpu", "--data", data, "--epochs", "0", "--no-test"]
        try:
            done = subprocess.run([self.program, *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                  timeout=self.clock.bound(STEP_TIMEOUT_S), check=False)
        except subprocess.TimeoutExpired:
            return False
        return done.returncode == 0

    def train(self, data, *more):
        """All JSON lines of a run of the cnn, and its seconds from exec to exit."""
        words = ["train", "--devices", DEVICE, "--precision", "tf32", "--model", "cnn", "--data", data, "--quiet"]
        began = time.monotonic()
        lines = self.lines_of([*words, "--json", *more], RUN_TIMEOUT_S)
        return lines, time.monotonic() - began


class Peer:
    """PyTorch in a process that is kept, because importing it takes seconds."""

    def __init__(self, python, clock):
        self.python, self.clock = python, clock
        self.layouts = {}  # by row: whether channels last is faster
        self.process, self.errors = None, None
        self.name, self.gpu = self.start()

    def start(self):
        """Names of PyTorch and the GPU."""
        self.errors = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen([self.python, PEER, "--serve"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=self.errors, universal_newlines=True)
        self.answers = queue.Queue()
        threading.Thread(target=self.read, args=(self.process.stdout, self.answers), daemon=True).start()
        hello = self.answer()
        return f"{hello['peer']}, cuDNN {hello['cudnn']}", hello["gpu"]

    @staticmethod
    def read(pipe, answers):
        for line in pipe:
            if line.startswith("{"):
                answers.put(json.loads(line))
        answers.put(None)

    def answer(self):
        timeout = self.clock.bound(PEER_TIMEOUT_S)
        try:
            line = self.answers.get(timeout=timeout)
        except queue.Empty:
            self.stop()
            raise Failed(f"no answer after {timeout:.0f} s") from None
        if line is None:
            self.errors.seek(0)
            said = self.errors.read().strip().splitlines()
            self.stop()
            raise Failed(f"PyTorch ended: {said[-1]}" if said else "PyTorch ended")
        if "error" in line:
            raise Failed(line["error"])
        return line

    def stop(self):
        if self.process:
            self.process.kill()
            self.process.wait()
            self.process = None
            self.errors.close()

    def run(self, row, steps, *how):
        if not self.process:
            self.start()
        words = [row.model, str(row.batch), row.precision, "--steps", str(steps), *how]
        try:
            self.process.stdin.write(" ".join(words) + "\n")
            self.process.stdin.flush()
        except OSError:
            pass  # the answer says why
        return self.answer()["ms_per_step"]

    def layout(self, row):
        return ["--channels-last"] if self.layouts.get(row) else []

    def choose_layout(self, row):
        """Tries both layouts, for models of images."""
        steps = max(5, row.steps // 5)
        times = [self.run(row, steps, "--captured", *layout)
                 for layout in (["--channels-last"], []) if not layout or row.model != "mlp"]
        self.layouts[row] = times[0] < times[-1]
        return times

    def eager(self, row):
        return self.run(row, max(10, row.steps // 5), *self.layout(row))

    def captured(self, row):
        return self.run(row, row.steps, "--captured", *self.layout(row))


def find_peer(clock):
    """The first PyTorch that has a GPU; None, with the reason printed, if there is none."""
    try:
        found = subprocess.run([os.path.join(ROOT, "tools", "torch_python"), "--all"], stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, universal_newlines=True, timeout=clock.bound(60), check=False)
    except subprocess.TimeoutExpired:
        print("PyTorch is not measured: it was not found in time")
        return None
    reasons = [] if found.returncode == 0 else [found.stderr.strip()]
    for python in found.stdout.split():
        try:
            return Peer(python, clock)
        except Failed as why:
            reasons.append(str(why))
    print(f"PyTorch is not measured: {'; '.join(reasons)}")
    return None


def find_ours(args, colours, clock):
    ours = Ours(args.program, colours, clock)
    if not os.access(args.program, os.X_OK):
        print(f"Lockstep is not measured: {args.program} is not there; run make first")
        return None
    try:
        ours.try_out()
    except Failed as why:
        print(f"Lockstep is not measured: {why}")
        return None
    return ours


def measure(row, ours, peer, rounds):
    """{"ours": ms, "eager": ms, "captured": ms}, medians; the order is reversed in every round. A side that fails
    prints the reason and is left out."""
    sides = {"ours": ours.step} if ours else {}
    if peer:
        sides.update(eager=peer.eager, captured=peer.captured)
    times = collections.defaultdict(list)

    def attempt(who, do):
        try:
            return do(row)
        except Failed as why:
            print(f"{row.model}, batch {row.batch}, {row.precision}: {who}: {why}", flush=True)
            sides.pop(who, None)
            times.pop(who, None)
            return None

    if peer and attempt("captured", peer.choose_layout) is None:
        sides.pop("eager")
    for number in range(rounds):
        for who in list(sides) if number % 2 == 0 else list(sides)[::-1]:
            value = attempt(who, sides[who])
            if value is not None:
                times[who].append(value)
    return {who: statistics.median(values) for who, values in times.items()}


def verdict(value, target, at_most=False):
    met = value <= target if at_most else value >= target
    return f"{'at most' if at_most else 'at least'} {target:.3g}: {'met' if met else 'MISSED'}"


def show_row(row, result, last):
    def column(who):
        return f"{result[who]:.4g}" if who in result else "-"

    layout = "-" if row.model == "mlp" or "captured" not in result else "last" if last else "first"
    ratio, goal = "-", ""
    if "ours" in result and "captured" in result:
        times = result["captured"] / result["ours"]
        ratio = f"{times:.2f}"
        goal = verdict(times, row.goal) if row.goal else ""
    line = (f"{row.model:<11}{row.batch:>6}{row.precision:>6}{column('ours'):>11}{column('eager'):>11}"
            f"{column('captured'):>11}{ratio:>8}  {layout:<7}{goal}")
    print(line.rstrip(), flush=True)


def show_steps(ours, peer, args, clock):
    print(f"\n{'ms a step':<11}{'batch':>6}{'':>6}{'lockstep':>11}{'eager':>11}{'captured':>11}{'times':>8}"
          f"  {'layout':<7}goal", flush=True)
    for row in ROWS:
        if clock.left() <= 0:
            print(f"{row.model:<11}{row.batch:>6}{row.precision:>6}  left out: the time is over")
            continue
        result = measure(row, ours, peer, args.rounds)
        show_row(row, result, peer and peer.layouts.get(row))
    print("times: PyTorch's captured step over ours. layout: where PyTorch has the channels of images.\n"
          "PyTorch's batch lies on the GPU and its loss stays there. Ours is gathered in each step from the data set,\n"
          "whose bytes are on the GPU; its labels and ids come from the host, and every loss is read.")


def show_start(ours, data, args):
    name = f"seconds to the first step, {data}"
    try:
        starts = [ours.train(data, "--max-steps", "1", "--no-test")[0][-1]["first_step_s"] for _ in range(args.rounds)]
    except Failed as why:
        print(f"{name:<34}{'-':>7}   {why}")
        return
    start = statistics.median(starts)
    print(f"{name:<34}{start:>7.2f}   {verdict(start, START_S, at_most=True)}", flush=True)


def show_whole(ours):
    name = "seconds of 14 epochs of MNIST"
    try:
        lines, seconds = ours.train("mnist", "--epochs", "14")
    except Failed as why:
        print(f"{name:<34}{'-':>7}   {why}")
        return
    tests = [line["accuracy"] for line in lines if line["event"] == "test"]
    print(f"{name:<34}{seconds:>7.2f}   {verdict(seconds, WHOLE_S, at_most=True)} (from exec to exit, tf32, "
          f"{tests[0]:.2f} % after epoch 1, {tests[-1]:.2f} % at the end)", flush=True)


def show_runs(ours, args):
    print()
    if ours.has("mnist"):
        show_start(ours, "mnist", args)
        show_whole(ours)
    else:
        show_start(ours, "digits", args)
        print("mnist is not on this machine (LOCKSTEP_DATA names the folder of data sets): no whole run")


def bench(args, colours):
    clock = Clock(args.limit, KEPT_S)
    draw_colours(colours)
    ours = find_ours(args, colours, clock)
    peer = find_peer(clock)
    if not ours and not peer:
        print("nothing can be measured here")
        return 1
    if peer:
        print(f"{peer.gpu}; {peer.name}")
    try:
        show_steps(ours, peer, args, clock)
    finally:
        if peer:
            peer.stop()
    if ours:
        clock.kept = 0
        show_runs(ours, args)
    return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default=os.path.join(ROOT, "build", "lockstep"))
    parser.add_argument("--rounds", type=int, default=3, help="runs of each, of which the median counts")
    parser.add_argument("--limit", type=float, default=280, help="seconds for everything")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as colours:
        return bench(args, colours)


if __name__ == "__main__":
    sys.exit(main())

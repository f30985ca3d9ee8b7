"""The two sides of the CPU benchmarks, Lockstep and PyTorch, and how their runs are compared."""
import collections
import json
import os
import statistics
import subprocess
import sys

import peer_models

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PEER = os.path.join(ROOT, "bench", "peer_torch.py")

# What is trained: --model, its input (channels, height, width), classes, samples of a step of all ranks together.
Task = collections.namedtuple("Task", "model shape classes batch ranks threads precision", defaults=("fp32",))


def shape_words(shape):
    return "x".join(map(str, shape))


def lines_of(command):
    """The JSON lines a command prints."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: exit status {done.returncode}: {done.stderr.strip()}")
    return [json.loads(line) for line in done.stdout.splitlines() if line.strip()]


class Ours:
    def __init__(self, program, seconds=3):
        if not os.access(program, os.X_OK):
            sys.exit(f"{program} is not there: run make first")
        self.program, self.seconds = program, seconds
        self.steps = {}  # of a run, by task

    def bench(self, task, steps, *more):
        command = [self.program, "bench", "train", "--devices", "cpu", "--model", task.model, "--json", "--input",
                   shape_words(task.shape), "--classes", str(task.classes), "--batch-size", str(task.batch)]
        command += ["--precision", task.precision, "--optimizer", peer_models.optimizer_words(task.model)]
        command += ["--threads", str(task.threads), "--steps", str(steps)]
        command += ["-n", str(task.ranks)] if task.ranks > 1 else []
        return lines_of(command + list(more))[-1]

    def train(self, task, *more):
        """Steps of about self.seconds seconds, with random images in memory."""
        if task not in self.steps:
            few = self.bench(task, 2)["ms_per_step"]
            self.steps[task] = max(2, round(1000 * self.seconds / few))
        return self.bench(task, self.steps[task], *more)

    def flops(self, task):
        """Of a training step and one sample."""
        command = [self.program, "info", "--model", task.model, "--input", shape_words(task.shape), "--classes",
                   str(task.classes), "--json"]
        return lines_of(command)[-1]["train_flops"]

    def has(self, data):
        """Whether a data set is on this machine; exit status 2 means that it was not found."""
        command = [self.program, "train", "--data", data, "--epochs", "0", "--no-test"]
        done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, universal_newlines=True,
                              check=False)
        if done.returncode not in (0, 2):
            sys.exit(f"{' '.join(command)}: exit status {done.returncode}: {done.stderr.strip()}")
        return done.returncode == 0

    def has_kernels(self, name):
        """Whether this machine runs these kernels."""
        return name in subprocess.run([self.program, "info"], stdout=subprocess.PIPE, universal_newlines=True,
                                      check=True).stdout.split()

    def whole_run(self, data, steps, *more):
        """The last line of `lockstep train` with the cnn: the time from exec to the first step, and the memory."""
        command = [self.program, "train", "--model", "cnn", "--data", data, "--json", "--no-test"]
        return lines_of(command + ["--max-steps", str(steps), *more])[-1]


class Peer:
    """PyTorch, each task in its fastest setting on this machine, which is looked for first: in each Python that
    tools/torch_python finds, by bench/peer_torch.py --probe."""

    def __init__(self, seconds=3, setting=None, wanted=True):
        self.seconds, self.setting = seconds, setting
        self.best = {}  # (Python, setting), by task
        self.pythons = []
        if not wanted:
            return
        found = subprocess.run([os.path.join(ROOT, "tools", "torch_python"), "--all"], stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, universal_newlines=True, check=False)
        self.pythons = found.stdout.split()
        if not self.pythons:
            print(f"PyTorch is not measured: {found.stderr.strip()}")

    def run(self, task, python, seconds, *more):
        command = [python, PEER, "--model", task.model, "--input", shape_words(task.shape), "--classes",
                   str(task.classes), "--batch-size", str(task.batch), "--ranks", str(task.ranks), "--threads",
                   str(task.threads), "--precision", task.precision, "--seconds", str(seconds)]
        return lines_of(command + list(more))[-1]

    def search(self, task):
        """Sets self.best of the task."""
        if self.setting:
            self.best[task] = (self.pythons[0], self.setting)
            return
        ranks = f", {task.ranks} ranks" if task.ranks > 1 else ""
        what = f"{task.model}, {task.precision}, {task.threads} threads{ranks}"
        print(f"looking for PyTorch's fastest setting: {what} ...", flush=True)
        tried = [(trial["img_per_s"], python, trial) for python in self.pythons
                 for trial in self.run(task, python, self.seconds / 3, "--probe")]
        for rate, _, trial in sorted(tried, key=lambda row: -row[0]):
            print(f"  {rate:9.1f} img/s  {trial['peer']}, {trial['setting']}", flush=True)
        _, python, trial = max(tried, key=lambda row: row[0])
        self.best[task] = (python, trial["setting"])

    def train(self, task, *more):
        if task not in self.best:
            self.search(task)
        python, setting = self.best[task]
        return self.run(task, python, self.seconds, "--setting", setting, *more)


def median(results, key):
    return statistics.median(result[key] for result in results)


def alternate(sides, rounds):
    """{name: results} of functions; the order is reversed in every round."""
    results = {name: [] for name in sides}
    for number in range(rounds):
        for name in sorted(sides, reverse=number % 2 == 1):
            results[name].append(sides[name]())
    return results


def verdict(value, goal, at_most=False):
    reached = value <= goal if at_most else value >= goal
    return f"{'at most' if at_most else 'at least'} {goal:.3g}: {'reached' if reached else 'MISSED'}"


def show_goal(name, value, goal, at_most=False):
    if goal is not None:
        print(f"{name:<34}{value:>7.3g}   {verdict(value, goal, at_most)}", flush=True)

#!/usr/bin/env python3
"""`make bench`: the cnn at batch 64, by Lockstep and by PyTorch in alternating runs; prints medians and targets.
Then several ranks (bench/ranks.py), the cost of checkpoints (bench/keep.py) and the kernels.

PyTorch runs in its fastest setting on this machine, which is searched first: each Python that tools/torch_python
finds, each setting of bench/peer_torch.py, for each number of threads. A slow result never fails the run, because
machines are noisy: the table is for a reader.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PEER = os.path.join(ROOT, "bench", "peer_torch.py")
BATCH = 64
MNIST_SAMPLES = 70000


def lines_of(command):
    """The JSON lines a command prints."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: exit status {done.returncode}: {done.stderr.strip()}")
    return [json.loads(line) for line in done.stdout.splitlines() if line.strip()]


class Ours:
    def __init__(self, program):
        self.program = program

    def train(self, threads, steps):
        """Measures steps with data in memory."""
        command = [self.program, "bench", "train", "--model", "cnn", "--batch-size", str(BATCH), "--json"]
        return lines_of(command + ["--threads", str(threads), "--steps", str(steps)])[-1]

    def has(self, data):
        """Whether a data set is on this machine; exit status 2 means that it was not found."""
        command = [self.program, "train", "--data", data, "--epochs", "0", "--no-test"]
        done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
        return done.returncode == 0

    def whole_run(self, data, threads, steps):
        """The last line of `lockstep train`: the time from exec to the first step, and the memory of the run."""
        command = [self.program, "train", "--model", "cnn", "--batch-size", str(BATCH), "--data", data, "--json"]
        return lines_of(command + ["--threads", str(threads), "--max-steps", str(steps), "--no-test"])[-1]


class Peer:
    """PyTorch's fastest setting for each number of threads."""

    def __init__(self, threads, steps):
        found = subprocess.run([os.path.join(ROOT, "tools", "torch_python"), "--all"], stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, universal_newlines=True, check=False)
        self.best = {}
        if found.returncode != 0:
            print(f"PyTorch is not measured: {found.stderr.strip()}")
            return
        for count in threads:
            print(f"looking for PyTorch's fastest setting with {count} thread{'s' * (count > 1)} ...", flush=True)
            trials = [(trial["img_per_s"], python, trial) for python in found.stdout.split()
                      for trial in self.run(python, count, steps, "--probe", "--rounds", "1")[0]]
            for rate, _, trial in sorted(trials, key=lambda row: -row[0]):
                print(f"  {rate:7.0f} img/s  {trial['peer']}, {trial['setting']}")
            _, python, trial = max(trials, key=lambda row: row[0])
            self.best[count] = (python, trial["setting"])

    @staticmethod
    def run(python, threads, steps, *more):
        command = [python, PEER, "--threads", str(threads), "--steps", str(steps), "--batch-size", str(BATCH), *more]
        return lines_of(command)

    def train(self, threads, steps, *more):
        python, setting = self.best[threads]
        return self.run(python, threads, steps, "--setting", setting, *more)[-1]


def median(results, key):
    return statistics.median(result[key] for result in results)


def alternate(ours, peer, args):
    """{(who, threads): results}; the order is reversed in every round."""
    results = {}
    for number in range(args.rounds):
        for threads in args.threads:
            sides = [("ours", ours)] + ([("torch", peer)] if peer.best else [])
            for who, side in sides if number % 2 == 0 else reversed(sides):
                results.setdefault((who, threads), []).append(side.train(threads, args.steps))
        print(f"round {number + 1} of {args.rounds} done", flush=True)
    return results


def verdict(value, target, at_most=False):
    met = value <= target if at_most else value >= target
    return f"{'at most' if at_most else 'at least'} {target:.3g}: {'met' if met else 'MISSED'}"


def show_speed(results, args):
    print(f"\n{f'cnn, batch {BATCH}':<26}{'img/s':>9}{'ms/step':>9}{'MB':>7}   runs (img/s)")
    for (who, threads), runs in sorted(results.items(), key=lambda row: (row[0][1], row[0][0])):
        name = f"{'lockstep' if who == 'ours' else runs[0]['peer']}, {threads} thread{'s' * (threads > 1)}"
        rates = " ".join(f"{run['img_per_s']:.0f}" for run in runs)
        print(f"{name:<26}{median(runs, 'img_per_s'):>9.0f}"
              f"{median(runs, 'ms_per_step'):>9.2f}{median(runs, 'peak_rss_mb'):>7.0f}   {rates}")
    print()
    for threads, target in ((1, 1.3), (2, 1.6)):
        if ("torch", threads) in results:
            ratio = median(results["ours", threads], "img_per_s") / median(results["torch", threads], "img_per_s")
            name = f"times PyTorch, {threads} thread{'s' * (threads > 1)}"
            print(f"{name:<34}{ratio:>7.2f}   {verdict(ratio, target)}")
    if 1 in args.threads and 2 in args.threads:
        ratio = median(results["ours", 2], "img_per_s") / median(results["ours", 1], "img_per_s")
        print(f"{'our 2 threads, times our 1':<34}{ratio:>7.2f}   {verdict(ratio, 1.8)}")


def show_start(ours, args):
    """Seconds from exec to the end of the first step."""
    for data, target in (("mnist", 0.3), ("digits", 0.1)):
        if not ours.has(data):
            print(f"{data} is not on this machine (LOCKSTEP_DATA names the folder of data sets): no time to first step")
            continue
        start = median([ours.whole_run(data, max(args.threads), 1) for _ in range(args.rounds)], "first_step_s")
        print(f"{f'seconds to the first step, {data}':<34}{start:>7.2f}   {verdict(start, target, at_most=True)}")


def show_memory(ours, peer, results, args):
    """Peak memory of a run. Both have the same data in memory: MNIST if it is there, otherwise a few batches."""
    threads = max(args.threads)
    if ours.has("mnist"):
        what, mine = "MNIST in memory", ours.whole_run("mnist", threads, 20)["peak_rss_mb"]
        theirs = peer.train(threads, 20, "--samples", str(MNIST_SAMPLES))["peak_rss_mb"] if peer.best else None
    else:
        what, mine = "a few batches in memory", median(results["ours", threads], "peak_rss_mb")
        theirs = median(results["torch", threads], "peak_rss_mb") if peer.best else None
    if not theirs:
        print(f"{'peak memory, MB':<34}{mine:>7.0f}   with {what}")
        return
    print(f"{'peak memory, part of PyTorch':<34}{mine / theirs:>7.2f}   {verdict(mine / theirs, 1 / 3, at_most=True)} "
          f"({mine:.0f} of {theirs:.0f} MB, {what})")


def run_script(args, name, *more):
    print(flush=True)
    command = [sys.executable, os.path.join(ROOT, "bench", name), "--program", args.program]
    subprocess.run(command + ["--rounds", str(args.rounds), *more], check=False)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--program", default=os.path.join(ROOT, "build", "lockstep"))
    parser.add_argument("--rounds", type=int, default=5, help="runs of each, of which the median counts")
    parser.add_argument("--steps", type=int, default=40, help="steps a run")
    parser.add_argument("--threads", type=int, nargs="+", help="default: 1, and 2 where there are two cores")
    parser.add_argument("--no-ranks", action="store_true", help="leave out bench/ranks.py, several ranks")
    parser.add_argument("--no-keep", action="store_true", help="leave out bench/keep.py, what checkpoints cost")
    parser.add_argument("--no-kernels", action="store_true", help="leave out `lockstep bench kernels`")
    args = parser.parse_args()
    if not os.access(args.program, os.X_OK):
        sys.exit(f"{args.program} is not there: run make first")
    if not args.threads:
        args.threads = [1, 2] if len(os.sched_getaffinity(0)) > 1 else [1]
    ours = Ours(args.program)
    peer = Peer(args.threads, max(5, args.steps // 4))
    results = alternate(ours, peer, args)
    show_speed(results, args)
    show_start(ours, args)
    show_memory(ours, peer, results, args)
    if not args.no_ranks and len(os.sched_getaffinity(0)) > 1:
        run_script(args, "ranks.py")
    if not args.no_keep and len(os.sched_getaffinity(0)) > 1:
        run_script(args, "keep.py", "--steps", "100")
    if not args.no_kernels:
        print(flush=True)
        return subprocess.run([args.program, "bench", "kernels"], check=False).returncode
    return 0


if __name__ == "__main__":
    sys.exit(main())

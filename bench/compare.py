#!/usr/bin/env python3
"""`make bench`: models of the zoo, by Lockstep and by PyTorch in alternating runs; prints medians and goals, and the
part of the machine's peak. Then the layers of some of them, several ranks (bench/ranks.py), the cost of checkpoints
(bench/keep.py) and the kernels.

PyTorch runs in its fastest setting on this machine, which is looked for first (bench/sides.py). A slow result never
fails the run, because machines are noisy: the table is for a reader.
"""
import argparse
import collections
import os
import re
import subprocess
import sys

from peer_models import CIFAR, IMAGENET, MNIST
from sides import ROOT, Ours, Peer, Task, alternate, lines_of, median, show_goal, verdict

# goal: times PyTorch; layers: the layers are shown, too.
Row = collections.namedtuple("Row", "model shape classes batch goal layers")
ROWS = (
    Row("cnn", MNIST, 10, 64, 2.5, True),
    Row("mlp", MNIST, 10, 128, 8, False),
    Row("resnet20", CIFAR, 10, 64, 2, True),
    Row("pyramidnet:blocks=3,alpha=48", CIFAR, 10, 64, 2, False),
    Row("resnet18:cifar", CIFAR, 10, 32, 2, True),
    Row("mobilenet_v2:cifar", CIFAR, 10, 32, 2, False),
    Row("resnet50", IMAGENET, 1000, 8, 2, False),
)
BF16_ROW, BF16_GOAL = "resnet18:cifar", 2  # times our fp32, and times PyTorch's bf16
MNIST_SAMPLES = 70000
MEMORY = 0.5  # of PyTorch's peak memory


def show_limits(args):
    """The machine's limits, from the last line of a benchmark of layers."""
    command = [args.program, "bench", "layers", "--model", "mlp", "--input", "1x28x28", "--steps", "1", "--json"]
    line = lines_of(command + ["--threads", "1"])[-1]
    print(f"one core: {line['peak_gflops']:.1f} GF/s of fused multiply-adds, {line['peak_gb_per_s']:.1f} GB/s copied")
    return line["peak_gflops"]


def show_runs(task, results):
    what = f"{task.model}, batch {task.batch}, {task.precision}, {task.threads} threads"
    print(f"\n{what:<46}{'img/s':>9}{'ms/step':>9}{'MB':>7}   runs (img/s)")
    for name, runs in sorted(results.items()):
        rates = " ".join(f"{run['img_per_s']:.4g}" for run in runs)
        print(f"{runs[0].get('peer', name):<46}{median(runs, 'img_per_s'):>9.1f}{median(runs, 'ms_per_step'):>9.2f}"
              f"{median(runs, 'peak_rss_mb'):>7.0f}   {rates}")


def show_row(row, task, results, ours, peak):
    mine = median(results["lockstep"], "img_per_s")
    part = 1e-9 * ours.flops(task) * mine / (peak * task.threads)
    show_runs(task, results)
    print(f"{'part of the peak, direct sums':<34}{part:>7.2f}")
    if "torch" in results:
        theirs = results["torch"]
        show_goal("times PyTorch", mine / median(theirs, "img_per_s"), row.goal)
        show_goal("peak memory, part of PyTorch's",
                  median(results["lockstep"], "peak_rss_mb") / median(theirs, "peak_rss_mb"), MEMORY, at_most=True)


def show_rows(args, ours, peer):
    """Speeds by row and number of threads; returns our rates, for the gain by threads."""
    peak, rates = show_limits(args), {}
    for row in ROWS:
        if not re.search(args.rows, row.model):
            continue
        for threads in args.threads:
            task = Task(row.model, row.shape, row.classes, row.batch, 1, threads)
            sides = {"lockstep": lambda task=task: ours.train(task)}
            if peer.pythons:
                sides["torch"] = lambda task=task: peer.train(task)
            results = alternate(sides, args.rounds)
            show_row(row, task, results, ours, peak)
            rates[row.model, threads] = median(results["lockstep"], "img_per_s")
            if threads > 1 and (row.model, 1) in rates:
                show_goal(f"our {threads} threads, times our 1",
                          rates[row.model, threads] / rates[row.model, 1], {2: 1.85, 16: 13}.get(threads))
        if row.layers and not args.no_layers:
            show_layers(args, row)


def show_layers(args, row):
    print(flush=True)
    shape = "x".join(map(str, row.shape))
    subprocess.run([args.program, "bench", "layers", "--model", row.model, "--input", shape, "--classes",
                    str(row.classes), "--batch-size", str(row.batch), "--steps", "10"], check=False)


def show_bf16(args, ours, peer):
    """bf16 by AMX beside our fp32 and PyTorch's bf16."""
    if not ours.has_kernels("amx") or not re.search(args.rows, BF16_ROW):
        return
    row = next(row for row in ROWS if row.model == BF16_ROW)
    for threads in args.threads:
        fp32 = Task(row.model, row.shape, row.classes, row.batch, 1, threads)
        task = fp32._replace(precision="bf16")
        sides = {"lockstep": lambda task=task: ours.train(task), "lockstep, fp32": lambda task=fp32: ours.train(task)}
        if peer.pythons:
            sides["torch"] = lambda task=task: peer.train(task)
        results = alternate(sides, args.rounds)
        show_runs(task, results)
        rates = {name: median(runs, "img_per_s") for name, runs in results.items()}
        show_goal("times our fp32", rates["lockstep"] / rates["lockstep, fp32"], BF16_GOAL)
        if "torch" in rates:
            show_goal("times PyTorch's bf16", rates["lockstep"] / rates["torch"], BF16_GOAL)


def show_start(ours, args):
    """Seconds from exec to the end of the first step."""
    print()
    for data, goal in (("mnist", 0.15), ("digits", 0.05)):
        if not ours.has(data):
            print(f"{data} is not on this machine (LOCKSTEP_DATA names the folder of data sets): no time to first step")
            continue
        start = median([ours.whole_run(data, 1) for _ in range(args.rounds)], "first_step_s")
        show_goal(f"seconds to the first step, {data}", start, goal, at_most=True)


def show_memory(ours, peer, args):
    """Peak memory of a run of the cnn with MNIST in memory."""
    threads = max(args.threads)
    if not peer.pythons or not ours.has("mnist"):
        return
    mine = ours.whole_run("mnist", 20, "--threads", str(threads))["peak_rss_mb"]
    theirs = peer.train(Task("cnn", MNIST, 10, 64, 1, threads), "--samples", str(MNIST_SAMPLES))["peak_rss_mb"]
    print(f"{'memory with MNIST, part of PyTorch':<34}{mine / theirs:>7.2f}   "
          f"{verdict(mine / theirs, MEMORY, at_most=True)} ({mine:.0f} of {theirs:.0f} MB)")


def run_script(args, name, *more):
    print(flush=True)
    command = [sys.executable, os.path.join(ROOT, "bench", name), "--program", args.program]
    subprocess.run(command + ["--rounds", str(args.rounds), *more], check=False)


def thread_counts():
    """1, 2, 4, ... up to the cores."""
    cores, counts = len(os.sched_getaffinity(0)), [1]
    while 2 * counts[-1] <= cores:
        counts.append(2 * counts[-1])
    return counts


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default=os.path.join(ROOT, "build", "lockstep"))
    parser.add_argument("--rows", default="", help="only models whose name matches this regular expression")
    parser.add_argument("--rounds", type=int, default=5, help="runs of each, of which the median counts")
    parser.add_argument("--seconds", type=float, default=3, help="of a run, at least two steps")
    parser.add_argument("--threads", type=int, nargs="+", default=thread_counts())
    parser.add_argument("--setting", help="of PyTorch, as bench/peer_torch.py prints it, instead of looking for one")
    parser.add_argument("--no-torch", action="store_true", help="leave PyTorch out")
    parser.add_argument("--no-layers", action="store_true", help="leave out `lockstep bench layers`")
    parser.add_argument("--no-ranks", action="store_true", help="leave out bench/ranks.py, several ranks")
    parser.add_argument("--no-keep", action="store_true", help="leave out bench/keep.py, what checkpoints cost")
    parser.add_argument("--no-kernels", action="store_true", help="leave out `lockstep bench kernels`")
    args = parser.parse_args()
    ours = Ours(args.program, args.seconds)
    peer = Peer(args.seconds, args.setting, not args.no_torch)
    show_rows(args, ours, peer)
    show_bf16(args, ours, peer)
    show_start(ours, args)
    show_memory(ours, peer, args)
    several = len(os.sched_getaffinity(0)) > 1
    if not args.no_ranks and several:
        run_script(args, "ranks.py", *(["--no-torch"] if args.no_torch else []))
    if not args.no_keep and several:
        run_script(args, "keep.py", "--steps", "100")
    if not args.no_kernels:
        print(flush=True)
        return subprocess.run([args.program, "bench", "kernels"], check=False).returncode
    return 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""The time of one sample's prediction by the cnn on one core: `lockstep bench predict` and PyTorch (inference mode, one
thread) in turn. Prints the fastest call and the median of each run, and medians over the runs. Options: --runs N,
--calls N, --lockstep PROGRAM.
"""
import argparse
import json
import statistics
import subprocess
import sys
import time

import peer_models


def time_torch(torch, model, calls):
    x = torch.rand(1, 1, 28, 28)
    times = []
    with torch.inference_mode():
        model(x)
        for _ in range(calls):
            began = time.perf_counter()
            model(x)
            times.append(1e6 * (time.perf_counter() - began))
    return min(times), statistics.median(times)


def time_lockstep(program, calls):
    command = [program, "bench", "predict", "--model", "cnn", "--devices", "cpu", "--threads", "1"]
    command += ["--steps", str(calls), "--json"]
    line = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return line["fastest_us"], line["median_us"]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--calls", type=int, default=1000)
    parser.add_argument("--lockstep", default="build/lockstep")
    args = parser.parse_args()
    try:
        import torch
    except ImportError:
        sys.exit("predict.py: PyTorch is not installed")
    torch.set_num_threads(1)
    model = peer_models.make("cnn", peer_models.MNIST, 10)[0].eval()
    ours, theirs = [], []
    for _ in range(args.runs):
        ours.append(time_lockstep(args.lockstep, args.calls))
        theirs.append(time_torch(torch, model, args.calls))
        print(f"Lockstep {ours[-1][0]:.1f} us (median {ours[-1][1]:.1f}), "
              f"PyTorch {theirs[-1][0]:.1f} us (median {theirs[-1][1]:.1f})", flush=True)
    for name, i in (("fastest", 0), ("median", 1)):
        a, b = (statistics.median(run[i] for run in side) for side in (ours, theirs))
        print(f"{name}: Lockstep {a:.1f} us, PyTorch {torch.__version__} {b:.1f} us, {b / a:.2f} times as fast")


if __name__ == "__main__":
    main()

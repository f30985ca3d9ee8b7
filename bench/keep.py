#!/usr/bin/env python3
"""The cost of checkpoints every 50 steps, and of checkpoints, replica check and logging together.

`bench/keep.py` trains the cnn at batch 64, on MNIST if it is there, otherwise on the built-in digits, in alternating
runs: one process without and with checkpoints, two ranks with none and with all of these. Prints the medians of the
ratios and the goals. The cost of one save is found inside the runs, where varying load matters less: the steps right
after a save are compared with the others of the same period. Plain runs are evaluated in the same way, which shows how
much of the result is noise. A slow result never fails the run.
"""
import argparse
import collections
import json
import os
import statistics
import subprocess
import sys
import tempfile

from sides import ROOT, Ours, verdict

BATCH = 64

EVERY = 50  # steps between two saves
BUSY = 10   # of those, the steps during which a save may be written
FIRST = 2 * EVERY  # steps that do not count: caches are filled, memory is touched for the first time
EPOCH = 938        # steps of both data sets; events have the step within the epoch, which must not start again

SAVING = ["--save-every", str(EVERY)]
Side = collections.namedtuple("Side", "saves options")
SIDES = {
    "plain": Side(False, ["--check-every", "0", "--log-interval", "1"]),
    "saving": Side(True, ["--check-every", "0", "--log-interval", "1"] + SAVING),
    "2 ranks, bare": Side(False, ["-n", "2", "--check-every", "0", "--log-interval", str(FIRST)]),
    "2 ranks, all": Side(True, ["-n", "2", "--check-every", "100", "--log-ranks", "all", "--log-interval", "10"]
                         + SAVING),
}
# The sides that are compared, and by how many percent the first may be slower.
CASES = (("saving", "plain", 2), ("2 ranks, all", "2 ranks, bare", 3))

Result = collections.namedtuple("Result", "ms cpu_ms times writes bytes")


def folder_bytes(folder):
    """Bytes of the newest checkpoint."""
    newest = os.path.join(folder, max(name for name in os.listdir(folder) if name.startswith("step-")))
    return sum(os.path.getsize(os.path.join(newest, name)) for name in os.listdir(newest))


def run_program(command, log):
    """The events, and the CPU seconds of the program and of all processes that it started and waited for."""
    with open(log, "w+", encoding="utf-8") as out, open(log + ".err", "w+", encoding="utf-8") as err:
        # Waits for the process here, because Popen would drop its resource usage.
        process = subprocess.Popen(command, stdout=out, stderr=err)
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.WEXITSTATUS(status) if os.WIFEXITED(status) else -os.WTERMSIG(status)
        if process.returncode != 0:
            err.seek(0)
            sys.exit(f"{' '.join(command)}: exit status {process.returncode}: {err.read().strip()}")
        out.seek(0)
        return [json.loads(line) for line in out], used.ru_utime + used.ru_stime


class Runner:
    def __init__(self, args):
        self.args = args
        self.data = "mnist" if Ours(args.program).has("mnist") else "digits"
        # An event is printed at the first step after each interval.
        self.last = FIRST + args.steps + 1
        self.common = [args.program, "train", "--model", "cnn", "--batch-size", str(BATCH), "--data", self.data,
                       "--no-test", "--quiet", "--json", "--max-steps", str(self.last)]

    def run(self, side):
        """One run, in a folder of its own."""
        threads = ["--threads", str(self.args.threads)] if self.args.threads and "-n" not in side.options else []
        with tempfile.TemporaryDirectory(prefix="bench-keep-", dir=self.args.dir) as folder:
            kept = os.path.join(folder, "kept")
            command = self.common + side.options + threads + (["--checkpoint", kept] if side.saves else [])
            events, cpu = run_program(command, os.path.join(folder, "log"))
            size = folder_bytes(kept) if side.saves else 0
        times = {event["step"]: event["seconds"] for event in events if event["event"] == "step"}
        writes = [event["seconds"] for event in events if event["event"] == "checkpoint"]
        ms = 1e3 * (times[self.last] - times[FIRST + 1]) / (self.last - FIRST - 1)
        return Result(ms, 1e3 * cpu, times, writes, size)


def alternate(runner):
    """{side: results}; the order is reversed in every round."""
    results = {name: [] for name in SIDES}
    for number in range(runner.args.rounds):
        for name in list(SIDES) if number % 2 == 0 else reversed(list(SIDES)):
            results[name].append(runner.run(SIDES[name]))
        print(f"round {number + 1} of {runner.args.rounds} done", flush=True)
    return results


def spread(values, form):
    return f"{min(values):{form}} to {max(values):{form}}"


def excess(results, busy):
    """For each period: by how many milliseconds its first `busy` steps took longer than as many of its other steps."""
    found = []
    for times in (result.times for result in results):
        last = max(times)
        for begin in range(FIRST, last - EVERY + 1, EVERY):
            first = times[begin + busy] - times[begin]
            others = times[begin + EVERY] - times[begin + BUSY]
            found.append(1e3 * (first - others * busy / (EVERY - BUSY)))
    return found


def show_ratios(results):
    print(f"\n{f'cnn, batch {BATCH}':<20}{'ms/step':>9}   runs (ms/step)")
    for name, runs in results.items():
        shown = " ".join(f"{run.ms:.2f}" for run in runs)
        print(f"{name:<20}{statistics.median(run.ms for run in runs):>9.2f}   {shown}")
    print()
    for name, base, goal in CASES:
        costs = [100 * (a.ms / b.ms - 1) for a, b in zip(results[name], results[base])]
        print(f"{f'{name}: % slower than {base}':<44}{statistics.median(costs):>7.2f}   "
              f"{verdict(statistics.median(costs), goal, at_most=True)} ({spread(costs, '+.1f')})")


def show_saves(results):
    """The cost of one save."""
    step = statistics.median(run.ms for run in results["plain"])
    after, noise = (statistics.median(excess(results[name], BUSY)) for name in ("saving", "plain"))
    percent = 100 / (EVERY * step)
    print(f"{'a save, % of a period, inside the runs':<44}{percent * (after - noise):>7.2f}   "
          f"{verdict(percent * (after - noise), CASES[0][2], at_most=True)} "
          f"(taken off: {percent * noise:+.2f}, counted alike without saves)")
    first = statistics.median(excess(results["saving"], 1)) - statistics.median(excess(results["plain"], 1))
    saves = len(results["saving"][0].writes)
    cpu = [(a.cpu_ms - b.cpu_ms) / saves for a, b in zip(results["saving"], results["plain"])]
    writes = [1e3 * seconds for run in results["saving"] for seconds in run.writes]
    size = results["saving"][0].bytes / 1e6
    print(f"a save: {size:.1f} MB; the step after it takes {first:+.1f} ms (the copy, and the writing beside it), "
          f"the {BUSY} steps after it {after - noise:+.1f} ms")
    print(f"writing takes {statistics.median(writes):.0f} ms ({spread(writes, '.0f')}); the processors' time for all "
          f"of it is {statistics.median(cpu):.0f} ms a save ({spread(cpu, '.0f')})", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--program", default=os.path.join(ROOT, "build", "lockstep"))
    parser.add_argument("--rounds", type=int, default=7, help="runs of each, of which the median counts")
    parser.add_argument("--steps", type=int, default=400,
                        help=f"steps that count, a multiple of {FIRST}, at most {(EPOCH - 1) // FIRST * FIRST - FIRST}")
    parser.add_argument("--threads", type=int, help="of the runs of one process; without it as many as there are cores")
    parser.add_argument("--dir", help="where checkpoints are written; the folder of the program, so that it is a disk")
    args = parser.parse_args()
    if not os.access(args.program, os.X_OK):
        sys.exit(f"{args.program} is not there: run make first")
    if args.steps < FIRST or args.steps % FIRST or FIRST + args.steps + 1 > EPOCH:
        parser.error(f"--steps {args.steps}: a multiple of {FIRST}, and all of it within an epoch of {EPOCH} steps")
    args.dir = args.dir or os.path.dirname(os.path.abspath(args.program))
    runner = Runner(args)
    print(f"checkpoints every {EVERY} steps, {args.steps} steps a run, data {runner.data}", flush=True)
    results = alternate(runner)
    show_ratios(results)
    show_saves(results)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Several ranks on this host: Lockstep, PyTorch DDP and Lockstep's independent processes in alternating runs; prints
medians and targets. Then the cost of the replica check, and the time to the first step.

`bench/ranks.py` measures 2 ranks, and 16 if there are as many cores; `bench/ranks.py --ranks 16` only those. It
needs the built program and, for DDP, a Python with PyTorch, whose fastest setting is searched first (not with
--setting). A slow result never fails the run.
"""
import argparse
import collections
import os
import subprocess
import sys

from compare import PEER, ROOT, lines_of, median, verdict

# Targets: rate divided by DDP's, rate divided by that of independent processes, percent of a step spent waiting for
# gradients. None: no such target; for the first two also no such run.
Case = collections.namedtuple("Case", "model ranks samples peer independent wait")
CASES = (
    Case("cnn", 2, 32, 1.6, None, None),
    Case("mlp", 2, 64, 5, None, None),
    Case("cnn", 2, 64, None, 0.95, 5),
    Case("cnn", 16, 64, 2.5, 0.92, None),
)
OPTIMIZERS = {"cnn": "adadelta", "mlp": "adam"}
MLP_STEPS = 20  # factor for the number of steps: those of the cnn take that much longer
SETTING = "onednn=1,channels_last=0,malloc=1"


class Runner:
    """Runs one side of a case; a result is the side's JSON object."""

    def __init__(self, args):
        self.args = args
        self.best = {}  # PyTorch's fastest (Python, setting), by model and ranks
        self.pythons = []
        if not args.no_torch:
            found = subprocess.run([os.path.join(ROOT, "tools", "torch_python"), "--all"], stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, universal_newlines=True, check=False)
            self.pythons = found.stdout.split()
            if not self.pythons:
                print(f"PyTorch is not measured: {found.stderr.strip()}")

    def steps(self, case):
        return self.args.steps * (MLP_STEPS if case.model == "mlp" else 1)

    def few_steps(self, case):
        """The command that searches a setting."""
        return max(5, self.steps(case) // 5)

    def ours(self, case, *more):
        command = [self.args.program, "bench", "train", "-n", str(case.ranks), "--model", case.model]
        command += ["--optimizer", OPTIMIZERS[case.model], "--batch-size", str(case.ranks * case.samples)]
        return lines_of(command + ["--threads", "1", "--steps", str(self.steps(case)), "--json", *more])[-1]

    def torch(self, case, python, steps, *more):
        command = [python, PEER, "--model", case.model, "--ranks", str(case.ranks), "--threads", "1"]
        command += ["--batch-size", str(case.ranks * case.samples), "--steps", str(steps)]
        return lines_of(command + list(more))[-1]

    def ddp(self, case):
        python, setting = self.best[case.model, case.ranks]
        return self.torch(case, python, self.steps(case), "--setting", setting)

    def search(self, case, python):
        """The fastest setting that bench/peer_torch.py finds."""
        tried = self.torch(case, python, self.few_steps(case), "--setting", SETTING, "--probe", "--rounds", "1")
        for trial in tried:
            print(f"  {trial['img_per_s']:7.0f} img/s  {trial['peer']}, {trial['setting']}", flush=True)
        return tried[0]["setting"]

    def find_setting(self, case):
        """PyTorch's fastest setting for this model and number of ranks; several given settings, or those of several
        Pythons, are run in turn."""
        if (case.model, case.ranks) in self.best:
            return
        print(f"looking for PyTorch's fastest setting, {case.model}, {case.ranks} ranks ...", flush=True)
        found = [(python, setting) for python in self.pythons
                 for setting in self.args.setting or [self.search(case, python)]]
        if len(found) > 1:
            runs = alternate({pair: lambda pair=pair: self.torch(case, pair[0], self.few_steps(case), "--setting",
                                                                 pair[1]) for pair in found}, 3)
            found.sort(key=lambda pair: -median(runs[pair], "img_per_s"))
            for pair in found:
                print(f"  {median(runs[pair], 'img_per_s'):7.0f} img/s  {runs[pair][0]['peer']}, {pair[1]}", flush=True)
        self.best[case.model, case.ranks] = found[0]


def alternate(sides, rounds):
    """{name: results}; the order is reversed in every round."""
    results = {name: [] for name in sides}
    for number in range(rounds):
        for name in sorted(sides, reverse=number % 2 == 1):
            results[name].append(sides[name]())
    return results


def show_target(name, value, target, at_most=False):
    if target is None:
        return
    print(f"{name:<34}{value:>7.3g}   {verdict(value, target, at_most)}")


def show_waits(runs, case):
    gradients = median(runs, "wait_gradients_percent")
    if case.wait:
        show_target("waiting for gradients, % of a step", gradients, case.wait, at_most=True)
    print(f"waiting, % of a step, mean of the ranks and most: for gradients {gradients:.2f} and "
          f"{median(runs, 'wait_gradients_percent_most'):.2f}, for other things "
          f"{median(runs, 'wait_other_percent'):.2f} and {median(runs, 'wait_other_percent_most'):.2f}")


def run_case(runner, case):
    sides = {"lockstep": lambda: runner.ours(case)}
    if case.peer and runner.pythons:
        runner.find_setting(case)
        sides["PyTorch DDP"] = lambda: runner.ddp(case)
    if case.independent:
        sides["independent"] = lambda: runner.ours(case, "--independent")
        sides["independent in step"] = lambda: runner.ours(case, "--independent", "--in-step")
    results = alternate(sides, runner.args.rounds)
    print(f"\n{f'{case.model}, {case.ranks} ranks x {case.samples}':<26}{'img/s':>9}{'ms/step':>9}   runs (img/s)")
    rates = {name: median(runs, "img_per_s") for name, runs in results.items()}
    for name, runs in results.items():
        shown = " ".join(f"{run['img_per_s']:.0f}" for run in runs)
        print(f"{runs[0].get('peer', name):<26}{rates[name]:>9.0f}{median(runs, 'ms_per_step'):>9.2f}   {shown}")
    for name, target in (("PyTorch DDP", case.peer), ("independent", case.independent)):
        if name in rates:
            show_target(f"times {name}", rates["lockstep"] / rates[name], target)
    if case.independent:
        print(f"{'times independent in step':<34}{rates['lockstep'] / rates['independent in step']:>7.3g}   "
              "the bound of all that wait for the slowest rank")
    show_waits(results["lockstep"], case)
    print(flush=True)


def show_check(runner, case):
    """The cost of the replica check every 100 steps, the default: measured directly, and as a hundredth of the cost of
    a check at every step, which is less affected by noise."""
    sides = {every: lambda every=every: runner.ours(case, "--check-every", every) for every in ("0", "1", "100")}
    results = alternate(sides, runner.args.rounds)
    never, always, default = (median(results[every], "ms_per_step") for every in ("0", "1", "100"))
    show_target("replica check, % of a step", (always / never - 1), 0.5, at_most=True)
    print(f"ms a step: never {never:.2f}, at every step {always:.2f}, every 100 steps {default:.2f} "
          f"({100 * (default / never - 1):+.2f} %)", flush=True)


def show_start(args):
    """Seconds from the launcher's exec to the end of the first step; exit status 2 means that there is no MNIST."""
    command = [args.program, "train", "-n", "2", "--data", "mnist", "--max-steps", "1", "--no-test", "--json"]
    done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
    if done.returncode != 0:
        print("mnist is not on this machine (LOCKSTEP_DATA names the folder of data sets): no time to first step")
        return
    start = median([lines_of(command)[-1] for _ in range(args.rounds)], "first_step_s")
    show_target("seconds to the first step, mnist", start, 0.35, at_most=True)


def main():
    cores = len(os.sched_getaffinity(0))
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--program", default=os.path.join(ROOT, "build", "lockstep"))
    parser.add_argument("--ranks", type=int, nargs="+", choices=sorted({case.ranks for case in CASES}),
                        default=[2, 16] if cores >= 16 else [2])
    parser.add_argument("--rounds", type=int, default=5, help="runs of each, of which the median counts")
    parser.add_argument("--steps", type=int, default=100, help=f"steps a run, of the mlp {MLP_STEPS} times as many")
    parser.add_argument("--setting", nargs="+",
                        help="of PyTorch, as bench/peer_torch.py prints them; of several the fastest counts")
    parser.add_argument("--no-torch", action="store_true", help="leave PyTorch out")
    args = parser.parse_args()
    if not os.access(args.program, os.X_OK):
        sys.exit(f"{args.program} is not there: run make first")
    runner = Runner(args)
    for case in CASES:
        if case.ranks in args.ranks:
            run_case(runner, case)
    if 2 in args.ranks:
        show_check(runner, CASES[2])
        show_start(args)


if __name__ == "__main__":
    main()

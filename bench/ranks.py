#!/usr/bin/env python3
"""Several ranks on this host: Lockstep, PyTorch DDP and Lockstep's independent processes in alternating runs; prints
medians and goals. Then the cost of the replica check, and the time to the first step.

`bench/ranks.py` measures 2, 4, 8 and 16 ranks, as far as there are cores; `bench/ranks.py --ranks 16` only those. It
needs the built program and, for DDP, a Python with PyTorch, whose fastest setting is looked for first (not with
--setting). A slow result never fails the run.
"""
import argparse
import collections
import os

from peer_models import CIFAR, MNIST
from sides import ROOT, Ours, Peer, Task, alternate, median, show_goal

# samples: of each rank. Targets: rate divided by DDP's, rate divided by that of independent processes, percent of a step
# spent waiting for gradients. None: no such goal; for the first two also no such run.
Case = collections.namedtuple("Case", "model shape ranks samples peer independent wait")
CASES = (
    Case("cnn", MNIST, 2, 32, 3, None, None),
    Case("mlp", MNIST, 2, 64, 10, None, None),
    Case("resnet20", CIFAR, 2, 32, 2, None, None),
    Case("resnet18:cifar", CIFAR, 2, 16, 2, None, None),
    Case("cnn", MNIST, 2, 64, None, 0.95, 5),
    Case("cnn", MNIST, 4, 64, 3, None, None),
    Case("cnn", MNIST, 8, 64, 3, None, None),
    Case("cnn", MNIST, 16, 64, 3.5, 0.92, None),
)


def task_of(case):
    return Task(case.model, case.shape, 10, case.ranks * case.samples, case.ranks, 1)


def show_waits(runs, case):
    gradients = median(runs, "wait_gradients_percent")
    if case.wait:
        show_goal("waiting for gradients, % of a step", gradients, case.wait, at_most=True)
    print(f"waiting, % of a step, mean of the ranks and most: for gradients {gradients:.2f} and "
          f"{median(runs, 'wait_gradients_percent_most'):.2f}, for other things "
          f"{median(runs, 'wait_other_percent'):.2f} and {median(runs, 'wait_other_percent_most'):.2f}")


def run_case(args, ours, peer, case):
    task = task_of(case)
    sides = {"lockstep": lambda: ours.train(task)}
    if case.peer and peer.pythons:
        sides["PyTorch DDP"] = lambda: peer.train(task)
    if case.independent:
        sides["independent"] = lambda: ours.train(task, "--independent")
        sides["independent in step"] = lambda: ours.train(task, "--independent", "--in-step")
    results = alternate(sides, args.rounds)
    print(f"\n{f'{case.model}, {case.ranks} ranks x {case.samples}':<26}{'img/s':>9}{'ms/step':>9}   runs (img/s)")
    rates = {name: median(runs, "img_per_s") for name, runs in results.items()}
    for name, runs in results.items():
        shown = " ".join(f"{run['img_per_s']:.0f}" for run in runs)
        print(f"{runs[0].get('peer', name):<26}{rates[name]:>9.0f}{median(runs, 'ms_per_step'):>9.2f}   {shown}")
    for name, goal in (("PyTorch DDP", case.peer), ("independent", case.independent)):
        if name in rates:
            show_goal(f"times {name}", rates["lockstep"] / rates[name], goal)
    if case.independent:
        print(f"{'times independent in step':<34}{rates['lockstep'] / rates['independent in step']:>7.3g}   "
              "the bound of all that wait for the slowest rank")
    show_waits(results["lockstep"], case)
    print(flush=True)


def show_check(args, ours, case):
    """The cost of the replica check every 100 steps, the default: measured directly, and as a hundredth of the cost of
    a check at every step, which is less affected by noise."""
    task = task_of(case)
    sides = {every: lambda every=every: ours.train(task, "--check-every", every) for every in ("0", "1", "100")}
    results = alternate(sides, args.rounds)
    never, always, default = (median(results[every], "ms_per_step") for every in ("0", "1", "100"))
    show_goal("replica check, % of a step", (always / never - 1), 0.5, at_most=True)
    print(f"ms a step: never {never:.2f}, at every step {always:.2f}, every 100 steps {default:.2f} "
          f"({100 * (default / never - 1):+.2f} %)", flush=True)


def show_start(args, ours):
    """Seconds from the launcher's exec to the end of the first step."""
    if not ours.has("mnist"):
        print("mnist is not on this machine (LOCKSTEP_DATA names the folder of data sets): no time to first step")
        return
    for ranks, goal in ((2, 0.2), (8, 0.3)):
        runs = [ours.whole_run("mnist", 1, "-n", str(ranks)) for _ in range(args.rounds)]
        show_goal(f"seconds to the first step, {ranks} ranks", median(runs, "first_step_s"), goal, at_most=True)


def main():
    cores = len(os.sched_getaffinity(0))
    counts = sorted({case.ranks for case in CASES})
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--program", default=os.path.join(ROOT, "build", "lockstep"))
    parser.add_argument("--ranks", type=int, nargs="+", choices=counts,
                        default=[count for count in counts if count <= cores] or [2])
    parser.add_argument("--rounds", type=int, default=5, help="runs of each, of which the median counts")
    parser.add_argument("--seconds", type=float, default=5, help="of a run, at least two steps")
    parser.add_argument("--setting", help="of PyTorch, as bench/peer_torch.py prints it, instead of looking for one")
    parser.add_argument("--no-torch", action="store_true", help="leave PyTorch out")
    args = parser.parse_args()
    ours = Ours(args.program, args.seconds)
    peer = Peer(args.seconds, args.setting, not args.no_torch)
    for case in CASES:
        if case.ranks in args.ranks:
            run_case(args, ours, peer, case)
    if 2 in args.ranks:
        show_check(args, ours, next(case for case in CASES if case.wait))
        show_start(args, ours)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""A rank at half its speed: what is lost with an even cut of the shards, and with --balance, in alternating runs.

`bench/balance.py` slows rank 1 by faults on request: it sleeps for each shard as long as the shard takes. In the rows
"sleeps" a shard costs a sleep at every rank and next to no work, so that the numbers depend little on the cores of the
machine. "Lost" compares with the sum of the ranks' speeds, each by the time of its own work in the run with an even
cut. The steps before the first move do not count. A slow result never fails the run.
"""
import argparse
import collections
import os
import statistics
import sys

from sides import ROOT, lines_of, verdict

FIRST = 20  # steps that do not count
BATCH = 64
GOAL = 15  # percent that may be lost

Case = collections.namedtuple("Case", "name ranks shards model sleep")
CASES = (
    Case("sleeps, 2 ranks", 2, 16, "mlp", 0.04),
    Case("sleeps, 4 ranks", 4, 16, "mlp", 0.04),
    Case("sleeps, 8 ranks", 8, 64, "mlp", 0.04),
    Case("cnn, 2 ranks", 2, 16, "cnn", 0),
)


class Runner:
    def __init__(self, args):
        self.args = args

    def run(self, case, balance, faults):
        """The rate of the steps that count, and the last event."""
        command = [self.args.program, "train", "-n", str(case.ranks), "--threads", "1", "--model", case.model]
        command += ["--batch-size", str(BATCH), "--shards", str(case.shards), "--balance", balance, "--no-test"]
        # A wave is a shard: the sleeps of a rank are in proportion to its shards.
        command += ["--micro-batch", "1", "--max-steps", str(FIRST + self.args.steps + 1), "--log-interval", "1"]
        os.environ.pop("LOCKSTEP_FAULT", None)
        if faults:
            os.environ["LOCKSTEP_FAULT"] = ";".join(faults)
        events = lines_of(command + ["--json"])
        times = {event["step"]: event["seconds"] for event in events if event["event"] == "step"}
        last = max(times)
        return BATCH * (last - FIRST) / (times[last] - times[FIRST]), events[-1]

    def sides(self, case):
        """The faults of fast ranks, and of a slow one beside fast ones."""
        sleep = case.sleep
        if not sleep:
            end = self.run(case, "even", [])[1]
            own = statistics.median([rank["compute_s"] for rank in end["rank_times"]])
            sleep = own / end["steps"] / (case.shards / case.ranks)
            return [], [f"slow:rank=1,op=forward,seconds={sleep:.6f}"]
        fast = [f"slow:rank={r},op=forward,seconds={sleep}" for r in range(case.ranks)]
        return fast, fast[:1] + [f"slow:rank=1,op=forward,seconds={2 * sleep}"] + fast[2:]


def possible_rate(end):
    """The sum of the ranks' speeds, where each has worked on the same number of samples."""
    return sum(rank["samples"] / (rank["compute_s"] + rank["data_s"]) for rank in end["rank_times"])


def measure(runner, case):
    fast, slow = runner.sides(case)
    rates = collections.defaultdict(list)
    for _ in range(runner.args.rounds):
        rates["fast"].append(runner.run(case, "even", fast)[0])
        rate, end = runner.run(case, "even", slow)
        rates["even"].append(rate)
        rates["possible"].append(possible_rate(end))
        rate, end = runner.run(case, "auto", slow)
        rates["moved"].append(rate)
    rates = {side: statistics.median(values) for side, values in rates.items()}
    lost = {side: 100 * (1 - rates[side] / rates["possible"]) for side in ("even", "moved")}
    print(f"{case.name}: {rates['fast']:.0f} img/s with no slow rank, {rates['possible']:.0f} possible with one, "
          f"even {rates['even']:.0f} (lost {lost['even']:.1f} %), "
          f"moved {rates['moved']:.0f} (lost {lost['moved']:.1f} %, {verdict(lost['moved'], GOAL, at_most=True)}), "
          f"shards {[rank['shards'] for rank in end['rank_times']]}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--program", default=os.path.join(ROOT, "build", "lockstep"))
    parser.add_argument("--rounds", type=int, default=3, help="runs of each side, of which the median counts")
    parser.add_argument("--steps", type=int, default=20, help="steps of a run that count")
    parser.add_argument("--only", default="", help="cases whose name has this in it")
    args = parser.parse_args()
    print("one rank at half its speed:")
    for case in CASES:
        if args.only in case.name:
            measure(Runner(args), case)
    return 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""`make gpubench`: milliseconds of a step on a GPU, by Lockstep and by PyTorch, as a table in Markdown; then the start
of a run and a whole run.

    bench/gpu.py --rows 'resnet50-.*-bf16|cnn-64' --limit 240
    bench/gpu.py --only torch; bench/gpu.py --peer build/gpubench/peer.json

Lockstep's step is measured with 16 shards, under the law, and with one shard; the quotient is the price of the law.
PyTorch's is measured as Python runs it (eager), captured in a CUDA graph, compiled, and both (bench/peer_torch_gpu.py),
in the image layout (channels last or first) whose captured step is faster, chosen once for a model and precision. First
PyTorch is surveyed in short runs, then models are compiled in parallel processes, then both programs are timed in turn:
Lockstep with one shard and with 16, and every mode of PyTorch that came within 10 % of its best. Medians count. Data
are random and lie on the GPU.

Both use the first visible GPU (see CUDA_VISIBLE_DEVICES). If something is missing, a line says so and the rest is
measured. A slow result never fails. Results are in build/gpubench/: table.md, results.json and peer.json.
"""
import argparse
import collections
import json
import os
import re
import statistics
import sys

from gpu_sides import MODES, ROOT, Clock, Failed, complain, find_ours, find_peer
from sides import verdict

LAW_SHARDS = 16
RUNS = 3  # of a process of Lockstep, each of a row's steps; the median counts
NEAR = 1.1  # a mode of PyTorch that takes this many times its best is not timed again
SURVEY_PART = 0.55  # of the time, for PyTorch's short runs and compiling
START_S, WHOLE_S = 1.5, 6  # goals: from exec to the end of the first step, and of 14 epochs of MNIST
KEPT_S = 25  # seconds reserved for these two

Model = collections.namedtuple("Model", "sample classes learning")
SGD = ("--optimizer", "sgd:momentum=0.9,weight_decay=1e-4", "--lr", "0.01")
MODELS = {
    "cnn": Model("1x28x28", 10, ("--optimizer", "adadelta", "--lr", "1")),
    "mlp": Model("1x28x28", 10, ("--optimizer", "adam", "--lr", "0.001")),
    "pyramidnet": Model("3x32x32", 10, SGD),
    "resnet18:cifar": Model("3x32x32", 10, SGD),
    "resnet50": Model("3x224x224", 1000, SGD),
    "mobilenet_v2": Model("3x224x224", 1000, SGD),
    "vgg16": Model("3x224x224", 1000, SGD),
}


class Row(collections.namedtuple("Row", "model batch precision steps goal price")):
    """goal: PyTorch's best time over ours, at least. price: our time with 16 shards over that with one, at most."""

    def name(self):
        return f"{self.model}-{self.batch}-{self.precision}"

    def model_words(self):
        entry = MODELS[self.model]
        return ["--model", self.model, "--input", entry.sample, "--classes", str(entry.classes)]

    def learning(self):
        return list(MODELS[self.model].learning)

    def has_layouts(self):
        return self.model != "mlp"


def rows_of(model, goals, steps, price=1.1):
    """goals: by precision; steps: of a run, by batch."""
    return [Row(model, batch, precision, count, goal, price)
            for precision, goal in goals.items() for batch, count in steps.items()]


ROWS = [
    *rows_of("cnn", {"tf32": 3, "bf16": 3, "fp32": 1.2}, {64: 1000}, price=1.15),
    *rows_of("cnn", {"tf32": 2.5, "bf16": 2.5, "fp32": 1.2}, {1024: 200}),
    *rows_of("mlp", {"fp32": 2, "tf32": 2, "bf16": 2}, {128: 2000}),
    *rows_of("resnet18:cifar", {"bf16": 1.3, "tf32": 1.3}, {256: 40}),
    *rows_of("pyramidnet", {"bf16": 1.7, "tf32": 1.7}, {256: 10}),
    *rows_of("resnet50", {"bf16": 1.2, "tf32": 1.2}, {64: 20, 128: 15, 256: 10}),
    *rows_of("mobilenet_v2", {"bf16": 1.3, "tf32": 1.3}, {64: 30, 128: 20, 256: 10}),
    *rows_of("vgg16", {"bf16": 1.4, "tf32": 1.4}, {64: 15, 128: 8}),
]
BATCHES = sorted({row.batch for row in ROWS})
# For --dry-run.
TINY_ROWS = [*rows_of("mlp", {"fp32": 2}, {16: 20}), *rows_of("cnn", {"fp32": 1.2}, {16: 2})]


class PeerFile:
    """PyTorch's figures by the name of a row: {"last": layout, "ms": {mode: ms}, "parameters": count, "done": whether
    compiled modes were tried too}. Written after each change, so that an interrupted run is not lost."""

    def __init__(self, path, about):
        self.path, self.about, self.rows = path, about, {}

    def take(self, path):
        """Takes over the figures of another file, if they are of the same GPU, versions and programs."""
        try:
            with open(path, encoding="utf-8") as file:
                kept = json.load(file)
            about, rows = kept["about"], kept["rows"]
        except (OSError, ValueError, KeyError, TypeError) as why:
            print(f"PyTorch is measured anew: {path} is no peer.json of this program: {why}")
            return
        other = [f"{key} {about.get(key)} there, {value} here"
                 for key, value in self.about.items() if about.get(key) != value]
        if other:
            print(f"PyTorch is measured anew: {path} is of something else: {'; '.join(other)}")
            return
        self.rows = rows
        print(f"PyTorch's figures of {sum(row['done'] for row in self.rows.values())} rows are those of {path}, "
              "measured earlier with the same GPU, versions and programs")

    def write(self):
        write_json(self.path, {"about": self.about, "rows": self.rows})

    def entry(self, row):
        return self.rows.get(row.name())

    def is_done(self, row):
        return self.rows.get(row.name(), {}).get("done", False)


def write_json(path, what):
    with open(path + ".part", "w", encoding="utf-8") as file:
        json.dump(what, file, indent=1)
    os.replace(path + ".part", path)


class Bench:
    def __init__(self, ours, peer, peers, args, clock):
        self.ours, self.peer, self.peers, self.args, self.clock = ours, peer, peers, args, clock
        self.cuda = not args.dry_run
        self.compiled = {}  # by row: whether PyTorch could compile it, into its cache

    def layouts(self, row):
        """The layouts to try: that of another batch of the same model and precision, or both. True: channels last."""
        alike = [row._replace(batch=batch).name() for batch in BATCHES]
        chosen = [self.peers.rows[name]["last"] for name in alike if name in self.peers.rows]
        return chosen[:1] or ([True, False] if row.has_layouts() else [False])

    def survey(self, row):
        """Chooses the layout by the captured step, and times the eager one; on a CPU by the eager step."""
        steps, mode = max(2, row.steps // 5), "captured" if self.cuda else "eager"
        layouts = self.layouts(row)
        answers = {last: self.peer.run(row, mode, last, steps) for last in layouts}
        last = min(answers, key=lambda key: answers[key]["ms_per_step"])
        entry = {"last": last, "ms": {mode: answers[last]["ms_per_step"]}, "done": False,
                 "parameters": answers[last]["parameters"],
                 "other_layout_ms": answers[not last]["ms_per_step"] if len(answers) > 1 else None}
        if "eager" not in entry["ms"]:
            entry["ms"]["eager"] = self.peer.run(row, "eager", last, max(2, steps // 2))["ms_per_step"]
        self.peers.rows[row.name()] = entry
        self.peers.write()

    def prepare(self, rows):
        """Surveys rows and compiles their models, as far as the time allows."""
        share = SURVEY_PART if self.ours else 0.7
        end = self.clock.left() - share * self.clock.seconds  # of clock.left()
        rows = [row for row in rows if not self.peers.is_done(row)]
        for row in rows:
            if self.clock.left() - end < share * self.clock.seconds * 0.3:
                break
            if not self.peers.entry(row):
                attempt(row, "PyTorch", self.survey, row)
        jobs = [(row, self.peers.entry(row)["last"]) for row in rows if self.peers.entry(row)]
        if jobs and not self.args.no_compile:
            self.compiled = self.peer.compile_all(jobs, max(1, self.clock.left() - end))

    def modes_left(self, row):
        """Times the compiled modes once, then returns the modes that are worth more runs."""
        entry = self.peers.entry(row)
        for mode in [] if not self.compiled.get(row) else ["compiled", "both"] if self.cuda else ["compiled"]:
            answer = attempt(row, f"PyTorch, {mode}", self.peer.run, row, mode, entry["last"], max(2, row.steps // 5))
            if answer is None:
                break  # captured compiled steps need compiled ones
            entry["ms"][mode] = answer["ms_per_step"]
        best = min(entry["ms"].values())
        return [mode for mode, ms in entry["ms"].items() if ms <= NEAR * best]

    def sides_of(self, row):
        """Functions that give milliseconds, by our number of shards and by PyTorch's modes."""
        sides = {}
        if self.ours:
            for shards in (1, LAW_SHARDS):
                sides[shards] = lambda shards=shards: self.ours.step(row, shards, RUNS)
        if self.peer and self.args.only != "lockstep" and self.peers.entry(row) and not self.peers.is_done(row):
            last = self.peers.entry(row)["last"]
            for mode in self.modes_left(row):
                sides[mode] = lambda mode=mode: self.peer.run(row, mode, last, row.steps)["ms_per_step"]
        return sides

    def measure(self, row):
        """{"ours": {shards: [ms]}, "peer": its entry or None}; the order is reversed in every round."""
        sides = self.sides_of(row)
        times = collections.defaultdict(list)
        for number in range(self.args.rounds):
            for who in list(sides) if number % 2 == 0 else list(sides)[::-1]:
                value = attempt(row, who if who in MODES else f"{who} shards", sides[who])
                if value is None:
                    sides.pop(who)
                else:
                    times[who].append(value)
        entry = self.peers.entry(row) if self.peers else None
        if entry and any(mode in times for mode in MODES):
            entry["ms"].update({mode: statistics.median(times[mode]) for mode in MODES if times.get(mode)})
            entry["done"] = row in self.compiled and self.clock.left() > 0
            self.peers.write()
        ours = {shards: times[shards] for shards in (1, LAW_SHARDS) if times.get(shards)}
        return {"ours": ours, "peer": entry if entry and (not ours or self.is_same_model(row, entry)) else None}

    def is_same_model(self, row, entry):
        """False, with the reason printed, if the numbers of parameters differ."""
        count = attempt(row, "lockstep info", self.ours.parameters, row)
        if count is not None and count != entry["parameters"]:
            complain(row, "PyTorch", f"{entry['parameters']} parameters, {count} here: times cannot be compared")
        return count == entry["parameters"]


def attempt(row, who, do, *words):
    """What do returns; None, with the reason printed, if it fails."""
    try:
        return do(*words)
    except Failed as why:
        complain(row, who, why)
        return None


def number(value):
    return "-" if value is None else f"{value:.3g}" if value >= 1 else f"{value:.3f}"


HEADS = ("model", "batch", "precision", "1 shard", f"{LAW_SHARDS} shards", "price of the law", "goal", *MODES, "layout",
         "best / ours", "goal")


def figures_of(result):
    """Our medians with one shard and with 16, and PyTorch's best; None where there is none."""
    ours = {shards: statistics.median(times) for shards, times in result["ours"].items()}
    entry = result["peer"]
    return ours.get(1), ours.get(LAW_SHARDS), min(entry["ms"].values()) if entry else None


def table_line(row, result):
    one, law, best = figures_of(result)
    entry = result["peer"] or {"ms": {}, "last": False}
    price = law / one if law and one else None
    times = best / law if best and law else None
    layout = "-" if not entry["ms"] or not row.has_layouts() else "last" if entry["last"] else "first"
    partly = "" if entry.get("done") else " (PyTorch was not timed in every mode)"
    modes = [number(entry["ms"].get(mode)) for mode in MODES]
    cells = [row.model, str(row.batch), row.precision, number(one), number(law), f"{price:.2f}" if price else "-",
             verdict(price, row.price, at_most=True) if price else "-", *modes, layout,
             f"{times:.2f}" if times else "-", verdict(times, row.goal) + partly if times else "-"]
    return "| " + " | ".join(cells) + " |"


class Output:
    """Prints lines, and keeps them and the results in the folder."""

    def __init__(self, folder):
        self.folder, self.lines, self.results = folder, [], {}

    def say(self, line):
        print(line, flush=True)
        self.lines.append(line)
        with open(os.path.join(self.folder, "table.md"), "w", encoding="utf-8") as file:
            file.writelines(line + "\n" for line in self.lines)

    def keep(self, row, result):
        self.results[row.name()] = {**row._asdict(), **result}
        write_json(os.path.join(self.folder, "results.json"), self.results)
        self.say(table_line(row, result))


def show_steps(bench, rows, out):
    if bench.peer and bench.args.only != "lockstep":
        bench.prepare(rows)
    out.say("\nMilliseconds of a step\n")
    out.say("| " + " | ".join(HEADS) + " |")
    out.say("|" + "---|" * len(HEADS))
    late = []
    for row in rows:
        if bench.clock.left() <= 0:
            late.append(row.name())
            continue
        out.keep(row, bench.measure(row))
    if late:
        out.say(f"\nleft out, the time is over: {', '.join(late)}")
    out.say("\nbest / ours: PyTorch's fastest step over ours with 16 shards. both: compiled and captured. layout: "
            "where PyTorch has the channels of images. PyTorch's batch lies on the GPU and its loss stays there. Ours "
            "is gathered in each step from the data set, whose bytes are on the GPU; its labels and ids come from the "
            "host, and every loss is read.")


def show_start(ours, data, args, out):
    name = f"seconds to the first step, {data}"
    try:
        starts = [ours.train(data, "--max-steps", "1", "--no-test")[0][-1]["first_step_s"] for _ in range(args.rounds)]
    except Failed as why:
        out.say(f"{name}: {why}")
        return
    start = statistics.median(starts)
    out.say(f"{name}: {start:.2f}, {verdict(start, START_S, at_most=True)}")


def show_whole(ours, out):
    name = "seconds of 14 epochs of MNIST"
    try:
        lines, seconds = ours.train("mnist", "--epochs", "14")
    except Failed as why:
        out.say(f"{name}: {why}")
        return
    tests = [line["accuracy"] for line in lines if line["event"] == "test"]
    out.say(f"{name}: {seconds:.2f}, {verdict(seconds, WHOLE_S, at_most=True)} (from exec to exit, tf32, "
            f"{tests[0]:.2f} % after epoch 1, {tests[-1]:.2f} % at the end)")


def show_runs(ours, args, out):
    out.say("")
    if ours.has("mnist"):
        show_start(ours, "mnist", args, out)
        show_whole(ours, out)
    else:
        show_start(ours, "digits", args, out)
        out.say("mnist is not on this machine (LOCKSTEP_DATA names the folder of data sets): no whole run")


def open_sides(args, rows, clock):
    device = "cpu" if args.dry_run else "cuda"
    wants_peer = args.only != "lockstep" or args.peer
    ours = None if args.only == "torch" else find_ours(args.program, device, rows[0], clock)
    return ours, find_peer(device, args.out, clock) if wants_peer else None


def run_bench(args, rows):
    whole = not args.rows and not args.dry_run
    clock = Clock(args.limit, KEPT_S if whole and args.only != "torch" else 0)
    out = Output(args.out)
    ours, peer = open_sides(args, rows, clock)
    if not ours and not peer:
        print("nothing can be measured here")
        return 1
    peers = None
    if peer:
        peers = PeerFile(os.path.join(args.out, "peer.json"), peer.about)
        out.say(f"{peer.about['gpu']}; {peer.about['peer']}, CUDA {peer.about['cuda']}, cuDNN {peer.about['cudnn']}")
        if args.peer:
            peers.take(args.peer)
    try:
        show_steps(Bench(ours, peer, peers, args, clock), rows, out)
    finally:
        if peer:
            peer.stop()
    if ours and whole:
        clock.kept = 0
        show_runs(ours, args, out)
    return 0


def choose_rows(args, parser):
    rows = TINY_ROWS if args.dry_run else ROWS
    try:
        chosen = [row for row in rows if re.search(args.rows or "", row.name())]
    except re.error as why:
        parser.error(f"--rows {args.rows}: {why}")
    if not chosen:
        parser.error(f"--rows {args.rows}: none of {', '.join(row.name() for row in rows)}")
    return chosen


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default=os.path.join(ROOT, "build", "lockstep"))
    parser.add_argument("--rows", metavar="REGEX", help="only these rows; a name is MODEL-BATCH-PRECISION")
    parser.add_argument("--list", action="store_true", help="print the names of the rows")
    parser.add_argument("--only", choices=("lockstep", "torch"), help="measure this side only")
    parser.add_argument("--peer", metavar="FILE", help="PyTorch's figures of an earlier run (its peer.json), if it had "
                        "the same GPU, versions and programs; rows that are not in it are measured")
    parser.add_argument("--no-compile", action="store_true", help="leave torch.compile out")
    parser.add_argument("--rounds", type=int, default=3, help="runs of each, of which the median counts")
    parser.add_argument("--limit", type=float, default=1500, help="seconds for everything")
    parser.add_argument("--out", default=os.path.join(ROOT, "build", "gpubench"), help="folder of the results")
    parser.add_argument("--dry-run", action="store_true", help="tiny rows on the CPU: tries this program out")
    args = parser.parse_args()
    rows = choose_rows(args, parser)
    if args.list:
        print("\n".join(row.name() for row in rows))
        return 0
    os.makedirs(args.out, exist_ok=True)
    return run_bench(args, rows)


if __name__ == "__main__":
    sys.exit(main())

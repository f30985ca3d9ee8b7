#!/usr/bin/env python3
"""PyTorch for comparison: trains the models of `lockstep bench train` on data in memory; --ranks N: by DDP over gloo.

With --probe it tries the settings that are known to matter and prints them, the fastest first. Each setting has its
own processes, because some settings are read only at the start. One process: all combinations of oneDNN,
channels-last and malloc's tunables. DDP: starts with --setting, changes one switch after the other and keeps what is
faster in alternating runs. With --setting alone it runs one setting. A run prints one JSON object: img_per_s (of all
ranks), ms_per_step, first_step_s (from exec), peak_rss_mb (of rank 0), the setting.
"""
import argparse
import itertools
import json
import os
import resource
import socket
import subprocess
import sys
import time
import warnings

MALLOC = {
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": "8000000000",
    "MALLOC_TOP_PAD_": "268435456",
}
SWITCHES = ("onednn", "channels_last", "malloc")
# Switches of DDP: gradients as views of the buckets, a static graph, buckets of 1 MB instead of 25 MB, and the fused
# optimiser if this PyTorch has one for the CPU.
RANK_SWITCHES = ("bucket_view", "static_graph", "small_buckets", "quick_optimizer")


def settings():
    """All combinations, as "onednn=0,channels_last=0,malloc=1"."""
    for values in itertools.product((0, 1), repeat=len(SWITCHES)):
        yield format_setting(dict(zip(SWITCHES, values)))


def format_setting(chosen):
    return ",".join(f"{name}={value}" for name, value in chosen.items())


def parse_setting(text):
    chosen = dict.fromkeys(SWITCHES + RANK_SWITCHES, 0)
    for part in filter(None, text.split(",")):
        name, _, value = part.partition("=")
        if name not in chosen or value not in ("0", "1"):
            sys.exit(f"--setting: '{part}' is not one of {', '.join(chosen)} with =0 or =1")
        chosen[name] = int(value)
    return chosen


def since_exec():
    """Seconds since this process was started."""
    with open("/proc/self/stat", encoding="ascii") as stat:
        ticks = int(stat.read().rsplit(")", 1)[1].split()[19])
    return time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")


def make_cnn(torch):
    nn = torch.nn

    class Cnn(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv1 = nn.Conv2d(1, 32, 3)
            self.conv2 = nn.Conv2d(32, 64, 3)
            self.dropout1 = nn.Dropout(0.25)
            self.dropout2 = nn.Dropout(0.5)
            self.fc1 = nn.Linear(9216, 128)
            self.fc2 = nn.Linear(128, 10)

        def forward(self, x):
            x = nn.functional.relu(self.conv1(x))
            x = nn.functional.relu(self.conv2(x))
            x = self.dropout1(nn.functional.max_pool2d(x, 2))
            x = nn.functional.relu(self.fc1(torch.flatten(x, 1)))
            return self.fc2(self.dropout2(x))

    return Cnn()


def make_mlp(torch):
    nn = torch.nn
    sizes = (784, 64, 64, 64, 10)
    layers = [nn.Flatten()]
    for i in range(4):
        layers += [nn.Linear(sizes[i], sizes[i + 1]), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


MODELS = {"cnn": make_cnn, "mlp": make_mlp}


def make_optimizer(torch, name, parameters, quick):
    """Adadelta for the cnn, Adam for the mlp."""
    parameters = list(parameters)
    make, lr, form = {"cnn": (torch.optim.Adadelta, 1.0, "foreach"), "mlp": (torch.optim.Adam, 0.001, "fused")}[name]
    if quick:
        try:
            return make(parameters, lr=lr, **{form: True})
        except (TypeError, RuntimeError):
            pass  # not in this PyTorch, or not for the CPU
    return make(parameters, lr=lr)


def wrap_ddp(torch, model, chosen):
    return torch.nn.parallel.DistributedDataParallel(
        model, gradient_as_bucket_view=bool(chosen["bucket_view"]), static_graph=bool(chosen["static_graph"]),
        bucket_cap_mb=1 if chosen["small_buckets"] else 25)


def train(args, chosen):
    warnings.filterwarnings("ignore")
    import torch

    share = args.batch_size // args.ranks
    torch.set_num_threads(args.threads)
    torch.manual_seed(1 + int(os.environ.get("RANK", 0)))
    memory_format = torch.channels_last if chosen["channels_last"] else torch.contiguous_format
    model = MODELS[args.model](torch)
    if args.model == "cnn":
        model = model.to(memory_format=memory_format)
    if args.ranks > 1:
        torch.distributed.init_process_group("gloo")
        model = wrap_ddp(torch, model, chosen)
    optimizer = make_optimizer(torch, args.model, model.parameters(), chosen["quick_optimizer"])
    batches = [
        (
            torch.randn(share, 1, 28, 28).contiguous(memory_format=memory_format),
            torch.randint(0, 10, (share,)),
        )
        for _ in range(8)
    ]
    held = torch.randint(0, 256, (args.samples, 28, 28), dtype=torch.uint8)

    def step(i):
        x, y = batches[i % len(batches)]
        optimizer.zero_grad(set_to_none=not chosen["bucket_view"])
        loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.item()

    def synchronise():
        if args.ranks > 1:
            torch.distributed.barrier()

    with torch.backends.mkldnn.flags(enabled=bool(chosen["onednn"])):
        step(0)
        first = since_exec()
        for i in range(args.warmup):
            step(i)
        synchronise()
        start = time.perf_counter()
        for i in range(args.steps):
            step(i)
        synchronise()
        seconds = time.perf_counter() - start
    return {
        "peer": f"PyTorch {torch.__version__}",
        "model": args.model,
        "ranks": args.ranks,
        "img_per_s": share * args.ranks * args.steps / seconds,
        "ms_per_step": 1000 * seconds / args.steps,
        "first_step_s": first,
        "peak_rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "samples_held": len(held),
        "threads": args.threads,
        "setting": args.setting,
    }


def rank_variables(args):
    """The variables of env:// for each rank; none for a single process."""
    if args.ranks == 1:
        return [{}]
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    common = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(args.ranks),
              "GLOO_SOCKET_IFNAME": "lo"}
    return [dict(common, RANK=str(rank), LOCAL_RANK=str(rank)) for rank in range(args.ranks)]


def run_child(args, setting, steps):
    """Runs one setting in its own processes, with the variables that are read at their start."""
    chosen = parse_setting(setting)
    env = dict(os.environ, OMP_NUM_THREADS=str(args.threads), OPENBLAS_NUM_THREADS=str(args.threads))
    if chosen["malloc"]:
        env.update(MALLOC)
    command = [sys.executable, __file__, "--child", "--setting", setting, "--steps", str(steps)]
    for name in ("model", "ranks", "threads", "batch_size", "warmup", "samples"):
        command += [f"--{name.replace('_', '-')}", str(getattr(args, name))]
    ranks = [subprocess.Popen(command, env=dict(env, **own), stdout=subprocess.PIPE) for own in rank_variables(args)]
    said = [rank.communicate()[0] for rank in ranks]
    if any(rank.returncode != 0 for rank in ranks):
        sys.exit(f"PyTorch failed with {setting} (exit status {max(rank.returncode for rank in ranks)})")
    return json.loads(said[0])


def probe(args):
    """Runs each setting `rounds` times in turn; its best run counts, so that a moment of load does not decide."""
    best = {}
    for _ in range(args.rounds):
        for setting in settings():
            result = run_child(args, setting, args.steps)
            if setting not in best or result["img_per_s"] > best[setting]["img_per_s"]:
                best[setting] = result
    return sorted(best.values(), key=lambda result: -result["img_per_s"])


def climb(args):
    """Tries one switch after the other against the best setting so far, in alternating runs, because timings from
    another moment prove nothing on a busy machine. The last result of the best setting comes first."""
    best, lost = args.setting, []
    for switch in SWITCHES + RANK_SWITCHES:
        if switch == "channels_last" and args.model != "cnn":
            continue
        chosen = parse_setting(best)
        chosen[switch] = 1 - chosen[switch]
        runs = {best: [], format_setting(chosen): []}
        for setting in [*runs, *reversed(list(runs))] * args.rounds:
            runs[setting].append(run_child(args, setting, args.steps))
        pair = [max(results, key=lambda result: result["img_per_s"]) for results in runs.values()]
        winner, loser = sorted(pair, key=lambda result: -result["img_per_s"])
        best = winner["setting"]
        lost.append(loser)
    return [winner] + lost[::-1]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", choices=sorted(MODELS), default="cnn")
    parser.add_argument("--batch-size", type=int, default=64, help="samples a step, of all ranks together")
    parser.add_argument("--ranks", type=int, default=1, help="processes of a DDP job on this host")
    parser.add_argument("--threads", type=int, default=1, help="of a rank")
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--warmup", type=int, default=3)
    parser.add_argument("--samples", type=int, default=0, help="images to hold in memory, as a run on a data set does")
    parser.add_argument("--rounds", type=int, default=2, help="runs of each setting with --probe")
    parser.add_argument("--setting", default="onednn=0,channels_last=0,malloc=1")
    parser.add_argument("--probe", action="store_true", help="look for the fastest; a JSON list, fastest first")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        result = train(args, parse_setting(args.setting))
    elif args.probe:
        result = probe(args) if args.ranks == 1 and args.model == "cnn" else climb(args)
    else:
        result = run_child(args, args.setting, args.steps)
    print(json.dumps(result))


if __name__ == "__main__":
    main()

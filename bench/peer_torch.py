#!/usr/bin/env python3
"""PyTorch on CPUs for comparison: trains a model of `lockstep bench train` on random images in memory; --ranks N: by
DDP over gloo.

    python bench/peer_torch.py --model resnet18:cifar --input 3x32x32 --batch-size 32 --threads 2

With --probe it looks for the fastest setting and prints all that it tried, the fastest first: it starts with --setting,
changes one switch after the other and keeps what is faster in alternating runs. Each setting has its own processes,
because some are read only at the start. With --setting alone it runs one setting. A run takes about --seconds seconds,
at least two steps, and prints one JSON object: img_per_s (of all ranks), ms_per_step, first_step_s (from exec),
peak_rss_mb (of rank 0), the setting.
"""
import argparse
import json
import os
import resource
import socket
import subprocess
import sys
import time
import warnings

import peer_models

MALLOC = {
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": "8000000000",
    "MALLOC_TOP_PAD_": "268435456",
}
# compile: torch.compile of the forward and the backward pass.
SWITCHES = ("onednn", "channels_last", "malloc", "quick_optimizer", "compile")
# Switches of DDP: gradients as views of the buckets, a static graph, buckets of 1 MB instead of 25 MB.
RANK_SWITCHES = ("bucket_view", "static_graph", "small_buckets")
SETTING = "onednn=1,channels_last=0,malloc=1"
BATCHES = 4
WARM_UP = 2


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


def make_optimizer(torch, words, parameters, quick):
    """In its fused form, or over lists of tensors, if this PyTorch has it for the CPU."""
    parameters = list(parameters)
    form = "foreach" if words.startswith("cnn") else "fused"
    if quick:
        try:
            return peer_models.make_optimizer(torch, words, parameters, **{form: True})
        except (TypeError, RuntimeError):
            pass
    return peer_models.make_optimizer(torch, words, parameters)


def wrap_ddp(torch, model, chosen):
    return torch.nn.parallel.DistributedDataParallel(
        model, gradient_as_bucket_view=bool(chosen["bucket_view"]), static_graph=bool(chosen["static_graph"]),
        bucket_cap_mb=1 if chosen["small_buckets"] else 25)


def make_step(torch, args, chosen):
    """A function that trains one step of this rank's part of the batch."""
    share, shape = args.batch_size // args.ranks, tuple(map(int, args.input.split("x")))
    memory_format = torch.channels_last if chosen["channels_last"] else torch.contiguous_format
    model, criterion = peer_models.make(args.model, shape, args.classes)
    model = model.to(memory_format=memory_format)
    if args.ranks > 1:
        torch.distributed.init_process_group("gloo")
        model = wrap_ddp(torch, model, chosen)
    optimizer = make_optimizer(torch, args.model, model.parameters(), chosen["quick_optimizer"])
    batches = [(torch.randn(share, *shape).contiguous(memory_format=memory_format),
                torch.randint(0, args.classes, (share,))) for _ in range(BATCHES)]
    forward = torch.compile(model, dynamic=False) if chosen["compile"] else model
    rounds = args.precision == "bf16"

    def step(i):
        x, y = batches[i % len(batches)]
        optimizer.zero_grad(set_to_none=not chosen["bucket_view"])
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=rounds):
            loss = criterion(forward(x), y)
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


def count_steps(torch, args, step):
    """The steps of about args.seconds seconds; all ranks take those of rank 0."""
    if args.steps:
        return args.steps
    start = time.perf_counter()
    step(1)
    steps = torch.tensor([max(2, round(args.seconds / (time.perf_counter() - start)))])
    if args.ranks > 1:
        torch.distributed.broadcast(steps, 0)
    return int(steps)


def time_steps(torch, args, step):
    """Seconds to the first step, the number of steps that were timed, and their seconds."""
    def synchronise():
        if args.ranks > 1:
            torch.distributed.barrier()

    step(0)
    first = since_exec()
    for i in range(WARM_UP):
        step(i)
    steps = count_steps(torch, args, step)
    synchronise()
    start = time.perf_counter()
    for i in range(steps):
        step(i)
    synchronise()
    return first, steps, time.perf_counter() - start


def train(args, chosen):
    warnings.filterwarnings("ignore")
    import torch

    torch.set_num_threads(args.threads)
    torch.manual_seed(1 + int(os.environ.get("RANK", 0)))
    held = torch.randint(0, 256, (args.samples, *map(int, args.input.split("x"))), dtype=torch.uint8)
    with torch.backends.mkldnn.flags(enabled=bool(chosen["onednn"])):
        first, steps, seconds = time_steps(torch, args, make_step(torch, args, chosen))
    return {
        "peer": f"PyTorch {torch.__version__}",
        "model": args.model,
        "ranks": args.ranks,
        "img_per_s": args.batch_size // args.ranks * args.ranks * steps / seconds,
        "ms_per_step": 1000 * seconds / steps,
        "first_step_s": first,
        "peak_rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6,
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


def run_child(args, setting):
    """Runs one setting in its own processes, with the variables that are read at their start. None: it failed."""
    chosen = parse_setting(setting)
    env = dict(os.environ, OMP_NUM_THREADS=str(args.threads), OPENBLAS_NUM_THREADS=str(args.threads))
    if chosen["malloc"]:
        env.update(MALLOC)
    command = [sys.executable, __file__, "--child", "--setting", setting]
    for name in ("model", "input", "classes", "ranks", "threads", "batch_size", "seconds", "steps", "samples",
                 "precision"):
        command += [f"--{name.replace('_', '-')}", str(getattr(args, name))]
    quiet = subprocess.DEVNULL if args.probe else None
    ranks = [subprocess.Popen(command, env=dict(env, **own), stdout=subprocess.PIPE, stderr=quiet)
             for own in rank_variables(args)]
    said = [rank.communicate()[0] for rank in ranks]
    if any(rank.returncode != 0 for rank in ranks):
        return None
    return json.loads(said[0])


def duel(args, settings):
    """The best result of each setting that works, in alternating runs, the fastest first: timings from different moments
    prove nothing on a busy machine."""
    runs = {setting: [] for setting in settings}
    for setting in [*runs, *reversed(list(runs))] * args.rounds:
        result = run_child(args, setting)
        if result is None:
            break
        runs[setting].append(result)
    best = [max(results, key=lambda result: result["img_per_s"]) for results in runs.values() if results]
    return sorted(best, key=lambda result: -result["img_per_s"])


def climb(args):
    """Tries one switch after the other against the best setting so far."""
    best, lost = args.setting, []
    switches = SWITCHES + (RANK_SWITCHES if args.ranks > 1 else ())
    for switch in switches:
        if switch == "channels_last" and args.model.startswith("mlp"):
            continue
        chosen = parse_setting(best)
        chosen[switch] = 1 - chosen[switch]
        results = duel(args, [best, format_setting(chosen)])
        if not results:
            sys.exit(f"PyTorch failed with {best}")
        best = results[0]["setting"]
        lost += results[1:]
    return results[:1] + lost[::-1]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="cnn", help="as of `lockstep --model`")
    parser.add_argument("--input", default="1x28x28", help="shape of the images, as in 3x32x32")
    parser.add_argument("--classes", type=int, default=10)
    parser.add_argument("--batch-size", type=int, default=64, help="samples a step, of all ranks together")
    parser.add_argument("--ranks", type=int, default=1, help="processes of a DDP job on this host")
    parser.add_argument("--threads", type=int, default=1, help="of a rank")
    parser.add_argument("--seconds", type=float, default=3, help="of a run, after its first steps")
    parser.add_argument("--steps", type=int, default=0, help="steps to time, instead of seconds")
    parser.add_argument("--samples", type=int, default=0, help="images to hold in memory, as a run on a data set does")
    parser.add_argument("--precision", choices=("fp32", "bf16"), default="fp32", help="bf16: by autocast")
    parser.add_argument("--rounds", type=int, default=1, help="pairs of runs of each two settings with --probe")
    parser.add_argument("--setting", default=SETTING)
    parser.add_argument("--probe", action="store_true", help="look for the fastest; a JSON list, fastest first")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        result = train(args, parse_setting(args.setting))
    elif args.probe:
        result = climb(args)
    else:
        result = run_child(args, args.setting)
        if result is None:
            sys.exit(f"PyTorch failed with {args.setting}")
    print(json.dumps(result))


if __name__ == "__main__":
    main()

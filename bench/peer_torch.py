#!/usr/bin/env python3
"""The peer: PyTorch trains the cnn of `lockstep bench train --model cnn` on data in memory.

With --probe it tries the settings known to matter (oneDNN, channels-last, malloc's tunables, each in a process of its
own because some are read only at start) and prints them fastest first; with --setting it runs one of them. A process
prints one JSON object: img_per_s, ms_per_step, first_step_s (from exec), peak_rss_mb, and the setting.
"""
import argparse
import itertools
import json
import os
import resource
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


def settings():
    """Every combination, as "onednn=0,channels_last=0,malloc=1"."""
    for values in itertools.product((0, 1), repeat=len(SWITCHES)):
        yield ",".join(f"{name}={value}" for name, value in zip(SWITCHES, values))


def parse_setting(text):
    chosen = dict.fromkeys(SWITCHES, 0)
    for part in filter(None, text.split(",")):
        name, _, value = part.partition("=")
        if name not in chosen or value not in ("0", "1"):
            sys.exit(f"--setting: '{part}' is not one of {', '.join(SWITCHES)} with =0 or =1")
        chosen[name] = int(value)
    return chosen


def since_exec():
    """Seconds since this process was started."""
    with open("/proc/self/stat", encoding="ascii") as stat:
        ticks = int(stat.read().rsplit(")", 1)[1].split()[19])
    return time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")


def make_model(torch):
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
            return nn.functional.log_softmax(self.fc2(self.dropout2(x)), dim=1)

    return Cnn()


def train(args, chosen):
    warnings.filterwarnings("ignore", message="TF32")
    import torch

    torch.set_num_threads(args.threads)
    torch.manual_seed(1)
    memory_format = torch.channels_last if chosen["channels_last"] else torch.contiguous_format
    model = make_model(torch).to(memory_format=memory_format)
    optimizer = torch.optim.Adadelta(model.parameters(), lr=1.0)
    batches = [
        (
            torch.randn(args.batch_size, 1, 28, 28).contiguous(memory_format=memory_format),
            torch.randint(0, 10, (args.batch_size,)),
        )
        for _ in range(8)
    ]
    held = torch.randint(0, 256, (args.samples, 28, 28), dtype=torch.uint8)

    def step(i):
        x, y = batches[i % len(batches)]
        optimizer.zero_grad(set_to_none=True)
        loss = torch.nn.functional.nll_loss(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.item()

    with torch.backends.mkldnn.flags(enabled=bool(chosen["onednn"])):
        step(0)
        first = since_exec()
        for i in range(args.warmup):
            step(i)
        start = time.perf_counter()
        for i in range(args.steps):
            step(i)
        seconds = time.perf_counter() - start
    return {
        "peer": f"PyTorch {torch.__version__}",
        "img_per_s": args.batch_size * args.steps / seconds,
        "ms_per_step": 1000 * seconds / args.steps,
        "first_step_s": first,
        "peak_rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "samples_held": len(held),
        "threads": args.threads,
        "setting": args.setting,
    }


def run_child(args, setting, steps):
    """One setting in a process of its own, with the variables that are read at its start."""
    chosen = parse_setting(setting)
    env = dict(os.environ, OMP_NUM_THREADS=str(args.threads), OPENBLAS_NUM_THREADS=str(args.threads))
    if chosen["malloc"]:
        env.update(MALLOC)
    command = [sys.executable, __file__, "--child", "--setting", setting, "--threads", str(args.threads)]
    command += ["--batch-size", str(args.batch_size), "--steps", str(steps), "--warmup", str(args.warmup),
                "--samples", str(args.samples)]
    done = subprocess.run(command, env=env, stdout=subprocess.PIPE, check=False)
    if done.returncode != 0:
        sys.exit(f"PyTorch failed with {setting} (exit status {done.returncode})")
    return json.loads(done.stdout)


def probe(args):
    """Each setting `rounds` times in turn; its best run counts, so that a busy moment does not choose."""
    best = {}
    for _ in range(args.rounds):
        for setting in settings():
            result = run_child(args, setting, args.steps)
            if setting not in best or result["img_per_s"] > best[setting]["img_per_s"]:
                best[setting] = result
    return sorted(best.values(), key=lambda result: -result["img_per_s"])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--warmup", type=int, default=3)
    parser.add_argument("--samples", type=int, default=0, help="images to hold in memory, as a run on a data set does")
    parser.add_argument("--rounds", type=int, default=2, help="runs of each setting with --probe")
    parser.add_argument("--setting", default="onednn=0,channels_last=0,malloc=1")
    parser.add_argument("--probe", action="store_true", help="try all settings; a JSON list, fastest first")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        result = train(args, parse_setting(args.setting))
    elif args.probe:
        result = probe(args)
    else:
        result = run_child(args, args.setting, args.steps)
    print(json.dumps(result))


if __name__ == "__main__":
    main()

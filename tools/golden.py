#!/usr/bin/env python3
"""Makes the golden values that tests/golden compares with: PyTorch in float64 on inputs exact in float32.

    python tools/golden.py --out tests/golden/data    the small ones, which are committed
    python tools/golden.py --large build/golden       whole states of resnet20, made again if PyTorch is installed
    python tools/golden_models.py --out tests/golden/data    a step of every model, committed too

Inputs, labels and initial states that are too large to commit come from noise(): integer arithmetic that
tests/golden/golden.h repeats. Needs numpy and PyTorch 1.13 or newer, for the transforms also torchvision.
"""
import argparse
import copy
import json
import os
import tempfile

import numpy as np
import torch
from torch import distributed as dist
from torch import multiprocessing as mp
from torch import nn
from torch.nn import functional as F

from golden_embedding import make_embedding
from golden_groups import make_groups
from golden_layers import make_layer_graphs, make_layers
from golden_losses import make_losses
from golden_noise import File, noise_state, train_step
from golden_ops import make_conv_groups, make_graphs, make_ops, make_ops_more
from golden_optim import make_optim, make_schedules
from golden_training import (LARGE_STEPS, MODELS, MODEL_STEPS, Resnet20, SMOOTH_BATCH, SMOOTH_TRIES, add_samples,
                             make_models, model_batch, one_step, report_float32, smooth_batch, worst)
from golden_transforms import make_transforms
from golden_windows import make_window_graphs, make_windows

RANKS_WORLDS = (2, 4)
RANKS_CLIP = 0.5  # limit of the gradient's norm


class SumOverRanks(torch.autograd.Function):
    @staticmethod
    def forward(_, x):
        x = x.clone()
        dist.all_reduce(x)
        return x

    @staticmethod
    def backward(_, grad):
        grad = grad.clone()
        dist.all_reduce(grad)
        return grad


class SyncBatchNorm2d(nn.BatchNorm2d):
    """The same as nn.SyncBatchNorm, which runs on GPUs only: BatchNorm over the samples of all ranks."""

    def forward(self, x):
        count = torch.tensor(float(x.numel() // x.shape[1]), dtype=x.dtype)
        dist.all_reduce(count)
        mean = SumOverRanks.apply(x.sum((0, 2, 3))) / count
        centred = x - mean[:, None, None]
        var = SumOverRanks.apply((centred * centred).sum((0, 2, 3))) / count
        with torch.no_grad():
            self.num_batches_tracked += 1
            self.running_mean.lerp_(mean, self.momentum)
            self.running_var.lerp_(var * count / (count - 1), self.momentum)
        scale = self.weight / (var + self.eps).sqrt()
        return centred * scale[:, None, None] + self.bias[:, None, None]


def synced(model):
    """Replaces every BatchNorm2d by SyncBatchNorm2d."""
    for key, child in model.named_children():
        if isinstance(child, nn.BatchNorm2d):
            sync = SyncBatchNorm2d(child.num_features)
            sync.load_state_dict(child.state_dict())
            setattr(model, key, sync.to(child.weight.dtype))
        else:
            synced(child)
    return model


def ranks_step(name, which, model, dtype, clip, rank=0, world=1):
    """Loss, gradients, their norm and the state after a step of SGD with rate 1 on this rank's part of a batch."""
    model = copy.deepcopy(model).to(dtype)
    model.train()
    whole = model
    if world > 1:
        whole = nn.parallel.DistributedDataParallel(synced(model))
    x, y = model_batch(name, which, SMOOTH_BATCH)
    loss = MODELS[name][2](whole(x.to(dtype).chunk(world)[rank]), y.chunk(world)[rank])
    loss.backward()
    mean = loss.detach().clone()
    if world > 1:
        dist.all_reduce(mean)
    norm = nn.utils.clip_grad_norm_(model.parameters(), clip) if clip else torch.zeros(())
    torch.optim.SGD(model.parameters(), lr=1.0).step()
    grads = {key: p.grad for key, p in model.named_parameters()}
    return mean.item() / world, float(norm), grads, model.state_dict()


def be_rank(rank, world, folder, cases):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", f"file://{folder}/meet", rank=rank, world_size=world)
    results = [ranks_step(name, which, noise_state(MODELS[name][0]()), torch.float64, clip, rank, world)
               for name, which, clip in cases]
    torch.save(results, os.path.join(folder, f"rank{rank}"))
    dist.destroy_process_group()


def ddp_steps(world, cases):
    """Runs a step in real DDP processes, which must end with equal states."""
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(be_rank, (world, folder, cases), world)
        results = [torch.load(os.path.join(folder, f"rank{rank}")) for rank in range(world)]
    for other in results[1:]:
        for (*_, grads, state), (*_, first_grads, first_state) in zip(other, results[0]):
            assert all(torch.equal(grads[key], first_grads[key]) for key in grads)
            assert all(torch.equal(state[key], first_state[key]) for key in state)
    return results[0]


def make_ranks():
    """A step by 2 and 4 ranks of PyTorch's DDP. Plain: gradients and BatchNorm's statistics; clipped: the new state."""
    out, cases, models = File(), [], {}
    for name, (build, _, _) in MODELS.items():
        models[name] = noise_state(build())
        which, distance = smooth_batch(models[name], SMOOTH_TRIES, name)
        _, norm, *_ = ranks_step(name, which, models[name], torch.float64, 1e30)
        print(f"ranks: {name}, batch {which}, kinks {distance:.1e} away, norm {norm:.3f}")
        cases.append((name, which, 0))
        if name != "resnet20":
            cases.append((name, which, float(np.float32(RANKS_CLIP * norm))))
    alone = [ranks_step(name, which, models[name], torch.float64, clip) for name, which, clip in cases]
    for world in RANKS_WORLDS:
        for (name, which, clip), one, many in zip(cases, alone, ddp_steps(world, cases)):
            f32 = ranks_step(name, which, models[name], torch.float32, clip)
            print(f"{name}, {world} ranks, clip {clip:.3f}: gradients differ from one process's by "
                  f"{worst(many[2], one[2])}, those in float32 by {worst(f32[2], one[2])}; "
                  f"states by {worst(many[3], one[3])}, {worst(f32[3], one[3])}")
            add_ranks(out, f"{name}/{world}" + ("/clip" if clip else ""), which, clip, many)
    return out


def add_ranks(out, prefix, which, clip, result):
    loss, norm, grads, state = result
    out.add(f"{prefix}/batch", np.array([which]))
    out.add(f"{prefix}/loss", np.array([loss]))
    if clip:
        out.add(f"{prefix}/limit", np.array([clip]))
        out.add(f"{prefix}/norm", np.array([norm]))
    else:
        for key, value in grads.items():
            add_samples(out, f"{prefix}/grad/{key}", value)
    for key, value in state.items():
        if clip or ".running_" in key:
            add_samples(out, f"{prefix}/state/{key}", value)


def model_table():
    table = {}
    for name, (build, shape, _) in MODELS.items():
        model = build()
        table[name] = {
            "input": shape,
            "parameters": sum(p.numel() for p in model.parameters()),
            "state": {key: {"dtype": "i64" if value.dtype == torch.int64 else "f32", "shape": list(value.shape)}
                      for key, value in model.state_dict().items()},
        }
    return table


def write_small(folder):
    for name, make in (("ops", make_ops), ("ops_more", make_ops_more), ("conv_groups", make_conv_groups),
                       ("layers", make_layers), ("layer_graphs", make_layer_graphs), ("losses", make_losses),
                       ("embedding", make_embedding), ("windows", make_windows), ("window_graphs", make_window_graphs),
                       ("graphs", make_graphs), ("optim", make_optim), ("groups", make_groups),
                       ("schedules", make_schedules), ("models", make_models), ("ranks", make_ranks),
                       ("transforms", make_transforms)):
        make().write(os.path.join(folder, name + ".safetensors"))
    with open(os.path.join(folder, "models.json"), "w", encoding="ascii") as out:
        table = model_table()
        rows = ",\n".join(f' "{name}": {json.dumps(row)}' for name, row in table.items())
        out.write("{\n" + rows + "\n}\n")


def write_large(folder):
    """PyTorch trains resnet20 in float32; from its states, one step in float64."""
    torch.manual_seed(1)
    model = Resnet20()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for step in range(MODEL_STEPS):
        if step in LARGE_STEPS:
            which, distance = smooth_batch(model, SMOOTH_TRIES)
            x, y = model_batch("resnet20", which, SMOOTH_BATCH)
            truth = one_step(model, x, y, torch.float64)
            report_float32(f"resnet20, step {step}, batch {which}, kinks {distance:.1e} away", model, x, y, truth)
            out = File()
            out.add("batch", np.array([which]))
            out.add("loss", np.array([truth[0]]))
            for part, values in (("first", model.state_dict()), ("grad", truth[1]), ("state", truth[2])):
                for key, value in values.items():
                    out.add(f"{part}/{key}", value)
            out.write(os.path.join(folder, f"resnet20_{step}.safetensors"))
        train_step(model, optimizer, F.cross_entropy, *model_batch("resnet20", step))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", metavar="DIR", help="folder for the small values")
    parser.add_argument("--large", metavar="DIR", help="folder for the large values")
    args = parser.parse_args()
    if not args.out and not args.large:
        parser.error("nothing to do: give --out or --large")
    torch.set_num_threads(1)  # tests run in parallel with others, and waiting threads would spin
    for folder, write in ((args.out, write_small), (args.large, write_large)):
        if folder:
            os.makedirs(folder, exist_ok=True)
            write(folder)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""One step of every model of the zoo by PyTorch in float64, for tests/golden/test_zoo.c: zoo.safetensors.

    python tools/golden_models.py --out tests/golden/data

The models are those of tools/models.py; noise and labels are those of tools/golden_noise.py. An initial state is noise too,
so only a few figures of each tensor are kept: see figures(). Every row uses the batch, of many, whose inputs of ReLU
and max pooling stay farthest from points where their gradients jump; prints the error of PyTorch's own float32 on it.
Needs numpy, PyTorch 1.13 or newer and torchvision.
"""
import argparse
import os

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

import models
from golden_noise import File, labels, noise, train_step, words

BATCH, SHARDS, CLASSES, SAMPLES = 4, 2, 20, 5
TRIES, BEST, WELL = 8, 3, 4e-6  # the tests' tolerance is 1e-5

ROWS = [  # name, parameters, sample (c, h, w), BatchNorm over shards, bias and end as in first_value
    ("cnn", dict(dropout=0), (1, 28, 28), False, 1, 1 / 4),
    ("cnn", dict(dropout=0, dropout2d=1), (1, 28, 28), False, 1, 1 / 4),
    ("mlp", {}, (1, 28, 28), False, 1, 1 / 4),
    ("fc", {}, (1, 28, 28), False, 1, 1 / 4),
    ("debug", {}, (1, 28, 28), False, 1, 1 / 4),
    ("lenet5", {}, (1, 28, 28), False, 1, 1 / 4),
    ("conv2", {}, (3, 16, 16), False, 1, 1 / 4),
    ("conv4", {}, (3, 16, 16), False, 1, 1 / 4),
    ("conv6", {}, (3, 16, 16), False, 1, 1 / 4),
    ("conv2a", {}, (3, 16, 16), False, 1, 1 / 4),
    ("conv4a", {}, (3, 16, 16), False, 1, 1 / 4),
    ("conv6a", {}, (3, 16, 16), False, 1, 1 / 4),
    ("vgg11", dict(cifar=1), (3, 32, 32), False, 1, 1 / 4),
    ("vgg11", dict(cifar=1), (3, 32, 32), True, 1, 1 / 4),
    ("vgg13", dict(cifar=1), (3, 32, 32), False, 1, 1 / 4),
    ("vgg16", dict(cifar=1), (3, 32, 32), False, 1, 1 / 4),
    ("vgg19", dict(cifar=1), (3, 32, 32), False, 1, 1 / 4),
    ("resnet20", {}, (3, 16, 16), False, 1, 1 / 4),
    ("resnet18", {}, (3, 48, 48), False, 1, 1 / 4),
    ("resnet18", dict(cifar=1), (3, 12, 12), False, 1, 1 / 4),
    ("resnet18", dict(cifar=1), (3, 16, 16), True, 1, 1 / 4),
    ("resnet34", {}, (3, 48, 48), False, 1, 1 / 4),
    ("resnet34", dict(cifar=1), (3, 12, 12), False, 1, 1 / 4),
    ("resnet50", {}, (3, 48, 48), False, 2, 1 / 4),
    ("resnet50", dict(cifar=1), (3, 12, 12), False, 2, 1 / 4),
    ("resnet101", {}, (3, 48, 48), False, 1, 1 / 4),
    ("resnet101", dict(cifar=1), (3, 12, 12), False, 1, 1 / 4),
    ("resnet152", {}, (3, 48, 48), False, 2, 1 / 16),
    ("resnet152", dict(cifar=1), (3, 12, 12), False, 2, 1 / 16),
    ("mobilenet_v2", dict(dropout=0), (3, 64, 64), False, 1, 1 / 4),
    ("mobilenet_v2", dict(cifar=1, dropout=0), (3, 24, 24), False, 2, 1 / 4),
    ("mobilenet_v2", dict(cifar=1, dropout=0), (3, 24, 24), True, 2, 1 / 4),
    ("pyramidnet", dict(blocks=2, alpha=22.5), (3, 8, 8), False, 1, 1 / 4),
    ("pyramidnet", dict(blocks=2, alpha=22.5), (3, 8, 8), True, 1, 1 / 4),
    ("pyramidnet", dict(), (3, 8, 8), False, 1, 1 / 4),
]


def stream(count):
    """The numbers of noise() for initial states and weighted sums."""
    return ((words("z", count) >> np.uint32(16)).astype(np.float32) - 32768) / 32768


def first_value(key, values, after_norm_weight, bias, end):
    """Weights are about the inverse square root of their fan-in. BatchNorm's biases, of mean `bias`, keep most inputs
    of a ReLU away from 0. At the end of a residual block BatchNorm is scaled down by `end`, so that values and
    rounding errors do not grow with depth."""
    if values.dim() >= 2:
        scale, reach = 2.0, 1
        while reach < values[0].numel():
            scale, reach = scale / 2, reach * 4
        return values * scale
    if key.endswith(".running_var"):
        return 1 + values / 4
    norm_weight = key.endswith(".weight")
    if not norm_weight and not after_norm_weight:
        return values / 8
    part = end if "bn2." in key or "bn3." in key else 1
    return part * (1 + values / 4 if norm_weight else bias + values / 2)


def first_state(model, bias, end):
    """The entries of a state share one stream of noise."""
    state, norm_weight, at = model.state_dict(), False, 0
    values = torch.from_numpy(stream(sum(value.numel() for value in state.values())))
    for key, value in state.items():
        if key.endswith("num_batches_tracked"):
            state[key] = torch.tensor(3)
        else:
            state[key] = first_value(key, values[at:at + value.numel()].reshape(value.shape), norm_weight, bias, end)
        norm_weight = value.dim() == 1 and key.endswith(".weight")
        at += value.numel()
    model.load_state_dict(state)
    return model


class ShardBatchNorm2d(nn.BatchNorm2d):
    """Normalises each shard alone; running statistics are those of the whole batch."""

    def forward(self, x):
        super().forward(x)
        return torch.cat([F.batch_norm(part, None, None, self.weight, self.bias, True, 0, self.eps)
                          for part in x.chunk(SHARDS)])


def build(name, params, shape, shard, bias, end):
    model = first_state(models.build(name, shape, CLASSES, **params), bias, end)
    for module in model.modules():
        if shard and isinstance(module, nn.BatchNorm2d):
            module.__class__ = ShardBatchNorm2d
    return model.train()


def batch(spec, which, shape):
    """As model_batch in golden.py: a pattern for each class plus noise."""
    y = labels(f"{spec}/labels{which}", BATCH, CLASSES)
    patterns = torch.stack([noise(f"{spec}/pattern{i}", *shape) for i in range(CLASSES)])
    return patterns[y] + noise(f"{spec}/x{which}", BATCH, *shape) / 4, y


class Kinks:
    """While active, records the smallest distance of an input of ReLU, ReLU6 or max pooling from a point where the
    gradient jumps, relative to the tensor's root mean square."""

    NAMES = ("relu", "relu6", "hardtanh", "max_pool2d")

    def __enter__(self):
        self.nearest = float("inf")
        self.kept = {name: getattr(F, name) for name in self.NAMES}
        F.relu, F.relu6, F.hardtanh, F.max_pool2d = self.relu, self.relu6, self.relu6, self.max_pool2d
        return self

    def __exit__(self, *_):
        for name, function in self.kept.items():
            setattr(F, name, function)

    def note(self, distance, x):
        self.nearest = min(self.nearest, float(distance.min() / x.pow(2).mean().sqrt()))

    def relu(self, x, inplace=False):
        self.note(x.abs(), x)
        return x.clamp(min=0)

    def relu6(self, x, *_, **__):
        self.note(torch.minimum(x.abs(), (x - 6).abs()), x)
        return x.clamp(0, 6)

    def max_pool2d(self, x, kernel_size, stride=None, padding=0, *_, **__):
        """Equal zeros do not count: they come from a ReLU, which passes no gradient there."""
        padded = F.pad(x, [padding] * 4, value=0)
        stride = stride or kernel_size
        windows = padded.unfold(2, kernel_size, stride).unfold(3, kernel_size, stride).flatten(4)
        best = windows.topk(2).values
        gap = best[..., 0] - best[..., 1]
        self.note(gap[best[..., 0] > 0], x)
        return self.kept["max_pool2d"](x, kernel_size, stride, padding)


def smooth_batches(model, spec, shape):
    """Of many batches, the numbers of those with the largest such distances, and the distances."""
    def nearest(which):
        with Kinks() as kinks, torch.no_grad():
            model(batch(spec, which, shape)[0])
        return kinks.nearest

    distances = {which: nearest(which) for which in range(TRIES)}
    return sorted(distances.items(), key=lambda item: -item[1])[:BEST]


def one_step(row, x, y, dtype):
    model = build(*row).to(dtype)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=0.01)
    loss = train_step(model, optimizer, models.criterion(row[0]), x.to(dtype), y)
    return loss, {key: p.grad for key, p in model.named_parameters()}, model.state_dict()


def measures(tensors):
    """By key, the value to which a tensor's errors are relative: its largest value, for a bias the largest of its
    layer. Both gradients of a layer are sums over the same terms. If the next layers are nearly linear up to a
    BatchNorm, which removes any constant, the terms of the bias almost cancel; directly before a BatchNorm only
    rounding is left."""
    largest = {key: float(value.abs().max()) for key, value in tensors.items()}
    for key in [key for key in largest if key.endswith(".bias")]:
        largest[key] = max(largest[key], largest[key[:-len("bias")] + "weight"])
    return largest


def figures(index, value, measure):
    """Figures of tensor number `index`: its measure, the Euclidean norm, a sum weighted by noise, and elements at
    random positions. Together they change if any part of the tensor is missing or misplaced."""
    flat = value.double().flatten().numpy()
    weights = stream(len(flat))
    positions = words("places", (index + 1) * SAMPLES)[index * SAMPLES:] % np.uint32(len(flat))
    return np.array([measure, np.linalg.norm(flat), weights @ flat, *flat[positions]], np.float32)


def add(out, name, tensors):
    largest = measures(tensors)
    kept = [key for key, value in tensors.items() if value.dtype != torch.int64]
    out.add(name, np.stack([figures(i, tensors[key], largest[key]) for i, key in enumerate(kept)]))


def worst(ours, truth):
    """The largest difference relative to its tensor's measure, and the tensor."""
    return max((float((ours[key].double() - truth[key].double()).abs().max()) / measure, key)
               for key, measure in measures(truth).items())


def best_step(row, spec):
    """A step in float64 on the first of the best batches where float32 stays well within the tolerance, otherwise on
    the one where float32 is best; the batch's number, and a text about the choice."""
    shape, steps = row[2], []
    for which, distance in smooth_batches(build(*row), spec, shape):
        x, y = batch(spec, which, shape)
        truth, f32 = one_step(row, x, y, torch.float64), one_step(row, x, y, torch.float32)
        grads, state = worst(f32[1], truth[1]), worst(f32[2], truth[2])
        text = (f"batch {which}, kinks {distance:.1e} away; float32 is off by: loss {abs(f32[0] - truth[0]):.1e}, "
                f"gradients {grads[0]:.1e} ({grads[1]}), state {state[0]:.1e} ({state[1]})")
        steps.append((grads[0], which, truth, text))
        if grads[0] < WELL:
            break
    return min(steps, key=lambda step: step[0])[1:]


def spec_of(name, params):
    return name + "".join(f"{',' if i else ':'}{key}={value}" for i, (key, value) in enumerate(params.items()))


def make_row(out, row):
    spec = spec_of(*row[:2])
    which, (loss, grads, state), text = best_step(row, spec)
    prefix = spec + ("/shard" if row[3] else "/batch")
    print(f"{prefix}: loss {loss:.4f}, {text}", flush=True)
    out.add(f"{prefix}/row", np.array([*row[2][:2], *row[4:]], np.float32))
    out.add(f"{prefix}/which", np.array([which]))
    out.add(f"{prefix}/loss", np.array([loss]))
    add(out, f"{prefix}/grad", grads)
    add(out, f"{prefix}/state", state)


def make_zoo(rows=ROWS):
    out = File()
    for row in rows:
        make_row(out, row)
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", metavar="DIR", required=True, help="folder for zoo.safetensors")
    args = parser.parse_args()
    torch.set_num_threads(1)  # as golden.py
    make_zoo().write(os.path.join(args.out, "zoo.safetensors"))


if __name__ == "__main__":
    main()

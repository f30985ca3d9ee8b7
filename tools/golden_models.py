#!/usr/bin/env python3
"""One step of every model of the zoo by PyTorch in float64, for tests/golden/test_zoo.c: zoo.safetensors.

    python tools/golden_models.py --out tests/golden/data

The models are those of tools/models.py; noise and labels are those of tools/golden.py. A first state is noise too, so
only a few figures of each tensor are kept: see figures(). Every row has the batch, of many, whose inputs of ReLU and
max pooling stay farthest from where their gradients jump; what PyTorch's own float32 then differs by is printed.
Needs numpy, PyTorch 1.13 or newer and torchvision.
"""
import argparse
import os
import time

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

import models
from golden import File, labels, noise, train_step, words

CLASSES, SAMPLES, SHARDS = 20, 5, 3
SHIFT = float(os.environ.get("SHIFT", 1.5))
CUT = float(os.environ.get("CUT", -2))

ROWS = [  # name, parameters, sample (c, h, w), samples, BatchNorm over shards
    ("cnn", dict(dropout=0), (1, 28, 28), 6, False),
    ("cnn", dict(dropout=0, dropout2d=1), (1, 28, 28), 6, False),
    ("mlp", {}, (1, 28, 28), 6, False),
    ("fc", {}, (1, 28, 28), 6, False),
    ("debug", {}, (1, 28, 28), 6, False),
    ("conv2", {}, (3, 16, 16), 6, False),
    ("conv4", {}, (3, 16, 16), 6, False),
    ("conv6", {}, (3, 16, 16), 6, False),
    ("conv2a", {}, (3, 16, 16), 6, False),
    ("conv4a", {}, (3, 16, 16), 6, False),
    ("conv6a", {}, (3, 16, 16), 6, False),
    ("vgg11", dict(cifar=1), (3, 32, 32), 6, False),
    ("vgg11", dict(cifar=1), (3, 32, 32), 6, True),
    ("vgg13", dict(cifar=1), (3, 32, 32), 6, False),
    ("vgg16", dict(cifar=1), (3, 32, 32), 6, False),
    ("vgg19", dict(cifar=1), (3, 32, 32), 6, False),
    ("resnet20", {}, (3, 16, 16), 6, False),
    ("resnet18", {}, (3, 32, 32), 6, False),
    ("resnet18", dict(cifar=1), (3, 8, 8), 6, False),
    ("resnet18", dict(cifar=1), (3, 16, 16), 6, True),
    ("resnet34", {}, (3, 32, 32), 6, False),
    ("resnet34", dict(cifar=1), (3, 8, 8), 6, False),
    ("resnet50", {}, (3, 32, 32), 6, False),
    ("resnet50", dict(cifar=1), (3, 8, 8), 6, False),
    ("resnet101", {}, (3, 32, 32), 6, False),
    ("resnet101", dict(cifar=1), (3, 8, 8), 6, False),
    ("resnet152", {}, (3, 32, 32), 6, False),
    ("resnet152", dict(cifar=1), (3, 8, 8), 6, False),
    ("mobilenet_v2", dict(dropout=0), (3, 32, 32), 6, False),
    ("mobilenet_v2", dict(cifar=1, dropout=0), (3, 16, 16), 6, False),
    ("mobilenet_v2", dict(cifar=1, dropout=0), (3, 16, 16), 6, True),
    ("pyramidnet", dict(blocks=2, alpha=22.5), (3, 8, 8), 6, False),
    ("pyramidnet", dict(blocks=2, alpha=22.5), (3, 8, 8), 6, True),
    ("pyramidnet", dict(), (3, 8, 8), 6, False),
]


def stream(count):
    """The numbers of noise() that first states and weighted sums are made of."""
    return ((words("z", count) >> np.uint32(16)).astype(np.float32) - 32768) / 32768


def first_state(model):
    """The state's entries share one stream of noise, weights of all layers scaled alike by their fan in."""
    state, normed = model.state_dict(), False
    values, at = torch.from_numpy(stream(sum(value.numel() for value in state.values()))), 0
    for key, value in state.items():
        part, at = values[at: at + value.numel()].reshape(value.shape), at + value.numel()
        if key.endswith("num_batches_tracked"):
            part = torch.tensor(3)
        elif value.dim() >= 2:
            scale, reach = 2.0, 1
            while reach < value[0].numel():
                scale, reach = scale / 2, reach * 4
            part = part * scale
        elif key.endswith((".weight", ".running_var")):
            part = 1 + part / 4
        elif normed:
            part = part / 2 + torch.where(part < CUT, -SHIFT, SHIFT)
        else:
            part = part / 8
        normed = value.dim() == 1 and key.endswith(".weight")
        state[key] = part
    model.load_state_dict(state)
    return model


class ShardBatchNorm2d(nn.BatchNorm2d):
    """Normalises each shard alone; running statistics are the whole batch's."""

    def forward(self, x):
        super().forward(x)
        return torch.cat([F.batch_norm(part, None, None, self.weight, self.bias, True, 0, self.eps)
                          for part in x.chunk(SHARDS)])


def build(name, params, shape, shard):
    model = first_state(models.build(name, shape, CLASSES, **params))
    for module in model.modules():
        if shard and isinstance(module, nn.BatchNorm2d):
            module.__class__ = ShardBatchNorm2d
    return model.train()


def batch(spec, which, count, shape):
    """As model_batch in golden.py: a pattern for each class under noise."""
    y = labels(f"{spec}/labels{which}", count, CLASSES)
    patterns = torch.stack([noise(f"{spec}/pattern{i}", *shape) for i in range(CLASSES)])
    return patterns[y] + noise(f"{spec}/x{which}", count, *shape) / 4, y


class Kinks:
    """Follows ReLU, ReLU6 and max pooling while it is active and keeps the smallest distance of an input from a place
    where the gradient jumps, as a part of the tensor's root mean square."""

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
        """A tie of zeros is none: they come from a ReLU that passes no gradient on."""
        padded = F.pad(x, [padding] * 4, value=0)
        stride = stride or kernel_size
        windows = padded.unfold(2, kernel_size, stride).unfold(3, kernel_size, stride).flatten(4)
        best = windows.topk(2).values
        gap = best[..., 0] - best[..., 1]
        self.note(gap[best[..., 0] > 0], x)
        return self.kept["max_pool2d"](x, kernel_size, stride, padding)


def smooth_batch(model, spec, count, shape, tries):
    def nearest(which):
        with Kinks() as kinks, torch.no_grad():
            model(batch(spec, which, count, shape)[0])
        return kinks.nearest

    state = {key: value.clone() for key, value in model.state_dict().items()}
    distances = [nearest(which) for which in range(tries)]
    model.load_state_dict(state)
    which = int(np.argmax(distances))
    return which, distances[which]


def one_step(row, x, y, dtype):
    name, params, shape, _, shard = row
    model = build(name, params, shape, shard).to(dtype)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=0.01)
    loss = train_step(model, optimizer, models.criterion(name), x.to(dtype), y)
    return loss, {key: p.grad for key, p in model.named_parameters()}, model.state_dict()


def measures(tensors):
    """What a tensor's errors are parts of: its largest value. A bias in front of BatchNorm has a gradient of 0, where
    rounding alone is left; it is measured by its layer's weight."""
    largest = {key: float(value.abs().max()) for key, value in tensors.items()}
    for key in [key for key in largest if key.endswith(".bias")]:
        weight = largest[key[:-len("bias")] + "weight"]
        if largest[key] < 1e-9 * weight:
            largest[key] = weight
    return largest


def figures(index, value, measure):
    """Of a tensor, the index-th: what its errors are parts of, the Euclidean norm, a sum weighted by noise, and elements
    at random places, which together no misplaced or missing part leaves unchanged."""
    flat = value.double().flatten().numpy()
    weights = stream(len(flat))
    places = words("places", (index + 1) * SAMPLES)[index * SAMPLES:] % np.uint32(len(flat))
    return np.array([measure, np.linalg.norm(flat), weights @ flat, *flat[places]], np.float32)


def add(out, name, tensors):
    largest = measures(tensors)
    kept = [key for key, value in tensors.items() if value.dtype != torch.int64]
    out.add(name, np.stack([figures(i, tensors[key], largest[key]) for i, key in enumerate(kept)]))


def worst(ours, truth):
    """The largest difference as a part of its tensor's measure, and where."""
    errors = {key: float((ours[key].double() - truth[key].double()).abs().max()) / measure
              for key, measure in measures(truth).items()}
    key = max(errors, key=errors.get)
    return f"{errors[key]:.1e} ({key})"


def spec_of(name, params):
    return name + "".join(f"{',' if i else ':'}{key}={value}" for i, (key, value) in enumerate(params.items()))


def make_row(out, row, tries):
    name, params, shape, count, shard = row
    spec, start = spec_of(name, params), time.time()
    which, distance = smooth_batch(build(name, params, shape, shard), spec, count, shape, tries)
    x, y = batch(spec, which, count, shape)
    loss, grads, state = one_step(row, x, y, torch.float64)
    f32 = one_step(row, x, y, torch.float32)
    print(f"{spec}{', shards' if shard else ''}: loss {loss:.4f}; batch {which}, kinks {distance:.1e} away; float32 is "
          f"off by: loss {abs(f32[0] - loss):.1e}, gradients {worst(f32[1], grads)}, state {worst(f32[2], state)}; "
          f"{time.time() - start:.0f} s", flush=True)
    prefix = spec + ("/shard" if shard else "/batch")
    out.add(f"{prefix}/which", np.array([which]))
    out.add(f"{prefix}/loss", np.array([loss]))
    add(out, f"{prefix}/grad", grads)
    add(out, f"{prefix}/state", state)


def make_zoo(tries=12, only=""):
    out = File()
    for row in ROWS:
        if only in spec_of(*row[:2]):
            make_row(out, row, tries)
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", metavar="DIR", required=True)
    parser.add_argument("--only", default="")
    parser.add_argument("--tries", type=int, default=12)
    args = parser.parse_args()
    torch.set_num_threads(1)
    make_zoo(args.tries, args.only).write(os.path.join(args.out, "zoo.safetensors"))


if __name__ == "__main__":
    main()

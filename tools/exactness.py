#!/usr/bin/env python3
"""Rounding errors of one step's gradients against float64, beside those of PyTorch's float32.

    LOCKSTEP_LIBRARY=build/liblockstep.so.0 python tools/exactness.py [--seeds 3] [MODEL...]

The error of a parameter's gradient is the median over its elements that are not 0 of the distance to PyTorch's
float64. Prints, for each case, the median over the parameters of the ratio of our error to that of PyTorch's float32,
and the largest ratio; each ratio is the median over the seeds. A gradient whose error is above FLIPPED does not count: rounding has moved the
input of a ReLU across 0, or the gradient is 0 but for rounding, as that of a bias before a BatchNorm. Needs numpy,
PyTorch and torchvision.
"""
import argparse
import os
import sys

import numpy as np
import torch
from torch import nn

import models

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "python"))
import lockstep  # noqa: E402

FLIPPED = 1e-4  # of the root mean square

CASES = {  # spec: samples (c, h, w), classes, batch
    "linear": ((3072, 1, 1), 1000, 64),
    "mlp": ((1, 28, 28), 10, 64),
    "cnn:dropout=0": ((1, 28, 28), 10, 64),
    "conv2": ((3, 32, 32), 10, 64),
    "conv6": ((3, 32, 32), 10, 64),
    "resnet20": ((3, 32, 32), 10, 64),
    "vgg11:cifar": ((3, 32, 32), 10, 32),
    "resnet18:cifar": ((3, 32, 32), 10, 32),
    "mobilenet_v2:cifar,dropout=0": ((3, 32, 32), 10, 32),
}


def both(spec, shape, classes):
    """The model in PyTorch and as a graph, and the loss in PyTorch."""
    if spec == "linear":
        graph = lockstep.Graph()
        graph.cross_entropy(graph.linear(graph.flatten(graph.input(*shape)), "1", classes))
        return nn.Sequential(nn.Flatten(), nn.Linear(shape[0], classes)), graph, nn.CrossEntropyLoss()
    name, _, params = spec.partition(":")
    settings = dict((item.split("=") + ["1"])[:2] for item in params.split(",") if item)
    model = models.build(name, shape, classes, **{key: int(value) for key, value in settings.items()})
    return model, lockstep.Model(spec, shape, classes), models.criterion(name)


def torch_gradients(model, criterion, x, y, dtype):
    model = model.to(dtype)
    model.zero_grad()
    criterion(model(x.to(dtype)), y).backward()
    return {key: p.grad.double().numpy().copy() for key, p in model.named_parameters()}


def ratios(spec, seed, conv):
    """By parameter: median errors of ours and of PyTorch's float32, relative to each other."""
    shape, classes, batch = CASES[spec]
    torch.manual_seed(seed)
    model, graph, criterion = both(spec, shape, classes)
    x, y = torch.randn(batch, *shape), torch.randint(classes, (batch,))
    state = {key: value.numpy().copy() for key, value in model.state_dict().items()}
    with lockstep.Engine(graph, batch=batch, optimizer="sgd", lr=0.1, threads=1, conv=conv) as engine:
        engine.set_state(state)
        engine.gradients(x.numpy(), y.numpy().astype(np.int32))
        ours = {key: value.astype(np.float64) for key, value in engine.grads().items()}
    single = torch_gradients(model, criterion, x, y, torch.float32)
    model.load_state_dict({key: torch.from_numpy(value) for key, value in state.items()})
    exact = torch_gradients(model, criterion, x, y, torch.float64)
    found = {}
    for key, want in exact.items():
        live = want != 0  # a ReLU that is 0 for all samples gives exact zeros
        error = [float(np.median(np.abs(got[key].reshape(want.shape) - want)[live])) for got in (ours, single)]
        if max(error) < FLIPPED * np.sqrt(np.mean(want**2)):
            found[key] = error[0] / error[1]
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--conv", choices=("winograd", "direct"), default="winograd")
    parser.add_argument("--all", action="store_true", help="print every parameter")
    parser.add_argument("models", nargs="*", default=list(CASES))
    args = parser.parse_args()
    torch.set_num_threads(1)
    for spec in args.models:
        runs = [ratios(spec, seed, args.conv) for seed in range(args.seeds)]
        by_key = {key: float(np.median([run[key] for run in runs if key in run])) for run in runs for key in run}
        worst = max(by_key, key=by_key.get)
        middle = np.median(list(by_key.values()))
        print(f"{spec:30s} median {middle:5.2f}  most {by_key[worst]:5.2f} ({worst})", flush=True)
        for key, value in by_key.items() if args.all else ():
            print(f"    {value:5.2f} {key}")


main()

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
import math
import os
import struct
import tempfile
from collections import OrderedDict

import numpy as np
import torch
from torch import distributed as dist
from torch import multiprocessing as mp
from torch import nn
from torch.nn import functional as F
from torch.optim import lr_scheduler

DTYPES = {"float32": "F32", "float64": "F64", "int64": "I64", "int32": "I32", "uint8": "U8"}


class File:
    """A .safetensors file under construction."""

    def __init__(self):
        self.tensors = {}

    def add(self, name, value):
        array = value.detach().numpy() if isinstance(value, torch.Tensor) else np.asarray(value)
        assert name not in self.tensors, name
        self.tensors[name] = np.array(array, order="C")

    def write(self, path):
        header, offset = {}, 0
        for name, array in self.tensors.items():
            end = offset + array.nbytes
            header[name] = {"dtype": DTYPES[str(array.dtype)], "shape": array.shape, "data_offsets": [offset, end]}
            offset = end
        text = json.dumps(header, separators=(",", ":")).encode()
        text += b" " * (-len(text) % 8)
        with open(path, "wb") as out:
            out.write(struct.pack("<Q", len(text)) + text)
            for array in self.tensors.values():
                out.write(array.tobytes())


def words(name, count):
    """Random 32-bit words of a name: FNV-1a of it plus the index, through a 32-bit mixer."""
    seed = 2166136261
    for byte in name.encode():
        seed = (seed ^ byte) * 16777619 & 0xFFFFFFFF
    h = (np.arange(count, dtype=np.uint64) * 0x9E3779B9 + seed).astype(np.uint32)
    h ^= h >> np.uint32(16)
    h *= np.uint32(0x85EBCA6B)
    h ^= h >> np.uint32(13)
    h *= np.uint32(0xC2B2AE35)
    return h ^ h >> np.uint32(16)


def noise(name, *shape):
    """Uniform multiples of 2^-15 in [-1,1)."""
    values = ((words(name, int(np.prod(shape))) >> np.uint32(16)).astype(np.float32) - 32768) / 32768
    return torch.from_numpy(values.reshape(shape))


def labels(name, count, classes):
    return torch.from_numpy((words(name, count) >> np.uint32(16)).astype(np.int64) % classes)


def first_value(key, shape):
    """Values of noise_state for an entry: weights like PyTorch's default, a power of two for 1/sqrt(fan_in)."""
    if key.endswith("num_batches_tracked"):
        return torch.tensor(3)
    value = noise(key, *shape)
    if len(shape) >= 2:
        fan_in, k = int(np.prod(shape[1:])), 0
        while 4**k < fan_in:
            k += 1
        return value * 2.0**-k
    if key.endswith((".weight", ".running_var")):
        return 1 + value / 4
    return value / 8


def noise_state(model):
    state = model.state_dict()
    model.load_state_dict({key: first_value(key, value.shape) for key, value in state.items()})
    return model


# ---- single ops, for the kernels ----

CONVS = [  # name, x (n, c, h, w), out, kernel, stride, pad, bias
    ("conv_3x3", (5, 3, 8, 7), 6, 3, 1, 0, True),
    ("conv_3x3_pad", (4, 4, 6, 6), 5, 3, 1, 1, False),
    ("conv_3x3_stride", (3, 5, 9, 8), 7, 3, 2, 1, False),
    ("conv_1x1_stride", (3, 6, 8, 8), 9, 1, 2, 0, False),
    ("conv_5x5", (2, 2, 9, 9), 3, 5, 1, 2, True),
    ("conv_1_channel", (6, 1, 12, 12), 32, 3, 1, 0, True),
    ("conv_wide", (2, 19, 6, 6), 37, 3, 1, 1, True),
]
POOLS = [  # name, x, kernel, stride, pad
    ("pool_2", (3, 4, 6, 6), 2, 2, 0),
    ("pool_2_odd", (3, 5, 7, 5), 2, 2, 0),
    ("pool_3_overlap", (2, 6, 9, 8), 3, 2, 1),
    ("pool_2_dense", (2, 3, 5, 5), 2, 1, 0),
]


def leaf(name, *shape):
    return noise(name, *shape).double().requires_grad_()


def record(out, name, y, inputs, **given):
    """y, a gradient of y from noise(), and the resulting gradients of the inputs."""
    dy = noise(f"{name}/dy", *y.shape)
    grads = torch.autograd.grad(y, list(inputs.values()), dy.double())
    for key, value in inputs.items():
        out.add(f"{name}/{key}", value.float())
    for key, value in given.items():
        out.add(f"{name}/{key}", value)
    out.add(f"{name}/dy", dy)
    out.add(f"{name}/y", y)
    for key, grad in zip(inputs, grads):
        out.add(f"{name}/d{key}", grad)


def batchnorm_op(out):
    name, shape = "batchnorm", (7, 5, 4, 3)
    inputs = {"x": leaf(name + "/x", *shape), "w": leaf(name + "/w", 5), "b": leaf(name + "/b", 5)}
    mean, var = noise(name + "/mean", 5), 1 + noise(name + "/var", 5) / 2
    out.add(name + "/y_eval", F.batch_norm(inputs["x"], mean.double(), var.double(), inputs["w"], inputs["b"], False))
    new_mean, new_var = mean.double(), var.double()
    y = F.batch_norm(inputs["x"], new_mean, new_var, inputs["w"], inputs["b"], True, 0.1, 1e-5)
    record(out, name, y, inputs, mean=mean, var=var, new_mean=new_mean, new_var=new_var)


def make_ops():
    out = File()
    for name, shape, channels, kernel, stride, pad, bias in CONVS:
        inputs = {"x": leaf(name + "/x", *shape), "w": leaf(name + "/w", channels, shape[1], kernel, kernel)}
        if bias:
            inputs["b"] = leaf(name + "/b", channels)
        y = F.conv2d(inputs["x"], inputs["w"], inputs.get("b"), stride, pad)
        record(out, name, y, inputs, opts=np.array([kernel, stride, pad]))
    for name, n, i, o in (("linear", 6, 37, 11), ("linear_wide", 9, 130, 67)):
        inputs = {"x": leaf(name + "/x", n, i), "w": leaf(name + "/w", o, i), "b": leaf(name + "/b", o)}
        record(out, name, F.linear(*inputs.values()), inputs)
    batchnorm_op(out)
    for name, shape, kernel, stride, pad in POOLS:
        x = leaf(name + "/x", *shape)
        y = F.max_pool2d(x, kernel, stride, pad)
        record(out, name, y, {"x": x}, opts=np.array([kernel, stride, pad]))
    for name, function in (("relu", F.relu), ("flatten", lambda x: x.flatten(1)), ("dropout_off", F.dropout),
                           ("global_avgpool", lambda x: F.adaptive_avg_pool2d(x, 1).flatten(1))):
        x = leaf(name + "/x", 3, 5, 4, 6)
        record(out, name, x * 1 if name == "dropout_off" else function(x), {"x": x})
    a, b = leaf("add/a", 3, 5, 4, 6), leaf("add/b", 3, 5, 4, 6)
    record(out, "add", a + b, {"a": a, "b": b})
    x = leaf("log_softmax/x", 7, 13)
    record(out, "log_softmax", F.log_softmax(x * 8, 1), {"x": x})
    out.tensors["log_softmax/x"] *= 8
    out.tensors["log_softmax/dx"] /= 8
    losses(out)
    return out


AVGPOOLS = [  # name, x, kernel, stride, pad, ceil
    ("avgpool_2", (3, 5, 6, 8), 2, 2, 0, False),
    ("avgpool_2_odd", (2, 4, 7, 5), 2, 2, 0, False),
    ("avgpool_2_ceil", (2, 5, 6, 6), 2, 2, 0, True),
    ("avgpool_2_ceil_odd", (3, 4, 7, 5), 2, 2, 0, True),
    ("avgpool_2_ceil_mixed", (2, 3, 5, 8), 2, 2, 0, True),
    ("avgpool_2_ceil_pixel", (2, 3, 1, 1), 2, 2, 0, True),
    ("avgpool_8", (3, 19, 8, 8), 8, 8, 0, False),
    ("avgpool_3_dense", (2, 6, 7, 6), 3, 1, 1, False),
    ("avgpool_3_overlap", (2, 5, 9, 8), 3, 2, 1, False),
    ("avgpool_3_ceil", (2, 5, 9, 8), 3, 2, 1, True),
    ("avgpool_3_ceil_pad", (2, 3, 6, 7), 3, 2, 1, True),
    ("avgpool_3_ceil_apart", (2, 4, 10, 7), 3, 5, 1, True),
    ("avgpool_2_ceil_none", (2, 3, 7, 10), 2, 3, 1, True),
    ("avgpool_5_ceil", (1, 17, 11, 12), 5, 3, 2, True),
]


def make_ops_more():
    out = File()
    x = (noise("relu6/x", 3, 5, 4, 6) * 9).double().requires_grad_()
    record(out, "relu6", F.relu6(x), {"x": x})
    for name, shape, kernel, stride, pad, ceil in AVGPOOLS:
        x = leaf(name + "/x", *shape)
        y = F.avg_pool2d(x, kernel, stride, pad, ceil)
        record(out, name, y, {"x": x}, opts=np.array([kernel, stride, pad, ceil]))
    for name, shape, channels in (("pad_channels", (3, 5, 4, 6), 9), ("pad_channels_wide", (2, 33, 3, 2), 70)):
        x = leaf(name + "/x", *shape)
        record(out, name, F.pad(x, (0, 0, 0, 0, 0, channels - shape[1])), {"x": x})
    return out


def losses(out):
    def smooth_nll(x, y, reduction):
        return 0.75 * F.nll_loss(x, y, reduction=reduction) - 0.25 * x.mean(1)

    def smooth_cross_entropy(x, y, reduction):
        return F.cross_entropy(x, y, reduction=reduction, label_smoothing=0.25)

    for name, function in (("nll", F.nll_loss), ("cross_entropy", F.cross_entropy), ("nll_smooth", smooth_nll),
                           ("cross_entropy_smooth", smooth_cross_entropy)):
        x, y = (noise(name + "/x", 7, 13) * 8).double().requires_grad_(), labels(name + "/labels", 7, 13)
        loss = function(x, y, reduction="none")
        out.add(name + "/x", x.float())
        out.add(name + "/labels", y)
        out.add(name + "/loss", loss)
        out.add(name + "/dx", torch.autograd.grad(loss.mean(), x)[0])
        out.add(name + "/correct", (x.argmax(1) == y).long())
        out.add(name + "/top5", (x.topk(5).indices == y[:, None]).any(1).long())


GROUP_CONVS = [  # name, x (n, c, h, w), out, kernel, stride, pad, groups, bias
    ("groups_2", (4, 6, 7, 8), 8, 3, 1, 1, 2, True),
    ("groups_odd", (3, 9, 8, 7), 15, 3, 2, 1, 3, False),
    ("groups_wide", (2, 40, 6, 6), 36, 3, 1, 0, 2, True),
    ("groups_1x1", (3, 12, 5, 6), 20, 1, 1, 0, 4, True),
    ("depthwise", (5, 8, 7, 9), 8, 3, 1, 1, 8, True),
    ("depthwise_stride", (3, 19, 9, 8), 19, 3, 2, 1, 19, False),
    ("depthwise_wide", (2, 37, 6, 5), 37, 3, 1, 0, 37, True),
    ("depthwise_5x5", (2, 5, 9, 9), 5, 5, 2, 2, 5, True),
    ("multiplier_2", (3, 7, 8, 6), 14, 3, 1, 1, 7, True),
    ("multiplier_2_stride", (2, 5, 9, 9), 10, 3, 2, 1, 5, False),
]


def make_conv_groups():
    out = File()
    for name, shape, channels, kernel, stride, pad, groups, bias in GROUP_CONVS:
        inputs = {"x": leaf(name + "/x", *shape),
                  "w": leaf(name + "/w", channels, shape[1] // groups, kernel, kernel)}
        if bias:
            inputs["b"] = leaf(name + "/b", channels)
        y = F.conv2d(inputs["x"], inputs["w"], inputs.get("b"), stride, pad, 1, groups)
        record(out, name, y, inputs, opts=np.array([kernel, stride, pad, groups]))
    return out


# ---- small graphs, through the engine ----

class ShardBatchNorm2d(nn.BatchNorm2d):
    """Normalises each of 3 equal shards alone; running statistics are those of the whole batch."""

    def forward(self, x):
        if not self.training:
            return super().forward(x)
        super().forward(x)
        return torch.cat([F.batch_norm(part, None, None, self.weight, self.bias, True) for part in x.chunk(3)])


class Residual(nn.Module):
    def __init__(self, norm=nn.BatchNorm2d):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, 6, 3, 1, 1, bias=False), norm(6)
        self.conv2, self.bn2 = nn.Conv2d(6, 6, 3, 1, 1, bias=False), norm(6)
        self.fc = nn.Linear(6, 5)

    def forward(self, x):
        x = F.relu(self.bn1(self.conv1(x)))
        x = F.relu(self.bn2(self.conv2(x)) + x)
        return self.fc(F.adaptive_avg_pool2d(x, 1).flatten(1))


def sequence(**layers):
    return nn.Sequential(OrderedDict(layers))


GRAPHS = {  # name: (model, loss)
    "plain": (lambda: sequence(conv1=nn.Conv2d(3, 4, 3), relu=nn.ReLU(), pool=nn.MaxPool2d(2), flat=nn.Flatten(),
                               fc=nn.Linear(36, 5)), F.cross_entropy),
    "strided": (lambda: sequence(conv1=nn.Conv2d(3, 7, 5, 2, 2, bias=False), bn1=nn.BatchNorm2d(7), relu=nn.ReLU(),
                                 conv2=nn.Conv2d(7, 9, 1, 2), pool=nn.AdaptiveAvgPool2d(1), flat=nn.Flatten(),
                                 fc=nn.Linear(9, 5), soft=nn.LogSoftmax(1)), F.nll_loss),
    "overlap": (lambda: sequence(conv1=nn.Conv2d(3, 5, 3, 1, 1), pool=nn.MaxPool2d(3, 2, 1), flat=nn.Flatten(),
                                 fc=nn.Linear(80, 5)), F.cross_entropy),
    "features": (lambda: sequence(flat=nn.Flatten(), fc1=nn.Linear(192, 20), relu=nn.ReLU(), drop=nn.Dropout(0),
                                  fc2=nn.Linear(20, 5), soft=nn.LogSoftmax(1)), F.nll_loss),
    "residual": (Residual, F.cross_entropy),
    "residual_shard": (lambda: Residual(ShardBatchNorm2d), F.cross_entropy),
}
GRAPH_BATCH, GRAPH_STEPS = 12, 3


def make_graphs():
    """Losses of three steps, the gradients of the first, the last state, and its loss in evaluation mode."""
    out = File()
    for name, (build, criterion) in GRAPHS.items():
        model = noise_state(build()).double()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=0.01)
        curve = []
        for step in range(GRAPH_STEPS):
            x = noise(f"graph/x{step}", GRAPH_BATCH, 3, 8, 8).double()
            y = labels(f"graph/labels{step}", GRAPH_BATCH, 5)
            curve.append(train_step(model, optimizer, criterion, x, y))
            if step == 0:
                for key, parameter in model.named_parameters():
                    out.add(f"{name}/grad/{key}", parameter.grad)
        model.eval()
        out.add(f"{name}/losses", np.array(curve))
        out.add(f"{name}/eval_loss", criterion(model(x), y).reshape(1))
        for key, value in model.state_dict().items():
            out.add(f"{name}/state/{key}", value)
    return out


def train_step(model, optimizer, criterion, x, y):
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    loss.backward()
    optimizer.step()
    return loss.item()


# ---- optimisers and schedules ----

OPTIMIZERS = {  # our spec: (class, learning rate, arguments)
    "sgd": ("SGD", 0.1, {}),
    "sgd:momentum=.9": ("SGD", 0.1, {"momentum": 0.9}),
    "sgd:momentum=.9,weight_decay=.01": ("SGD", 0.1, {"momentum": 0.9, "weight_decay": 0.01}),
    "sgd:momentum=.9,nesterov": ("SGD", 0.1, {"momentum": 0.9, "nesterov": True}),
    "sgd:momentum=.9,nesterov=1,weight_decay=.01": ("SGD", 0.05, {"momentum": 0.9, "nesterov": True,
                                                                 "weight_decay": 0.01}),
    "sgd:momentum=.8,dampening=.3": ("SGD", 0.1, {"momentum": 0.8, "dampening": 0.3}),
    "sgd:weight_decay=.1": ("SGD", 0.1, {"weight_decay": 0.1}),
    "adam": ("Adam", 1e-3, {}),
    "adam:weight_decay=.05": ("Adam", 0.01, {"weight_decay": 0.05}),
    "adam:beta1=.8,beta2=.95,eps=.001": ("Adam", 0.05, {"betas": (0.8, 0.95), "eps": 0.001}),
    "adamw": ("AdamW", 1e-3, {}),
    "adamw:weight_decay=.5": ("AdamW", 0.05, {"weight_decay": 0.5}),
    "adamw:beta1=.8,beta2=.95,eps=.001,weight_decay=.1": ("AdamW", 0.05, {"betas": (0.8, 0.95), "eps": 0.001,
                                                                         "weight_decay": 0.1}),
    "adadelta": ("Adadelta", 1.0, {}),
    "adadelta:rho=.8,eps=.0001": ("Adadelta", 0.5, {"rho": 0.8, "eps": 0.0001}),
    "adadelta:weight_decay=.02": ("Adadelta", 1.0, {"weight_decay": 0.02}),
}
OPTIM_STEPS, OPTIM_COUNT = 20, 37


def make_optim():
    out = File()
    first, grads = noise("optim/params", OPTIM_COUNT), noise("optim/grads", OPTIM_STEPS, OPTIM_COUNT)
    out.add("params", first)
    out.add("grads", grads)
    for spec, (kind, lr, arguments) in OPTIMIZERS.items():
        parameter = nn.Parameter(first.double())
        optimizer = getattr(torch.optim, kind)([parameter], lr=lr, **arguments)
        rows = []
        for step in range(OPTIM_STEPS):
            parameter.grad = grads[step].double()
            optimizer.step()
            rows.append(parameter.detach().clone())
        out.add(f"optim/{spec}", torch.stack(rows))
        out.add(f"lr/{spec}", np.array([lr]))
    return out


SCHEDULE_EPOCHS, SCHEDULE_BATCHES, SCHEDULE_LR = 30, 4, 0.3
SCHEDULE_STEPS = SCHEDULE_EPOCHS * SCHEDULE_BATCHES


def factors(function):
    """A schedule given by its factor at each epoch or step, for schedules that PyTorch does not have."""
    return lambda optimizer: lr_scheduler.LambdaLR(optimizer, function)


def warmed(length, rest):
    """A linear warm-up, then another schedule that counts from its end; stepped after each batch."""
    def make(optimizer):
        rise = lr_scheduler.LinearLR(optimizer, 1 / length, 1, length - 1)
        return lr_scheduler.SequentialLR(optimizer, [rise, rest(optimizer)], [length])
    return make


def half_cosine(x):
    return (1 + math.cos(math.pi * x)) / 2


def bell(x, sigma=0.3):
    return math.exp(-x * x / (2 * sigma * sigma))


def above(low, factor):
    """The factor of the whole initial rate if `factor` applies only to its part above `low`."""
    return (low + (SCHEDULE_LR - low) * factor) / SCHEDULE_LR


BY_EPOCH = {  # our spec: what makes PyTorch's schedule of an optimizer, stepped after each epoch
    "constant": factors(lambda _: 1.0),
    "step": lambda o: lr_scheduler.StepLR(o, 1, 0.7),
    "step:size=1,gamma=.7": lambda o: lr_scheduler.StepLR(o, 1, 0.7),
    "step:size=3,gamma=.1": lambda o: lr_scheduler.StepLR(o, 3, 0.1),
    "step:size=7": lambda o: lr_scheduler.StepLR(o, 7, 0.7),
    "multistep": lambda o: lr_scheduler.MultiStepLR(o, [30, 60, 90], 0.1),
    "multistep:milestones=5/12/13/25,gamma=.5": lambda o: lr_scheduler.MultiStepLR(o, [5, 12, 13, 25], 0.5),
    "exponential": lambda o: lr_scheduler.ExponentialLR(o, 0.95),
    "exponential:gamma=.8": lambda o: lr_scheduler.ExponentialLR(o, 0.8),
    "cosine": lambda o: lr_scheduler.CosineAnnealingLR(o, SCHEDULE_EPOCHS),
    "cosine:min=.01": lambda o: lr_scheduler.CosineAnnealingLR(o, SCHEDULE_EPOCHS, 0.01),
    "cosine:epochs=20,min=.01": factors(lambda e: above(0.01, half_cosine(min(e / 20, 1)))),
    "gaussian": factors(lambda e: bell(e / SCHEDULE_EPOCHS)),
    "gaussian:sigma=.2,min=.05": factors(lambda e: above(0.05, bell(e / SCHEDULE_EPOCHS, 0.2))),
}
BY_STEP = {  # the same, stepped after each batch
    "constant:warmup_steps=50": lambda o: lr_scheduler.LinearLR(o, 1 / 50, 1, 49),
    "constant:warmup=4": lambda o: lr_scheduler.LinearLR(o, 1 / 16, 1, 15),
    "step:size=3,gamma=.5,warmup=5": warmed(20, lambda o: lr_scheduler.StepLR(o, 3 * SCHEDULE_BATCHES, 0.5)),
    "step:size=2,gamma=.5,warmup_steps=9": warmed(9, lambda o: lr_scheduler.StepLR(o, 2 * SCHEDULE_BATCHES, 0.5)),
    "multistep:milestones=3/9,warmup=5": warmed(20, lambda o: lr_scheduler.MultiStepLR(
        o, [3 * SCHEDULE_BATCHES, 9 * SCHEDULE_BATCHES], 0.1)),
    "multistep:milestones=3/9,warmup_steps=10": warmed(10, lambda o: lr_scheduler.MultiStepLR(
        o, [3 * SCHEDULE_BATCHES, 9 * SCHEDULE_BATCHES], 0.1)),
    "exponential:warmup=3": warmed(12, lambda o: lr_scheduler.StepLR(o, SCHEDULE_BATCHES, 0.95)),
    "exponential:warmup_steps=9": warmed(9, lambda o: lr_scheduler.StepLR(o, SCHEDULE_BATCHES, 0.95)),
    "cosine:by_step": lambda o: lr_scheduler.CosineAnnealingLR(o, SCHEDULE_STEPS),
    "cosine:by_step,warmup_steps=10": warmed(10, lambda o: lr_scheduler.CosineAnnealingLR(o, SCHEDULE_STEPS - 10)),
    "cosine:by_step,warmup=1": warmed(4, lambda o: lr_scheduler.CosineAnnealingLR(o, SCHEDULE_STEPS - 4)),
    "cosine:by_step,warmup=2": warmed(8, lambda o: lr_scheduler.CosineAnnealingLR(o, SCHEDULE_STEPS - 8)),
    "cosine:warmup=5": warmed(20, factors(lambda s: half_cosine(s // SCHEDULE_BATCHES / (SCHEDULE_EPOCHS - 5)))),
    "cosine:warmup_steps=10": warmed(10, factors(lambda s: half_cosine(
        s // SCHEDULE_BATCHES * SCHEDULE_BATCHES / (SCHEDULE_STEPS - 10)))),
    "gaussian:warmup=5": warmed(20, factors(lambda s: bell(s // SCHEDULE_BATCHES / (SCHEDULE_EPOCHS - 5)))),
    "gaussian:by_step,sigma=.5,warmup_steps=7": warmed(7, factors(lambda s: bell(s / (SCHEDULE_STEPS - 7), 0.5))),
}


def make_schedules():
    """The rate of every step, one row for each epoch. The updates of SGD do not matter."""
    out = File()
    for table, by_step in ((BY_EPOCH, False), (BY_STEP, True)):
        for spec, make in table.items():
            optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=SCHEDULE_LR)
            schedule = make(optimizer)
            rates = []
            for step in range(SCHEDULE_STEPS):
                rates.append(optimizer.param_groups[0]["lr"])
                optimizer.step()
                if by_step or (step + 1) % SCHEDULE_BATCHES == 0:
                    schedule.step()
            out.add(spec, np.array(rates).reshape(SCHEDULE_EPOCHS, SCHEDULE_BATCHES))
    return out


# ---- transforms by Pillow and torchvision ----

RESIZES = [  # x (c, h, w), box (top, left, height, width), out (h, w)
    ((3, 23, 31), (0, 0, 23, 31), (32, 32)),
    ((3, 23, 31), (0, 0, 23, 31), (9, 14)),
    ((1, 23, 31), (0, 0, 23, 31), (23, 12)),
    ((3, 23, 31), (0, 0, 23, 31), (11, 31)),
    ((3, 23, 31), (3, 5, 17, 20), (16, 16)),
    ((3, 23, 31), (22, 30, 1, 1), (5, 4)),
    ((1, 23, 31), (1, 0, 20, 1), (7, 3)),
    ((3, 23, 31), (4, 6, 12, 13), (12, 13)),
    ((3, 150, 200), (11, 3, 130, 190), (21, 17)),
    ((3, 150, 200), (0, 0, 150, 200), (1, 1)),
    ((3, 150, 200), (40, 50, 63, 49), (28, 28)),
    ((1, 2, 3), (0, 0, 2, 3), (19, 40)),
]
LISTS = [  # our list, torchvision's transforms, x (c, h, w)
    ("resize=20", [("Resize", 20)], (3, 23, 31)),
    ("resize=20", [("Resize", 20)], (3, 31, 23)),
    ("resize=37", [("Resize", 37)], (1, 23, 31)),
    ("resize=23", [("Resize", 23)], (3, 23, 31)),
    ("resize=20/33", [("Resize", (20, 33))], (3, 31, 23)),
    ("center_crop=16", [("CenterCrop", 16)], (3, 23, 31)),
    ("center_crop=17", [("CenterCrop", 17)], (3, 24, 31)),
    ("center_crop=17", [("CenterCrop", 17)], (1, 22, 28)),
    ("center_crop=28", [("CenterCrop", 28)], (3, 23, 31)),
    ("center_crop=40", [("CenterCrop", 40)], (3, 23, 31)),
    ("center_crop=10/40", [("CenterCrop", (10, 40))], (3, 23, 31)),
    ("resize=24,center_crop=20", [("Resize", 24), ("CenterCrop", 20)], (3, 31, 52)),
    ("flip=1", [("RandomHorizontalFlip", 1)], (3, 23, 31)),
    ("vflip=1", [("RandomVerticalFlip", 1)], (3, 23, 31)),
    ("flip=0", [("RandomHorizontalFlip", 0)], (3, 23, 31)),
    ("grayscale=1", [("RandomGrayscale", 1)], (3, 23, 31)),
    ("grayscale=1", [("RandomGrayscale", 1)], (1, 23, 31)),
]
FACTORS = {"brightness": (0, .3, 1, 1.4, 7), "contrast": (0, .6, 1, 1.25, 9), "saturation": (0, .35, 1, 1.5, 12),
           "hue": (-.5, -.1, 0, .003, .21, .5)}
JITTERS = [((3, 0, 2, 1), (1.2, .7, 1.4, .05)), ((1, 2, 3, 0), (.6, 1.3, .5, -.3)), ((0, 1, 2, 3), (1.1, 1.1, .9, .4))]
AFFINES = [  # degrees, shift right and down, scale, shear
    (0, 0, 0, 1, 0), (0, 3, -2, 1, 0), (0, 0, 0, 1.3, 0), (0, -1, 4, .77, 0), (15, 0, 0, 1, 0), (-33.5, 2, 1, .9, 0),
    (7.25, 0, 0, 1.1, 12), (0, 0, 0, 1, -20.5), (120, -4, 5, 1.5, 3), (-179, 1, 1, .5, -45), (30, 40, 0, 1, 0), (0, 0, 0, 1.2, 0), (0, 0, 0, 2.4, 0),
]


def byte_image(shape):
    """A PIL image of random bytes, c 1 or 3."""
    from PIL import Image

    name = "transforms/%dx%dx%d" % shape
    array = (words(name, int(np.prod(shape))) >> np.uint32(24)).astype(np.uint8).reshape(shape)
    return Image.fromarray(array[0] if shape[0] == 1 else np.ascontiguousarray(array.transpose(1, 2, 0)))


def image_bytes(image):
    array = np.asarray(image)
    return array[None] if array.ndim == 2 else array.transpose(2, 0, 1)


def make_transforms():
    from torchvision import transforms
    from torchvision.transforms import functional as TF

    out = File()

    def add(kind, index, shape, values, image):
        out.add(f"{kind}/{index}/x", np.array(shape))
        out.add(f"{kind}/{index}/values", np.array(values, dtype=np.float64))
        out.add(f"{kind}/{index}/y", image_bytes(image))

    for i, (shape, box, size) in enumerate(RESIZES):
        add("resize", i, shape, box, TF.resized_crop(byte_image(shape), *box, list(size)))
    for spec, theirs, shape in LISTS:
        image = byte_image(shape)
        for name, argument in theirs:
            image = getattr(transforms, name)(argument)(image)
        out.add(f"list/{spec} of %dx%dx%d" % shape, image_bytes(image))
    shapes = [(3, 23, 31), (1, 23, 31)]
    for kind, factors in FACTORS.items():
        change = getattr(TF, "adjust_" + kind)
        for i, (factor, shape) in enumerate((factor, shape) for shape in shapes for factor in factors):
            add(kind, i, shape, [factor], change(byte_image(shape), factor))
    for i, (order, factors) in enumerate(JITTERS):
        image = byte_image(shapes[0])
        for part in order:
            image = getattr(TF, "adjust_" + list(FACTORS)[part])(image, factors[part])
        add("jitter", i, shapes[0], order + factors, image)
    for i, (values, shape) in enumerate((values, shape) for shape in shapes for values in AFFINES):
        angle, right, down, scale, shear = values
        add("affine", i, shape, values, TF.affine(byte_image(shape), angle, [right, down], scale, [shear, 0.0], fill=0))
    return out


# ---- models ----

class Cnn(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 32, 3), nn.Conv2d(32, 64, 3)
        self.fc1, self.fc2 = nn.Linear(9216, 128), nn.Linear(128, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv2(F.relu(self.conv1(x)))), 2).flatten(1)
        return F.log_softmax(self.fc2(F.relu(self.fc1(x))), 1)


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.chunk1 = nn.Sequential(nn.Flatten(), nn.Linear(784, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU())
        self.chunk2 = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))

    def forward(self, x):
        return self.chunk2(self.chunk1(x))


class Block(nn.Module):
    def __init__(self, i, o, stride):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(i, o, 3, stride, 1, bias=False), nn.BatchNorm2d(o)
        self.conv2, self.bn2 = nn.Conv2d(o, o, 3, 1, 1, bias=False), nn.BatchNorm2d(o)
        self.downsample = None
        if stride != 1 or i != o:
            self.downsample = nn.Sequential(nn.Conv2d(i, o, 1, stride, bias=False), nn.BatchNorm2d(o))

    def forward(self, x):
        y = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        return F.relu(y + (self.downsample(x) if self.downsample else x))


class Resnet20(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16)
        self.layer1 = nn.Sequential(Block(16, 16, 1), Block(16, 16, 1), Block(16, 16, 1))
        self.layer2 = nn.Sequential(Block(16, 32, 2), Block(32, 32, 1), Block(32, 32, 1))
        self.layer3 = nn.Sequential(Block(32, 64, 2), Block(64, 64, 1), Block(64, 64, 1))
        self.fc = nn.Linear(64, 10)

    def forward(self, x):
        x = self.layer3(self.layer2(self.layer1(F.relu(self.bn1(self.conv1(x))))))
        return self.fc(F.adaptive_avg_pool2d(x, 1).flatten(1))


MODELS = {  # name: (class, one sample's shape, loss)
    "cnn": (Cnn, (1, 28, 28), F.nll_loss),
    "mlp": (Mlp, (1, 28, 28), F.cross_entropy),
    "resnet20": (Resnet20, (3, 32, 32), F.cross_entropy),
}
MODEL_BATCH, MODEL_STEPS, SAMPLES = 16, 30, 48
LARGE_STEPS, SMOOTH_BATCH, SMOOTH_TRIES = (0, 1, 10, 29), 8, 60


def model_batch(name, which, count=MODEL_BATCH):
    """A pattern for each class plus noise, so that a model can learn it: pure noise makes training chaotic."""
    shape = MODELS[name][1]
    y = labels(f"{name}/labels{which}", count, 10)
    patterns = torch.stack([noise(f"{name}/pattern{i}", *shape) for i in range(10)])
    return patterns[y] + noise(f"{name}/x{which}", count, *shape) / 4, y


class Kinks:
    """While active, records the smallest distance of any ReLU's input from 0."""

    def __enter__(self):
        self.nearest, self.relu = float("inf"), F.relu
        F.relu = self.follow
        return self

    def __exit__(self, *_):
        F.relu = self.relu

    def follow(self, x, inplace=False):
        self.nearest = min(self.nearest, float(x.detach().abs().min()))
        return self.relu(x)


def smooth_batch(model, tries, name="resnet20"):
    """Of many batches, the number of the one whose ReLU inputs stay farthest from 0 in this model, and the distance.
    An input that rounding moves across 0 switches a term of a gradient on or off, so no float32 is right near 0."""
    model = copy.deepcopy(model)
    model.train()

    def nearest(which):
        with Kinks() as kinks, torch.no_grad():
            model(model_batch(name, which, SMOOTH_BATCH)[0])
        return kinks.nearest

    which = max(range(tries), key=nearest)
    return which, nearest(which)


def model_curve(name, make_optimizer, dtype):
    build, _, criterion = MODELS[name]
    model = noise_state(build()).to(dtype)
    optimizer = make_optimizer(model.parameters())
    curve = []
    for step in range(MODEL_STEPS):
        x, y = model_batch(name, step)
        curve.append(train_step(model, optimizer, criterion, x.to(dtype), y))
    return np.array(curve)


def one_step(model, x, y, dtype):
    """Loss, gradients and new state of the first step of SGD with rate .1 and momentum .9."""
    model = copy.deepcopy(model).to(dtype)
    model.train()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    loss = train_step(model, optimizer, F.cross_entropy, x.to(dtype), y)
    return loss, {key: p.grad for key, p in model.named_parameters()}, model.state_dict()


def worst(ours, truth):
    """The largest difference relative to the largest value of its tensor, and the tensor."""
    def error(key):
        return float((ours[key].double() - truth[key].double()).abs().max() / truth[key].abs().max().clamp(min=1e-30))
    key = max(truth, key=error)
    return f"{error(key):.1e} ({key})"


def report_float32(what, model, x, y, truth):
    loss, grads, state = one_step(model, x, y, torch.float32)
    print(f"{what}: PyTorch's float32 is off by: loss {abs(loss - truth[0]):.1e}, gradients {worst(grads, truth[1])}, "
          f"state {worst(state, truth[2])}")


def add_samples(out, name, value):
    """The largest absolute value, the Euclidean norm, and evenly spaced elements."""
    flat = value.double().flatten()
    out.add(name + "/max", flat.abs().max().reshape(1))
    out.add(name + "/norm", flat.norm().reshape(1))
    out.add(name + "/samples", flat[:: -(-len(flat) // SAMPLES)])


def make_models():
    out = File()
    for name, make_optimizer in (("cnn", lambda p: torch.optim.Adadelta(p, lr=1.0)),
                                 ("mlp", lambda p: torch.optim.Adam(p, lr=1e-3))):
        curve = model_curve(name, make_optimizer, torch.float64)
        off = np.abs(curve - model_curve(name, make_optimizer, torch.float32)).max()
        print(f"{name}: losses {curve[0]:.4f} ... {curve[-1]:.4f}; PyTorch's float32 is off by {off:.1e}")
        out.add(f"{name}/losses", curve)
    model = noise_state(Resnet20())
    which, distance = smooth_batch(model, SMOOTH_TRIES)
    x, y = model_batch("resnet20", which, SMOOTH_BATCH)
    truth = one_step(model, x, y, torch.float64)
    report_float32(f"resnet20, batch {which}, kinks {distance:.1e} away", model, x, y, truth)
    out.add("resnet20/batch", np.array([which]))
    out.add("resnet20/loss", np.array([truth[0]]))
    for key, value in truth[1].items():
        add_samples(out, f"resnet20/grad/{key}", value)
    for key, value in truth[2].items():
        add_samples(out, f"resnet20/state/{key}", value)
    return out


# ---- several ranks ----

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
                       ("graphs", make_graphs), ("optim", make_optim), ("schedules", make_schedules),
                       ("models", make_models), ("ranks", make_ranks),
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

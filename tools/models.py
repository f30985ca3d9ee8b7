#!/usr/bin/env python3
"""The models of src/nn/models in PyTorch, and the table of their keys that tests/nn/test_models.c compares with.

    python tools/models.py --out tests/nn/data/models.txt

build() makes a model, criterion() its loss. Models that torchvision has are torchvision's own; the others are written
here from their definitions. Needs PyTorch; torchvision (0.13 or newer) for vgg, resnet and mobilenet_v2.
"""
import argparse
import re
from collections import OrderedDict

import torch
from torch import nn
from torch.nn import functional as F

MNIST, CIFAR, IMAGENET = (1, 28, 28), (3, 32, 32), (3, 224, 224)


class Cnn(nn.Module):
    def __init__(self, shape, classes, dropout, dropout2d):
        super().__init__()
        side = [(size - 4) // 2 for size in shape[1:]]
        self.conv1 = nn.Conv2d(shape[0], 32, 3)
        self.conv2 = nn.Conv2d(32, 64, 3)
        self.dropout1 = (nn.Dropout2d if dropout2d else nn.Dropout)(0.25 * dropout)
        self.dropout2 = nn.Dropout(0.5 * dropout)  # on a vector Dropout2d is the same
        self.fc1 = nn.Linear(64 * side[0] * side[1], 128)
        self.fc2 = nn.Linear(128, classes)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv2(F.relu(self.conv1(x)))), 2)
        x = F.relu(self.fc1(torch.flatten(self.dropout1(x), 1)))
        return F.log_softmax(self.fc2(self.dropout2(x)), dim=1)


class Mlp(nn.Module):
    def __init__(self, inputs, hidden, classes):
        super().__init__()
        self.chunk1 = nn.Sequential(
            nn.Flatten(), nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU())
        self.chunk2 = nn.Sequential(nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, classes))

    def forward(self, x):
        return self.chunk2(self.chunk1(x))


class Linears(nn.Module):
    """Linear layers with the given names and ReLU between them."""

    def __init__(self, names, widths):
        super().__init__()
        for name, inputs, outputs in zip(names, widths, widths[1:]):
            self.add_module(name, nn.Linear(inputs, outputs))

    def forward(self, x):
        x = torch.flatten(x, 1)
        layers = list(self.children())
        for layer in layers[:-1]:
            x = F.relu(layer(x))
        return layers[-1](x)


class Lenet5(nn.Module):
    """With ReLU and max pooling; images of 28x28 are padded to 32x32."""

    def __init__(self, shape, classes):
        super().__init__()
        self.conv1 = nn.Conv2d(shape[0], 6, 5, padding=(32 - shape[1]) // 2)
        self.conv2 = nn.Conv2d(6, 16, 5)
        self.fc1 = nn.Linear(16 * 5 * 5, 120)
        self.fc2 = nn.Linear(120, 84)
        self.fc3 = nn.Linear(84, classes)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        return self.fc3(F.relu(self.fc2(F.relu(self.fc1(torch.flatten(x, 1))))))


class Convs(nn.Module):
    """conv2, conv4, conv6, and with a mean over the pixels conv2a, conv4a, conv6a."""

    def __init__(self, count, mean, shape, classes):
        super().__init__()
        self.count, self.mean = count, mean
        channels = shape[0]
        for i in range(count):
            out = 64 << i // 2
            bias = not (mean and count == 2)
            self.add_module(f"conv{i + 1}", nn.Conv2d(channels, out, 3, padding=1, bias=bias))
            channels = out
        if mean:
            self.fc = nn.Linear(channels, classes)
        else:
            pixels = (shape[1] >> count // 2) * (shape[2] >> count // 2)
            self.fc1 = nn.Linear(channels * pixels, 256)
            self.fc2 = nn.Linear(256, 256)
            self.fc3 = nn.Linear(256, classes)

    def forward(self, x):
        for i in range(self.count):
            x = F.relu(getattr(self, f"conv{i + 1}")(x))
            if i % 2:
                x = F.max_pool2d(x, 2)
        if self.mean:
            return self.fc(x.mean((2, 3)))
        return self.fc3(F.relu(self.fc2(F.relu(self.fc1(torch.flatten(x, 1))))))


VGG_CONVS = {11: (1, 1, 2, 2, 2), 13: (2, 2, 2, 2, 2), 16: (2, 2, 3, 3, 3), 19: (2, 2, 4, 4, 4)}


class SmallVgg(nn.Module):
    """VGG with BatchNorm for small images: one linear layer at the end."""

    def __init__(self, size, shape, classes):
        super().__init__()
        layers, channels = [], shape[0]
        for group, count in enumerate(VGG_CONVS[size]):
            for _ in range(count):
                out = 64 << min(group, 3)
                layers += [nn.Conv2d(channels, out, 3, padding=1), nn.BatchNorm2d(out), nn.ReLU()]
                channels = out
            layers.append(nn.MaxPool2d(2))
        self.conv = nn.Sequential(*layers)
        self.fc = nn.Linear(channels, classes)

    def forward(self, x):
        return self.fc(self.conv(x).mean((2, 3)))


class Block(nn.Module):
    """Two convolutions and a shortcut, which has a convolution if the stride is not 1."""

    def __init__(self, i, o, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(i, o, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(o)
        self.conv2 = nn.Conv2d(o, o, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(o)
        self.downsample = None
        if stride > 1:
            self.downsample = nn.Sequential(nn.Conv2d(i, o, 1, stride, bias=False), nn.BatchNorm2d(o))

    def forward(self, x):
        y = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        return F.relu(y + (self.downsample(x) if self.downsample else x))


class Resnet20(nn.Module):
    def __init__(self, shape, classes, width):
        super().__init__()
        self.conv1 = nn.Conv2d(shape[0], width, 3, 1, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        for stage in range(3):
            out = width << stage
            first = Block(out // 2, out, 2) if stage else Block(out, out, 1)
            self.add_module(f"layer{stage + 1}", nn.Sequential(first, Block(out, out, 1), Block(out, out, 1)))
        self.fc = nn.Linear(width << 2, classes)

    def forward(self, x):
        x = F.relu(self.bn1(self.conv1(x)))
        x = self.layer3(self.layer2(self.layer1(x)))
        return self.fc(x.mean((2, 3)))


class PyramidBlock(nn.Module):
    def __init__(self, i, o, stride):
        super().__init__()
        self.more, self.stride = o - i, stride
        self.bn1 = nn.BatchNorm2d(i)
        self.conv1 = nn.Conv2d(i, o, 3, stride, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(o)
        self.conv2 = nn.Conv2d(o, o, 3, 1, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(o)

    def forward(self, x):
        shortcut = F.pad(x, (0, 0, 0, 0, 0, self.more))
        if self.stride > 1:
            shortcut = F.avg_pool2d(shortcut, 2, 2, ceil_mode=True)
        return self.bn3(self.conv2(F.relu(self.bn2(self.conv1(self.bn1(x)))))) + shortcut


class PyramidNet(nn.Module):
    """The additive PyramidNet; alpha is divided by one block more in each stage than there are."""

    def __init__(self, shape, classes, blocks, alpha):
        super().__init__()
        width, growth = 16, alpha / (3 * (blocks + 1))
        self.conv1 = nn.Conv2d(shape[0], width, 3, 1, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        for stage in range(3):
            layers = []
            for i in range(blocks):
                before, width = width, width + growth
                stride = 2 if stage and i == 0 else 1
                layers.append(PyramidBlock(int(round(before)), int(round(width)), stride))
            self.add_module(f"layer{stage + 1}", nn.Sequential(*layers))
        self.bn_out = nn.BatchNorm2d(int(round(width)))
        self.fc_out = nn.Linear(int(round(width)), classes)

    def forward(self, x):
        x = self.layer3(self.layer2(self.layer1(self.bn1(self.conv1(x)))))
        return self.fc_out(F.relu(self.bn_out(x)).mean((2, 3)))


def pixels(shape):
    return shape[0] * shape[1] * shape[2]


def torchvision_model(name, classes, **params):
    from torchvision import models
    return getattr(models, name)(weights=None, num_classes=classes, **params)


def replace_first(model, path, channels, **changes):
    """Replaces the first convolution by one with another number of channels or other sizes."""
    *folders, last = path.split(".")
    owner = model.get_submodule(".".join(folders))
    old = getattr(owner, last)
    new = dict(kernel_size=old.kernel_size, stride=old.stride, padding=old.padding, bias=old.bias is not None)
    new.update(changes)
    if channels != old.in_channels or changes:
        setattr(owner, last, nn.Conv2d(channels, old.out_channels, **new))
    return model


def build_vgg(size, shape, classes, cifar=0, dropout=1):
    if cifar:
        return SmallVgg(size, shape, classes)
    model = torchvision_model(f"vgg{size}_bn", classes, dropout=0.5 * dropout)
    return replace_first(model, "features.0", shape[0])


def build_resnet(size, shape, classes, cifar=0):
    model = torchvision_model(f"resnet{size}", classes)
    if cifar:
        model.maxpool = nn.Identity()
        return replace_first(model, "conv1", shape[0], kernel_size=3, stride=1, padding=1)
    return replace_first(model, "conv1", shape[0])


def build_mobilenet_v2(shape, classes, width=1, cifar=0, dropout=1):
    model = torchvision_model("mobilenet_v2", classes, width_mult=width, dropout=0.2 * dropout)
    if cifar:
        model.features[0][0].stride = (1, 1)
        block = model.features[2]
        block.conv[1][0].stride = (1, 1)
        block.use_res_connect = block.conv[0][0].in_channels == block.out_channels
    return replace_first(model, "features.0.0", shape[0])


def build(name, shape, classes, **params):
    """A model of the zoo for samples of shape (c, h, w)."""
    family, size, mean = re.fullmatch(r"(vgg|resnet|conv)(\d+)(a?)|.*", name).groups()
    if family == "vgg":
        return build_vgg(int(size), shape, classes, **params)
    if family == "conv":
        return Convs(int(size), bool(mean), shape, classes)
    if family == "resnet" and size != "20":
        return build_resnet(int(size), shape, classes, **params)
    others = {
        "cnn": lambda dropout=1, dropout2d=0: Cnn(shape, classes, dropout, dropout2d),
        "mlp": lambda hidden=64: Mlp(pixels(shape), hidden, classes),
        "fc": lambda: Linears(["fc1", "fc2", "fc3"], [pixels(shape), 300, 100, classes]),
        "debug": lambda: Linears(["fc"], [pixels(shape), classes]),
        "lenet5": lambda: Lenet5(shape, classes),
        "resnet20": lambda width=16: Resnet20(shape, classes, width),
        "mobilenet_v2": lambda **given: build_mobilenet_v2(shape, classes, **given),
        "pyramidnet": lambda blocks=17, alpha=270: PyramidNet(shape, classes, blocks, alpha),
    }
    return others[name](**params)


def criterion(name):
    """The loss of a model's output: log-probabilities for cnn, scores for all others."""
    return F.nll_loss if name == "cnn" else F.cross_entropy


# Rows of the table: every model for its usual data, and with the parameters that change keys or shapes.
ROWS = [
    ("cnn", MNIST, 10, {}),
    ("cnn", MNIST, 10, {"dropout2d": 1}),
    ("mlp", MNIST, 10, {}),
    ("mlp", MNIST, 10, {"hidden": 32}),
    ("fc", MNIST, 10, {}),
    ("debug", MNIST, 10, {}),
    ("lenet5", MNIST, 10, {}),
    ("lenet5", CIFAR, 10, {}),
    ("conv2", CIFAR, 10, {}),
    ("conv4", CIFAR, 10, {}),
    ("conv6", CIFAR, 10, {}),
    ("conv6", MNIST, 10, {}),
    ("conv2a", CIFAR, 10, {}),
    ("conv4a", CIFAR, 10, {}),
    ("conv6a", CIFAR, 10, {}),
    ("conv6a", MNIST, 10, {}),
    ("vgg11", IMAGENET, 1000, {}),
    ("vgg13", IMAGENET, 1000, {}),
    ("vgg16", IMAGENET, 1000, {}),
    ("vgg19", IMAGENET, 1000, {}),
    ("vgg11", (3, 448, 448), 7, {}),
    ("vgg11", CIFAR, 10, {"cifar": 1}),
    ("vgg13", CIFAR, 10, {"cifar": 1}),
    ("vgg16", CIFAR, 10, {"cifar": 1}),
    ("vgg19", CIFAR, 100, {"cifar": 1}),
    ("resnet20", CIFAR, 10, {}),
    ("resnet20", CIFAR, 10, {"width": 8}),
    ("resnet18", IMAGENET, 1000, {}),
    ("resnet18", CIFAR, 10, {"cifar": 1}),
    ("resnet34", IMAGENET, 1000, {}),
    ("resnet50", IMAGENET, 1000, {}),
    ("resnet50", CIFAR, 100, {"cifar": 1}),
    ("resnet101", IMAGENET, 1000, {}),
    ("resnet152", IMAGENET, 1000, {}),
    ("mobilenet_v2", IMAGENET, 1000, {}),
    ("mobilenet_v2", CIFAR, 10, {"cifar": 1}),
    ("mobilenet_v2", IMAGENET, 1000, {"width": 0.35}),
    ("mobilenet_v2", IMAGENET, 1000, {"width": 1.4}),
    ("pyramidnet", CIFAR, 10, {}),
    ("pyramidnet", CIFAR, 10, {"blocks": 3, "alpha": 48}),
    ("pyramidnet", MNIST, 10, {"blocks": 2, "alpha": 22.5}),
]

DTYPES = {torch.float32: "F32", torch.int64: "I64"}


def output_shape(model, shape):
    """Computes shapes only, to check that the layers fit."""
    with torch.no_grad():
        return tuple(model.eval()(torch.empty(1, *shape, device="meta")).shape)


def table_lines(name, shape, classes, params):
    with torch.device("meta"):
        model = build(name, shape, classes, **params)
    assert output_shape(model, shape) == (1, classes)
    spec = name + "".join(f"{',' if i else ':'}{key}={value}" for i, (key, value) in enumerate(params.items()))
    state = OrderedDict(model.state_dict())
    count = sum(p.numel() for p in model.parameters())
    yield f"model {spec} {'x'.join(map(str, shape))} {classes} {count} {len(state)}"
    for key, value in state.items():
        yield f"{key} {DTYPES[value.dtype]} {'x'.join(map(str, value.shape)) or '-'}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", required=True)
    out = parser.parse_args().out
    with open(out, "w", encoding="ascii") as file:
        file.write("# tools/models.py: 'model SPEC SHAPE CLASSES PARAMETERS ENTRIES', then each entry of its state\n")
        for row in ROWS:
            file.writelines(line + "\n" for line in table_lines(*row))


if __name__ == "__main__":
    main()

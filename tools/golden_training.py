"""Golden values of training: steps of models."""
import copy

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from golden_noise import File, labels, noise, noise_state, train_step
from golden_ops import losses


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

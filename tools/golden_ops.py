"""Golden values of single ops, for the kernels, and of small graphs, through the engine."""
from collections import OrderedDict

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from golden_noise import File, labels, noise, noise_state, train_step

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


def make_graphs(graphs=GRAPHS):
    """Losses of three steps, the gradients of the first, the last state, and its loss in evaluation mode."""
    out = File()
    for name, (build, criterion) in graphs.items():
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

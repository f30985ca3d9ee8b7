"""Golden values of convolutions and pools whose windows are not square, or dilated."""
from collections import OrderedDict

import numpy as np
from torch import nn
from torch.nn import functional as F

from golden_noise import File
from golden_ops import leaf, make_graphs, record

CONVS = [  # name, x (n, c, h, w), out, kernel, stride, pad, dilation, groups, bias; windows are (height, width)
    ("conv_1x7", (3, 4, 5, 9), 6, (1, 7), (1, 1), (0, 3), (1, 1), 1, True),
    ("conv_7x1", (3, 4, 9, 5), 6, (7, 1), (1, 1), (3, 0), (1, 1), 1, False),
    ("conv_3x5", (3, 5, 9, 8), 7, (3, 5), (2, 1), (1, 2), (1, 1), 1, True),
    ("conv_dilated", (2, 5, 9, 8), 7, (3, 3), (1, 1), (2, 2), (2, 2), 1, True),
    ("conv_dilated_width", (2, 19, 7, 10), 21, (3, 3), (1, 1), (1, 3), (1, 3), 1, True),
    ("conv_dilated_stride", (2, 3, 13, 14), 5, (3, 4), (2, 3), (2, 4), (2, 3), 1, False),
    ("groups_3x5", (3, 9, 9, 8), 12, (3, 5), (2, 1), (1, 2), (1, 1), 3, True),
    ("groups_dilated", (2, 6, 9, 11), 10, (3, 3), (1, 2), (2, 3), (2, 3), 2, False),
    ("depthwise_1x7", (2, 19, 5, 9), 19, (1, 7), (1, 1), (0, 3), (1, 1), 19, True),
    ("depthwise_7x1", (2, 5, 9, 5), 5, (7, 1), (1, 1), (3, 0), (1, 1), 5, True),
    ("depthwise_3x5", (3, 10, 9, 8), 10, (3, 5), (2, 1), (1, 2), (1, 1), 10, False),
    ("depthwise_dilated", (2, 9, 9, 8), 9, (3, 3), (1, 1), (2, 2), (2, 2), 9, True),
    ("depthwise_dilated_stride", (2, 7, 13, 14), 7, (3, 3), (3, 2), (1, 3), (2, 3), 7, True),
]
MAXPOOLS = [  # name, x, kernel, stride, pad, dilation, ceil
    ("maxpool_1x5", (2, 5, 6, 9), (1, 5), (2, 1), (0, 2), (1, 1), False),
    ("maxpool_3x2", (2, 6, 9, 8), (3, 2), (3, 2), (0, 0), (1, 1), False),
    ("maxpool_ceil", (2, 6, 9, 8), (2, 3), (2, 3), (1, 0), (1, 1), True),
    ("maxpool_dilated", (2, 6, 9, 8), (3, 3), (1, 1), (1, 1), (2, 2), False),
    ("maxpool_dilated_width", (2, 5, 8, 11), (2, 5), (2, 1), (0, 2), (1, 3), False),
    ("maxpool_dilated_ceil", (2, 5, 9, 11), (2, 3), (3, 2), (1, 1), (3, 2), True),
]
AVGPOOLS = [  # name, x, kernel, stride, pad, ceil
    ("avgpool_1x5", (2, 5, 6, 9), (1, 5), (2, 1), (0, 2), False),
    ("avgpool_3x2", (2, 6, 9, 8), (3, 2), (3, 2), (0, 0), False),
    ("avgpool_5x1", (2, 3, 9, 8), (5, 1), (2, 3), (2, 0), False),
    ("avgpool_ceil", (2, 6, 9, 8), (3, 2), (2, 3), (1, 1), True),
]


def make_windows():
    out = File()
    for name, shape, channels, kernel, stride, pad, dilation, groups, bias in CONVS:
        inputs = {"x": leaf(name + "/x", *shape), "w": leaf(name + "/w", channels, shape[1] // groups, *kernel)}
        if bias:
            inputs["b"] = leaf(name + "/b", channels)
        y = F.conv2d(inputs["x"], inputs["w"], inputs.get("b"), stride, pad, dilation, groups)
        record(out, name, y, inputs, opts=np.array([*kernel, *stride, *pad, *dilation, groups]))
    for name, shape, kernel, stride, pad, dilation, ceil in MAXPOOLS:
        x = leaf(name + "/x", *shape)
        y = F.max_pool2d(x, kernel, stride, pad, dilation, ceil)
        record(out, name, y, {"x": x}, opts=np.array([*kernel, *stride, *pad, *dilation, ceil]))
    for name, shape, kernel, stride, pad, ceil in AVGPOOLS:
        x = leaf(name + "/x", *shape)
        y = F.avg_pool2d(x, kernel, stride, pad, ceil)
        record(out, name, y, {"x": x}, opts=np.array([*kernel, *stride, *pad, 1, 1, ceil]))
    return out


def rectangular():
    """The shapes after conv1: 8x8; conv2: 8x7; pool: 4x6; up: 9x8; conv3: 5x8; mean: 2x8."""
    return nn.Sequential(OrderedDict(
        conv1=nn.Conv2d(3, 6, (1, 7), padding=(0, 3)), relu1=nn.ReLU(),
        conv2=nn.Conv2d(6, 6, (3, 2), padding=(2, 1), dilation=(2, 3), groups=6), pool=nn.MaxPool2d((2, 2), (2, 1)),
        up=nn.ConvTranspose2d(6, 8, (2, 3), (2, 1), (0, 1), output_padding=(1, 0), dilation=(1, 2)), relu2=nn.ReLU(),
        conv3=nn.Conv2d(8, 4, (5, 1), (2, 1), (2, 0), groups=2), mean=nn.AvgPool2d((3, 1), (3, 1), ceil_mode=True),
        flat=nn.Flatten(), fc=nn.Linear(64, 5)))


def make_window_graphs():
    return make_graphs({"rectangular": (rectangular, F.cross_entropy)})

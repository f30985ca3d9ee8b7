"""Golden values of the layers of gated, normalised and attention networks."""
from collections import OrderedDict

import torch
from torch import nn
from torch.nn import functional as F

from golden_noise import File, noise
from golden_ops import leaf, make_graphs, record

FUNCTIONS = {
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "silu": F.silu,
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
}


def normalise(groups, x, weight, bias):
    """Group normalisation, or with 0 groups layer normalisation over the channels of each pixel."""
    if groups:
        return F.group_norm(x, groups, weight, bias)
    return F.layer_norm(x.permute(0, 2, 3, 1), x.shape[1:2], weight, bias).permute(0, 3, 1, 2)


def make_layers():
    out = File()
    for name, function in FUNCTIONS.items():
        x = (noise(name + "/x", 3, 5, 4, 6) * 6).double().requires_grad_()
        record(out, name, function(x), {"x": x})
    a, b = leaf("mul/a", 3, 5, 4, 6), leaf("mul/b", 3, 5, 4, 6)
    record(out, "mul", a * b, {"a": a, "b": b})
    for name, shape in (("softmax", (3, 7, 4, 2)), ("softmax_many", (3, 33, 2, 3))):
        x = (noise(name + "/x", *shape) * 8).double().requires_grad_()
        record(out, name, F.softmax(x, 1), {"x": x})
    a, b = leaf("concat/a", 3, 5, 4, 6), leaf("concat/b", 3, 2, 4, 6)
    record(out, "concat", torch.cat([a, b], 1), {"a": a, "b": b})
    x = leaf("global_maxpool/x", 3, 5, 4, 6)
    record(out, "global_maxpool", x.amax((2, 3)), {"x": x})
    for name, groups, shape in (("groupnorm", 3, (5, 12, 4, 3)), ("layernorm", 0, (5, 12, 4, 3))):
        inputs = {"x": leaf(name + "/x", *shape), "w": leaf(name + "/w", shape[1]), "b": leaf(name + "/b", shape[1])}
        record(out, name, normalise(groups, *inputs.values()), inputs)
    # Matrices are the last two axes of (n, heads, rows, columns); files have (n, columns, heads, rows).
    a, b = leaf("matmul/a", 3, 7, 2, 5), leaf("matmul/b", 3, 4, 2, 7)
    record(out, "matmul", (a.permute(0, 2, 3, 1) @ b.permute(0, 2, 3, 1)).permute(0, 3, 1, 2), {"a": a, "b": b})
    for i, j in ((1, 2), (1, 3), (2, 3)):
        x = leaf(f"transpose_{i}{j}/x", 3, 5, 4, 6)
        record(out, f"transpose_{i}{j}", x.permute(0, 2, 3, 1).transpose(i, j).permute(0, 3, 1, 2), {"x": x})
    x = leaf("reshape/x", 3, 6, 2, 5)
    record(out, "reshape", x.permute(0, 2, 3, 1).reshape(3, 5, 3, 4).permute(0, 3, 1, 2), {"x": x})
    return out


class Gated(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.norm = nn.Conv2d(3, 8, 3, 2), nn.GroupNorm(2, 8)
        self.value, self.gate, self.side = nn.Conv2d(8, 6, 1), nn.Conv2d(8, 6, 1), nn.Conv2d(8, 3, 1)
        self.fc = nn.Linear(18, 5)

    def forward(self, x):
        x = F.gelu(self.norm(self.conv1(x)), approximate="tanh")
        x = torch.cat([self.value(x).tanh() * self.gate(x).sigmoid(), F.silu(self.side(x))], 1)
        return self.fc(torch.cat([x.mean((2, 3)), x.amax((2, 3))], 1))


class Transformer(nn.Module):
    """One block with two heads. A bias of plain keys would have no gradient; tanh gives it one."""

    def __init__(self):
        super().__init__()
        self.patches, self.norm1 = nn.Conv2d(3, 8, 2, 2), nn.LayerNorm(8)
        self.query, self.key, self.value, self.out = (nn.Linear(8, 8) for _ in range(4))
        self.norm2, self.up, self.down, self.fc = nn.LayerNorm(8), nn.Linear(8, 12), nn.Linear(12, 8), nn.Linear(8, 5)

    def heads(self, x):
        return x.reshape(len(x), 16, 2, 4).transpose(1, 2)

    def forward(self, x):
        x = self.patches(x).flatten(2).transpose(1, 2)
        y = self.norm1(x)
        query, key, value = self.heads(self.query(y)), self.heads(self.key(y).tanh()), self.heads(self.value(y))
        y = F.softmax(query @ key.transpose(2, 3), -1) @ value
        x = x + self.out(y.transpose(1, 2).reshape(len(x), 16, 8))
        x = x + self.down(F.gelu(self.up(self.norm2(x))))
        return self.fc(x.mean(1))


def upsampled():
    return nn.Sequential(OrderedDict(
        conv1=nn.Conv2d(3, 6, 3, 2), up1=nn.ConvTranspose2d(6, 8, 3, 2, 1, output_padding=1), relu=nn.ReLU(),
        up2=nn.ConvTranspose2d(8, 4, 2, bias=False, groups=2), flat=nn.Flatten(), fc=nn.Linear(196, 5)))


LAYER_GRAPHS = {  # name: (model, loss)
    "upsampled": (upsampled, F.cross_entropy),
    "gated": (Gated, F.cross_entropy),
    "transformer": (Transformer, F.cross_entropy),
}


def make_layer_graphs():
    return make_graphs(LAYER_GRAPHS)

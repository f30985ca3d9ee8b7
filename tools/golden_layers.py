"""Golden values of the layers of gated, normalised and attention networks."""
import torch
from torch.nn import functional as F

from golden_noise import File, noise
from golden_ops import leaf, record

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
    return out

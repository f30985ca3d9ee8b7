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


def make_layers():
    out = File()
    for name, function in FUNCTIONS.items():
        x = (noise(name + "/x", 3, 5, 4, 6) * 6).double().requires_grad_()
        record(out, name, function(x), {"x": x})
    a, b = leaf("mul/a", 3, 5, 4, 6), leaf("mul/b", 3, 5, 4, 6)
    record(out, "mul", a * b, {"a": a, "b": b})
    return out

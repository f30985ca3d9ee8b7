"""Golden values of parameter groups: learning rates and weight decays of their own, and frozen parameters."""
from fnmatch import fnmatch

import numpy as np
import torch
from torch.nn import functional as F

from golden_noise import File, labels, noise, noise_state, train_step
from golden_ops import GRAPH_BATCH, Residual

FROZEN = "frozen"
GROUP_STEPS, GROUP_LR = 4, 0.05
GROUPS = {  # name: (class, arguments, [(pattern, factor of the rate or FROZEN, weight decay or None)]); later ones win
    "sgd": ("SGD", {"momentum": 0.9, "weight_decay": 0.01}, [("*", 0.1, None), ("fc.*", 1, 0.2), ("*bn?.*", 1, 0)]),
    "adam": ("Adam", {"weight_decay": 0.05}, [("fc.*", 2, None), ("*.bias", 0.5, 0)]),
    "adamw": ("AdamW", {"weight_decay": 0.1}, [("conv*", 0.25, 0.5), ("*.bias", 1, 0)]),
    "adadelta": ("Adadelta", {}, [("conv1.weight", 3, 0.1), ("bn*", 0.5, None)]),
    "rmsprop": ("RMSprop", {"momentum": 0.5, "eps": 0.01}, [("conv2.*", 0.3, 0.02)]),
    "head": ("SGD", {"momentum": 0.9, "weight_decay": 0.01}, [("*", FROZEN, None), ("fc.*", 2, None)]),
    "lowest": ("Adam", {}, [("conv1.*", FROZEN, None), ("bn1.*", FROZEN, None), ("bn2.*", 0.5, None)]),
    "middle": ("SGD", {"momentum": 0.9}, [("conv2.*", FROZEN, None), ("bn2.*", FROZEN, None)]),
    "parts": ("AdamW", {}, [("*.bias", FROZEN, None), ("conv1.*", FROZEN, None)]),
    "weights": ("SGD", {"momentum": 0.9}, [("*.weight", FROZEN, None)]),
}


def parameter_groups(model, rows):
    groups = []
    for key, parameter in model.named_parameters():
        group = {"params": [parameter]}
        for pattern, factor, decay in rows:
            if not fnmatch(key, pattern):
                continue
            group = {"params": [parameter], "lr": GROUP_LR * (1 if factor == FROZEN else factor)}
            if decay is not None:
                group["weight_decay"] = decay
            parameter.requires_grad = factor != FROZEN
        groups.append(group)
    return groups


def make_groups():
    """Losses of the steps, gradients of the last step, zero where a parameter is frozen, and the last state."""
    out = File()
    for name, (kind, arguments, rows) in GROUPS.items():
        model = noise_state(Residual()).double()
        optimizer = getattr(torch.optim, kind)(parameter_groups(model, rows), lr=GROUP_LR, **arguments)
        curve = []
        for step in range(GROUP_STEPS):
            x = noise(f"groups/x{step}", GRAPH_BATCH, 3, 8, 8).double()
            y = labels(f"groups/labels{step}", GRAPH_BATCH, 5)
            curve.append(train_step(model, optimizer, F.cross_entropy, x, y))
        out.add(f"{name}/losses", np.array(curve))
        for key, parameter in model.named_parameters():
            grad = parameter.grad if parameter.requires_grad else torch.zeros_like(parameter)
            out.add(f"{name}/grad/{key}", grad)
        for key, value in model.state_dict().items():
            out.add(f"{name}/state/{key}", value)
    return out

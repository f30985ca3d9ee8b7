"""Makes the .pth files of this folder: one checkpoint, as this PyTorch writes it.

Usage: make_pth.py FOLDER. Writes torch_VERSION.pth and torch_VERSION_legacy.pth;
test_pth.c has the list of what is in them.
"""
import collections
import pathlib
import sys

import torch

floats = torch.arange(6, dtype=torch.float32)
weight = torch.nn.Parameter(torch.arange(8, dtype=torch.float32).view(2, 1, 2, 2))
state = collections.OrderedDict()
state["module.conv.weight"] = weight
state["module.tied.weight"] = weight
state["module.base"] = floats
state["module.slice"] = floats[2:4]
state["module.transposed"] = floats.view(2, 3).t()
state["module.columns"] = torch.arange(12, dtype=torch.float64).view(3, 4)[:, 1::2]
state["module.expanded"] = torch.tensor([7], dtype=torch.int32).expand(2, 3)
state["module.channels_last"] = torch.arange(8, dtype=torch.float16).view(1, 2, 2, 2).to(
    memory_format=torch.channels_last)
state["module.bf16"] = torch.tensor([1, 2, 3], dtype=torch.bfloat16)
state["module.u8"] = torch.tensor([255, 0, 1], dtype=torch.uint8)
state["module.bn.num_batches_tracked"] = torch.tensor(12345)
state["module.empty"] = torch.zeros(0, 3)
state._metadata = collections.OrderedDict([("", {"version": 1}), ("conv", {"version": 1})])

moments = torch.ones(2, 1, 2, 2, dtype=torch.float64)
checkpoint = {
    "epoch": 3, "best": torch.tensor(0.5), "loss": [0.25, -1e300, float("inf")], "name": "héllo", "none": None,
    "flags": (True, False), "large": 1 << 70, "negative": -(1 << 40), "small": -1, "bytes": b"\0\xff",
    "set": {1, 2}, "dtype": torch.float32, "size": torch.Size([2, 3]), "mask": torch.tensor([True, False]),
    "optimizer": {"state": {0: {"step": 7, "exp_avg": moments, "exp_avg_sq": moments[0]}},
                  "param_groups": [{"lr": 0.001, "betas": (0.9, 0.999), "params": [0]}]},
    "state_dict": state,
}
checkpoint["self"] = checkpoint

folder, version = pathlib.Path(sys.argv[1]), ".".join(torch.__version__.split(".")[:2])
torch.save(checkpoint, folder / f"torch_{version}.pth")
torch.save(checkpoint, folder / f"torch_{version}_legacy.pth", _use_new_zipfile_serialization=False)

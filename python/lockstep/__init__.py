"""Lockstep in Python: networks are described, trained and evaluated by liblockstep; arrays are numpy's.

    import lockstep as lk
    graph = lk.Model("mlp", (1, 28, 28), classes=10)
    data = lk.Dataset.open("digits")
    engine = lk.Engine(graph, batch=64, optimizer="adam", seed=1)
    for batch in lk.Loader(data, batch=64, shuffle=True).epoch(0):
        print(engine.step(batch).loss)

Failures are raised as lockstep.Error. Objects are closed by close(), by `with`, or when they are not used any more.
Calls release Python's lock, so threads compute at the same time. lockstep.lib has all functions of the C headers, and
lockstep.capi their types."""
from . import capi
from .arrays import load, save, state_hash
from .data import Batch, Dataset, DatasetInfo, Loader, ShardRange, datasets
from .engine import Engine, Layout, Metrics
from .graph import Graph, Model, models
from .group import Group, Request
from .native import Error, lib
from .training import TrainResult, stop, train

__version__ = capi.VERSION
__all__ = ["Batch", "Dataset", "DatasetInfo", "Engine", "Error", "Graph", "Group", "Layout", "Loader", "Metrics", "Model",
           "Request", "ShardRange", "TrainResult", "capi", "datasets", "lib", "load", "models", "save", "state_hash", "stop",
           "train"]

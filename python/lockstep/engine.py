"""The engine: training steps, evaluations and outputs."""
import ctypes

import numpy as np

from . import capi
from .arrays import State, address, load, save, state_hash
from .data import Batch
from .native import Handle, create, lib, options, record

Metrics, _metrics = record("Metrics", capi.lk_metrics)
Layout, _layout = record("Layout", capi.lk_layout)


class Engine(Handle):
    """A compiled graph, its parameters and an optimiser. Options are those of lk_engine_opts:
    Engine(graph, batch=64, optimizer="sgd:momentum=.9", lr=.1). Only one thread at a time may call an engine.

    A batch is a Batch, as loaders give it, or what makes one: engine.step(batch), engine.step(x, y, ids=ids)."""

    def __init__(self, graph, group=None, **opts):
        made = options(capi.lk_engine_opts, {"precision": "auto", **opts, "group": group.handle if group else None})
        super().__init__(create(lib.lk_engine_create, graph.handle, ctypes.byref(made)), lib.lk_engine_destroy,
                         [group] if group else [])
        channels, height, width = graph.shape
        self._shapes = [(channels, height, width)]
        self._shapes += [(width, channels)] if height == 1 else []
        self._shapes += [(channels,)] if height == width == 1 else []

    def _batch(self, batch, y=None, **more):
        batch = batch if isinstance(batch, Batch) else Batch(batch, y, **more)
        if batch.shape is not None and batch.shape not in self._shapes:
            raise ValueError(f"samples have the shape {batch.shape}, and the model takes {self._shapes[0]} (C, H, W)")
        return batch

    def _run(self, function, batch, y, more):
        batch = self._batch(batch, y, **more)
        out = capi.lk_metrics()
        function(self.handle, ctypes.byref(batch.struct), ctypes.byref(out))
        return _metrics(out)

    def step(self, batch, y=None, **more):
        """Collective: forward, backward, sum of gradients and update. Returns the metrics of the whole batch."""
        return self._run(lib.lk_engine_step, batch, y, more)

    def eval(self, batch, y=None, **more):
        """Collective: forward in evaluation mode. Returns the metrics of the whole batch."""
        return self._run(lib.lk_engine_eval, batch, y, more)

    def forward(self, batch):
        """Collective: the scores of every sample of the whole batch, (N, floats), in evaluation mode: what the loss gets.
        batch: a Batch or an array of samples."""
        return self.outputs(batch, None)[None]

    def outputs(self, batch, *nodes):
        """Collective: values of nodes in evaluation mode, by name, each (N, floats) in PyTorch's order. The option
        `outputs` names the nodes when the engine is created; None stands for the scores."""
        batch = self._batch(batch)
        wanted, values = (capi.lk_output * len(nodes))(), {}
        for output, node in zip(wanted, nodes):
            output.node = node.encode() if node else None
            values[node] = np.empty((len(batch), lib.lk_engine_output_floats(self.handle, output.node)), np.float32)
            output.values = address(values[node])
        lib.lk_engine_forward_outputs(self.handle, ctypes.byref(batch.struct), wanted, len(nodes))
        return values

    def predict(self, batch):
        """Collective: the class with the largest score, for every sample of the whole batch."""
        return self.forward(batch).argmax(axis=1)

    def gradients(self, batch, y=None, **more):
        """Collective: a step without its update."""
        return self._run(lib.lk_engine_gradients, batch, y, more)

    def update(self):
        """Collective: updates the parameters by the gradients of the last call of gradients()."""
        lib.lk_engine_update(self.handle)

    def state(self):
        """Copies of parameters and buffers under PyTorch's names. Collective if there are several stages, as are grads,
        optimizer_state, averaged_state, save and hash."""
        return self._arrays(lib.lk_engine_state)

    def grads(self):
        """Copies of the last step's gradients."""
        return self._arrays(lib.lk_engine_grads)

    def optimizer_state(self):
        """Copies of what the optimiser keeps."""
        return self._arrays(lib.lk_engine_optimizer_state)

    def set_state(self, state):
        """Collective: replaces parameters and buffers by a dict of arrays, or by the state_dict() of a PyTorch module."""
        self._set(lib.lk_engine_set_state, state)

    def set_optimizer_state(self, state):
        """Collective: replaces the optimiser's state."""
        self._set(lib.lk_engine_set_optimizer_state, state)

    def set_grads(self, grads):
        """Collective, between gradients() and update(): replaces the gradients by a dict of arrays as grads() gives it."""
        self._set(lib.lk_engine_set_grads, grads)

    def set_group(self, pattern, **settings):
        """Collective: settings of the parameters whose keys match the pattern, "fc*.weight": lr_scale, weight_decay,
        frozen. weight_decay=lockstep.capi.LK_NO_DECAY: none."""
        made = options(capi.lk_param_group, settings)
        lib.lk_engine_set_group(self.handle, pattern.encode(), ctypes.byref(made))

    def average(self, decay):
        """Updates the exponential moving average of the weights; the first call copies the weights."""
        lib.lk_engine_average(self.handle, decay)

    def averaged_state(self):
        """Copies of the averaged parameters, and of the buffers."""
        return self._arrays(lib.lk_engine_averaged_state)

    def set_averaged_state(self, state):
        """Collective: replaces the average, or begins one."""
        self._set(lib.lk_engine_set_averaged_state, state)

    def _arrays(self, function):
        with State(create(function, self.handle)) as state:
            return state.arrays()

    def _set(self, function, state):
        with State.of(state) as made:
            function(self.handle, made.handle)

    def save(self, path):
        """Saves parameters and buffers: .safetensors, or .pth for PyTorch."""
        save(self.state(), path)

    def load(self, path):
        """Collective: replaces parameters and buffers by those of a file or a checkpoint folder."""
        self.set_state(load(path))

    @property
    def hash(self):
        """The hash of parameters and buffers, as `lockstep train` prints it in hexadecimal digits."""
        return state_hash(self.state())

    @property
    def lr(self):
        """The learning rate of later updates; all ranks must set the same."""
        return lib.lk_engine_lr(self.handle)

    @lr.setter
    def lr(self, lr):
        lib.lk_engine_set_lr(self.handle, lr)

    @property
    def steps(self):
        """The number of training steps."""
        return lib.lk_engine_steps(self.handle)

    @property
    def layout(self):
        """The position of this engine in the grid of replicas and stages."""
        return _layout(lib.lk_engine_layout(self.handle))

    @property
    def shard_range(self):
        """The share of each batch that this rank needs: an option of Loader."""
        return lib.lk_engine_shard_range(self.handle)

    def share(self, total):
        """This rank's samples of a batch of `total` samples, as a slice."""
        begin = lib.lk_shard_range_begin(self.shard_range, total)
        return slice(begin, begin + lib.lk_shard_range_count(self.shard_range, total))

    def check(self):
        """Collective: raises an Error if the replicas differ."""
        lib.lk_engine_check(self.handle)

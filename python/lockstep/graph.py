"""Graphs of layers. The builders of graph.h are methods: lk_conv2d(graph, x, "conv1", (lk_conv2d_opts){.out = 8, ...})
is graph.conv2d(x, "conv1", out=8, ...)."""
import ctypes
import inspect

from . import capi
from .native import Handle, convert, create, fields, lib, options


class Graph(Handle):
    """A network: nodes that builders add. A mistake of a builder is raised by the builder that made it."""

    def __init__(self):
        super().__init__(create(lib.lk_graph_create), lib.lk_graph_destroy)

    def check(self):
        """Raises an Error unless the graph is complete: one input, a loss as its last node, no unused node."""
        lib.lk_graph_check(self.handle)

    @property
    def shape(self):
        """(C, H, W) of a sample; None if the graph is not complete."""
        shape = lib.lk_graph_shape(self.handle)
        return (shape.channels, shape.height, shape.width) if shape.channels else None

    @property
    def parameters(self):
        """Trainable parameters, in elements."""
        return lib.lk_graph_parameters(self.handle)

    def init_all(self, policy):
        """Sets the policy of initial weights of all layers that the graph has now (see init)."""
        lib.lk_init_all(self.handle, policy.encode())


class Model(Graph):
    """A model of lockstep.models() for samples of this shape, (C, H, W) or (F,): Model("cnn:dropout=0", (1, 28, 28),
    classes=10)."""

    def __init__(self, spec, shape, classes):
        if len(shape) not in (1, 3):
            raise ValueError(f"a model takes samples (C, H, W) or (F,); this shape is {tuple(shape)}")
        channels, height, width = shape if len(shape) == 3 else (shape[0], 1, 1)
        shape = capi.lk_model_shape(channels, height, width, classes)
        Handle.__init__(self, create(lib.lk_model_build, spec.encode(), shape), lib.lk_graph_destroy)


def listed(function, *names):
    """The rows of a list of the library, as dicts."""
    rows, row = [], function(0)
    while row:
        rows.append({name: getattr(row.contents, name).decode() for name in names})
        row = function(len(rows))
    return rows


def models():
    """The named models: name, summary and params of each."""
    return listed(lib.lk_model_list, "name", "summary", "params")


def _signature(arguments, opts):
    kinds = inspect.Parameter
    # Bytes may be left out.
    defaults = [None if kind is ctypes.c_void_p else inspect.Parameter.empty for _, kind, _ in arguments]
    parameters = [kinds(name, kinds.POSITIONAL_OR_KEYWORD, default=default)
                  for (name, _, _), default in zip(arguments, defaults)]
    if opts:
        parameters += [kinds(name, kinds.KEYWORD_ONLY, default=None) for name in fields(opts)]
    return inspect.Signature([kinds("self", kinds.POSITIONAL_ONLY), *parameters])


_ARRAYS = (ctypes.POINTER(ctypes.c_float), ctypes.POINTER(capi.lk_node), ctypes.c_void_p)


def _pairs(arguments):
    """(name, type, whether the next argument of C is the length of this one, which Python does not take)."""
    found, lengths = [], set()
    for index, (name, kind) in enumerate(arguments):
        counted = kind in _ARRAYS and index + 1 < len(arguments)
        lengths.update([index + 1] if counted else [])
        if index not in lengths:
            found.append((name, kind, counted))
    return found


def array_and_length(kind, value):
    """The two arguments of C for an array: of nodes, of floats, or bytes (an object of ctypes, a bytes)."""
    if value is None:
        return None, 0
    if kind is ctypes.c_void_p:
        value = bytes(value)
        return ctypes.cast(ctypes.create_string_buffer(value, len(value)), ctypes.c_void_p), len(value)
    value = list(value)
    return (kind._type_ * len(value))(*value), len(value)


def _builder(name, arguments, comment):
    """A method that calls a builder. Options, the last argument of some builders, are its keyword arguments."""
    function = getattr(lib, name)
    last = arguments[-1][1]
    opts = last if arguments[-1][0] == "opts" and issubclass(last, ctypes.Structure) else None
    fixed = _pairs(arguments[1:-1] if opts else arguments[1:])
    signature = _signature(fixed, opts)

    def build(self, /, *given, **named):
        bound, values = signature.bind(self, *given, **named).arguments, []
        for argument, kind, counted in fixed:
            value = bound.get(argument)
            values += array_and_length(kind, value) if counted else [convert(kind, value, argument)]
        if opts:
            values.append(options(opts, {field: bound.get(field) for field in fields(opts)}))
        node = function(self.handle, *values)
        if node.index < 0:
            lib.lk_graph_check(self.handle)
        return node

    build.__name__ = build.__qualname__ = name.removeprefix("lk_")
    build.__doc__, build.__signature__ = comment, signature
    return build


for _name, (_result, _arguments, _comment) in capi.FUNCTIONS.items():
    if _result is capi.lk_node:
        setattr(Graph, _name.removeprefix("lk_"), _builder(_name, _arguments, _comment))

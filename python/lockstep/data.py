"""Data sets, batches and loaders. Arrays of samples are (N, F), (N, T, F) or (N, C, H, W), as in PyTorch."""
import ctypes
import operator

import numpy as np

from . import capi
from .arrays import address, channels_last, dtype_number, view
from .graph import listed
from .native import Error, Handle, create, lib, options, record

DatasetInfo, _info = record("DatasetInfo", capi.lk_dataset_info)
ShardRange = capi.lk_shard_range


def datasets():
    """The known data sets: name and summary of each."""
    return listed(lib.lk_dataset_list, "name", "summary")


def is_labels(y):
    return np.asarray(y).dtype.kind in "iu"


def as_labels(y):
    """Whole numbers as int32."""
    y = np.asarray(y)
    if y.ndim != 1:
        raise ValueError(f"labels are (N); this array has the shape {y.shape}")
    return _whole(y)


def as_targets(y, count):
    """Float targets as (N, floats) f32. Targets of images are (N, C, H, W), as the samples."""
    y = np.asarray(y)
    return channels_last(y if y.ndim > 1 else y.reshape(-1, 1)).reshape(count, -1)


def _of_shape(array, shape, what):
    """The array, which numpy would repeat if it were smaller than the memory."""
    if np.shape(array) != shape:
        raise ValueError(f"{what} has the shape {np.shape(array)}, not {shape}")
    return array


def _whole(array):
    if array.size and (array.max() > np.iinfo(np.int32).max or array.min() < np.iinfo(np.int32).min):
        raise OverflowError("whole numbers must fit in 32 bits")
    return np.ascontiguousarray(array, np.int32)


def _samples(x):
    """An array with one of the types that data sets have: f32, u8 or i32."""
    x = np.asarray(x)
    if x.dtype == np.uint8:
        return np.ascontiguousarray(x)
    if x.dtype.kind == "f":
        return np.ascontiguousarray(x, np.float32)
    if x.dtype.kind in "iu":
        return _whole(x)
    raise TypeError(f"samples of {x.dtype} are not possible; float32, uint8 and int32 are")


def _check_count(x, y):
    if len(x) != len(y):
        raise ValueError(f"there are {len(x)} samples and {len(y)} targets")


class Dataset(Handle):
    """Samples and their targets. Made by open, from_arrays, from_function or subset."""

    def __init__(self, handle, parents=(), keep=()):
        super().__init__(handle, lib.lk_dataset_destroy, parents, keep)
        self.info = _info(lib.lk_dataset_get_info(handle).contents)
        mean, std = (view(at, (self.info.channels,)).copy() for at in (self.info.mean, self.info.std))
        self.info = self.info._replace(mean=mean, std=std)

    @classmethod
    def open(cls, name, folder=None, split="train"):
        """A data set of datasets(), or a folder of images; lk_dataset_open says where it is searched."""
        folder = str(folder).encode() if folder else None
        return cls(create(lib.lk_dataset_open, str(name).encode(), folder, capi.lk_split.of(split)))

    @classmethod
    def from_arrays(cls, x, y, classes=None, **opts):
        """Samples x and their targets y in memory; the arrays are copied only to change type or order. Whole numbers in y
        are labels below `classes` (default: the largest label + 1). Floats in y are targets (N, floats), or, with
        `classes`, a probability for each class. Other options are those of lk_dataset_opts: order="hwc" for
        (N, H, W, C), mean, std, name, augment, split."""
        x = _samples(x)
        _check_count(x, y)
        if is_labels(y):
            y = as_labels(y)
            opts["classes"] = classes or int(y.max(initial=0)) + 1
        else:
            y = as_targets(y, len(x))
            opts.update(classes=classes, targets=y.shape[1])
        made, kept = _options(len(x), x.shape[1:], dtype_number(x), opts)
        return cls(create(lib.lk_dataset_from_memory, ctypes.byref(made), address(x), address(y)), keep=(x, y, *kept))

    @classmethod
    def from_function(cls, read, count, shape, dtype=np.float32, classes=None, targets=None, **opts):
        """Samples that read(index) returns, as a pair: an array of this shape and dtype, and a label or `targets`
        floats. Loaders call read in several threads, for any index, as often as they like."""
        dtype, shape = np.dtype(dtype), tuple(shape)

        def fill(_, index, sample, target):
            try:
                x, y = read(index)
                view(sample, shape, dtype)[...] = _of_shape(x, shape, "the sample")
                if targets:
                    view(target, (targets,))[...] = _of_shape(np.ravel(y), (targets,), "the target")
                else:
                    view(target, (), np.int32)[...] = _whole(np.asarray(operator.index(np.asarray(y).item())))
                return 0
            except Exception as error:  # It would be lost: C calls this function.
                status = error.status if isinstance(error, Error) else "IO"
                text = f"{type(error).__name__}: {error}".encode()
                return lib.lk_fail(capi.lk_status.of(status), b"%s", ctypes.c_char_p(text))

        opts.update(classes=classes, targets=targets)
        made, kept = _options(count, shape, dtype_number(np.empty(0, dtype)), opts)
        function = capi.lk_dataset_read_fn(fill)
        return cls(create(lib.lk_dataset_create, ctypes.byref(made), function, None), keep=(function, *kept))

    def subset(self, indices, split="train"):
        """The samples of these indices, in their order."""
        indices = np.ascontiguousarray(indices, np.uintp)
        handle = create(lib.lk_dataset_subset, self.handle, address(indices), indices.size, capi.lk_split.of(split))
        return type(self)(handle, [self])

    def __len__(self):
        return self.info.count

    def __getitem__(self, index):
        """A sample (C, H, W) and its target: a label, or an array of floats."""
        if not 0 <= index < len(self):
            raise IndexError(index)
        info = self.info
        shape = (info.channels, info.height, info.width)
        shape = shape if info.order == "chw" else (*shape[1:], shape[0])
        x = np.empty(shape, np.uint8 if info.dtype == "u8" else np.float32)
        y = np.empty(info.targets or 1, np.float32 if info.targets else np.int32)
        lib.lk_dataset_get(self.handle, index, address(x), address(y))
        return (x if info.order == "chw" else x.transpose(2, 0, 1)), (y if info.targets else int(y[0]))


def _options(count, shape, dtype, opts):
    """An lk_dataset_opts, and the arrays that it points to."""
    if not 1 <= len(shape) <= capi.LK_SAMPLE_DIMS:
        raise ValueError(f"samples have 1 to {capi.LK_SAMPLE_DIMS} dimensions; these have the shape {tuple(shape)}")
    kept = {key: np.ascontiguousarray(opts[key], np.float32) for key in ("mean", "std") if opts.get(key) is not None}
    channels = shape[-1] if len(shape) < 3 or str(opts.get("order")).lower() == "hwc" else shape[0]
    for key, array in kept.items():
        if array.shape != (channels,):
            raise ValueError(f"{key} has the shape {array.shape}, and the samples have {channels} channels")
    opts = {**opts, **{key: address(array) for key, array in kept.items()}}
    made = options(capi.lk_dataset_opts, {**opts, "count": count, "dtype": dtype})
    made.dims[: len(shape)] = shape
    return made, kept.values()


class Batch:
    """Samples and their labels or targets: of arrays, or of a loader."""

    def __init__(self, x, y=None, ids=None, total=0, weights=None):
        """x: (N, F), (N, T, F) or (N, C, H, W). y: labels (N), or float targets, or None for a forward pass. ids: the
        index of each sample in its data set, of which random numbers are a function; default 0 to N - 1. total: the
        samples of the whole batch, if x is this rank's share of it. weights: of each sample in the loss, (N) floats."""
        self.shape = np.shape(x)[1:]
        x = channels_last(x)
        count = len(x)
        labels = targets = None
        if y is not None:
            _check_count(x, y)
            labels, targets = (as_labels(y), None) if is_labels(y) else (None, as_targets(y, count))
        ids = np.arange(count, dtype=np.uint32) if ids is None else np.ascontiguousarray(ids, np.uint32)
        _check_count(x, ids)
        if weights is not None:
            weights = _of_shape(np.ascontiguousarray(weights, np.float32), (count,), "weights")
        self._kept = x, labels, targets, ids, weights
        self._loader = None
        self._struct = capi.lk_batch(count=count, sample_floats=int(np.prod(x.shape[1:])), x=address(x),
                                     labels=address(labels), targets=address(targets), ids=address(ids), total=total,
                                     target_floats=0 if targets is None else targets.shape[1],
                                     weights=address(weights))

    @classmethod
    def _of_loader(cls, loader, struct):
        batch = cls.__new__(cls)
        batch.shape = None
        batch._loader, batch._turn, batch._struct = loader, loader._turn, struct
        return batch

    @property
    def struct(self):
        """The lk_batch, for functions of lockstep.lib."""
        if self._loader is not None and self._turn != self._loader._turn:
            raise ValueError("this batch is gone: its loader was asked for another one")
        return self._struct

    def __len__(self):
        """The samples of the whole batch."""
        return self.struct.total or self.struct.count

    def _copy(self, pointer, shape, dtype):
        return view(pointer, (self.struct.count, *shape), dtype).copy() if pointer else None

    @property
    def x(self):
        """A copy of the samples, (N, C, H, W); None if the loader loads labels only."""
        if self._loader is None:
            x = self._kept[0]
            return x.transpose(0, 3, 1, 2) if x.ndim == 4 else x
        channels, height, width = self._loader.shape
        x = self._copy(self.struct.x, (height, width, channels), np.float32)
        return x if x is None else x.transpose(0, 3, 1, 2)

    @property
    def labels(self):
        """A copy of the labels (N), or None."""
        return self._copy(self.struct.labels, (), np.int32)

    @property
    def targets(self):
        """A copy of the float targets (N, floats), or None."""
        return self._copy(self.struct.targets, (self.struct.target_floats,), np.float32)

    @property
    def ids(self):
        """A copy of the samples' indices in their data set (N), or None."""
        return self._copy(self.struct.ids, (), np.uint32)


class Loader(Handle):
    """Makes batches of a data set. Options are those of lk_loader_opts: Loader(data, batch=64, shuffle=True, seed=1).
    share=engine.shard_range loads only what the engine of this rank needs."""

    def __init__(self, data, **opts):
        made = options(capi.lk_loader_opts, opts)
        super().__init__(create(lib.lk_loader_create, data.handle, ctypes.byref(made)), lib.lk_loader_destroy, [data])
        shape = capi.lk_sample_shape()
        lib.lk_augmented_shape(data.handle, made.augment, ctypes.byref(shape))
        self.shape = shape.channels, shape.height, shape.width
        self._turn = 0

    def __len__(self):
        """The batches of an epoch."""
        return lib.lk_loader_batches(self.handle)

    def epoch(self, epoch=0, first_batch=0):
        """The batches of an epoch, one after the other. A batch can be used until the next one is asked for."""
        lib.lk_loader_start(self.handle, epoch, first_batch)
        self._turn += 1
        return self._batches(self._turn)

    def _batches(self, turn):
        while turn == self._turn:
            out = ctypes.c_void_p()
            lib.lk_loader_next(self.handle, ctypes.byref(out))
            turn = self._turn = self._turn + 1
            if not out.value:
                return
            yield Batch._of_loader(self, capi.lk_batch.from_address(out.value))
        raise ValueError("another epoch of this loader was started")

"""numpy arrays as memory of the library, and states as dicts of arrays."""
import ctypes

import numpy as np

from . import capi
from .native import Handle, create, lib

_DTYPES = {"F32": np.float32, "F64": np.float64, "F16": np.float16, "I64": np.int64, "I32": np.int32, "U8": np.uint8}
_NUMBERS = {np.dtype(kind): capi.lk_dtype.values[word] for word, kind in _DTYPES.items()}
_KINDS = {number: dtype for dtype, number in _NUMBERS.items()}


def dtype_number(array):
    """The lk_dtype of an array."""
    if array.dtype not in _NUMBERS:
        raise TypeError(f"arrays of {array.dtype} are not possible; {', '.join(str(kind) for kind in _NUMBERS)} are")
    return _NUMBERS[array.dtype]


def address(array):
    return array.ctypes.data if array is not None else None


def view(pointer, shape, dtype=np.float32):
    """An array on memory of the library."""
    count = int(np.prod(shape, dtype=np.int64))
    size = count * np.dtype(dtype).itemsize
    if size == 0:
        return np.empty(shape, dtype)
    return np.frombuffer((ctypes.c_char * size).from_address(pointer), dtype, count).reshape(shape)


def channels_last(x):
    """Samples (N, C, H, W) as (N, H, W, C), (N, T, F) and (N, F) as they are; contiguous, f32."""
    x = np.asarray(x)
    if not 2 <= x.ndim <= 4:
        raise ValueError(f"samples are (N, F), (N, T, F) or (N, C, H, W); this array has the shape {x.shape}")
    if x.dtype.kind not in "fiu" or x.dtype == np.uint8:
        raise TypeError(f"samples of {x.dtype} are not possible here: give floats. A data set of uint8 divides by 255 and "
                        "uses mean and std; an array must have been prepared in the same way")
    return np.ascontiguousarray(x.transpose(0, 2, 3, 1) if x.ndim == 4 else x, dtype=np.float32)


class State(Handle):
    """An lk_state."""

    def __init__(self, handle=None):
        super().__init__(handle or create(lib.lk_state_create), lib.lk_state_destroy)

    @classmethod
    def of(cls, arrays):
        """The state with the entries of a dict."""
        state = cls()
        for name, array in arrays.items():
            array = np.asarray(array, order="C")
            dims = (ctypes.c_size_t * array.ndim)(*array.shape)
            entry = create(lib.lk_state_add, state.handle, name.encode(), dtype_number(array), array.ndim,
                           ctypes.addressof(dims))
            data = capi.lk_state_entry.from_address(entry).data
            view(data, array.shape, array.dtype)[...] = array
        return state

    def arrays(self):
        """Copies of the entries. bf16 becomes float32, with the same values: numpy has no bf16."""
        found = {}
        for index in range(lib.lk_state_count(self.handle)):
            entry = lib.lk_state_at(self.handle, index).contents
            name, shape = ctypes.string_at(entry.name).decode(), entry.dims[: entry.ndim]
            if entry.dtype.value == capi.lk_dtype.values["BF16"]:
                words = view(entry.data, shape, np.uint16)
                found[name] = (words.astype(np.uint32) << 16).view(np.float32)
            else:
                found[name] = view(entry.data, shape, _KINDS[entry.dtype.value]).copy()
        return found


def save(state, path):
    """Saves a dict of arrays; the ending of path selects the format: .safetensors, or .pth for PyTorch."""
    with State.of(state) as made:
        lib.lk_state_save(made.handle, str(path).encode())


def load(path):
    """The arrays of a file of safetensors or torch.save, or of a checkpoint folder."""
    with State(create(lib.lk_state_load, str(path).encode())) as state:
        return state.arrays()


def state_hash(state):
    """The hash of names, types, shapes and bytes, as `lockstep train` prints it."""
    with State.of(state) as made:
        return lib.lk_state_hash(made.handle)

"""The shared library: found, checked and called. Failures are exceptions; handles are destroyed in the right order."""
import collections
import ctypes
import operator
import os
import weakref

from . import capi
from .enums import Enum

SONAME = "liblockstep.so.0"


class Error(Exception):
    """A failure of the library. `status` is the name of its status ("USAGE", "NOT_FOUND", ...), `detail` the sentence
    that says what failed, where, and what to do."""

    def __init__(self, status, detail):
        super().__init__(detail)
        self.status, self.detail = status, detail


def _open():
    """$LOCKSTEP_LIBRARY, else the library next to this package, else the one that the dynamic linker finds."""
    beside = os.path.join(os.path.dirname(os.path.abspath(__file__)), SONAME)
    path = os.environ.get("LOCKSTEP_LIBRARY") or (beside if os.path.exists(beside) else SONAME)
    try:
        return ctypes.CDLL(path), path
    except OSError as error:
        raise ImportError(f"{error}; install Lockstep, or set LOCKSTEP_LIBRARY to the path of {SONAME}") from None


def _check_version(library, path):
    """Before 1.0 a minor version may change names, so major and minor version must be equal."""
    library.lk_version.restype = ctypes.c_char_p
    version = library.lk_version().decode()
    if version.split(".")[:2] != capi.VERSION.split(".")[:2]:
        raise ImportError(f"{path} is Lockstep {version}, and this package is for {capi.VERSION}; install the package of "
                          "the same version, or set LOCKSTEP_LIBRARY to another library")


def _declare(library, path):
    for name, (result, arguments, comment) in capi.FUNCTIONS.items():
        try:
            function = getattr(library, name)
        except AttributeError:
            raise ImportError(f"{path} has no {name}: it is older than this package") from None
        function.argtypes = [kind for _, kind in arguments]
        function.restype = ctypes.c_int if result is capi.lk_status else result
        function.__doc__ = comment
        if result is capi.lk_status and name != "lk_fail":
            function.errcheck = _raise


def _raise(status, function, arguments):
    # The detail belongs to the thread that has made the call.
    if status:
        raise Error(capi.lk_status.word(status).upper(), lib.lk_error_detail().decode(errors="replace"))
    return status


lib, _path = _open()
_check_version(lib, _path)
_declare(lib, _path)


def convert(kind, value, name):
    """A Python value as one of the C type `kind`. ctypes itself would cut numbers that are too large."""
    if isinstance(value, (str, os.PathLike)) and kind is ctypes.c_char_p:
        return str(value).encode()
    if issubclass(kind, Enum):
        return kind.of(value)
    if hasattr(value, "__index__") and issubclass(kind, ctypes._SimpleCData):
        value = operator.index(value)
        if kind(value).value != value:
            raise OverflowError(f"{name}: {value} is not possible here")
    if callable(value) and issubclass(kind, ctypes._CFuncPtr) and not isinstance(value, kind):
        return kind(value)
    return value


def fields(struct):
    """The members of a struct that programs use."""
    return {name: kind for name, kind, *_ in struct._fields_ if name != "reserved"}


def options(struct, values):
    """A struct of options; `values` has some of its fields by name. The struct keeps texts and functions alive."""
    known, filled = fields(struct), struct()
    for name, value in values.items():
        if name not in known:
            raise TypeError(f"there is no option {name!r}; there are {', '.join(known)}")
        try:
            if value is not None:
                setattr(filled, name, convert(known[name], value, name))
        except TypeError as error:
            raise TypeError(f"option {name!r} is of type {type(value).__name__}: {error}") from None
    return filled


def _value(value):
    if isinstance(value, bytes):
        return value.decode()
    return type(value).word(value.value) if isinstance(value, Enum) else value


def record(name, struct):
    """A function that makes a named tuple of the members of a struct."""
    kind = collections.namedtuple(name, fields(struct))
    return kind, lambda given: kind(*(_value(getattr(given, field)) for field in kind._fields))


class Handle:
    """An object of the library. It is destroyed by close(), at the end of a `with` block, or when it is not used any
    more. `parents` must outlive it: closing a parent closes it first. `keep` is kept until it is destroyed."""

    def __init__(self, handle, destroy, parents=(), keep=()):
        self._handle = handle
        self._children = weakref.WeakSet()
        # At the end of the program, finalizers run in the reverse order of their creation.
        self._finalizer = weakref.finalize(self, Handle._destroy, destroy, handle, (*parents, *keep))
        for parent in parents:
            parent._children.add(self)

    @staticmethod
    def _destroy(destroy, handle, kept):
        destroy(handle)
        del kept

    @property
    def handle(self):
        """The pointer, for functions of lockstep.lib."""
        if not self._finalizer.alive:
            raise ValueError(f"this {type(self).__name__} is closed")
        return self._handle

    def close(self):
        for child in list(self._children):
            child.close()
        self._finalizer()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def create(function, *arguments):
    """Calls a function whose last argument is a pointer to a handle, and returns the handle."""
    out = ctypes.c_void_p()
    function(*arguments, ctypes.byref(out))
    return out.value

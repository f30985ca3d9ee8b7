"""Groups of ranks and their collective calls, in place on numpy arrays."""
import ctypes

import numpy as np

from . import capi
from .arrays import address, dtype_number
from .native import Handle, create, lib, options


def buffer(array, written=True):
    """An lk_buffer on the memory of an array."""
    if not isinstance(array, np.ndarray):
        raise TypeError(f"a numpy array is needed, not {type(array).__name__}")
    if not array.flags.c_contiguous or (written and not array.flags.writeable):
        raise ValueError("the array must be contiguous and writable: the call works in its memory")
    return capi.lk_buffer(address(array), array.size, dtype_number(array))


def _counts(counts, size):
    if counts is None:
        return None
    if len(counts) != size:
        raise ValueError(f"{len(counts)} counts are given for {size} ranks")
    return (ctypes.c_size_t * size)(*counts)


class Request:
    """A call under way. Its arrays must not be touched before wait() has returned or test() is true; until then the
    group keeps them alive."""

    def __init__(self, group, request, result, kept):
        self._group, self._request, self._result, self._failed = group, request, result, False
        group._under_way[request] = kept

    def _done(self):
        """Whether the call has ended; raises if it has failed."""
        if self._failed:
            raise ValueError("this request has failed")
        return self._request is None

    def _pointer(self):
        return self._group.handle and self._request

    def _finish(self, failed):
        self._group._under_way.pop(self._request, None)
        self._request, self._failed = None, failed

    def wait(self):
        """Blocks until the call is done; returns its result."""
        if self._done():
            return self._result
        pointer = self._pointer()
        try:
            lib.lk_request_wait(pointer)
        except BaseException:
            self._finish(failed=True)
            raise
        self._finish(failed=False)
        return self._result

    def test(self):
        """Whether the call is done; wait() then returns its result at once."""
        if self._done():
            return True
        pointer, done = self._pointer(), ctypes.c_bool()
        try:
            lib.lk_request_test(pointer, ctypes.byref(done))
        except Exception:
            self._finish(failed=True)
            raise
        if done.value:
            self._finish(failed=False)
        return done.value


class Group(Handle):
    """Ranks that make the same collective calls in the same order. Made by join, threads or split. Every call takes
    wait=False: it then returns a Request at once. Only one thread at a time may use a group."""

    def __init__(self, handle, parents=(), keep=()):
        self._under_way = {}
        super().__init__(handle, lib.lk_group_destroy, parents, (self._under_way, *keep))
        self.rank, self.size = lib.lk_group_rank(handle), lib.lk_group_size(handle)
        self.local_rank, self.local_size = lib.lk_group_local_rank(handle), lib.lk_group_local_size(handle)
        self.transport, self.timeout = lib.lk_group_transport(handle).decode(), lib.lk_group_timeout(handle)

    @staticmethod
    def launched():
        """Whether a launcher has started this process as a rank, as `lockstep run`, torchrun, mpirun and srun do: join()
        then finds the others."""
        return lib.lk_group_launched()

    @classmethod
    def join(cls, **opts):
        """Joins the job: that of `lockstep run`, torchrun, mpirun or srun, or the one that the options of lk_group_opts
        name. notice(text) gets sentences for the user during a wait."""
        made = cls._options(opts)
        return cls(create(lib.lk_group_join, ctypes.byref(made)), keep=[made])

    @classmethod
    def threads(cls, count, **opts):
        """A group whose ranks are threads of this process: a list with one Group for each of them."""
        made, out = cls._options(opts), (ctypes.c_void_p * count)()
        lib.lk_group_create_threads(count, ctypes.byref(made), out)
        return [cls(handle, keep=[made]) for handle in out]

    @staticmethod
    def _options(opts):
        notice = opts.get("notice")
        if notice:
            opts = {**opts, "notice": lambda _, text: notice(text.decode())}
        return options(capi.lk_group_opts, opts)

    def split(self, colour, key=0):
        """Collective: the group of the ranks with this colour; None if colour < 0."""
        handle = create(lib.lk_group_split, self.handle, colour, key)
        return Group(handle, [self]) if handle else None

    def host(self, rank):
        """The name of a rank's host."""
        return lib.lk_group_host(self.handle, rank).decode()

    def abort(self, reason):
        """Aborts the job for all ranks."""
        lib.lk_group_abort(self.handle, reason.encode())

    def _call(self, function, arguments, result, kept, wait):
        if wait:
            function(self.handle, *arguments, None)
            return result
        return Request(self, create(function, self.handle, *arguments), result, kept)

    def allreduce(self, array, op="sum", wait=True):
        """Combines the arrays of all ranks in place: "sum", "mean", "min", "max", "product"."""
        return self._call(lib.lk_allreduce, (buffer(array), capi.lk_reduction.of(op)), array, array, wait)

    def reduce(self, array, root=0, op="sum", wait=True):
        """As allreduce, but only root gets the result."""
        return self._call(lib.lk_reduce, (buffer(array), capi.lk_reduction.of(op), root), array, array, wait)

    def broadcast(self, array, root=0, wait=True):
        """Copies root's array to all ranks, in place."""
        return self._call(lib.lk_broadcast, (buffer(array), root), array, array, wait)

    def allgather(self, array, counts=None, wait=True):
        """The arrays of all ranks: (size, ...), or with counts, the elements of each rank, one after the other."""
        mine, counts = buffer(array, written=False), _counts(counts, self.size)
        shape = (sum(counts),) if counts else (self.size, *array.shape)
        out = np.empty(shape, array.dtype)
        return self._call(lib.lk_allgather, (mine, counts, address(out)), out, (array, out), wait)

    def gather(self, array, counts=None, root=0, wait=True):
        """As allgather, but only root gets the result; other ranks get None."""
        mine, counts = buffer(array, written=False), _counts(counts, self.size)
        shape = (sum(counts),) if counts else (self.size, *array.shape)
        out = np.empty(shape, array.dtype) if self.rank == root else None
        return self._call(lib.lk_gather, (mine, counts, address(out), root), out, (array, out), wait)

    def scatter(self, array, mine, counts=None, root=0, wait=True):
        """Divides root's array among the ranks: each gets its elements in `mine`. Other ranks give None as array."""
        whole = None
        if self.rank == root:
            whole = buffer(array, written=False)
            wanted = sum(counts) if counts else mine.size * self.size
            if array.size != wanted or array.dtype != mine.dtype:
                raise ValueError(f"the array has {array.size} elements of {array.dtype}, not {wanted} of {mine.dtype}")
        given = (whole.at if whole else None, _counts(counts, self.size), buffer(mine), root)
        return self._call(lib.lk_scatter, given, mine, (array, mine), wait)

    def barrier(self, wait=True):
        """Is done when every rank has made the call."""
        return self._call(lib.lk_barrier, (), None, None, wait)

    def send(self, array, to, wait=True):
        """Sends an array to one rank."""
        return self._call(lib.lk_send, (buffer(array, written=False), to), array, array, wait)

    def recv(self, array, source, wait=True):
        """Receives into an array from one rank."""
        return self._call(lib.lk_recv, (buffer(array), source), array, array, wait)

    def sendrecv(self, out, to, array, source):
        """Sends `out` to one rank while it receives `array` from another one. Blocks until both are done."""
        lib.lk_sendrecv(self.handle, buffer(out, written=False), to, buffer(array), source)
        return array

"""The training loop of the library: epochs, evaluations, checkpoints and resuming in one call."""
import ctypes
import signal
import threading

from . import capi
from .native import Handle, lib, options, record

TrainResult, _result = record("TrainResult", capi.lk_train_result)
_EVENTS = {"start": capi.lk_train_start, "before_step": capi.lk_train_next, "step": capi.lk_train_step,
           "epoch": capi.lk_train_epoch, "test": capi.lk_train_test, "saved": capi.lk_train_saved}


class _Calls:
    """Event functions in Python for a run. An exception in one of them ends the run, and train() raises it again."""

    def __init__(self, functions):
        self.failure = None
        self.told = False  # The library knows of the failure.
        # An event that comes soon after a signal, in which the run can be ended.
        functions = {"step": lambda _: None, **functions}
        known = [*_EVENTS, "notice"]
        for name in functions:
            if name not in known:
                raise TypeError(f"there is no event {name!r}; there are {', '.join(known)}")
        self.struct = options(capi.lk_train_events, {name: self._call(name, function)
                                                     for name, function in functions.items()})

    def _call(self, name, function):
        def call(_, pointer):
            try:
                if not self.failure:
                    function(pointer.decode() if name == "notice" else _EVENTS[name].from_address(pointer))
            except BaseException as error:  # It would be lost: C calls this function.
                self.failure = error
            if self.failure and not self.told and name != "notice":
                self.told = True
                text = ctypes.c_char_p(f"{name}: {type(self.failure).__name__}: {self.failure}".encode())
                run = _EVENTS[name].from_address(pointer).run
                lib.lk_train_fail(run, lib.lk_fail(capi.lk_status.of("usage"), b"%s", text))
        return call

    def interrupt(self, *_):
        """The handler of SIGINT: the next event ends the run."""
        self.failure = self.failure or KeyboardInterrupt()


def train(events=None, **opts):
    """Trains as `lockstep train` does, and blocks until the run ends: train(graph=graph, train=data, test=other, epochs=3,
    checkpoint="run", resume="auto"). Options are those of lk_train_opts; graph, data sets and group are objects of this
    package. events: functions by name (start, before_step, step, epoch, test, saved, notice) that get the struct of their
    event, with numbers like event.metrics.loss; lockstep.stop(event) ends the run after this step."""
    given = {name: value.handle if isinstance(value, Handle) else value for name, value in opts.items()}
    given.setdefault("precision", "auto")
    made, calls, out = options(capi.lk_train_opts, given), _Calls(events or {}), capi.lk_train_result()
    main = threading.current_thread() is threading.main_thread()
    before = signal.signal(signal.SIGINT, calls.interrupt) if main else None
    try:
        lib.lk_train(ctypes.byref(made), ctypes.byref(calls.struct), ctypes.byref(out))
    except Exception:
        if not calls.failure:
            raise
    finally:
        if main:
            # None: the handler was not installed from Python, which cannot install it again.
            signal.signal(signal.SIGINT, signal.SIG_DFL if before is None else before)
    if calls.failure:
        raise calls.failure
    return _result(out)


def stop(event):
    """Ends the run of an event at all ranks; a checkpoint is saved if the run has a folder for them."""
    lib.lk_train_stop(event.run)

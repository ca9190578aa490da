"""A signal's handler may use the library: read arrays, save parameters, train a step.

    signal.signal(signal.SIGTERM, lambda *_: net.save_parameters("last.params"))

CPython runs a handler on the main thread between any two instructions, so also where the library is
in the middle of a change: the engine holds its lock, an operation runs on this thread, half of the
weights are updated. There a handler could not wait, or would save half a step. So importing the
library replaces what is below `signal.signal`: each handler is called by `run_between_steps`, which

  - calls it at once where the library is not in the middle of something;
  - takes the thread out of the queue first if the thread is blocked in a wait for a Var: the
    handler may write that very Var. Then the wait goes on, as if it had begun after the handler;
  - elsewhere notes the signal. The next push or wait calls the handler, and if there is none soon,
    a thread raises the signal again. A function that does not end is interrupted after PATIENCE_S.

Python's own handler of Ctrl-C is called directly: the library is made for that (`signals`). Nothing
here costs anything before a signal comes. A lock or a mask around each change of the engine would
cost every operation.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import _thread
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from types import FrameType
from typing import Any

from d2lmini.base import forks, instrument
from d2lmini.base.forks import living
from d2lmini.engine import signals
from d2lmini.engine.core import WaitRequest
from d2lmini.engine.engine import Engine
from d2lmini.engine.scheduler import Scheduler, thread_state

#: Longest delay of a handler.
PATIENCE_S = 5.0

#: Functions that read or change several things which belong together, by module.
WHOLE = {
    "autograd.backward_pass": ("backward", "grad"),
    "engine.stepped_engine": ("_step",),
    "engine.threaded": ("_run_ready",),
    "engine.engine": ("_release_wait", "_run_ready"),
    "gluon.block": ("initialize", "cast", "save_parameters", "load_parameters"),
    "gluon.checkpoint": ("save", "restore"),
    "gluon.parameter_dict": ("initialize", "reset_ctx", "save", "load_dict"),
    "gluon.trainer": ("step", "update", "allreduce_grads", "save_states", "load_states"),
    "optimizer.updater": ("__call__",),
}

_since: dict[int, float] = {}  # by signal that is to be raised again: when it came first


class _Handler(partial):
    """What Python calls instead of a handler, which is `args[0]`."""


def run_between_steps(handler: Callable[[int, Any], object], number: int, frame: Any) -> None:
    """Call the handler of signal `number`, now or later (see the module's first page)."""
    request = thread_state.task
    first = _since.get(number, time.monotonic())
    if _is_busy(request) and time.monotonic() - first < PATIENCE_S:
        _try_again(number)
        return
    if _since.pop(number, None) and not (_since or signals.noted):
        instrument.keep_apart(False)
    for engine in living(Engine.alive):
        if request in engine.wait_requests and request.waits:
            engine.step_aside(request, lambda: handler(number, frame))
            return
    handler(number, frame)


def _is_busy(request: Any) -> bool:
    """True if the main thread is in the middle of something; `request` is its task or its wait."""
    locks = [*signals.locks, *([recorder.lock] if (recorder := Scheduler.recorder) else ())]
    blocked = isinstance(request, WaitRequest) and request.waits
    return (
        any(lock._is_owned() for lock in locks)
        or forks.is_guarded()
        or (request is not None and not blocked)
        or _is_within_whole(sys._getframe(2))
    )


def _is_within_whole(frame: FrameType | None) -> bool:
    while frame is not None:
        module = str(frame.f_globals.get("__name__")).removeprefix("d2lmini.")
        if frame.f_code.co_name in WHOLE.get(module, ()):
            return True
        frame = frame.f_back
    return False


def _try_again(number: int) -> None:
    signals.noted[number] = True
    if not instrument.apart:
        instrument.keep_apart(True)  # the fast paths do not look for noted signals
    if number not in _since:
        _since[number] = time.monotonic()
        with suppress(RuntimeError):  # no more threads: the next push or wait calls the handler
            _thread.start_new_thread(_raise_again, (number,))


def _raise_again(number: int) -> None:
    while number in _since:
        time.sleep(1e-3)
        if signals.noted.pop(number, False):
            _thread.interrupt_main(number)  # type: ignore[arg-type]


def _wrap(handler: Any) -> Any:
    plain = not callable(handler) or handler is _signal.default_int_handler
    # asyncio's handler does nothing; asyncio counts what arrives at its file descriptor.
    if plain or getattr(handler, "__module__", None) == "asyncio.unix_events":
        return handler
    return _Handler(run_between_steps, handler)


def _unwrap(handler: Any) -> Any:
    return handler.args[0] if isinstance(handler, _Handler) else handler


def _set(number: int, handler: Any) -> Any:
    _since.pop(number, None)
    return _unwrap(signals.set_handler(number, _wrap(handler)))


def _get(number: int) -> Any:
    return _unwrap(signals.get_handler(number))


if threading.current_thread() is threading.main_thread():
    for _number in _signal.valid_signals():
        if _wrap(_found := signals.get_handler(_number)) is not _found:
            _set(_number, _found)
# `signal.signal` and `signal.getsignal` look these up, wherever a program has them from.
_signal.signal, _signal.getsignal = _set, _get
forks.at_fork(after_in_child=_since.clear)

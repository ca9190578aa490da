"""Ctrl-C waits while an operation changes memory in place, and is never lost. (`handlers`: handlers
that use the library.)

CPython runs a signal's handler on the main thread between any two instructions. An exception
raised there in the middle of an update leaves some weights updated and others not. So while such
an operation runs on the caller's thread, the engine holds the signals: it replaces their handlers
by one that only notes the signal, and calls the original handlers when the operation has ended.
Workers need none of this, because signals never interrupt them. Nor do operations that change
memory by one call of NumPy: the call happened or it did not. To hold and to release takes 1.5 us.

Python also swallows exceptions raised in a finalizer (`__del__`, a weakref's callback): an
interrupt that arrives there is raised at the next push or wait instead (`instrument.apart` sends
the fast paths there).
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import sys
import threading
from typing import Any

from d2lmini.base import forks, instrument, scopes
from d2lmini.engine import core

#: The signals that end a computation; those that have a handler in Python are held.
ENDING = tuple(
    int(getattr(_signal, name))
    for name in ("SIGINT", "SIGTERM", "SIGALRM", "SIGHUP", "SIGUSR1", "SIGUSR2", "SIGBREAK")
    if hasattr(_signal, name)
)

#: Signals that arrived while they were held, or in a finalizer; their handlers are still to run.
noted: dict[int, bool] = {}

Held = list[tuple[int, Any]]

#: Locks under which no handler that may use the library runs.
locks: list[Any] = [core.lock]

_now: Held = []  # what is held now

_main = threading.main_thread().ident
#: The interpreter's own functions (`handlers` replaces them).
get_handler, set_handler = _signal.getsignal, _signal.signal
_ident = threading.get_ident


def hold() -> Held | None:
    """Only note signals from now on; returns the argument for `release`. None where no handler
    can interrupt: not on the main thread, or held already."""
    if _ident() != _main:
        return None
    global _now
    held: Held = []
    try:
        for number in ENDING:
            handler = get_handler(number)
            # Most handlers are not functions: the default, to ignore the signal, or none.
            if handler is not _note and handler is not None and not isinstance(handler, int):
                held.append((number, handler))
                set_handler(number, _note)
    except BaseException:  # raised by a signal that is not held yet
        release(held)
        raise
    if not held:
        return None
    _now = held
    return held


def release(held: Held | None) -> None:
    """Put the handlers back, and call those whose signals came. None: nothing was held."""
    if held is None:
        return
    try:
        while held:
            set_handler(*held[-1])
            held.pop()
    except BaseException:  # raised by a signal that is released already
        release(held)
        raise
    if noted:
        deliver()


class held:
    """A scope in which signals are only noted: for calls that Ctrl-C must not leave half done, such
    as those into the locks and queues of a pool. Its end cannot be interrupted."""

    def __enter__(self) -> None:
        self._held = hold()

    def __exit__(self, *exc: object) -> None:
        release(self._held)


def deliver() -> None:
    """Call the handlers of the noted signals, unless they are held; on the main thread only."""
    if _ident() != _main:
        return
    for number in list(noted):
        handler = get_handler(number)
        if handler is not _note and noted.pop(number, False):
            if not noted:
                instrument.keep_apart(False)
            if callable(handler):
                handler(number, sys._getframe(1))


def _note(number: int, _frame: Any) -> None:
    noted[number] = True


def _note_swallowed(unraisable: Any) -> None:
    """Python calls this function for an exception that it must ignore."""
    if issubclass(unraisable.exc_type, KeyboardInterrupt) and _ident() == _main:
        noted[int(_signal.SIGINT)] = True
        instrument.keep_apart(True)
        token = unraisable.exc_traceback.tb_frame.f_locals.get("self")
        if isinstance(token, scopes.Token):  # a second interrupt, while the first ends a scope
            token.args[0].restore()
    else:
        _hook(unraisable)


_hook, sys.unraisablehook = sys.unraisablehook, _note_swallowed


def _after_fork_in_child() -> None:
    global _main
    _main = _ident()
    noted.clear()
    release(_now)


forks.at_fork(after_in_child=_after_fork_in_child)

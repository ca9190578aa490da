"""BLAS computes on the calling thread: the engine distributes work over the cores.

NumPy's BLAS would cut a large product over threads of its own. These threads spin while they wait
for each other, which costs more than it gains as soon as other work needs the cores: on two cores,
two products of 1024 x 2048 x 512 at once took three times as long as one after the other, and
medium ones fifty times as long as on one thread. And the bits of a result depend on the number of
threads. So a task that computes a product on the CPU (`ops/products.py`) does so inside `alone`,
and shares the product among the engine's workers by a cut that depends on sizes only.

>>> import numpy as np
>>> with alone():
...     y = np.ones((200, 200)) @ np.ones((200, 200))  # on this thread, whatever others do

The number of BLAS threads is one setting for the whole process. It is 1 while any thread is inside
`alone`; the last thread to leave restores the value that the first one found, so that a user's own
products have all cores while the engine is idle. Where several devices share the cores
(`virtual_device`) it is 1 all the time: `stay_serial` enters, and stays inside.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import cache, partial
from typing import Any

from d2lmini.base import forks
from d2lmini.base.scopes import Scope, Undo

#: OpenBLAS computes products of at most this many multiplications on the calling thread.
SERIAL_PRODUCT = 1 << 18


class _BlasThreads:
    """The number of threads of one BLAS library: functions to read and set it, and its value
    before the first thread entered `alone`."""

    __slots__ = ("found", "read", "turn_to")

    def __init__(self, read: Callable[[], int], turn_to: Callable[[int], Any]):
        self.read = read
        self.turn_to = turn_to
        self.found = 1


_lock = threading.Lock()
_inside: set[object] = set()  # a token for each entry into `alone` that has not left
_SERIAL = "stay_serial"  # the token of `stay_serial`


def threads() -> int:
    """Number of threads that BLAS uses for one product while no thread is in `alone`."""
    with _lock:
        if _SERIAL in _inside:
            return 1
        return max((d.found if _inside else d.read() for d in _dials()), default=1)


class _SingleThreadScope(Scope):
    """The scope that `alone` returns, one object for all. To enter and leave takes 3 us."""

    __slots__ = ()

    def _begin(self, undo: Undo, token: object = None) -> None:
        token = token or object()
        undo.append(partial(_leave, token))
        with _lock:
            if not _inside:
                for dial in _dials():
                    dial.found = dial.read()
                    if dial.found != 1:
                        dial.turn_to(1)
            _inside.add(token)


def _leave(token: object) -> None:
    with _lock:
        _inside.discard(token)
        if not _inside:
            _restore()


_alone = _SingleThreadScope()


def alone() -> AbstractContextManager[None]:
    """A scope in which BLAS computes every product on the calling thread.

    Any number of threads may be inside, and a thread may enter more than once.
    """
    return _alone


def stay_serial(on: bool) -> None:
    """Let BLAS use one thread for everything from now on; False restores the former number."""
    if on:
        _alone._begin([], _SERIAL)
    else:
        _leave(_SERIAL)


def _restore() -> None:
    """Restore the numbers of threads, except those that other code has changed since."""
    for dial in _dials():
        if dial.found != 1 and dial.read() == 1:
            dial.turn_to(dial.found)
        dial.found = 1


@cache
def _dials() -> list[_BlasThreads]:
    with forks.importing:  # the search for the libraries takes the loader's lock
        import threadpoolctl

        controller = threadpoolctl.ThreadpoolController()
        return [_dial(library) for library in controller.select(user_api="blas").lib_controllers]


def _dial(library: Any) -> _BlasThreads:
    """Calls OpenBLAS directly: threadpoolctl would take 4 us, and obeys only the thread that came
    first. PyDLL keeps the interpreter lock during the call, since getting it back may take 5 ms."""
    if getattr(library, "threading_layer", "") == "pthreads":
        handle = ctypes.PyDLL(library.filepath)
        for prefix in ("", "scipy_"):
            for suffix in ("", "64_", "_64"):
                name = f"{prefix}openblas_{{}}_num_threads{suffix}"
                if hasattr(handle, name.format("set")):
                    return _BlasThreads(
                        getattr(handle, name.format("get")), getattr(handle, name.format("set"))
                    )

    def turn_to(n: int) -> None:
        library.set_num_threads(n)
        if hasattr(library, "clear_controlling_thread"):
            library.clear_controlling_thread()

    return _BlasThreads(library.get_num_threads, turn_to)


def _after_fork_in_child() -> None:
    """The threads that were inside `alone` do not exist in the child."""
    global _lock
    _lock = threading.Lock()
    if _inside and _SERIAL not in _inside:
        _restore()
    _inside.intersection_update({_SERIAL})


forks.at_fork(after_in_child=_after_fork_in_child)

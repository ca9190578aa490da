"""BLAS computes on the thread that asks: several cores are the engine's business.

NumPy's BLAS would cut a large product over threads of its own. They wait for each other in loops,
which costs more than it gains as soon as anything else wants the cores: on two cores, two products
of 1024 x 2048 x 512 at once took three times as long as one after the other, and middling ones
fifty times as long as on one thread. And the bits of a result depend on how many threads there
were. So whoever computes a product on the CPU (`ops/products.py`) does so inside `alone`, and
shares it out among the engine's workers by a cut that depends on sizes only.

>>> import numpy as np
>>> with alone():
...     y = np.ones((200, 200)) @ np.ones((200, 200))  # on this thread, whatever others do

The number of BLAS threads is one figure for the whole process. It is 1 as long as anybody is
inside, and the last one to leave puts back what the first one found, so that a user's own products
have all cores while the engine is idle. Where several devices share the cores (`virtual_device`) it
is 1 all the time (`stay_serial`).
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import cache
from typing import Any

from d2lmini import forks

#: OpenBLAS computes a product of up to so many multiplications on the thread that calls it.
SERIAL_PRODUCT = 1 << 18


class _Dial:
    """The number of threads of one BLAS library: how to read it, how to set it, and where it stood
    when the first one came inside."""

    __slots__ = ("found", "kept", "read", "turn_to")

    def __init__(self, read: Callable[[], int], turn_to: Callable[[int], Any]):
        self.read = read
        self.turn_to = turn_to
        self.found = 1
        self.kept: int | None = None  # where it stood before `stay_serial`


_door = threading.Lock()
_inside = 0  # how many are inside `alone` now


def threads() -> int:
    """How many threads BLAS uses for one product while nobody is `alone`."""
    with _door:
        return max((d.found if _inside else d.read() for d in _dials()), default=1)


class _Alone:
    """The scope that `alone` gives, one object for all. To enter and leave takes 2 us."""

    __slots__ = ()

    def __enter__(self) -> None:
        global _inside
        with _door:
            if _inside == 0:
                for dial in _dials():
                    dial.found = dial.read()
                    if dial.found != 1:
                        dial.turn_to(1)
            _inside += 1

    def __exit__(self, *_: object) -> None:
        global _inside
        with _door:
            _inside -= 1
            if _inside == 0:
                _put_back()


_alone = _Alone()


def alone() -> AbstractContextManager[None]:
    """A scope in which BLAS computes every product on the thread that asks.

    Any number of threads may be inside, a thread also more than once.
    """
    return _alone


def stay_serial(on: bool) -> None:
    """Let BLAS use one thread for everything from now on, or as many as it had before."""
    with _door:
        _stay_serial(on)


def _stay_serial(on: bool) -> None:
    for dial in _dials():
        if on and dial.kept is None:
            dial.kept = dial.found if _inside else dial.read()
            _turn_dial(dial, 1)
        elif not on and dial.kept is not None:
            _turn_dial(dial, dial.kept)
            dial.kept = None


def _turn_dial(dial: _Dial, n: int) -> None:
    """Turn it now, or when the last one who is inside `alone` leaves."""
    if _inside:
        dial.found = n
    else:
        dial.turn_to(n)


def _put_back() -> None:
    """Turn the dials to where they were, except those that somebody else has turned since."""
    for dial in _dials():
        if dial.found != 1 and dial.read() == 1:
            dial.turn_to(dial.found)


@cache
def _dials() -> list[_Dial]:
    with forks.importing:  # to look for the libraries takes the loader's lock
        import threadpoolctl

        controller = threadpoolctl.ThreadpoolController()
        return [_dial(library) for library in controller.select(user_api="blas").lib_controllers]


def _dial(library: Any) -> _Dial:
    """OpenBLAS is asked directly: threadpoolctl would take 4 us, and listens only to the thread
    that came first. The interpreter is not let go of meanwhile (PyDLL), since getting it back may
    take 5 ms."""
    if getattr(library, "threading_layer", "") == "pthreads":
        handle = ctypes.PyDLL(library.filepath)
        for prefix in ("", "scipy_"):
            for suffix in ("", "64_", "_64"):
                name = f"{prefix}openblas_{{}}_num_threads{suffix}"
                if hasattr(handle, name.format("set")):
                    return _Dial(
                        getattr(handle, name.format("get")), getattr(handle, name.format("set"))
                    )

    def turn_to(n: int) -> None:
        library.set_num_threads(n)
        if hasattr(library, "clear_controlling_thread"):
            library.clear_controlling_thread()

    return _Dial(library.get_num_threads, turn_to)


def _after_fork_in_child() -> None:
    """Whoever was inside did not come along."""
    global _door, _inside
    _door = threading.Lock()
    if _inside:
        _inside = 0
        _put_back()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)

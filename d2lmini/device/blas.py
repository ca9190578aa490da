"""Large products of matrices take turns, since each of them uses all cores by itself.

NumPy's BLAS cuts a large product over its own threads. Two workers that compute one each at the
same time get twice as many threads as there are cores, waiting for each other in loops: on two
cores, two products of 1024 x 2048 x 512 at once took three times as long as one after the other.
So a worker asks for its turn first. Small products, which BLAS computes on the thread that asks,
need none, nor does a BLAS that was told to use one thread.

>>> import numpy as np
>>> from d2lmini.device import blas
>>> with blas.turn(2000 ** 3):
...     y = np.ones((2, 2)) @ np.ones((2, 2))
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from typing import Any

#: OpenBLAS computes a product of up to so many multiplications on the thread that calls it.
SERIAL_PRODUCT = 1 << 18

_lock = threading.Lock()
_door = threading.Lock()
_alone = 0  # how many are inside `alone` now; the first holds the turn for all
_free = nullcontext()
_threads: int | None = None


def threads() -> int:
    """How many threads BLAS uses for one product; as it was when first asked for, or told since."""
    global _threads
    if _threads is None:
        import threadpoolctl

        pools = threadpoolctl.threadpool_info()
        _threads = max((p["num_threads"] for p in pools if p["user_api"] == "blas"), default=1)
    return _threads


def forget() -> None:
    """The number of BLAS threads has been changed: ask anew."""
    global _threads
    _threads = None


def turn(multiplications: float) -> AbstractContextManager[Any]:
    """A scope for products of so many multiplications each, which large ones enter one by one."""
    if multiplications <= SERIAL_PRODUCT or threads() == 1:
        return _free
    return _lock


@contextmanager
def alone() -> Iterator[None]:
    """A scope in which BLAS computes every product on the thread that asks; several may be inside.

    For an operation that shares its products among the engine's workers itself, by a cut that
    depends on sizes only. Whoever wants BLAS's own threads waits at `turn` meanwhile.
    """
    global _alone
    if threads() == 1:
        yield
        return
    with _door:
        if _alone == 0:
            _lock.acquire()
            _tell(1)
        _alone += 1
    try:
        yield
    finally:
        with _door:
            _alone -= 1
            if _alone == 0:
                _tell(threads())
                _lock.release()


def _tell(n: int) -> None:
    """Let BLAS use n threads."""
    for library in _libraries():
        library.set_num_threads(n)
        # From 3.7 on threadpoolctl listens only to the thread that came first, until that lets go.
        if hasattr(library, "clear_controlling_thread"):
            library.clear_controlling_thread()


@cache
def _libraries() -> list[Any]:
    import threadpoolctl

    return threadpoolctl.ThreadpoolController().select(user_api="blas").lib_controllers


def _after_fork_in_child() -> None:
    """Whoever held the turn did not come along."""
    global _lock, _door, _alone
    _lock, _door = threading.Lock(), threading.Lock()
    if _alone:
        _alone = 0
        _tell(threads())


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)

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
from contextlib import AbstractContextManager, nullcontext
from typing import Any

#: OpenBLAS computes a product of up to so many multiplications on the thread that calls it.
SERIAL_PRODUCT = 1 << 18

_lock = threading.Lock()
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


def _after_fork_in_child() -> None:
    """Whoever held the turn did not come along."""
    global _lock
    _lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)

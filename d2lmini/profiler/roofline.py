"""The roofs of the roofline: the peak rates of this machine's cores.

An operation does `flops` of arithmetic and moves `nbytes`; both are predicted from its shapes. On a
machine with peaks of F GFLOP/s and B GB/s it takes at least the larger of flops / F and nbytes / B
(Williams, Waterman and Patterson, "Roofline", 2009). `trace.summary()` has the achieved rates.

    >>> from d2lmini.profiler.roofline import peak
    >>> print(peak(1))                                              # doctest: +SKIP
    1 thread: 152 GFLOP/s, 18.1 GB/s

They are measured once per process, on first use, in a fraction of a second: float32 products of 384
x 384 matrices and copies of 4 MB (reads and writes count), on one thread or on several at once. The
shortest round of each thread counts, since other programs may use the machine. Each copy takes
other memory than the copies before it, 64 MB in all: so where the last cache holds more than 32 MB,
the rate may be the cache's.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import cycle
from math import inf
from typing import NamedTuple

import numpy as np

from d2lmini import engine
from d2lmini.device import blas

_SIZE = 384  # of the matrices: 0.11 GFLOP a product, 2 MB that stay in the caches
_COPIED, _PLACES = 1 << 20, 8  # float32 numbers in a copy; places of all threads for copies
_BUDGET_S = 0.1  # for each of the two rates; a started round is completed


class Peak(NamedTuple):
    """Peak rates of `threads` threads together: GFLOP/s in products, GB/s in copies."""

    threads: int
    gflops_per_s: float
    gb_per_s: float

    def __str__(self) -> str:
        threads = "1 thread" if self.threads == 1 else f"{self.threads} threads"
        return f"{threads}: {self.gflops_per_s:.3g} GFLOP/s, {self.gb_per_s:.3g} GB/s"


@cache
def peak(threads: int = 1) -> Peak:
    """Peak rates of `threads` threads together, each with one BLAS thread. Waits until the engine
    is idle first; takes about 0.3 s, then the result is cached for the process."""
    if threads < 1:
        raise ValueError(f"peak: threads are 1 or more, got {threads}")
    engine.current.wait_idle("peak")
    a = np.ones((_SIZE, _SIZE), np.float32)
    products = [np.empty_like(a) for _ in range(threads)]
    sources = np.ones((threads, max(1, _PLACES // threads), _COPIED), np.float32)
    targets = np.ones_like(sources)
    turns = [cycle(zip(targets[i], sources[i])) for i in range(threads)]
    with blas.alone():
        products_per_s = _rate(threads, lambda i: np.matmul(a, a, out=products[i]))
        copies_per_s = _rate(threads, lambda i: np.copyto(*next(turns[i])))
    return Peak(threads, products_per_s * 2 * _SIZE**3 / 1e9, copies_per_s * 2 * 4 * _COPIED / 1e9)


def _rate(threads: int, body: Callable[[int], object]) -> float:
    """The best rate, per second, of running body(0) ... body(threads - 1) at the same time."""
    start = threading.Barrier(threads)

    def run(i: int) -> float:
        body(i)  # touches its memory
        start.wait()
        end_s, best_s = time.perf_counter() + _BUDGET_S, inf
        while (before_s := time.perf_counter()) < end_s:
            body(i)
            best_s = min(best_s, time.perf_counter() - before_s)
        return 1 / best_s

    with ThreadPoolExecutor(threads) as pool:
        return sum(pool.map(run, range(threads)))

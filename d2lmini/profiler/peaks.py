"""What this machine can do at most, measured: products of matrices and copies of memory.

Once per process, when first asked for, in a fraction of a second: float32 products of 384 x 384
matrices and copies of 16 MB, reading and writing counted, on one thread or on several at once. Of
each thread the shortest round counts, for others may use the machine. What is measured is what
NumPy and its BLAS reach, and so what an operation can reach.

    >>> from d2lmini.profiler.peaks import peak
    >>> print(peak(1))                                              # doctest: +SKIP
    1 thread: 152 GFLOP/s, 18.1 GB/s
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import numpy as np

from d2lmini import engine
from d2lmini.device import blas

_SIZE = 384  # of the matrices: 0.11 GFLOP a product, 2 MB that stay in the caches
_COPIED = 4 << 20  # float32 numbers for each thread: more than most caches hold
_BUDGET_S = 0.1  # for each of the two figures; the rounds under way are ended


class Peak(NamedTuple):
    """The most that so many threads reach together: GFLOP/s in products, GB/s in copies."""

    threads: int
    gflops_per_s: float
    gb_per_s: float

    def __str__(self) -> str:
        threads = "1 thread" if self.threads == 1 else f"{self.threads} threads"
        return f"{threads}: {self.gflops_per_s:.3g} GFLOP/s, {self.gb_per_s:.3g} GB/s"


@cache
def peak(threads: int = 1) -> Peak:
    """What `threads` threads reach together, each with one thread of BLAS. Waits until the engine
    is idle first; takes 0.3 s or so, then it is known for the life of the process."""
    if threads < 1:
        raise ValueError(f"peak: threads are 1 or more, got {threads}")
    engine.current.wait_idle("peak")
    a = np.ones((_SIZE, _SIZE), np.float32)
    products = [np.empty_like(a) for _ in range(threads)]
    source = np.ones(_COPIED, np.float32)
    copies = [np.empty_like(source) for _ in range(threads)]
    with blas.alone():
        products_per_s = _rate(threads, lambda i: np.matmul(a, a, out=products[i]))
        copies_per_s = _rate(threads, lambda i: np.copyto(copies[i], source))
    return Peak(
        threads, products_per_s * 2 * _SIZE**3 / 1e9, copies_per_s * 2 * source.nbytes / 1e9
    )


def _rate(threads: int, body: Callable[[int], object]) -> float:
    """How often a second body(0) ... body(threads - 1) run in all, at their best."""
    best_s = [float("inf")] * threads
    start = threading.Barrier(threads)

    def run(i: int) -> None:
        body(i)  # touches its memory
        start.wait()
        now_s = begin_s = time.perf_counter()
        while now_s < begin_s + _BUDGET_S:
            before_s = now_s
            body(i)
            now_s = time.perf_counter()
            best_s[i] = min(best_s[i], now_s - before_s)

    others = [threading.Thread(target=run, args=(i,)) for i in range(1, threads)]
    for other in others:
        other.start()
    run(0)
    for other in others:
        other.join()
    return sum(1 / each_s for each_s in best_s)

"""What this machine can do at most, measured: products of matrices and copies of memory.

Once per process, when first asked for, in a fraction of a second: float32 products of 512 x 512
matrices on one thread and on several at once, and copies of 16 MB arrays, reading and writing
counted. The best of a few rounds stands, for others may use the machine. What is measured is what
NumPy and its BLAS reach, which is what an operation can reach at most.

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

_SIZE = 512  # of the matrices: 0.27 GFLOP a product, 3 MB that stay in the caches
_COPIED = 4 << 20  # float32 numbers: more than most caches hold
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
    is idle first; 0.2 s and the time of a few rounds, then known for the life of the process."""
    if threads < 1:
        raise ValueError(f"peak: threads are 1 or more, got {threads}")
    engine.current.wait_idle("peak")
    a = np.ones((_SIZE, _SIZE), np.float32)
    products = [np.empty_like(a) for _ in range(threads)]
    source = np.ones(_COPIED // threads, np.float32)
    copies = [np.empty_like(source) for _ in range(threads)]
    with blas.alone():
        gemm_s = _best(threads, lambda i: np.matmul(a, a, out=products[i]))
        copy_s = _best(threads, lambda i: np.copyto(copies[i], source))
    gflops = threads * 2 * _SIZE**3 / 1e9
    gb = threads * 2 * source.nbytes / 1e9
    return Peak(threads, gflops / gemm_s, gb / copy_s)


def _best(threads: int, body: Callable[[int], object]) -> float:
    """The shortest time in which body(0) ... body(threads - 1) run at once, in s a round."""
    rounds: list[tuple[float, float]] = []
    for i in range(threads):
        body(i)  # touches its memory

    def round_of(i: int, start: threading.Barrier) -> None:
        start.wait()
        begin_s = time.perf_counter()
        body(i)
        rounds.append((begin_s, time.perf_counter()))

    best_s, end_s = float("inf"), time.perf_counter() + _BUDGET_S
    while time.perf_counter() < end_s or best_s == float("inf"):
        rounds.clear()
        start = threading.Barrier(threads)
        others = [threading.Thread(target=round_of, args=(i, start)) for i in range(1, threads)]
        for other in others:
            other.start()
        round_of(0, start)
        for other in others:
            other.join()
        best_s = min(best_s, max(end for _, end in rounds) - min(begin for begin, _ in rounds))
    return best_s

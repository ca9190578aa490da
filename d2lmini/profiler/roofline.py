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
other memory than the copies before it, twice as much in all as the last cache holds, but at most
256 MB: so where that cache holds more than 128 MB, the rate may be the cache's.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import cache
from itertools import cycle
from pathlib import Path
from typing import NamedTuple

import numpy as np

from d2lmini import engine
from d2lmini.device import blas

_SIZE = 384  # of the matrices: 0.11 GFLOP a product, 2 MB that stay in the caches
_COPIED = 1 << 20  # float32 numbers in a copy
_MOST_BYTES = 256 << 20  # for the copies of all threads, read and written
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
    nbytes = min(_MOST_BYTES, max(2 * last_cache_bytes(), 64 << 20))
    places = max(1, nbytes // (2 * 4 * _COPIED * threads))
    sources = [np.ones((places, _COPIED), np.float32) for _ in range(threads)]
    targets = [np.ones_like(source) for source in sources]
    turns = [cycle(range(places)) for _ in range(threads)]

    def copy(i: int) -> None:
        place = next(turns[i])
        np.copyto(targets[i][place], sources[i][place])

    with blas.alone():
        products_per_s = _rate(threads, lambda i: np.matmul(a, a, out=products[i]))
        copies_per_s = _rate(threads, copy)
    return Peak(threads, products_per_s * 2 * _SIZE**3 / 1e9, copies_per_s * 2 * 4 * _COPIED / 1e9)


def last_cache_bytes() -> int:
    """The size of the last cache of the first core; 32 MB where the system does not tell."""
    sizes = []
    for path in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"):
        size = path.read_text().strip()
        sizes.append(int(size[:-1]) * {"K": 1 << 10, "M": 1 << 20}[size[-1]])
    return max(sizes, default=32 << 20)


def _rate(threads: int, body: Callable[[int], object]) -> float:
    """The best rate, per second, of running body(0) ... body(threads - 1) at the same time."""
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

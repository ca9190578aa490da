"""Your machine in numbers, measured once: the basis of predictions.

    m = d2l.machine()                       # two seconds or so, then known
    print(m)
    m.at_least_s(nd.dot.cost([((2000, 2000), "float32")] * 2))      # seconds, at best

A text that says "a laptop does 100 GFLOP/s" is right about one laptop. The chapters predict with
the figures of this machine, and then measure. Each figure is the best of several rounds, because
other programs may use the machine; each is what Python and NumPy reach, not a data sheet's value.
If other programs used many cores all the time, the best round suffers, too: the table then says so.
"""

from __future__ import annotations

import threading
import time
import timeit
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cache
from itertools import cycle
from math import inf
from typing import Any, NamedTuple

import numpy as np

from d2lmini import engine, nd
from d2lmini.d2l import load
from d2lmini.d2l.explain import duration
from d2lmini.device import blas
from d2lmini.engine.threaded import count_cores
from d2lmini.ops.spec import Cost

#: Bytes of memory in which `read_s` reads at random: from a first cache to far beyond the last.
ROOMS = (16 << 10, 256 << 10, 4 << 20, 128 << 20)
_READS = 100_000
_ROUNDS = 5
_ISSUED = 300

_SIZE = 384  # of the matrices: 0.11 GFLOP a product, 2 MB that stay in the caches
_COPIED, _PLACES = 1 << 20, 8  # float32 numbers in a copy; places of all threads for copies
_BUDGET_S = 0.1  # for each of the two rates of a peak; a started round is completed


class Peak(NamedTuple):
    """The roofs of the roofline: peak rates of `threads` threads together, GFLOP/s in products and
    GB/s in copies."""

    threads: int
    gflops_per_s: float
    gb_per_s: float


@dataclass(frozen=True)
class Machine:
    """The result of `machine()`.

    cores         number of cores this process may use
    memory_bytes  of the machine
    one, all      `Peak` of one thread, and of one thread per core: GFLOP/s and GB/s
    call_s        a call of a Python function that does nothing
    numpy_s       a NumPy addition of 4 numbers
    inline_s      the same addition of NDArrays, computed on the calling thread
    issue_s       the caller's time if the addition goes to a worker
    run_s         the worker's time for it
    hand_over_s   from the call to the end of a wait for the result, with a worker in between
    read_s        {bytes: seconds for each float32 that is fetched from a random place in so much
                  memory, many fetches at once: shorter than the latency of one fetch}
    elsewhere     cores that other programs used meanwhile; None where the system does not tell
    """

    cores: int
    memory_bytes: int
    one: Peak
    all: Peak
    call_s: float
    numpy_s: float
    inline_s: float
    issue_s: float
    run_s: float
    hand_over_s: float
    read_s: dict[int, float]
    elsewhere: float | None = None

    @property
    def busy(self) -> bool:
        """Other programs used the machine meanwhile: rates may be too low, and times too long."""
        return self.elsewhere is not None and self.elsewhere >= load.LOADED

    def at_least_s(self, cost: Cost, threads: int | None = None) -> float:
        """Seconds that work of this cost (`op.cost(...)`) takes at least, with one thread or with
        all (None): the longer of its arithmetic and its traffic, each at the measured peak (the
        roofline). Work that is no matrix product takes longer; work that reads from a cache may
        take less. ValueError for another number of threads."""
        if threads not in (None, 1):
            raise ValueError(f"at_least_s: threads is 1, or None for all cores, got {threads!r}")
        most = self.all if threads is None else self.one
        return max(cost.flops / (most.gflops_per_s * 1e9), cost.nbytes / (most.gb_per_s * 1e9))

    @property
    def flops_per_byte(self) -> float:
        """The arithmetic intensity of the machine, with all cores: work with more FLOPs per byte is
        bound by arithmetic, other work by memory."""
        return self.all.gflops_per_s / self.all.gb_per_s

    def __str__(self) -> str:
        """A line for each figure. Counts are in lines that begin with "machine: "; the other lines
        show rates and times. So the test of the chapters can leave out what differs between
        machines."""
        reads = sorted(self.read_s.items())
        rows = [
            ("products of matrices, one core", f"{self.one.gflops_per_s:.3g} GFLOP/s"),
            ("products of matrices, all cores", f"{self.all.gflops_per_s:.3g} GFLOP/s"),
            ("memory read and written, one core", f"{self.one.gb_per_s:.3g} GB/s"),
            ("memory read and written, all cores", f"{self.all.gb_per_s:.3g} GB/s"),
            *((f"a number from {_size(n)}, many at once", duration(s)) for n, s in reads),
            ("a call of a Python function", duration(self.call_s)),
            ("x + 1 on 4 numbers: NumPy", duration(self.numpy_s)),
            ("                    NDArray, where it is called", duration(self.inline_s)),
            ("                    NDArray, the caller's part", duration(self.issue_s)),
            ("                    NDArray, the worker's part", duration(self.run_s)),
            ("                    NDArray, handed over and waited for", duration(self.hand_over_s)),
        ]
        width = max(len(name) for name, _ in rows)
        cores = "1 core" if self.cores == 1 else f"{self.cores} cores"
        lines = [f"machine: {cores}, {self.memory_bytes / 1e9:.3g} GB of memory"]
        if self.busy:
            words = f"other programs used {self.elsewhere:.1f} cores meanwhile"
            lines.append(f"machine: busy: {words}, so figures may be too low")
        return "\n".join([*lines, *(f"{name:{width}} {figure:>12}" for name, figure in rows)])

    __repr__ = __str__


@cache
def machine() -> Machine:
    """The figures of this machine. Waits until the engine is idle, then measures for about two
    seconds on a separate engine; after that the figures are cached for the life of the process."""
    import psutil

    begin, cores = load.snapshot(), count_cores()
    one, together = _agreeing(_measure_peak(1), _measure_peak(cores))
    four, place = np.ones(4, np.float32), np.empty(4, np.float32)
    x: Any = nd.ones((4,))
    x.wait_to_read()
    with engine.use("threaded", workers=1):
        inline_s = _best_s(lambda: x + 1, 1000)
    with engine.use("threaded", workers=1, inline_below=0.0):  # every operation on the worker
        hand_over_s = _best_s(lambda: (x + 1).wait_to_read(), 100)
        issue_s, run_s = map(min, zip(*(_measure_issue_and_run(x) for _ in range(_ROUNDS))))
    measured = Machine(
        cores, psutil.virtual_memory().total, one, together,
        _best_s(lambda: None, 10_000), _best_s(lambda: np.add(four, 1, out=place), 10_000),
        inline_s, issue_s, run_s, hand_over_s,
        {nbytes: _measure_random_read_s(nbytes) for nbytes in ROOMS},
    )  # fmt: skip
    return replace(measured, elsewhere=load.cores_elsewhere(begin, load.snapshot()))


def _agreeing(one: Peak, together: Peak) -> tuple[Peak, Peak]:
    """Make two figures agree: all cores reach at least the figure of one core, and one core at
    least its share. A lower figure was measured while other programs used the cores."""
    rates = [(max(a, b / together.threads), max(a, b)) for a, b in zip(one[1:], together[1:])]
    alone, all_of_them = zip(*rates)
    return Peak(one.threads, *alone), Peak(together.threads, *all_of_them)


def _measure_peak(threads: int) -> Peak:
    """Peak rates of `threads` threads, each with one BLAS thread: float32 products of 384 x 384
    matrices and copies of 4 MB (reads and writes count). The shortest round of each thread counts.
    Each copy takes other memory than the copies before it, 64 MB in all: so where the last cache
    holds more than 32 MB, the rate may be the cache's."""
    engine.current.wait_idle("machine")
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


def _best_s(function: Callable[[], object], n: int) -> float:
    """Seconds of a call, the best of several rounds of n calls."""
    return min(timeit.repeat(function, number=n, repeat=_ROUNDS)) / n


def _measure_issue_and_run(x: Any) -> tuple[float, float]:
    """Seconds of an addition's two halves: the worker is held up while the caller issues the
    additions, and the caller waits while the worker runs them."""
    gate = threading.Event()
    engine.push(gate.wait, writes=[x], name="gate")
    try:
        begin_s = time.perf_counter()
        for _ in range(_ISSUED):
            x + 1
        issued_s = time.perf_counter()
    finally:
        gate.set()
    engine.waitall()
    return (issued_s - begin_s) / _ISSUED, (time.perf_counter() - issued_s) / _ISSUED


def _measure_random_read_s(nbytes: int) -> float:
    """Seconds to fetch one number from random places, with several fetches in flight at once (if
    each place is only known from the previous number, a fetch takes longer)."""
    numbers = np.ones(nbytes // 4, np.float32)  # untouched zeros would be one page, many times
    places = np.random.RandomState(0).randint(0, numbers.size, _READS)
    got = np.empty(_READS, np.float32)
    return _best_s(lambda: numbers.take(places, out=got, mode="clip"), 3) / _READS


def _size(nbytes: int) -> str:
    return f"{nbytes >> 10} KB" if nbytes < 1 << 20 else f"{nbytes >> 20} MB"

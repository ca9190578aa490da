"""The roofline: achieved rates of each kind of operation compared with the machine's peaks.

An operation does `flops` of arithmetic and moves `nbytes`; both are predicted from its shapes. On a
machine with peaks of F GFLOP/s and B GB/s it takes at least the larger of flops / F and nbytes / B.
That time over the actual time is the share of the roof: of the arithmetic roof if the operation
does more than F / B FLOPs per byte, else of the memory roof (Williams, Waterman and Patterson,
"Roofline", 2009).

    print(trace.roofline())

Peaks of the CPU and of virtual GPUs are measured (`peak`), with as many threads as the place has
workers, at most one for each core: the CPU's large operations are shared among its workers. A
virtual GPU with lower rates (`virtual_gpus(gflops=, memory_gb_s=)`) has these as peaks, and a
virtual link its rate. For other GPUs and links the rates are given without a share. Peaks are
measured on the current machine, so run this where the trace was made.

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

import os
import threading
import time
from collections.abc import Callable
from functools import cache
from itertools import cycle
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from d2lmini import engine
from d2lmini.context import Context
from d2lmini.device import blas, devices
from d2lmini.profiler.summary import align, in_time, summary_of

if TYPE_CHECKING:
    from d2lmini.profiler.tracing import Trace

_SIZE = 384  # of the matrices: 0.11 GFLOP a product, 2 MB that stay in the caches
_COPIED = 1 << 20  # float32 numbers in a copy
_MOST_BYTES = 256 << 20  # for the copies of all threads, read and written
_BUDGET_S = 0.1  # for each of the two rates; a started round is completed

HEAD = ("operation", "place", "count", "total", "FLOPs", "bytes", "arithmetic", "memory",
        "of the roof")  # fmt: skip

#: The share of the operations' time without a core from which on the table says so.
LOST = 0.02


class RooflineRow(NamedTuple):
    """All operations of one name at one place.

    times, seconds    number of operations, and total time
    flops, nbytes     predicted totals; 0 if unknown
    gflops_per_s, gb_per_s    achieved
    share             of the roof, 0 ... 1, above 1 in caches; None: no peak or no prediction
    roof              the roof: "arithmetic", "memory", "link"; "" without a share
    """

    name: str
    place: str
    times: int
    seconds: float
    flops: float
    nbytes: float
    gflops_per_s: float
    gb_per_s: float
    share: float | None
    roof: str


class Peak(NamedTuple):
    """Peak rates of `threads` threads together: GFLOP/s in products, GB/s in copies."""

    threads: int
    gflops_per_s: float
    gb_per_s: float

    def __str__(self) -> str:
        threads = "1 thread" if self.threads == 1 else f"{self.threads} threads"
        return f"{threads}: {self.gflops_per_s:.3g} GFLOP/s, {self.gb_per_s:.3g} GB/s"


class Roofline:
    """`rows`, the largest total time first, the `peaks` by place, and the seconds for which
    operations had no core (`preempted_s`). Prints as a table."""

    def __init__(self, rows: list[RooflineRow], peaks: dict[str, Peak], preempted_s: float):
        self.rows = rows
        self.peaks = peaks
        self.preempted_s = preempted_s

    def __str__(self) -> str:
        rows = [HEAD]
        for row in self.rows:
            share = "" if row.share is None else f"{100 * row.share:.0f} % ({row.roof})"
            rows.append(
                (row.name, row.place, f"{row.times}", f"{1e3 * row.seconds:.2f} ms",
                 f"{row.flops / 1e6:.4g} MFLOP", f"{row.nbytes / 1e6:.4g} MB",
                 f"{row.gflops_per_s:.3g} GFLOP/s", f"{row.gb_per_s:.3g} GB/s", share)
            )  # fmt: skip
        lines = [f"peak of {place}, {peak}" for place, peak in self.peaks.items()]
        lines += align(rows, "<<>>>>>><")
        total_s = sum(row.seconds for row in self.rows)
        if self.preempted_s > LOST * total_s:
            lines.append(
                f"for {in_time(self.preempted_s)} of {in_time(total_s)} operations had no core, "
                "because other programs ran: without them the rates are higher"
            )
        return "\n".join(lines)

    def __repr__(self) -> str:
        return f"<roofline of {len(self.rows)} kinds of operations>"


def roofline_of(trace: Trace) -> Roofline:
    """See the module. Measures the peaks that are not known yet."""
    at_place = {operation.place: operation for operation in trace.operations}
    peaks: dict[str, Peak] = {}
    rows = []
    for kind in summary_of(trace).rows:
        place, flops, nbytes, seconds = kind.place, kind.flops, kind.nbytes, kind.total_s
        least_s, roof = 0.0, ""
        if flops or nbytes:
            ctx = at_place[place].ctx
            if at_place[place].is_copy:
                link_gb_s = _link_gb_s(ctx)
                if link_gb_s is not None:
                    least_s, roof = nbytes / link_gb_s / 1e9, "link"
            elif _is_measured(ctx):
                if place not in peaks:
                    peaks[place] = _peak_of(ctx, trace.workers.get(place, 1))
                least_s, roof = _least(flops, nbytes, peaks[place])
        share = least_s / seconds if roof and seconds else None
        rates = kind.flops_per_s / 1e9, kind.bytes_per_s / 1e9
        rows.append(
            RooflineRow(kind.name, place, kind.count, seconds, flops, nbytes, *rates, share, roof)
        )
    preempted_ns = sum(parts.preempted for parts in trace.off_cpu().values())
    return Roofline(rows, peaks, preempted_ns / 1e9)


def _least(flops: float, nbytes: float, peak: Peak) -> tuple[float, str]:
    """The shortest possible time in s, and the roof that limits it."""
    arithmetic_s = flops / peak.gflops_per_s / 1e9
    memory_s = nbytes / peak.gb_per_s / 1e9
    return (arithmetic_s, "arithmetic") if arithmetic_s > memory_s else (memory_s, "memory")


def _peak_of(ctx: Context, workers: int) -> Peak:
    """The peaks of a place: those of the cores, or lower ones that a virtual GPU has."""
    measured = peak(min(workers, os.cpu_count() or 1))
    device = devices.device_of(ctx)
    return Peak(
        measured.threads,
        min(measured.gflops_per_s, workers * getattr(device, "gflops", inf)),
        min(measured.gb_per_s, workers * getattr(device, "memory_gb_s", inf)),
    )


def _is_measured(ctx: Context) -> bool:
    """True if the machine's own cores compute there."""
    return ctx.is_cpu or (devices.exists(ctx) and devices.device_of(ctx).kind == "virtual")


def _link_gb_s(ctx: Context) -> float | None:
    """The rate of a virtual GPU's link."""
    if ctx.is_cpu or not devices.exists(ctx):
        return None
    return getattr(devices.device_of(ctx), "link_gb_s", None)


# -- the peaks -------------------------------------------------------------------------------------


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

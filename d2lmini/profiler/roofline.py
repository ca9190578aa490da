"""The roofline: achieved rates of each kind of operation compared with the machine's peaks.

An operation does `flops` of arithmetic and moves `nbytes`; both are predicted from its shapes. On a
machine with peaks of F GFLOP/s and B GB/s it takes at least the larger of flops / F and nbytes / B.
That time over the actual time is the share of the roof: of the arithmetic roof if the operation
does more than F / B FLOPs per byte, else of the memory roof (Williams, Waterman and Patterson,
"Roofline", 2009).

    print(trace.roofline())

Peaks of the CPU and of virtual GPUs are measured (`peaks`), with as many threads as the place has
workers, at most one for each core: the CPU's large operations are shared among its workers. A
virtual GPU with lower rates (`virtual_gpus(gflops=, memory_gb_s=)`) has these as peaks, and a
virtual link its rate. For other GPUs and links the rates are given without a share. Peaks are
measured on the current machine, so run this where the trace was made.
"""

from __future__ import annotations

import os
from math import inf
from typing import TYPE_CHECKING, NamedTuple

from d2lmini.context import Context
from d2lmini.device import devices
from d2lmini.profiler.peaks import Peak, peak
from d2lmini.profiler.summary import align, in_time, summary_of

if TYPE_CHECKING:
    from d2lmini.profiler.tracing import Trace

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

"""The roofline: what each kind of operation reached, beside what the machine can do.

An operation does `flops` of arithmetic and moves `nbytes`; both are predicted from its shapes. A
machine that computes F GFLOP/s and moves B GB/s at most needs the longer of flops / F and
nbytes / B for it, and the share of that in the time taken is how near it came to the roof: the
roof of arithmetic where it does more than F / B FLOPs a byte, that of memory below (Williams,
Waterman and Patterson, "Roofline", 2009).

    print(trace.roofline())

Peaks of the CPU and of virtual GPUs are measured (`peaks`), with as many threads as the place has
workers, one for each core at most: the CPU's large operations are shared among them. A virtual
link's peak is its own rate. For other GPUs and links the rates are given without a share. The peaks
are those of the machine that asks, so ask where the trace was made.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from d2lmini.context import Context
from d2lmini.device import devices
from d2lmini.profiler.peaks import Peak, peak

if TYPE_CHECKING:
    from d2lmini.profiler.records import Operation
    from d2lmini.profiler.trace import Trace


class Row(NamedTuple):
    """Operations of one name at one place, all together.

    times, seconds    how many ran, and how long in sum
    flops, nbytes     predicted, in sum; 0 where nobody knows
    gflops_per_s, gb_per_s    achieved
    share             of the roof, 0 ... 1, may pass it in caches; None: no peak or no prediction
    roof              which: "arithmetic", "memory", "link"; "" where there is no share
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
    """`rows`, the longest in sum first, and the `peaks` by place. Prints as a table."""

    def __init__(self, rows: list[Row], peaks: dict[str, Peak]):
        self.rows = rows
        self.peaks = peaks

    def __str__(self) -> str:
        lines = [f"peak of {place}, {peak}" for place, peak in self.peaks.items()]
        lines.append(
            f"{'operation':<24}{'place':<12}{'count':>6}{'total':>12}{'arithmetic':>14}{'moved':>12}"
            f"{'':>30}of the roof"
        )
        for row in self.rows:
            share = "" if row.share is None else f"{100 * row.share:.0f} % ({row.roof})"
            line = (
                f"{row.name[:23]:<24}{row.place:<12}{row.times:>6}{1e3 * row.seconds:>9.2f} ms"
                f"{row.flops / 1e6:>8.4g} MFLOP{row.nbytes / 1e6:>9.4g} MB"
                f"{row.gflops_per_s:>8.3g} GFLOP/s{row.gb_per_s:>7.3g} GB/s  {share}"
            )
            lines.append(line.rstrip())
        return "\n".join(lines)

    def __repr__(self) -> str:
        return f"<roofline of {len(self.rows)} kinds of operations>"


def roofline_of(trace: Trace) -> Roofline:
    """See the module. Measures the peaks it needs, if that has not been done yet."""
    kinds: dict[tuple[str, str], list[Operation]] = {}
    for each in trace.operations:
        if each.began_ns and each.ended_ns and each.failure is None:
            kinds.setdefault((each.name, each.place), []).append(each)
    peaks: dict[str, Peak] = {}
    rows = []
    for (name, place), operations in kinds.items():
        flops = sum(each.flops for each in operations)
        nbytes = sum(each.nbytes for each in operations)
        seconds = sum(each.run_ns for each in operations) / 1e9
        least_s, roof = 0.0, ""
        if flops or nbytes:
            first = operations[0]
            if first.is_copy:
                link_gb_s = _link_gb_s(first.ctx)
                if link_gb_s is not None:
                    least_s, roof = nbytes / link_gb_s / 1e9, "link"
            elif _is_measured(first.ctx):
                if place not in peaks:
                    peaks[place] = peak(min(trace.workers.get(place, 1), os.cpu_count() or 1))
                least_s, roof = _least(flops, nbytes, peaks[place])
        rows.append(
            Row(
                name,
                place,
                len(operations),
                seconds,
                flops,
                nbytes,
                flops / seconds / 1e9 if seconds else 0.0,
                nbytes / seconds / 1e9 if seconds else 0.0,
                least_s / seconds if roof and seconds else None,
                roof,
            )
        )
    rows.sort(key=lambda row: -row.seconds)
    return Roofline(rows, peaks)


def _least(flops: float, nbytes: float, peak: Peak) -> tuple[float, str]:
    """The shortest time in s, and the roof that says so."""
    arithmetic_s = flops / peak.gflops_per_s / 1e9
    memory_s = nbytes / peak.gb_per_s / 1e9
    return (arithmetic_s, "arithmetic") if arithmetic_s > memory_s else (memory_s, "memory")


def _is_measured(ctx: Context) -> bool:
    """Do the machine's own cores compute there?"""
    return ctx.is_cpu or (devices.exists(ctx) and devices.device_of(ctx).kind == "virtual")


def _link_gb_s(ctx: Context) -> float | None:
    """What the link of a virtual GPU moves."""
    if ctx.is_cpu or not devices.exists(ctx):
        return None
    return getattr(devices.device_of(ctx), "link_gb_s", None)

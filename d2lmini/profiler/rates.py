"""Speeds measured from a trace: hand-overs, links, and work shared by several workers.

A replay uses these rates: a trace does not contain the duration of an operation elsewhere, but its
components.

    hand-over   from the time when an operation is ready and its worker free to its start
    link        overhead + bytes / rate, fitted to the copies of each lane
    shared work duration of a piece of a split operation, on any worker
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

from d2lmini.engine.simulation import SharedWork

if TYPE_CHECKING:
    from d2lmini.profiler.records import Operation
    from d2lmini.profiler.tracing import Trace

#: Number of small copies that are compared with as many large copies.
SAMPLES = 60


def hand_overs(operations: Iterable[Operation]) -> dict[int, int]:
    """For every operation that a worker ran: the nanoseconds of its hand-over."""
    free: dict[str, int] = {}  # the time since which each worker is free
    taken: dict[int, int] = {}
    ran = (operation for operation in operations if operation.began_ns and not operation.inline)
    for operation in sorted(ran, key=lambda operation: operation.began_ns):
        could = max(operation.ready_ns, free.get(operation.worker, 0))
        taken[operation.number] = max(0, operation.began_ns - could)
        free[operation.worker] = operation.ended_ns
    return taken


class LinkRate(NamedTuple):
    """A copy of n bytes takes overhead_ns + n * ns_per_byte."""

    overhead_ns: float
    ns_per_byte: float

    def at(self, run_ns: int, nbytes: float, gb_s: float) -> int:
        """The duration, on a link of `gb_s`, of a copy that took `run_ns` here."""
        overhead = max(run_ns - nbytes * self.ns_per_byte, 0.0)
        return round(overhead + nbytes / gb_s)


def fit(copies: Sequence[Operation]) -> LinkRate:
    """Fit the link of these copies: the median slope between smaller and larger copies, which is
    robust against delayed ones (Theil-Sen), and the median remainder as overhead. Copies of nearly
    one size determine no overhead."""
    ran = sorted((copy.nbytes, copy.run_ns) for copy in copies if copy.run_ns and copy.nbytes)
    if not ran:
        return LinkRate(0.0, 0.0)
    third = -(-len(ran) // 3)
    step = -(-third // SAMPLES)
    small, large = ran[:third:step], ran[-third::step]
    if large[0][0] > 1.2 * small[-1][0]:
        slope = median((high - low) / (more - less) for less, low in small for more, high in large)
        overhead = median(run - slope * nbytes for nbytes, run in ran)
        if slope > 0 and overhead >= 0:
            return LinkRate(overhead, slope)
    return LinkRate(0.0, median(run / nbytes for nbytes, run in ran))


def shares(trace: Trace) -> dict[int, SharedWork]:
    """The operations that were split, by number."""
    found: dict[int, SharedWork] = {}
    for number, (pieces, ns, work_ns, late) in trace.shared.items():
        alone_ns = max(0, trace[number].run_ns - ns)
        found[number] = SharedWork(alone_ns, work_ns / pieces, pieces, late)
    return found

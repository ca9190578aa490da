"""What a trace tells of the speed of things: hand-overs, links, work that several workers shared.

A replay asks this before it begins: the time that an operation would take elsewhere is not in the
trace, what it is made of is.

    hand-over   from the moment when an operation was ready and its worker free to its begin
    link        overhead + bytes / rate, fitted to the copies of each lane
    shared work what the owner and those who helped it did together in the parts that were cut
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from d2lmini.profiler.records import Operation
    from d2lmini.profiler.trace import Trace

#: So many small copies are compared with so many large ones.
SAMPLES = 60


def hand_overs(operations: Iterable[Operation]) -> dict[int, int]:
    """For every operation that a worker ran: nanoseconds that the hand-over took."""
    free: dict[str, int] = {}  # since when each worker has been so
    taken: dict[int, int] = {}
    ran = (each for each in operations if each.began_ns and not each.inline)
    for each in sorted(ran, key=lambda each: each.began_ns):
        could = max(each.ready_ns, free.get(each.worker, 0))
        taken[each.number] = max(0, each.began_ns - could)
        free[each.worker] = each.ended_ns
    return taken


class Link(NamedTuple):
    """A copy of n bytes takes overhead_ns + n * ns_per_byte."""

    overhead_ns: float
    ns_per_byte: float

    def at(self, run_ns: int, nbytes: float, gb_s: float) -> int:
        """How long a copy that took `run_ns` here takes on a link of `gb_s`."""
        overhead = max(run_ns - nbytes * self.ns_per_byte, 0.0)
        return round(overhead + nbytes / gb_s)


def fit(copies: Sequence[Operation]) -> Link:
    """The link that these copies went over: the median of the slopes between smaller and larger
    ones, which some that were held up do not move (after Theil and Sen), and of what is left as
    overhead. Copies of about one size tell no overhead."""
    ran = sorted((each.nbytes, each.run_ns) for each in copies if each.run_ns and each.nbytes)
    if not ran:
        return Link(0.0, 0.0)
    third = -(-len(ran) // 3)
    step = -(-third // SAMPLES)
    small, large = ran[:third:step], ran[-third::step]
    if large[0][0] > 1.2 * small[-1][0]:
        slope = median((high - low) / (more - less) for less, low in small for more, high in large)
        overhead = median(run - slope * nbytes for nbytes, run in ran)
        if slope > 0 and overhead >= 0:
            return Link(overhead, slope)
    return Link(0.0, median(run / nbytes for nbytes, run in ran))


class Share(NamedTuple):
    """An operation that was cut: alone_ns are its owner's, helpers take their part of work_ns."""

    alone_ns: float
    work_ns: float
    pieces: int

    def run_ns(self, helpers: float) -> float:
        """How long it runs with so many helpers."""
        return self.alone_ns + self.work_ns / (1 + min(helpers, self.pieces - 1))


def shares(trace: Trace) -> dict[int, Share]:
    """The operations that were cut, by number. The trace tells how many pieces there were and how
    long the cut parts lasted, not who came to help: all the lane's idle workers, it is assumed,
    divided among those who had work to share."""
    found: dict[int, Share] = {}
    cut = [each for each in trace.operations if each.number in trace.shared and each.run_ns]
    for place in {each.place for each in cut}:
        here = [each for each in trace.operations if each.place == place and not each.inline]
        size = trace.workers.get(place, 1)
        for each, helpers in _helpers(here, {*trace.shared}, size):
            pieces, ns = trace.shared[each.number]
            work = min(ns, each.run_ns)
            found[each.number] = Share(
                each.run_ns - work, work * (1 + min(helpers, pieces - 1)), pieces
            )
    return found


def _helpers(
    operations: Iterable[Operation], cut: set[int], size: int
) -> Iterable[tuple[Operation, float]]:
    """Each operation that was cut, and how many helped it in the mean over its time."""
    moments = []
    for each in operations:
        if each.run_ns:
            moments += [(each.began_ns, 1, each), (each.ended_ns, -1, each)]
    moments.sort(key=lambda moment: moment[:2])
    busy = sharing = before = 0
    helped = 0.0  # by one who shares from the begin of the trace on: helpers times nanoseconds
    at_begin: dict[int, float] = {}
    for now, change, each in moments:
        if sharing:
            helped += (now - before) * max(0, size - busy) / sharing
        before = now
        busy += change
        if each.number in cut:
            sharing += change
            if change > 0:
                at_begin[each.number] = helped
            else:
                yield each, (helped - at_begin[each.number]) / each.run_ns

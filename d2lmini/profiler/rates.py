"""What a trace tells of the speed of things: hand-overs, links, work that several workers shared.

A replay asks this before it begins: the time that an operation would take elsewhere is not in the
trace, what it is made of is.

    hand-over   from the moment when an operation was ready and its worker free to its begin
    link        overhead + bytes / rate, fitted to the copies of each lane
    shared work how long a piece takes of an operation that is cut, whoever takes it
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
    """An operation that was cut: alone_ns are its owner's; then whoever is there takes one piece
    after the other, each of piece_ns. Only if `late` do workers help that come when it has begun,
    and nobody was there then."""

    alone_ns: float
    piece_ns: float
    pieces: int
    late: bool = True


def shares(trace: Trace) -> dict[int, Share]:
    """The operations that were cut, by number."""
    found: dict[int, Share] = {}
    for number, (pieces, ns, work_ns, late) in trace.shared.items():
        alone_ns = max(0, trace[number].run_ns - ns)
        found[number] = Share(alone_ns, work_ns / pieces, pieces, late)
    return found

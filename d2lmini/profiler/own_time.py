"""What each thread did from one operation or wait to the next.

The program's own time is cut into segments. While the thread did not compute, the cause is that of
`cpu_time`. The rest is "issuing": the short Python from one operation to the next; or "program",
if it is longer than a millisecond or no operation was issued at all: code of the program's own.

>>> from d2lmini import engine, nd, profile
>>> with profile() as trace:
...     x = nd.ones((2, 2))
...     total = sum(range(300_000))
...     y = x + 1
>>> "program" in {segment.cause for segment in own_times(trace)["MainThread"]}
True
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from d2lmini.base import callsite
from d2lmini.base.callsite import Site

if TYPE_CHECKING:
    from d2lmini.profiler.tracing import Trace

#: The program's own code; shorter is the issuing of the next operation.
_PROGRAM_NS = 1_000_000

_begin_ns, _end_ns = attrgetter("begin_ns"), attrgetter("end_ns")


class Between(NamedTuple):
    """The place of the program between two lines: that of the last operation or wait, None at the
    start, and that of the next, None at the end."""

    last: Site | None
    next: Site | None

    @property
    def is_line(self) -> bool:
        """Is it within one line, or from one turn of a loop to the next?"""
        return callsite.same_line(self.last) == callsite.same_line(self.next)

    def __str__(self) -> str:
        last, following = callsite.describe(self.last), callsite.describe(self.next)
        if self.last is None:
            return "outside of the engine" if self.next is None else following
        if self.next is None:
            return f"after {last}"
        if self.is_line:
            return f"between two operations of {following}"
        return f"between {last.partition(': ')[0]} and {following}"


class Segment(NamedTuple):
    """A time for which there is one cause, and the place of the program."""

    cause: str
    place: Between | Site | None
    begin_ns: int
    end_ns: int


def own_times(trace: Trace) -> dict[str, list[Segment]]:
    """The segments of each thread of the program, waits among them, in order, from the begin of the
    trace to its end."""
    lost = lost_times(trace)
    found: dict[str, list[Segment]] = {}
    for thread, events in {trace.thread or "main": [], **trace.events.threads}.items():
        mine = lost.get(thread, lost[""])
        late = [segment for segment in mine if segment.cause == "preempted"]
        segments = found[thread] = []
        now, last = trace.begin_ns, None
        for event in events:
            begin = max(now, event.begin_ns)
            end = max(begin, event.end_ns)
            segments += _gap(mine, Between(last, event.site), now, begin)
            if event.wait is not None:
                segments += cut(late, Segment("waits", event.site, begin, end))
            else:  # it ran the operation itself
                segments += cut(mine, Segment("issuing", event.site, begin, end))
            now, last = end, event.site
        # The trace waits for the end of everything when the program has left.
        left_ns = max(now, trace.left_ns or trace.end_ns)
        cause, place = "issuing" if events else "program", Between(last, None)
        segments += _gap(mine, place, now, left_ns, cause)
        segments += cut(mine, Segment("unexplained", place, left_ns, trace.end_ns))
    return found


def lost_times(trace: Trace) -> dict[str, list[Segment]]:
    """The times in which each thread did not compute, without overlaps; "": any other thread."""
    pauses = [Segment("gc", pause.site, *pause[:2]) for pause in trace.cpu.pauses]
    spans: dict[str, list[Segment]] = defaultdict(list, {"": []})
    for span in trace.cpu.spans:
        spans[span.thread].append(Segment(span.cause, None, *span[1:3]))
    found: dict[str, list[Segment]] = {}
    for thread, own in spans.items():
        found[thread], now = [], 0
        for segment in sorted(pauses + own, key=_begin_ns):
            if segment.end_ns > now:
                found[thread].append(segment._replace(begin_ns=max(now, segment.begin_ns)))
                now = segment.end_ns
    return found


def _gap(
    lost: list[Segment], place: Between, begin: int, end: int, cause: str = "issuing"
) -> list[Segment]:
    """The segments from one operation or wait to the next."""
    found = list(cut(lost, Segment(cause, place, begin, end)))
    own = [segment for segment in found if segment.cause == "issuing"]
    if sum(segment.end_ns - segment.begin_ns for segment in own) > _PROGRAM_NS:
        changed: dict[str, Any] = {"cause": "program"}
    else:
        changed = {"place": place.next} if place.is_line else {}
    return [segment._replace(**changed) if segment in own else segment for segment in found]


def cut(lost: list[Segment], whole: Segment) -> Iterator[Segment]:
    """`whole` without the times that were lost, and these between."""
    _, place, now, end = whole
    first = bisect_right(lost, now, key=_end_ns)
    for cause, site, begin, over in lost[first : bisect_left(lost, end, key=_begin_ns)]:
        begin, over = max(begin, now), min(over, end)
        if over > begin:
            if begin > now:
                yield whole._replace(begin_ns=now, end_ns=begin)
            yield Segment(cause, site or place, begin, over)
            now = over
    if end > now:
        yield whole._replace(begin_ns=now)

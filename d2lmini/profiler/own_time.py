"""What each thread of the program did from one operation or wait to the next.

The time between is cut into segments. While the thread did not compute, the cause is that of
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
from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING, NamedTuple

from d2lmini import callsite
from d2lmini.callsite import Site

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

    def __str__(self) -> str:
        last, following = callsite.describe(self.last), callsite.describe(self.next)
        if self.last is None:
            return "outside of the engine" if self.next is None else following
        if self.next is None:
            return f"after {last}"
        if self.last == self.next:
            return f"between one turn and the next of {last}"
        if callsite.line_of(self.last) == callsite.line_of(self.next):
            return following
        return f"between {last.partition(': ')[0]} and {following}"


class Segment(NamedTuple):
    """A time for which there is one cause, and the place of the program."""

    cause: str
    place: Between | Site | None
    begin_ns: int
    end_ns: int


def own_times(trace: Trace) -> dict[str, list[Segment]]:
    """The segments of each thread, waits among them, in order, from the begin of the trace to its
    end."""
    events: dict[str, list[tuple[int, int, bool, Site | None]]] = defaultdict(list)
    events[trace.thread or "main"] = []
    for operation in trace.operations:
        if not operation.by:
            end_ns = operation.ended_ns if operation.inline else operation.pushed_ns
            events[operation.thread].append((operation.pushed_ns, end_ns, False, operation.site))
    for wait in trace.waits:
        events[wait.thread].append((wait.begin_ns, wait.end_ns, True, wait.site))
    return {thread: _segments(trace, thread, own) for thread, own in events.items()}


def _segments(
    trace: Trace, thread: str, events: list[tuple[int, int, bool, Site | None]]
) -> list[Segment]:
    """The segments of a thread, of its operations and waits."""
    lost = [Segment("gc", pause.site, pause.begin_ns, pause.end_ns) for pause in trace.cpu.pauses]
    lost += [Segment(span.cause, None, *span[1:3]) for span in trace.cpu.spans
             if span.thread == thread]  # fmt: skip
    lost = _one_after_the_other(lost)
    late = [segment for segment in lost if segment.cause == "preempted"]
    found: list[Segment] = []
    now, last = trace.begin_ns, None
    for begin, end, waits, site in sorted(events, key=itemgetter(0, 1)):
        found += _gap(lost, Segment("issuing", Between(last, site), now, begin))
        if waits:
            found += _cut(late, Segment("waits", site, max(now, begin), end))
        now, last = max(now, end), site
    cause, place, left = "issuing" if events else "program", Between(last, None), trace.end_ns
    if trace.left_ns:  # then the trace waited for the end of everything
        left = max(now, trace.left_ns)
    found += _gap(lost, Segment(cause, place, now, left))
    return [*found, *_cut(lost, Segment("unexplained", place, left, trace.end_ns))]


def _one_after_the_other(segments: list[Segment]) -> list[Segment]:
    """The segments in order, without the times that an earlier one has."""
    found: list[Segment] = []
    now = 0
    for segment in sorted(segments, key=_begin_ns):
        if segment.end_ns > now:
            found.append(segment._replace(begin_ns=max(now, segment.begin_ns)))
            now = segment.end_ns
    return found


def _gap(lost: list[Segment], whole: Segment) -> list[Segment]:
    """The segments from one operation or wait to the next."""
    found = list(_cut(lost, whole))
    own_ns = sum(s.end_ns - s.begin_ns for s in found if s.cause == "issuing")
    if own_ns > _PROGRAM_NS:
        found = [s._replace(cause="program") if s.cause == "issuing" else s for s in found]
    return found


def _cut(lost: list[Segment], whole: Segment) -> Iterator[Segment]:
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

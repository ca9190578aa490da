"""The program behind a trace: what each of its threads did, one after the other.

A thread's time consists of its own work, operations that ran inline on the thread, and waits.
Between two events, time that is neither wait nor inline operation is own work: the gap before the
later one.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from d2lmini.callsite import Site
    from d2lmini.profiler.records import Operation, Wait
    from d2lmini.profiler.tracing import Trace

PAUSE = "backpressure"
_ended_ns = attrgetter("ended_ns")


class ThreadEvent(NamedTuple):
    """An activity of a thread: it issued an operation (and ran it, if inline), or waited.

    begin_ns, end_ns  in the recording
    gap_ns    the thread's own time before
    pushed    a wait: number of operations pushed before; else the number of the operation
    at        a wait: its position in trace.waits
    """

    begin_ns: int
    end_ns: int
    gap_ns: int
    pushed: int
    operation: Operation | None
    wait: Wait | None = None
    at: int = -1

    @property
    def pauses(self) -> bool:
        """True if a push waited for room. Its length follows from a bound on pending work."""
        return self.wait is not None and self.wait.kind == PAUSE

    @property
    def site(self) -> Site | None:
        """The line that issued or waited."""
        step = self.operation or self.wait
        return None if step is None or self.pauses else step.site


def events_of(trace: Trace) -> dict[str, list[ThreadEvent]]:
    """The activities of each thread of the program, in order. The first gap of a thread counts from
    the begin of the trace."""
    found: dict[str, list[ThreadEvent]] = defaultdict(list)
    for o in trace.operations:
        if not o.by:
            end_ns = o.ended_ns if o.inline else o.pushed_ns
            found[o.thread].append(ThreadEvent(o.pushed_ns, end_ns, 0, o.number, o))
    for i, wait in enumerate(trace.waits):
        event = ThreadEvent(wait.begin_ns, wait.end_ns, 0, wait.pushed, None, wait, i)
        found[wait.thread].append(event)
    for events in found.values():
        events.sort(key=_place_of)
        last_ns = trace.begin_ns
        for i, event in enumerate(events):
            if event.begin_ns > last_ns:
                events[i] = event._replace(gap_ns=event.begin_ns - last_ns)
            last_ns = max(last_ns, event.end_ns)
    return found


def _place_of(event: ThreadEvent) -> tuple[int, int, int]:
    """The sort key of a thread's events; on a virtual clock many have the same time."""
    return event.begin_ns, event.pushed, event.end_ns if event.operation is None else 0


class Completions:
    """The operations of a trace in the order of their ends, and what waits were for."""

    def __init__(self, trace: Trace):
        self.trace = trace
        ended = (operation for operation in trace.operations if operation.ended_ns)
        self.ended = sorted(ended, key=_ended_ns)
        self._readers: dict[int, list[int]] | None = None

    def last_until(self, when: int) -> Operation | None:
        """The last operation that ended until `when`."""
        k = bisect_right(self.ended, when, key=_ended_ns)
        return self.ended[k - 1] if k else None

    def last_within(self, wait: Wait) -> Operation | None:
        """The operation, issued before a wait, that ended last within it."""
        for k in reversed(range(bisect_right(self.ended, wait.end_ns, key=_ended_ns))):
            if self.ended[k].ended_ns <= wait.begin_ns:
                break
            if self.ended[k].number <= wait.pushed:
                return self.ended[k]
        return None

    def find_awaited(self, wait: Wait) -> tuple[tuple[int, ...] | None, int]:
        """The operations that a wait was for (None: all of them), and the time they were done; 0 if
        none is known."""
        if wait.target is None:
            last = self.last_until(wait.end_ns)
            if wait.kind == PAUSE and last is not None:
                return ((last.number,), last.ended_ns) if last.number <= wait.pushed else ((), 0)
            return None, 0 if last is None else last.ended_ns
        numbers = {wait.operation} if 0 < wait.operation <= wait.pushed else set()
        if wait.kind == "wait_to_write":
            numbers.update(self._read_since(wait))
        operations = self.trace.operations
        return tuple(sorted(numbers)), max((operations[n - 1].ended_ns for n in numbers), default=0)

    def _read_since(self, wait: Wait) -> list[int]:
        """The operations pushed before `wait` that read the awaited Var as last written."""
        if self._readers is None:
            self._readers = defaultdict(list)
            for operation in self.trace.operations:
                for serial in operation.reads:
                    self._readers[serial].append(operation.number)
        numbers = self._readers.get(wait.target or 0, [])
        return numbers[bisect_right(numbers, wait.operation) : bisect_right(numbers, wait.pushed)]

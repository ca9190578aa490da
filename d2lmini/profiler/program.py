"""The program behind a trace: the steps of each of its threads, without the waiting time.

A thread's time consists of its own work, operations that ran inline on the thread, and waits.
Between two events, time that is neither wait nor inline operation is own work: the gap before a
step.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from itertools import accumulate
from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING, NamedTuple

from d2lmini.engine.simulation import ProgramStep

if TYPE_CHECKING:
    from d2lmini.callsite import Site
    from d2lmini.profiler.cpu_time import Span
    from d2lmini.profiler.records import Operation, Wait
    from d2lmini.profiler.tracing import Trace

PAUSE = "backpressure"
_ended_ns = attrgetter("ended_ns")


class ThreadEvent(NamedTuple):
    """An activity of a thread from begin to end: an operation issued (and run, if inline), a wait,
    or neither: time that the replay removes. `pushed`: number of operations before a wait."""

    begin_ns: int
    end_ns: int
    pushed: int
    operation: Operation | None = None
    wait: Wait | None = None

    @property
    def site(self) -> Site | None:
        """The line that issued or waited."""
        step = self.operation or self.wait
        return None if step is None else step.site

    @property
    def is_step(self) -> bool:
        return self.operation is not None or self.wait is not None


def front_ends(
    trace: Trace, dropped: Collection[int], pauses: bool = True, lost: Sequence[Span] = ()
) -> dict[str, list[ProgramStep]]:
    """The steps of each thread of the program, by name, without the operations that others issued
    and the waits at the positions `dropped`. Without `pauses` the garbage collector takes no time,
    and no time passes in what was `lost`.

    A trace does not record which thread started another. A thread is assumed to start at its
    recorded delay after the first thread's previous step. The first thread ends with a wait for
    everything.
    """
    events = events_of(trace, dropped, pauses, lost)
    # Not from `events`: there a thread may begin with a pause, but it is the same program.
    begins = [(o.pushed_ns, o.thread) for o in trace.operations if not o.by]
    begins += [(wait.begin_ns, wait.thread) for wait in trace.waits]
    main = min(begins, key=itemgetter(0), default=(0, "main"))[1]
    mine = events.setdefault(main, [])
    over = [operation.end_ns for operation in mine]
    steps_before = list(accumulate(event.is_step for event in mine))
    starts: dict[int, list[str]] = defaultdict(list)
    base = {main: trace.begin_ns}
    for thread in set(events) - {main}:
        k = bisect_right(over, events[thread][0].begin_ns)
        base[thread] = over[k - 1] if k else trace.begin_ns
        if k and steps_before[k - 1]:
            starts[steps_before[k - 1] - 1].append(thread)
    done = Completions(trace)
    steps = {name: list(_steps(own, base[name], done)) for name, own in events.items()}
    for i, names in starts.items():
        steps[main][i] = steps[main][i]._replace(starts=tuple(names))
    last = max([trace.begin_ns, *over])
    ended = done.last_until(trace.end_ns)
    after = trace.end_ns - max(trace.left_ns, ended.ended_ns if ended else 0)
    steps[main].append(ProgramStep(max(0, trace.left_ns - last), after=max(0, after)))
    return steps


def events_of(
    trace: Trace, dropped: Collection[int] = (), pauses: bool = True, lost: Sequence[Span] = ()
) -> dict[str, list[ThreadEvent]]:
    """The activities of each thread, in order."""
    events: dict[str, list[ThreadEvent]] = defaultdict(list)
    for operation in trace.operations:
        if not operation.by:
            end = operation.ended_ns if operation.inline else operation.pushed_ns
            event = ThreadEvent(operation.pushed_ns, end, 0, operation)
            events[operation.thread].append(event)
    for i, wait in enumerate(trace.waits):
        kept = None if i in dropped or wait.kind == PAUSE else wait
        event = ThreadEvent(wait.begin_ns, wait.end_ns, wait.pushed, None, kept)
        events[wait.thread].append(event)
    for pause in () if pauses else trace.cpu.pauses:
        if pause.thread in events:
            events[pause.thread].append(ThreadEvent(pause.begin_ns, pause.end_ns, 0))
    for span in lost:
        if span.thread in events:
            events[span.thread].append(ThreadEvent(span.begin_ns, span.end_ns, 0))
    for thread in events.values():
        thread.sort(key=_place_of)
    return events


def _place_of(event: ThreadEvent) -> tuple[int, int, int]:
    """The sort key of a thread's events; on a virtual clock many have the same time."""
    if event.operation is not None:
        return event.begin_ns, event.operation.number, 0
    return event.begin_ns, event.pushed, event.end_ns


def _steps(events: Sequence[ThreadEvent], last: int, done: Completions) -> Iterator[ProgramStep]:
    """The events of a thread as steps; `last`: the time from which its first gap counts."""
    gap = 0
    for event in events:
        gap += max(0, event.begin_ns - last)
        last = max(last, event.end_ns)
        if event.operation is not None:
            yield ProgramStep(gap, event.operation.number)
        elif event.wait is not None:
            jobs, when = done.find_awaited(event.wait)
            after = event.end_ns - max(event.begin_ns, min(when, event.end_ns))
            yield ProgramStep(gap, 0, jobs, after, event.wait)
        gap = 0 if event.is_step else gap


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


def bound_of(trace: Trace) -> tuple[list[float] | None, float | None]:
    """The weight of each operation, its bytes, to which the bound applies; and the largest pending
    weight when a paused push continued. None if no push paused."""
    ends = [wait.end_ns for wait in trace.waits if wait.kind == PAUSE]
    if not ends:
        return None, None
    weights = [operation.nbytes or 1.0 for operation in trace.operations]
    pushed = [operation.pushed_ns for operation in trace.operations]
    came = [0.0, *accumulate(weights)]
    over = sorted(
        (operation.ended_ns, weight)
        for operation, weight in zip(trace.operations, weights, strict=True)
    )
    went = [0.0, *accumulate(weight for _, weight in over)]
    # The paused operation is pushed right after, and counts.
    return weights, max(
        came[min(bisect_right(pushed, end) + 1, len(weights))]
        - went[bisect_right(over, end, key=lambda ended: ended[0])]
        for end in ends
    )

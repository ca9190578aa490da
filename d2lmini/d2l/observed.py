"""The inside of one round of a candidate: read from a trace, not only from the clock.

Timed rounds run undisturbed. One more round runs under `profile()`, which shows what a stopwatch
cannot: how long the function itself waited and at which lines, how long its operations took, and
which of them depended on which. `explain.py` derives from this why two candidates take the same
time.

>>> from d2lmini import nd, profile
>>> with profile() as trace:
...     y = nd.ones((2, 2)) + 1
>>> seen = summarize(trace, begin_s=trace.begin_ns / 1e9, returned_s=trace.end_ns / 1e9)
>>> seen.operations, seen.inline, seen.waits
(2.0, 2.0, {})
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from d2lmini.base import callsite
from d2lmini.profiler.records import this_thread

if TYPE_CHECKING:
    from d2lmini.profiler import Operation, Trace


@dataclass(frozen=True)
class Observed:
    """One call of a candidate, on average over the calls of the observed round; times in seconds.

    operations    number of pushed operations; inline: those that ran on the calling thread
    returned_s    until the call returned; wait_s: the part of it in the function's own waits
    drain_s       from then until nothing was in flight
    in_flight     operations that were pending when the last call returned
    work_s        the workers' time, added up; inline_s: the caller's time for inline operations
    chain_s       the part of that time that was serial: the longest chain of operations in which
                  each depends on the previous one
    longest       the longest operation: its name and its time
    workers       threads that serve the places where its operations ran
    waits         {line: (times, seconds)} of the waits after which the call pushed more
    """

    operations: float
    inline: float
    returned_s: float
    wait_s: float
    drain_s: float
    in_flight: int
    work_s: float
    inline_s: float
    chain_s: float
    workers: int
    longest: tuple[str, float] = ("", 0.0)
    waits: dict[str, tuple[float, float]] = field(default_factory=dict)

    @property
    def issue_s(self) -> float:
        """The caller's own time: pushing, and whatever the function computes itself."""
        return self.returned_s - self.wait_s

    @property
    def total_s(self) -> float:
        """The time until all its work was done."""
        return self.returned_s + self.drain_s


def summarize(
    trace: Trace,
    begin_s: float,
    returned_s: float,
    marks: Sequence[int] = (),
    in_flight: int = 0,
) -> Observed:
    """Sum up a trace of calls that began at `begin_s` and had returned at `returned_s` (seconds of
    `time.perf_counter`). marks: how many operations had been pushed when each call returned; one
    call if none is given."""
    operations = trace.operations
    marks = marks or [len(operations)]
    calls = len(marks)
    thread = this_thread()
    # Another thread's waits, and anything outside the calls, are no part of a call's time.
    waits = [
        wait
        for wait in trace.waits
        if wait.thread == thread and begin_s <= wait.begin_ns / 1e9 <= returned_s
    ]
    lines: dict[str, tuple[float, float]] = {}
    ends = set(marks)
    for wait in waits:
        if wait.pushed not in ends:
            line = callsite.describe(wait.site).partition(": ")[0]
            times, seconds = lines.get(line, (0.0, 0.0))
            lines[line] = (times + 1 / calls, seconds + wait.seconds / calls)
    inline = [operation for operation in operations if operation.inline]
    inline_ns = sum(operation.run_ns for operation in inline)
    all_ns = sum(operation.run_ns for operation in operations)
    places = {operation.place for operation in operations if not operation.inline}
    return Observed(
        operations=len(operations) / calls,
        inline=len(inline) / calls,
        returned_s=(returned_s - begin_s) / calls,
        wait_s=sum(wait.seconds for wait in waits) / calls,
        drain_s=max(trace.end_ns / 1e9 - returned_s, 0.0) / calls,
        in_flight=in_flight,
        work_s=(all_ns - inline_ns) / 1e9 / calls,
        inline_s=inline_ns / 1e9 / calls,
        chain_s=_longest_chain_ns(trace, operations) / 1e9 / calls,
        workers=sum(trace.workers.get(place, 1) for place in places),
        longest=_longest(operations, marks),
        waits=lines,
    )


def _longest_chain_ns(trace: Trace, operations: Sequence[Operation]) -> int:
    """The longest serial chain, on whatever threads it runs."""
    lengths = [0]
    for operation in operations:
        before = (*trace.needs(operation.number), *trace.makes_room(operation.number))
        lengths.append(operation.run_ns + max((lengths[n] for n in before), default=0))
    return max(lengths)


def _longest(operations: Sequence[Operation], marks: Sequence[int]) -> tuple[str, float]:
    """Name and seconds of a call's longest operation, from the averages over the calls."""
    calls = [operations[begin:end] for begin, end in zip([0, *marks], marks)]
    longest = [max(call, key=lambda operation: operation.run_ns) for call in calls if call]
    if not longest:
        return "", 0.0
    return longest[0].name, sum(operation.run_ns for operation in longest) / 1e9 / len(longest)

"""CPU time of operations: how long an operation computed, and why it did not compute meanwhile.

A trace reads the CPU clock of the thread at the start and the end of each operation that a worker
runs. On Linux it also reads how long the thread was ready to run but had no core, if the operation
is expected to take 0.1 ms or more. The rest of the operation's duration is *off the CPU*:

preempted   other threads or programs had the cores; known on Linux only
gc          Python's garbage collector ran, which stops all Python code of the process
gil         the thread waited for Python's global interpreter lock. Operations of the library
            neither sleep nor read files, so the rest of their time is this. For a function that
            the program pushed, it is at most the CPU time of other Python code meanwhile
blocked     what is left. A pushed function slept, read a file, or waited for a lock. The cause is
            not known of operations shorter than 0.1 ms, and where the system is silent

>>> import time
>>> from d2lmini import engine, profile
>>> with profile() as trace:
...     engine.push(lambda: time.sleep(0.01))
>>> parts = trace.off_cpu()[1]
>>> parts.blocked > 5e6, parts.gil
(True, 0)
"""

from __future__ import annotations

import gc
import time
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from d2lmini import callsite
from d2lmini.callsite import Site
from d2lmini.engine.thread_clock import delay_of
from d2lmini.profiler.threads import this_thread

if TYPE_CHECKING:
    from d2lmini.profiler.records import Operation

#: Pauses shorter than this are too many to keep.
_SHORTEST_PAUSE_NS = 50_000

#: Operations expected to take this long or longer are asked for preemption, which costs 1.5 us.
LONG_US = 100.0


class CpuTime(NamedTuple):
    """What a thread spent on an operation.

    ns          CPU time
    delayed_ns  the thread was ready to run, and had no core; None if this is not known
    pushed      a function that the program pushed, rather than an operation of the library
    """

    ns: int
    delayed_ns: int | None
    pushed: bool


class Pause(NamedTuple):
    """A run of the garbage collector, on the thread `thread` at the line `site`."""

    begin_ns: int
    end_ns: int
    thread: str
    site: Site | None


class OffCpu(NamedTuple):
    """The parts of an operation's duration that were not spent on computing it, in ns; see the
    module."""

    preempted: int = 0
    gc: int = 0
    gil: int = 0
    blocked: int = 0

    @property
    def ns(self) -> int:
        """All parts together."""
        return sum(self)


class CpuTimes:
    """Reads the clocks of threads for a trace.

    times   operation number -> CpuTime
    pauses  those of the garbage collector, in order
    """

    def __init__(self) -> None:
        self.times: dict[int, CpuTime] = {}
        self.pauses: list[Pause] = []
        #: number, whether the program pushed it, clocks at the start, at the end
        self.readings: list[tuple[int, bool, tuple[int, bytes], tuple[int, bytes]]] = []
        self._collects_since = 0

    def begin(self) -> None:
        """Listen to the garbage collector."""
        gc.callbacks.append(self._collect)

    def finish(self) -> None:
        """Stop listening; compute `times`."""
        if self._collect in gc.callbacks:
            gc.callbacks.remove(self._collect)
        for number, pushed, (began_ns, before), (ended_ns, after) in self.readings:
            delayed_ns = delay_of(after) - delay_of(before) if before else None
            self.times[number] = CpuTime(ended_ns - began_ns, delayed_ns, pushed)
        self.readings.clear()

    def _collect(self, phase: str, info: dict[str, Any]) -> None:
        now = time.perf_counter_ns()
        if phase == "start":
            self._collects_since = now
        elif now - self._collects_since >= _SHORTEST_PAUSE_NS:
            pause = Pause(self._collects_since, now, this_thread(), callsite.find())
            self.pauses.append(pause)


def split_off_cpu(
    operations: Sequence[Operation], times: dict[int, CpuTime], pauses: Iterable[Pause]
) -> dict[int, OffCpu]:
    """The parts off the CPU of each operation whose CPU time is known. Each rank of a merged trace
    has a lock of its own."""
    collections = Intervals((pause.begin_ns, pause.end_ns, 1.0) for pause in pauses)
    ranks: dict[int, list[Operation]] = defaultdict(list)
    for operation in operations:
        if operation.run_ns and operation.number in times:
            ranks[getattr(operation, "rank", -1)].append(operation)
    parts = {}
    for own in ranks.values():
        python = Intervals(
            (operation.began_ns, operation.ended_ns, times[operation.number].ns / operation.run_ns)
            for operation in own
            if times[operation.number].pushed
        )
        for operation in own:
            time_of = times[operation.number]
            begin, end = operation.began_ns, operation.ended_ns
            off_ns = max(0, operation.run_ns - time_of.ns)
            preempted = min(off_ns, time_of.delayed_ns or 0)
            left_ns = off_ns - preempted
            collected = min(left_ns, int(collections.within(begin, end)))
            gil = left_ns = left_ns - collected
            if time_of.pushed:
                gil = min(left_ns, max(0, int(python.within(begin, end)) - time_of.ns))
            elif time_of.delayed_ns is None:
                gil = 0
            parts[operation.number] = OffCpu(preempted, collected, gil, left_ns - gil)
    return parts


class Intervals:
    """Weighted intervals of time; `within` sums their weighted overlap with another interval."""

    def __init__(self, intervals: Iterable[tuple[int, int, float]]):
        steps: dict[int, float] = {}
        for begin, end, weight in intervals:
            steps[begin] = steps.get(begin, 0.0) + weight
            steps[end] = steps.get(end, 0.0) - weight
        self.times = sorted(steps)
        self.sums, self.rates = [], []  # the sum up to each time, and the rate from there on
        total = rate = 0.0
        before = 0
        for now in self.times:
            total += rate * (now - before)
            rate += steps[now]
            before = now
            self.sums.append(total)
            self.rates.append(rate)

    def within(self, begin: int, end: int) -> float:
        """The weighted overlap with the interval."""
        return self._until(end) - self._until(begin)

    def _until(self, now: int) -> float:
        k = bisect_left(self.times, now) - 1
        return self.sums[k] + self.rates[k] * (now - self.times[k]) if k >= 0 else 0.0

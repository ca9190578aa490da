"""What threads did while they did not compute: the evidence for causes of lost time.

A trace *reads* what a thread has used so far (`engine.thread_clock`) where the thread goes from one
activity to the next: operations, waits, and the program's own code between. That takes 4 us, so it
reads where a long operation begins or ends, else every two milliseconds. Short activities are asked
in sum, and share the answer by their durations. Their time, less the CPU time, was *off the CPU*:

preempted   the thread had no core, as the kernel counts: other threads or programs had the cores
gc          Python's garbage collector ran, which stops all Python code of the process
blocked     the thread slept: `time.sleep`, a file, a lock; also Python's global lock, which the
            kernel does not tell apart. Only functions that the program pushed, and its own code:
            operations of the library have locks of their own, which are held briefly
unexplained what is left: the kernel does not say, or a thread without a core may have kept a lock

>>> import time
>>> from d2lmini import engine, profile
>>> with profile() as trace:
...     engine.push(lambda: time.sleep(0.01))
>>> trace.off_cpu()[1].blocked > 5e6
True

An operation on a device of a given rate sleeps until the time of the device has passed: work.
"""

from __future__ import annotations

import gc
import threading
import time
from bisect import bisect_left
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from d2lmini.base import callsite
from d2lmini.base.callsite import Site
from d2lmini.engine.thread_clock import Reading, counts_of_threads, delay_of, read
from d2lmini.profiler.recorder import this_thread

if TYPE_CHECKING:
    from d2lmini.profiler.records import Operation

#: Pauses shorter than this are too many to keep.
_SHORTEST_PAUSE_NS = 50_000
#: A reading at least so often; and where an operation begins or ends that is expected to take
#: `LONG_US`, unless the last reading is recent.
_OFTEN_NS = 2_000_000
_RECENT_NS = 100_000
LONG_US = 1000.0


class CpuTime(NamedTuple):
    """What a thread spent on an operation.

    ns          CPU time, or the time of the device if that has a given rate
    delayed_ns  the thread was ready to run, and had no core; None if this is not known
    pushed      a function that the program pushed, rather than an operation of the library
    blocked_ns  as in the module
    """

    ns: int
    delayed_ns: int | None
    pushed: bool
    blocked_ns: int = 0


class Pause(NamedTuple):
    """A run of the garbage collector, on the thread `thread` at the line `site`."""

    begin_ns: int
    end_ns: int
    thread: str
    site: Site | None


class Span(NamedTuple):
    """A time in which a thread had no operation and did not compute, for `cause`."""

    thread: str
    begin_ns: int
    end_ns: int
    cause: str


class OffCpu(NamedTuple):
    """The parts of an operation's duration that were not spent on computing it, in ns; see the
    module."""

    preempted: int = 0
    gc: int = 0
    blocked: int = 0
    unexplained: int = 0

    @property
    def ns(self) -> int:
        """All parts together."""
        return sum(self)


class ThreadReadings:
    """The readings of a thread, each with its time."""

    __slots__ = ("due_ns", "name", "number", "readings", "works")

    def __init__(self) -> None:
        self.readings: list[tuple[int, Reading]] = []
        self.due_ns = 0  # the time of the next reading
        self.works = False  # as a worker of the engine
        self.name = this_thread()
        self.number = threading.get_native_id()


class CpuTimes:
    """Reads the clocks of threads for a trace.

    times   operation number -> CpuTime
    spans   when threads did not compute: of the program's own time, between operations of workers
    pauses  those of the garbage collector, in order
    pushed  numbers of operations that are functions of the program
    device_ns   operation number -> its time on a device of a given rate
    """

    def __init__(self) -> None:
        self.times: dict[int, CpuTime] = {}
        self.spans: list[Span] = []
        self.pauses: list[Pause] = []
        self.pushed: set[int] = set()
        self.device_ns: dict[int, int] = {}
        self._threads: list[ThreadReadings] = []
        self._local: Any = threading.local()
        self._counts: dict[int, bytes] = {}
        self._collects_since = 0

    def begin(self) -> None:
        """Listen to the garbage collector."""
        self._counts = counts_of_threads()
        gc.callbacks.append(self._collect)

    def note(self, now_ns: int, long: bool = False) -> ThreadReadings:
        """This thread begins or ends an operation, or one that is `long`, or a wait: read, if it is
        time."""
        try:
            mine: ThreadReadings = self._local.mine
        except AttributeError:
            mine = self._local.mine = ThreadReadings()
            self._threads.append(mine)
        if now_ns >= mine.due_ns or (long and now_ns >= mine.due_ns - _OFTEN_NS + _RECENT_NS):
            mine.due_ns = now_ns + _OFTEN_NS
            mine.readings.append((now_ns, read()))
        return mine

    def finish(self, begin_ns: int, end_ns: int) -> tuple[list[ThreadReadings], int]:
        """Stop listening; the threads, with readings at the begin and the end of the trace, and how
        long all threads of the process together had no core."""
        if self._collect in gc.callbacks:
            gc.callbacks.remove(self._collect)
        # Ctrl-C may have come before a thread's first reading.
        threads = [thread for thread in self._threads if thread.readings]
        self._threads, self._local = [], threading.local()
        begun, ended = self._counts, counts_of_threads()
        for thread in threads:
            (_, first), (_, last) = thread.readings[0], thread.readings[-1]
            if first.counts:
                counts = begun.get(thread.number, b"0 0 0")
                thread.readings.insert(0, (begin_ns, _asleep_since(counts, first)))
            if thread.number == threading.get_native_id():
                last = read()
            elif last.counts and thread.number in ended:
                last = _asleep_since(ended[thread.number], last)
            thread.readings.append((end_ns, last))
        delayed_ns = sum(delay_of(ended[k]) - delay_of(begun.get(k, b"0 0 0")) for k in ended)
        return threads, delayed_ns

    def _collect(self, phase: str, info: dict[str, Any]) -> None:
        now = time.perf_counter_ns()
        if phase == "start":
            self._collects_since = now
        elif now - self._collects_since >= _SHORTEST_PAUSE_NS:
            pause = Pause(self._collects_since, now, this_thread(), callsite.find())
            self.pauses.append(pause)


def _asleep_since(counts: bytes, reading: Reading) -> Reading:
    """The reading of another thread that was idle when the kernel counted."""
    return Reading(int(counts.split()[0]), counts, reading.sleeps)


def split_off_cpu(
    operations: Iterable[Operation], times: Mapping[int, CpuTime], pauses: Iterable[Pause]
) -> dict[int, OffCpu]:
    """The parts off the CPU of each operation whose CPU time is known."""
    collections = Intervals((pause.begin_ns, pause.end_ns, 1.0) for pause in pauses)
    parts = {}
    for operation in operations:
        if operation.run_ns and operation.number in times:
            spent = times[operation.number]
            off_ns = max(0, operation.run_ns - spent.ns)
            preempted = min(off_ns, spent.delayed_ns or 0)
            left_ns = off_ns - preempted
            within_ns = int(collections.within(operation.began_ns, operation.ended_ns))
            collected = min(left_ns, within_ns)
            left_ns -= collected
            blocked = min(left_ns, spent.blocked_ns)
            parts[operation.number] = OffCpu(preempted, collected, blocked, left_ns - blocked)
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

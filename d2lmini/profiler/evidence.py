"""What threads did while they did not compute: the evidence for causes of lost time.

A trace *reads* what a thread has used so far (`engine.thread_clock`) where the thread goes from one
activity to the next: operations, waits, and the program's own code between. That takes 4 us, so it
reads where a long operation begins or ends, else every two milliseconds. Between two readings of a
thread lie short activities: how long the thread was *off the CPU*, how long of that without a core,
and how often it fell asleep, is known of all together. Operations and own code share this by their
durations. If the thread had no core for longer than they were off the CPU, it was late: after a
wait, or between two operations of a worker. Causes are:

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
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from math import ceil
from typing import TYPE_CHECKING, Any, NamedTuple

from d2lmini.base import callsite
from d2lmini.base.callsite import Site
from d2lmini.engine.thread_clock import Reading, counts_of_threads, delay_of, read
from d2lmini.profiler.event_graph import events_of
from d2lmini.profiler.records import BEGINS, ENDS, this_thread

if TYPE_CHECKING:
    from d2lmini.profiler.records import Operation
    from d2lmini.profiler.tracing import Trace

#: Pauses, and times off the CPU, that are shorter are too many to keep.
_SHORTEST_PAUSE_NS, _SHORTEST_SPAN_NS = 50_000, 10_000
#: A reading at least so often; and where an operation begins or ends that is expected to take
#: `LONG_US`, unless the last reading is recent.
_OFTEN_NS = 2_000_000
_RECENT_NS = 100_000
LONG_US = 1000.0
#: Sleeps shorter than this are those of any program: for the locks of engine, memory and NumPy.
_SHORTEST_KNOWN_NS = 200_000
#: A wait shorter than this needs no sleep.
_SHORTEST_SLEEP_NS = 20_000


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


@dataclass(slots=True)
class ThreadReadings:
    """The readings of a thread, each with its time; when the next is due, and whether the thread
    works for the engine."""

    readings: list[tuple[int, Reading]] = field(default_factory=list)
    due_ns: int = 0
    works: bool = False
    name: str = field(default_factory=this_thread)
    number: int = field(default_factory=threading.get_native_id)


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
        self._busy: list[Step] = []  # of all threads
        self._delays: list[tuple[int, int, float]] = []  # of threads without a core

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

    def finish(self, trace: Trace) -> None:
        """Stop listening, and enter what the readings say into `times` and `spans`."""
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
                thread.readings.insert(0, (trace.begin_ns, _asleep_since(counts, first)))
            if thread.number == threading.get_native_id():
                last = read()
            elif last.counts and thread.number in ended:
                last = _asleep_since(ended[thread.number], last)
            thread.readings.append((trace.end_ns, last))
        self.judge(trace, threads)

    def _collect(self, phase: str, info: dict[str, Any]) -> None:
        now = time.perf_counter_ns()
        if phase == "start":
            self._collects_since = now
        elif now - self._collects_since >= _SHORTEST_PAUSE_NS:
            pause = Pause(self._collects_since, now, this_thread(), callsite.find())
            self.pauses.append(pause)

    def off_cpu(self, operations: Iterable[Operation]) -> dict[int, OffCpu]:
        """The parts off the CPU of each operation whose CPU time is known."""
        collections = Intervals((pause.begin_ns, pause.end_ns, 1.0) for pause in self.pauses)
        found = {}
        for operation in operations:
            spent = self.times.get(operation.number)
            if spent is None or not operation.run_ns:
                continue
            left_ns, parts = max(0, operation.run_ns - spent.ns), []
            collected_ns = int(collections.within(operation.began_ns, operation.ended_ns))
            for most_ns in (spent.delayed_ns or 0, collected_ns, spent.blocked_ns):
                parts.append(min(left_ns, most_ns))
                left_ns -= parts[-1]
            found[operation.number] = OffCpu._make([*parts, left_ns])
        return found

    def judge(self, trace: Trace, threads: Sequence[ThreadReadings]) -> None:
        """Enter what the readings of `threads` say."""
        steps_of_thread = steps_of(trace)
        for thread in threads:
            steps = steps_of_thread[thread.name]
            for (begin, first), (end, last) in pairwise(thread.readings):
                low = bisect_left(steps, begin, key=BEGINS)
                within = steps[low : bisect_right(steps, end, key=ENDS)]
                idle = [s for s in within if s.what == WAIT or (s.what == OWN and thread.works)]
                busy = [s for s in within if s not in idle]
                self._enter_late(idle, self._share(busy, idle, first, last))
        self._enter(trace.shared)

    def _share(self, busy: list[Step], idle: list[Step], first: Reading, last: Reading) -> float:
        """The busy steps share what is known of them; returns how long the thread had no core
        beyond that."""
        known = first.counts and last.counts
        delay_ns = delay_of(last.counts) - delay_of(first.counts) if known else 0
        device_ns = self.device_ns
        most = [max(0, step.ns - device_ns.get(step.what, 0)) for step in busy]
        paced = any(step.what in device_ns for step in busy)
        slept = sum(step.due_ns - step.begin_ns > _SHORTEST_SLEEP_NS for step in idle)
        sleeps = max(0, last.sleeps - first.sleeps - slept)
        off_ns = max(0, sum(most) - (0 if paced else last.cpu_ns - first.cpu_ns))
        delayed_ns = min(off_ns, delay_ns)
        for step, ns in zip(busy, most):
            share = ns / (sum(most) or 1)
            step.off_ns, step.sleeps = off_ns * share, ceil(sleeps * share)
            if known:
                step.delayed_ns = delayed_ns * share
                self._delays.append((step.begin_ns, step.end_ns, step.delayed_ns / step.ns))
        self._busy += busy
        return delay_ns - delayed_ns

    def _enter_late(self, idle: list[Step], left_ns: float) -> None:
        """The thread had no core for `left_ns` when the idle steps were to end, or else when they
        had begun."""
        late = [(step, step.due_ns, step.end_ns) for step in idle]
        early = [(step, step.begin_ns, step.due_ns) for step in idle]
        for windows in (late, early):
            total = sum(end - begin for _, begin, end in windows)
            share = min(1.0, max(0.0, left_ns) / (total or 1))
            for step, begin, end in windows:
                ns = share * (end - begin)
                at_end = windows is late or step.what == WAIT
                self._enter_span(step.thread, end - ns if at_end else begin, ns, "preempted")
                self._delays.append((step.begin_ns, step.end_ns, ns / step.ns))
            left_ns -= total

    def _enter(self, shared: Collection[int]) -> None:
        """Enter all that is known."""
        collections = Intervals((p.begin_ns, p.end_ns, 1.0) for p in self.pauses)
        without_core = Intervals(self._delays)
        for step in self._busy:
            number, delayed_ns = step.what, step.delayed_ns or 0.0
            pushed = number in self.pushed
            collected_ns = collections.within(step.begin_ns, step.end_ns)
            asleep_ns = max(0.0, step.off_ns - delayed_ns - collected_ns)
            blocked_ns = 0.0
            long = step.sleeps and asleep_ns >= step.sleeps * _SHORTEST_KNOWN_NS
            if step.delayed_ns is not None and (pushed or number == OWN) and long:
                # A thread without a core may have kept a lock that this one waited for.
                kept_ns = max(0.0, without_core.within(step.begin_ns, step.end_ns) - delayed_ns)
                blocked_ns = max(0.0, asleep_ns - kept_ns)
            if number == OWN:
                parts = delayed_ns, blocked_ns, asleep_ns - blocked_ns
                now = float(step.begin_ns)
                for cause, ns in zip(("preempted", "blocked", "unexplained"), parts):
                    self._enter_span(step.thread, now, ns, cause)
                    now += ns
                continue
            if number in shared:  # it waited for its helpers, which computed
                step.off_ns = delayed_ns
            known = None if step.delayed_ns is None else round(delayed_ns)
            spent_ns = round(step.ns - step.off_ns)
            self.times[number] = CpuTime(spent_ns, known, pushed, round(blocked_ns))
        self.spans.sort()

    def _enter_span(self, thread: str, begin_ns: float, ns: float, cause: str) -> None:
        if ns >= _SHORTEST_SPAN_NS:
            self.spans.append(Span(thread, round(begin_ns), round(begin_ns + ns), cause))


def _asleep_since(counts: bytes, reading: Reading) -> Reading:
    """The reading of another thread that was idle when the kernel counted."""
    return Reading(int(counts.split()[0]), counts, reading.sleeps)


class Intervals:
    """Weighted intervals of time; `within` sums their weighted overlap with another interval."""

    def __init__(self, intervals: Iterable[tuple[int, int, float]]):
        steps: dict[int, float] = defaultdict(float)
        for begin, end, weight in intervals:
            steps[begin] += weight
            steps[end] -= weight
        self.times = sorted(steps)
        self.rates = list(accumulate(steps[now] for now in self.times))  # from each time on
        sums = (rate * (b - a) for rate, (a, b) in zip(self.rates, pairwise(self.times)))
        self.sums = list(accumulate(sums, initial=0.0))  # up to each time

    def within(self, begin: int, end: int) -> float:
        """The weighted overlap with the interval."""
        return self._until(end) - self._until(begin)

    def _until(self, now: int) -> float:
        k = bisect_left(self.times, now) - 1
        return self.sums[k] + self.rates[k] * (now - self.times[k]) if k >= 0 else 0.0


# -- what the readings say -------------------------------------------------------------------------

#: What a thread does, other than the operation of a number.
OWN, WAIT = 0, -1


@dataclass(slots=True, eq=False)
class Step:
    """A time of a thread. `what`: an operation that it ran, WAIT, or OWN: nothing of this.
    due_ns: when it was to end, if it did not compute: a worker's next operation was ready. Known
    from readings: how long the thread was off the CPU, how long of that without a core (None: not
    known), and how often it fell asleep."""

    thread: str
    begin_ns: int
    end_ns: int
    what: int
    due_ns: int
    off_ns: float = 0.0
    delayed_ns: float | None = None
    sleeps: int = 0

    @property
    def ns(self) -> int:
        """Its duration."""
        return self.end_ns - self.begin_ns


def steps_of(trace: Trace) -> dict[str, list[Step]]:
    """The steps of each thread, one after the other from the begin of the trace to its end."""
    done: dict[str, list[Step]] = defaultdict(list)  # without the time between
    done[trace.thread or "main"] = []
    for thread, events in events_of(trace).items():
        for e in events:
            what, ready_ns = (e.pushed, e.begin_ns) if e.operation else (WAIT, e.end_ns)
            done[thread].append(Step(thread, e.begin_ns, e.end_ns, what, ready_ns))
    for o in trace.operations:
        if o.ran and not o.inline:
            done[o.worker].append(Step(o.worker, o.began_ns, o.ended_ns, o.number, o.ready_ns))
    found: dict[str, list[Step]] = defaultdict(list)
    for thread, steps in done.items():
        # The thread that profiles waits for the end of everything.
        left_ns = (thread == trace.thread and trace.left_ns) or trace.end_ns
        last = Step(thread, left_ns, trace.end_ns, WAIT, left_ns)
        now = trace.begin_ns
        for step in [*sorted(steps, key=BEGINS), last]:
            begin, end = max(step.begin_ns, now), max(step.end_ns, now)
            if begin > now:
                due_ns = min(max(now, step.due_ns), begin)
                found[thread].append(Step(thread, now, begin, OWN, due_ns))
            if end > begin:
                found[thread].append(Step(thread, begin, end, step.what, end))
            now = end
    return found

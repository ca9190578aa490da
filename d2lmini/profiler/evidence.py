"""What the readings of threads say about the time in which they did not compute.

Between two readings of a thread lie activities: operations, waits, and the program's own code. How
long the thread was off the CPU, how long of that without a core, and how often it fell asleep, is
known of all together. Operations and own code share this by their durations. If the thread had no
core for longer than they were off the CPU, it was late: after a wait, or between two operations of
a worker. `cpu_time` says what a sleep may have been.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise
from math import ceil
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple

from d2lmini.engine.thread_clock import Reading, delay_of
from d2lmini.profiler.cpu_time import CpuTime, Intervals, Span, ThreadReadings
from d2lmini.profiler.event_graph import events_of

if TYPE_CHECKING:
    from d2lmini.profiler.tracing import Trace

#: Times off the CPU that are shorter are too many to keep.
_SHORTEST_SPAN_NS = 10_000
#: Sleeps shorter than this are those of any program: for the locks of engine, memory and NumPy.
_SHORTEST_KNOWN_NS = 200_000
#: A wait shorter than this needs no sleep.
_SHORTEST_SLEEP_NS = 20_000


#: What a thread does, other than the operation of a number.
OWN, WAIT = 0, -1


class Step(NamedTuple):
    """A time of a thread. `what`: an operation that it ran, WAIT, or OWN: nothing of this.
    due_ns: when it was to end, if it did not compute: a worker's next operation was ready."""

    begin_ns: int
    end_ns: int
    what: int
    due_ns: int

    @property
    def ns(self) -> int:
        """Its duration."""
        return self.end_ns - self.begin_ns


class Activity(NamedTuple):
    """A step of a thread: how long it was off the CPU, how long of that without a core (None: not
    known), and how often it fell asleep."""

    thread: str
    step: Step
    off_ns: float
    delayed_ns: float | None
    sleeps: int


def steps_of(trace: Trace) -> dict[str, list[Step]]:
    """The steps of each thread, one after the other from the begin of the trace to its end."""
    done: dict[str, list[Step]] = defaultdict(list)  # without the time between
    done[trace.thread or "main"] = []
    for thread, events in events_of(trace).items():
        for e in events:
            ready_ns = e.begin_ns if e.operation else e.end_ns
            done[thread].append(
                Step(e.begin_ns, e.end_ns, e.pushed if e.operation else WAIT, ready_ns)
            )
    for o in trace.operations:
        if o.ran and not o.inline:
            done[o.worker].append(Step(o.began_ns, o.ended_ns, o.number, o.ready_ns))
    found: dict[str, list[Step]] = {}
    for thread, own in done.items():
        steps = found[thread] = []
        now = trace.begin_ns
        last = trace.end_ns
        if thread == trace.thread:  # it waits for the end of everything
            last = trace.left_ns or last
        for begin, end, what, ready in [
            *sorted(own, key=itemgetter(0)),
            Step(last, trace.end_ns, WAIT, last),
        ]:
            begin, end = max(begin, now), max(end, now)
            if begin > now:
                steps.append(Step(now, begin, OWN, min(max(now, ready), begin)))
            if end > begin:
                steps.append(Step(begin, end, what, end))
            now = end
    return found


class Evidence:
    """Fills `trace.cpu.times` and `trace.cpu.spans`."""

    def __init__(self, trace: Trace):
        self.trace = trace
        self.cpu = trace.cpu
        self.steps = steps_of(trace)
        self._activities: list[Activity] = []
        self._delays: list[tuple[int, int, float]] = []  # of threads between operations

    def judge(self, threads: Sequence[ThreadReadings], delayed_ns: int) -> None:
        """Enter what the readings of `threads` say. All threads of the process together, helpers of
        operations that were split among them, had no core for `delayed_ns`."""
        self._enter(delayed_ns - sum(map(self._add, threads)))

    def _add(self, thread: ThreadReadings) -> int:
        """Take in the readings of a thread; returns how long it had no core."""
        steps = self.steps.get(thread.name, [])
        had_none_ns = 0
        for (begin, first), (end, last) in pairwise(thread.readings):
            delay_ns = None
            if first.counts and last.counts:
                delay_ns = delay_of(last.counts) - delay_of(first.counts)
                had_none_ns += delay_ns
            low, high = bisect_left(steps, (begin,)), bisect_right(steps, end, key=itemgetter(1))
            within = steps[low:high]
            idle = [s for s in within if s.what == WAIT or (s.what == OWN and thread.works)]
            busy = [s for s in within if s not in idle]
            left_ns = self._enter_busy(thread.name, busy, idle, first, last, delay_ns)
            if left_ns > 0:
                self._enter_idle(thread.name, idle, left_ns)
        return had_none_ns

    def _enter_busy(
        self, thread: str, busy: Sequence[Step], idle: Sequence[Step], first: Reading,
        last: Reading, delay_ns: int | None,
    ) -> float:  # fmt: skip
        """The steps share what is known of them; returns how long the thread had no core beyond
        that."""
        device_ns = self.cpu.device_ns
        most = [max(0, s.end_ns - s.begin_ns - device_ns.get(s.what, 0)) for s in busy]
        paced = any(s.what in device_ns for s in busy)
        slept = sum(s.due_ns - s.begin_ns > _SHORTEST_SLEEP_NS for s in idle)
        sleeps = max(0, last.sleeps - first.sleeps - slept)
        off_ns = max(0, sum(most) - (0 if paced else last.cpu_ns - first.cpu_ns))
        delayed_ns = min(off_ns, delay_ns or 0)
        for step, ns in zip(busy, most):
            share = ns / (sum(most) or 1)
            delayed = None if delay_ns is None else delayed_ns * share
            self._activities.append(
                Activity(thread, step, off_ns * share, delayed, ceil(sleeps * share))
            )
        return (delay_ns or 0) - delayed_ns

    def _enter_idle(self, thread: str, idle: Sequence[Step], left_ns: float) -> None:
        """The thread had no core for `left_ns` when the idle steps were to end, or else when they
        had begun."""
        late = [s.end_ns - s.due_ns for s in idle]
        rest = [s.due_ns - s.begin_ns for s in idle]
        for step, late_ns, rest_ns in zip(idle, late, rest):
            ns = min(late_ns, left_ns * late_ns / (sum(late) or 1))
            self._enter_span(thread, step.end_ns - ns, ns, "preempted")
            more_ns = min(rest_ns, max(0, left_ns - sum(late)) * rest_ns / (sum(rest) or 1))
            begin = step.due_ns - more_ns if step.what == WAIT else step.begin_ns
            self._enter_span(thread, begin, more_ns, "preempted")
            if step.end_ns > step.begin_ns:
                share = (ns + more_ns) / (step.end_ns - step.begin_ns)
                self._delays.append((step.begin_ns, step.end_ns, share))

    def _enter(self, others_ns: int) -> None:
        """Enter all that is known. Threads that were not read had no core for `others_ns`."""
        shared = self.trace.shared
        collections = Intervals((p.begin_ns, p.end_ns, 1.0) for p in self.cpu.pauses)
        delays = [(a.step.begin_ns, a.step.end_ns, a.delayed_ns / a.step.ns)
                  for a in self._activities if a.delayed_ns]  # fmt: skip
        without_core = Intervals(delays + self._delays)
        awaited = {a.step.what: self._awaited_ns(a) for a in self._activities
                   if a.step.what in shared}  # fmt: skip
        scale = min(1.0, max(0, others_ns) / (sum(awaited.values()) or 1))
        for a in self._activities:
            begin, end, number, _ = a.step
            delayed_ns, off_ns = a.delayed_ns or 0.0, a.off_ns
            pushed = number in self.cpu.pushed
            asleep_ns = max(0.0, off_ns - delayed_ns - collections.within(begin, end))
            blocked_ns = 0.0
            own = pushed or number == OWN
            long = a.sleeps and asleep_ns >= a.sleeps * _SHORTEST_KNOWN_NS
            if a.delayed_ns is not None and own and long:
                # A thread without a core may have kept a lock that this one waited for.
                kept_ns = max(0.0, without_core.within(begin, end) - delayed_ns)
                blocked_ns = max(0.0, asleep_ns - kept_ns)
            if number == OWN:
                now = float(begin)
                for cause, ns in (
                    ("preempted", delayed_ns), ("blocked", blocked_ns),
                    ("unexplained", asleep_ns - blocked_ns),
                ):  # fmt: skip
                    self._enter_span(a.thread, now, ns, cause)
                    now += ns
                continue
            if number in shared:
                off_ns = delayed_ns = delayed_ns + awaited[number] * scale
            self.cpu.times[number] = CpuTime(
                round(end - begin - off_ns),
                None if a.delayed_ns is None else round(delayed_ns),
                pushed,
                round(blocked_ns),
            )
        self.cpu.spans.sort()

    def _awaited_ns(self, activity: Activity) -> float:
        """How long an operation waited for its helpers, beyond the time of a piece."""
        split = self.trace.shared[activity.step.what]
        asleep_ns = activity.off_ns - (activity.delayed_ns or 0)
        return max(0.0, asleep_ns - split.work_ns / split.pieces)

    def _enter_span(self, thread: str, begin_ns: float, ns: float, cause: str) -> None:
        if ns >= _SHORTEST_SPAN_NS:
            self.cpu.spans.append(Span(thread, round(begin_ns), round(begin_ns + ns), cause))

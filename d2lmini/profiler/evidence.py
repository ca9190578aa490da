"""What the readings of threads say about the time in which they did not compute.

Between two readings of a thread lie activities: operations, waits, and the program's own code. How
long the thread was off the CPU, how long of that without a core, and how often it fell asleep, is
known of all together. Operations and own code share this by their durations. If the thread had no
core for longer than they were off the CPU, it was late: after a wait, or between two operations of
a worker. `cpu_time` says what a sleep may have been.
"""

from __future__ import annotations

import sys
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import pairwise
from math import ceil
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple

from d2lmini.engine.thread_clock import Reading, delay_of
from d2lmini.profiler.cpu_time import CpuTime, Intervals, Span, ThreadReadings
from d2lmini.profiler.own_time import OWN, WAIT, Step, steps_of

if TYPE_CHECKING:
    from d2lmini.profiler.tracing import Trace

#: The Python in an operation of the library is at most this; the rest is inside NumPy.
_PYTHON_NS = 50_000
#: Times off the CPU that are shorter are too many to keep.
_SHORTEST_SPAN_NS = 10_000
#: Sleeps shorter than this are those of any program: for the locks of engine, memory and NumPy.
_SHORTEST_KNOWN_NS = 200_000
#: A wait shorter than this needs no sleep.
_SHORTEST_SLEEP_NS = 20_000


class Activity(NamedTuple):
    """A step of a thread: how long it was off the CPU, how long of that without a core (None: not
    known), and how often it fell asleep."""

    thread: str
    step: Step
    off_ns: float
    delayed_ns: float | None
    sleeps: int


def judge(trace: Trace, threads: Sequence[ThreadReadings], delayed_ns: int) -> None:
    """Enter in `trace.cpu` what the readings of `threads` say. All threads of the process together
    had no core for `delayed_ns`."""
    evidence = Evidence(trace)
    for thread in threads:
        delayed_ns -= evidence.add(thread)
    evidence.enter(delayed_ns)


class Evidence:
    """Fills `trace.cpu.times` and `trace.cpu.spans`."""

    def __init__(self, trace: Trace):
        self.trace = trace
        self.cpu = trace.cpu
        self.steps = steps_of(trace)
        self._activities: list[Activity] = []
        self._delays: list[tuple[int, int, float]] = []  # of threads between operations

    def add(self, thread: ThreadReadings) -> int:
        """Take in the readings of a thread; returns how long it had no core."""
        steps = self.steps.get(thread.name, [])
        had_none_ns = 0
        for (begin, first), (end, last) in pairwise(thread.readings):
            delay_ns = None
            if first.counts and last.counts:
                delay_ns = delay_of(last.counts) - delay_of(first.counts)
                had_none_ns += delay_ns
            within = steps[
                bisect_left(steps, begin, key=itemgetter(0)) : bisect_right(
                    steps, end, key=itemgetter(1)
                )
            ]
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

    def enter(self, others_ns: int) -> None:
        """Enter all that is known. Other threads than those that were read had no core for
        `others_ns` in all: helpers of operations that were split."""
        shared = self.trace.shared
        collections = Intervals((p.begin_ns, p.end_ns, 1.0) for p in self.cpu.pauses)
        python: list[tuple[int, int, float]] = []
        delays: list[tuple[int, int, float]] = []
        for a in self._activities:
            begin, end, number, _ = a.step
            python.append((begin, end, self._python_ns(a) / (end - begin)))
            delay = begin, end, (a.delayed_ns or 0.0) / (end - begin)
            (self._delays if number == OWN else delays).append(delay)
        held, without_core = Intervals(python), Intervals(delays + self._delays)
        in_engine = Intervals(self._delays)
        awaited = {a.step.what: self._awaited_ns(a) for a in self._activities
                   if a.step.what in shared}  # fmt: skip
        scale = min(1.0, max(0, others_ns) / (sum(awaited.values()) or 1))
        for a in self._activities:
            begin, end, number, _ = a.step
            delayed_ns, off_ns = a.delayed_ns or 0.0, a.off_ns
            held_ns = max(0.0, held.within(begin, end) - self._python_ns(a))
            kept_ns = held_ns + max(0.0, without_core.within(begin, end) - delayed_ns)
            asleep_ns = max(0.0, off_ns - delayed_ns - collections.within(begin, end))
            gil_ns, blocked_ns = asleep(asleep_ns, a.sleeps, held_ns, kept_ns)
            # The thread may have waited for the engine's lock, if one without a core had it.
            lock_ns = in_engine.within(begin, end) - (delayed_ns if number == OWN else 0.0)
            blocked_ns = max(0.0, blocked_ns - max(0.0, lock_ns))
            if a.delayed_ns is None:
                gil_ns = blocked_ns = 0.0
            if number == OWN:
                now = float(begin)
                for cause, ns in (
                    ("preempted", delayed_ns), ("gil", gil_ns), ("blocked", blocked_ns),
                    ("unexplained", asleep_ns - gil_ns - blocked_ns),
                ):  # fmt: skip
                    self._enter_span(a.thread, now, ns, cause)
                    now += ns
                continue
            if number in shared:
                delayed_ns += awaited[number] * scale
                off_ns = delayed_ns
            pushed = number in self.cpu.pushed
            self.cpu.times[number] = CpuTime(
                round(end - begin - off_ns),
                None if a.delayed_ns is None else round(delayed_ns),
                pushed,
                round(gil_ns),
                round(blocked_ns) if pushed else 0,
            )
        self.cpu.spans.sort()

    def _python_ns(self, activity: Activity) -> float:
        """How long it ran Python at most."""
        begin, end, number, _ = activity.step
        busy_ns = max(0.0, end - begin - activity.off_ns)
        own = number == OWN or number in self.cpu.pushed
        return busy_ns if own else min(busy_ns, _PYTHON_NS)

    def _awaited_ns(self, activity: Activity) -> float:
        """How long an operation waited for its helpers, beyond the time of a piece."""
        split = self.trace.shared[activity.step.what]
        asleep_ns = activity.off_ns - (activity.delayed_ns or 0)
        return max(0.0, asleep_ns - split.work_ns / split.pieces)

    def _enter_span(self, thread: str, begin_ns: float, ns: float, cause: str) -> None:
        if ns >= _SHORTEST_SPAN_NS:
            self.cpu.spans.append(Span(thread, round(begin_ns), round(begin_ns + ns), cause))


def asleep(ns: float, sleeps: int, held_ns: float, kept_ns: float) -> tuple[float, float]:
    """Of `ns` in `sleeps` sleeps: how long was surely a wait for the interpreter, and how long
    surely none. Others ran Python meanwhile for `held_ns`, and had it for at most `kept_ns`, since
    a thread without a core may keep it.

    Such a wait takes two sleeps: until it asks for the lock, after the switch interval at the
    latest, and until it gets the lock. Fewer sleeps mean that one of them was something else; what
    the others were is not known.

    >>> asleep(10e6, 4, 30e6, 30e6), asleep(10e6, 1, 30e6, 30e6), asleep(10e6, 4, 0, 0)
    ((10000000.0, 0.0), (0.0, 10000000.0), (0, 10000000.0))
    """
    if ns < sleeps * _SHORTEST_KNOWN_NS or not sleeps:
        return 0.0, 0.0
    turn_ns = 1e9 * sys.getswitchinterval()
    surely = maybe = ns
    if sleeps * turn_ns / 2 < ns:
        surely, maybe = 0.0, (sleeps - 1) * turn_ns
    return min(surely, ns, held_ns), ns - min(maybe, ns, kept_ns)

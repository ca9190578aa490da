"""What the readings of threads say about the time in which they did not compute.

Between two readings of a thread lie activities: operations, waits, and the program's own code. How
long it was off the CPU, how long of that without a core, and how often it fell asleep, is known of
all together. Operations and own code share this by their durations. Only if they were not off the
CPU for as long as the thread had no core, the rest delayed it after a wait or before an operation.
`cpu_time` says what a sleep may have been.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from itertools import pairwise
from math import ceil
from typing import TYPE_CHECKING, NamedTuple

from d2lmini.engine.thread_clock import Reading, delay_of
from d2lmini.profiler.cpu_time import OWN, WAIT, CpuTime, CpuTimes, Intervals, Span, ThreadMarks

if TYPE_CHECKING:
    from d2lmini.profiler.records import Operation, SplitRecord

#: The Python in an operation of the library is at most this; the rest is inside NumPy.
_PYTHON_NS = 50_000
#: Parts of the program's own time shorter than this are too many to keep.
_SHORTEST_SPAN_NS = 10_000
#: Sleeps shorter than this are those of any program: for the locks of engine, memory and NumPy.
_SHORTEST_KNOWN_NS = 200_000
#: A wait shorter than this needs no sleep.
_SHORTEST_SLEEP_NS = 20_000


#: Since when, what, until when, and what then.
_Step = tuple[int, int, int, int]


class Activity(NamedTuple):
    """An operation (`what` is its number) or the program's own code (OWN): how long it was off the
    CPU, how long of that without a core (None: not known), and how often it fell asleep."""

    thread: str
    begin_ns: int
    end_ns: int
    what: int
    off_ns: float
    delayed_ns: float | None
    sleeps: int

    @property
    def busy_ns(self) -> float:
        """The rest of its duration."""
        return self.end_ns - self.begin_ns - self.off_ns


class Evidence:
    """Fills `cpu.times` and `cpu.spans`."""

    def __init__(
        self, cpu: CpuTimes, operations: Sequence[Operation], shared: Mapping[int, SplitRecord]
    ):
        self.cpu = cpu
        self.operations = operations
        self.shared = shared
        self._activities: list[Activity] = []
        self._late: dict[int, float] = {}
        self._after: dict[int, float] = {}
        self._delays: list[tuple[int, int, float]] = []  # of threads between operations

    def add(self, thread: ThreadMarks) -> int:
        """Take in the readings of a thread; returns how long it had no core."""
        delayed_ns = 0
        for (i, first), (k, last) in pairwise(thread.readings):
            known = bool(first.counts and last.counts)
            delay_ns = delay_of(last.counts) - delay_of(first.counts) if known else None
            delayed_ns += delay_ns or 0
            steps = [(*mark, *then) for mark, then in pairwise(thread.marks[i : k + 1])]
            left_ns = self._enter_busy(thread, steps, first, last, delay_ns)
            self._enter_idle(thread, steps, thread.marks[i - 1][1] if i else OWN, left_ns)
        return delayed_ns

    def _enter_busy(
        self, thread: ThreadMarks, steps: Sequence[_Step], first: Reading, last: Reading,
        delay_ns: int | None,
    ) -> float:  # fmt: skip
        """The activities between two readings share what is known of them; returns how long the
        thread had no core beyond that."""
        device_ns = self.cpu.device_ns
        most: dict[int, int] = {}  # step -> how long it may have been off the CPU
        sleeps = last.sleeps - first.sleeps
        paced = False
        for k, (begin, what, end, then) in enumerate(steps):
            if what > 0 or (what == OWN and not thread.works):
                most[k] = max(0, end - begin - device_ns.get(what, 0))
                paced = paced or what in device_ns
            else:
                sleeps -= min(end, self._ready_ns(then, end)) - begin > _SHORTEST_SLEEP_NS
        able_ns = sum(most.values()) or 1
        off_ns = max(0, able_ns - (0 if paced else last.cpu_ns - first.cpu_ns))
        delayed_ns = min(off_ns, delay_ns or 0)
        for k, ns in most.items():
            begin, what, end, _ = steps[k]
            share = ns / able_ns
            delayed = None if delay_ns is None else delayed_ns * share
            times = ceil(max(0, sleeps) * share)
            activity = Activity(thread.name, begin, end, what, off_ns * share, delayed, times)
            self._activities.append(activity)
        return (delay_ns or 0) - delayed_ns

    def _enter_idle(
        self, thread: ThreadMarks, steps: Sequence[_Step], before: int, left_ns: float
    ) -> None:
        """Between its operations a worker had no core for `left_ns` when it was to begin one, or
        else after the end of one; a thread of the program, after its waits."""
        late: dict[int, int] = {}  # by operation, for how long at most
        after: dict[int, int] = {}  # by operation, or end of a wait
        for begin, what, end, then in steps:
            if thread.works and what == OWN:
                late[then] = end - max(begin, self._ready_ns(then, end))
                after[before] = end - begin
            elif what == WAIT:
                after[end] = end - begin
            before = what
            if left_ns > 0:
                share = left_ns / (steps[-1][2] - steps[0][0] or 1)
                self._delays.append((begin, end, share))
        late_ns = min(left_ns, sum(late.values()))
        for number, ns in late.items():
            self._late[number] = late_ns * ns / (sum(late.values()) or 1)
        after_ns = min(left_ns - late_ns, sum(after.values()))
        for key, ns in after.items():
            share = after_ns * ns / (sum(after.values()) or 1)
            if thread.works:
                self._after[key] = share
            else:
                self._enter_span(thread.name, key - share, share, "preempted")

    def _ready_ns(self, number: int, otherwise: int) -> int:
        """When the operation of that number was ready."""
        return self.operations[number - 1].ready_ns if number > 0 else otherwise

    def enter(self, others_ns: int) -> None:
        """Enter all that is known. Other threads than those that were read had no core for
        `others_ns` in all: helpers of operations that were split."""
        cpu = self.cpu
        collections = Intervals((pause.begin_ns, pause.end_ns, 1.0) for pause in cpu.pauses)
        lasting = [a for a in self._activities if a.end_ns > a.begin_ns]
        python = Intervals((*a[1:3], self._python_ns(a) / (a.end_ns - a.begin_ns)) for a in lasting)
        delays = Intervals(
            self._delays
            + [(*a[1:3], (a.delayed_ns or 0.0) / (a.end_ns - a.begin_ns)) for a in lasting]
        )
        awaited = {a.what: self._awaited_ns(a) for a in self._activities if a.what in self.shared}
        scale = min(1.0, max(0, others_ns) / (sum(awaited.values()) or 1))
        for a in self._activities:
            begin, end, number = a.begin_ns, a.end_ns, a.what
            delayed_ns = a.delayed_ns or 0.0
            held_ns = max(0.0, python.within(begin, end) - self._python_ns(a))
            perhaps_ns = held_ns + max(0.0, delays.within(begin, end) - delayed_ns)
            asleep_ns = max(0.0, a.off_ns - delayed_ns - collections.within(begin, end))
            gil_ns, blocked_ns = asleep(asleep_ns, a.sleeps, held_ns, perhaps_ns)
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
            pushed = number in cpu.pushed
            off_ns = a.off_ns
            if number in self.shared:
                delayed_ns += awaited[number] * scale
                off_ns = delayed_ns
            cpu.times[number] = CpuTime(
                round(end - begin - off_ns),
                None if a.delayed_ns is None else round(delayed_ns),
                pushed,
                round(gil_ns),
                round(blocked_ns) if pushed else 0,
                round(self._late.get(number, 0)),
                round(self._after.get(number, 0)),
            )
        cpu.spans.sort()

    def _python_ns(self, activity: Activity) -> float:
        """How long it ran Python at most."""
        own = activity.what == OWN or activity.what in self.cpu.pushed
        return activity.busy_ns if own else min(activity.busy_ns, _PYTHON_NS)

    def _awaited_ns(self, activity: Activity) -> float:
        """How long an operation waited for its helpers, beyond the time of a piece."""
        split = self.shared[activity.what]
        asleep_ns = activity.off_ns - (activity.delayed_ns or 0)
        return max(0.0, asleep_ns - split.work_ns / split.pieces)

    def _enter_span(self, thread: str, begin_ns: float, ns: float, cause: str) -> None:
        if ns >= _SHORTEST_SPAN_NS:
            self.cpu.spans.append(Span(thread, round(begin_ns), round(begin_ns + ns), cause))


def asleep(ns: float, sleeps: int, held_ns: float, perhaps_ns: float) -> tuple[float, float]:
    """Of `ns` in `sleeps` sleeps: how long was surely a wait for the interpreter, and how long
    surely none. Others ran Python meanwhile for `held_ns`, and had it for at most `perhaps_ns`,
    since a thread without a core may keep it.

    Such a wait takes two sleeps: until it asks for the lock, after the switch interval at the
    latest, and until it gets the lock. Fewer sleeps mean that one of them was something else.

    >>> asleep(10e6, 4, 30e6, 30e6), asleep(10e6, 1, 30e6, 30e6), asleep(10e6, 4, 0, 0)
    ((10000000.0, 0.0), (0.0, 10000000.0), (0.0, 10000000.0))
    """
    if ns < sleeps * _SHORTEST_KNOWN_NS or not sleeps:
        return 0.0, 0.0
    turn_ns = 1e9 * sys.getswitchinterval()
    surely = maybe = ns
    if sleeps * turn_ns / 2 < ns:
        surely, maybe = (sleeps - 1) * turn_ns / 2, (sleeps - 1) * turn_ns
    return min(surely, ns, held_ns), ns - min(maybe, ns, perhaps_ns)

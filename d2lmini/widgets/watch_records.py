"""The records of a live view: the last thousands of operations and waits, in a ring.

A listener like `profiler.Trace`, with the same records, that drops old records: it may listen all
day. The hooks store names and times; the dependencies of an operation are computed ten times a
second, on the refresher's thread (`look`), by the engine's own rule.

>>> from d2lmini import instrument, nd
>>> recent = RecentRecords(keep=2)
>>> with instrument.listening(recent):
...     x = nd.ones((2, 2)) + 1
...     y = x * x
...     nd.waitall()
>>> look = recent.look()
>>> [(str(operation), operation.after) for operation in look.ended]
[('1 _ones', ((), ())), ('2 _plus_scalar', ((1,), ())), ('3 broadcast_mul', ((2,), ()))]
>>> recent.count, [str(operation) for operation in recent.operations]
(3, ['2 _plus_scalar', '3 broadcast_mul'])
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections import deque
from typing import Any, NamedTuple

from d2lmini import callsite, engine
from d2lmini.callsite import Site
from d2lmini.context import Context
from d2lmini.device import devices
from d2lmini.engine.core import Task
from d2lmini.engine.order import Before, Ordering
from d2lmini.profiler.recorder import Recorder
from d2lmini.profiler.records import Operation, Wait
from d2lmini.profiler.tracing import CLOSING

_clock = time.perf_counter_ns

#: Nanoseconds between two samples of the queue and the memory while operations run.
SAMPLE_NS = 1_000_000

#: A sampled device: a context, and its live, cached and pending bytes.
Held = tuple[Context, int, int, int]


class WatchedOperation(Operation):
    """An Operation with more facts than those of a trace.

    about   what has its shapes: a Plan, a Program, a Spec, or None
    after   its predecessors, once it has ended
    """

    __slots__ = ("about", "after")

    about: Any
    after: Before


class Sample(NamedTuple):
    """At one moment: operations pushed and not complete, and the bytes that the devices hold.
    `process`: the bytes that the process holds, 0 if not measured."""

    when_ns: int
    queued: int
    held: tuple[Held, ...]
    process: int = 0


class Waiting(NamedTuple):
    """A wait in progress of one of the program's threads, since `begin_ns`."""

    thread: str
    kind: str
    begin_ns: int
    site: Site | None


class Snapshot(NamedTuple):
    """The news since the last look: operations that ended, waits that ended, samples; and what is
    in progress."""

    ended: list[WatchedOperation]
    waits: list[Wait]
    samples: list[Sample]
    running: list[WatchedOperation]
    waiting: list[Waiting]


class RecentRecords(Recorder):
    """The last operations, waits and samples; at most `keep` of each.

    count       operations pushed so far, the number of the last
    operations  the last that ended, waits of the program's threads, samples: deques
    """

    _record = WatchedOperation

    def __init__(self, keep: int):
        super().__init__()
        self.keep = keep
        self.begin_ns = _clock()
        self.operations: deque[WatchedOperation] = deque()
        self.waits: deque[Wait] = deque(maxlen=keep)
        self.samples: deque[Sample] = deque(maxlen=keep)
        # From the hooks to `look`: pushed tasks (to be put in order), ended tasks, ... If `look` is
        # not called for long, the oldest records are lost.
        self._most = most = max(5 * keep, 10_000)
        self._pushed: deque[WatchedOperation] = deque(maxlen=most)
        self._ended: deque[WatchedOperation] = deque(maxlen=most)
        self._waited: deque[tuple[Any, ...]] = deque(maxlen=most)
        self._sampled: deque[Sample] = deque(maxlen=most)
        self._sampled_ns = 0
        self._ordering = Ordering()
        self._after: dict[int, Before] = {}  # of operations that have not ended
        self._joined: set[WatchedOperation] = (
            set()
        )  # rendezvous tasks that got inputs after their push

    # -- what the engine tells ---------------------------------------------------------------------

    def push(self, task: Task) -> None:
        super().push(task)
        operation = self._open[task]
        operation.about = _about(task)
        self._sample_if_due(operation.pushed_ns)

    def small(
        self, name: str, ctx: Context, reads: tuple[Any, ...], writes: tuple[Any, ...],
        site: Site | None, predicted_us: float, footprint: Any, begin_ns: int, end_ns: int,
    ) -> None:  # fmt: skip
        super().small(name, ctx, reads, writes, site, predicted_us, footprint, begin_ns, end_ns)
        operation = self._pushed[-1]
        operation.about = getattr(footprint, "__self__", None)  # a Plan's method, or a function
        self._ended.append(operation)
        self._sample_if_due(end_ns)

    def _join(self, operation: WatchedOperation, later: tuple[int, ...]) -> None:
        self._joined.add(operation)

    def end(self, task: Task, failure: Any) -> None:
        operation = self._open.get(task)
        super().end(task, failure)
        if operation is not None:
            self._ended.append(operation)
            self._sample_if_due(operation.ended_ns)

    def _sample_if_due(self, now: int) -> None:
        if now - self._sampled_ns > SAMPLE_NS:
            self._sample(now)

    def wait(self, kind: str, target: Any, site: Any, begin_ns: int, end_ns: int) -> None:
        if kind == CLOSING:
            return
        serial = 0 if target is None else getattr(target, "serial", 0)
        thread = threading.current_thread().name
        self._waited.append((begin_ns, kind, serial, site, thread, end_ns))

    def _sample(self, now: int, process: int = 0) -> None:
        held = tuple(
            (device.ctx, pool.live, pool.cached, pool.pending)
            for device in devices.list_named()
            if (pool := device.pool) is not None
        )
        self._sampled_ns = now
        self._sampled.append(Sample(now, len(self._open), held, process))

    # -- what the refresher asks -------------------------------------------------------------------

    def look(self, process: int = 0) -> Snapshot:
        """The news since the last call; called by one thread at a time. `process`: bytes, for a
        sample taken now."""
        self._sample(_clock(), process)
        waits = sorted(_all_of(self._waited), key=lambda told: told[0])
        ended, found = _all_of(self._ended), []
        done = 0
        for operation in _all_of(self._pushed):
            while done < len(waits) and waits[done][0] < operation.pushed_ns:
                found.append(self._wait_of(waits[done]))
                done += 1
            self._after[operation.number] = self._ordering.after(operation)
        while len(self._after) > 2 * (self._most + len(self._open)):  # of operations that were lost
            del self._after[next(iter(self._after))]
        found += map(self._wait_of, waits[done:])
        for operation in ended:
            operation.after = self._came_after(operation)
        self.operations.extend(ended)
        while len(self.operations) > self.keep:
            self._ordering.forget(self.operations.popleft())
        samples = _all_of(self._sampled)
        self.waits += found
        self.samples += samples
        running = [operation for operation in list(self._open.values()) if operation.began_ns]
        return Snapshot(ended, found, samples, running, waiting_now())

    def _came_after(self, operation: WatchedOperation) -> Before:
        needs, room = self._after.pop(operation.number, ((), ()))
        if operation in self._joined:
            self._joined.discard(operation)
            wrote = {self._ordering.writer.get(serial, 0) for serial in operation.reads}
            needs = tuple(sorted(wrote.union(needs) - {0, operation.number}))
        return needs, room

    def _wait_of(self, told: tuple[Any, ...]) -> Wait:
        """The record of a wait; it was for the last operation before it that wrote there."""
        begin_ns, kind, serial, site, thread, end_ns = told
        operation = self._ordering.writer.get(serial, 0)
        return Wait(kind, serial, operation, 0, site, thread, begin_ns, end_ns)

    @property
    def queued(self) -> int:
        """Operations pushed while it listened, and not complete."""
        return len(self._open)


def _all_of(news: deque[Any]) -> list[Any]:
    """A snapshot of the contents; hooks on other threads may append meanwhile."""
    return [news.popleft() for _ in range(len(news))]


def _about(task: Any) -> Any:
    """What has the shapes of a task, without keeping an array alive."""
    about = getattr(task, "plan", None) or getattr(task, "program", None)
    if about is None and type(source := getattr(task, "source", None)) is tuple:
        about = source[2]  # of a copy: a Spec
    return about


_HERE = os.path.dirname(os.path.abspath(callsite.__file__)) + os.sep

#: The function that every wait calls, and the local variables of its frame that are read.
_THE_WAIT = engine.Engine._wait.__code__


def waiting_now() -> list[Waiting]:
    """The waits in progress of the program's threads, read from outside: from the frames of the
    engine's one wait function. (A hook reports a wait only when it is over.)"""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    found = []
    for ident, frame in sys._current_frames().items():
        if ident in names and (wait := _wait_above(frame)) is not None:
            known = wait.f_locals
            if known.get("begin"):
                found.append(Waiting(names[ident], known["by"], known["begin"], _site_above(wait)))
    return found


def _site_above(frame: Any) -> Site | None:
    """The line outside this package that led to this frame of another thread."""
    while frame is not None and frame.f_code.co_filename.startswith(_HERE):
        frame = frame.f_back
    return None if frame is None else (frame.f_code, frame.f_lasti)


def _wait_above(frame: Any) -> Any:
    for _ in range(12):  # the wait function calls no deeper
        if frame is None or frame.f_code is _THE_WAIT:
            return frame
        frame = frame.f_back
    return None

"""The records of a live view: the last thousands of operations and waits, in a ring.

A `Recorder` like `profiler.Trace`, with the same records, that drops old records: it may listen all
day. The hooks store names and times; the dependencies of an operation are computed ten times a
second, on the refresher's thread (`look`), by the engine's own rule.

>>> from d2lmini import nd
>>> from d2lmini.base import instrument
>>> recent = RecentRecords(keep=2)
>>> with instrument.listening(recent):
...     x = nd.ones((2, 2)) + 1
...     y = x * x
...     nd.waitall()
>>> [(str(operation), operation.after) for operation in recent.look().ended]
[('1 _ones', ((), ())), ('2 _plus_scalar', ((1,), ())), ('3 broadcast_mul', ((2,), ()))]
>>> recent.count, [str(operation) for operation in recent.operations]
(3, ['2 _plus_scalar', '3 broadcast_mul'])
"""

from __future__ import annotations

import sys
import threading
from collections import deque
from typing import Any, NamedTuple

from d2lmini import engine
from d2lmini.base import callsite
from d2lmini.context import Context
from d2lmini.device import devices
from d2lmini.engine.core import Task
from d2lmini.engine.order import Before, Ordering
from d2lmini.profiler.records import Operation, Recorder, Wait
from d2lmini.profiler.tracing import CLOSING

#: Nanoseconds between two samples of the queue and the memory while operations run.
SAMPLE_NS = 1_000_000


class WatchedOperation(Operation):
    """An Operation that knows its predecessors, once it has ended: `after`."""

    __slots__ = ("after",)

    after: Before


class Sample(NamedTuple):
    """At one moment: operations pushed and not complete, and the devices' live, cached and pending
    bytes."""

    when_ns: int
    queued: int
    held: dict[Context, tuple[int, int, int]]


class News(NamedTuple):
    """What is new since the last look: operations that ended, waits that ended, samples; and what
    is in progress."""

    ended: list[WatchedOperation]
    waits: list[Wait]
    samples: list[Sample]
    running: list[WatchedOperation]
    waiting: list[Wait]


class RecentRecords(Recorder):
    """The last operations, waits and samples; at most `keep` of each.

    count       operations pushed so far, the number of the last
    operations  the last that ended, waits of the program's threads, samples: deques
    """

    _record = WatchedOperation

    def __init__(self, keep: int):
        super().__init__()
        self.keep = keep
        self.begin_ns = self._clock()
        self.operations: deque[WatchedOperation] = deque()
        self.waits: deque[Wait] = deque(maxlen=keep)
        self.samples: deque[Sample] = deque(maxlen=keep)
        # From the hooks to `look`. If it is not called for long, the oldest records are lost.
        most = max(5 * keep, 10_000)
        self._pushed: deque[WatchedOperation] = deque(maxlen=most)  # to be put in order
        self._ended: deque[WatchedOperation] = deque(maxlen=most)
        self._waited: deque[Wait] = deque(maxlen=most)
        self._sampled: deque[Sample] = deque(maxlen=most)
        self._sampled_ns = 0
        self._ordering = Ordering()

    # -- what the engine tells ---------------------------------------------------------------------

    def push(self, task: Task) -> None:
        super().push(task)
        self._sample_if_due(self._open[task].pushed_ns)

    def small(self, *facts: Any) -> None:
        super().small(*facts)
        operation = self._pushed[-1]
        self._ended.append(operation)
        self._sample_if_due(operation.ended_ns)

    def end(self, task: Task, failure: Any) -> None:
        operation = self._open.get(task)
        super().end(task, failure)
        if operation is not None:
            self._ended.append(operation)
            self._sample_if_due(operation.ended_ns)

    def wait(self, kind: str, target: Any, site: Any, begin_ns: int, end_ns: int) -> None:
        if kind != CLOSING:
            serial = getattr(target, "serial", None)
            thread = threading.current_thread().name
            self._waited.append(Wait(kind, serial, 0, 0, site, thread, begin_ns, end_ns))

    def _sample_if_due(self, now: int) -> None:
        if now - self._sampled_ns > SAMPLE_NS:
            self._sample(now)

    def _sample(self, now: int) -> None:
        self._sampled_ns = now
        pools = [(d.ctx, d.pool) for d in devices.list_named() if d.pool is not None]
        held = {ctx: (pool.live, pool.cached, pool.pending) for ctx, pool in pools}
        self._sampled.append(Sample(now, len(self._open), held))

    # -- what the refresher asks -------------------------------------------------------------------

    def look(self) -> News:
        """The news since the last call; called by one thread at a time."""
        self._sample(self._clock())
        ended = _taken(self._ended)
        waits = deque(sorted(_taken(self._waited), key=lambda wait: wait.begin_ns))
        found: list[Wait] = []
        for operation in _taken(self._pushed):
            while waits and waits[0].begin_ns < operation.pushed_ns:
                found.append(self._find_awaited(waits.popleft()))
            operation.after = self._ordering.after(operation)
        found += map(self._find_awaited, waits)
        ended = [operation for operation in ended if hasattr(operation, "after")]  # not lost
        self.operations.extend(ended)
        while len(self.operations) > self.keep:
            self._ordering.forget(self.operations.popleft())
        samples = _taken(self._sampled)
        self.waits += found
        self.samples += samples
        running = [operation for operation in list(self._open.values()) if operation.began_ns]
        return News(ended, found, samples, running, waiting_now(self._clock()))

    def _find_awaited(self, wait: Wait) -> Wait:
        """The wait with the last operation before it that wrote there."""
        return wait._replace(operation=self._ordering.writer.get(wait.target or 0, 0))

    @property
    def queued(self) -> int:
        """Operations pushed while it listened, and not complete."""
        return len(self._open)


def _taken(news: deque[Any]) -> list[Any]:
    """What a deque holds now; hooks on other threads may append meanwhile."""
    return [news.popleft() for _ in range(len(news))]


#: The function that every wait calls, and the local variables of its frame that are read.
_THE_WAIT = engine.Engine._wait.__code__


def waiting_now(now: int) -> list[Wait]:
    """The waits in progress of the program's threads, read from outside: from the frames of the
    engine's one wait function. (A hook reports a wait only when it is over.)"""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    found = []
    for ident, frame in sys._current_frames().items():
        place: Any = frame
        while place is not None and place.f_code is not _THE_WAIT:
            place = place.f_back
        if place is None or ident not in names or not place.f_locals.get("begin"):
            continue
        by, begin = place.f_locals["by"], place.f_locals["begin"]
        while place is not None and place.f_code.co_filename.startswith(callsite.HERE):
            place = place.f_back
        site = None if place is None else (place.f_code, place.f_lasti)
        found.append(Wait(by, None, 0, 0, site, names[ident], begin, now))
    return found

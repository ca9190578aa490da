"""`watch()`: a live view of the engine, beside the cell that uses it.

    with d2lmini.watch():
        for X, y in train_iter:
            train_step(X, y)

    w = d2lmini.watch()             # or from here on, over any number of cells
    ...
    w.stop()

There is a lane for the program, with its waits, and for every worker of every device, with the
operations that it runs; below the lanes the number of queued operations, and the memory of the
devices. A click on an operation shows the line that issued it, and, with arrows, what it waited
for. In a notebook the view is updated ten times a second while the cell computes, and a picture is
stored at the end; elsewhere nothing is shown, and the record can be read:

>>> import d2lmini
>>> from d2lmini import nd
>>> with d2lmini.watch() as w:
...     y = nd.ones((2, 2)) + 1
...     y.wait_to_read()
>>> w
<live view of the engine>
>>> w.count, [operation.name for operation in w.operations]
(2, ['_ones', '_plus_scalar'])

The view keeps the last 20,000 operations, so that it may run all day (`RecentRecords`). A message
carries the events since the last one, and js/watch.js draws them:

    operations   that ended: [number, name, row, pushed, ready, began, ended, line, failure, numbers
                 of those it needs, of those for which it makes room]; row -1: it did not run
    waits        that ended: [thread, kind, begin, end, line, awaited operation]
    samples      [time, queued, then live, cached, pending bytes of each device so far]
    rows         names of all rows, in their order: [index, name]
    running      what is in progress: [number, name, row, began, line]
    waiting      [thread, kind, begin, now, line]
    now, count, queued, kept, live, devices    the present state

Times are microseconds since the watch began.
"""

from __future__ import annotations

import sys
import threading
import time
from collections import deque
from collections.abc import Iterable, Sequence
from functools import lru_cache
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple

from d2lmini import engine
from d2lmini.base import callsite, forks, instrument
from d2lmini.base.scopes import interrupted
from d2lmini.context import Context
from d2lmini.device import devices
from d2lmini.draw.timeline import timeline
from d2lmini.engine.core import Task
from d2lmini.engine.order import Before, Ordering
from d2lmini.ops.fluent import shown_name
from d2lmini.profiler.draw import Rows, in_order, lanes_of, names_of, rows_of
from d2lmini.profiler.records import Operation, Recorder, Wait
from d2lmini.profiler.tracing import CLOSING
from d2lmini.widgets.base import Message, Widget

if TYPE_CHECKING:
    from d2lmini.draw.picture import Picture

#: Most operations, waits and samples that are kept.
KEEP = 20_000

#: Most predecessors of an operation that are sent: the latest, for which it most likely waited.
MOST_AFTER = 24

#: Beats without events after which the view gets the time all the same.
QUIET_BEATS = 10

#: The active Watch.
_watching: Watch | None = None


# -- the records -----------------------------------------------------------------------------------

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
    """The last operations, waits and samples; at most `keep` of each: a `Recorder` like
    `profiler.Trace`, with the same records, that drops old records. The hooks store names and
    times; the dependencies of an operation are computed ten times a second, on the refresher's
    thread (`look`), by the engine's own rule.

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


# -- the view --------------------------------------------------------------------------------------


class Watch(Widget):
    """A live view of the engine, watching until `stop()`. Made by `watch()`.

    operations  the last that ended, as they ended: `profiler.Operation`
    count       how many operations were pushed
    """

    script = "watch"
    words = "live view of the engine"

    def __init__(self, keep: int = KEEP):
        super().__init__()
        self._recent = RecentRecords(keep)
        self._look = self._recent.look()
        self._line = lru_cache(20_000)(callsite.describe)
        self._rows: Rows = {}  # the first operation of each
        self._index: dict[tuple[str, str], int] = {}
        self._devices: list[Context] = []
        self._door = threading.RLock()  # one thread reads the records at a time
        self._watches = False
        self._quiet = 0

    # -- what one asks -----------------------------------------------------------------------------

    @property
    def operations(self) -> Sequence[Operation]:
        """The operations that ended last."""
        self._look_again()
        return list(self._recent.operations)

    @property
    def count(self) -> int:
        """How many operations were pushed while it watched."""
        return self._recent.count

    def picture(self) -> Picture | None:
        """The timeline of all kept records; None if nothing ran. ImportError without
        matplotlib."""
        rows = rows_of(self.operations)
        if not rows:
            return None
        begin_ns = min(row[0].began_ns for row in rows.values())
        waits = [wait for wait in list(self._recent.waits) if wait.end_ns > begin_ns]
        return timeline(lanes_of(rows, waits), unit="ms")

    # -- its life ----------------------------------------------------------------------------------

    def start(self) -> None:
        """Start watching; another active watch is stopped. `watch()` calls this."""
        global _watching
        self.show()  # first, because it fails without the packages of the view
        if _watching is not None:
            _watching.stop()
        _watching, self._watches = self, True
        instrument.add(self._recent)
        self.live()

    def stop(self) -> None:
        """Wait for all pushed operations, and stop watching; the picture remains. Errors of
        operations are raised where their values are read, not here. Stopping twice does no harm."""
        self._stop(waits=True)

    def _stop(self, waits: bool) -> None:
        global _watching
        if not self._watches:
            return
        _watching, self._watches = None, False
        try:
            if waits:
                engine.current.wait_idle(CLOSING)
        finally:
            instrument.remove(self._recent)
            self._look_again()
            self.still()

    def close(self) -> None:
        """Stop, and close the view; the picture remains."""
        self.stop()
        super().close()

    def __enter__(self) -> Watch:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: Any, where: TracebackType | None
    ) -> None:
        self._stop(waits=not interrupted(kind))

    # -- what the refresher asks -------------------------------------------------------------------

    def changes(self) -> Message | None:
        with self._door:
            look = self._look_again()
            busy = look.ended or look.waits or look.running or look.waiting or self._recent.queued
            self._quiet = 0 if busy else self._quiet + 1
            if self._quiet % QUIET_BEATS > 1:
                return None
            return self._message(look.ended, look.waits, look.samples)

    def whole(self) -> Message | None:
        with self._door:
            recent = self._recent
            return self._message(recent.operations, recent.waits, recent.samples)

    def _look_again(self) -> News:
        """Read the engine's records."""
        with self._door:
            self._look = self._recent.look()
            return self._look

    # -- messages ----------------------------------------------------------------------------------

    def _message(
        self, ended: Iterable[WatchedOperation], waits: Iterable[Wait], samples: Iterable[Sample]
    ) -> Message:
        """The message with these records and the present state."""
        recent = self._recent
        told = {
            "operations": [self._operation(operation) for operation in ended],
            "waits": [[*self._wait(wait), wait.operation] for wait in waits],
            "samples": [self._sample(sample) for sample in samples],
            "running": [[*self._place(x), self._us(x.began_ns), self._line(x.site)]
                        for x in self._look.running],
            "waiting": [self._wait(wait) for wait in self._look.waiting],
        }  # fmt: skip
        rows = in_order(self._rows)
        return {
            **told, "rows": [[self._index[key], name] for key, name in zip(rows, names_of(rows))],
            "devices": [str(ctx) for ctx in self._devices], "kept": recent.keep,
            "now": self._us(time.perf_counter_ns()), "count": recent.count,
            "queued": recent.queued, "live": self._watches,
        }, []  # fmt: skip

    def _operation(self, x: WatchedOperation) -> list[Any]:
        times = map(self._us, (x.pushed_ns, x.ready_ns, x.began_ns, x.ended_ns))
        after = (numbers[-MOST_AFTER:] for numbers in x.after)
        return [*self._place(x), *times, self._line(x.site), x.failure or "", *after]

    def _wait(self, wait: Wait) -> list[Any]:
        begin, end = self._us(wait.begin_ns), self._us(wait.end_ns)
        return [wait.thread, wait.kind, begin, end, self._line(wait.site)]

    def _sample(self, sample: Sample) -> list[Any]:
        self._devices += [ctx for ctx in sample.held if ctx not in self._devices]
        held = [sample.held.get(ctx, (0, 0, 0)) for ctx in self._devices]
        return [self._us(sample.when_ns), sample.queued, *(n for sizes in held for n in sizes)]

    def _us(self, ns: int) -> float:
        return (ns - self._recent.begin_ns) / 1e3

    def _place(self, operation: WatchedOperation) -> tuple[int, str, int]:
        """Its number, its name, and the row where it ran."""
        key, row = (operation.place, operation.worker), -1
        if operation.began_ns:
            self._rows.setdefault(key, [operation])
            row = self._index.setdefault(key, len(self._index))
        return operation.number, shown_name(operation.name), row


def watch(keep: int = KEEP) -> Watch:
    """Watch the engine from now on: a live view in a notebook, and a record of the last `keep`
    operations everywhere. Use it in a `with`, or call its `stop()`; another `watch()` stops it too.

    An operation costs about 20 us more (a small one, which runs on the calling thread, 10 us) and
    10 us on the refresher's thread, which needs another 1 ms ten times a second: 2 to 3 % of a loop
    of operations of 2 ms. A browser on the same cores takes more.
    ValueError if `keep` is less than 1; ImportError in a notebook without the `lab` extra.
    """
    if keep < 1:
        raise ValueError(f"watch: keep={keep}: at least 1 operation has to be remembered")
    found = Watch(keep)
    found.start()
    return found


def _begin_anew() -> None:
    """In a forked child: the parent goes on watching, the child does not."""
    global _watching
    if _watching is not None:
        instrument.remove(_watching._recent)
        _watching._watches, _watching._door = False, threading.RLock()
    _watching = None


forks.at_fork(after_in_child=_begin_anew)

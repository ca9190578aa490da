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

The view keeps the last 20,000 operations, so that it may run all day (`watch_records`). A message
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

import os
import threading
import time
from collections.abc import Iterable, Sequence
from functools import lru_cache
from types import TracebackType
from typing import TYPE_CHECKING, Any

from d2lmini import engine
from d2lmini.base import callsite, instrument
from d2lmini.base.scopes import interrupted
from d2lmini.context import Context
from d2lmini.draw.timeline import timeline
from d2lmini.ops.shown import shown_name
from d2lmini.profiler.draw import Rows, in_order, names_of, rows_of, span_of
from d2lmini.profiler.records import Operation, Wait
from d2lmini.profiler.tracing import CLOSING
from d2lmini.widgets.base import Message, Widget
from d2lmini.widgets.watch_records import News, RecentRecords, Sample, WatchedOperation

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
        waits = [span_of(wait) for wait in list(self._recent.waits) if wait.end_ns > begin_ns]
        lanes = [("front end", waits)] if waits else []
        return timeline(
            [*lanes, *zip(names_of(rows), (map(span_of, row) for row in rows.values()))], unit="ms"
        )

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
            "running": [
                [
                    x.number,
                    shown_name(x.name),
                    self._row(x),
                    self._us(x.began_ns),
                    self._line(x.site),
                ]
                for x in self._look.running
            ],
            "waiting": [self._wait(wait) for wait in self._look.waiting],
        }
        rows = in_order(self._rows)
        return {
            **told, "rows": [[self._index[key], name] for key, name in zip(rows, names_of(rows))],
            "devices": [str(ctx) for ctx in self._devices], "kept": recent.keep,
            "now": self._us(time.perf_counter_ns()), "count": recent.count,
            "queued": recent.queued, "live": self._watches,
        }, []  # fmt: skip

    def _operation(self, x: WatchedOperation) -> list[Any]:
        times = map(self._us, (x.pushed_ns, x.ready_ns, x.began_ns, x.ended_ns))
        return [
            x.number, shown_name(x.name), self._row(x) if x.began_ns else -1, *times,
            self._line(x.site), x.failure or "", *(after[-MOST_AFTER:] for after in x.after),
        ]  # fmt: skip

    def _wait(self, wait: Wait) -> list[Any]:
        begin, end = self._us(wait.begin_ns), self._us(wait.end_ns)
        return [wait.thread, wait.kind, begin, end, self._line(wait.site)]

    def _sample(self, sample: Sample) -> list[Any]:
        self._devices += [ctx for ctx in sample.held if ctx not in self._devices]
        held = [sample.held.get(ctx, (0, 0, 0)) for ctx in self._devices]
        return [self._us(sample.when_ns), sample.queued, *(n for sizes in held for n in sizes)]

    def _us(self, ns: int) -> float:
        return (ns - self._recent.begin_ns) / 1e3

    def _row(self, operation: WatchedOperation) -> int:
        key = (operation.place, operation.worker)
        if key not in self._index:
            self._index[key] = len(self._index)
            self._rows[key] = [operation]
        return self._index[key]


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


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_anew)

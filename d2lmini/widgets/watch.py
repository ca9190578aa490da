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
carries the events since the last one (`watch_messages`), and js/watch.js draws them.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any

from d2lmini import engine
from d2lmini.base import instrument
from d2lmini.base.scopes import interrupted
from d2lmini.draw.timeline import timeline
from d2lmini.profiler.draw import names_of, rows_of, span_of
from d2lmini.profiler.records import Operation
from d2lmini.profiler.tracing import CLOSING
from d2lmini.widgets.base import Message, Widget
from d2lmini.widgets.watch_messages import MessageWriter
from d2lmini.widgets.watch_records import News, RecentRecords

if TYPE_CHECKING:
    from d2lmini.draw.picture import Picture

#: Most operations, waits and samples that are kept.
KEEP = 20_000

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
        self._telling = MessageWriter(self._recent.begin_ns, keep)
        self._door = threading.RLock()  # one thread reads the records at a time
        self._watches = False
        self._quiet = 0

    # -- what one asks -----------------------------------------------------------------------------

    @property
    def operations(self) -> Sequence[Operation]:
        """The operations that ended last."""
        self._pass_on()
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
            self._pass_on()
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
        look, message = self._pass_on()
        busy = look.ended or look.waits or look.running or look.waiting or self._recent.queued
        self._quiet = 0 if busy else self._quiet + 1
        return None if self._quiet % QUIET_BEATS > 1 else message

    def whole(self) -> Message | None:
        with self._door:
            return self._telling.everything()

    def _pass_on(self) -> tuple[News, Message]:
        """Read the engine's records and note what is to be sent."""
        recent = self._recent
        with self._door:
            look = recent.look()
            now_us = (time.perf_counter_ns() - recent.begin_ns) / 1e3
            state = {"now": now_us, "count": recent.count, "queued": recent.queued}
            return look, self._telling.news(look, {**state, "live": self._watches})


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

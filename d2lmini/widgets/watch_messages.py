"""The messages to a live view: a dict for JSON.

operations       that ended: [number, name, row, pushed, ready, began, ended, line, failure, numbers
                 of those it needs, of those for which it makes room]; row -1: it did not run
waits            that ended: [thread, kind, begin, end, line, awaited operation]
samples          [time, queued, then live, cached, pending bytes of each device so far]
rows             names of all rows, in their order: [index, name]
running          what is in progress: [number, name, row, began, line]
waiting          [thread, kind, begin, now, line]
now, count, queued, kept, live, devices    the present state

Times are microseconds since the watch began. A `MessageWriter` keeps as much as a view may show,
for a view that starts late.
"""

from __future__ import annotations

from collections import deque
from functools import lru_cache
from typing import Any

from d2lmini.base import callsite
from d2lmini.context import Context
from d2lmini.ops.fluent import shown_name
from d2lmini.profiler.draw import in_order, names_of
from d2lmini.profiler.records import Operation, Wait
from d2lmini.widgets.base import Message
from d2lmini.widgets.watch_records import News, Sample, WatchedOperation

#: Most predecessors of an operation that are sent: the latest, for which it most likely waited.
MOST_AFTER = 24


class MessageWriter:
    """Makes messages from `News`."""

    def __init__(self, begin_ns: int, keep: int):
        self.begin_ns = begin_ns
        self.keep = keep
        self._line = lru_cache(20_000)(callsite.describe)
        self._rows: dict[tuple[str, str], list[Operation]] = {}  # the first operation of each
        self._index: dict[tuple[str, str], int] = {}
        self._devices: list[Context] = []
        self._told: dict[str, deque[list[Any]]] = {
            kind: deque(maxlen=keep) for kind in ("operations", "waits", "samples")
        }
        self._state: dict[str, Any] = {}

    def news(self, look: News, state: dict[str, Any]) -> Message:
        """The message for `look` and the present `state`."""
        news = {
            "operations": [self._operation(operation) for operation in look.ended],
            "waits": [[*self._wait(wait), wait.operation] for wait in look.waits],
            "samples": [self._sample(sample) for sample in look.samples],
        }
        for kind, records in news.items():
            self._told[kind].extend(records)
        running = [
            [x.number, shown_name(x.name), self._row(x), self._us(x.began_ns), self._line(x.site)]
            for x in look.running
        ]
        waiting = [self._wait(wait) for wait in look.waiting]
        self._state = {**state, "running": running, "waiting": waiting}
        return self._message(news)

    def everything(self) -> Message:
        """The message with all that is kept."""
        return self._message({kind: list(records) for kind, records in self._told.items()})

    def _message(self, records: dict[str, list[list[Any]]]) -> Message:
        rows = in_order(self._rows)
        return {
            **records,
            "rows": [[self._index[key], name] for key, name in zip(rows, names_of(rows))],
            "devices": [str(ctx) for ctx in self._devices],
            "kept": self.keep,
            **self._state,
        }, []

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
        return (ns - self.begin_ns) / 1e3

    def _row(self, operation: WatchedOperation) -> int:
        key = (operation.place, operation.worker)
        if key not in self._index:
            self._index[key] = len(self._index)
            self._rows[key] = [operation]
        return self._index[key]

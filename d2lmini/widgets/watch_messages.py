"""The messages to a live view: records as numbers in one buffer, and texts that are sent once.

A message is (header, [records]):

header   now, with the view's clock starting at 0: times are microseconds since; texts: new texts;
         known: how many the view has; rows: names of all rows, in their order, as (index of a row,
         name); devices; running, waiting: what is in progress; count, queued, kept: numbers of
         operations; live
records  float64, one after the other, each beginning with its kind and how many numbers follow:
         0  an operation that ended: number, name, row, pushed, ready, began, ended, line, failure,
            how many operations it needs, their numbers, those for which it makes room
         1  a wait: thread, kind, begin, end, line, operation
         2  a sample: time, queued, then live, cached, pending bytes of each device so far
         Words are indices into all texts; no failure, no line: -1
"""

from __future__ import annotations

from collections import deque
from functools import lru_cache
from typing import Any

import numpy as np

from d2lmini.base import callsite
from d2lmini.base.callsite import Site
from d2lmini.context import Context
from d2lmini.ops.shown import shown_name
from d2lmini.profiler.draw import in_order, names_of
from d2lmini.profiler.records import Operation, Wait
from d2lmini.widgets.base import Message
from d2lmini.widgets.watch_records import News, WatchedOperation

#: Most predecessors of an operation that are sent: the latest, for which it most likely waited.
MOST_AFTER = 24
#: Most texts that are kept; beyond this number there is no text.
MOST_TEXTS = 20_000

OPERATION, WAIT, SAMPLE = 0, 1, 2


class MessageWriter:
    """Makes messages from `News`; keeps as much as a view may show, for a view that starts late."""

    def __init__(self, begin_ns: int, keep: int):
        self.begin_ns = begin_ns
        self.keep = keep
        self.texts: list[str] = []
        self._numbers: dict[str, int] = {}
        self._told = 0  # how many texts were sent
        self._line = lru_cache(MOST_TEXTS)(self._find_line)
        self._rows: dict[tuple[str, str], list[Operation]] = {}  # the first operation of each
        self._index: dict[tuple[str, str], int] = {}
        self._devices: list[Context] = []
        self._parts: deque[tuple[int, bytes]] = deque()  # records as sent, and how many
        self._kept = 0
        self._state: dict[str, Any] = {}

    def news(self, look: News, state: dict[str, Any]) -> Message:
        """The message for `look` and the present `state`."""
        flat: list[float] = []
        for operation in look.ended:
            self._write(flat, OPERATION, self._operation(operation))
        for wait in look.waits:
            self._write(flat, WAIT, [*self._wait(wait), wait.operation])
        for sample in look.samples:
            self._devices += [ctx for ctx in sample.held if ctx not in self._devices]
            held = [sample.held.get(ctx, (0, 0, 0)) for ctx in self._devices]
            row = [self._us(sample.when_ns), sample.queued, *(n for sizes in held for n in sizes)]
            self._write(flat, SAMPLE, row)
        records = np.array(flat, np.float64).tobytes()
        count = len(look.ended) + len(look.waits) + len(look.samples)
        self._parts.append((count, records))
        self._kept += count
        while self._kept > 2 * self.keep and len(self._parts) > 1:
            self._kept -= self._parts.popleft()[0]
        running = [
            [x.number, self._text(shown_name(x.name)), self._row(x), self._us(x.began_ns),
             self._line(x.site)]
            for x in look.running
        ]  # fmt: skip
        waiting = [self._wait(wait) for wait in look.waiting]
        self._state = {**state, "running": running, "waiting": waiting}
        texts = self.texts[self._told :]
        return self._header(texts), [records]

    def everything(self) -> Message:
        """The message with all that is kept."""
        return self._header(self.texts[:]), [b"".join(records for _, records in self._parts)]

    def _header(self, texts: list[str]) -> dict[str, Any]:
        rows = in_order(self._rows)
        self._told = len(self.texts)
        return {
            "texts": texts,
            "known": self._told - len(texts),
            "rows": [[self._index[key], name] for key, name in zip(rows, names_of(rows))],
            "devices": [str(ctx) for ctx in self._devices],
            "kept": self.keep,
            **self._state,
        }

    # -- numbers -----------------------------------------------------------------------------------

    @staticmethod
    def _write(flat: list[float], kind: int, numbers: list[float]) -> None:
        flat += (kind, len(numbers))
        flat += numbers

    def _operation(self, x: WatchedOperation) -> list[float]:
        times = map(self._us, (x.pushed_ns, x.ready_ns, x.began_ns, x.ended_ns))
        needs, room = (numbers[-MOST_AFTER:] for numbers in x.after)
        return [
            x.number, self._text(shown_name(x.name)), self._row(x) if x.began_ns else -1,
            *times, self._line(x.site), -1 if x.failure is None else self._text(x.failure),
            len(needs), *needs, *room,
        ]  # fmt: skip

    def _wait(self, wait: Wait) -> list[float]:
        begin, end = self._us(wait.begin_ns), self._us(wait.end_ns)
        return [self._text(wait.thread), self._text(wait.kind), begin, end, self._line(wait.site)]

    def _us(self, ns: int) -> float:
        return (ns - self.begin_ns) / 1e3

    def _row(self, operation: WatchedOperation) -> int:
        key = (operation.place, operation.worker)
        row = self._index.get(key)
        if row is None:
            row = self._index[key] = len(self._index)
            self._rows[key] = [operation]
        return row

    def _text(self, text: str) -> int:
        """The number of a text; -1 if there are too many."""
        known = self._numbers.get(text)
        if known is None:
            if len(self.texts) >= MOST_TEXTS:
                return -1
            known = self._numbers[text] = len(self.texts)
            self.texts.append(text)
        return known

    def _find_line(self, site: Site | None) -> int:
        """The number of a line of the program."""
        return -1 if site is None else self._text(callsite.describe(site))

"""The messages to a live view: numbers in buffers, and texts that are sent once.

A message is (header, [operations, after, waits, samples]):

header      now, with the view's clock starting at 0: times are microseconds since; texts: new
            texts; rows: names of all rows, in their order, as (index of a row, name); devices;
            running, waiting: what is in progress; count, queued, kept: numbers of operations;
            live
operations  float64, ten for each that ended: number, name, row, pushed, ready, began, ended,
            line, about, failure. Words are indices into all texts; no failure, no line: -1
after       int32, for each of them: how many it needs, for how many it makes room, their numbers
waits       float64, six for each: thread, kind, begin, end, line, operation
samples     float64: time, queued, bytes of the process (0: not measured), then live, cached,
            pending of each device of header.devices
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

import numpy as np

from d2lmini import callsite
from d2lmini.callsite import Site
from d2lmini.context import Context
from d2lmini.ops.shown import shown_name
from d2lmini.ops.spec import Spec
from d2lmini.profiler.draw import in_order, names_of
from d2lmini.profiler.records import Operation, Wait
from d2lmini.widgets.base import Message
from d2lmini.widgets.watch_records import Sample, Snapshot, WatchedOperation

#: Most predecessors of an operation that are sent.
MOST_AFTER = 24
#: Most texts that are kept; beyond this number there is no text.
MOST_TEXTS = 20_000

OPERATION, WAIT, SAMPLE = 10, 6, 3  # numbers for each


class Texts:
    """Texts by number, in the order of their first use."""

    def __init__(self) -> None:
        self.all: list[str] = []
        self._numbers: dict[Any, int] = {}
        self._abouts: deque[Any] = deque(maxlen=MOST_TEXTS)  # kept alive: keyed by identity
        self.line = lru_cache(MOST_TEXTS)(self._find_line)

    def number(self, text: str) -> int:
        """The number of a text; -1 if there are too many."""
        known = self._numbers.get(text)
        if known is None:
            if len(self.all) >= MOST_TEXTS:
                return -1
            known = self._numbers[text] = len(self.all)
            self.all.append(text)
        return known

    def _find_line(self, site: Site | None) -> int:
        """The number of a line of the program."""
        return -1 if site is None else self.number(callsite.describe(site))

    def about(self, what: Any) -> int:
        """The number of the text of the shapes that a Plan, a Program or a Spec has."""
        if what is None:
            return -1
        known = self._numbers.get(id(what))
        if known is None:
            known = self.number(shapes_of(what))
            if len(self._abouts) < MOST_TEXTS:
                self._abouts.append(what)
                self._numbers[id(what)] = known
        return known


def shapes_of(what: Any) -> str:
    """The shapes of inputs and outputs, in words.

    >>> shapes_of(Spec((2, 3), "float32"))
    '(2, 3) float32'
    """
    if isinstance(what, Spec):
        return f"{what.shape} {what.dtype.name}"
    inputs = ", ".join(map(shapes_of, getattr(what, "inputs", ())))
    outputs = ", ".join(map(shapes_of, getattr(what, "outputs", getattr(what, "specs", ()))))
    return f"{inputs} → {outputs}" if inputs else f"→ {outputs}"


class MessageWriter:
    """Makes messages from `Snapshot`s; keeps as much as a view may show, for a view that starts
    late."""

    def __init__(self, begin_ns: int, keep: int):
        self.begin_ns = begin_ns
        self.keep = keep
        self.texts = Texts()
        self._told = 0  # how many texts were sent
        self._rows: dict[tuple[str, str], list[Operation]] = {}  # the first operation of each
        self._index: dict[tuple[str, str], int] = {}
        self._devices: list[Context] = []
        self._parts: deque[tuple[int, bytes, bytes]] = deque()  # operations and after, as sent
        self._kept = 0
        self._waits: deque[list[float]] = deque(maxlen=keep)
        self._samples: deque[Sample] = deque(maxlen=keep)
        self._state: dict[str, Any] = {}

    def news(self, look: Snapshot, state: dict[str, Any]) -> Message:
        """The message for `look` and the present `state`."""
        operations = self._pack(look.ended)
        after = _pack_after(look.ended)
        waits = [self._wait(wait) for wait in look.waits]
        for sample in look.samples:
            for ctx, *_ in sample.held:
                if ctx not in self._devices:
                    self._devices.append(ctx)
        self._parts.append((len(look.ended), operations, after))
        self._kept += len(look.ended)
        while self._kept > self.keep and len(self._parts) > 1:
            self._kept -= self._parts.popleft()[0]
        self._waits += waits
        self._samples += look.samples
        self._state = {
            **state,
            "running": [self._running(operation) for operation in look.running],
            "waiting": [
                [self.texts.number(operation.thread), self.texts.number(operation.kind),
                 self._us(operation.begin_ns), self.texts.line(operation.site)]
                for operation in look.waiting
            ],
        }  # fmt: skip
        texts = self.texts.all[self._told :]
        self._told = len(self.texts.all)
        buffers = [operations, after, _pack(waits), self._pack_samples(look.samples)]
        return self._header(texts), buffers

    def everything(self) -> Message:
        """The message with all that is kept."""
        self._told = len(self.texts.all)
        buffers = [
            b"".join(part[1] for part in self._parts),
            b"".join(part[2] for part in self._parts),
            _pack(list(self._waits)),
            self._pack_samples(self._samples),
        ]
        return self._header(self.texts.all[:]), buffers

    def _header(self, texts: list[str]) -> dict[str, Any]:
        rows = in_order(self._rows)
        return {
            "kind": "watch",
            "texts": texts,
            "known": self._told - len(texts),
            "rows": [[self._index[key], name] for key, name in zip(rows, names_of(rows))],
            "devices": [str(ctx) for ctx in self._devices],
            "kept": self.keep,
            **self._state,
        }

    def _us(self, ns: int) -> float:
        return (ns - self.begin_ns) / 1e3

    def _row(self, operation: WatchedOperation) -> int:
        key = (operation.place, operation.worker)
        row = self._index.get(key)
        if row is None:
            row = self._index[key] = len(self._index)
            self._rows[key] = [operation]
        return row

    def _running(self, operation: WatchedOperation) -> list[float]:
        """An operation that has begun and not ended."""
        name, row = self.texts.number(shown_name(operation.name)), self._row(operation)
        began_us, line = self._us(operation.began_ns), self.texts.line(operation.site)
        return [operation.number, name, row, began_us, line]

    def _pack(self, ended: list[WatchedOperation]) -> bytes:
        texts = self.texts
        begin = self.begin_ns
        number, line, about = texts.number, texts.line, texts.about
        rows: list[tuple[float, ...]] = []
        for done in ended:
            failure = -1 if done.failure is None else number(done.failure)
            rows.append(
                (
                    done.number, number(shown_name(done.name)),
                    self._row(done) if done.began_ns else -1,
                    done.pushed_ns - begin, done.ready_ns - begin, done.began_ns - begin,
                    done.ended_ns - begin, line(done.site), about(done.about), failure,
                )
            )  # fmt: skip
        table = np.array(rows, np.float64).reshape(-1, OPERATION)
        table[:, 3:7] /= 1e3
        return table.tobytes()

    def _wait(self, wait: Wait) -> list[float]:
        number = self.texts.number
        return [
            number(wait.thread), number(wait.kind), self._us(wait.begin_ns),
            self._us(wait.end_ns), self.texts.line(wait.site), wait.operation,
        ]  # fmt: skip

    def _pack_samples(self, samples: Iterable[Sample]) -> bytes:
        width = SAMPLE + 3 * len(self._devices)
        rows = []
        for sample in samples:
            held = {ctx: sizes for ctx, *sizes in sample.held}
            row: list[float] = [self._us(sample.when_ns), sample.queued, sample.process]
            for ctx in self._devices:
                row += held.get(ctx, (0, 0, 0))
            rows.append(row)
        return np.array(rows, np.float64).reshape(-1, width).tobytes()


def _pack(rows: list[list[float]]) -> bytes:
    return np.array(rows, np.float64).tobytes()


def _pack_after(ended: Iterable[WatchedOperation]) -> bytes:
    """The latest predecessors of each: those it most likely waited for."""
    flat: list[int] = []
    for operation in ended:
        needs, room = operation.after
        needs, room = needs[-MOST_AFTER:], room[-MOST_AFTER:]
        flat += (len(needs), len(room), *needs, *room)
    return np.array(flat, np.int32).tobytes()

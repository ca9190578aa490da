"""Traces: what was issued when, what it had to wait for, who ran it, and where the program waited.

    with d2lmini.profile() as trace:
        train(net)
    print(trace)

A trace listens to the engine (`instrument`). Under the engine's lock it takes the time and the
names and leaves; what comes after what is found out afterwards, from what each operation read and
wrote, by the engine's own rule: readers together, a writer alone.

>>> from d2lmini import nd, profile
>>> with profile() as trace:
...     a = nd.ones((1, 2))
...     b = a * 2
...     a += 1
...     c = a + b
>>> for each in trace.operations:
...     print(each, trace.needs(each.number), trace.makes_room(each.number))
1 _ones () ()
2 _mul_scalar (1,) ()
3 _plus_scalar (1,) (2,)
4 broadcast_add (2, 3) ()

The third needs what the first made, and has to wait until the second has read it.
"""

from __future__ import annotations

import threading
import time
from bisect import bisect_left
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

from d2lmini import engine, instrument
from d2lmini.device import blas
from d2lmini.engine import lanes
from d2lmini.engine.core import Task, Var
from d2lmini.engine.road import here
from d2lmini.profiler.records import Change, Operation, Wait

#: The wait at the end of a trace, which is none of the program's.
CLOSING = "end of profile"

_new = object.__new__
_clock = time.perf_counter_ns
_serials = count(1)
_name_of_thread: Any = threading.local()


def serial_of(var: Var) -> int:
    """The number by which traces know a Var; it has none until the first trace meets it."""
    try:
        return var.serial
    except AttributeError:
        var.serial = serial = next(_serials)
        return serial


def _this_thread() -> str:
    try:
        return _name_of_thread.name
    except AttributeError:
        _name_of_thread.name = name = threading.current_thread().name
        return name


class Trace(instrument.Instrument):
    """What happened in the scope of a `profile()`.

    operations  in the order they were pushed; number 1 is the first
    waits       of the program's threads, in the order they ended
    memory      changes, in the order they happened
    begin_ns, end_ns    of the scope, the wait for everything at its end included
    workers     threads that serve each lane: {"cpu": 2, "gpu(0)": 1, "gpu(0) in": 1, ...}
    blas_threads        of a product of matrices that BLAS shares out itself
    """

    def __init__(self) -> None:
        self.operations: list[Operation] = []
        self.waits: list[Wait] = []
        self.memory: list[Change] = []
        self.begin_ns = self.end_ns = 0
        self.workers: dict[str, int] = {}
        self.blas_threads = 0
        self._open: dict[Task, Operation] = {}
        self._order: list[tuple[tuple[int, ...], tuple[int, ...]]] = []

    # -- what the engine tells ---------------------------------------------------------------------

    def push(self, task: Task) -> None:
        each = _new(Operation)
        operations = self.operations
        operations.append(each)
        each.number = len(operations)
        each.name = task.name
        each.ctx = task.ctx
        each.lane = task.lane
        each.worker = ""
        each.thread = _this_thread()
        each.site = task.site
        each.priority = task.priority
        each.predicted_us = task.predicted_us
        each.reads = tuple([serial_of(var) for var in task.reads])
        each.writes = tuple([serial_of(var) for var in task.writes])
        each.ready_ns = each.began_ns = each.ended_ns = 0
        each.failure = None
        each.footprint = task.footprint()
        self._open[task] = each
        each.pushed_ns = _clock()

    def ready(self, task: Task) -> None:
        each = self._open.get(task)
        if each is not None:  # else it was pushed before the trace began
            each.ready_ns = _clock()

    def start(self, task: Task, worker: str) -> None:
        each = self._open.get(task)
        if each is not None:
            each.worker = worker
            each.began_ns = _clock()

    def end(self, task: Task, failure: Any) -> None:
        each = self._open.pop(task, None)
        if each is not None:
            each.ended_ns = _clock()
            if failure is not None:
                each.failure = str(failure)

    def wait(self, kind: str, target: Any, site: Any, begin_ns: int, end_ns: int) -> None:
        if kind == CLOSING:
            return
        pushed = bisect_left(self.operations, begin_ns, key=lambda each: each.pushed_ns)
        serial = None if target is None else serial_of(target)
        self.waits.append(Wait(kind, serial, -1, pushed, site, _this_thread(), begin_ns, end_ns))

    def alloc(self, ctx: Any, nbytes: int) -> None:
        each = self._open.get(here.task) if here.task is not None else None
        number = 0 if each is None else each.number
        self.memory.append(Change(_clock(), ctx, nbytes, number))

    def free(self, ctx: Any, nbytes: int) -> None:
        self.memory.append(Change(_clock(), ctx, -nbytes, 0))

    # -- what comes after what ---------------------------------------------------------------------

    def needs(self, number: int) -> tuple[int, ...]:
        """The operations whose results operation `number` uses."""
        return self._ordered()[number - 1][0]

    def makes_room(self, number: int) -> tuple[int, ...]:
        """The operations that operation `number` comes after only because it writes where they
        read or wrote."""
        return self._ordered()[number - 1][1]

    def _ordered(self) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
        """For every operation, what it needs and for whom it makes room, by the engine's rule."""
        if len(self._order) < len(self.operations):
            self._order = []
            writer: dict[int, int] = {}  # of each Var, the last operation that wrote it
            readers: dict[int, list[int]] = {}  # and who has read it since
            for each in self.operations:
                needs = {writer.get(serial, 0) for serial in each.reads}
                room: set[int] = set()
                for serial in each.writes:
                    room.update(readers.pop(serial, ()) or (writer.get(serial, 0),))
                for serial in each.writes:
                    writer[serial] = each.number
                for serial in set(each.reads).difference(each.writes):
                    readers.setdefault(serial, []).append(each.number)
                needs -= {0, each.number}
                room -= {0, each.number} | needs
                self._order.append((tuple(sorted(needs)), tuple(sorted(room))))
        return self._order

    def _resolve_waits(self) -> None:
        """Find out which operation each wait was for: the last one before it that wrote there."""
        writes: dict[int, list[int]] = {}
        for each in self.operations:
            for serial in each.writes:
                writes.setdefault(serial, []).append(each.number)
        for i, wait in enumerate(self.waits):
            if wait.operation < 0:
                numbers = writes.get(wait.target or 0, [])
                k = bisect_left(numbers, wait.pushed + 1)
                self.waits[i] = wait._replace(operation=numbers[k - 1] if k else 0)

    def __str__(self) -> str:
        return "\n".join(map(str, self.operations))

    def __repr__(self) -> str:
        ms = (self.end_ns - self.begin_ns) / 1e6
        return f"<trace of {len(self.operations)} operations in {ms:.1f} ms>"


def _served() -> dict[str, int]:
    """How many threads serve each lane."""
    found = {"cpu": engine.current.workers}
    for (ctx, lane), threads in lanes.threads.items():
        found[str(ctx) if lane == "compute" else f"{ctx} {lane}"] = threads
    return found


@contextmanager
def profile() -> Iterator[Trace]:
    """Record what the engine does within the scope, which begins and ends with an idle engine; the
    wait at its end is no wait of the program's. Errors that operations have left are raised there,
    if the scope ends without one."""
    engine.waitall()
    trace = Trace()
    trace.workers = _served()
    trace.blas_threads = blas.threads()
    trace.begin_ns = _clock()
    instrument.add(trace)
    try:
        yield trace
    finally:
        try:
            engine.current.wait_idle(CLOSING)
        finally:
            instrument.remove(trace)
            trace.end_ns = _clock()
            trace._resolve_waits()
    engine.waitall()

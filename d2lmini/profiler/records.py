"""Records of operations, waits, memory changes, and of what a program does outside the engine:
numbers and names, no arrays. Times are nanoseconds of the engine's clock.

`Recorder` is the listener that records every operation (`engine.operation`): the common base of a
trace and a live view. The engine calls its methods under its lock (`instrument`). Each stores the
time and the names and returns. A record is complete when its operation has ended; `_open` has the
incomplete ones.

>>> from d2lmini import nd
>>> from d2lmini.base import instrument
>>> with instrument.listening(Recorder()) as recorder:
...     x = nd.ones((2, 2)) + 1
...     nd.waitall()
>>> [str(operation) for operation in recorder._pushed]
['1 _ones', '2 _plus_scalar']
"""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import MutableSequence
from itertools import count
from operator import attrgetter
from typing import Any, NamedTuple

from d2lmini.base import callsite, forks, instrument
from d2lmini.base.callsite import Site
from d2lmini.context import Context
from d2lmini.engine.core import Task, Var
from d2lmini.engine.operation import Operation as Operation
from d2lmini.engine.scheduler import thread_state

#: Keys to sort and search by: times of operations, and of what else has a begin and an end.
PUSHED, BEGAN, ENDED = map(attrgetter, ("pushed_ns", "began_ns", "ended_ns"))
BEGINS, ENDS = map(attrgetter, ("begin_ns", "end_ns"))


class Wait(NamedTuple):
    """A wait of a thread of the program.

    kind       kind of wait: asnumpy, wait_to_read, waitall, backpressure, ...
    target     serial number of the awaited Var; None: waited for everything, or for back-pressure
    operation  number of the operation that computed the awaited value; 0 if unknown
    pushed     number of operations pushed before the wait
    site       the line that waited
    thread     the thread
    call       the library function that this line called: "NDArray.asnumpy"
    instead    an alternative, if the wait is hidden (`lint_waits`); else None
    """

    kind: str
    target: int | None
    operation: int
    pushed: int
    site: Site | None
    thread: str
    begin_ns: int
    end_ns: int
    call: str = ""
    instead: str | None = None

    @property
    def seconds(self) -> float:
        """The duration of the wait."""
        return (self.end_ns - self.begin_ns) / 1e9

    @property
    def where(self) -> str:
        """The line that waited: "train.py:12: l.asnumpy()"."""
        return callsite.describe(self.site)


def begin_of(step: Operation | Wait) -> int:
    """When the program came to it: the push of an operation, the begin of a wait."""
    return step.begin_ns if isinstance(step, Wait) else step.pushed_ns


class SplitRecord(NamedTuple):
    """The split part of an operation.

    pieces   maximal number of workers
    ns       its duration
    work_ns  the work in it: its duration on one worker
    late     may workers help that become idle after the start?
    """

    pieces: int
    ns: int
    work_ns: int
    late: bool = True


class Change(NamedTuple):
    """An allocation (nbytes > 0) or a free (< 0).

    operation  number of the operation that ran on the allocating thread; 0 if none did
    serial     serial number of the memory's Var; 0: a Var that no trace has seen
    site       the allocating line, if no operation writes the Var first; else None
    live       for allocations: the bytes of the pool's arrays after it
    """

    when_ns: int
    ctx: Context
    nbytes: int
    operation: int
    serial: int = 0
    site: Site | None = None
    live: int = 0


class Notice(NamedTuple):
    """A thread passes on what it knows, or learns what another passed on.

    token      the same number for both
    kind       "tell", or how the thread learned: start, join, result, wait
    thread     the thread
    operation  number of the operation within which the thread told it; 0: none
    pushed, waits    number of operations pushed, and of waits ended, before it
    site       the line
    """

    token: int
    kind: str
    thread: str
    operation: int
    pushed: int
    waits: int
    site: Site | None

    @property
    def where(self) -> str:
        """The line: "train.py:12: thread.join()"."""
        return callsite.describe(self.site)


class Copy(NamedTuple):
    """A NumPy copy of an array appeared (nbytes > 0) or was given back (< 0)."""

    when_ns: int
    nbytes: int
    site: Site | None


# -- the listener ----------------------------------------------------------------------------------

#: The thread that has each name.
_owners: dict[str, weakref.ref[threading.Thread]] = {}
_door = forks.guard(threading.RLock())  # reentrant: a finalizer may run while the lock is held


_local = threading.local()  # `name` of the thread, after the first request


def this_thread() -> str:
    """The name of the calling thread, unique among the live threads: a second one that the program
    names "loader" becomes "loader (2)"."""
    return getattr(_local, "name", "") or _name()


def _name() -> str:
    thread = threading.current_thread()
    name, number = thread.name, 1
    with _door:
        while name in _owners and (owner := _owners[name]()) is not None and owner.is_alive():
            number += 1
            name = f"{thread.name} ({number})"
        _owners[name] = weakref.ref(thread)
    _local.name = name
    return name


_new = object.__new__
_serials = count(1)


def serial_of(var: Var) -> int:
    """The number that identifies a Var in records; assigned when a recorder first sees the Var."""
    serial: int = getattr(var, "serial", 0)  # for new Vars cheaper than catching the error
    if not serial:
        var.serial = serial = next(_serials)
    return serial


class Recorder(instrument.Instrument):
    """Records operations. A subclass chooses the class of the records and their destination.

    _record  the class of the records
    _pushed  records in the order of their pushes; a record is appended when it is filled, because
             another thread may read the sequence
    """

    _record: type[Operation] = Operation
    _pushed: MutableSequence[Any]

    def __init__(self) -> None:
        self._pushed = []
        self.count = 0
        self._open: dict[Task, Any] = {}

    #: The clock of all times, in nanoseconds.
    _clock = staticmethod(time.perf_counter_ns)

    def push(self, task: Task) -> None:
        # A task that runs although an input is missing lists its reads only in `shared`.
        reads, parent = task.reads or task.shared, self._open.get(thread_state.task)
        operation = self._new_record(
            task.name, task.ctx, reads, task.writes, task.site, task.predicted_us,
            task.footprint(), task.lane, task.priority, 0 if parent is None else parent.number,
        )  # fmt: skip
        operation.worker = ""
        operation.ready_ns = operation.began_ns = operation.ended_ns = 0
        self._open[task] = operation
        operation.pushed_ns = self._clock()
        self._pushed.append(operation)

    def small(
        self, name: str, ctx: Context, reads: tuple[Any, ...], writes: tuple[Any, ...],
        site: Site | None, predicted_us: float, footprint: Any, begin_ns: int, end_ns: int,
    ) -> None:  # fmt: skip
        operation = self._new_record(name, ctx, reads, writes, site, predicted_us, footprint)
        operation.worker = "caller"
        operation.pushed_ns = operation.ready_ns = operation.began_ns = begin_ns
        operation.ended_ns = end_ns
        self._pushed.append(operation)

    def _new_record(
        self, name: str, ctx: Context, reads: tuple[Var, ...], writes: tuple[Var, ...],
        site: Site | None, predicted_us: float, footprint: Any, lane: str = "compute",
        priority: int = 0, by: int = 0,
    ) -> Any:  # fmt: skip
        """A record with the fields that do not depend on who runs the operation, and when."""
        operation = _new(self._record)
        self.count = operation.number = self.count + 1
        operation.name = name
        operation.ctx = ctx
        operation.thread = this_thread()
        operation.site = site
        operation.predicted_us = predicted_us
        operation.reads = tuple(map(serial_of, reads))
        operation.writes = tuple(map(serial_of, writes))
        operation.failure = None
        operation.footprint, operation.lane = footprint, lane
        operation.priority, operation.by = priority, by
        return operation

    def ready(self, task: Task) -> None:
        operation = self._open.get(task)
        if operation is not None:  # else pushed before the recorder listened
            operation.ready_ns = self._clock()

    def start(self, task: Task, worker: str) -> None:
        operation = self._open.get(task)
        if operation is not None:
            operation.worker = worker
            operation.began_ns = self._clock()

    def end(self, task: Task, failure: Any) -> None:
        operation = self._open.pop(task, None)
        if operation is not None:
            operation.ended_ns = self._clock()
            if failure is not None:
                operation.failure = failure.report.text

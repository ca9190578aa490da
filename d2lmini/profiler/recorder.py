"""The listener that records every operation: the common base of a trace and a live view.

The engine calls the methods below under its lock (`instrument`). Each stores the time and the names
and returns. A record is complete when its operation has ended; `_open` has the incomplete ones.

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
from collections.abc import MutableSequence
from itertools import count
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from d2lmini.base import forks, instrument
from d2lmini.base.forks import living
from d2lmini.engine.core import Task, Var
from d2lmini.engine.scheduler import thread_state
from d2lmini.profiler.records import Operation

if TYPE_CHECKING:
    from d2lmini.base.callsite import Site
    from d2lmini.context import Context

_names: WeakKeyDictionary[threading.Thread, str] = WeakKeyDictionary()
_door = forks.guard(threading.RLock())  # reentrant: a finalizer may run while the lock is held


class _ThreadName(threading.local):
    """Per thread: its name, after the first request."""

    name = ""


_thread_name = _ThreadName()


def this_thread() -> str:
    """The name of the calling thread, unique among the live threads: a second one that the program
    names "loader" becomes "loader (2)"."""
    return _thread_name.name or _name()


def _name() -> str:
    thread = threading.current_thread()
    with _door:
        others = [other for other in living(_names) if other is not thread]
        taken = {_names[other] for other in others if other.is_alive()}
        name = thread.name
        numbers = count(2)
        while name in taken:
            name = f"{thread.name} ({next(numbers)})"
        _names[thread] = _thread_name.name = name
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
        reads = task.reads or task.shared
        operation = self._new_record(
            task.name, task.ctx, reads, task.writes, task.site, task.predicted_us
        )
        operation.lane = task.lane
        operation.worker = ""
        operation.priority = task.priority
        operation.footprint = task.footprint()
        operation.ready_ns = operation.began_ns = operation.ended_ns = 0
        parent = self._open.get(thread_state.task)
        operation.by = 0 if parent is None else parent.number
        self._open[task] = operation
        operation.pushed_ns = self._clock()
        self._pushed.append(operation)

    def small(
        self, name: str, ctx: Context, reads: tuple[Any, ...], writes: tuple[Any, ...],
        site: Site | None, predicted_us: float, footprint: Any, begin_ns: int, end_ns: int,
    ) -> None:  # fmt: skip
        operation = self._new_record(name, ctx, reads, writes, site, predicted_us)
        operation.lane = "compute"
        operation.worker = "caller"
        operation.priority = 0
        operation.footprint = footprint
        operation.pushed_ns = operation.ready_ns = operation.began_ns = begin_ns
        operation.ended_ns = end_ns
        operation.by = 0
        self._pushed.append(operation)

    def _new_record(
        self, name: str, ctx: Context, reads: tuple[Var, ...], writes: tuple[Var, ...],
        site: Site | None, predicted_us: float,
    ) -> Any:  # fmt: skip
        """A record with the fields that do not depend on where the operation runs."""
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

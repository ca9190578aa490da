"""The records of the stepped engine: events, operations, and predicted durations.

Nothing here holds an array or a Var: the log of a program is numbers and names, and can be written
as JSON and read back.

>>> from d2lmini.engine.stepped_records import LogEntry
>>> print(LogEntry("begin", 3, "dot", "cpu 1", 20.0))
20 us: cpu 1 begins 3 dot
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import NamedTuple

from d2lmini.engine.core import Task
from d2lmini.engine.lane_times import find_lane_time
from d2lmini.engine.operation import Operation
from d2lmini.engine.worker_pools import WIRE

#: Duration in microseconds of an operation whose run time is not predicted.
UNKNOWN_US = 100.0
#: Bytes that a link moves in a microsecond: about PCI Express 3.0 x16.
LINK_BYTES_PER_US = 12e3

#: Run times in microseconds: one for all, by name, or a function of the task; None: as predicted.
Times = float | Mapping[str, float] | Callable[[Task], float] | None


class LogEntry(NamedTuple):
    """One line of the log.

    kind      "push", "begin" or "end"
    number    of the operation, in program order
    name      of the operation
    worker    that runs the operation; "" for a push
    time_us   on the virtual clock
    """

    kind: str
    number: int
    name: str
    worker: str
    time_us: float

    def __str__(self) -> str:
        who = "the program pushes" if self.kind == "push" else f"{self.worker} {self.kind}s"
        return f"{self.time_us:g} us: {who} {self.number} {self.name}"


class Text(str):
    """Text that a notebook shows without quotes and escapes."""

    __slots__ = ()

    __repr__ = str.__str__


class SteppedOperation(Operation):
    """An operation of the stepped engine; its times are those of the virtual clock. Its status is
    waiting, ready, running, done, failed or skipped."""

    __slots__ = ("status",)

    def __init__(
        self, task: Task, reads: tuple[int, ...], writes: tuple[int, ...], by: int, now_ns: int
    ):
        self.number = task.seq
        self.name = task.name
        self.ctx, self.lane = task.ctx, lane_of(task)
        self.worker = ""
        self.thread = threading.current_thread().name
        self.site = task.site
        self.priority, self.predicted_us = task.priority, task.predicted_us
        self.reads, self.writes = reads, writes
        self.pushed_ns = now_ns
        self.ready_ns = self.began_ns = self.ended_ns = 0
        self.failure = None
        self.footprint = task.footprint()
        self.status = "waiting"
        self.by = by


def lane_of(task: Task) -> str:
    """The lane that serves a task: copies within the CPU run on its compute workers."""
    return "compute" if task.ctx.is_cpu and task.lane != WIRE else task.lane


def predict_us(task: Task) -> float:
    """The time on a simulated lane; else the engine's prediction; for a copy, the time a link
    takes; else `UNKNOWN_US`."""
    lane_time = find_lane_time(task)
    us = None if lane_time is None else lane_time(task)
    if us is not None:
        return us
    if task.predicted_us < 1e9:
        return task.predicted_us
    footprint = task.footprint() if task.lane != "compute" else None
    return UNKNOWN_US if footprint is None else 10.0 + footprint().nbytes / LINK_BYTES_PER_US


def duration_of(times: Times) -> Callable[[Task], float]:
    """A function that gives a task's duration in microseconds of the virtual clock."""
    known = times is None or callable(times) or isinstance(times, (int, float, Mapping))
    if not known or isinstance(times, bool):
        raise TypeError(
            "times is microseconds for all, a dict by name, or a function of the task; "
            f"got {times!r}"
        )

    def choose(task: Task) -> float:
        if callable(times):
            return times(task)
        us = times.get(task.name) if isinstance(times, Mapping) else times
        return predict_us(task) if us is None else us

    def duration_us(task: Task) -> float:
        us = choose(task)
        if not (isinstance(us, (int, float)) and 0 <= us < float("inf")):
            raise ValueError(f"times: {task.name} takes 0 or more microseconds, got {us!r}")
        return float(us)

    return duration_us

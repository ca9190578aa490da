"""Bulk execution: several tasks of one thread travel as one.

Handing a task to a worker costs tens of microseconds. Inside `engine.bulk(n)` up to n tasks of
this thread are collected in a `Segment`, which is itself a task: it is in line for every Var its
tasks touch from the moment each was pushed, and becomes ready when it is closed. It is closed when
it is full, when the scope ends, and as soon as anybody pushes to or waits for one of its Vars.
MXNet calls the same thing bulk execution.
"""

from __future__ import annotations

from d2lmini.engine import core
from d2lmini.engine.core import Task, Var

# While a segment is open it must not become ready, however many Vars it is granted.
_OPEN = 1 << 30


class Segment(Task):
    """An open or closed batch of tasks, claimed and run as one, in push order."""

    __slots__ = ("closed", "reading", "tasks", "writing")

    def __init__(self, first: Task):
        super().__init__("bulk", (), (), first.ctx, first.priority)
        self.tasks: list[Task] = []
        self.reading: dict[Var, None] = {}
        self.writing: dict[Var, None] = {}
        self.waits = _OPEN
        self.seq = first.seq
        self.closed = False

    @property
    def shared(self) -> tuple[Var, ...]:  # type: ignore[override]
        """The Vars it holds as a reader."""
        return tuple(self.reading)

    def fits(self, task: Task) -> bool:
        """Can `task` join? Not across contexts or priorities, and a Var that the segment reads
        cannot be written by it: others may be reading that too."""
        return (
            task.ctx == self.ctx
            and task.priority == self.priority
            and not any(var in self.reading for var in task.writes)
        )

    def touches(self, var: Var) -> bool:
        """Is the segment in line for `var`?"""
        return var in self.reading or var in self.writing

    def add(self, task: Task) -> None:
        """Claim what `task` needs beyond what is held already (lock held)."""
        for var in task.shared:
            if var not in self.reading and var not in self.writing:
                self.reading[var] = None
                core.claim_var(self, var, False)
        for var in task.writes:
            if var in self.writing:
                var.version += 1
            else:
                self.writing[var] = None
                core.claim_var(self, var, True)
        self.tasks.append(task)

    def close(self) -> bool:
        """No more tasks; True when everything is granted, so that it is ready (lock held)."""
        self.closed = True
        self.writes = tuple(self.writing)
        self.waits = sum(not core.holds(self, v) for v in (*self.reading, *self.writing))
        return self.waits == 0

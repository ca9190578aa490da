"""Bulk execution: several tasks of one thread are handed to a worker as one.

Handing a task to a worker costs tens of microseconds. Inside `engine.bulk(n)` up to n tasks of
this thread are collected in a `BulkSegment`, which is itself a task: the segment claims the Vars of
each task at its push, and becomes ready when it is closed. A segment is closed when it is full,
when the scope ends, when another thread pushes to or waits for one of its Vars, and when any thread
waits for everything. MXNet calls the same thing bulk execution.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from d2lmini.engine import core
from d2lmini.engine.core import Task, Var

#: `waits` of an open task: it must not become ready, however many Vars it is granted.
OPEN = 1 << 30


class BulkSegment(Task):
    """A batch of tasks, claimed and run as one, in push order. A task leaves it after running."""

    __slots__ = ("lane", "open", "parts")

    shared: dict[Var, None]  # type: ignore[assignment]
    writes: dict[Var, None]  # type: ignore[assignment]

    def __init__(self, first: Task):
        super().__init__("bulk", (), (), first.ctx, first.priority)
        self.lane = first.lane
        self.shared = {}
        self.writes = {}
        self.parts: deque[Task] = deque()  # type: ignore[misc]
        self.waits = OPEN
        self.seq = first.seq
        self.open = True

    @property
    def defers(self) -> bool:  # type: ignore[override]
        return all(task.defers for task in self.parts)

    def fits(self, task: Task) -> bool:
        """True if `task` can join. Not across contexts, lanes or priorities; nor if it writes a Var
        that the segment reads and that others are queued for: they come first."""
        return (
            task.ctx == self.ctx
            and task.lane == self.lane
            and task.priority == self.priority
            and all(core.is_last(self, var) for var in task.writes if var in self.shared)
        )

    def touches(self, variables: Iterable[Var]) -> bool:
        """True if the segment claims one of `variables`."""
        return any(var in self.shared or var in self.writes for var in variables)

    def add(self, task: Task) -> None:
        """Claim the Vars of `task` that the segment has not claimed yet (lock held)."""
        try:
            self._claim(task)
            self.parts.append(task)
        except BaseException:  # Ctrl-C: keep exactly the Vars that were claimed
            for var in [var for var in self.shared if var in self.writes]:
                core.mend((var,))
                del (self.writes if self in var.readers else self.shared)[var]
            for named in (self.shared, self.writes):
                for var in [var for var in named if not core.in_line(self, var)]:
                    del named[var]
            raise

    def _claim(self, task: Task) -> None:
        for var in task.shared:
            if var not in self.shared and var not in self.writes:
                self.shared[var] = None
                core.claim_var(self, var, False)
        for var in task.writes:
            var.version += task.counts
            if var in self.shared:
                self.writes[var] = None
                core.become_writer(self, var)
                del self.shared[var]
            elif var not in self.writes:
                self.writes[var] = None
                core.claim_var(self, var, True)

    def close_and_claim(self) -> bool:
        """Count the Vars that a closed segment waits for; True if none, so that it is ready."""
        self.waits = core.count_missing(self)
        return self.waits == 0

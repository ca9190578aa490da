"""The rest of an engine's interface: counts, bounds, cancelling, checking.

`ThreadedEngine` and `NaiveEngine` differ only in the threads that run ready tasks; they share three
layers: `scheduler` (push and run), `waits`, and this one.
"""

from __future__ import annotations

import weakref
from typing import NamedTuple

from d2lmini import callsite
from d2lmini.base import MXNetError
from d2lmini.callsite import Site
from d2lmini.engine import core
from d2lmini.engine.bulk import BulkSegment
from d2lmini.engine.failure import Failure
from d2lmini.engine.scheduler import open_all
from d2lmini.engine.waits import Waits


class Stats(NamedTuple):
    """Counts since the engine started. pushed = executed + skipped + pending.

    executed: operations that ran, on any thread; `inline` of them on the caller's thread.
    skipped: operations that were cancelled or whose inputs failed. paused: pushes that waited for
    the bound.
    """

    pushed: int
    executed: int
    inline: int
    skipped: int
    pending: int
    pending_bytes: int
    peak_pending_bytes: int
    limit_bytes: int | None
    paused: int
    workers: int


class Engine(Waits):
    """Orders and runs tasks; see `core` for the rules and the promises."""

    kind = "?"

    #: Every living engine: after a fork the child restarts all of them.
    alive: weakref.WeakSet[Engine] = weakref.WeakSet()

    def __init__(self, inline_below: float, limit: int | None):
        super().__init__(inline_below, limit)
        Engine.alive.add(self)

    @property
    def workers(self) -> int:
        """Number of threads that may run tasks of the CPU."""
        return 1

    def stats(self) -> Stats:
        """A snapshot of the counts."""
        with self.lock:
            self.budget.drain()
            pending = len(self.pending) + len(self._late)
            pending += sum(len(t.parts) - 1 for t in self.pending if isinstance(t, BulkSegment))
            executed = self.ran + self.inlined
            return Stats(
                executed + self.skipped + pending, executed, self.inlined, self.skipped,
                pending, self.budget.pending, self.budget.peak, self.budget.limit,
                self.budget.paused, self.workers,
            )  # fmt: skip

    def limit_pending(self, nbytes: int | None) -> None:
        """Bound the bytes that may be pending; None: half of the memory available."""
        with self.lock:
            self.budget.limit = nbytes
            self.budget.peak = self.budget.pending
            open_all(self.room_locks)

    def cancel_pending(self) -> int:
        """Drop the tasks that have not begun; waits on their results raise "cancelled". Returns
        how many tasks were dropped."""
        site = callsite.find()
        with self.lock:
            self._flush()
            return self._cancel_all(site)

    def _cancel_all(self, site: Site | None) -> int:
        count = 0
        for task in self.pending:
            for part in list(task.parts)[task in self.running :]:
                if part.cancelled is None:
                    problem = MXNetError(f"{part.name}: cancelled before it ran")
                    part.cancelled = Failure(part.name, part.site or site, problem)
                    count += 1
        return count

    def after_fork(self) -> None:
        """In a forked child, which has no workers: fail all pending tasks and begin anew."""
        for task in (*self.pending, *self.gates):
            for var in (*task.shared, *task.writes):
                core.forget(var)
        for task in self.pending:
            for part in task.parts:
                self.budget.unpin(part)
                problem = MXNetError(
                    f"{part.name}: pending at fork; only the parent process computes it"
                )
                failure = Failure(part.name, part.site, problem)
                failure.sudden = True  # the parent may have been running it
                self._fail(part, failure, ran=False)
        sequence = self._sequence
        self._begin_anew()
        self._sequence = sequence

    def reset_lanes(self) -> None:
        """The devices or the numbers of workers have changed; see `worker_pools`."""

    def stop(self) -> None:
        """Let the workers end when no task is left; for engines made by `engine.use`."""

    def end(self) -> None:
        """The process ends: end the workers; threads that push or wait run the tasks."""

    def unwind(self) -> None:
        """The process ends with tasks pending: stop those that run."""

    def check(self) -> None:
        """Assert the invariants of `core` over everything pending."""
        with self.lock:
            self.budget.drain()
            self._check()
            self.budget.check(part for task in self.pending for part in task.parts)

    def _check(self) -> None:
        in_line = {*self.pending, *self.gates}
        for var in {v for t in in_line for v in (*t.shared, *t.writes)}:
            assert var.writer is None or not var.readers, "I1: a writer together with readers"
            assert not var.queue or var.writer or var.readers, "I2: a queue without a holder"
            if var.queue:
                assert var.queue[0][1] or var.writer, "I3: the head could be granted"
            there = {*var.readers, *(task for task, _ in var.queue)}
            assert there <= in_line, "a task in line is not pending"
            assert var.writer is None or var.writer in in_line, "a writer is not pending"
        for task in in_line:
            missing = core.count_missing(task)
            assert task.open or task.waits == missing, "I4: a wrong count of Vars not granted"
        assert self.running <= self.pending, "I6: a running task is not pending"

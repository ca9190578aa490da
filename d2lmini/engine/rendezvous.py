"""Rendezvous: a task that runs once n pushes have each supplied one input.

    y0 = norm(x0)      # on one device: opens the rendezvous, and reads its future result
    y1 = norm(x1)      # on another: supplies the last part, so the rendezvous may run

A rendezvous claims the Var it writes when it opens, so a reader of that Var waits for the
rendezvous as for any task; it claims each part when the part arrives. While parts are missing the
rendezvous is `open` and cannot become ready. No worker ever blocks on a rendezvous: it is a task
that is not ready.

No deadlock. When a wait finds that nothing runs and nothing can begin, the missing part cannot come
any more, because the thread that would supply it is the one that waits: the rendezvous ends, and
the wait raises the message of `missing`. The same happens when several of them wait for each other
in a circle. If the user has other living threads, they get `PATIENCE_S` to supply the part.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from d2lmini.base import MXNetError, callsite, instrument
from d2lmini.engine import core
from d2lmini.engine.core import FunctionTask, Var

if TYPE_CHECKING:
    from d2lmini.engine.scheduler import Scheduler

#: `waits` of an open rendezvous: it must not become ready, however many Vars it is granted.
OPEN = 1 << 30
#: Time that a wait which finds everything at rest gives other threads to supply the missing part.
PATIENCE_S = 2.0
#: While there are rendezvous, a wait checks at this interval whether everything is at rest.
LOOK_S = 0.02


class Rendezvous(FunctionTask):
    """Runs `fn` on the CPU when all `n` parts are there; writes one fresh Var.

    missing: returns the message that names the parts that did not come.
    """

    __slots__ = ("missing", "n", "open", "problem")

    defers = True

    def __init__(
        self, name: str, n: int, fn: Callable[[], object], var: Var, missing: Callable[[], str]
    ):
        super().__init__(fn, name, (), (var,))
        self.shared: tuple[Var, ...] = ()
        self.n = n
        self.missing = missing
        self.open = True
        self.problem: MXNetError | None = None
        self.waits = OPEN
        self.site = callsite.find()
        self.seq = 0

    def run(self) -> None:
        if self.problem is not None:
            raise self.problem
        super().run()

    def join(self, scheduler: Scheduler, part: Var) -> None:
        """Supply `part`, as it is after the pushes so far. The first part opens the rendezvous, the
        last completes it. A rendezvous that was ended ignores the part."""
        if scheduler.recorder is not None:
            scheduler.recorder.run_for_wait(self.name, part)
        with scheduler.lock:
            if self.open:
                self._join(scheduler, part)
        scheduler._work_off()

    def give_up(self, scheduler: Scheduler) -> None:
        """Fail if parts are missing: the thread that supplies them said that they do not come."""
        with scheduler.lock:
            if self.open and self.seq:
                self.end(scheduler)
        scheduler._work_off()

    def _join(self, scheduler: Scheduler, part: Var) -> None:
        try:
            if not self.seq:
                scheduler._sequence += 1
                self.seq = scheduler._sequence
                core.claim_var(self, self.writes[0], True)
                self.writes[0].version += 1
                scheduler.rendezvous.add(self)
                scheduler.pending.add(self)
                if instrument.listeners:
                    instrument.emit("push", self)
            self.shared = self.reads = (*self.shared, part)
            core.claim_var(self, part, False)
            scheduler.budget.pin(self)
            if len(self.shared) == self.n:
                self.close(scheduler)
        except BaseException:
            scheduler._mend(self)
            raise

    def close(self, scheduler: Scheduler) -> None:
        """Accept no more parts (lock held)."""
        self.open = False
        self.waits = core.count_missing(self)
        if self.waits == 0:
            scheduler._dispatch((self,))

    def end(self, scheduler: Scheduler) -> None:
        """Fail with the parts that are there: the rest will never come (lock held)."""
        self.problem = MXNetError(self.missing())
        if not self.open:  # it waits in a circle
            shared = tuple([var for var in self.shared if core.holds(self, var)])
            left, self.shared = self.shared, shared
            self.reads = shared
            for var in left:
                core.leave(self, var)
        self.close(scheduler)


def at_rest(scheduler: Scheduler) -> bool:
    """True if nothing runs, and nothing can begin, because of rendezvous (lock held). Then only
    later pushes can make room, so they are admitted whatever is pending."""
    scheduler.rendezvous &= scheduler.pending  # type: ignore[arg-type]
    if not scheduler.rendezvous or scheduler.running:
        return False
    return all(task.waits for task in scheduler.pending)


class StallDetector:
    """A wait's view of the rendezvous: since when everything is at rest."""

    def __init__(self, scheduler: Scheduler):
        self.scheduler = scheduler
        self.since: tuple[float, int] | None = None

    def until(self, deadline: float | None) -> float | None:
        """When to look next, if there are rendezvous; else `deadline`."""
        if not self.scheduler.rendezvous:
            return deadline
        soon = time.monotonic() + LOOK_S
        return soon if deadline is None else min(soon, deadline)

    def look(self) -> None:
        """End the rendezvous if waiting for them is in vain."""
        scheduler = self.scheduler
        with scheduler.lock:
            if not at_rest(scheduler):
                self.since = None
                return
            now = time.monotonic()
            if self.since is None or self.since[1] != scheduler._sequence:
                self.since = now, scheduler._sequence
            if now - self.since[0] < _patience_s():
                return
            self._end()
        self.since = None
        scheduler._work_off()

    def _end(self) -> None:
        oldest_first = sorted(self.scheduler.rendezvous, key=lambda task: task.seq)
        for task in [task for task in oldest_first if task.open] or oldest_first[:1]:
            task.end(self.scheduler)


def _patience_s() -> float:
    """0 if the process has no threads but this one and the library's, else `PATIENCE_S`."""
    here = threading.current_thread()
    for thread in threading.enumerate():
        if thread is not here and not thread.name.startswith("d2lmini-"):
            return PATIENCE_S
    return 0.0

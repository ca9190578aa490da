"""Meetings: tasks that several pushes make up, each with a part of what is to be read.

    y0 = norm(x0)      # on one device: opens a meeting, and reads what will come of it
    y1 = norm(x1)      # on another: brings the last part, so the meeting is complete and may run

A meeting stands in line for what it writes from its opening, so whoever reads that waits for it as
for any task; it stands in line for each part from when that comes. While parts are missing it is
`open` and cannot become ready. No worker ever waits for one: it is a task that is not ready.

Nothing hangs. When a wait finds that nothing runs and nothing can begin, the part that is missing
will not come any more, for the thread that would bring it is the one that waits: the meeting is
ended, and what `missing` says of it is raised there. So it is when meetings wait for each other in
a circle. If other threads of the user's are alive, they are given `PATIENCE_S` to come.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from d2lmini import callsite, instrument
from d2lmini.base import MXNetError
from d2lmini.engine import core
from d2lmini.engine.bulk import OPEN
from d2lmini.engine.core import FunctionTask, Var

if TYPE_CHECKING:
    from d2lmini.engine.road import Road

#: So long a wait that finds everything at rest gives other threads to bring the missing part.
PATIENCE_S = 2.0
#: So often a wait looks whether everything is at rest, while there are meetings.
LOOK_S = 0.02


class Meeting(FunctionTask):
    """Runs `fn` on the CPU when all `n` parts are there; writes one fresh Var.

    missing: says, if it comes to that, which parts did not come.
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

    def join(self, road: Road, part: Var) -> None:
        """Read `part` too, as it is after what was pushed so far. With the first part it is opened,
        with the last complete. Nothing happens to one that was ended."""
        if road.recorder is not None:
            road.recorder.wanted(self.name, part)
        with road.lock:
            if self.open:
                self._join(road, part)
        road._work_off()

    def give_up(self, road: Road) -> None:
        """Let it fail if parts are missing: who would bring them has said that they do not come."""
        with road.lock:
            if self.open and self.seq:
                self.end(road)
        road._work_off()

    def _join(self, road: Road, part: Var) -> None:
        road._flush((part,))
        try:
            if not self.seq:
                road._sequence += 1
                self.seq = road._sequence
                core.claim_var(self, self.writes[0], True)
                self.writes[0].version += 1
                road.meetings.add(self)
                road.pending.add(self)
                if instrument.listeners:
                    instrument.emit("push", self)
            self.shared = self.reads = (*self.shared, part)
            core.claim_var(self, part, False)
            road.budget.pin(self)
            if len(self.shared) == self.n:
                self.close(road)
        except BaseException:
            road._mend(self)
            raise

    def close(self, road: Road) -> None:
        """No more parts come (lock held)."""
        self.open = False
        self.waits = sum(not core.holds(self, var) for var in (*self.shared, *self.writes))
        if self.waits == 0:
            road._dispatch((self,))

    def end(self, road: Road) -> None:
        """It will never be complete: let it fail with those parts that are there (lock held)."""
        self.problem = MXNetError(self.missing())
        if not self.open:  # it waits for what waits for it
            shared = tuple([var for var in self.shared if core.holds(self, var)])
            left, self.shared = self.shared, shared
            self.reads = shared
            for var in left:
                core.leave(self, var)
        self.close(road)


def at_rest(road: Road) -> bool:
    """Does nothing run, and can nothing begin, because of meetings (lock held)?"""
    road.meetings &= road.pending  # type: ignore[arg-type]
    if not road.meetings or road.running or road.segments:
        return False
    return all(task.waits for task in road.pending)


class Watch:
    """What a wait knows of the meetings: since when everything is at rest."""

    def __init__(self, road: Road):
        self.road = road
        self.since: tuple[float, int] | None = None

    def until(self, deadline: float | None) -> float | None:
        """When to look next, if there are meetings; else `deadline`."""
        if not self.road.meetings:
            return deadline
        soon = time.monotonic() + LOOK_S
        return soon if deadline is None else min(soon, deadline)

    def look(self) -> None:
        """End the meetings if it is in vain to wait for them."""
        road = self.road
        with road.lock:
            if not at_rest(road):
                self.since = None
                return
            now = time.monotonic()
            if self.since is None or self.since[1] != road._sequence:
                self.since = now, road._sequence
            if now - self.since[0] < _patience_s():
                return
            self._end()
        self.since = None
        road._work_off()

    def _end(self) -> None:
        meetings = sorted(self.road.meetings, key=lambda meeting: meeting.seq)
        for meeting in [each for each in meetings if each.open] or meetings[:1]:
            meeting.end(self.road)


def _patience_s() -> float:
    """None, if there is no thread but this one and ours."""
    here = threading.current_thread()
    for thread in threading.enumerate():
        if thread is not here and not thread.name.startswith("d2lmini-"):
            return PATIENCE_S
    return 0.0

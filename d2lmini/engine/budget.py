"""Bounded run-ahead: how many bytes are pending, and when a push must pause.

A front end that issues faster than the back end computes fills memory with pending work. The
budget counts those bytes exactly: a piece of memory is *pending* while a queued task touches it
and either its contents are not computed yet, or the user has no handle left (only the queue keeps
the memory alive). Three events change this: a task is queued, a task completes, the last handle
dies.

The last event comes from a finalizer, which may run on any thread, even inside the engine's lock;
so `Handle` only sets a flag and appends to a deque (both atomic), and `drain` updates the counts
later.

A device with little memory has a second bound, half of its memory: copies onto the device wait
there when they run ahead of the computation.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from d2lmini.base import forks
from d2lmini.engine.core import Task, Var

#: Vars that a queued task touched when their last handle died; filled by finalizers, emptied by
#: `Budget.drain`.
_dropped: deque[WeightedVar] = deque()


class ByteAccount:
    """The pending bytes of one device and their bound; None: no bound of the device's own."""

    pending = 0
    most_pending: int | None = None


class WeightedVar(Var):
    """A Var that stands for memory. `weight`: the bytes that count against the bound."""

    __slots__ = ("counted", "filled", "held", "pins", "weight")

    #: The account of the device that holds the memory; memory sets it (`storage.Pool`).
    pool: Any = ByteAccount()

    def __init__(self, weight: int):
        super().__init__()
        self.weight = weight
        if weight:
            self.pins: set[Task] = set()  # queued or running tasks that touch it
            self.counted = False  # is its weight in Budget.pending?
            self.filled = False  # have its contents been computed?
            self.held = True  # does a user's handle exist?


class Handle:
    """Held by an array object beside its Var; when the last Handle dies, only the queue uses the
    memory."""

    __slots__ = ("_var",)

    def __init__(self, var: WeightedVar):
        self._var = var

    def __del__(self) -> None:
        try:
            var = self._var
        except AttributeError:  # Ctrl-C came before __init__
            return
        var.held = False
        if var.pins:  # else nothing changes, and the deque would keep the Var alive
            _dropped.append(var)


class Budget:
    """The accounts of one engine; every method expects the engine's lock to be held.

    pending   bytes pending now
    peak      most pending bytes since `limit_pending` was last called
    limit     the bound in bytes; None until first needed, then half of the memory available
    """

    __slots__ = ("limit", "paused", "peak", "pending")

    def __init__(self, limit: int | None = None):
        self.limit = limit
        self.pending = 0
        self.peak = 0
        self.paused = 0  # how many pushes had to wait

    def pin(self, task: Task) -> None:
        """`task` was queued. Idempotent."""
        for var in task.shared:
            if var.weight:
                var.pins.add(task)  # type: ignore[attr-defined]
                if not (var.filled and var.held):  # type: ignore[attr-defined]
                    self._settle(var)  # type: ignore[arg-type]
        for var in task.writes:
            if var.weight:
                var.pins.add(task)  # type: ignore[attr-defined]
                self._settle(var)  # type: ignore[arg-type]

    def unpin(self, task: Task) -> None:
        """`task` ran or was skipped; what it writes counts as filled. Idempotent."""
        for var in task.shared:
            if var.weight:
                var.pins.discard(task)  # type: ignore[attr-defined]
                self._settle(var)  # type: ignore[arg-type]
        for var in task.writes:
            if var.weight:
                var.pins.discard(task)  # type: ignore[attr-defined]
                var.filled = True  # type: ignore[attr-defined]
                self._settle(var)  # type: ignore[arg-type]

    def drain(self) -> None:
        """Update the counts for handles that died."""
        while _dropped:
            try:
                var = _dropped.popleft()
            except IndexError:  # another thread took it
                return
            self._settle(var)

    def admits(self, task: Task) -> bool:
        """True if `task` can be queued now without passing the bound."""
        extra = 0
        account: ByteAccount | None = None
        for var in task.writes:
            if var.weight and not (var.filled or var.counted):  # type: ignore[attr-defined]
                extra += var.weight
                account = var.pool  # type: ignore[attr-defined]
        if account is None:
            return True
        most = account.most_pending
        if most is not None and account.pending and account.pending + extra > most:
            return False
        if self.pending + extra <= (self.limit or 0):
            return True
        return self.pending == 0 and self.limit is not None

    def _settle(self, var: WeightedVar) -> None:
        counts = bool(var.pins) and not (var.filled and var.held)
        if counts is not var.counted:
            change = var.weight if counts else -var.weight
            account = var.pool
            # No call and no jump between these lines, so Ctrl-C cannot separate them.
            var.counted = counts
            self.pending += change
            account.pending += change
            if self.pending > self.peak:
                self.peak = self.pending


def default_limit() -> int:
    """Half of the memory available now, in bytes, at least 64 MiB."""
    with forks.importing:
        import psutil

    return max(64 << 20, psutil.virtual_memory().available // 2)

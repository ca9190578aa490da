"""Records of waits, memory changes and split operations, and of what a program does outside the
engine: numbers and names, no arrays.

Times are nanoseconds of the engine's clock. `Operation` is `engine.operation`'s.
"""

from __future__ import annotations

from typing import NamedTuple

from d2lmini.base import callsite
from d2lmini.base.callsite import Site
from d2lmini.context import Context
from d2lmini.engine.operation import Operation as Operation


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
    live, cached    for allocations: the pool's figures after it, in bytes
    """

    when_ns: int
    ctx: Context
    nbytes: int
    operation: int
    serial: int = 0
    site: Site | None = None
    live: int = 0
    cached: int = 0


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

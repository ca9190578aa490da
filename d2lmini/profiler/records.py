"""What a trace keeps of a wait, of memory, of a cut: numbers and names, no array.

Times are nanoseconds of the engine's clock. `Operation` is `engine.operation`'s.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from d2lmini import callsite, forks
from d2lmini.callsite import Site
from d2lmini.context import Context
from d2lmini.engine.operation import Operation as Operation

Record = TypeVar("Record")


class Records(list[Record]):
    """Records that are made when somebody looks: a hook lays down their values in `told`, one
    after the other, `width` for each, of which `make` makes a record."""

    def __init__(self, width: int, make: Callable[..., Record]):
        super().__init__()
        self.told: list[Any] = []
        self._width, self._make = width, make
        self._door = forks.guard(threading.Lock())

    def catch_up(self) -> None:
        """Make records of what was told since."""
        with self._door:
            new = self.told[:]
            del self.told[: len(new)]
            self.extend(self._make(*values) for values in zip(*[iter(new)] * self._width))


class Wait(NamedTuple):
    """A thread of the program waited.

    kind       its way of waiting: asnumpy, wait_to_read, waitall, backpressure, ...
    target     the serial number of the Var it waited for; None: for everything, or for room
    operation  the number of the operation that made what it waited for; 0 if none is known
    pushed     how many operations had been pushed when it began
    site       the line that waited
    thread     the thread
    call       the function of the library that this line called: "NDArray.asnumpy"
    instead    if the line hides that it waits (`lint_waits`): what it could do; else None
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
        """How long it lasted."""
        return (self.end_ns - self.begin_ns) / 1e9

    @property
    def where(self) -> str:
        """The line that waited: "train.py:12: l.asnumpy()"."""
        return callsite.describe(self.site)


class Cut(NamedTuple):
    """What was cut of an operation.

    pieces   at most so many could work at it at once
    ns       how long it lasted
    work_ns  how long its worker alone would have worked at it
    late     may workers help that become idle when it has begun?
    """

    pieces: int
    ns: int
    work_ns: int
    late: bool = True


class Change(NamedTuple):
    """Memory was taken (nbytes > 0) or given back (< 0).

    operation  the number of the operation that ran on the thread that took it; 0 if none did
    serial     the serial number of the Var whose memory it is; 0: one that no trace has met
    site       the line that took it, if no operation writes it first; else None
    live, cached    where it was taken: what the device's books say then, in bytes
    """

    when_ns: int
    ctx: Context
    nbytes: int
    operation: int
    serial: int = 0
    site: Site | None = None
    live: int = 0
    cached: int = 0

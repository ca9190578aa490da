"""What a trace keeps of an operation, of a wait and of memory: numbers and names, no array.

Times are nanoseconds of `time.perf_counter_ns`; 0 stands for "it did not". What takes longer to
find out than a hook may last is found out when it is asked for: the line as text, FLOPs and bytes.

>>> from d2lmini import nd, profile
>>> with profile() as trace:
...     y = nd.ones((2, 3)) + 1
>>> add = trace.operations[1]
>>> print(add, "|", add.worker, "|", add.flops, add.nbytes)
2 _plus_scalar | caller | 6.0 48.0
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from math import nan
from typing import Any, NamedTuple, TypeVar

from d2lmini import callsite, forks
from d2lmini.callsite import Site
from d2lmini.context import Context
from d2lmini.ops.spec import Cost

_NO_COST = Cost(0.0, 0.0)

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


class Operation:
    """One operation that was pushed.

    number         from 1, in the order of the program
    name           what messages call it
    ctx, lane      where it runs: a context, "compute" or the direction of a copy, "in" or "out"
    worker         the thread that ran it; "caller" where it ran inline; "" if it did not run
    thread         the thread that issued it
    site           the line that issued it
    priority, predicted_us    as the engine knew them
    reads, writes  serial numbers of the Vars that it reads, and that it changes
    pushed_ns, ready_ns, began_ns, ended_ns    when: issued; nothing it needs is pending any more;
                   a worker begins; it is complete. On a GPU: it begins and is complete there
    failure        why it has no result; None if it has
    footprint      what knows its cost: called without arguments, gives its flops and nbytes; or
                   None. The bytes of a copy are those that travel
    """

    __slots__ = (
        "number", "name", "ctx", "lane", "worker", "thread", "site", "priority", "predicted_us",
        "reads", "writes", "pushed_ns", "ready_ns", "began_ns", "ended_ns", "failure", "footprint",
        "_cost",
    )  # fmt: skip

    number: int
    name: str
    ctx: Context
    lane: str
    worker: str
    thread: str
    site: Site | None
    priority: int
    predicted_us: float
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    pushed_ns: int
    ready_ns: int
    began_ns: int
    ended_ns: int
    failure: str | None
    footprint: Any

    @property
    def place(self) -> str:
        """ "cpu", "gpu(0)", or its link: "gpu(0) in", "gpu(0) out". All CPU contexts are one."""
        place = "cpu" if self.ctx.is_cpu else str(self.ctx)
        return place if self.lane == "compute" else f"{place} {self.lane}"

    @property
    def is_copy(self) -> bool:
        """Does it run on a link between devices?"""
        return self.lane != "compute"

    @property
    def inline(self) -> bool:
        """Did it run where it was called, on the thread of the program?"""
        return self.worker == "caller"

    @property
    def run_ns(self) -> int:
        """How long it ran; 0 if it did not, or was not over when the trace ended."""
        return self.ended_ns - self.began_ns if self.ran else 0

    @property
    def ran(self) -> bool:
        """Did it begin and end while the trace listened? (It may have failed.)"""
        return bool(self.began_ns and self.ended_ns)

    @property
    def pushed_s(self) -> float:
        """When it was issued, in seconds of `time.perf_counter`."""
        return self.pushed_ns / 1e9

    @property
    def ready_s(self) -> float:
        """When nothing that it needs was pending any more; nan: it did not become ready."""
        return self.ready_ns / 1e9 if self.ready_ns else nan

    @property
    def began_s(self) -> float:
        """When it began to run; nan: it did not run."""
        return self.began_ns / 1e9 if self.began_ns else nan

    @property
    def ended_s(self) -> float:
        """When it was complete; nan: it never was."""
        return self.ended_ns / 1e9 if self.ended_ns else nan

    @property
    def cost(self) -> Cost:
        """Predicted FLOPs and bytes; zeros where nobody knows."""
        try:
            return self._cost
        except AttributeError:
            self._cost: Cost = _NO_COST if self.footprint is None else self.footprint()
            return self._cost

    @property
    def flops(self) -> float:
        """Predicted operations on numbers."""
        return self.cost.flops

    @property
    def nbytes(self) -> float:
        """Predicted bytes that are read and written."""
        return self.cost.nbytes

    @property
    def where(self) -> str:
        """The line that issued it: "train.py:12: y = x + 1"."""
        return callsite.describe(self.site)

    @property
    def line(self) -> str:
        """The text of that line."""
        return self.where.partition(": ")[2]

    def __str__(self) -> str:
        return f"{self.number} {self.name}"

    __repr__ = __str__


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

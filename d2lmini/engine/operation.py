"""What is written down of an operation: numbers and names, no array.

One record for all who watch the engine: traces, the live view, the stepped engine. Times are
nanoseconds of the engine's clock; 0 stands for "it did not". What takes longer to find out than a
hook may last is found out when it is asked for: the line as text, FLOPs and bytes.

>>> from d2lmini import nd, profile
>>> with profile() as trace:
...     y = nd.ones((2, 3)) + 1
>>> add = trace.operations[1]
>>> print(add, "|", add.worker, "|", add.flops, add.nbytes)
2 _plus_scalar | caller | 6.0 48.0
"""

from __future__ import annotations

from math import nan
from typing import Any, NamedTuple

from d2lmini import callsite
from d2lmini.callsite import Site
from d2lmini.context import Context


class _Cost(NamedTuple):
    """What a footprint tells; an op's own is `ops.spec.Cost`."""

    flops: float
    nbytes: float


_UNKNOWN = _Cost(0.0, 0.0)


def place_of(ctx: Context, lane: str) -> str:
    """Where a task runs, in words: "cpu", "gpu(0)", or a link: "gpu(0) in", "gpu(0) out". All CPU
    contexts are one."""
    place = "cpu" if ctx.is_cpu else str(ctx)
    return place if lane == "compute" else f"{place} {lane}"


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
        return place_of(self.ctx, self.lane)

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
    def cost(self) -> Any:
        """Predicted FLOPs and bytes; zeros where nobody knows."""
        try:
            return self._cost
        except AttributeError:
            self._cost: Any = _UNKNOWN if self.footprint is None else self.footprint()
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

"""The record of an operation: numbers and names, no array.

Traces, the live view and the stepped engine share this record. Times are nanoseconds of the
engine's clock; 0 means "did not happen". Facts that take too long for a hook are computed when
they are asked for: the text of the line, FLOPs and bytes.

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

from d2lmini.base import callsite
from d2lmini.base.callsite import Site
from d2lmini.context import Context


class RecordedCost(NamedTuple):
    """FLOPs and bytes; also the footprint of a recorded operation, which is a function, and its
    value. An op's own cost is `ops.spec.Cost`."""

    flops: float
    nbytes: float

    def __call__(self) -> RecordedCost:
        return self


_UNKNOWN = RecordedCost(0.0, 0.0)


def place_of(ctx: Context, lane: str) -> str:
    """Where a task runs, as text: "cpu", "gpu(0)", or a link: "gpu(0) in", "gpu(0) out". All CPU
    contexts are "cpu"."""
    place = "cpu" if ctx.is_cpu else str(ctx)
    return place if lane == "compute" else f"{place} {lane}"


class Operation:
    """One operation that was pushed.

    number         from 1, in program order
    name           the name in messages
    ctx, lane      where it runs: a context, "compute" or the direction of a copy, "in" or "out"
    worker         the thread that ran it; "caller" if it ran inline; "" if it did not run
    thread         the thread that issued it
    site           the line that issued it
    priority, predicted_us    as the engine knew them
    reads, writes  serial numbers of the Vars that it reads, and that it changes
    pushed_ns, ready_ns, began_ns, ended_ns    when it was issued; when nothing it needs was
                   pending any more; when it began; when it was complete (on a GPU: began and was
                   complete on the device)
    by             number of the operation that issued it while it ran; 0: the program did
    failure        why it has no result; None if it has one
    footprint      a function without arguments that returns flops and nbytes, or None. The bytes
                   of a copy are those that travel
    """

    __slots__ = (
        "number", "name", "ctx", "lane", "worker", "thread", "site", "priority", "predicted_us",
        "reads", "writes", "pushed_ns", "ready_ns", "began_ns", "ended_ns", "by", "failure",
        "footprint", "_cost",
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
    by: int
    failure: str | None
    footprint: Any

    def __init__(self, **fields: Any):
        for name, value in fields.items():
            setattr(self, name, value)

    @property
    def place(self) -> str:
        """ "cpu", "gpu(0)", or its link: "gpu(0) in", "gpu(0) out". All CPU contexts are "cpu"."""
        return place_of(self.ctx, self.lane)

    @property
    def is_copy(self) -> bool:
        """True if it runs on a link between devices."""
        return self.lane != "compute"

    @property
    def inline(self) -> bool:
        """True if it ran on the thread that issued it."""
        return self.worker == "caller"

    @property
    def run_ns(self) -> int:
        """Run time in ns; 0 if it did not run, or was not over when the trace ended."""
        return self.ended_ns - self.began_ns if self.ran else 0

    @property
    def ran(self) -> bool:
        """True if it began and ended while the trace listened. (It may have failed.)"""
        return bool(self.began_ns and self.ended_ns)

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
        """Predicted FLOPs and bytes; zeros if unknown."""
        try:
            return self._cost
        except AttributeError:
            self._cost: Any = _UNKNOWN if self.footprint is None else self.footprint()
            return self._cost

    @property
    def flops(self) -> float:
        """Predicted arithmetic operations."""
        return self.cost.flops

    @property
    def nbytes(self) -> float:
        """Predicted bytes read and written."""
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

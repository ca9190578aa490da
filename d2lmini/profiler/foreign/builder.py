"""Makes a trace from what a reader finds in a file of another library.

A reader adds operations, waits and memory changes in any order. `finish` puts the operations in the
order of their pushes, numbers them, derives when each was ready, and finds what waits waited for.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from itertools import count

from d2lmini.base import MXNetError
from d2lmini.context import Context, cpu
from d2lmini.engine.operation import RecordedCost
from d2lmini.profiler.foreign.stack import Call, SourceLines
from d2lmini.profiler.records import Operation, Wait
from d2lmini.profiler.tracing import Trace
from d2lmini.profiler.waits import HIDDEN

_NO_SETS = "the file does not show what an operation reads and writes"

#: What no trace of another library shows.
LACKS = {
    "memory()": "the allocations of the file are not read",
    "replay(workers=)": f"{_NO_SETS}, so which operations could run side by side is unknown",
    "replay(devices=)": f"{_NO_SETS}, so what a device would have to be sent is unknown",
}


#: What a file does not say of an operation.
_UNKNOWN = {
    "site": None, "priority": 0, "predicted_us": float("inf"), "failure": None, "by": 0,
    "reads": (), "writes": (),
}  # fmt: skip


class TraceBuilder:
    """Collects the records; `trace` is the trace that `finish` completes."""

    def __init__(self, lines: SourceLines):
        self.trace = Trace()
        self.trace.lacks = dict(LACKS)
        self.lines = lines
        self._calls: dict[int, Call | None] = {}  # of each operation, by its identity
        self._waits: list[tuple[Wait, Call | None, Operation | None]] = []
        self._serials = count(1)
        self._begins: list[int] = []  # of the program's activities
        self._ends: list[int] = []

    def serial(self) -> int:
        """A serial number that stands for nothing else."""
        return next(self._serials)

    def operation(
        self, name: str, began_ns: int, ended_ns: int, thread: str, *, pushed_ns: int | None = None,
        worker: str = "caller", ctx: Context | None = None, lane: str = "compute",
        call: Call | None = None, nbytes: float = 0.0,
    ) -> Operation:  # fmt: skip
        """Add an operation; without `worker` it ran on the thread that called it."""
        operation = Operation()
        pushed_ns = began_ns if pushed_ns is None else min(pushed_ns, began_ns)
        fields = dict(
            _UNKNOWN, name=name, ctx=ctx or cpu(), lane=lane, worker=worker, thread=thread,
            pushed_ns=pushed_ns, ready_ns=pushed_ns, began_ns=began_ns,
            ended_ns=max(ended_ns, began_ns), footprint=RecordedCost(0.0, float(nbytes)),
        )  # fmt: skip
        for field, value in fields.items():
            setattr(operation, field, value)
        self.trace.operations.append(operation)
        self._calls[id(operation)] = call
        self.lines.add(call)
        return operation

    def follow(self, operation: Operation, before: Operation) -> None:
        """Let `operation` need the result of `before`."""
        serial = self.serial()
        before.writes += (serial,)
        operation.reads += (serial,)

    def wait(
        self, kind: str, thread: str, begin_ns: int, end_ns: int, call: Call | None,
        awaited: Operation | None = None, everything: bool = False,
    ) -> None:  # fmt: skip
        """Add a wait for `awaited`, for everything, or for an unknown operation."""
        # An awaited operation that is unknown: a Var that nothing writes.
        target = None if everything else self.serial()
        if awaited is not None and target:
            awaited.writes += (target,)
        hidden = HIDDEN.get(kind)
        wait = Wait(kind, target, 0, 0, None, thread, begin_ns, end_ns, kind, hidden)
        self._waits.append((wait, call, awaited))
        self.lines.add(call)

    def span(self, begin_ns: int, end_ns: int) -> None:
        """Note an activity of the program, which the trace must cover."""
        self._begins.append(begin_ns)
        self._ends.append(end_ns)

    def finish(self) -> Trace:
        """The trace; MXNetError if there is nothing in it."""
        trace = self.trace
        if not trace.operations:
            raise MXNetError("load: the file has events, but no operation among them")
        trace.operations.sort(key=lambda operation: (operation.pushed_ns, operation.began_ns))
        for number, operation in enumerate(trace.operations, start=1):
            operation.number = number
            operation.site = self.lines.site(self._calls[id(operation)])
        for operation, (needs, room) in zip(trace.operations, trace.order):
            ended = [trace[number].ended_ns for number in needs + room]
            ready_ns = max([operation.pushed_ns, *ended])
            operation.ready_ns = min(ready_ns, operation.began_ns)
        self._add_waits()
        if not any(operation.is_copy and operation.nbytes for operation in trace.operations):
            reason = "the file shows no copy between devices with its bytes"
            trace.lacks["replay(link_gb_s=)"] = reason
        self._set_facts()
        return trace

    def _add_waits(self) -> None:
        trace = self.trace
        pushed = [operation.pushed_ns for operation in trace.operations]
        for wait, call, awaited in sorted(self._waits, key=lambda found: found[0].end_ns):
            number = 0 if awaited is None else awaited.number
            before = bisect_right(pushed, wait.begin_ns)
            site = self.lines.site(call)
            trace.waits.append(wait._replace(operation=number, pushed=before, site=site))

    def _set_facts(self) -> None:
        trace = self.trace
        self._ends += (wait.end_ns for wait in trace.waits)
        self._ends += (o.ended_ns if o.inline else o.pushed_ns for o in trace.operations)
        trace.left_ns = max(self._ends)
        trace.begin_ns = min([trace.operations[0].pushed_ns, *self._begins])
        trace.end_ns = max(trace.left_ns, *(operation.ended_ns for operation in trace.operations))
        for place in dict.fromkeys(operation.place for operation in trace.operations):
            own = [operation for operation in trace.operations if operation.place == place]
            trace.workers[place] = _most_at_once(own)
        trace.cores = max(trace.workers.get("cpu", 1), 1)


def _most_at_once(operations: Iterable[Operation]) -> int:
    """The largest number of operations that ran at the same time."""
    steps = [(operation.began_ns, 1) for operation in operations if operation.run_ns]
    steps += [(operation.ended_ns, -1) for operation in operations if operation.run_ns]
    most = now = 0
    for _, step in sorted(steps):
        now += step
        most = max(most, now)
    return max(most, 1)

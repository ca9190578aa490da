"""Why can two operations never overlap, and what would have to change? (`Trace.explain`)

>>> from d2lmini import engine, nd, profile
>>> with engine.stepped(times=1000, workers=2), profile() as trace:
...     x = nd.ones((2, 2))
...     y = nd.exp(x)
...     x[:] = 3
>>> print(trace.explain(2, 3))                             # doctest: +ELLIPSIS
3 _full cannot run beside 2 exp:
    2 exp reads the array of 1 _ones: ...
    3 _full writes it, and makes room by waiting: ...
To allow it:
    let 3 _full write a fresh array: 1 ms less than 3 ms

A chain of reads and writes, or a wait of the program, forbids it. Each edit removes the obstacle
that is found next, until none is left: a fresh array where a write only makes room, a wait that
comes later (or a push that comes earlier, which is the same), a worker more. A value that is needed
cannot be edited away. The edits are tried on a copy of the trace, one after the other; the time is
what `Trace.replay` predicts with all of them so far.
"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass, field
from itertools import count, pairwise
from typing import TYPE_CHECKING

from d2lmini.profiler.obstacles import Obstacles
from d2lmini.profiler.records import Operation
from d2lmini.profiler.replay import Prediction

if TYPE_CHECKING:
    from d2lmini.profiler.tracing import Trace

#: No more edits than so many are looked for.
_MOST = 12


@dataclass(frozen=True)
class Edit:
    """A change of the program.

    kind      "fresh array", "wait", "worker" or "inline"
    text      what to do
    saves     what the run is predicted to save with this edit and those before it: a band, if it
              is another worker; None: not predicted
    """

    kind: str
    text: str
    saves: Prediction | None


@dataclass
class Explanation:
    """The result of `Trace.explain`; print it to read it.

    first, second    the operations, in the order of their issue
    chain    sentences: why the second must wait for the first; empty if nothing forbids the overlap
    edits    the changes that allow it, all of them together; empty if no such changes do
    run_s    the predicted time of the run as it is, in seconds
    """

    first: Operation
    second: Operation
    chain: list[str]
    edits: list[Edit] = field(default_factory=list)
    run_s: float = 0.0

    def __str__(self) -> str:
        if not self.chain:
            return f"{self.second} may run beside {self.first}: nothing forbids it"
        lines = [f"{self.second} cannot run beside {self.first}:"]
        lines += [f"    {link}" for link in self.chain]
        if not self.edits:
            return "\n".join([*lines, "No fresh array, moved wait or worker would allow it"])
        lines.append("To allow it:" if len(self.edits) == 1 else "To allow it, all of these:")
        for edit in self.edits:
            lines.append(f"    {edit.text}")
            if edit.saves is not None:
                ends = (_ms(ns / 1e9) for ns in sorted({edit.saves.low_ns, edit.saves.high_ns}))
                lines[-1] += f": {' to '.join(ends)} less than {_ms(self.run_s)}"
        return "\n".join(lines)

    __repr__ = __str__


def explain(trace: Trace, a: int | Operation, b: int | Operation) -> Explanation:
    """See `Trace.explain`."""
    a, b = (one.number if isinstance(one, Operation) else one for one in (a, b))
    trace[a], trace[b]  # IndexError for a number that no operation has
    if a == b:
        raise ValueError(f"explain: operation {a} and itself; name two operations by their numbers")
    a, b = sorted((a, b))
    if not Obstacles(trace).path(a, b) and Obstacles(trace).path(b, a):
        a, b = b, a  # a rendezvous comes after the operations that join it later
    first, second = trace[a], trace[b]
    run_ns = _predict(trace, frozenset(), {}).ns
    found = Explanation(first, second, [], [], run_ns / 1e9)
    edited, without, workers = trace, frozenset[str](), dict[str, int]()
    for _ in range(_MOST):
        obstacles = Obstacles(edited, without)
        x, y = edited[first.number], edited[second.number]
        why = obstacles.between(x, y)
        if why == "worker" and workers.get(x.place, 1) > 1:
            why = ""
        if not found.chain and why:
            found.chain = _chain(edited, obstacles, why, x, y)
        if not why:
            return found
        passed = obstacles.wait_between(x, y) if why == "waits" else None
        late = _last_room(obstacles, x.number, y.number) if why == "room" else 0
        if late and not set(trace[late].writes) <= set(trace[late].reads):
            edited = _with_fresh_array(edited, late)
            text = f"let {trace[late]} write a fresh array"
        elif passed is not None and passed.kind not in ("wait", "join", "result"):
            without |= {passed.where}
            text = f"wait below {_place(y)}, or issue {y} above the wait at {passed.where}"
        elif why == "worker":
            workers[x.place] = trace.workers.get(x.place, 1) + 1
            text = f"give {x.place} another worker, or put one of the two on another device"
        elif why == "inline":
            found.edits.append(Edit(why, f"queue {x}: engine.inline_below = 0", None))
            return found
        else:  # the value is needed or changed in place, or a thread was joined
            found.edits.clear()
            return found
        kind = {"room": "fresh array", "waits": "wait"}.get(why, why)
        now = _predict(edited, without, workers)
        saves = Prediction(run_ns - now.high_ns, run_ns - now.low_ns)
        found.edits.append(Edit(kind, text, saves))
    found.edits.clear()
    return found


def _chain(trace: Trace, obstacles: Obstacles, why: str, x: Operation, y: Operation) -> list[str]:
    """The links from `x` to `y`, in words."""
    if why in ("needs", "room"):
        path = obstacles.path(x.number, y.number, by_value=why == "needs")
        return [words for a, b in pairwise(path) for words in _link(trace, a, b)]
    if why == "waits":
        passed = obstacles.wait_between(x, y)
        assert passed is not None
        return [
            f"{x} is issued: {x.where}",
            f"the program waits until it is over ({passed.kind}): {passed.where}",
            f"{y} is issued only then: {y.where}",
        ]
    if why == "child":
        return [f"{trace[y.by]} comes after {x}, and issues {y} while it runs: {y.where}"]
    if why == "worker":
        return [f"both run at {x.place}, which has one worker"]
    return [f"{x} is small and runs where it is called, before {y} is issued: {x.where}"]


def _link(trace: Trace, a: int, b: int) -> list[str]:
    """Why operation `b` comes directly after `a`."""
    early, late = trace[a], trace[b]
    if a in trace.needs(b):
        return [
            f"{early} makes a value: {early.where}",
            f"{late} reads it: {late.where}",
        ]
    shared = [v for v in (*early.reads, *early.writes) if v in late.writes]
    makers = [o for o in trace.operations[: early.number] if shared and shared[0] in o.writes]
    array = f"the array of {makers[0]}" if makers else "an array from before the trace"
    does = "reads" if shared and shared[0] in early.reads else "writes"
    return [
        f"{early} {does} {array}: {early.where}",
        f"{late} writes it, and makes room by waiting: {late.where}",
    ]


def _last_room(obstacles: Obstacles, x: int, y: int) -> int:
    """The operation of the chain that only makes room, the last of them."""
    path, needs = obstacles.path(x, y), obstacles.trace.needs
    return next(late for late, early in pairwise(path[::-1]) if early not in needs(late))


def _with_fresh_array(trace: Trace, number: int) -> Trace:
    """The trace as it would be if operation `number` wrote fresh arrays, which the later operations
    use in place of the old ones."""
    edited = copy(trace)
    lowest = min([0, *(serial for operation in trace.operations for serial in operation.writes)])
    replaced = [serial for serial in trace[number].writes if serial not in trace[number].reads]
    fresh = dict(zip(replaced, count(lowest - 1, -1)))
    operations = [copy(operation) for operation in trace.operations]
    for operation in operations[number - 1 :]:
        operation.reads = tuple(fresh.get(serial, serial) for serial in operation.reads)
        operation.writes = tuple(fresh.get(serial, serial) for serial in operation.writes)
    edited.operations = operations
    edited._order, edited._ancestors, edited._events = [], {}, (None, None)
    return edited


def _predict(trace: Trace, without: frozenset[str], workers: dict[str, int]) -> Prediction:
    """The predicted duration of the run, without the waits at these lines."""
    lines = [where.partition(": ")[0] for where in without]
    predicted = trace.replay(workers=workers or None, without_wait_at=lines or None)
    assert predicted.prediction is not None
    return predicted.prediction


def _place(operation: Operation) -> str:
    return operation.where.partition(": ")[0]


def _ms(seconds: float) -> str:
    return f"{1e3 * seconds:.3g} ms"

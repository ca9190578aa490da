"""What keeps two operations of a trace from running side by side, in every legal schedule.

>>> from d2lmini import engine, nd, profile
>>> with engine.stepped(times=1000, workers=2), profile() as trace:
...     x = nd.ones((2, 2))
...     y = nd.exp(x)
...     x[:] = 3
>>> print(trace.explain(2, 3))                             # doctest: +ELLIPSIS
3 _full cannot run beside 2 exp:
    2 exp reads the array of 1 _ones: ...
    3 _full writes it, and makes room by waiting: ...

`Obstacles` answers without words, for programs that ask about many operations:

>>> with engine.use("threaded", inline_below=0), profile() as trace:
...     x = nd.ones((2, 2))
...     y = nd.exp(x)
...     y.wait_to_read()
...     z = nd.tanh(x)
>>> obstacles = Obstacles(trace)
>>> obstacles.between(trace[1], trace[2]), obstacles.between(trace[2], trace[3])
('needs', 'waits')

The second needs the result of the first. The third is free of the second by its data, but the
program issued it only after it had waited for the second. A wait counts for the thread that waited,
and for each thread that learned from it: by joining it, from its future, or
from an event, also from one that a pushed function sets.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from d2lmini.profiler.event_graph import ISSUE, ORDER, VALUE
from d2lmini.profiler.records import Notice, Operation, Wait

if TYPE_CHECKING:
    from d2lmini.profiler.tracing import Trace


class Obstacles:
    """Answers for one trace."""

    def __init__(self, trace: Trace):
        self.trace, self.graph = trace, trace.events

    def between(self, x: Operation, y: Operation) -> str:
        """Why `y`, issued after `x`, cannot run beside it: "needs", "room", "waits", "child" (an
        operation that needs `x` issues it), "inline", "worker", or "stream" in a trace of another
        library; "" if it can."""
        trace = self.trace
        if trace.lacks and x.worker == y.worker and not x.inline:
            return "stream"
        if self.path(x.number, y.number, by_value=True):
            return "needs"
        if self.path(y.number, x.number, by_value=True):
            return "needs"  # a rendezvous comes after the operations that join it later
        if self.path(x.number, y.number):
            return "room"
        if path := self._path(x, y):
            return "waits" if any(map(self._passes, path)) else "child"
        if x.inline and x.thread == y.thread:
            return "inline"
        return "worker" if x.place == y.place and trace.workers.get(x.place, 1) < 2 else ""

    def path(self, x: int, y: int, by_value: bool = False) -> list[int]:
        """A shortest chain of direct dependencies from operation `x` to `y`, by values alone if
        asked; empty if there is none."""
        graph = self.graph
        nodes = graph.path(graph.end(x), graph.begin(y), VALUE if by_value else ORDER)
        later = (graph.what(node).number for node in nodes if graph.kind(node) == "begin")
        return [x, *later] if nodes else []

    def wait_between(self, x: Operation, y: Operation) -> Wait | Notice | None:
        """By what the program knew, before `y` was issued, that `x` was over: a wait, or what
        another thread or an operation told; None: it did not know."""
        return next((what for node in self._path(x, y) if (what := self._passes(node))), None)

    def _path(self, x: Operation, y: Operation) -> list[int]:
        graph = self.graph
        return graph.path(graph.end(x.number), graph.begin(y.number), ISSUE)

    def _passes(self, node: int) -> Wait | Notice | None:
        """The wait that is over at a node, or what the thread learned there."""
        kind, what = self.graph.kind(node), self.graph.what(node)
        return what if kind == "over" or (kind == "note" and what.kind != "tell") else None


def explain(trace: Trace, a: int | Operation, b: int | Operation) -> Explanation:
    """See `Trace.explain`."""
    a, b = sorted(one.number if isinstance(one, Operation) else one for one in (a, b))
    trace[a], trace[b]  # IndexError for a number that no operation has
    if a == b:
        raise ValueError(f"explain: operation {a} and itself; name two operations by their numbers")
    obstacles = Obstacles(trace)
    if not obstacles.path(a, b) and obstacles.path(b, a):
        a, b = b, a  # a rendezvous comes after the operations that join it later
    first, second = trace[a], trace[b]
    why = obstacles.between(first, second)
    return Explanation(first, second, why, _chain(obstacles, why, first, second) if why else [])


@dataclass(frozen=True, repr=False)
class Explanation:
    """Why `second`, issued after `first`, must wait for it: in one of the words of
    `Obstacles.between`, and as a chain of sentences. Both are empty if nothing forbids the overlap.
    Print it to read it."""

    first: Operation
    second: Operation
    why: str
    chain: list[str]

    def __str__(self) -> str:
        if not self.chain:
            return f"{self.second} may run beside {self.first}: nothing forbids it"
        head = f"{self.second} cannot run beside {self.first}:"
        return "\n    ".join([head, *self.chain])

    __repr__ = __str__


def _chain(obstacles: Obstacles, why: str, x: Operation, y: Operation) -> list[str]:
    """The links from `x` to `y`, in words."""
    trace = obstacles.trace
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
    if why == "inline":
        return [f"{x} is small and runs where it is called, before {y} is issued: {x.where}"]
    return [f"both run at {y.worker if why == 'stream' else x.place}, one after the other"]


def _link(trace: Trace, a: int, b: int) -> list[str]:
    """Why operation `b` comes directly after `a`."""
    early, late = trace[a], trace[b]
    if a in trace.needs(b):
        return [f"{early} makes a value: {early.where}", f"{late} reads it: {late.where}"]
    shared = [v for v in (*early.reads, *early.writes) if v in late.writes]
    makers = [o for o in trace.operations[: early.number] if shared and shared[0] in o.writes]
    array = f"the array of {makers[0]}" if makers else "an array from before the trace"
    does = "reads" if shared and shared[0] in early.reads else "writes"
    return [
        f"{early} {does} {array}: {early.where}",
        f"{late} writes it, and makes room by waiting: {late.where}",
    ]

"""What keeps two operations of a trace from running side by side, in every legal schedule.

>>> from d2lmini import engine, nd, profile
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
and for each thread that learned from it (`profiler.outside`): by joining it, from its future, or
from an event, also from one that a pushed function sets.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from d2lmini.profiler.event_graph import ISSUE, ORDER, VALUE
from d2lmini.profiler.outside import Notice
from d2lmini.profiler.records import Operation, Wait

if TYPE_CHECKING:
    from d2lmini.profiler.tracing import Trace


class Obstacles:
    """Answers for one trace; `without` are lines whose waits do not count."""

    def __init__(self, trace: Trace, without: frozenset[str] = frozenset()):
        self.trace, self.graph = trace, trace.events
        self.without = without

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
        return graph.path(graph.end(x.number), graph.begin(y.number), ISSUE, self.without)

    def _passes(self, node: int) -> Wait | Notice | None:
        """The wait that is over at a node, or what the thread learned there."""
        kind, what = self.graph.kind(node), self.graph.what(node)
        return what if kind == "over" or (kind == "note" and what.kind != "tell") else None

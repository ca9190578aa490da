"""The critical path: the longest chain of events that had to follow one another.

An operation starts neither before its push nor before the end of its dependencies. A thread of the
program is sequential: between two pushes it takes its recorded time, an inline operation takes its
duration, and a wait ends no sooner than the operation it waits for. With any number of workers and
links the run would not be shorter than this path.

    with d2lmini.profile() as trace:
        train(net)
    print(trace.critical_path())

"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from d2lmini.base import callsite
from d2lmini.base.callsite import Site
from d2lmini.profiler.records import Wait

if TYPE_CHECKING:
    from d2lmini.profiler.tracing import Trace


class PathStep(NamedTuple):
    """One link of the chain.

    kind        "operation"; "issuing": the program's own time before a push or a wait; "wait": from
                the end of the awaited operation until the program continued
    name        of the operation, or the kind of wait
    operation   its number, for "issuing" the number of the pushed operation; 0: none
    site        the line of the program
    begin_ns, end_ns    since the start of the trace, if only the path had delayed the step
    """

    kind: str
    name: str
    operation: int
    site: Site | None
    begin_ns: int
    end_ns: int

    @property
    def where(self) -> str:
        """The line of the program: "train.py:12: y = nd.dot(x, w)"."""
        return callsite.describe(self.site)


class CriticalPath:
    """The longest chain: `steps`, the earliest first, and its `length_ns`; `wall_ns` is the
    duration of the run. Prints as a table of the lines with most time on the path."""

    def __init__(self, trace: Trace):
        graph = trace.events
        times, due = graph.times()
        self.length_ns = max(times.values())
        self.wall_ns = trace.end_ns - trace.begin_ns
        self.steps: list[PathStep] = []
        # Of the moments that come last the first, and an operation's before a thread's.
        last = [node for node, when in times.items() if when == self.length_ns]
        node = next((node for node in last if graph.kind(node) == "end"), last[0])
        while node >= 0:
            before, kind, what = due[node], graph.kind(node), graph.what(node)
            if kind == "push" and graph.kind(before) == "begin":
                kind, what = "end", graph.what(before)  # the part of its run before the push
            if times[node] > times[before]:
                self.steps.append(_step(_KINDS[kind], what, times[before], times[node]))
            node = before
        self.steps.reverse()

    @property
    def operations(self) -> list[int]:
        """The numbers of the operations on the path."""
        return [step.operation for step in self.steps if step.kind == "operation"]

    def __str__(self) -> str:
        share = 100 * self.length_ns / (self.wall_ns or 1)
        lines = [
            f"critical path: {self.length_ns / 1e6:.2f} ms of {self.wall_ns / 1e6:.2f} ms "
            f"({share:.0f} %), {len(self.operations)} operations"
        ]
        by_line: dict[tuple[str, str], list[int]] = {}
        where_of = cache(callsite.describe)  # a line has several sites
        for step in self.steps:
            of_line = by_line.setdefault((step.kind, where_of(step.site)), [0, 0])
            of_line[0] += step.end_ns - step.begin_ns
            of_line[1] += 1
        most = sorted(by_line.items(), key=lambda item: -item[1][0])[:8]
        for (kind, where), (ns, times) in most:
            lines.append(f"{ns / 1e6:10.2f} ms  {kind:<9} {times:>6} x  {where}")
        return "\n".join(lines)

    __repr__ = __str__


#: Kinds of nodes -> what the time before them is.
_KINDS = {"push": "issuing", "wait": "issuing", "end": "operation", "over": "wait"}


def _step(kind: str, what: Any, begin_ns: int, end_ns: int) -> PathStep:
    if isinstance(what, Wait):
        return PathStep(kind, what.kind, 0, what.site, begin_ns, end_ns)
    return PathStep(kind, what.name, what.number, what.site, begin_ns, end_ns)

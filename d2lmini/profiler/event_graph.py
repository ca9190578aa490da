"""The event graph of a trace: which moment of a run had to come after which, and why.

>>> from d2lmini import engine, nd, profile
>>> with engine.stepped(times=1000), profile() as trace:
...     x = nd.ones((2, 2))
...     y = nd.exp(x)
...     y.wait_to_read()
>>> graph = trace.events
>>> for edge in graph.nodes[graph.begin[2]].after:
...     print(graph.nodes[edge.source].kind, edge.cause)
push push
end value

A node is a moment: "push", "begin" and "end" of an operation; "wait" and "over", the begin and the
end of a wait; "idle", when all that was pushed before is done; "note", when a thread tells another
something or learns it (`profiler.outside`). An edge says that a node comes at least so many
nanoseconds after another, and the cause:

program   a thread does one thing after the other; the time is its own
inline    the same, after an operation that ran on the thread
child     an operation pushed the other while it ran
push      an operation begins when it is pushed, or later
value     it needs the result of the other operation
room      it writes where the other read or wrote
run       the time that an operation takes
wait      the awaited operation is over; the time until the thread goes on
all       an operation of all those that a wait is for
pause     the same of a push that waited for room
told      one thread learned from another, or from an operation, what had happened

The graph is built once for a trace. The critical path is a longest path in it; what keeps two
operations apart is a path from the end of one to the begin of the other (`obstacles`); a replay
takes the threads' events and the edges between operations, and gives them new times by the engine's
rules.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Collection, Iterable
from graphlib import CycleError, TopologicalSorter
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

from d2lmini.profiler.program import Completions, ThreadEvent, events_of

if TYPE_CHECKING:
    from d2lmini.profiler.outside import Notice
    from d2lmini.profiler.records import Operation, Wait
    from d2lmini.profiler.tracing import Trace


class Edge(NamedTuple):
    """A node comes `ns` or more after the node `source` (-1: the begin of the trace)."""

    source: int
    ns: int
    cause: str


class Node(NamedTuple):
    """A moment, and the edges that lead to it."""

    kind: str
    what: Operation | Wait | Notice
    after: list[Edge]


#: Causes that keep two operations apart in every legal schedule; the first two: their arrays.
VALUE = frozenset({"run", "value"})
ORDER = VALUE | {"room"}
ISSUE = ORDER | {"push", "child", "program", "all", "wait", "told"}


class EventGraph:
    """The graph of a trace.

    nodes    in the order of the program; those of notices come last
    threads  the events of each thread of the program, in order
    push, begin, end    the nodes of each operation, by number
    over     the node of each wait's end, by its position in trace.waits
    awaited  of each wait, by position: the operations it was for (None: all), and the time from
             their end until the thread went on
    """

    def __init__(self, trace: Trace):
        self.trace = trace
        self.nodes: list[Node] = []
        self.threads: dict[str, list[ThreadEvent]] = events_of(trace)
        n = len(trace.operations) + 1
        self.push, self.begin, self.end = [-1] * n, [-1] * n, [-1] * n
        self.over = [-1] * len(trace.waits)
        self.awaited: list[tuple[tuple[int, ...] | None, int]] = [(None, 0)] * len(trace.waits)
        self._ended: list[int] = []  # nodes: all that is over when what was pushed so far is
        children = [
            ThreadEvent(o.pushed_ns, 0, max(0, o.pushed_ns - trace[o.by].began_ns), o.number, o)
            for o in trace.operations
            if o.by
        ]
        completions = Completions(trace)
        last: dict[str, list[tuple[int, str]]] = {}
        for event in sorted(chain(children, *self.threads.values()), key=_place_of):
            operation, wait = event.operation, event.wait
            if wait is not None:
                before = last.get(wait.thread, [(-1, "program")])
                after = [Edge(node, event.gap_ns, cause) for node, cause in before]
                last[wait.thread] = [(self._add_wait(event, wait, after, completions), "program")]
            elif operation is not None and operation.by:
                parent = self.begin[operation.by]
                self._add_operation(operation, [Edge(parent, event.gap_ns, "child")])
            elif operation is not None:
                before = last.get(operation.thread, [(-1, "program")])
                after = [Edge(node, event.gap_ns, cause) for node, cause in before]
                push, end = self._add_operation(operation, after)
                ran = [(end, "inline")] if operation.inline else []
                last[operation.thread] = [*ran, (push, "program")]
        for begin, befores in zip(self.begin[1:], trace.order):
            for cause, numbers in zip(("value", "room"), befores):
                for k in numbers:
                    self.nodes[begin].after.append(Edge(self.end[k], 0, cause))
        self._add_notices()

    def _add(self, kind: str, what: Operation | Wait | Notice, after: list[Edge]) -> int:
        self.nodes.append(Node(kind, what, after))
        return len(self.nodes) - 1

    def _add_operation(self, operation: Operation, after: list[Edge]) -> tuple[int, int]:
        number = operation.number
        push = self.push[number] = self._add("push", operation, after)
        begin = self.begin[number] = self._add("begin", operation, [Edge(push, 0, "push")])
        run = Edge(begin, operation.run_ns, "run")
        end = self.end[number] = self._add("end", operation, [run])
        self._ended.append(end)
        return push, end

    def _add_wait(
        self, event: ThreadEvent, wait: Wait, after: list[Edge], completions: Completions
    ) -> int:
        begin = self._add("wait", wait, after)
        numbers, done_ns = completions.find_awaited(wait)
        on_ns = max(0, wait.end_ns - max(done_ns, wait.begin_ns))
        self.awaited[event.at] = numbers, on_ns
        if numbers is None:
            self._ended = [self._add("idle", wait, [Edge(k, 0, "all") for k in self._ended])]
        ended = self._ended if numbers is None else [self.end[k] for k in numbers]
        cause = "pause" if event.pauses else "wait"
        over = [Edge(begin, on_ns, "program"), *(Edge(k, on_ns, cause) for k in ended)]
        self.over[event.at] = self._add("over", wait, over)
        return self.over[event.at]

    def _first_node_of(self, event: ThreadEvent) -> int:
        if event.operation is not None:
            return self.push[event.operation.number]
        return self.nodes[self.over[event.at]].after[0].source

    def _last_node_of(self, event: ThreadEvent) -> int:
        return self.push[event.pushed] if event.operation is not None else self.over[event.at]

    def _add_notices(self) -> None:
        """What one thread told another, after what the teller, and before what the listener does
        next."""
        told: dict[int, list[int]] = defaultdict(list)  # by token
        events = {name: deque(own) for name, own in self.threads.items()}
        last: dict[str, list[Edge]] = defaultdict(list)
        for notice in self.trace.notices:
            own = events.get(notice.thread, deque())
            while own and (
                own[0].at < notice.waits if own[0].wait else own[0].pushed <= notice.pushed
            ):
                last[notice.thread] = [Edge(self._last_node_of(own.popleft()), 0, "program")]
            after = list(last[notice.thread])
            if notice.kind != "tell":
                after += [Edge(node, 0, "told") for node in told[notice.token]]
            elif notice.operation:
                after.append(Edge(self.end[notice.operation], 0, "told"))
            node = self._add("note", notice, after)
            if notice.kind == "tell":
                told[notice.token].append(node)
            last[notice.thread] = [Edge(node, 0, "told")]
            if own:
                self.nodes[self._first_node_of(own[0])].after.append(Edge(node, 0, "told"))

    def path(
        self, source: int, target: int, causes: Collection[str], without: Collection[str] = ()
    ) -> list[int]:
        """The nodes of a shortest path, over edges with these causes, and without the waits at the
        lines `without`; empty if there is none."""
        low = 0 if self.trace._joined else source  # all that comes later has a higher number
        after = {target: -1}
        todo = [target]
        for node in todo:
            if node == source:
                break
            for before, _, cause in self.nodes[node].after:
                if before >= low and before not in after and cause in causes:
                    if cause == "wait" and without and self.nodes[node].what.where in without:
                        continue
                    after[before] = node
                    todo.append(before)
        found = [source] if source in after else []
        while found and found[-1] != target:
            found.append(after[found[-1]])
        return found

    def times(self) -> tuple[list[int], list[Edge]]:
        """The earliest time of each node after the begin of the trace, and the edge that it is
        due to: of all that lead there, the longest way."""
        times, due = [0] * len(self.nodes), [Edge(-1, 0, "")] * len(self.nodes)
        for i in self._in_order():
            best = -1
            for edge in self.nodes[i].after:
                source, ns, cause = edge
                when = ns + times[source] if source >= 0 else ns
                if when > best and cause != "told":
                    best, due[i] = when, edge
            times[i] = max(best, 0)
        return times, due

    def _in_order(self) -> Iterable[int]:
        """The nodes, each after all that lead to it. Only a rendezvous comes after later ones."""
        if not self.trace._joined:
            return range(len(self.nodes))
        before = {
            i: [edge.source for edge in node.after if edge.source >= 0]
            for i, node in enumerate(self.nodes)
        }
        try:
            return list(TopologicalSorter(before).static_order())
        except CycleError:  # the clocks of merged ranks are estimates
            return range(len(self.nodes))


def _place_of(event: ThreadEvent) -> tuple[int, bool, int]:
    """The order of the program: a wait comes after the operations pushed before it."""
    return event.pushed, event.wait is not None, event.begin_ns

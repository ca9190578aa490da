"""The event graph of a trace: which moment of a run had to come after which, and why.

>>> from d2lmini import engine, nd, profile
>>> with engine.stepped(times=1000), profile() as trace:
...     x = nd.ones((2, 2))
...     y = nd.exp(x)
...     y.wait_to_read()
>>> graph = trace.events
>>> for edge in graph.after(("begin", 2)):
...     print(edge.source, graph.what(edge.source), edge.cause)
('push', 2) 2 exp push
('end', 1) 1 _ones value

A node is a moment: its kind, and a number. An operation has three: "push", "begin", "end"; a wait
has three: "wait", when the thread comes to it, "done", when the awaited operations are, and "over",
when the thread goes on. Two more kinds are "idle", when all that was pushed before a wait is done,
and "note", when a thread tells another something or learns it (`Notice`). Numbers are those of
operations, or positions in the trace's lists. An edge says that a node comes so many nanoseconds
after another, or later, and why:

program   a thread does one thing after the other; the time is its own
inline    the same, after an operation that ran on the thread
child     an operation pushed the other while it ran
push      nothing begins before it is pushed
value     it needs the result of the other operation
room      it writes where the other read or wrote
run       the time that an operation takes, or the thread until it goes on after a wait
wait      the wait is for the other operation
all       the wait is for all operations, and so for this
pause     a push waited for room, until the other operation was over
told      one thread learned from another, or from an operation, what had happened

A thread of the program has `ThreadEvent`s: it issued an operation, and ran it if inline, or waited.
Between two events, time that is neither wait nor inline operation is the thread's own.

The graph is made once for a trace, and is an index: `after` makes the edges of a node when they are
asked for. What keeps two operations apart is a path in it (`between`, `explain`). The critical path
is the longest: with any number of workers and links the run would not be shorter. A replay takes
the threads' events and the edges between operations, and gives them new times.

>>> graph.between(trace[1], trace[2])
'needs'
>>> print(trace.explain(1, 2))                              # doctest: +ELLIPSIS
2 exp cannot run beside 1 _ones:
    2 exp reads what 1 _ones makes: ...
>>> print(trace.bounds())
2.00 ms; no order of these operations takes less than 2.00 ms (the longest chain); if all are \
pushed at once and no worker is idle while one is ready, any order takes at most 2.00 ms

`trace.bounds()`: no order of the operations beats the work of a place (or link) on all its workers
at once, T1 / p, nor the longest chain of operations, on any number of workers. The other way round,
R. L. Graham (1966, "Bounds for certain multiprocessing anomalies") showed: if no worker is idle
while an operation is ready, they take at most T1 / p + (1 - 1 / p) chain, in any order (list
scheduling). All take the recorded durations; the program's own Python is not in them.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict, deque
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from d2lmini.base import callsite
from d2lmini.base.callsite import Site
from d2lmini.profiler.records import ENDED, Notice, Operation, Wait

if TYPE_CHECKING:
    from d2lmini.profiler.tracing import Trace


#: The kind of a moment, and a number; and the begin of the trace.
Node = tuple[str, int]
START: Node = "start", 0

#: Kinds of an operation's nodes.
_OF_OPERATIONS = ("push", "begin", "end")

PAUSE = "backpressure"


class ThreadEvent(NamedTuple):
    """An activity of a thread: it issued an operation (and ran it, if inline), or waited.

    begin_ns, end_ns  in the recording
    gap_ns    the thread's own time before
    pushed    a wait: number of operations pushed before; else the number of the operation
    at        a wait: its position in trace.waits
    """

    begin_ns: int
    end_ns: int
    gap_ns: int
    pushed: int
    operation: Operation | None
    wait: Wait | None = None
    at: int = -1

    @property
    def site(self) -> Site | None:
        """The line that issued or waited."""
        return (self.operation or self.wait).site  # type: ignore[union-attr]

    @property
    def begins(self) -> Node:
        """The node of its begin."""
        return ("wait", self.at) if self.wait else ("push", self.pushed)

    @property
    def ends(self) -> Node:
        """The node after which the thread goes on."""
        if self.wait:
            return "over", self.at
        return ("end" if self.operation and self.operation.inline else "push"), self.pushed


def events_of(trace: Trace) -> dict[str, list[ThreadEvent]]:
    """The activities of each thread of the program, in order. The first gap of a thread counts from
    the begin of the trace."""
    found: dict[str, list[ThreadEvent]] = defaultdict(list)
    for o in trace.operations:
        if not o.by:
            end_ns = o.ended_ns if o.inline else o.pushed_ns
            found[o.thread].append(ThreadEvent(o.pushed_ns, end_ns, 0, o.number, o))
    for i, wait in enumerate(trace.waits):
        event = ThreadEvent(wait.begin_ns, wait.end_ns, 0, wait.pushed, None, wait, i)
        found[wait.thread].append(event)
    for events in found.values():
        # On a virtual clock many have the same time.
        events.sort(key=lambda e: (e.begin_ns, e.pushed, e.end_ns if e.operation is None else 0))
        last_ns = trace.begin_ns
        for i, event in enumerate(events):
            if event.begin_ns > last_ns:
                events[i] = event._replace(gap_ns=event.begin_ns - last_ns)
            last_ns = max(last_ns, event.end_ns)
    return found


class Edge(NamedTuple):
    """A node comes `ns` or more after the node `source` (START: the begin of the trace)."""

    source: Node
    ns: int
    cause: str


#: Causes that keep two operations apart in every legal schedule: the values alone, all arrays, and
#: also what the program waited for before it issued the later one.
VALUE = frozenset({"run", "value"})
ORDER = VALUE | {"room"}
ISSUE = ORDER | {"push", "child", "program", "all", "wait", "told"}

#: What an edge says of the operations at its ends.
_SENTENCES = {
    "value": "{late} reads what {early} makes",
    "room": "{late} writes what {early} reads or writes, and makes room by waiting",
    "child": "{early} issues {late} while it runs",
    "push": "{late} is issued only then",
}


class EventGraph:
    """The graph of a trace.

    threads  the events of each thread of the program, in order
    awaited  of each wait, by its position in trace.waits: the operations it was for (None: all),
             and the time from their end until the thread went on
    """

    def __init__(self, trace: Trace):
        self.trace = trace
        self.threads: dict[str, list[ThreadEvent]] = events_of(trace)
        waits = trace.waits
        # The edges that lead to pushes, waits, idle nodes and notes.
        self._after: dict[Node, list[Edge]] = defaultdict(list)
        for events in self.threads.values():
            last, cause = START, "program"
            for event in events:
                edges = self._after[event.begins]
                edges.append(Edge(last, event.gap_ns, cause))
                if cause == "inline":
                    edges.append(Edge(("push", last[1]), event.gap_ns, "program"))
                last = event.ends
                cause = "inline" if last[0] == "end" else "program"
        for operation in trace.operations:
            if operation.by:
                gap_ns = max(0, operation.pushed_ns - trace[operation.by].began_ns)
                edge = Edge(("begin", operation.by), gap_ns, "child")
                self._after["push", operation.number].append(edge)
        ended = (operation for operation in trace.operations if operation.ended_ns)
        self._ended = sorted(ended, key=ENDED)
        self.awaited: list[tuple[tuple[int, ...] | None, int]] = []
        for wait in waits:
            numbers, done_ns = self._find_awaited(wait)
            self.awaited.append((numbers, max(0, wait.end_ns - max(done_ns, wait.begin_ns))))
        self._waits_after: dict[int, list[int]] = defaultdict(list)  # by the number pushed
        idle, pushed = START, 0
        for i in sorted(range(len(waits)), key=lambda i: (waits[i].pushed, waits[i].begin_ns)):
            now = waits[i].pushed
            self._waits_after[now].append(i)
            if self.awaited[i][0] is None:
                since = [("end", k) for k in range(pushed + 1, now + 1)]
                self._after["idle", i] = [Edge(before, 0, "all") for before in (idle, *since)]
                idle, pushed = ("idle", i), now
        self._add_notices()

    def what(self, node: Node) -> Any:
        """The operation, the wait or the notice of a node."""
        kind, i = node
        if kind in _OF_OPERATIONS:
            return self.trace.operations[i - 1]
        return self.trace.notices[i] if kind == "note" else self.trace.waits[i]

    # -- edges -------------------------------------------------------------------------------------

    def after(self, node: Node) -> list[Edge]:
        """The edges that lead to a node."""
        kind, i = node
        if kind == "end":
            return [Edge(("begin", i), self.trace.operations[i - 1].run_ns, "run")]
        if kind == "begin":
            needs, room = self.trace.order[i - 1]
            found = [Edge(("push", i), 0, "push")]
            found += [Edge(("end", k), 0, "value") for k in needs]
            return found + [Edge(("end", k), 0, "room") for k in room]
        if kind == "over":
            return [Edge(("done", i), self.awaited[i][1], "run")]
        if kind == "done":
            numbers, _ = self.awaited[i]
            ends = [("idle", i)] if numbers is None else [("end", k) for k in numbers]
            cause = "pause" if self.trace.waits[i].kind == PAUSE else "wait"
            return [Edge(("wait", i), 0, "push"), *(Edge(end, 0, cause) for end in ends)]
        return self._after.get(node, [])

    def _add_notices(self) -> None:
        """What one thread told another comes after what the teller, and before what the listener
        does next."""
        told: dict[int, list[Edge]] = defaultdict(list)  # by token
        ahead = {name: deque(events) for name, events in self.threads.items()}
        last: dict[str, list[Edge]] = defaultdict(list)
        for i, notice in enumerate(self.trace.notices):
            node, own = ("note", i), ahead.get(notice.thread, deque())
            while own and (
                own[0].at < notice.waits if own[0].wait else own[0].pushed <= notice.pushed
            ):
                done = own.popleft()
                last[notice.thread] = [Edge(done.ends if done.wait else done.begins, 0, "program")]
            self._after[node] = list(last[notice.thread])
            if notice.kind != "tell":
                self._after[node] += told[notice.token]
            else:
                told[notice.token].append(Edge(node, 0, "told"))
                if notice.operation:
                    self._after[node].append(Edge(("end", notice.operation), 0, "told"))
            last[notice.thread] = [Edge(node, 0, "told")]
            if own:
                self._after[own[0].begins].append(Edge(node, 0, "told"))

    # -- waits -------------------------------------------------------------------------------------

    def _find_awaited(self, wait: Wait) -> tuple[tuple[int, ...] | None, int]:
        """The operations that a wait was for (None: all of them), and the time they were done; 0 if
        none is known."""
        operations = self.trace.operations
        if wait.target is None:
            k = bisect_right(self._ended, wait.end_ns, key=ENDED)
            if not k:
                return None, 0
            last = self._ended[k - 1]
            if wait.kind == PAUSE:
                return ((last.number,), last.ended_ns) if last.number <= wait.pushed else ((), 0)
            return None, last.ended_ns
        numbers = {wait.operation} if 0 < wait.operation <= wait.pushed else set()
        if wait.kind == "wait_to_write":  # for the readers of the Var as last written, too
            since = operations[max(wait.operation, 0) : wait.pushed]
            numbers.update(reader.number for reader in since if wait.target in reader.reads)
        return tuple(sorted(numbers)), max((operations[n - 1].ended_ns for n in numbers), default=0)

    def last_within(self, wait: Wait) -> Operation | None:
        """The operation, issued before a wait, that ended last within it."""
        for k in reversed(range(bisect_right(self._ended, wait.end_ns, key=ENDED))):
            if self._ended[k].ended_ns <= wait.begin_ns:
                break
            if self._ended[k].number <= wait.pushed:
                return self._ended[k]
        return None

    # -- paths -------------------------------------------------------------------------------------

    def path(self, x: int, y: int, causes: Collection[str] = ORDER) -> list[Node]:
        """The nodes of a shortest path, over edges with these causes, from the end of operation `x`
        to the begin of `y`; empty if there is none."""
        source, target = ("end", x), ("begin", y)
        after = {target: START}
        todo = [target]
        for node in todo:
            if node == source:
                break
            for before, _, cause in self.after(node):
                # Operations that come later have higher numbers.
                earlier = before[0] in _OF_OPERATIONS and before[1] < x
                if not earlier and before not in after and cause in causes:
                    after[before] = node
                    todo.append(before)
        found = [source] if source in after else []
        while found and found[-1] != target:
            found.append(after[found[-1]])
        return found

    def between(self, x: Operation, y: Operation) -> str:
        """Why `y`, issued after `x`, cannot run beside it: "needs", "room", "waits", "child" (an
        operation that needs `x` issues it), "inline", "worker", or "stream" in a trace of another
        library; "" if it can. A wait counts for the thread that waited, and for each thread that
        learned from it: by joining it, from its future, or from an event."""
        trace = self.trace
        if trace.lacks and x.worker == y.worker and not x.inline:
            return "stream"
        if self.path(x.number, y.number, VALUE):
            return "needs"
        if self.path(x.number, y.number):
            return "room"
        if path := self.path(x.number, y.number, ISSUE):
            return "waits" if any(map(self.passes, path)) else "child"
        if x.inline and x.thread == y.thread:
            return "inline"
        return "worker" if x.place == y.place and trace.workers.get(x.place, 1) < 2 else ""

    def passes(self, node: Node) -> Wait | Notice | None:
        """The wait that is over at a node, or what the thread learned there."""
        kind, i = node
        if kind == "over":
            return self.trace.waits[i]
        notice = self.trace.notices[i] if kind == "note" else None
        return None if notice is None or notice.kind == "tell" else notice

    def times(self) -> tuple[dict[Node, int], dict[Node, Node]]:
        """The earliest time of each moment after the begin of the trace, by the longest path that
        leads there, and the node before it on that path."""
        times, due = {START: 0}, {START: START}
        for node in self._in_order():
            times[node], due[node] = 0, START
            for before, ns, cause in self.after(node):
                if cause != "told" and times[before] + ns > times[node]:
                    times[node], due[node] = times[before] + ns, before
        return times, due

    def _in_order(self) -> Iterator[Node]:
        """The nodes but notes, each after those that its edges come from: a wait comes after the
        operations that were pushed before it."""
        for number in range(len(self.trace.operations) + 1):
            if number:
                yield from ((kind, number) for kind in _OF_OPERATIONS)
            for i in self._waits_after.get(number, ()):
                kinds = ("wait", *(("idle",) if ("idle", i) in self._after else ()), "done", "over")
                yield from ((kind, i) for kind in kinds)


@dataclass(frozen=True, repr=False)
class Explanation:
    """Why `second`, issued after `first`, must wait for it: in one of the words of
    `EventGraph.between`, and as a chain of sentences. Both are empty if nothing forbids the
    overlap. Print it to read it."""

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


def explain_pair(trace: Trace, a: int | Operation, b: int | Operation) -> Explanation:
    """Why two operations, or those of these numbers, can never overlap: the chain of reads, writes
    and lines that forbids it in every legal schedule; prints as text. IndexError for an unknown
    number, ValueError if `a` is `b`."""
    a, b = sorted(one.number if isinstance(one, Operation) else one for one in (a, b))
    x, y, graph, chain = trace[a], trace[b], trace.events, []
    if a == b:
        raise ValueError(f"explain: operation {a} and itself; name two operations")
    why = graph.between(x, y)
    causes = {"needs": VALUE, "room": ORDER, "waits": ISSUE, "child": ISSUE}.get(why, ())
    for before, node in pairwise(graph.path(a, b, causes)):
        early, late, passed = graph.what(before), graph.what(node), graph.passes(node)
        cause = next(edge.cause for edge in graph.after(node) if edge.source == before)
        if passed is not None:
            chain.append(f"the program waits until it is over ({passed.kind}): {passed.where}")
        elif cause in _SENTENCES:
            chain.append(f"{_SENTENCES[cause].format(early=early, late=late)}: {late.where}")
    if why == "inline":
        chain.append(f"{x} is small and runs where it is called, before {y} is issued: {x.where}")
    if why in ("stream", "worker"):
        place = y.worker if why == "stream" else x.place
        chain.append(f"both run at {place}, one after the other")
    return Explanation(x, y, why, chain)


# -- the critical path -----------------------------------------------------------------------------


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


#: Kinds of nodes -> what the time before them is.
_STEPS = {"push": "issuing", "wait": "issuing", "end": "operation", "over": "wait"}


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
        last = [x for x in times if times[x] == self.length_ns and x[0] in ("end", "over")]
        node = min(last, default=START)
        while times[node]:
            before, kind, what = due[node], node[0], graph.what(node)
            if kind == "push" and before[0] == "begin":
                kind, what = "end", graph.what(before)  # the part of its run before the push
            if times[node] > times[before]:
                name, number = (
                    (what.kind, 0) if isinstance(what, Wait) else (what.name, what.number)
                )
                step = _STEPS[kind], name, number, what.site, times[before], times[node]
                self.steps.append(PathStep(*step))
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
        by_line: dict[tuple[str, str], list[int]] = defaultdict(list)
        where_of = cache(callsite.describe)  # a line has several sites
        for step in self.steps:
            by_line[step.kind, where_of(step.site)].append(step.end_ns - step.begin_ns)
        most = sorted(by_line.items(), key=lambda item: -sum(item[1]))[:8]
        for (kind, where), ns in most:
            lines.append(f"{sum(ns) / 1e6:10.2f} ms  {kind:<9} {len(ns):>6} x  {where}")
        return "\n".join(lines)

    __repr__ = __str__


# -- bounds ----------------------------------------------------------------------------------------


class ScheduleBounds(NamedTuple):
    """Bounds of a run, in ns.

    wall_ns   how long the run took
    work_ns   place -> the work of its operations over the number of its workers; links too
    chain_ns  the longest chain
    greedy_ns Graham's bound; None if operations ran at several places, or if the trace does not
              show all that they need
    """

    wall_ns: int
    work_ns: dict[str, float]
    chain_ns: float
    greedy_ns: float | None

    @property
    def least_ns(self) -> float:
        """What no order of the operations beats."""
        return max([self.chain_ns, *self.work_ns.values()])

    def __str__(self) -> str:
        place = max(self.work_ns, key=self.work_ns.__getitem__)
        is_chain = self.chain_ns >= self.work_ns[place]
        reason = "the longest chain" if is_chain else f"the work of {place} on all its workers"
        text = (
            f"{self.wall_ns / 1e6:.2f} ms; no order of these operations takes less than "
            f"{self.least_ns / 1e6:.2f} ms ({reason})"
        )
        if self.greedy_ns is not None:
            text += (
                "; if all are pushed at once and no worker is idle while one is ready, any order "
                f"takes at most {self.greedy_ns / 1e6:.2f} ms"
            )
        return text


def bounds_of(trace: Trace) -> ScheduleBounds:
    """How short the run could have been: work over workers, the longest chain, the links, and
    Graham's bound; prints as a sentence. ValueError if nothing ran."""
    operations = trace.operations
    if not any(operation.ran for operation in operations):
        raise ValueError("bounds: no operation ran while it was recorded")
    workers = recorded_threads(trace)
    # Threads of the program that computed inline, too. The naive engine has no workers, and other
    # libraries' are counted with the callers.
    if trace.engine_kind not in ("", "naive"):
        workers["cpu"] += len({operation.thread for operation in operations if operation.inline})
    work: dict[str, float] = defaultdict(float)
    alone = []  # how long each takes at least
    for operation in operations:
        place = operation.place
        whole = least = float(operation.run_ns)
        if operation.number in trace.shared and operation.run_ns:  # idle workers took pieces
            split = trace.shared[operation.number]
            whole += split.work_ns - split.ns
            least += split.work_ns / workers[place] - split.ns
        work[place] += whole / workers[place]
        alone.append(least)
    chain_ns = longest_chain(trace, alone)
    greedy = None
    if len(work) == 1 and not trace.lacks:
        ((place, share),) = work.items()
        greedy = share + (1 - 1 / workers[place]) * chain_ns
    return ScheduleBounds(trace.end_ns - trace.begin_ns, dict(work), chain_ns, greedy)


def longest_chain(trace: Trace, run_ns: Iterable[float]) -> float:
    """The longest chain of operations that come after each other, with these durations."""
    chain = [0.0]  # by number: the longest that ends there
    for ns, (needs, room) in zip(run_ns, trace.order):
        chain.append(ns + max((chain[k] for k in needs + room), default=0.0))
    return max(chain)


def recorded_threads(trace: Trace) -> dict[str, int]:
    """The number of worker threads of each place that occurs in the trace."""
    places = dict.fromkeys((operation.place for operation in trace.operations), 1)
    return places | {"cpu": 1, **trace.workers}

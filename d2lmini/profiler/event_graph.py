"""The event graph of a trace: which moment of a run had to come after which, and why.

>>> from d2lmini import engine, nd, profile
>>> with engine.stepped(times=1000), profile() as trace:
...     x = nd.ones((2, 2))
...     y = nd.exp(x)
...     y.wait_to_read()
>>> graph = trace.events
>>> for edge in graph.after(graph.begin(2)):
...     print(graph.kind(edge.source), graph.what(edge.source), edge.cause)
push 2 exp push
end 1 _ones value

A node is a moment, and a number. An operation has three: "push", "begin", "end"; a wait has three:
"wait", when the thread comes to it, "done", when the awaited operations are, and "over", when the
thread goes on. Two more kinds are "idle", when all that was pushed before is done, and "note", when
a thread tells another something or learns it (`Notice`). An edge says that a node comes
so many nanoseconds after another, or later, and why:

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
asked for. The critical path is a longest path; what keeps two operations apart is a path from the
end of one to the begin of the other (`obstacles`); a replay takes the threads' events and the edges
between operations, and gives them new times by the engine's rules.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict, deque
from collections.abc import Collection, Iterable, Iterator
from graphlib import TopologicalSorter
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from d2lmini.base.callsite import Site
    from d2lmini.profiler.records import Operation, Wait
    from d2lmini.profiler.tracing import Trace


PAUSE = "backpressure"
_ended_ns = attrgetter("ended_ns")


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
        events.sort(key=_place_of)
        last_ns = trace.begin_ns
        for i, event in enumerate(events):
            if event.begin_ns > last_ns:
                events[i] = event._replace(gap_ns=event.begin_ns - last_ns)
            last_ns = max(last_ns, event.end_ns)
    return found


def _place_of(event: ThreadEvent) -> tuple[int, int, int]:
    """The sort key of a thread's events; on a virtual clock many have the same time."""
    return event.begin_ns, event.pushed, event.end_ns if event.operation is None else 0


class Completions:
    """The operations of a trace in the order of their ends, and what waits were for."""

    def __init__(self, trace: Trace):
        self.trace = trace
        ended = (operation for operation in trace.operations if operation.ended_ns)
        self.ended = sorted(ended, key=_ended_ns)
        self._readers: dict[int, list[int]] | None = None

    def last_until(self, when: int) -> Operation | None:
        """The last operation that ended until `when`."""
        k = bisect_right(self.ended, when, key=_ended_ns)
        return self.ended[k - 1] if k else None

    def last_within(self, wait: Wait) -> Operation | None:
        """The operation, issued before a wait, that ended last within it."""
        for k in reversed(range(bisect_right(self.ended, wait.end_ns, key=_ended_ns))):
            if self.ended[k].ended_ns <= wait.begin_ns:
                break
            if self.ended[k].number <= wait.pushed:
                return self.ended[k]
        return None

    def find_awaited(self, wait: Wait) -> tuple[tuple[int, ...] | None, int]:
        """The operations that a wait was for (None: all of them), and the time they were done; 0 if
        none is known."""
        if wait.target is None:
            last = self.last_until(wait.end_ns)
            if wait.kind == PAUSE and last is not None:
                return ((last.number,), last.ended_ns) if last.number <= wait.pushed else ((), 0)
            return None, 0 if last is None else last.ended_ns
        numbers = {wait.operation} if 0 < wait.operation <= wait.pushed else set()
        if wait.kind == "wait_to_write":
            numbers.update(self._read_since(wait))
        operations = self.trace.operations
        return tuple(sorted(numbers)), max((operations[n - 1].ended_ns for n in numbers), default=0)

    def _read_since(self, wait: Wait) -> list[int]:
        """The operations pushed before `wait` that read the awaited Var as last written."""
        if self._readers is None:
            self._readers = defaultdict(list)
            for operation in self.trace.operations:
                for serial in operation.reads:
                    self._readers[serial].append(operation.number)
        numbers = self._readers.get(wait.target or 0, [])
        return numbers[bisect_right(numbers, wait.operation) : bisect_right(numbers, wait.pushed)]


class Edge(NamedTuple):
    """A node comes `ns` or more after the node `source` (-1: the begin of the trace)."""

    source: int
    ns: int
    cause: str


#: Causes that keep two operations apart in every legal schedule: the values alone, all arrays, and
#: also what the program waited for before it issued the later one.
VALUE = frozenset({"run", "value"})
ORDER = VALUE | {"room"}
ISSUE = ORDER | {"push", "child", "program", "all", "wait", "told"}

_KINDS = ("push", "begin", "end"), ("wait", "done", "over")


class EventGraph:
    """The graph of a trace.

    threads  the events of each thread of the program, in order
    awaited  of each wait, by its position in trace.waits: the operations it was for (None: all),
             and the time from their end until the thread went on
    """

    def __init__(self, trace: Trace):
        self.trace = trace
        self.threads: dict[str, list[ThreadEvent]] = events_of(trace)
        waits, n = trace.waits, len(trace.operations) + 1
        # Nodes 3 * i to 3 * i + 2 are of operation i, then of waits; idle nodes and notes follow.
        self._waits, self._idles = n, 3 * (n + len(waits))
        self._notes = self._idles + len(waits)
        self._before, self._gap_ns = [-1] * (n + len(waits)), [0] * (n + len(waits))
        for events in self.threads.values():
            last = -1
            for event in events:
                i = self._index(event)
                self._before[i], self._gap_ns[i] = last, event.gap_ns
                operation = event.operation
                last = 3 * i if operation is not None and not operation.inline else 3 * i + 2
        for operation in trace.operations:
            if operation.by:
                gap_ns = operation.pushed_ns - trace[operation.by].began_ns
                self._before[operation.number] = self.begin(operation.by)
                self._gap_ns[operation.number] = max(0, gap_ns)
        completions = Completions(trace)
        self.awaited: list[tuple[tuple[int, ...] | None, int]] = []
        for wait in waits:
            numbers, done_ns = completions.find_awaited(wait)
            self.awaited.append((numbers, max(0, wait.end_ns - max(done_ns, wait.begin_ns))))
        self._in_order = sorted(
            range(len(waits)), key=lambda i: (waits[i].pushed, waits[i].begin_ns)
        )
        # Of waits for everything: the idle node before, and the operations that came since.
        self._pending: dict[int, tuple[int, range]] = {}
        last = pushed = -1
        for i in self._in_order:
            if self.awaited[i][0] is None:
                since = range(max(pushed, 0) + 1, waits[i].pushed + 1)
                self._pending[i] = last, since
                last, pushed = self._idles + i, waits[i].pushed
        self._told: dict[int, list[Edge]] = defaultdict(list)
        if trace.notices:
            self._add_notices()

    # -- nodes -------------------------------------------------------------------------------------

    def begin(self, number: int) -> int:
        """The node of the begin of an operation."""
        return 3 * number + 1

    def end(self, number: int) -> int:
        """The node of its end."""
        return 3 * number + 2

    def kind(self, node: int) -> str:
        """The kind of a node."""
        if node >= self._idles:
            return "note" if node >= self._notes else "idle"
        return _KINDS[node >= 3 * self._waits][node % 3]

    def what(self, node: int) -> Any:
        """The operation, the wait or the notice of a node."""
        if node >= self._notes:
            return self.trace.notices[node - self._notes]
        if node >= self._idles:
            return self.trace.waits[node - self._idles]
        i = node // 3
        waits = self._waits
        return self.trace.operations[i - 1] if i < waits else self.trace.waits[i - waits]

    def _index(self, event: ThreadEvent) -> int:
        return event.pushed if event.operation is not None else self._waits + event.at

    # -- edges -------------------------------------------------------------------------------------

    def after(self, node: int) -> list[Edge]:
        """The edges that lead to a node."""
        i, part = divmod(node, 3)
        if node >= self._notes:
            return self._told[node]
        if node >= self._idles:
            before, numbers = self._pending[node - self._idles]
            first = [Edge(before, 0, "all")] if before >= 0 else []
            return [*first, *(Edge(3 * k + 2, 0, "all") for k in numbers)]
        if part == 0:
            return self._after_thread(i) + self._told.get(node, [])
        if part == 1:
            return [Edge(node - 1, 0, "push"), *self._after_others(i)]
        at = i - self._waits
        ns = self.trace.operations[i - 1].run_ns if at < 0 else self.awaited[at][1]
        return [Edge(node - 1, ns, "run")]

    def _after_thread(self, i: int) -> list[Edge]:
        """What a thread, or an operation, does before it pushes or waits."""
        node, gap_ns = self._before[i], self._gap_ns[i]
        kind = self.kind(node) if node >= 0 else "over"
        if kind == "end":
            return [Edge(node, gap_ns, "inline"), Edge(node - 2, gap_ns, "program")]
        return [Edge(node, gap_ns, "child" if kind == "begin" else "program")]

    def _after_others(self, i: int) -> Iterator[Edge]:
        """The operations after which an operation begins, or that a wait is for."""
        at = i - self._waits
        if at < 0:
            needs, room = self.trace.order[i - 1]
            yield from (Edge(3 * k + 2, 0, "value") for k in needs)
            yield from (Edge(3 * k + 2, 0, "room") for k in room)
        elif (numbers := self.awaited[at][0]) is None:
            yield Edge(self._idles + at, 0, "wait")
        else:
            cause = "pause" if self.trace.waits[at].kind == PAUSE else "wait"
            yield from (Edge(3 * k + 2, 0, cause) for k in numbers)

    def _add_notices(self) -> None:
        """What one thread told another comes after what the teller, and before what the listener
        does next."""
        told: dict[int, list[int]] = defaultdict(list)  # by token
        ahead = {name: deque(events) for name, events in self.threads.items()}
        last: dict[str, list[Edge]] = defaultdict(list)
        for node, notice in enumerate(self.trace.notices, start=self._notes):
            own = ahead.get(notice.thread, deque())
            while own and (
                own[0].at < notice.waits if own[0].wait else own[0].pushed <= notice.pushed
            ):
                done = 3 * self._index(own[0]) + (2 if own.popleft().wait else 0)
                last[notice.thread] = [Edge(done, 0, "program")]
            after = self._told[node] = list(last[notice.thread])
            if notice.kind != "tell":
                after += [Edge(teller, 0, "told") for teller in told[notice.token]]
            else:
                told[notice.token].append(node)
                if notice.operation:
                    after.append(Edge(self.end(notice.operation), 0, "told"))
            last[notice.thread] = [Edge(node, 0, "told")]
            if own:
                self._told[3 * self._index(own[0])].append(Edge(node, 0, "told"))

    # -- questions ---------------------------------------------------------------------------------

    def path(self, source: int, target: int, causes: Collection[str]) -> list[int]:
        """The nodes of a shortest path over edges with these causes; empty if there is none."""
        # Operations that come later have higher numbers, and all other nodes higher ones still.
        low = 0 if self.trace._joined else source - source % 3
        after = {target: -1}
        todo = [target]
        for node in todo:
            if node == source:
                break
            for before, _, cause in self.after(node):
                if before >= low and before not in after and cause in causes:
                    after[before] = node
                    todo.append(before)
        found = [source] if source in after else []
        while found and found[-1] != target:
            found.append(after[found[-1]])
        return found

    def times(self) -> tuple[dict[int, int], dict[int, int]]:
        """The earliest time of each moment after the begin of the trace, by the longest way that
        leads there, and the node before it on that way."""
        times, due = {-1: 0}, {-1: -1}
        for node in self._sorted():
            best, last = -1, -1
            for before, ns, cause in self.after(node):
                when = times.get(before, 0) + ns
                if when > best and cause != "told":
                    best, last = when, before
            times[node], due[node] = max(best, 0), last
        return times, due

    def _sorted(self) -> Iterable[int]:
        """The moments, each after those that lead to it."""
        nodes: list[int] = []
        waits = deque(self._in_order)
        for i in range(1, self._waits + 1):
            while waits and (i == self._waits or self.trace.waits[waits[0]].pushed < i):
                at = waits.popleft()
                if at in self._pending:
                    nodes.append(self._idles + at)
                first = 3 * (self._waits + at)
                nodes += first, first + 1, first + 2
            if i < self._waits:
                nodes += 3 * i, 3 * i + 1, 3 * i + 2
        if not self.trace._joined:
            return nodes
        # A rendezvous comes after operations that joined it later.
        known = set(nodes)
        before = {n: [edge.source for edge in self.after(n) if edge.source in known] for n in nodes}
        return list(TopologicalSorter(before).static_order())

"""The critical path: the longest chain of things that had to come one after the other.

An operation begins neither before its push nor before what it comes after has ended. A thread of
the program does one thing after the other: between two pushes it takes the time that it took, a
small operation that runs where it is called takes its own, and a wait ends no sooner than what it
waits for. Any number of workers and links would not make the run shorter than this path.

    with d2lmini.profile() as trace:
        train(net)
    print(trace.critical_path())

The same walk answers "and if it had not waited?": `longest` leaves out the waits, the issuing or
the order of operations, or takes other durations. It takes a step for each operation and wait.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from d2lmini import callsite
from d2lmini.callsite import Site
from d2lmini.profiler.records import Operation, Wait

if TYPE_CHECKING:
    from d2lmini.profiler.trace import Trace


class Step(NamedTuple):
    """One link of the chain.

    kind        "operation"; "issuing": the program's own time before a push or a wait; "wait": from
                the end of what was waited for until the program went on
    name        of the operation, or of the way of waiting
    operation   its number, for "issuing" of what was pushed then; 0: none
    place       where it ran; "" for what the program's threads did
    site        the line of the program
    begin_ns, end_ns    since the begin of the trace, if nothing but the path had delayed it
    recorded_ns         when it was over in fact, since the begin of the trace
    """

    kind: str
    name: str
    operation: int
    place: str
    site: Site | None
    begin_ns: int
    end_ns: int
    recorded_ns: int

    @property
    def where(self) -> str:
        """The line of the program: "train.py:12: y = nd.dot(x, w)"."""
        return callsite.describe(self.site)


class Longest:
    """The longest path under some rules. Nodes are numbered as they were met.

    length_ns  of the path
    last       the node it ends with; -1: there is none
    nodes      of each: (what, kind, the node it came after, when it is over at the earliest)
    """

    __slots__ = ("last", "length_ns", "nodes")

    def __init__(self) -> None:
        self.nodes: list[tuple[Operation | Wait, str, int, int]] = []
        self.last = -1
        self.length_ns = 0

    def add(self, what: Operation | Wait, kind: str, after: int, over_ns: int) -> int:
        """A new node; its number. The path ends with the node that is over last."""
        self.nodes.append((what, kind, after, over_ns))
        if over_ns > self.length_ns:
            self.length_ns, self.last = over_ns, len(self.nodes) - 1
        return len(self.nodes) - 1


def longest(
    trace: Trace,
    *,
    waits: bool = True,
    issuing: bool = True,
    order: bool = True,
    durations: Sequence[float] | None = None,
) -> Longest:
    """The longest path: as it was, or without waits, without time spent on issuing, without any
    order among operations, or if operation i + 1 took durations[i] ns."""
    path = Longest()
    operations = trace.operations
    ends = [-1] * (len(operations) + 1)  # of each operation, the node of its end
    over = [0] * (len(operations) + 1)  # and when that is
    threads: dict[str, tuple[int, int, int]] = {}  # (now, now as recorded, the node before)
    ended = sorted((each.ended_ns, each.number) for each in operations if each.ended_ns)
    latest = 0  # the number of the operation that is over last so far
    for what in _as_issued(trace):
        now, recorded, node = threads.get(what.thread, (0, trace.begin_ns, -1))
        if isinstance(what, Operation):
            i = what.number
            if issuing:
                now += max(0, what.pushed_ns - recorded)
            pushed = after = path.add(what, "issuing", node, now)
            begin = now
            if order:
                for k in (*trace.needs(i), *trace.makes_room(i)):
                    if over[k] > begin:
                        begin, after = over[k], ends[k]
            took = what.run_ns if durations is None else durations[i - 1]
            over[i] = begin + round(took)
            ends[i] = path.add(what, "operation", after, over[i])
            if over[i] > over[latest]:
                latest = i
            if what.inline:
                threads[what.thread] = (over[i], what.ended_ns, ends[i])
            else:
                threads[what.thread] = (now, what.pushed_ns, pushed)
            continue
        if issuing:
            now += max(0, what.begin_ns - recorded)
            node = path.add(what, "issuing", node, now)
        if waits:
            k, woken_ns = _awaited(what, operations, ended, latest)
            if over[k] > now:
                now, node = over[k], ends[k]
            now += woken_ns if issuing else 0
            node = path.add(what, "wait", node, now)
        threads[what.thread] = (now, what.end_ns, node)
    return path


def _as_issued(trace: Trace) -> Iterator[Operation | Wait]:
    """Pushes and waits in the order in which they began."""
    waits = sorted(trace.waits, key=lambda wait: wait.begin_ns)
    k = 0
    for each in trace.operations:
        while k < len(waits) and waits[k].pushed < each.number:
            yield waits[k]
            k += 1
        yield each
    yield from waits[k:]


def _awaited(
    wait: Wait, operations: Sequence[Operation], ended: list[tuple[int, int]], latest: int
) -> tuple[int, int]:
    """The operation that a wait waited for (0: none), and how long it took the program to go on."""
    if wait.operation > 0:
        number = wait.operation
    elif wait.target is not None:
        number = 0
    elif wait.kind == "backpressure":  # for room: what ended last made it
        k = bisect_right(ended, (wait.end_ns, len(operations))) - 1
        number = ended[k][1] if k >= 0 else 0
        number = number if number <= wait.pushed else 0
    else:
        number = latest
    done_ns = operations[number - 1].ended_ns if number else 0
    return number, max(0, wait.end_ns - max(done_ns, wait.begin_ns))


class CriticalPath:
    """The chain that decided: `steps`, the earliest first, and its `length_ns`; `wall_ns` is what
    the run took. Prints as a table of the lines that the path spends most on."""

    def __init__(self, trace: Trace):
        path = longest(trace)
        self.length_ns = path.length_ns
        self.wall_ns = trace.end_ns - trace.begin_ns
        self.steps: list[Step] = []
        node = path.last
        while node >= 0:
            what, kind, after, over_ns = path.nodes[node]
            begin_ns = path.nodes[after][3] if after >= 0 else 0
            if over_ns > begin_ns:
                self.steps.append(_step(what, kind, begin_ns, over_ns, trace.begin_ns))
            node = after
        self.steps.reverse()

    @property
    def operations(self) -> list[int]:
        """The numbers of the operations on the path."""
        return [step.operation for step in self.steps if step.kind == "operation"]

    @property
    def kinds(self) -> dict[str, int]:
        """How many ns of the path are operations, issuing and waits."""
        kinds = {"operation": 0, "issuing": 0, "wait": 0}
        for step in self.steps:
            kinds[step.kind] += step.end_ns - step.begin_ns
        return kinds

    def spans(self) -> list[tuple[str, list[tuple[str, float, float]]]]:
        """Rows and bars, as `d2l.timeline` draws them: the program's thread, then each place; a bar
        is (kind, begin, end) in seconds."""
        rows: dict[str, list[tuple[str, float, float]]] = {"front end": []}
        for step in self.steps:
            kind = {"issuing": "push", "wait": "wait", "operation": "compute"}[step.kind]
            if step.place.endswith((" in", " out")):
                kind = "copy"
            row = rows.setdefault(step.place or "front end", [])
            row.append((kind, step.begin_ns / 1e9, step.end_ns / 1e9))
        return list(rows.items())

    def __str__(self) -> str:
        share = 100 * self.length_ns / (self.wall_ns or 1)
        lines = [
            f"critical path: {self.length_ns / 1e6:.2f} ms of {self.wall_ns / 1e6:.2f} ms "
            f"({share:.0f} %), {len(self.operations)} operations"
        ]
        by_line: dict[tuple[str, Site | None], list[int]] = {}
        for step in self.steps:
            of_line = by_line.setdefault((step.kind, step.site), [0, 0])
            of_line[0] += step.end_ns - step.begin_ns
            of_line[1] += 1
        most = sorted(by_line.items(), key=lambda item: -item[1][0])[:8]
        for (kind, site), (ns, times) in most:
            where = callsite.describe(site)
            lines.append(f"{ns / 1e6:10.2f} ms  {kind:<9} {times:>6} x  {where}")
        return "\n".join(lines)

    def __repr__(self) -> str:
        return f"<critical path of {len(self.steps)} steps, {self.length_ns / 1e6:.2f} ms>"


def _step(what: Operation | Wait, kind: str, begin_ns: int, end_ns: int, zero_ns: int) -> Step:
    if isinstance(what, Wait):
        recorded_ns = (what.begin_ns if kind == "issuing" else what.end_ns) - zero_ns
        return Step(kind, what.kind, 0, "", what.site, begin_ns, end_ns, recorded_ns)
    runs = kind == "operation"
    recorded_ns = (what.ended_ns if runs else what.pushed_ns) - zero_ns
    place = what.place if runs and not what.inline else ""
    return Step(kind, what.name, what.number, place, what.site, begin_ns, end_ns, recorded_ns)

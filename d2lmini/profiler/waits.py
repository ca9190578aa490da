"""The ledger of waits: line, duration, awaited operation, and the operations held up by the wait.

>>> from d2lmini import nd, profile
>>> with profile() as trace:
...     x = nd.ones((2, 2))
...     for _ in range(3):
...         s = float((x * 2).sum())
...         x = x + 1
>>> ledger = trace.waits()
>>> row = ledger[0]
>>> row.kind, row.times, row.awaited.name, row.held, row.held_first.name
('float', 3, 'sum', 7, '_plus_scalar')

The ledger is complete, since all waits pass through one function (`engine/engine.py`). A star marks
hidden waits, whose line does not say that it waits (`d2lmini.lint_waits`).

While the program waits it issues nothing. The operations it issued next, until its next wait, were
*held*. Those among them are *idle* that needed nothing that the program waited for, so they could
have run meanwhile, had they been issued. (Only the author of the program knows whether it could
issue them before it knows the value.)
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections import defaultdict, deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from operator import attrgetter
from types import CodeType
from typing import TYPE_CHECKING, Any

from d2lmini.base import callsite, forks
from d2lmini.base.callsite import Site
from d2lmini.profiler.event_graph import Completions
from d2lmini.profiler.lint import why_hidden
from d2lmini.profiler.records import Operation, Wait
from d2lmini.profiler.summary import align, shorten

if TYPE_CHECKING:
    from d2lmini.profiler.tracing import Trace


_pushed_ns = attrgetter("pushed_ns")


class WaitList(list[Wait]):
    """The waits of a trace, in the order of their ends. A call returns the ledger. A hook appends
    to `pending` the values from which `_wait` makes a record, when the waits are asked for."""

    def __init__(self, trace: Trace):
        super().__init__()
        self.pending: deque[tuple[Any, ...]] = deque()
        self._trace = trace
        self._pushed: dict[str, int] = {}  # by thread, when its last wait ended
        self._lock = forks.guard(threading.Lock())

    def __call__(self) -> Ledger:
        return ledger_of(self._trace)

    def catch_up(self) -> None:
        """Make records of the values appended since."""
        with self._lock:
            for _ in range(len(self.pending)):
                self.append(self._wait(*self.pending.popleft()))

    def _wait(
        self, kind: str, target: int | None, site: Site | None, call: CodeType | None,
        recording: bool, thread: str, begin_ns: int, end_ns: int, pushed_at_end: int,
    ) -> Wait:  # fmt: skip
        """A hook's values as a record; the awaited operation is determined at the end."""
        operations = self._trace.operations
        # Of operations at the very same time, as on a virtual clock, none came after the end.
        pushed = bisect_right(operations, begin_ns, hi=pushed_at_end, key=_pushed_ns)
        before, self._pushed[thread] = self._pushed.get(thread, 0), pushed_at_end
        while pushed > before and _is_pushed_inside(operations[pushed - 1], begin_ns):
            pushed -= 1
        name = callsite.name_of(call)
        instead = why_hidden(kind, name, recording)
        return Wait(kind, target, -1, pushed, site, thread, begin_ns, end_ns, name, instead)


def _is_pushed_inside(operation: Operation, begin_ns: int) -> bool:
    """True if another operation pushed it during a wait that began at the same time."""
    return operation.by > 0 and operation.pushed_ns == begin_ns


@dataclass(slots=True)
class Row:
    """The waits of one kind at one line of the program.

    kind, site   kind of wait, and the line; `call` the library function that the line called
    instead      if hidden: an alternative; else None
    awaited      the operation with the longest total wait; None: unknown
    held         number of operations that the program issued only afterwards, before its next wait
    held_first   the first of them
    idle         number of them that could have run meanwhile
    waits        the summarized waits
    """

    kind: str
    site: Site | None
    call: str
    instead: str | None
    awaited: Operation | None = None
    held: int = 0
    held_first: Operation | None = None
    idle: int = 0
    waits: list[Wait] = field(default_factory=list, repr=False)

    @property
    def times(self) -> int:
        """Number of waits."""
        return len(self.waits)

    @property
    def seconds(self) -> float:
        """Their duration in total."""
        return sum(wait.seconds for wait in self.waits)

    @property
    def hidden(self) -> bool:
        """True if the line does not say that it waits."""
        return self.instead is not None

    @property
    def where(self) -> str:
        """The line, as in "train.py:12: s += float(l)", or "an unknown line"."""
        return callsite.describe(self.site)


class Ledger(list[Row]):
    """The rows, the longest waits first; prints as a table."""

    def __init__(self, rows: Iterable[Row], elapsed_s: float):
        super().__init__(sorted(rows, key=lambda row: -row.seconds))
        self.elapsed_s = elapsed_s

    @property
    def seconds(self) -> float:
        """Total of all waits; with several threads it may exceed the elapsed time."""
        return sum(row.seconds for row in self)

    @property
    def times(self) -> int:
        """Number of waits."""
        return sum(row.times for row in self)

    @property
    def hidden(self) -> list[Row]:
        """The lines with hidden waits."""
        return [row for row in self if row.hidden]

    def __str__(self) -> str:
        if not self:
            return "no wait"
        head = ("seconds", "times", "wait", "line", "waited for", "held meanwhile")
        lines = align([head, *map(_cells, self)], ">><<<<")
        share = f", {self.seconds / self.elapsed_s:.0%} of the time" if self.elapsed_s else ""
        waits = "1 wait" if self.times == 1 else f"{self.times} waits"
        lines.append(f"{1e3 * self.seconds:.3f} ms in {waits}{share}")
        if self.hidden:
            lines.append("* hidden: the line does not say that it waits; see lint_waits")
        return "\n".join(lines)

    __repr__ = __str__


def ledger_of(trace: Trace) -> Ledger:
    """Sum up the waits of a trace by line and kind."""
    rows: dict[Any, Row] = {}  # by line and kind
    # Duration of the waits of each line for each operation, by its name and issuing line.
    lengths: dict[Any, dict[tuple[str, Site | None], float]] = defaultdict(
        lambda: defaultdict(float)
    )
    examples: dict[tuple[str, Site | None], Operation] = {}
    completions, held, graph = Completions(trace), _find_held(trace), trace.events
    lines = {site: callsite.same_line(site) for site in {wait.site for wait in trace.waits}}
    for i, wait in enumerate(trace.waits):
        key = lines[wait.site], wait.kind
        row = rows.setdefault(key, Row(wait.kind, wait.site, wait.call, wait.instead))
        row.waits.append(wait)
        # The maker of the value; of a wait for everything, the operation whose end ended the wait.
        awaited = trace[wait.operation] if wait.operation > 0 else None
        if wait.target is None:
            awaited = completions.last_within(wait)
        if awaited is not None:
            issued = awaited.name, awaited.site
            examples.setdefault(issued, awaited)
            lengths[key][issued] += wait.seconds
        numbers = held[i]
        row.held += len(numbers)
        done_ns = wait.end_ns - graph.awaited[i][1]
        row.idle += sum(_could_run(trace, number, wait, done_ns) for number in numbers)
        if numbers and row.held_first is None:
            row.held_first = trace[numbers[0]]
    for key, row in rows.items():
        if lengths[key]:
            row.awaited = examples[max(lengths[key], key=lengths[key].__getitem__)]
    return Ledger(rows.values(), trace.seconds)


def _find_held(trace: Trace) -> dict[int, list[int]]:
    """For each wait, by position: the operations its thread issued next, up to its next wait."""
    held: dict[int, list[int]] = {}
    for events in trace.events.threads.values():
        numbers: list[int] = []
        for event in events:
            if event.wait is not None:
                numbers = held[event.at] = []
            else:
                numbers.append(event.pushed)
    return held


def _could_run(trace: Trace, number: int, wait: Wait, done_ns: int) -> bool:
    """True if all dependencies of an operation were issued before a wait, and done before what the
    wait was for. An operation of another library that runs where it is called has to wait, too."""
    if trace.lacks and trace[number].inline:
        return False
    if number <= wait.operation and (
        number == wait.operation or trace.ordered(number, wait.operation)
    ):  # the wait was for this, too
        return False
    before = (*trace.needs(number), *trace.makes_room(number))
    return all(n <= wait.pushed and trace[n].ended_ns < done_ns for n in before)


def _cells(row: Row) -> tuple[str, ...]:
    awaited = "" if row.awaited is None else f"{row.awaited.name} ({_place(row.awaited.site)})"
    held = ""
    if row.held_first is not None:
        first = f"{row.held_first.name} ({_place(row.held_first.site)})"
        held = f"{row.held}: {first}{' ...' if row.held > 1 else ''}, {row.idle} idle"
    kind = f"{row.kind} *" if row.hidden else row.kind
    line = shorten(row.where, 60)
    return f"{1e3 * row.seconds:.3f} ms", str(row.times), kind, line, awaited, held


def _place(site: Site | None) -> str:
    return callsite.describe(site).partition(": ")[0]

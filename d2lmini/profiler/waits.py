"""Waits: the ledger of those in a trace, and the lint that finds hidden ones.

>>> from d2lmini import lint_waits, nd, profile
>>> with profile() as trace:
...     x = nd.ones((2, 2))
...     for _ in range(3):
...         s = float((x * 2).sum())
...         x = x + 1
>>> ledger = trace.waits()
>>> row = ledger[0]
>>> row.kind, row.times, row.awaited.name, row.held, row.held_first.name
('float', 3, 'sum', 7, '_plus_scalar')

The ledger is complete, since all waits pass through one function (`engine/engine.py`). While the
program waits it issues nothing. The operations it issued next, until its next wait, were *held*.
Those among them are *idle* that needed nothing that the program waited for, so they could have run
meanwhile, had they been issued. (Only the author of the program knows whether it could issue them
before it knows the value.)

A line may wait for a value without saying so. `x.asnumpy()` is an explicit wait. `if loss < 1:` and
`print(loss)` are not, but the program stops there until the engine has computed the value:

>>> loss = nd.ones((2,)).mean()
>>> with lint_waits("raise"):
...     if loss < 2:
...         pass
Traceback (most recent call last):
  ...
d2lmini.profiler.waits.HiddenWait: hidden wait (bool): ... waits for _lesser_scalar, ...

A wait is hidden if

- Python asks for the value implicitly: a truth value, a number, a text, an index, membership
  (`in`), a NumPy array (`np.median(x)`), or a shape that depends on values;
- a function of this library reads the value although its name does not say so (`metric.update`);
- it is within `autograd.record()`, where backward cannot be issued yet.

Not hidden: asnumpy, asscalar, item, tolist, wait_to_read and similar calls by the program itself,
writing to files, and back-pressure, which `engine.limit_pending` requests.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections import defaultdict, deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache, partial
from operator import itemgetter
from types import CodeType
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from d2lmini.base import MXNetError, callsite, forks, instrument
from d2lmini.base.callsite import Site
from d2lmini.base.scopes import Standing
from d2lmini.engine.core import Task, Var
from d2lmini.ops.core import modes
from d2lmini.profiler.records import PUSHED, Operation, Wait
from d2lmini.profiler.summary import align, shorten

if TYPE_CHECKING:
    from d2lmini.profiler.tracing import Trace


# -- hidden waits ----------------------------------------------------------------------------------

#: Kinds of hidden waits, each with an alternative.
HIDDEN = {
    "bool": "keep both results and choose with nd.where, or ask once in many steps",
    "float": "calculate with the array itself, and read the number when the loop is over",
    "int": "calculate with the array itself, and read the number when the loop is over",
    "index": "index an NDArray with it (x[i], nd.take), which does not wait",
    "print": "print when the loop is over, or once in many steps; x.shape is known without a wait",
    "in": "(x == value).sum() stays an array; read it when the loop is over",
    "__array__": "use the function of nd, or write asnumpy() where the value is needed",
    "dlpack": "write wait_to_read() before it, where waiting costs least",
}

#: Kinds that are explicit, if the program's own line calls them.
READING = frozenset({"asnumpy", "asscalar", "item", "tolist"})

#: Prefixes of our functions whose purpose is to read values.
_READERS = tuple("save load export assert_ check_ compare same almost_equal to_dlpack".split())


class HiddenWait(MXNetError):
    """A line waits for a value without saying so; raised by `lint_waits("raise")`."""


@lru_cache(maxsize=1000)
def why_hidden(kind: str, call: str, recording: bool) -> str | None:
    """An alternative to a hidden wait of this kind, by a line that called our function `call`,
    perhaps within `record`. None if the wait is not hidden, or no line of the program called."""
    name = call.rpartition(".")[2]
    if not name or name.startswith(_READERS):
        return None
    if kind in HIDDEN:
        return HIDDEN[kind]
    if kind not in READING:
        return None
    if name != kind:
        return f"{call} reads values: call it when more work is issued, or once in many steps"
    if recording:
        return "read it after the record() scope, when backward() is issued"
    return None


@dataclass(slots=True)
class LintFinding:
    """A line with a hidden wait.

    kind      the kind of wait; `site` the line
    awaited   the operation that computes the awaited value, and the line that issued it
    times     number of waits so far
    """

    kind: str
    site: Site | None
    awaited: str
    instead: str
    times: int = 0

    @property
    def where(self) -> str:
        """ "train.py:12: if loss < 1:" """
        return callsite.describe(self.site)

    def __str__(self) -> str:
        why = f"waits for {self.awaited}. Instead: {self.instead}"
        return f"hidden wait ({self.kind}): {self.where} {why}"


class Lint(Standing, instrument.Instrument):
    """Finds hidden waits on all threads; made by `lint_waits`."""

    def __init__(self, mode: str):
        super().__init__()
        self.mode = mode
        self._known: dict[tuple[str, Any], LintFinding] = {}  # by kind and line
        self._writers: WeakKeyDictionary[Var, tuple[str, Site | None]] = WeakKeyDictionary()

    @property
    def found(self) -> list[LintFinding]:
        """The lines, in the order of their first wait."""
        return list(self._known.values())

    def push(self, task: Task) -> None:
        for var in task.writes:
            self._writers[var] = task.name, task.site

    def small(
        self, name: str, ctx: Any, reads: Any, writes: tuple[Var, ...], site: Site | None, *_: Any
    ) -> None:
        for var in writes:
            self._writers[var] = name, site

    def before_wait(self, kind: str, var: Var | None) -> None:
        """Called before each wait, on its thread."""
        instead = why_hidden(kind, callsite.name_of(callsite.called_function()), modes.recording)
        if instead is None:
            return
        site = callsite.find()
        key = kind, callsite.same_line(site)
        if key not in self._known:
            awaited = "a value from the host, or from before the lint"
            if var is not None and var in self._writers:
                name, issued = self._writers[var]
                awaited = f"{name}, issued at {callsite.describe(issued)}"
            self._known[key] = LintFinding(kind, site, awaited, instead)
        found = self._known[key]
        found.times += 1
        if self.mode == "raise":
            raise HiddenWait(str(found))
        if found.times == 1:
            callsite.warn(str(found))

    def __str__(self) -> str:
        return "\n".join(f"{wait} ({wait.times} x)" for wait in self.found) or "no hidden wait"

    def __repr__(self) -> str:
        return f"<lint_waits({self.mode!r}): {len(self.found)} lines with hidden waits>"


_current: Lint | None = None
_door = forks.guard(threading.Lock())


def lint_waits(mode: str = "warn") -> Lint:
    """Look for hidden waits from now on, on all threads; in a `with` statement until its end.

    mode: "warn" warns once for each line and kind of wait, "raise" raises HiddenWait in place of
    waiting, "off" ends the search. The engine stays usable; a refused wait loses no result. `found`
    of the result lists the lines. ValueError for another mode.
    """
    if mode not in ("warn", "raise", "off"):
        raise ValueError(f"lint_waits: mode is {mode!r}, need one of warn, raise, off")
    lint = Lint(mode)
    lint.undo.append(partial(_install, _current))
    lint.install(partial(_install, None if mode == "off" else lint))
    return lint


def _install(lint: Lint | None) -> None:
    """Activate `lint`; None: no lint."""
    global _current
    with _door:
        if _current is not None:
            instrument.remove(_current)
        _current = lint
        instrument.before_wait = None
        if lint is not None:
            instrument.add(lint)
            instrument.before_wait = lint.before_wait


# -- the ledger ------------------------------------------------------------------------------------


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
            if self.pending:
                writes: dict[int, list[int]] = defaultdict(list)
                for operation in self._trace.operations:
                    for serial in operation.writes:
                        writes[serial].append(operation.number)
                while self.pending:
                    self.append(self._wait(writes, *self.pending.popleft()))

    def _wait(
        self, writes: dict[int, list[int]], kind: str, target: int | None, site: Site | None,
        call: CodeType | None, recording: bool, thread: str, begin_ns: int, end_ns: int,
        pushed_at_end: int,
    ) -> Wait:  # fmt: skip
        """A hook's values as a record; it was for the last earlier operation that `writes` the
        Var."""
        operations = self._trace.operations
        # Of operations at the very same time, as on a virtual clock, none came after the end.
        pushed = bisect_right(operations, begin_ns, hi=pushed_at_end, key=PUSHED)
        before, self._pushed[thread] = self._pushed.get(thread, 0), pushed_at_end
        # Another operation may have pushed some during a wait that began at the same time.
        while pushed > before and (o := operations[pushed - 1]).by and o.pushed_ns == begin_ns:
            pushed -= 1
        name = callsite.name_of(call)
        instead = why_hidden(kind, name, recording)
        numbers = writes[target] if target is not None else []
        k = bisect_right(numbers, pushed)
        awaited = numbers[k - 1] if k else 0
        return Wait(kind, target, awaited, pushed, site, thread, begin_ns, end_ns, name, instead)


@dataclass(slots=True)
class Row:
    """The waits of one kind at one line of the program.

    kind, site   kind of wait, and the line; `call` the library function that the line called
    instead      if hidden: an alternative; else None
    waits        the summarized waits
    makers       (name, line) of operations that were waited for -> the first such, and how long
    held         number of operations that the program issued only afterwards, before its next wait
    held_first   the first of them
    idle         number of them that could have run meanwhile
    """

    kind: str
    site: Site | None
    call: str
    instead: str | None
    waits: list[Wait] = field(default_factory=list, repr=False)
    makers: dict[Any, tuple[Operation, float]] = field(default_factory=dict, repr=False)
    held: int = 0
    held_first: Operation | None = None
    idle: int = 0

    @property
    def awaited(self) -> Operation | None:
        """The operation with the longest total wait; None: unknown."""
        return max(self.makers.values(), key=itemgetter(1), default=(None, 0.0))[0]

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
    examples: dict[tuple[str, Site | None], Operation] = {}
    graph = trace.events
    held: dict[int, list[int]] = {}  # of each wait: what its thread issued next, up to the next
    for events in graph.threads.values():
        numbers: list[int] = []
        for event in events:
            if event.wait is not None:
                numbers = held[event.at] = []
            else:
                numbers.append(event.pushed)
    lines = {site: callsite.same_line(site) for site in {wait.site for wait in trace.waits}}
    for i, wait in enumerate(trace.waits):
        key = lines[wait.site], wait.kind
        row = rows.setdefault(key, Row(wait.kind, wait.site, wait.call, wait.instead))
        row.waits.append(wait)
        # The maker of the value; of a wait for everything, the operation whose end ended the wait.
        awaited = trace[wait.operation] if wait.operation > 0 else None
        if wait.target is None:
            awaited = graph.last_within(wait)
        if awaited is not None:
            issued = awaited.name, awaited.site
            first = examples.setdefault(issued, awaited)
            row.makers[issued] = first, row.makers.get(issued, (first, 0.0))[1] + wait.seconds
        numbers = held[i]
        row.held += len(numbers)
        done_ns = wait.end_ns - graph.awaited[i][1]
        row.idle += sum(_could_run(trace, number, wait, done_ns) for number in numbers)
        if numbers and row.held_first is None:
            row.held_first = trace[numbers[0]]
    return Ledger(rows.values(), trace.seconds)


def _could_run(trace: Trace, number: int, wait: Wait, done_ns: int) -> bool:
    """True if all dependencies of an operation were issued before a wait, and done before what the
    wait was for. An operation of another library that runs where it is called has to wait, too."""
    if trace.lacks and trace[number].inline:
        return False
    if number <= wait.operation and (
        number == wait.operation or trace.ordered(number, wait.operation)
    ):  # the wait was for this, too
        return False
    before = (*trace.true_dependencies(number), *trace.anti_dependencies(number))
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

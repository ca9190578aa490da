"""What the engine did, written down: each operation, what it waited for, where and when it ran.

>>> from d2lmini import d2l, nd
>>> with d2l.recording() as run:
...     a = nd.ones((1, 2))
...     b = a * 2
...     c = a * 3
...     a += 1
...     d = b + c
>>> print(run)
1 _ones
2 _mul_scalar, after 1
3 _mul_scalar, after 1
4 _plus_scalar, after 1, 2*, 3*
5 broadcast_add, after 2, 3

Nobody tells the engine that 2 and 3 may run side by side: it reads that off what each operation
reads and writes, and so does this listener, by the same rule. What needs a value comes after the
operation that made it. What writes an array again comes also after all that still read what was
there: those are marked by a star, for they are needed for the room, not for their values.

`run.timeline()` draws who ran what, and when; `d2l.dependency_graph(run)` what comes after what.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import perf_counter
from typing import Any
from weakref import WeakKeyDictionary

from d2lmini import callsite, engine, instrument
from d2lmini.d2l.plot import Picture, Span, timeline
from d2lmini.engine.core import Task, Var

#: Of a bar at least so much of the width of the picture is needed to write into it.
_WIDE = 0.02


class Operation:
    """One operation that was pushed.

    number             from 1, in the order of the program
    name               what messages call it
    place              "cpu", "gpu(0)", or its link "gpu(0) in", "gpu(0) out"
    needs              numbers of the operations whose results it uses
    makes_room         numbers of those it has to wait for only because it writes where they read
                       or wrote, as far as `needs` does not imply it
    pushed_s ready_s began_s ended_s    when, in seconds of `time.perf_counter`; nan: it did not
    worker             the thread that ran it; "caller" where it was called
    failure            why it has no result; None if it has
    """

    __slots__ = (
        "number", "name", "place", "order", "site", "needs", "makes_room", "before", "pushed_s",
        "ready_s", "began_s", "ended_s", "worker", "failure",
    )  # fmt: skip

    def __init__(self, number: int, task: Task):
        ctx, lane = task.ctx, task.lane
        self.number = number
        self.name = task.name
        self.place = "cpu" if ctx.is_cpu else str(ctx)
        if lane != "compute":
            self.place += f" {lane}"
        #: From the top of a timeline: the CPU, then each GPU followed by its link.
        self.order = (not ctx.is_cpu, 0 if ctx.is_cpu else ctx.device_id, lane)
        self.site = task.site
        self.needs: set[int] = set()
        self.makes_room: set[int] = set()
        self.before = 0  # bit n: it comes after operation n, directly or not
        self.pushed_s = perf_counter()
        self.ready_s = self.began_s = self.ended_s = float("nan")
        self.worker = ""
        self.failure: str | None = None

    @property
    def is_copy(self) -> bool:
        """Does it run on a link between devices?"""
        return self.order[2] != "compute"

    @property
    def line(self) -> str:
        """The line of the program that asked for it."""
        return callsite.describe(self.site).partition(": ")[2]

    def __str__(self) -> str:
        after = [(n, "") for n in self.needs] + [(n, "*") for n in self.makes_room]
        words = ", ".join(f"{n}{star}" for n, star in sorted(after))
        return f"{self.number} {self.name}" + (f", after {words}" if words else "")

    __repr__ = __str__


class _History:
    """Of a Var: its last writer (0: one before the recording), and who has read it since."""

    __slots__ = ("readers", "writer")

    def __init__(self) -> None:
        self.writer = 0
        self.readers: set[int] = set()


class Recording(instrument.Instrument):
    """The operations of a scope, in the order of the program; made by `recording()`.

    `operations` are those (number 1 first), `waits` the front end's waits as (kind, begin_s,
    end_s). It keeps no array alive.
    """

    def __init__(self) -> None:
        self.operations: list[Operation] = []
        self.waits: list[tuple[str, float, float]] = []
        self._histories: WeakKeyDictionary[Var, _History] = WeakKeyDictionary()
        self._tasks: dict[Task, Operation] = {}
        self._closing = False

    # -- what the engine tells ---------------------------------------------------------------------

    def push(self, task: Task) -> None:
        operation = self._tasks[task] = Operation(len(self.operations) + 1, task)
        self._find_order(operation, task)
        self.operations.append(operation)

    def ready(self, task: Task) -> None:
        if task in self._tasks:  # else it was pushed before the recording began
            self._tasks[task].ready_s = perf_counter()

    def start(self, task: Task, worker: str) -> None:
        if task in self._tasks:
            operation = self._tasks[task]
            operation.worker = worker
            operation.began_s = perf_counter()

    def end(self, task: Task, failure: Any) -> None:
        operation = self._tasks.pop(task, None)
        if operation is not None:
            operation.ended_s = perf_counter()
            operation.failure = None if failure is None else str(failure)

    def wait(self, kind: str, target: Any, site: Any, begin_ns: int, end_ns: int) -> None:
        if not self._closing:
            self.waits.append((kind, begin_ns / 1e9, end_ns / 1e9))

    # -- what comes after what ---------------------------------------------------------------------

    def _find_order(self, operation: Operation, task: Task) -> None:
        """Whom it comes after, by the rule of the engine: readers together, a writer alone."""
        n, needs, room = operation.number, operation.needs, operation.makes_room
        for var in task.reads:
            needs.add(self._history(var).writer)
        for var in task.writes:
            history = self._history(var)
            room.update(history.readers or [history.writer])
            history.writer, history.readers = n, set()
        for var in task.reads:
            if var not in task.writes:
                self._history(var).readers.add(n)
        needs.discard(0)
        for k in needs:
            operation.before |= self[k].before | 1 << k
        for k in sorted(room - {0}, reverse=True):
            if operation.before >> k & 1:
                room.discard(k)
            else:
                operation.before |= self[k].before | 1 << k
        room.discard(0)

    def _history(self, var: Var) -> _History:
        history = self._histories.get(var)
        if history is None:
            history = self._histories[var] = _History()
        return history

    def __getitem__(self, number: int) -> Operation:
        """The operation of that number."""
        return self.operations[number - 1]

    def ordered(self, a: int, b: int) -> bool:
        """Must one of the operations of these numbers be over before the other begins?"""
        early, late = sorted((a, b))
        return bool(self[late].before >> early & 1)

    def __str__(self) -> str:
        return "\n".join(map(str, self.operations))

    def __repr__(self) -> str:
        return f"<recording of {len(self.operations)} operations>"

    # -- who ran what, and when --------------------------------------------------------------------

    def timeline(
        self,
        title: str = "",
        length_s: float | None = None,
        label: Callable[[Operation], str] = lambda operation: str(operation.number),
        accent: Callable[[Operation], bool] = lambda operation: False,
    ) -> Picture:
        """A bar for each operation that ran, in a row for each worker of each place; above them the
        front end's waits. `label` says what is written into a bar that has room, `accent` which are
        drawn in another colour, `length_s` how long the axis is. ValueError if nothing ran.
        """
        rows: dict[tuple[str, str], list[Operation]] = {}
        ran = [each for each in self.operations if each.worker]
        for each in sorted(ran, key=lambda each: (each.order, each.began_s)):
            rows.setdefault((each.place, each.worker), []).append(each)
        if not rows:
            raise ValueError("timeline: no operation ran while it was recorded")
        lanes: list[tuple[str, list[Span]]] = []
        if self.waits:
            lanes.append(("front end", [("wait", begin, end) for _, begin, end in self.waits]))
        places = [place for place, _ in rows]
        for n, (place, row) in enumerate(zip(places, rows.values())):
            of_several = places.count(place) > 1
            name = f"{place}, worker {places[:n].count(place) + 1}" if of_several else place
            lanes.append(
                (name, [(_kind(each, accent), each.began_s, each.ended_s) for each in row])
            )
        picture = timeline(lanes, title, length_s, unit="ms")
        _write_into_bars(picture, lanes, list(rows.values()), label)
        # The same for any number of workers.
        return Picture(picture.figure, f"timeline of {', '.join(dict.fromkeys(places))}")


def _kind(operation: Operation, accent: Callable[[Operation], bool]) -> str:
    if accent(operation):
        return "accent"
    return "copy" if operation.is_copy else "compute"


def _write_into_bars(
    picture: Picture,
    lanes: list[tuple[str, list[Span]]],
    rows: list[list[Operation]],
    label: Callable[[Operation], str],
) -> None:
    """Into those that are wide enough for it."""
    axes = picture.figure.axes[0]
    zero_s = min(begin for _, spans in lanes for _, begin, _ in spans)
    room_ms = axes.get_xlim()[1] / 60  # for a letter
    for n, row in enumerate(rows, start=len(lanes) - len(rows)):
        for each in row:
            begin_ms, end_ms = 1e3 * (each.began_s - zero_s), 1e3 * (each.ended_s - zero_s)
            if end_ms - begin_ms > room_ms * len(label(each)):
                middle = (begin_ms + end_ms) / 2
                axes.text(middle, n, label(each), ha="center", va="center", fontsize=7.5)


@contextmanager
def recording() -> Iterator[Recording]:
    """Record what is pushed within the scope, which begins and ends with an idle engine."""
    engine.waitall()
    run = Recording()
    with instrument.listening(run):
        yield run
        run._closing = True
        engine.waitall()

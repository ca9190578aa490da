"""A record of the engine's work: each operation, its dependencies, where and when it ran.

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

The program does not say that 2 and 3 may run side by side: the engine derives it from the reads and
writes of each operation, and so does a trace (`d2lmini.profiler`), by the same rule. An operation
that needs a value comes after the operation that made the value. An operation that overwrites an
array also comes after all reads of the previous contents: those dependencies have a star, because
they are needed for the room, not for a value.

`run.timeline()` draws which worker ran what, and when; `d2l.dependency_graph(run)` the
dependencies. A recording is a `Trace` in the words of the chapters; `run.trace` has the rest.
"""

from __future__ import annotations

from typing import Any

from d2lmini.draw.picture import Picture
from d2lmini.engine.order import drop_implied
from d2lmini.profiler.graph import describe
from d2lmini.profiler.records import Operation
from d2lmini.profiler.tracing import Profile, Trace
from d2lmini.scopes import Undo


class RecordedStep:
    """An operation of a trace, and its dependencies.

    needs              numbers of the operations whose results it uses
    makes_room         numbers of those that it must wait for only because it overwrites what they
                       read or wrote, except implied ones

    Number, name, place, worker, line, times (pushed_s, ready_s, began_s, ended_s; nan if absent)
    and so on are those of the `Operation`.
    """

    __slots__ = ("makes_room", "needs", "operation")

    def __init__(self, operation: Operation, needs: set[int], makes_room: set[int]):
        self.operation = operation
        self.needs = needs
        self.makes_room = makes_room

    def __getattr__(self, name: str) -> Any:
        return getattr(object.__getattribute__(self, "operation"), name)

    def __str__(self) -> str:
        return describe(self.operation, self.needs, self.makes_room)

    __repr__ = __str__


class Recording:
    """The operations of a scope, in the order of the program; made by `recording()`.

    `operations` are the operations (number 1 first), `waits` the front end's waits as (kind,
    begin_s, end_s). It keeps no array alive.
    """

    def __init__(self, trace: Trace):
        self.trace = trace
        self._steps: list[RecordedStep] = []

    @property
    def operations(self) -> list[RecordedStep]:
        """The operations pushed so far."""
        trace = self.trace
        if len(self._steps) != len(trace.operations):
            after = drop_implied(trace.order)
            self._steps = [
                RecordedStep(operation, *which) for operation, which in zip(trace.operations, after)
            ]
        return self._steps

    @property
    def waits(self) -> list[tuple[str, float, float]]:
        """Kind, begin and end of each wait, in seconds of `time.perf_counter`."""
        return [(wait.kind, wait.begin_ns / 1e9, wait.end_ns / 1e9) for wait in self.trace.waits]

    def __getitem__(self, number: int) -> RecordedStep:
        """The operation of that number."""
        return self.operations[number - 1]

    def ordered(self, a: int, b: int) -> bool:
        """True if one of these two operations must be over before the other begins."""
        return self.trace.ordered(a, b)

    def timeline(self, *args: Any, **kwargs: Any) -> Picture:
        """`Trace.timeline`: a bar for each operation that ran, in a row for each worker of each
        place; above them the front end's waits."""
        return self.trace.timeline(*args, **kwargs)

    def __str__(self) -> str:
        return "\n".join(map(str, self.operations))

    def __repr__(self) -> str:
        return f"<recording of {len(self.trace.operations)} operations>"


def dependency_graph(run: Recording, lines: bool = True) -> Picture:
    """A picture of the dependencies, with the line that issued each operation if `lines`.
    ValueError for an empty recording, and for more than 60 operations."""
    return run.trace.graph(lines=lines)


class RecordingScope(Profile):
    """The scope that `recording()` opens."""

    def _begin(self, undo: Undo) -> Recording:  # type: ignore[override]
        return Recording(super()._begin(undo))


def recording() -> RecordingScope:
    """Record what is pushed within the scope, which begins and ends with an idle engine."""
    return RecordingScope()

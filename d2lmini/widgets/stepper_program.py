"""A small program as the stepped engine recorded it: operations, waits, names and values of arrays.

>>> from d2lmini import nd
>>> def program():
...     a = nd.ones((2,))
...     b = a * 2
...     a += 1
>>> record = record_program(program)
>>> for x in record.operations:
...     print(x, [record.names[var] for var in x.writes], *record.values[x.number].values())
1 _ones ['a'] [1. 1.]
2 _mul_scalar ['b'] [2. 2.]
3 _plus_scalar ['a'] [2. 2.]

The program runs once, to its end, on its own stepped engine (`engine.stepped`); afterwards that
engine is gone, and the previous engine is in use again. The record holds only numbers and text: no
array, no Var, nothing pending. Every legal order gives the same values, so the recorded values hold
in all orders in which the record is played (`stepper_play`).

Arrays have the names that the program gives them. Its local variables are examined at every push,
so an `x` that is bound anew is distinguished from the previous one: "x", then "x #2".
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping
from types import FrameType
from typing import Any, NamedTuple

import numpy as np

from d2lmini import engine
from d2lmini.base import callsite, instrument
from d2lmini.draw.svg import shorten
from d2lmini.engine import worker_pools
from d2lmini.engine.core import Task, Var
from d2lmini.engine.stepped_engine import SteppedOperation, Times
from d2lmini.ops.fluent import shown_name

#: Most operations of a program that can be stepped through; larger arrays are not written out;
#: longer lines are shortened.
MOST, MOST_ELEMENTS, MOST_LETTERS = 200, 6, 36


class Wait(NamedTuple):
    """The program waited: after it had pushed operation number `after`, for the Var `var` (None:
    for everything), in this line. `writes`: for its readers, too."""

    after: int
    var: int | None
    writes: bool
    line: str


class Program(NamedTuple):
    """A recorded program.

    operations  as the stepped engine recorded them, in the order of their numbers
    titles      of the operations: "4 a += 1"
    waits       of the program, in order
    workers     the names of the workers of each place
    names       of the Vars, by number
    values      number of an operation -> Var -> what the operation left there, of small arrays; 0:
                what existed before the program
    """

    operations: list[SteppedOperation]
    titles: list[str]
    waits: list[Wait]
    workers: dict[str, list[str]]
    names: dict[int, str]
    values: dict[int, dict[int, str]]

    def us(self, ns: int) -> float:
        """A time of the record, in microseconds since the program began."""
        return (ns - self.operations[0].pushed_ns) / 1e3


def record_program(program: Callable[[], object], workers: int = 2, times: Times = 10.0) -> Program:
    """Run `program` once and record what it does.

    workers, times  as for `engine.stepped`. ValueError for a program that pushes nothing, or more
    than MOST operations. Errors that the program raises go to the caller; failed operations are
    reported only in the record.
    """
    if not callable(program):
        raise TypeError(
            f"Stepper: program is a function without arguments that issues operations, "
            f"got {type(program).__name__}"
        )
    with engine.stepped(workers=workers, times=times) as stepped:
        recorder = _Recorder(program, stepped.operations)
        try:
            with instrument.listening(recorder):
                program()
                recorder.note_names()
                recorder.over = True
                stepped.wait_idle("Stepper")
        finally:
            stepped.wait_idle("Stepper")
            with stepped.lock:
                stepped.take_unreported()  # the failures are reported only in the record
    n = len(stepped.operations)
    if not 0 < n <= MOST:
        raise ValueError(
            f"Stepper: the program pushed {n} operations, and 1 to {MOST} can be stepped through: "
            + ("take fewer rounds of its loop" if n else "let it compute something")
        )
    return recorder.record(workers)


class _Recorder(instrument.Instrument):
    """Listens to the engine for what its record lacks: waits, names and values. Keeps the program's
    Vars alive until the record is complete."""

    def __init__(self, program: Any, operations: dict[int, SteppedOperation]):
        self.operations = operations
        self.waits: list[tuple[int, Var | None, bool, str]] = []
        self.numbers: dict[Var, int] = {}
        self.names: dict[Var, str] = {}
        self.before: dict[Var, str] = {}
        self.values: dict[int, dict[int, str]] = {}
        self.over = False
        self._code = getattr(program, "__code__", None)
        self._frame: FrameType | None = None  # of the program
        if self._code is not None:
            found = inspect.getclosurevars(program)
            self._note({**found.globals, **found.nonlocals})

    def push(self, task: Task) -> None:
        for var in (*task.shared, *task.writes):
            self.before.setdefault(var, value_of(var))
        self._frame = self._frame or self._find_frame()
        self.note_names()

    def _find_frame(self) -> FrameType | None:
        frame: FrameType | None = sys._getframe(2)
        while frame is not None and frame.f_code is not self._code:
            frame = frame.f_back
        return frame

    def note_names(self) -> None:
        """Note which arrays the program's local variables are now."""
        if self._frame is not None:
            self._note(self._frame.f_locals)

    def _note(self, variables: Mapping[str, Any]) -> None:
        for name, value in list(variables.items()):
            var = value if isinstance(value, Var) else getattr(value, "_chunk", None)
            if isinstance(var, Var) and var not in self.names:
                self.before.setdefault(var, value_of(var))
                known = self.names.values()
                others = sum(text == name or text.startswith(f"{name} #") for text in known)
                self.names[var] = f"{name} #{others + 1}" if others else name

    def end(self, task: Task, failure: Any) -> None:
        operation = self.operations[task.seq]
        self.numbers.update(zip(task.shared, operation.reads))
        self.numbers.update(zip(task.writes, operation.writes))
        # The engine's reads are those that are shared; what is changed in place is read, too.
        changed = [self.numbers[var] for var in task.writes if var in task.reads]
        operation.reads = (*operation.reads, *changed)
        values = {self.numbers[var]: value_of(var) for var in task.writes if var.error is None}
        self.values[task.seq] = {var: value for var, value in values.items() if value}

    def wait(self, kind: str, target: Any, site: Any, begin_ns: int, end_ns: int) -> None:
        if self.over or kind == "backpressure" or not (target is None or target in self.before):
            return
        last = max((n for n, operation in self.operations.items() if not operation.by), default=0)
        line = code_of(callsite.describe(site).partition(": ")[2])
        self.waits.append((last, target, kind == "wait_to_write", line))

    def record(self, workers: int) -> Program:
        operations = [self.operations[n] for n in sorted(self.operations)]
        vars_of = {number: var for var, number in sorted(self.numbers.items(), key=lambda e: e[1])}
        names = {n: self.names.get(var) or _unnamed(n, operations) for n, var in vars_of.items()}
        self.values[0] = {n: self.before[var] for n, var in vars_of.items() if self.before[var]}
        waits = [
            Wait(after, None if var is None else self.numbers[var], writes, line)
            for after, var, writes, line in self.waits
            if var is None or var in self.numbers
        ]
        serve = {x.place: worker_pools.names_of(x, workers) for x in operations}
        titles = _titles_of(operations)
        return Program(operations, titles, waits, serve, names, self.values)


def _titles_of(operations: list[SteppedOperation]) -> list[str]:
    """Number and line of each; the name where a line has issued several operations."""
    places = [x.where for x in operations]
    found = []
    for x, place in zip(operations, places):
        line = code_of(x.line)
        if not line or places.count(place) > 1:
            line = shown_name(x.name)
        found.append(f"{x.number} {shorten(line, MOST_LETTERS)}")
    return found


def code_of(line: str) -> str:
    """A line without its comment."""
    return line.split("  #")[0].strip()


def _unnamed(var: int, operations: list[SteppedOperation]) -> str:
    first = next(x for x in operations if var in x.writes or var in x.reads)
    return f"array {var}" if var in first.reads else f"result of {first.number}"


def value_of(var: Var) -> str:
    """The contents of a small array in host memory, as text; otherwise ""."""
    data = getattr(var, "data", None)
    if not isinstance(data, np.ndarray) or data.size > MOST_ELEMENTS:
        return ""
    text = np.array2string(data, precision=4, suppress_small=True, separator=" ")
    return " ".join(text.split())

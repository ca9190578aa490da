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

Arrays have the names that the program gives them. Its local variables are examined at every
function call, so an `x` that is bound anew is distinguished from the previous one: "x", then "x
#2".
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator
from functools import partial
from types import CodeType, FrameType
from typing import Any, NamedTuple

import numpy as np

from d2lmini import engine
from d2lmini.base import callsite, instrument
from d2lmini.base.scopes import contextmanager
from d2lmini.draw.svg import shorten
from d2lmini.engine import worker_pools
from d2lmini.engine.core import Task, Var
from d2lmini.engine.stepped_records import SteppedOperation, Times
from d2lmini.gluon.block import Block
from d2lmini.ndarray import NDArray
from d2lmini.ops.shown import shown_name

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
    order       the numbers in the order in which they began
    titles      of the operations: "4 a += 1"
    waits       of the program, in order
    workers     the names of the workers of each place
    names       of the Vars, by number
    values      number of an operation -> Var -> what the operation left there, of small arrays; 0:
                what existed before the program
    """

    operations: list[SteppedOperation]
    order: list[int]
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
        recorder = _Recorder(stepped.operations)
        try:
            with instrument.listening(recorder):
                with _note_names(program, recorder.name):
                    program()
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
    order = [event.number for event in stepped.log if event.kind == "begin"]
    return recorder.record(order, workers)


class _Recorder(instrument.Instrument):
    """Listens to the engine for what its record lacks: waits, names and values. Keeps the program's
    Vars alive until the record is complete."""

    def __init__(self, operations: dict[int, SteppedOperation]):
        self.operations = operations
        self.waits: list[tuple[int, Var | None, bool, str]] = []
        self.numbers: dict[Var, int] = {}
        self.names: dict[Var, str] = {}
        self.before: dict[Var, str] = {}
        self.values: dict[int, dict[int, str]] = {}
        self.over = False

    def push(self, task: Task) -> None:
        for var in (*task.shared, *task.writes):
            self.before.setdefault(var, value_of(var))

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

    def name(self, name: str, value: Any) -> None:
        """Note that the program calls `value` by this name: an array, several, or a net with its
        parameters."""
        if isinstance(value, (list, tuple)):
            for i, item in enumerate(value[:20]):
                self.name(f"{name}[{i}]", item)
        elif isinstance(value, Block):
            for param in value.collect_params().values():
                for array in param._data or ():
                    self.name(param.name, array)
        else:
            if isinstance(value, NDArray) and value.grad is not None:
                self.name(f"{name}.grad", value.grad)
            var = value if isinstance(value, Var) else getattr(value, "_chunk", None)
            if isinstance(var, Var) and var not in self.names:
                self.before.setdefault(var, value_of(var))
                known = self.names.values()
                others = sum(text == name or text.startswith(f"{name} #") for text in known)
                self.names[var] = f"{name} #{others + 1}" if others else name

    def record(self, order: list[int], workers: int) -> Program:
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
        return Program(operations, order, titles, waits, serve, names, self.values)


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


@contextmanager
def _note_names(program: Any, note: Callable[[str, Any], None]) -> Iterator[None]:
    """Within the scope call `note` with the program's names of its values: existing names at once;
    its local variables at every function call, and at the program's end."""
    while isinstance(program, partial):
        program = program.func
    code: CodeType | None = getattr(program, "__code__", None)
    if code is not None:
        found = inspect.getclosurevars(program)
        for name, value in {**found.globals, **found.nonlocals}.items():
            note(name, value)

    def look(frame: FrameType, event: str, arg: Any) -> None:
        caller = frame.f_back if event == "call" else frame
        if caller is not None and caller.f_code is code and event in ("call", "return"):
            for name, value in list(caller.f_locals.items()):
                note(name, value)

    before = sys.getprofile()
    if code is not None:
        sys.setprofile(look)
    try:
        yield
    finally:
        sys.setprofile(before)

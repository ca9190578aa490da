"""A small program as a plain record: its pushes, reads and waits, and their results.

>>> from d2lmini import nd
>>> def program():
...     a = nd.ones((2,))
...     b = a * 2
...     a += 1
>>> record = record_program(program)
>>> for x in record.operations.values():
...     print(x, [record.names[var] for var in x.writes], *x.values.values())
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

from d2lmini import callsite, engine, instrument
from d2lmini.engine import worker_pools
from d2lmini.engine.core import Task, Var
from d2lmini.engine.operation import place_of
from d2lmini.engine.scheduler import thread_state
from d2lmini.engine.stepped_records import Times, duration_of, lane_of
from d2lmini.gluon.block import Block
from d2lmini.ndarray import NDArray
from d2lmini.scopes import contextmanager

#: Most operations of a program that can be stepped through; larger arrays are not written out.
MOST, MOST_ELEMENTS = 200, 6


class Operation(NamedTuple):
    """The facts of an operation that hold in any order.

    number         from 1, in the order of the program
    name           as in messages and traces
    line, where    the text of the line that issued it; file and line number
    reads, writes  numbers of the Vars; a Var in both is changed in place
    place          "cpu", "gpu(0)", or one of its lanes: "gpu(0) in"
    workers        number of workers of that place
    priority       higher begins first
    us             its assumed duration
    by             number of the operation that pushed it; 0: the program did
    status         how it ends: "done", "failed" or "skipped"
    values         Var -> its contents afterwards, of small arrays
    """

    number: int
    name: str
    line: str
    where: str
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    place: str
    workers: int
    priority: int
    us: float
    by: int
    status: str
    values: dict[int, str]

    def __str__(self) -> str:
        return f"{self.number} {self.name}"


class Wait(NamedTuple):
    """The program waited: `kind` is the kind of wait, `var` its Var (None: all Vars)."""

    kind: str
    var: int | None
    line: str


class Program(NamedTuple):
    """A recorded program.

    operations  by number
    script      the program's actions in order: the number of a pushed operation, or a Wait
    names       of the Vars, by number
    values      the initial contents of small arrays that existed before the program
    """

    operations: dict[int, Operation]
    script: list[int | Wait]
    names: dict[int, str]
    values: dict[int, str]


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
    recorder = _Recorder(workers, times)
    with engine.stepped(workers=workers, times=times) as stepped:
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
    n = len(recorder.tasks)
    if not 0 < n <= MOST:
        raise ValueError(
            f"Stepper: the program pushed {n} operations, and 1 to {MOST} can be stepped through: "
            + ("take fewer rounds of its loop" if n else "let it compute something")
        )
    return recorder.record()


class _Recorder(instrument.Instrument):
    """Listens to the engine. Keeps the program's Vars alive until the record is complete."""

    def __init__(self, workers: int, times: Times):
        self.workers = workers
        self.duration_us = duration_of(times)
        self.tasks: dict[Task, int] = {}  # in the order of the pushes
        self.script: list[int | Wait] = []
        self.numbers: dict[Var, int] = {}
        self.names: dict[int, str] = {}
        self.before: dict[int, str] = {}
        self.by: dict[Task, int] = {}
        self.us: dict[Task, float] = {}
        self.status: dict[Task, str] = {}
        self.values: dict[Task, dict[int, str]] = {}
        self.over = False

    # -- what it hears (the engine's lock is held, apart from `start` and `wait`) ------------------

    def push(self, task: Task) -> None:
        self.by[task] = self.tasks.get(thread_state.task, 0)
        self.tasks[task] = number = len(self.tasks) + 1
        self.us[task] = self.duration_us(task)
        for var in (*task.reads, *task.shared, *task.writes):
            self._number(var)
        if not self.by[task]:
            self.script.append(number)

    def start(self, task: Task, worker: str) -> None:
        self.status[task] = "done"  # the task runs

    def end(self, task: Task, failure: Any) -> None:
        if failure is not None:
            self.status[task] = "failed" if task in self.status else "skipped"
        values = {self._number(var): value_of(var) for var in task.writes if var.error is None}
        self.values[task] = {var: value for var, value in values.items() if value}

    def wait(self, kind: str, target: Any, site: Any, begin_ns: int, end_ns: int) -> None:
        if self.over or kind == "backpressure" or not (target is None or target in self.numbers):
            return
        var = None if target is None else self.numbers[target]
        self.script.append(Wait(kind, var, _line(site)[1]))

    def name(self, name: str, value: Any) -> None:
        """Note that the program calls `value` by this name: an array, several, or a net with its
        parameters."""
        if isinstance(value, (list, tuple)):
            for i, param in enumerate(value[:20]):
                self.name(f"{name}[{i}]", param)
            return
        if isinstance(value, Block):
            for param in value.collect_params().values():
                for array in param._data or ():
                    self.name(param.name, array)
            return
        if isinstance(value, NDArray) and value.grad is not None:
            self.name(f"{name}.grad", value.grad)
        var = value if isinstance(value, Var) else getattr(value, "_chunk", None)
        if not isinstance(var, Var) or self._number(var) in self.names:
            return
        others = sum(text == name or text.startswith(f"{name} #") for text in self.names.values())
        self.names[self._number(var)] = f"{name} #{others + 1}" if others else name

    def _number(self, var: Var) -> int:
        """The number of a Var; at the first use, also records its contents."""
        if var not in self.numbers:
            self.numbers[var] = len(self.numbers) + 1
            self.before[self.numbers[var]] = value_of(var)
        return self.numbers[var]

    # -- what it makes of that ---------------------------------------------------------------------

    def record(self) -> Program:
        operations = {number: self._operation(task) for task, number in self.tasks.items()}
        used = {
            var
            for operation in operations.values()
            for var in (*operation.reads, *operation.writes)
        }
        names = {var: self._name_of(var, operations) for var in sorted(used)}
        values = {var: self.before[var] for var in names if self.before[var]}
        return Program(operations, self.script, names, values)

    def _operation(self, task: Task) -> Operation:
        where, line = _line(task.site)
        reads = dict.fromkeys(self.numbers[var] for var in (*task.reads, *task.shared))
        writes = tuple([self.numbers[var] for var in task.writes])
        skipped = self.status[task] == "skipped"
        return Operation(
            self.tasks[task], task.name, line, where, tuple(reads), writes,
            place_of(task.ctx, lane_of(task)),
            worker_pools.threads.get(worker_pools.key_of(task), self.workers),  # type: ignore[call-overload]
            task.priority, 0.0 if skipped else self.us[task], self.by[task], self.status[task],
            self.values[task],
        )  # fmt: skip

    def _name_of(self, var: int, operations: dict[int, Operation]) -> str:
        if var in self.names:
            return self.names[var]
        first = next(e for e in operations.values() if var in e.writes or var in e.reads)
        return f"array {var}" if var in first.reads else f"result of {first.number}"


def _line(site: Any) -> tuple[str, str]:
    """File and number of a line, and its text."""
    where, _, text = callsite.describe(site).partition(": ")
    return where, text


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

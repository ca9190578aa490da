"""Which operation uses what it does not name? The search behind `engine.explore`'s verdict.

`Watch` looks at the contents of all Vars before and after some operations of a stepped engine. An
operation that changes a Var without naming it in `writes` shows in this; one that reads it shows
when the Var gets older contents back, and the operation does something else.

`find_collision` checks the engine itself, in its log: of two operations that name a Var, one of
them to write it, the second must have begun after the first had ended.

>>> bits_of([1, (2.0, "a")])
[1, [2.0, 'a']]
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from d2lmini import instrument
from d2lmini.engine.core import Task, Var
from d2lmini.engine.engine import Engine
from d2lmini.engine.operation import Operation
from d2lmini.engine.stepped_engine import SteppedEngine

Order = tuple[int, ...]
Program = Callable[[], object]
#: The number of a Var, and a sentence with a placeholder for its name.
Blame = tuple[int | None, str]


def bits_of(value: Any) -> object:
    """Arrays as their bytes, containers element by element."""
    if isinstance(value, (list, tuple)):
        return [bits_of(item) for item in value]
    if isinstance(value, dict):
        return {key: bits_of(item) for key, item in value.items()}
    if hasattr(value, "asnumpy"):
        value = value.asnumpy()
    if isinstance(value, (np.ndarray, np.generic)):
        return value.shape, value.dtype.str, value.tobytes()
    return value


def outcome_of(program: Program, engine: Engine, why: str) -> object:
    """What `program` returns when `engine` runs it, in a form comparable to the bit, or the error
    that it raises; `why` names the wait for its end. Later waits do not raise its errors."""
    outcome: object
    try:
        outcome = bits_of(program())
    except Exception as error:
        outcome = "error", type(error).__name__, str(error).splitlines()[:1]
    engine.wait_idle(why)
    with engine.lock:
        engine.take_unreported()
    return outcome


class Watch(instrument.Instrument):
    """Sees what some operations do to the contents of all Vars. With `undo`, that Var has its
    contents from before the first operation while the second runs."""

    def __init__(self, engine: SteppedEngine, order: Order, those: Sequence[int], undo: int | None):
        self.engine = engine
        self.order = order
        self.those = tuple(those)
        self.undo = undo
        self.before: dict[int, dict[int, Any]] = {}
        self.after: dict[int, dict[int, Any]] = {}
        self._put_back: list[tuple[Any, Any]] = []

    def start(self, task: Task, worker: str) -> None:
        if self.undo is not None and task.seq == self.those[1] and self.those[0] in self.before:
            for var, number in self.engine.numbers.items():
                if number == self.undo:
                    old = self.before[self.those[0]].get(number)
                    self._put_back.append((var, var.data))  # type: ignore[attr-defined]
                    var.data = old  # type: ignore[attr-defined]
        if task.seq in self.those:
            self.before[task.seq] = self._contents()

    def end(self, task: Task, failure: Any) -> None:
        if task.seq in self.those:
            self.after[task.seq] = self._contents()
            if task.seq == self.those[-1]:
                for var, data in self._put_back:
                    var.data = data

    def _contents(self) -> dict[int, Any]:
        return {number: copy_of(var) for var, number in self.engine.numbers.items()}

    def changed_vars(self, number: int) -> set[int]:
        """The Vars whose contents operation `number` changed."""
        before, after = self.before.get(number, {}), self.after.get(number, {})
        return {v for v in after if bits_of(before.get(v)) != bits_of(after[v])}

    def did(self, number: int, variables: Iterable[int]) -> object:
        """What was in `variables` after operation `number`."""
        after = self.after.get(number, {})
        return {v: bits_of(after.get(v)) for v in variables}


def copy_of(var: Var) -> Any:
    """The contents of `var`: memory has contents, a bare tag has none."""
    data = getattr(var, "data", None)
    missing = var.error is not None and not var.error.unchanged
    return None if missing or data is None else data.copy()


def find_unnamed_write(those: Sequence[Operation], runs: Sequence[Watch]) -> Blame | None:
    """A Var that one of the operations changes without naming it."""
    for run in runs:
        for task in those:
            hidden = run.changed_vars(task.number) - set(task.writes)
            if hidden:
                return min(hidden), f"{task} changes {{}} and does not name it in writes"
    return None


def find_unnamed_read(
    pair: Sequence[Operation], runs: tuple[Watch, Watch], watch: Callable[..., Watch]
) -> Blame | None:
    """A Var that one operation changes and the other reads without naming it: without the change,
    the other does what it does when it comes first."""
    for run, reverse in (runs, runs[::-1]):
        first, second = (run.engine.operations[number] for number in run.those)
        alone = reverse.did(second.number, second.writes)
        if run.did(second.number, second.writes) == alone:
            continue
        for var in sorted(run.changed_vars(first.number)):
            undone = watch(run.order, run.those, var)
            if undone.did(second.number, second.writes) == alone:
                return var, f"{second} uses {{}} and does not name it in reads"
    return None


def find_unnamed(one: Operation, other: Operation) -> Blame:
    """If there are no contents to compare: the Vars that only one of the operations names."""
    those = vars_of_one(one, other)
    found = those[0] if len(those) == 1 else None
    return found, "one of them\nuses and does not name one of: {}"


def vars_of_one(one: Operation, other: Operation) -> list[int]:
    return sorted({*one.reads, *one.writes} ^ {*other.reads, *other.writes})


# -- the engine itself -----------------------------------------------------------------------------


def list_begun(engine: SteppedEngine) -> Order:
    return tuple(event.number for event in engine.log if event.kind == "begin")


def find_collision(engine: SteppedEngine) -> tuple[Operation, Operation, int] | None:
    """Check the promise in the log: of two operations that name a Var, one of them to write it,
    the second begins after the first has ended. Returns two operations that break it, and the Var.

    (A rendezvous claims its Vars before it is complete and in the log, so operations that are
    logged late are not checked.)
    """
    last = 0
    checked: set[int] = set()
    ended: set[int] = set()
    # For each Var the operations that write it, and those that use it, the oldest first.
    writers: dict[int, deque[int]] = defaultdict(deque)
    users: dict[int, deque[int]] = defaultdict(deque)
    for event in engine.log:
        number = event.number
        operation = engine.operations[number]
        if event.kind == "end":
            ended.add(number)
        elif event.kind == "push":
            if number > last:
                last = number
                checked.add(number)
                for var in {*operation.reads, *operation.writes}:
                    users[var].append(number)
                for var in operation.writes:
                    writers[var].append(number)
        elif number in checked:
            for var in sorted({*operation.reads, *operation.writes}):
                others = users[var] if var in operation.writes else writers[var]
                while others and others[0] in ended:
                    others.popleft()
                if others and others[0] < number:
                    return engine.operations[others[0]], operation, var
    return None

"""Whether a program gives the same values in every legal order, and which operation is wrong.

>>> from d2lmini import engine, nd
>>> def program():
...     a = nd.ones((2,))
...     b = a * 2
...     a += 1
...     return a + b
>>> print(engine.explore(program))
4 operations in 1 order: always the same values

An operation that does not name a Var it reads or writes may run too early or too late; then some
order gives other values:

>>> def forgetful():
...     a, b, log = engine.new_var(), engine.new_var(), [0]
...     engine.push(lambda: log.append(1), writes=[a], name="fill")
...     engine.push(lambda: log.append(log[-1] + 1), writes=[b], name="copy")      # reads=[a]
...     engine.waitall()
...     return log
>>> print(engine.explore(forgetful))             # doctest: +ELLIPSIS
2 operations in 2 orders: not the same values
the order 2, 1 does not give the values of the program
1 fill and 2 copy may run in either order, and must not: one of them
uses and does not name one of: v1 (of 1 fill), v2 (of 2 copy)
  1 fill: issued at ...
  2 copy: issued at ...

The serial engine defines the right values. To find the two operations, the failing order is turned
into program order by exchanging unordered neighbours; somewhere on the way the values change, and
the operations of that exchange are the ones. To find the Var, contents are compared before and
after each of the two, so an unnamed change shows. If there is none, each Var that the first
operation changes gets its old contents back before the second begins; if the second then does what
it does when it comes first, it reads that Var without naming it. A bare Var has no contents to
compare: then the report lists all Vars that only one of the two operations names.

The engine itself is checked too: in every log, of two operations that name a Var, one of them to
write it, the second must have begun after the first had ended.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from d2lmini import instrument
from d2lmini.base import MXNetError
from d2lmini.engine.core import Task, Var
from d2lmini.engine.engine import Engine
from d2lmini.engine.operation import Operation
from d2lmini.engine.stepped_engine import SteppedEngine
from d2lmini.engine.stepped_orders import Orders

Order = tuple[int, ...]
Program = Callable[[], object]
#: The number of a Var, and a sentence with a placeholder for its name.
Blame = tuple[int | None, str]


class Exploration:
    """The result of `engine.explore`; print it to read it.

    operations  number of operations pushed
    orders      number of orders in which they began, not counting the search for the cause
    schedules   number of random schedules in addition
    wrong       None, or the order that gives other values
    pair        None, or the two operations that should be ordered and are not
    var         None, or the number of the Var that is the cause
    why         the same in words
    """

    def __init__(self, operations: int):
        self.operations = operations
        self.orders = 0
        self.schedules = 0
        self.wrong: Order | None = None
        self.pair: tuple[Operation, Operation] | None = None
        self.var: int | None = None
        self.why = ""

    def __str__(self) -> str:
        same = "always" if self.wrong is None else "not"
        orders = "order" if self.orders == 1 else "orders"
        said = f"{self.operations} operations in {self.orders} {orders}: {same} the same values"
        if self.wrong is not None:
            order = ", ".join(map(str, self.wrong))
            said += f"\nthe order {order} does not give the values of the program\n{self.why}"
        return said

    __repr__ = __str__


class _Explorer:
    """Runs a program in any order, and remembers the outcomes."""

    def __init__(self, use: Callable[..., AbstractContextManager[Any]], program: Program):
        self.use = use
        self.program = program
        self.outcomes: dict[Order, object] = {}
        self.begun: set[Order] = set()

    def serial(self) -> object:
        """The outcome of serial execution."""
        with self.use("naive") as engine:
            return self._outcome(engine)

    def run(self, **options: Any) -> tuple[object, SteppedEngine]:
        """The outcome on a stepped engine, and that engine."""
        with self.use("stepped", **options) as engine:
            return self._outcome(engine), engine

    def fine(self, order: Order) -> bool:
        """True if `order` gives the outcome of serial execution."""
        if order not in self.outcomes:
            self.outcomes[order], engine = self.run(order=order)
            self.begun.add(_list_begun(engine))
        return self.outcomes[order] == self.expected

    def watch(self, order: Order, those: Sequence[int], undo: int | None = None) -> _Watch:
        """Run the program in `order` and watch some operations."""
        with self.use("stepped", order=order) as engine:
            watch = _Watch(engine, order, those, undo)
            with instrument.listening(watch):
                self._outcome(engine)
        return watch

    def _outcome(self, engine: Engine) -> object:
        """The program's return value in a form comparable to the bit; or the error it raises."""
        outcome: object
        try:
            outcome = bits_of(self.program())
        except Exception as error:
            outcome = "error", type(error).__name__, str(error).splitlines()[:1]
        engine.wait_idle("explore")
        with engine.lock:
            engine.take_unreported()  # later waits must not raise these errors
        return outcome

    def explore(self, most: int, reduced: bool, seeds: int) -> Exploration:
        """See `engine.explore`."""
        self.expected = self.serial()
        if self.serial() != self.expected:
            raise MXNetError(
                "explore: the program does not give the same when it is run twice line by line; "
                "let it begin with new arrays, and seed what it draws (d2lmini.random.seed)"
            )
        engine = self.run(order=())[1]
        everything = Orders(engine._in_order())
        found = Exploration(len(everything.numbers))
        for order in everything.some(most, reduced):
            fine = self.fine(order)
            found.orders = len(self.begun)
            if not fine:
                found.wrong = order
                self._blame(found, tuple(everything.numbers), order)
                return found
        for seed in range(seeds):
            outcome, engine = self.run(seed=seed, mingled=True)
            found.schedules += 1
            collision = _collision(engine)
            if collision is not None or outcome != self.expected:
                found.wrong = _list_begun(engine)
                _blame_engine(found, engine, collision)
                break
        return found

    def _blame(self, found: Exploration, first: Order, order: Order) -> None:
        """Find the two operations and the Var, and describe them."""
        engine = self.run(order=order)[1]
        collision = _collision(engine)
        if collision is not None:
            _blame_engine(found, engine, collision)
            return
        if not self.fine(first):  # then a wait came too early
            run = self.watch(first, first)
            engine = run.engine
            pair = [engine.operations[number] for number in first]
            found.var, why = _find_unnamed_write(pair, (run,)) or (None, "the cause is unknown")
            found.why = "even program order does not, when the operations are queued: "
            found.why += why.format("" if found.var is None else engine.name_of(found.var))
            return
        good, bad, i = _exchange(first, order, self.fine)
        runs = self.watch(good, good[i : i + 2]), self.watch(bad, bad[i : i + 2])
        engine = runs[0].engine
        one, other = found.pair = (
            engine.operations[min(good[i : i + 2])],
            engine.operations[max(good[i : i + 2])],
        )
        found.var, why = (
            _find_unnamed_write(found.pair, runs)
            or _find_unnamed_read(found.pair, runs, self.watch)
            or _find_unnamed(one, other)
        )
        those = [found.var] if found.var is not None else _vars_of_one(one, other)
        why = why.format(", ".join(map(engine.name_of, those)) or "what no operation names")
        found.why = f"{one} and {other} may run in either order, and must not: {why}"
        found.why += "".join(f"\n  {x}: issued at {x.where}" for x in found.pair)


def explore(
    use: Callable[..., AbstractContextManager[Any]],
    program: Program,
    most: int,
    reduced: bool,
    seeds: int,
) -> Exploration:
    """See `engine.explore`; `use` is `engine.use`."""
    return _Explorer(use, program).explore(most, reduced, seeds)


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


def _exchange(good: Order, bad: Order, fine: Callable[[Order], bool]) -> tuple[Order, Order, int]:
    """Two legal orders on the way from `good` to `bad` that differ only in the places i and i + 1;
    the first gives the right values and the second does not. Also i."""
    way, places = [good], [0]
    for i, number in enumerate(bad):
        for j in range(way[-1].index(number) - 1, i - 1, -1):
            order = list(way[-1])
            order[j], order[j + 1] = order[j + 1], order[j]
            way.append(tuple(order))
            places.append(j)
    low, high = 0, len(way) - 1
    while high - low > 1:
        middle = (low + high) // 2
        if fine(way[middle]):
            low = middle
        else:
            high = middle
    return way[low], way[high], places[high]


class _Watch(instrument.Instrument):
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
        return {number: _copy_of(var) for var, number in self.engine.numbers.items()}

    def changed_vars(self, number: int) -> set[int]:
        """The Vars whose contents operation `number` changed."""
        before, after = self.before.get(number, {}), self.after.get(number, {})
        return {v for v in after if bits_of(before.get(v)) != bits_of(after[v])}

    def did(self, number: int, variables: Iterable[int]) -> object:
        """What was in `variables` after operation `number`."""
        after = self.after.get(number, {})
        return {v: bits_of(after.get(v)) for v in variables}


def _copy_of(var: Var) -> Any:
    """The contents of `var`: memory has contents, a bare tag has none."""
    data = getattr(var, "data", None)
    missing = var.error is not None and not var.error.unchanged
    return None if missing or data is None else data.copy()


def _find_unnamed_write(those: Sequence[Operation], runs: Sequence[_Watch]) -> Blame | None:
    """A Var that one of the operations changes without naming it."""
    for run in runs:
        for task in those:
            hidden = run.changed_vars(task.number) - set(task.writes)
            if hidden:
                return min(hidden), f"{task} changes {{}} and does not name it in writes"
    return None


def _find_unnamed_read(
    pair: Sequence[Operation], runs: tuple[_Watch, _Watch], watch: Callable[..., _Watch]
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


def _find_unnamed(one: Operation, other: Operation) -> Blame:
    """If there are no contents to compare: the Vars that only one of the operations names."""
    those = _vars_of_one(one, other)
    found = those[0] if len(those) == 1 else None
    return found, "one of them\nuses and does not name one of: {}"


def _vars_of_one(one: Operation, other: Operation) -> list[int]:
    return sorted({*one.reads, *one.writes} ^ {*other.reads, *other.writes})


# -- the engine itself -----------------------------------------------------------------------------


def _list_begun(engine: SteppedEngine) -> Order:
    return tuple(event.number for event in engine.log if event.kind == "begin")


def _collision(engine: SteppedEngine) -> tuple[Operation, Operation, int] | None:
    """Check the promise in the log: of two operations that name a Var, one of them to write it,
    the second begins after the first has ended. Returns two operations that break it, and the Var.

    (A meeting claims its Vars before it is complete and in the log, so operations that are logged
    late are not checked.)
    """
    before: list[Operation] = []
    after: dict[int, list[Operation]] = {}
    ended: set[int] = set()
    for event in engine.log:
        late = engine.operations[event.number]
        if event.kind == "end":
            ended.add(event.number)
        elif event.kind == "push":
            if not before or before[-1].number < event.number:
                after[event.number] = before[:]
                before.append(late)
        else:
            for early in after.get(event.number, ()):
                written = {*early.writes, *late.writes}
                both = {*early.reads, *early.writes} & {*late.reads, *late.writes} & written
                if both and early.number not in ended:
                    return early, late, min(both)
    return None


def _blame_engine(
    found: Exploration,
    engine: SteppedEngine,
    collision: tuple[Operation, Operation, int] | None,
) -> None:
    """Describe a random schedule that failed although no order did."""
    if collision is None:
        found.why = "the schedule began and ended operations between the pushes of the program"
        return
    early, late, found.var = collision
    found.pair = early, late
    found.why = (
        f"{late} began before {early} had ended, though both name {engine.name_of(found.var)} and "
        "one writes it: the engine broke its rule"
    )

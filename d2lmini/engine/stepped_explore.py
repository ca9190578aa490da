"""Does a program give the same values in every legal order? If not, whose fault is it?

>>> from d2lmini import engine, nd
>>> def program():
...     a = nd.ones((2,))
...     b = a * 2
...     a += 1
...     return a + b
>>> print(engine.explore(program))
4 operations in 1 order: always the same values

An operation that forgets to name what it reads or writes may run too early or too late, and then
some order gives other values:

>>> def forgetful():
...     a, b, log = engine.new_var(), engine.new_var(), [0]
...     engine.push(lambda: log.append(1), writes=[a], name="fill")
...     engine.push(lambda: log.append(log[-1] + 1), writes=[b], name="copy")      # reads=[a]
...     engine.waitall()
...     return log
>>> print(engine.explore(forgetful))             # doctest: +ELLIPSIS
2 operations in 2 orders: not the same values
the order 2, 1 gives other values than that of the program
1 fill and 2 copy may run in either order, and must not: one of them
uses and does not name one of: v1 (of 1 fill), v2 (of 2 copy)
  1 fill: issued at ...
  2 copy: issued at ...

How the two are found. The order that fails becomes that of the program by exchanging neighbours
that nothing orders; somewhere on this way the values change, and that exchange is the one. How the
Var is found: contents are compared before and after each of the two, so a change that was not
named shows. If there is none, each Var that the first of them changes is given its old contents
back before the second begins; where that makes the second do what it does when it comes first, it
reads that Var and does not name it. A bare Var has no contents to look at: then all are told that
only one of the two names.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from d2lmini import instrument
from d2lmini.base import MXNetError
from d2lmini.engine.core import Task, Var
from d2lmini.engine.stepped import SteppedEngine
from d2lmini.engine.stepped_orders import Orders
from d2lmini.engine.stepped_records import Operation

Order = tuple[int, ...]
Scope = Callable[..., AbstractContextManager[SteppedEngine]]


class Exploration:
    """What came of it; printed, it says so.

    operations  how many were pushed
    orders      in how many orders the program ran, not counting those of the search for the fault
    wrong       None, or the order that gives other values
    pair        None, or the two operations that should be ordered and are not
    var         None, or the number of the Var that one of them uses and does not name
    why         the same in words
    """

    def __init__(self, operations: int):
        self.operations = operations
        self.orders = 0
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
            said += f"\nthe order {order} gives other values than that of the program\n{self.why}"
        return said

    __repr__ = __str__


def explore(scope: Scope, program: Callable[[], object], most: int, reduced: bool) -> Exploration:
    """See `engine.explore`; `scope` is `engine.stepped`."""
    values: dict[Order, object] = {}
    operations: list[Operation] = []

    def run(order: Order) -> object:
        if order not in values:
            with scope(order=order, remember=0) as engine:
                values[order] = _outcome(program, engine)
                operations[:] = [each for _, each in sorted(engine.operations.items())]
        return values[order]

    expected = run(())
    pushed = operations[:]
    everything = Orders(pushed)
    first = tuple(everything.numbers)
    if run(first) != expected or [str(each) for each in operations] != [str(p) for p in pushed]:
        raise MXNetError(
            "explore: the program does not do the same when it is run twice in the same order; "
            "begin it with new arrays, and seed what it draws (d2lmini.random.seed)"
        )
    found = Exploration(len(pushed))
    for order in everything.some(most, reduced):
        found.orders += 1
        if run(order) != expected:
            found.wrong = order
            _blame(found, scope, program, _exchange(first, order, lambda o: run(o) == expected))
            break
    return found


def _outcome(program: Callable[[], object], engine: SteppedEngine) -> object:
    """What `program` returns, as something to compare to the bit; or the error that it raises."""
    outcome: object
    try:
        outcome = bits_of(program())
    except MXNetError as error:
        outcome = "error", str(error).splitlines()[0]
    engine.run()
    with engine.lock:
        engine.reports.take()  # nobody else is to hear of them
    return outcome


def bits_of(value: Any) -> object:
    """Arrays as their bytes, containers part by part."""
    if isinstance(value, (list, tuple)):
        return [bits_of(each) for each in value]
    if isinstance(value, dict):
        return {key: bits_of(each) for key, each in value.items()}
    if hasattr(value, "asnumpy"):
        value = value.asnumpy()
    if isinstance(value, (np.ndarray, np.generic)):
        return value.shape, value.dtype.str, value.tobytes()
    return value


def _exchange(good: Order, bad: Order, fine: Callable[[Order], bool]) -> tuple[Order, Order, int]:
    """Two legal orders that differ in the places i and i + 1 alone, the first of which gives the
    right values and the second does not: they lie on every way from `good` to `bad`."""
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
    """Sees what two operations, neighbours in an order, do to the contents of all Vars; gives one
    Var its old contents back between the two, if asked to."""

    def __init__(self, engine: SteppedEngine, order: Order, i: int, undo: int | None):
        self.engine = engine
        self.order = order
        self.first, self.second = order[i], order[i + 1]
        self.undo = undo
        self.before: dict[int, dict[int, Any]] = {}
        self.after: dict[int, dict[int, Any]] = {}
        self._put_back: list[tuple[Any, Any]] = []

    def start(self, task: Task, worker: str) -> None:
        if task.seq == self.second and self.undo is not None:
            for var, number in self.engine.numbers.items():
                if number == self.undo:
                    old = self.before[self.first].get(number)
                    self._put_back.append((var, var.data))  # type: ignore[attr-defined]
                    var.data = old  # type: ignore[attr-defined]
        if task.seq in (self.first, self.second):
            self.before[task.seq] = self._contents()

    def end(self, task: Task, failure: Any) -> None:
        if task.seq in (self.first, self.second):
            self.after[task.seq] = self._contents()
            if task.seq == self.second:
                for var, data in self._put_back:
                    var.data = data

    def _contents(self) -> dict[int, Any]:
        return {number: _copy_of(var) for var, number in self.engine.numbers.items()}

    def changed(self, number: int) -> set[int]:
        """The Vars whose contents operation `number` changed."""
        before, after = self.before.get(number, {}), self.after.get(number, {})
        return {v for v in after if bits_of(before.get(v)) != bits_of(after[v])}

    def did(self, number: int, variables: set[int]) -> object:
        """What was in `variables` after operation `number`."""
        after = self.after.get(number, {})
        return {v: bits_of(after.get(v)) for v in variables}


def _copy_of(var: Var) -> Any:
    """Its contents if it has any: memory has, a bare tag has not."""
    data = getattr(var, "data", None)
    return None if var.error is not None or data is None else data.copy()


def _blame(
    found: Exploration,
    scope: Scope,
    program: Callable[[], object],
    exchange: tuple[Order, Order, int],
) -> None:
    """Find the Var, and say it all."""
    good, bad, i = exchange

    def watch(order: Order, undo: int | None = None) -> _Watch:
        with scope(order=order, remember=0) as engine:
            watch = _Watch(engine, order, i, undo)
            with instrument.listening(watch):
                _outcome(program, engine)
        return watch

    runs = watch(good), watch(bad)
    engine = runs[0].engine
    pair = tuple(engine.operations[number] for number in sorted(good[i : i + 2]))
    found.pair = pair[0], pair[1]
    found.var, why = _unnamed_write(pair, runs) or _unnamed_read(pair, runs, watch) or (None, "")
    if found.var is None:
        those = _named_by_one(*pair)
        found.var = those[0] if len(those) == 1 else None
        names = ", ".join(map(engine.name_of, those)) or "what no operation names"
        why = f"one of them\nuses and does not name one of: {names}"
    else:
        why = why.format(engine.name_of(found.var))
    found.why = f"{pair[0]} and {pair[1]} may run in either order, and must not: {why}"
    for each in pair:
        found.why += f"\n  {each}: issued at {each.line}"


def _unnamed_write(
    pair: Sequence[Operation], runs: tuple[_Watch, _Watch]
) -> tuple[int, str] | None:
    """A Var that one of them changes without saying so."""
    for run in runs:
        for each in pair:
            hidden = run.changed(each.number) - set(each.writes)
            if hidden:
                return min(hidden), f"{each} changes {{}} and does not name it in writes"
    return None


def _unnamed_read(
    pair: Sequence[Operation],
    runs: tuple[_Watch, _Watch],
    watch: Callable[[Order, int], _Watch],
) -> tuple[int, str] | None:
    """A Var that one changes and the other uses: without that change, the other does what it does
    when it comes first."""
    for run, reverse in (runs, runs[::-1]):
        first, second = (
            next(each for each in pair if each.number == number)
            for number in (run.first, run.second)
        )
        results = set(second.writes)
        alone = reverse.did(second.number, results)
        if run.did(second.number, results) == alone:
            continue
        for var in sorted(run.changed(first.number)):
            if watch(run.order, var).did(second.number, results) == alone:
                return var, f"{second} uses {{}} and does not name it in reads"
    return None


def _named_by_one(one: Operation, other: Operation) -> list[int]:
    """The Vars that it may be, for want of contents to look at."""
    return sorted({*one.reads, *one.writes} ^ {*other.reads, *other.writes})

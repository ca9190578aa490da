"""Whether a program gives the same values in every legal order, and which operation is wrong.

>>> from d2lmini import engine, nd
>>> def program():
...     a = nd.ones((2,))
...     b = a * 2
...     a += 1
...     return a + b
>>> print(engine.explore(program))
4 operations in 1 order: always the same values. Any other legal order only exchanges operators that
share no array

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

Nothing is said of orders that were not tried. First come a few orders in which every two unordered
operations come both ways round. If there are few legal orders, all the others are tried too, but
for those that exchange neighbouring operators of the library, which touch only the arrays that they
name. Else some are drawn at random: an effect that needs three operations in a certain order may be
missed. A pushed function may also depend on what no order shows, such as a clock or a file.

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

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any

from d2lmini import instrument
from d2lmini.base import MXNetError
from d2lmini.engine.operation import Operation
from d2lmini.engine.stepped_blame import (
    Order,
    Program,
    Watch,
    find_collision,
    find_unnamed,
    find_unnamed_read,
    find_unnamed_write,
    list_begun,
    outcome_of,
    vars_of_one,
)
from d2lmini.engine.stepped_engine import SteppedEngine
from d2lmini.engine.stepped_orders import Orders

#: With `reduced`, all orders are tried if there are at most so many; else so many at random.
_MORE, _DRAWN = 200, 20


class Exploration:
    """The result of `engine.explore`; print it to read it.

    operations  number of operations pushed
    orders      number of orders in which they began, not counting the search for the cause
    schedules   number of random schedules in addition
    complete    was every legal order tried, perhaps but for exchanges of neighbouring operators?
    declared    is every operation an operator, which has no state but the arrays it names?
    wrong       None, or the order that gives other values
    pair        None, or the two operations that should be ordered and are not
    var         None, or the number of the Var that is the cause
    why         the same in words
    """

    def __init__(self, operations: int):
        self.operations = operations
        self.orders = 0
        self.schedules = 0
        self.complete = False
        self.declared = False
        self.wrong: Order | None = None
        self.pair: tuple[Operation, Operation] | None = None
        self.var: int | None = None
        self.why = ""

    def __str__(self) -> str:
        orders = "order" if self.orders == 1 else "orders"
        tried = f"{self.operations} operations in {self.orders} {orders}: "
        if self.wrong is not None:
            order = ", ".join(map(str, self.wrong))
            tried += "not the same values\n"
            return tried + f"the order {order} does not give the values of the program\n{self.why}"
        if not self.complete:
            return tried + (
                "the same values in these. There are more legal orders; reduced=False tries all"
            )
        if not self.declared:
            return tried + (
                "the same values in every legal order. Pushed functions may still depend on\nwhat "
                "no order shows: a clock, a file, another thread"
            )
        return tried + (
            "always the same values. Any other legal order only exchanges operators that\nshare no "
            "array"
        )

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
            return outcome_of(self.program, engine, "explore")

    def run(self, **options: Any) -> tuple[object, SteppedEngine]:
        """The outcome on a stepped engine, and that engine."""
        with self.use("stepped", **options) as engine:
            return outcome_of(self.program, engine, "explore"), engine

    def fine(self, order: Order) -> bool:
        """True if `order` gives the outcome of serial execution."""
        if order not in self.outcomes:
            self.outcomes[order], engine = self.run(order=order)
            self.begun.add(list_begun(engine))
        return self.outcomes[order] == self.expected

    def watch(self, order: Order, those: Sequence[int], undo: int | None = None) -> Watch:
        """Run the program in `order` and watch some operations."""
        with self.use("stepped", order=order) as engine:
            watch = Watch(engine, order, those, undo)
            with instrument.listening(watch):
                outcome_of(self.program, engine, "explore")
        return watch

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
        found.declared = everything.only_operators
        for order in self._orders(found, everything, most, reduced):
            fine = self.fine(order)
            found.orders = len(self.begun)
            if not fine:
                found.wrong = order
                self._blame(found, tuple(everything.numbers), order)
                return found
        for seed in range(seeds):
            outcome, engine = self.run(seed=seed, mingled=True)
            found.schedules += 1
            collision = find_collision(engine)
            if collision is not None or outcome != self.expected:
                found.wrong = list_begun(engine)
                _blame_engine(found, engine, collision)
                break
        return found

    def _orders(
        self, found: Exploration, everything: Orders, most: int, reduced: bool
    ) -> Iterator[Order]:
        """The orders to try. `found.complete` is set when they turn out to be all."""
        yield from everything.some(most, reduced)
        if not reduced:
            found.complete = True
            return
        classes = everything.classes(min(most, _MORE))
        if classes is None:
            yield from (everything.drawn(seed) for seed in range(_DRAWN))
        else:
            yield from classes
            found.complete = True

    def _blame(self, found: Exploration, first: Order, order: Order) -> None:
        """Find the two operations and the Var, and describe them."""
        engine = self.run(order=order)[1]
        collision = find_collision(engine)
        if collision is not None:
            _blame_engine(found, engine, collision)
            return
        if not self.fine(first):  # then a wait came too early
            run = self.watch(first, first)
            engine = run.engine
            pair = [engine.operations[number] for number in first]
            found.var, why = find_unnamed_write(pair, (run,)) or (None, "the cause is unknown")
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
            find_unnamed_write(found.pair, runs)
            or find_unnamed_read(found.pair, runs, self.watch)
            or find_unnamed(one, other)
        )
        those = [found.var] if found.var is not None else vars_of_one(one, other)
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

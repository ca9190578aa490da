"""A program's operations in every order that the engine allows: are the values always the same?

    found = explore(program)
    assert found.wrong == "", found

`program` takes no argument, pushes, and returns arrays or other values; it runs anew for each
order. Its values on the serial engine are the right ones. If its legal orders are few it runs in
each of them, one operation at a time. Then it runs under random schedules, in which operations
overlap and begin while the program still pushes. Each log is checked too: of two operations that
share a Var which one of them writes, the second has to begin after the first has ended.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Any, NamedTuple

import numpy as np

from d2lmini import engine
from d2lmini.engine.operation import Operation
from d2lmini.engine.order import order_of
from d2lmini.engine.simulation import Step

Order = tuple[int, ...]
Program = Callable[[], object]


class Explored(NamedTuple):
    """`orders`: in so many orders the operations began. `wrong`: "" or what went wrong, and in
    which order."""

    orders: int
    wrong: str


def explore(program: Program, most: int = 200, seeds: int = 20) -> Explored:
    """Run `program` in its legal orders, if there are at most so many, and under so many random
    schedules. AssertionError if it does not repeat itself."""
    expected, _ = _run(program, "naive")
    assert _run(program, "naive")[0] == expected, "it gives other values when it is run twice"
    operations = list(_run(program, "stepped")[1].operations.values())
    orders = list(islice(legal_orders(operations), most + 1))
    schedules: list[dict[str, Any]] = [{"seed": seed} for seed in range(seeds)]
    if len(orders) <= most:
        schedules = [{"order": order} for order in orders] + schedules
    begun: set[Order] = set()
    for options in schedules:
        outcome, stepped = _run(program, "stepped", **options)
        begun.add(tuple(event.number for event in stepped.log if event.kind == "begin"))
        wrong = find_overlap(stepped)
        if not wrong and outcome != expected:
            wrong = f"{outcome} instead of {expected}"
        if wrong:
            return Explored(len(begun), f"{options}: {wrong}")
    return Explored(len(begun), "")


def _run(
    program: Program, kind: str, order: Order | None = None, **options: Any
) -> tuple[object, Any]:
    """What `program` returns or raises on an engine of its own, and that engine."""
    with engine.use(kind, **options) as used:
        if order is not None:
            used.choose = partial(choose_in, order, used)  # type: ignore[attr-defined]
        try:
            outcome = bits_of(program())
        except Exception as error:
            outcome = type(error).__name__, str(error).splitlines()[:1]
        used.wait_idle("explore")
        with used.lock:
            used.take_unreported()
    return outcome, used


def choose_in(order: Order, stepped: Any) -> Step | None:
    """The next step of one task at a time, in this order."""
    able = list(stepped.schedule.able())
    ends = [step for step in able if not step[1]]
    return min(ends or able, key=lambda step: order.index(step[0].number), default=None)


def legal_orders(operations: Sequence[Operation]) -> Iterator[Order]:
    """Each legal order of all operations of a program, as numbers; program order first."""
    before = _find_predecessors(operations)

    def follow(order: Order) -> Iterator[Order]:
        if len(order) == len(before):
            yield order
        done = set(order)
        for number, those in before.items():
            if number not in done and those <= done:
                yield from follow((*order, number))

    return follow(())


def _find_predecessors(operations: Sequence[Operation]) -> dict[int, set[int]]:
    """For each operation the ones that it has to follow directly."""
    before = order_of(operations)
    return {each.number: {*sum(after, ())} for each, after in zip(operations, before, strict=True)}


def find_overlap(stepped: Any) -> str:
    """Two operations in the log of a stepped engine that ran together and must not; "" if none."""
    places = {(event.kind, event.number): place for place, event in enumerate(stepped.log)}
    operations = [operation for _, operation in sorted(stepped.operations.items())]
    for late, numbers in _find_predecessors(operations).items():
        for early in numbers:
            if places["begin", late] < places["end", early]:
                return f"{stepped.operations[late]} began before {stepped.operations[early]} ended"
    return ""


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

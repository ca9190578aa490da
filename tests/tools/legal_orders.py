"""A program's operations in every order that the engine allows: are the values always the same?

    found = explore(program)
    assert found.wrong == "", found

`program` takes no argument, pushes, and returns arrays or other values; it runs anew for each
order. Its values on the serial engine are the right ones. It runs one operation at a time in its
legal orders: in all of them if they are few, else in some that are drawn. Then it runs under random
schedules, in which operations overlap and begin while the program still pushes. Each log is checked
too: of two operations that share a Var which one of them writes, the second has to begin after the
first has ended.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple

import numpy as np

from d2lmini import engine
from d2lmini.engine.operation import Operation
from d2lmini.engine.order import order_of

Order = tuple[int, ...]
Program = Callable[[], object]
#: So many orders are drawn where not all are tried.
DRAWN = 20


class Explored(NamedTuple):
    """`orders`: the number of orders in which the operations began, of those that were tried one
    operation at a time. `wrong`: "" or what went wrong, and in which order."""

    orders: int
    wrong: str


def explore(program: Program, most: int = 200, seeds: int = 10) -> Explored:
    """Run `program` in its legal orders, in all if there are at most so many, and under so many
    random schedules. AssertionError if it does not repeat itself."""
    expected, _ = _run(program, "naive")
    assert _run(program, "naive")[0] == expected, "it gives other values when it is run twice"
    operations = list(_run(program, "stepped", order=())[1].operations.values())
    begun: set[Order] = set()
    for options in _schedules(operations, most, seeds):
        outcome, stepped = _run(program, "stepped", **options)
        if "order" in options:
            begun.add(tuple(event.number for event in stepped.log if event.kind == "begin"))
        wrong = find_overlap(stepped)
        if not wrong and outcome != expected:
            wrong = f"{outcome} instead of {expected}"
        if wrong:
            return Explored(len(begun), f"{options}: {wrong}")
    return Explored(len(begun), "")


def _run(program: Program, kind: str, **options: Any) -> tuple[object, Any]:
    """What `program` returns or raises on an engine of its own, and that engine."""
    with engine.use(kind, **options) as used:
        try:
            outcome = bits_of(program())
        except Exception as error:
            outcome = type(error).__name__, str(error).splitlines()[:1]
        used.wait_idle("explore")
        with used.lock:
            used.take_unreported()
    return outcome, used


def _schedules(operations: Sequence[Operation], most: int, seeds: int) -> Iterator[dict[str, Any]]:
    orders = list(islice(legal_orders(operations), most + 1))
    if len(orders) > most:
        orders = [draw_order(operations, random.Random(seed)) for seed in range(DRAWN)]
    for order in orders:
        yield {"order": order}
    for seed in range(seeds):
        yield {"seed": seed, "mingled": True}


def legal_orders(operations: Sequence[Operation]) -> Iterator[Order]:
    """Each legal order of all operations of a program, as numbers; program order first."""
    before = _find_predecessors(operations)

    def follow(order: Order) -> Iterator[Order]:
        if len(order) == len(before):
            yield order
        for number in _find_next(before, order):
            yield from follow((*order, number))

    return follow(())


def draw_order(operations: Sequence[Operation], draw: random.Random) -> Order:
    """A legal order: the next is any that may be next."""
    before = _find_predecessors(operations)
    order: Order = ()
    while len(order) < len(before):
        order += (draw.choice(_find_next(before, order)),)
    return order


def _find_predecessors(operations: Sequence[Operation]) -> dict[int, set[int]]:
    """For each operation the ones that it has to follow directly."""
    before = order_of(operations)
    return {each.number: {*sum(after, ())} for each, after in zip(operations, before, strict=True)}


def _find_next(before: dict[int, set[int]], order: Order) -> list[int]:
    """The operations that may follow on `order`."""
    done = set(order)
    return [number for number, those in before.items() if number not in done and those <= done]


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

"""Scheduling policies of the stepped engine: which of the possible steps comes next.

    InOrder     as the threaded engine would, if its workers kept to the predicted times: a task
                that can begin does so at once, by priority and age; then the earliest end comes
                (`schedule`)
    Seeded      any legal order, at random: each task that can begin or end is equally likely. A
                late end means that the operation took longer than predicted
    ListOrder   one task at a time, in the order of a given list of numbers

A choice depends only on what has happened: step k of a seed is drawn from (seed, k).
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from d2lmini.engine.schedule import Schedule


class Stepping(Protocol):
    """What a policy sees: the `schedule`, and the numbers of steps made and of operations pushed.
    The stepped engine, and the stepper of the widgets."""

    schedule: Schedule
    steps: int

    @property
    def pushed(self) -> int:
        """Number of operations pushed."""


class Step(NamedTuple):
    """An operation begins or ends."""

    operation: Any
    begins: bool


class InOrder:
    """The order of a threaded engine that keeps to the predicted times."""

    def next(self, engine: Stepping) -> Step | None:
        """The next step; None if nothing can happen."""
        found = engine.schedule.next()
        return None if found is None else Step(*found)

    def steps_before_push(self, engine: Stepping) -> int:
        """How many steps come before the next push."""
        return 0


class Seeded(InOrder):
    """A random legal order, all choices equally likely; the same for the same seed."""

    def __init__(self, seed: int, mingled: bool):
        self.seed = seed
        self.mingled = mingled

    def next(self, engine: Stepping) -> Step | None:
        steps = [Step(operation, True) for operation in engine.schedule.able_to_begin()]
        steps += [Step(operation, False) for operation in engine.schedule.able_to_end()]
        if not steps:
            return None
        return steps[self._draw(f"step {engine.steps}", len(steps))]

    def steps_before_push(self, engine: Stepping) -> int:
        return (0, 0, 1, 2, 3)[self._draw(f"push {engine.pushed}", 5)] if self.mingled else 0

    def _draw(self, what: str, n: int) -> int:
        return random.Random(f"{self.seed}, {what}").randrange(n)


class ListOrder(InOrder):
    """One task at a time, in the order of a list of numbers; then the others by age."""

    def __init__(self, order: Iterable[int]):
        self.place = {number: place for place, number in enumerate(order)}

    def next(self, engine: Stepping) -> Step | None:
        running = engine.schedule.next_to_end()
        if running is not None:
            return Step(running, False)
        last = len(self.place)
        first = min(
            engine.schedule.waiting_to_begin(),
            key=lambda ready: (self.place.get(ready.number, last), ready.number),
            default=None,
        )
        return None if first is None else Step(first, True)


def make_policy(
    seed: int | None = None, mingled: bool = False, order: Iterable[int] | None = None
) -> InOrder:
    """The policy that the options of `engine.stepped` ask for; ValueError if they ask for two."""
    if seed is not None and order is not None:
        raise ValueError("engine.stepped: give one of seed= and order=")
    if mingled and seed is None:
        raise ValueError("engine.stepped: mingled= draws, and needs a seed=")
    if seed is not None:
        return Seeded(seed, mingled)
    return InOrder() if order is None else ListOrder(order)

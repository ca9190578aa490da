"""Scheduling policies of the stepped engine: which of the possible steps comes next.

    InOrder     as the threaded engine would, if its workers kept to the predicted times: a task
                that can begin does so at once, by priority and age; then the earliest end comes
                (`schedule`)
    Seeded      any legal order, at random: each task that can begin or end is equally likely. A
                late end means that the operation took longer than predicted
    Listed      one task at a time, in the order of a given list of numbers
    Replayed    as a log says

A choice depends only on what has happened: step k of a seed is drawn from (seed, k), step k of a
replay is read from the log. So a step that was taken back is repeated exactly.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from d2lmini.base import MXNetError
from d2lmini.engine.stepped_records import LogEntry

if TYPE_CHECKING:
    from d2lmini.engine.schedule import Schedule


class Stepping(Protocol):
    """What a choice sees: the `schedule`, and the numbers of moves made and of operations pushed.
    The stepped engine, and the stepper of the widgets."""

    schedule: Schedule
    steps: int

    @property
    def pushed(self) -> int:
        """Number of operations pushed."""


class Move(NamedTuple):
    """An operation begins or ends. Only a replay sets the worker and the time."""

    operation: Any
    begins: bool
    worker: str | None = None
    time_us: float | None = None


class InOrder:
    """The order of a threaded engine that keeps to the predicted times."""

    def next(self, engine: Stepping) -> Move | None:
        """The next step; None if nothing can happen."""
        begins = engine.schedule.next_to_begin()
        if begins is not None:
            return Move(begins, True)
        ends = engine.schedule.next_to_end()
        return None if ends is None else Move(ends, False)

    def steps_before_push(self, engine: Stepping) -> int:
        """The number of steps that must have happened before the next push."""
        return 0

    def check_wait(self, engine: Stepping) -> None:
        """The program waits and nothing can happen: raise if the program is at fault."""


class Seeded(InOrder):
    """A random legal order, all choices equally likely; the same for the same seed."""

    def __init__(self, seed: int, mingled: bool):
        self.seed = seed
        self.mingled = mingled

    def next(self, engine: Stepping) -> Move | None:
        moves = [Move(operation, True) for operation in engine.schedule.able_to_begin()]
        moves += [Move(operation, False) for operation in engine.schedule.able_to_end()]
        if not moves:
            return None
        return moves[self._draw(f"step {engine.steps}", len(moves))]

    def steps_before_push(self, engine: Stepping) -> int:
        often = (0, 0, 1, 2, 3)[self._draw(f"push {engine.pushed}", 5)] if self.mingled else 0
        return engine.steps + often

    def _draw(self, what: str, n: int) -> int:
        return random.Random(f"{self.seed}, {what}").randrange(n)


class ListOrder(InOrder):
    """One task at a time, in the order of a list of numbers; then the others by age."""

    def __init__(self, order: Iterable[int]):
        self.place = {number: place for place, number in enumerate(order)}

    def next(self, engine: Stepping) -> Move | None:
        running = engine.schedule.next_to_end()
        if running is not None:
            return Move(running, False)
        last = len(self.place)
        first = min(
            engine.schedule.waiting_to_begin(),
            key=lambda ready: (self.place.get(ready.number, last), ready.number),
            default=None,
        )
        return None if first is None else Move(first, True)


class LogOrder(InOrder):
    """The steps of a log; after its end, as `InOrder`."""

    def __init__(self, log: Iterable[Sequence[Any]]):
        events = [LogEntry(*event) for event in log]
        self.moves = [event for event in events if event.kind != "push"]
        self.before: dict[int, int] = {}
        moves = 0
        for event in events:
            if event.kind == "push":
                self.before[event.number] = moves
            else:
                moves += 1

    def next(self, engine: Stepping) -> Move | None:
        if engine.steps >= len(self.moves):
            return super().next(engine)
        event = self.moves[engine.steps]
        begins = event.kind == "begin"
        schedule = engine.schedule
        those = list(schedule.waiting_to_begin()) if begins else schedule.able_to_end()
        for operation in those:
            if operation.number == event.number and operation.name == event.name:
                return Move(operation, begins, event.worker, event.time_us)
        if event.number > engine.pushed:
            return None  # the program has not pushed the operation yet
        able = ", ".join(map(str, those)) or "none"
        raise self._other(engine, f"only these may {event.kind} now: {able}")

    def steps_before_push(self, engine: Stepping) -> int:
        return self.before.get(engine.pushed + 1, 0)

    def check_wait(self, engine: Stepping) -> None:
        if engine.steps < len(self.moves):
            raise self._other(engine, "that operation has not been pushed, and the program waits")

    def _other(self, engine: Stepping, what: str) -> MXNetError:
        """The error for a program that differs from the log's; the replay ends here."""
        event = self.moves[engine.steps]
        del self.moves[engine.steps :]
        return MXNetError(
            f"replay: step {engine.steps + 1} of the log is {str(event)!r}, but in this program "
            f"{what}. The log belongs to another program"
        )


def choice(
    seed: int | None,
    mingled: bool,
    order: Iterable[int] | None,
    replay: Iterable[Sequence[Any]] | None,
) -> InOrder:
    """The requested policy; ValueError if more than one was requested."""
    if sum(argument is not None for argument in (seed, order, replay)) > 1:
        raise ValueError("engine.stepped: give one of seed=, order= and replay=")
    if mingled and seed is None:
        raise ValueError("engine.stepped: mingled= draws, and needs a seed=")
    if seed is not None:
        return Seeded(seed, mingled)
    if order is not None:
        return ListOrder(order)
    return InOrder() if replay is None else LogOrder(replay)

"""Which operation begins or ends next: the scheduling rule, without tasks, Vars or a clock.

Every place has workers and a queue of ready operations, by priority, then by number. An operation
begins when a worker of its place is idle; the one that ends first ends first. The stepped engine
keeps its real tasks to this rule, `simulation` keeps recorded ones. A policy of the stepped engine
picks one of the steps that are possible:

    InOrder     as the threaded engine would, if its workers kept to the predicted times
    Seeded      any legal order, at random: each task that can begin or end is equally likely. A
                late end means that the operation took longer than predicted
    ListOrder   one task at a time, in the order of a given list of numbers

A choice depends only on what has happened: step k of a seed is drawn from (seed, k).

>>> from types import SimpleNamespace as Made
>>> schedule = Schedule(lambda operation: ["cpu 1"])
>>> for number in (1, 2):
...     schedule.make_ready(Made(number=number, place="cpu", priority=number, worker=""))
>>> first = schedule.next_to_begin()
>>> first.number, schedule.begin(first)
(2, 'cpu 1')
>>> schedule.next_to_begin() is None              # the worker is busy
True
"""

from __future__ import annotations

import random
from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Iterator, Sequence
from heapq import merge
from operator import itemgetter
from typing import Any, Protocol


class Schedulable(Protocol):
    """What the rule needs to know of an operation. `worker` is set when it begins."""

    number: int
    priority: int
    worker: str

    @property
    def place(self) -> str:
        """The name of its place."""


#: In a queue of ready operations: -priority, number, operation.
Entry = tuple[int, int, Any]

#: An operation, and whether it begins; else it ends.
Step = tuple[Any, bool]

_operation = itemgetter(2)


class Place:
    """Workers of one kind, those that are busy, and the queue of ready operations."""

    __slots__ = ("busy", "ready", "workers")

    def __init__(self, workers: Sequence[str]):
        self.workers = workers
        self.busy: set[str] = set()
        self.ready: list[Entry] = []

    @property
    def is_idle(self) -> bool:
        """Is a worker idle?"""
        return len(self.busy) < len(self.workers)

    def idle_worker(self) -> str:
        """The first idle worker."""
        return next(worker for worker in self.workers if worker not in self.busy)


class Schedule:
    """The queues and the running operations of all places.

    places  by name
    ends    running operations: when they end
    """

    def __init__(self, workers_of: Callable[[Any], Sequence[str]]):
        """`workers_of`: operation -> the names of the workers of its place."""
        self._workers_of = workers_of
        self.places: dict[str, Place] = {}
        self.ends: dict[Any, float] = {}

    def place_of(self, operation: Schedulable) -> Place:
        """The place of an operation."""
        place = self.places.get(operation.place)
        if place is None:
            place = self.places[operation.place] = Place(self._workers_of(operation))
        return place

    # -- what can happen ---------------------------------------------------------------------------

    def waiting_to_begin(self) -> Iterator[Any]:
        """The ready operations, by priority and age."""
        return map(_operation, merge(*[place.ready for place in self.places.values()]))

    def able_to_begin(self) -> list[Any]:
        """The ready operations for which a worker is idle, by priority and age."""
        queues = [place.ready for place in self.places.values() if place.is_idle]
        return [operation for _, _, operation in merge(*queues)]

    def able_to_end(self) -> list[Any]:
        """The running operations, the first to end first."""
        return sorted(self.ends, key=self._end_of)

    def next_to_begin(self) -> Any:
        """The first of `able_to_begin`; None: none can."""
        best: Entry | None = None
        for place in self.places.values():
            if place.ready and place.is_idle and (best is None or place.ready[0] < best):
                best = place.ready[0]
        return None if best is None else best[2]

    def next_to_end(self) -> Any:
        """The first of `able_to_end`; None: none runs."""
        return min(self.ends, key=self._end_of, default=None)

    def next(self) -> Step | None:
        """The default order: (operation, does it begin?); None: nothing can happen. An operation
        that can begin does so at once; then the earliest end comes."""
        if (begins := self.next_to_begin()) is not None:
            return begins, True
        ends = self.next_to_end()
        return None if ends is None else (ends, False)

    def _end_of(self, operation: Schedulable) -> tuple[float, int]:
        return self.ends[operation], operation.number

    # -- what happens ------------------------------------------------------------------------------

    def make_ready(self, operation: Schedulable) -> None:
        """Put an operation into the queue of its place."""
        insort(self.place_of(operation).ready, _entry(operation))

    def is_ready(self, operation: Schedulable) -> bool:
        """Is the operation in the queue of its place?"""
        ready, entry = self.place_of(operation).ready, _entry(operation)
        at = bisect_left(ready, entry)
        return at < len(ready) and ready[at] == entry

    def withdraw(self, operation: Schedulable) -> None:
        """Take an operation out of the queue."""
        ready = self.place_of(operation).ready
        del ready[bisect_left(ready, _entry(operation))]

    def begin(self, operation: Schedulable) -> str:
        """A worker takes a ready operation; returns the worker. When it ends is for `ends`."""
        place = self.place_of(operation)
        del place.ready[bisect_left(place.ready, _entry(operation))]
        # The name comes first: if Ctrl-C strikes before the worker is busy, `end` finds nothing.
        operation.worker = place.idle_worker()
        place.busy.add(operation.worker)
        return operation.worker

    def end(self, operation: Schedulable) -> None:
        """The worker of an operation is idle again. Idempotent."""
        self.ends.pop(operation, None)
        self.place_of(operation).busy.discard(operation.worker)


class InOrder:
    """The order of a threaded engine that keeps to the predicted times."""

    def next(self, engine: Any) -> Step | None:
        """The next step of the stepped engine; None if nothing can happen."""
        return engine.schedule.next()

    def steps_before_push(self, engine: Any) -> int:
        """How many steps come before the next push."""
        return 0


class Seeded(InOrder):
    """A random legal order, all choices equally likely; the same for the same seed. `mingled`: some
    steps come before a push."""

    def __init__(self, seed: int, mingled: bool):
        self.seed = seed
        self.mingled = mingled

    def next(self, engine: Any) -> Step | None:
        schedule = engine.schedule
        steps = [(operation, True) for operation in schedule.able_to_begin()]
        steps += [(operation, False) for operation in schedule.able_to_end()]
        return steps[self._draw(f"step {engine.steps}", len(steps))] if steps else None

    def steps_before_push(self, engine: Any) -> int:
        return (0, 0, 1, 2, 3)[self._draw(f"push {engine.pushed}", 5)] if self.mingled else 0

    def _draw(self, what: str, n: int) -> int:
        return random.Random(f"{self.seed}, {what}").randrange(n)


class ListOrder(InOrder):
    """One task at a time, in the order of a list of numbers; then the others by age."""

    def __init__(self, order: Iterable[int]):
        self.place = {number: place for place, number in enumerate(order)}

    def next(self, engine: Any) -> Step | None:
        schedule = engine.schedule
        if (running := schedule.next_to_end()) is not None:
            return running, False
        last = len(self.place)
        first = min(
            schedule.waiting_to_begin(),
            key=lambda ready: (self.place.get(ready.number, last), ready.number),
            default=None,
        )
        return None if first is None else (first, True)


def _entry(operation: Schedulable) -> Entry:
    return -operation.priority, operation.number, operation


def worker_names(place: str, n: int) -> list[str]:
    """The names of the `n` workers of a place: "cpu 1", "cpu 2"; a single one is named like it."""
    return [f"{place} {i + 1}" for i in range(n)] if n > 1 else [place]

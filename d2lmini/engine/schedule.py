"""The virtual clock, and which operation begins or ends next: without tasks, Vars or data.

Every place has workers and a queue of ready operations, by priority, then by number. An operation
begins when a worker of its place is idle; the one that ends first ends first. The stepped engine
keeps its real tasks to this rule, `simulation` keeps recorded ones.

>>> from types import SimpleNamespace as Made
>>> schedule = Schedule(lambda operation: ["cpu 1"])
>>> for number in (1, 2):
...     schedule.make_ready(Made(number=number, place="cpu", priority=number, worker=""))
>>> first, begins = schedule.next()
>>> first.number, begins, schedule.begin(first)
(2, True, 'cpu 1')
>>> schedule.next() is None                       # the worker is busy
True
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Sequence
from heapq import merge
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
    """The clock, the queues and the running operations of all places.

    now     the clock, in any one unit
    places  by name
    ends    running operations: when they end
    """

    def __init__(self, workers_of: Callable[[Any], Sequence[str]]):
        """`workers_of`: operation -> the names of the workers of its place."""
        self._workers_of = workers_of
        self.now: Any = 0
        self.places: dict[str, Place] = {}
        self.ends: dict[Any, float] = {}

    def place_of(self, operation: Schedulable) -> Place:
        """The place of an operation."""
        place = self.places.get(operation.place)
        if place is None:
            place = self.places[operation.place] = Place(self._workers_of(operation))
        return place

    # -- what can happen ---------------------------------------------------------------------------

    def list_ready(self) -> list[Any]:
        """The ready operations, by priority and age."""
        queues = [place.ready for place in self.places.values()]
        return [operation for _, _, operation in merge(*queues)]

    def able(self) -> list[Step]:
        """All possible steps: an operation can begin if a worker is idle, by priority and age; one
        that runs can end, the first to end first."""
        begins = [(x, True) for x in self.list_ready() if self.place_of(x).is_idle]
        return begins + [(x, False) for x in sorted(self.ends, key=self._end_of)]

    def next(self) -> Step | None:
        """The first of `able`, the default order; None: nothing can happen. An operation that can
        begin does so at once; then the earliest end comes."""
        best: Entry | None = None
        for place in self.places.values():
            if place.ready and place.is_idle and (best is None or place.ready[0] < best):
                best = place.ready[0]
        if best is not None:
            return best[2], True
        ends = min(self.ends, key=self._end_of, default=None)
        return None if ends is None else (ends, False)

    def _end_of(self, operation: Schedulable) -> tuple[float, int]:
        return self.ends[operation], operation.number

    # -- what happens ------------------------------------------------------------------------------

    def make_ready(self, operation: Schedulable) -> None:
        """Put an operation into the queue of its place."""
        insort(self.place_of(operation).ready, _entry(operation))

    def withdraw(self, operation: Schedulable) -> None:
        """Take an operation out of the queue."""
        ready = self.place_of(operation).ready
        del ready[bisect_left(ready, _entry(operation))]

    def begin(self, operation: Schedulable) -> str:
        """A worker takes a ready operation; returns the worker. When it ends is for `ends`."""
        self.withdraw(operation)
        place = self.place_of(operation)
        # The name comes first: if Ctrl-C strikes before the worker is busy, `end` finds nothing.
        operation.worker = place.idle_worker()
        place.busy.add(operation.worker)
        return operation.worker

    def go_to_end(self, operation: Schedulable) -> None:
        """The clock goes on to the end of a running operation, unless it is later already."""
        self.now = max(self.now, self.ends[operation])

    def end(self, operation: Schedulable) -> None:
        """The worker of an operation is idle again. Idempotent."""
        self.ends.pop(operation, None)
        self.place_of(operation).busy.discard(operation.worker)


def _entry(operation: Schedulable) -> Entry:
    return -operation.priority, operation.number, operation


def worker_names(place: str, n: int) -> list[str]:
    """The names of the `n` workers of a place: "cpu 1", "cpu 2"; a single one is named like it."""
    return [f"{place} {i + 1}" for i in range(n)] if n > 1 else [place]

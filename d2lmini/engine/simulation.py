"""A program on a virtual clock: the engine's rules for operations that were recorded before.

The program's threads issue their steps in order. An operation whose dependencies are done is ready;
the `Schedule` says which one a worker takes: every place has workers and a queue of ready
operations, by priority, then by number. At one instant the program goes on first, as far as it can,
then operations begin, then the one that ends first ends. The stepped engine keeps its real tasks to
the same schedule. Times are numbers of any one unit.

>>> jobs = [SimulatedTask(i, "cpu", run) for i, run in enumerate((3000, 2000, 1000), 1)]
>>> jobs[2].follows([jobs[0], jobs[1]])
>>> issue = [ProgramStep(100, number) for number in (1, 2, 3)]
>>> Simulation(jobs, {"main": [*issue, ProgramStep(0)]}, {"cpu": ["cpu 1", "cpu 2"]}).run()
4100
>>> [(job.worker, job.began, job.ended) for job in jobs]
[('cpu 1', 100, 3100), ('cpu 2', 200, 2200), ('cpu 1', 3100, 4100)]

`run` plays the program to its end, by the default order: a replay. A caller that wants another
order, as the stepper does, calls `settle`, then `begin` or `end` for an operation of its choice.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any, NamedTuple

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
    """The clock, the queues and the running operations of all places, without tasks, Vars or data.
    An operation has a number, a priority, a place, and a worker from its begin on.

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

    def place_of(self, operation: Any) -> Place:
        """The place of an operation."""
        place = self.places.get(operation.place)
        if place is None:
            place = self.places[operation.place] = Place(self._workers_of(operation))
        return place

    def able(self) -> Iterator[Step]:
        """All possible steps: an operation can begin if a worker is idle, by priority and age; one
        that runs can end, the first to end first."""
        queues = [place.ready for place in self.places.values() if place.is_idle]
        for _, _, operation in heapq.merge(*queues):
            yield operation, True
        for operation in sorted(self.ends, key=lambda x: (self.ends[x], x.number)):
            yield operation, False

    def next(self) -> Step | None:
        """The first of `able`, the default order; None: nothing can happen."""
        heads = [place.ready[0] for place in self.places.values() if place.ready and place.is_idle]
        if heads:
            return min(heads)[2], True
        ends = self.ends
        return (min(ends, key=lambda x: (ends[x], x.number)), False) if ends else None

    def make_ready(self, operation: Any) -> None:
        """Put an operation into the queue of its place."""
        insort(self.place_of(operation).ready, _entry(operation))

    def withdraw(self, operation: Any) -> None:
        """Take an operation out of the queue."""
        ready = self.place_of(operation).ready
        del ready[bisect_left(ready, _entry(operation))]

    def begin(self, operation: Any) -> str:
        """A worker takes a ready operation; returns the worker. When it ends is for `ends`."""
        self.withdraw(operation)
        place = self.place_of(operation)
        # The name comes first: if Ctrl-C strikes before the worker is busy, `end` finds nothing.
        operation.worker = place.idle_worker()
        place.busy.add(operation.worker)
        return operation.worker

    def go_to_end(self, operation: Any) -> None:
        """The clock goes on to the end of a running operation, unless it is later already."""
        self.now = max(self.now, self.ends[operation])

    def end(self, operation: Any) -> None:
        """The worker of an operation is idle again. Idempotent."""
        self.ends.pop(operation, None)
        self.place_of(operation).busy.discard(operation.worker)


def _entry(operation: Any) -> Entry:
    return -operation.priority, operation.number, operation


# -- programs --------------------------------------------------------------------------------------


class SharedWork(NamedTuple):
    """A split operation: the owner alone takes `alone` first; then each available worker takes one
    piece after the other. Workers that become idle after the start help only if `late` and if no
    worker was available at the start."""

    alone: float
    piece: float
    pieces: int
    late: bool = True


@dataclass(slots=True, eq=False)
class SimulatedTask:
    """An operation in the simulation; of its times, -1 means: not yet.

    run       its duration; `hand_over`: from the time when a worker takes it until it begins
    inline    runs on the thread that issues it, if it is ready
    share     how it is split among workers; None: one worker runs it
    weight    its contribution to pending work, to which the bound applies
    children  (time after its begin, job): jobs that it pushes
    holds_up  the jobs that depend on it
    missing   number of its unfinished dependencies
    worker    that runs it; "" if it runs on the thread that issued it
    waiting   the threads that wait for it
    asked     of a split job: number of workers asked to help
    taken, done    number of its pieces started, and finished
    """

    number: int
    place: str
    run: Any
    hand_over: Any = 0
    priority: int = 0
    inline: bool = False
    share: Any = None  # SharedWork
    weight: float = 1.0
    pushed: Any = -1
    ready: Any = -1
    began: Any = -1
    ended: Any = -1
    worker: str = ""
    missing: int = 0
    asked: int = 0
    taken: int = 0
    done: int = 0
    children: list[tuple[Any, SimulatedTask]] = field(default_factory=list)
    holds_up: list[SimulatedTask] = field(default_factory=list)
    waiting: list[ProgramThread] = field(default_factory=list)

    def follows(self, before: Iterable[SimulatedTask]) -> None:
        """Add dependencies."""
        for task in before:
            task.holds_up.append(self)
            self.missing += 1


class ProgramStep(NamedTuple):
    """A step of a thread, `gap` after the previous one.

    number    issue the operation of this number; 0: wait
    jobs      the awaited jobs; None: all
    after     time to continue after they are done
    wait      the wait in the recording
    starts    names of threads that begin after this step
    """

    gap: Any
    number: int = 0
    jobs: tuple[int, ...] | None = None
    after: Any = 0
    wait: Any = None
    starts: tuple[str, ...] = ()


@dataclass(slots=True, eq=False)
class ProgramThread:
    """A thread of the program at its step number `at`. While it waits: the number of `missing`
    operations, the start of the wait, and the number of operations pushed before."""

    name: str
    steps: Sequence[ProgramStep]
    at: int = 0
    missing: int = 0
    since: Any = -1
    pushed: int = 0


class Simulation:
    """One run of a program, on the clock of its `schedule`.

    issued   the jobs that were pushed, in that order
    waits    (wait, thread, operations pushed before, begin, end); a back-pressure pause has wait
             None
    left     the time at which a thread reached a waiting step that is not a wait of the recording,
             which is the last step of the program
    ended    the time of the last event
    """

    def __init__(
        self, jobs: Sequence[SimulatedTask], steps: Mapping[str, Sequence[ProgramStep]],
        workers: Mapping[str, Sequence[str]], bound: float | None = None,
    ):  # fmt: skip
        """`jobs` in the order of their numbers, from 1. `workers`: place -> their names. `bound`:
        the largest pending weight."""
        self.jobs = jobs
        self.threads = {name: ProgramThread(name, own) for name, own in steps.items()}
        self.schedule = Schedule(lambda job: workers[job.place])
        self.bound = bound
        self.issued: list[SimulatedTask] = []
        self.waits: list[tuple[Any, str, int, Any, Any]] = []
        self.ended: Any = 0
        self.left: Any = 0
        self.pending = 0
        self.weight = 0.0
        self.idle_waits: list[ProgramThread] = []
        self.room_waits: list[ProgramThread] = []
        self.shared: list[SimulatedTask] = []  # running jobs with untaken pieces
        self.events: list[tuple[Any, int, Callable[[Any], Any], Any]] = []
        self.order = count()
        later = {name for own in steps.values() for step in own for name in step.starts}
        for thread in self.threads.values():
            if thread.name not in later:
                self._plan(thread, 0)

    def run(self) -> Any:
        """Play to the end by the default order; the time of the last event."""
        schedule, events = self.schedule, self.events
        while True:
            self.settle()
            job, begins = schedule.next() or (None, False)
            if job is not None and begins:
                self.begin(job)
            elif self.shared and self._find_helpers():
                continue
            elif events and (job is None or events[0][0] <= schedule.ends[job]):
                schedule.now = events[0][0]
            elif job is not None:
                self.end(job)
            elif self.room_waits:  # only later steps could end the pause: let the push proceed
                self._step(self.room_waits.pop(0), admitted=True)
            else:
                return self.ended

    def settle(self) -> None:
        """The program goes on until its next step takes time or waits."""
        events = self.events
        while events and events[0][0] <= self.schedule.now:
            _, _, happens, to = heapq.heappop(events)
            happens(to)

    def _at(self, when: Any, happens: Callable[[Any], Any], to: Any) -> None:
        heapq.heappush(self.events, (when, next(self.order), happens, to))

    # -- the program -------------------------------------------------------------------------------

    def _plan(self, thread: ProgramThread, when: Any) -> None:
        """Schedule the next step, counted from `when`."""
        if thread.at < len(thread.steps):
            self._at(when + thread.steps[thread.at].gap, self._step, thread)

    def _step(self, thread: ProgramThread, admitted: bool = False) -> None:
        step = thread.steps[thread.at]
        job = self.jobs[step.number - 1] if step.number else None
        if job is not None and (admitted or self._admits(job)):
            if thread.since >= 0:
                self._end_wait(thread, None, self.schedule.now)
            self._go_on(thread, self._issue(job))
            return
        if thread.since < 0:
            thread.since, thread.pushed = self.schedule.now, len(self.issued)
        if job is not None:
            self.room_waits.append(thread)
            return
        if step.wait is None:
            self.left = self.schedule.now
        for number in step.jobs or ():
            awaited = self.jobs[number - 1]
            if awaited.ended < 0 or awaited.ended > self.schedule.now:
                thread.missing += 1
                awaited.waiting.append(thread)
        if step.jobs is None and self.pending:
            self.idle_waits.append(thread)
        elif not thread.missing:
            self._resume(thread)

    def _resume(self, thread: ProgramThread) -> None:
        """What the thread waits for is done."""
        step = thread.steps[thread.at]
        end = self.schedule.now + step.after
        if step.wait is not None:
            self._end_wait(thread, step.wait, end)
        self._go_on(thread, end)

    def _end_wait(self, thread: ProgramThread, wait: Any, end: Any) -> None:
        self.waits.append((wait, thread.name, thread.pushed, thread.since, end))

    def _go_on(self, thread: ProgramThread, when: Any) -> None:
        """The thread has done its step."""
        thread.since = -1
        self.ended = max(self.ended, when)
        starts = thread.steps[thread.at].starts
        thread.at += 1
        self._plan(thread, when)
        for name in starts:
            self._plan(self.threads[name], when)

    def _admits(self, job: SimulatedTask) -> bool:
        return self.bound is None or not self.pending or self.weight + job.weight <= self.bound

    # -- operations --------------------------------------------------------------------------------

    def _issue(self, job: SimulatedTask) -> Any:
        """Push `job`; returns the time at which the thread is done."""
        job.pushed = self.schedule.now
        self.issued.append(job)
        self.pending += 1
        self.weight += job.weight
        if job.missing:
            return self.schedule.now
        job.ready = self.schedule.now
        if job.inline:
            job.began = self.schedule.now + job.hand_over
            self._at(job.began + job.run, self._finish, job)
            return job.began + job.run
        self.schedule.make_ready(job)
        return self.schedule.now

    def begin(self, job: SimulatedTask) -> None:
        """An idle worker takes a ready job."""
        self.schedule.begin(job)
        job.began = self.schedule.now + job.hand_over
        for after, child in job.children:
            self._at(job.began + after, self._issue, child)
        if job.share is None:
            self.schedule.ends[job] = job.began + job.run
        else:
            self._at(job.began + round(job.share.alone), self._cut, job)

    def end(self, job: SimulatedTask) -> None:
        """A running job ends: at its time, or now if the clock is later."""
        self.schedule.go_to_end(job)
        self._finish(job)

    def _finish(self, job: SimulatedTask) -> None:
        job.ended = self.schedule.now
        self.ended = max(self.ended, self.schedule.now)
        self.pending -= 1
        self.weight -= job.weight
        if job.worker:
            self.schedule.end(job)
        for successor in job.holds_up:
            successor.missing -= 1
            if not successor.missing and successor.pushed >= 0:
                successor.ready = self.schedule.now
                self.schedule.make_ready(successor)
        for thread in job.waiting:
            thread.missing -= 1
            if not thread.missing:
                self._resume(thread)
        if not self.pending and self.idle_waits:
            waiting, self.idle_waits = self.idle_waits, []
            for thread in waiting:
                self._resume(thread)
        if self.room_waits:
            waiting, self.room_waits = self.room_waits, []
            for thread in waiting:
                self._step(thread)

    # -- split operations --------------------------------------------------------------------------

    def _cut(self, job: SimulatedTask) -> None:
        """Offer the pieces of a job; without helpers it may run as a whole."""
        share = job.share
        if not share.late and not self.schedule.place_of(job).is_idle:
            self._at(self.schedule.now + round(share.piece * share.pieces), self._finish, job)
            return
        self.shared.append(job)
        self._take((job, job.worker))

    def _find_helpers(self) -> bool:
        """Ask idle workers to help, at most the number of pieces minus one; True if any come."""
        asked = False
        for job in self.shared:
            place = self.schedule.place_of(job)
            while place.is_idle and job.asked < job.share.pieces - 1:
                job.asked += 1
                asked = True
                helper = place.idle_worker()
                place.busy.add(helper)
                self._at(self.schedule.now + job.hand_over, self._take, (job, helper))
        return asked

    def _take(self, who: tuple[SimulatedTask, str]) -> None:
        """The owner or a helper takes the next piece. Without a piece, a helper leaves."""
        job, worker = who
        if job.taken < job.share.pieces:
            job.taken += 1
            if job.taken == job.share.pieces:
                self.shared.remove(job)
            self._at(self.schedule.now + round(job.share.piece), self._end_piece, who)
        elif worker != job.worker:
            self.schedule.place_of(job).busy.discard(worker)

    def _end_piece(self, who: tuple[SimulatedTask, str]) -> None:
        """A piece is finished; with the last piece the operation is."""
        job, worker = who
        job.done += 1
        if job.done == job.share.pieces:
            self._finish(job)
        if worker != job.worker or job.done < job.share.pieces:
            self._take(who)

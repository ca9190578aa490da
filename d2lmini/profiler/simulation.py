"""The engine's rules on a virtual clock: predict the time of every event.

Front ends issue their steps in order. An operation without missing dependencies is ready; each lane
gives its ready operations to free workers, by priority, then in push order. Idle workers take
pieces of split operations. A wait ends when its value is computed.

>>> from d2lmini.profiler.simulation import SimulatedTask, Simulation, ProgramStep
>>> jobs = [SimulatedTask(i, "cpu", ns) for i, ns in enumerate((3000, 2000, 1000), 1)]
>>> jobs[2].follows([jobs[0], jobs[1]])
>>> issue = [ProgramStep(100, number) for number in (1, 2, 3)]
>>> Simulation(jobs, {"main": [*issue, ProgramStep(0)]}, {"cpu": 2}).run()
4100
>>> [(job.began_ns, job.ended_ns) for job in jobs]
[(100, 3100), (200, 2200), (3100, 4100)]
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from d2lmini.profiler.rates import SharedWork

#: As the taker of a piece: the worker that owns the operation.
OWNER = -1


class SimulatedTask:
    """An operation in the simulation; times are nanoseconds from the start, -1: not yet.

    inline    runs on the front end that issues it, if it is ready
    share     how it is split among workers; None: one worker runs it
    weight    its contribution to pending work, to which the bound applies
    children  (nanoseconds after its start, job): jobs that it pushes
    holds_up  the jobs that depend on it
    missing   number of its unfinished dependencies
    """

    __slots__ = (
        "number", "place", "run_ns", "hand_over_ns", "priority", "inline", "share", "weight",
        "children", "holds_up", "missing", "pushed_ns", "ready_ns", "began_ns", "ended_ns",
        "worker", "waiting", "asked", "taken", "done",
    )  # fmt: skip

    def __init__(self, number: int, place: str, run_ns: int, hand_over_ns: int = 0):
        self.number = number
        self.place = place
        self.run_ns = run_ns
        self.hand_over_ns = hand_over_ns
        self.priority = 0
        self.inline = False
        self.share: SharedWork | None = None
        self.weight = 1.0
        self.children: list[tuple[int, SimulatedTask]] = []
        self.holds_up: list[SimulatedTask] = []
        self.missing = 0
        self.pushed_ns = self.ready_ns = self.began_ns = self.ended_ns = -1
        self.worker = -1
        self.waiting: list[ProgramThread] = []
        self.asked = 0  # of a split job: number of workers asked to help,
        self.taken = self.done = 0  # number of pieces started, and finished

    def follows(self, before: Iterable[SimulatedTask]) -> None:
        """Add dependencies."""
        for task in before:
            task.holds_up.append(self)
            self.missing += 1


class ProgramStep(NamedTuple):
    """A step of a front end, `gap_ns` after the previous one.

    number    issue the operation of this number; 0: wait
    jobs      the awaited jobs; None: all
    after_ns  time to continue after they are done
    wait      the index of the wait in the recording
    starts    names of front ends that begin after this step
    """

    gap_ns: int
    number: int = 0
    jobs: tuple[int, ...] | None = None
    after_ns: int = 0
    wait: Any = None
    starts: tuple[str, ...] = ()


class ProgramThread:
    """A thread of the program and its current step."""

    def __init__(self, name: str, steps: Sequence[ProgramStep]):
        self.name = name
        self.steps = steps
        self.at = 0
        self.missing = 0  # number of awaited operations
        self.since_ns = -1  # start of the current wait


class SimulatedPool:
    """Workers of one kind: free workers, ready jobs, and running jobs with untaken pieces."""

    def __init__(self, size: int):
        self.free = list(range(size - 1, -1, -1))
        self.ready: list[tuple[int, int, SimulatedTask]] = []
        self.shared: list[SimulatedTask] = []


class Simulation:
    """Runs once. `waits` lists (wait, front end, operations pushed so far, begin, end) in
    nanoseconds; a back-pressure pause has wait None. `left`: the time at which a front end reached
    a waiting step that is not a wait of the recording, which is the last step of the program."""

    def __init__(
        self,
        jobs: Sequence[SimulatedTask],
        steps: Mapping[str, Sequence[ProgramStep]],
        workers: Mapping[str, int],
        bound: float | None = None,
        later: Iterable[str] = (),
    ):
        """`jobs` in the order of their numbers, from 1. `bound`: the largest pending weight. Front
        ends named `later` begin when a step of another starts them."""
        self.jobs = jobs
        self.front_ends = {name: ProgramThread(name, own) for name, own in steps.items()}
        self.lanes = {place: SimulatedPool(size) for place, size in workers.items()}
        self.bound = bound
        self.waits: list[tuple[Any, str, int, int, int]] = []
        self.ended = self.left = 0
        self.now = self.pushed = self.pending = 0
        self.weight = 0.0
        self.idle_waits: list[ProgramThread] = []
        self.room_waits: list[ProgramThread] = []
        self.events: list[tuple[int, int, Callable[[Any], Any], Any]] = []
        self.order = 0
        later = set(later)
        for front_end in self.front_ends.values():
            if front_end.name not in later:
                self._go_on(front_end, 0)

    def run(self) -> int:
        """The time of the last event, in nanoseconds."""
        events = self.events
        while events or self.room_waits:
            if not events:  # only later steps could end the pause: let the push proceed
                self._step(self.room_waits.pop(0), admitted=True)
                continue
            self.now, _, happens, to = heapq.heappop(events)
            happens(to)
        return self.ended

    def _at(self, when: int, happens: Callable[[Any], Any], to: Any) -> None:
        self.order += 1
        heapq.heappush(self.events, (when, self.order, happens, to))

    # -- front ends --------------------------------------------------------------------------------

    def _go_on(self, front_end: ProgramThread, when: int) -> None:
        """Schedule the next step, counted from `when`."""
        if front_end.at < len(front_end.steps):
            self._at(when + front_end.steps[front_end.at].gap_ns, self._step, front_end)

    def _step(self, front_end: ProgramThread, admitted: bool = False) -> None:
        step = front_end.steps[front_end.at]
        if step.number:
            job = self.jobs[step.number - 1]
            if not admitted and not self._admits(job):
                if front_end.since_ns < 0:
                    front_end.since_ns = self.now
                self.room_waits.append(front_end)
                return
            if front_end.since_ns >= 0:
                self._finish_wait(front_end, None, self.now)
                front_end.since_ns = -1
            self._finish_step(front_end, step, self._issue(job))
            return
        front_end.since_ns = self.now
        if step.wait is None:
            self.left = self.now
        if step.jobs is None:
            if self.pending:
                self.idle_waits.append(front_end)
                return
        else:
            jobs = [self.jobs[number - 1] for number in step.jobs]
            for job in jobs:
                if job.ended_ns < 0 or job.ended_ns > self.now:
                    front_end.missing += 1
                    job.waiting.append(front_end)
            if front_end.missing:
                return
        self._end_wait(front_end)

    def _end_wait(self, front_end: ProgramThread) -> None:
        step = front_end.steps[front_end.at]
        end = self.now + step.after_ns
        if step.wait is not None:
            self._finish_wait(front_end, step.wait, end)
        front_end.since_ns = -1
        self._finish_step(front_end, step, end)

    def _finish_wait(self, front_end: ProgramThread, wait: Any, end: int) -> None:
        self.waits.append((wait, front_end.name, self.pushed, front_end.since_ns, end))

    def _finish_step(self, front_end: ProgramThread, step: ProgramStep, when: int) -> None:
        self.ended = max(self.ended, when)
        front_end.at += 1
        self._go_on(front_end, when)
        for name in step.starts:
            self._go_on(self.front_ends[name], when)

    def _admits(self, job: SimulatedTask) -> bool:
        return self.bound is None or not self.pending or self.weight + job.weight <= self.bound

    # -- operations --------------------------------------------------------------------------------

    def _issue(self, job: SimulatedTask) -> int:
        """Push `job`; returns the time at which the front end is done."""
        job.pushed_ns = self.now
        self.pushed += 1
        self.pending += 1
        self.weight += job.weight
        if job.missing:
            return self.now
        job.ready_ns = self.now
        if job.inline:
            job.began_ns = self.now + job.hand_over_ns
            ended = job.began_ns + job.run_ns
            self._at(ended, self._end, job)
            return ended
        self._dispatch({self._queue(job)})
        return self.now

    def _queue(self, job: SimulatedTask) -> str:
        heapq.heappush(self.lanes[job.place].ready, (-job.priority, job.number, job))
        return job.place

    def _dispatch(self, places: Iterable[str]) -> None:
        """Give ready jobs to free workers; let the remaining workers help."""
        for place in places:
            lane = self.lanes[place]
            while lane.ready and lane.free:
                self._start(lane, heapq.heappop(lane.ready)[2])
            for job in lane.shared:
                self._ask(lane, job)

    def _start(self, lane: SimulatedPool, job: SimulatedTask) -> None:
        job.worker = lane.free.pop()
        job.began_ns = self.now + job.hand_over_ns
        for after, child in job.children:
            self._at(job.began_ns + after, self._issue, child)
        if job.share is None:
            self._at(job.began_ns + job.run_ns, self._end, job)
        else:
            self._at(job.began_ns + round(job.share.alone_ns), self._cut, job)

    # -- split operations --------------------------------------------------------------------------

    def _cut(self, job: SimulatedTask) -> None:
        """Offer the pieces of a job; without helpers it may run as a whole."""
        lane = self.lanes[job.place]
        assert job.share is not None
        if not job.share.late and not lane.free:
            self._at(self.now + round(job.share.piece_ns * job.share.pieces), self._end, job)
            return
        lane.shared.append(job)
        self._take((job, OWNER))
        if job in lane.shared:
            self._ask(lane, job)

    def _ask(self, lane: SimulatedPool, job: SimulatedTask) -> None:
        """Ask idle workers to help, at most the number of pieces minus one."""
        assert job.share is not None
        while lane.free and job.asked < job.share.pieces - 1:
            job.asked += 1
            self._at(self.now + job.hand_over_ns, self._take, (job, lane.free.pop()))

    def _take(self, who: tuple[SimulatedTask, int]) -> None:
        """The owner or a helper takes the next piece. Without a piece, a helper leaves."""
        job, helper = who
        lane = self.lanes[job.place]
        assert job.share is not None
        if job.taken < job.share.pieces:
            job.taken += 1
            if job.taken == job.share.pieces:
                lane.shared.remove(job)
            self._at(self.now + round(job.share.piece_ns), self._over, who)
        elif helper != OWNER:
            lane.free.append(helper)
            self._dispatch((job.place,))

    def _over(self, who: tuple[SimulatedTask, int]) -> None:
        """A piece is finished; with the last piece the operation is."""
        job, helper = who
        assert job.share is not None
        job.done += 1
        if job.done == job.share.pieces:
            self._end(job)
        if helper != OWNER or job.done < job.share.pieces:
            self._take(who)

    # -- completion --------------------------------------------------------------------------------

    def _end(self, job: SimulatedTask) -> None:
        job.ended_ns = self.now
        self.ended = max(self.ended, self.now)
        self.pending -= 1
        self.weight -= job.weight
        places = set()
        for operation in job.holds_up:
            operation.missing -= 1
            if not operation.missing and operation.pushed_ns >= 0:
                operation.ready_ns = self.now
                places.add(self._queue(operation))
        if job.worker >= 0:
            self.lanes[job.place].free.append(job.worker)
            places.add(job.place)
        self._dispatch(sorted(places))
        for front_end in job.waiting:
            front_end.missing -= 1
            if not front_end.missing:
                self._end_wait(front_end)
        if not self.pending and self.idle_waits:
            waiting, self.idle_waits = self.idle_waits, []
            for front_end in waiting:
                self._end_wait(front_end)
        if self.room_waits:
            waiting, self.room_waits = self.room_waits, []
            for front_end in waiting:
                self._step(front_end)

"""The stepped engine: the same rules on one thread and a virtual clock, one step at a time.

>>> from d2lmini import engine, nd
>>> with engine.stepped(times=20) as s:
...     a = nd.ones((1, 2))
...     b = a * 2
...     c = a * 3
...     a += 1
...     for _ in range(4):               # nothing has run before this line
...         event = s.step()
...     print(event)
...     print(s)
20 us: cpu 2 begins 3 _mul_scalar
20 us: 1 done, 2 running, 1 waiting
1 _ones         done     cpu 1  0 to 20 us
2 _mul_scalar   running  cpu 1  since 20 us
3 _mul_scalar   running  cpu 2  since 20 us
4 _plus_scalar  waiting

A push queues. A step begins or ends one operation: the operation computes when it begins, on the
thread that steps, and releases its Vars when it ends, after its predicted duration (`times=`) on
the virtual clock. A wait of the program steps as far as it needs, and so does a line that asks
again and again whether work is pending; the end of the scope steps to the end. `core` decides which
operations are ready, as on the other engines; `Schedule` has the clock, and decides which of them
can begin on an idle worker, or end.

An operation runs once, so there is no way back: to see another order, run the program anew, with
another `seed=`.

Instruments hear the same events as on every engine. `profile()` within the scope takes its times
from the virtual clock, so a timeline, an account or a replay shows virtual time.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import NamedTuple
from weakref import WeakKeyDictionary

from d2lmini.base import MXNetError, callsite
from d2lmini.engine import signals, worker_pools
from d2lmini.engine.core import Task, Var
from d2lmini.engine.engine import Engine, block
from d2lmini.engine.failure import Failure
from d2lmini.engine.operation import Operation
from d2lmini.engine.scheduler import find_lane_time, thread_state
from d2lmini.engine.simulation import Schedule, Step
from d2lmini.engine.worker_pools import WIRE

#: Duration in microseconds of an operation whose run time is not predicted.
UNKNOWN_US = 100.0
#: Bytes that a link moves in a microsecond: about PCI Express 3.0 x16.
LINK_BYTES_PER_US = 12e3

#: Run times in microseconds: one for all, by name, or a function of the task; None: as predicted.
Times = float | Mapping[str, float] | Callable[[Task], float] | None


class LogEntry(NamedTuple):
    """One line of the log.

    kind      "push", "begin" or "end"
    number    of the operation, in program order
    name      of the operation
    worker    that runs the operation; "" for a push
    time_us   on the virtual clock
    """

    kind: str
    number: int
    name: str
    worker: str
    time_us: float

    def __str__(self) -> str:
        who = "the program pushes" if self.kind == "push" else f"{self.worker} {self.kind}s"
        return f"{self.time_us:g} us: {who} {self.number} {self.name}"


class SteppedOperation(Operation):
    """An operation of the stepped engine; its times are those of the virtual clock. Its status is
    waiting, ready, running, done, failed or skipped."""

    __slots__ = ("status",)

    def __init__(
        self, task: Task, reads: tuple[int, ...], writes: tuple[int, ...], by: int, now_ns: int
    ):
        for name in ("name", "ctx", "site", "priority", "predicted_us"):
            setattr(self, name, getattr(task, name))
        self.number, self.by = task.seq, by
        # Copies within the CPU run on its compute workers.
        self.lane = "compute" if task.ctx.is_cpu and task.lane != WIRE else task.lane
        self.worker = ""
        self.thread = threading.current_thread().name
        self.reads, self.writes = reads, writes
        self.pushed_ns = now_ns
        self.ready_ns = self.began_ns = self.ended_ns = 0
        self.failure = None
        self.footprint = task.footprint()
        self.status = "waiting"


class SteppedEngine(Engine):
    """Runs one operation at a time, under the caller's control.

    seed      choose a random legal order, in which operations also begin and end before a push, as
              if workers did not wait for the program; the same seed gives the same trace
    workers   of the CPU, on the virtual clock; devices have the workers of their lanes
    times     microseconds of all operations, {name: microseconds}, or a function of the task;
              default: the times of a simulated device; else as predicted (`predicted_us`),
              100 if not predicted

    log         what happened, in order
    operations  the pushed operations, by number
    numbers     of the Vars, in the order of their first use
    steps       number of begins and ends

    ValueError for less than one worker, TypeError for other `times`.
    """

    kind = "stepped"
    serial = True
    virtual = True

    def __init__(
        self,
        seed: int | None = None,
        workers: int = 2,
        times: Times = None,
        limit: int | None = None,
    ):
        if not isinstance(workers, int) or workers < 1:
            raise ValueError(f"engine.stepped: workers is 1 or more, got {workers!r}")
        self._size = workers
        self._seed = seed
        self._duration_us = duration_of(times)
        super().__init__(0.0, limit)

    def _begin_anew(self) -> None:
        super()._begin_anew()
        self.log: list[LogEntry] = []
        self.operations: dict[int, SteppedOperation] = {}
        self.numbers: WeakKeyDictionary[Var, int] = WeakKeyDictionary()
        self.schedule = Schedule(lambda operation: worker_pools.names_of(operation, self._size))
        self.steps = 0
        self._made_ns = time.perf_counter_ns()
        self._n_vars = 0
        self._serial = threading.RLock()
        self._asked_at = -1  # the steps when a line last asked again whether work is pending
        self._tasks: dict[int, Task] = {}  # of the operations that have not ended
        self._outcomes: dict[Task, tuple[Failure | None, bool]] = {}

    @property
    def workers(self) -> int:
        return self._size

    @property
    def now_us(self) -> float:
        """The virtual clock."""
        return float(self.schedule.now)

    def clock(self) -> int:  # type: ignore[override]
        """The virtual clock, in nanoseconds; it starts at the real clock when it is created."""
        return self._made_ns + round(1000 * self.now_us)

    # -- pushing ----------------------------------------------------------------------------------

    def push(self, task: Task) -> None:
        if self._is_for_later(task):
            return
        task.site = task.site or callsite.find()
        task.priority += thread_state.priority
        task.prepare()
        user = thread_state.task is None
        if user and self._seed is not None:
            for _ in range((0, 0, 1, 2, 3)[self._draw(f"push {self._sequence}", 5)]):
                self._step()
        while not self._enter(task, user):
            self.pause(task)

    def _claim(self, task: Task) -> None:
        super()._claim(task)
        self._operation(task)

    def _operation(self, task: Task) -> SteppedOperation:
        """The record of `task`, made when the task is pushed."""
        operation = self.operations.get(task.seq)
        if operation is None:
            by = getattr(thread_state.task, "seq", 0)
            reads, writes = (
                tuple(map(self._number, write)) for write in (task.shared, task.writes)
            )
            operation = SteppedOperation(task, reads, writes, by, self.clock())
            self._tasks[task.seq] = task
            self.operations[task.seq] = operation
            self._log("push", operation)
        return operation

    def _number(self, var: Var) -> int:
        if var not in self.numbers:
            self._n_vars += 1
            self.numbers[var] = self._n_vars
        return self.numbers[var]

    def _hand_out(self, task: Task) -> None:
        operation = self._operation(task)
        operation.ready_ns = self.clock()
        operation.status = "ready"
        self.schedule.make_ready(operation)

    def reset_lanes(self) -> None:
        """The lanes have changed; the engine is idle."""
        self.schedule.places.clear()

    def _dispatched(self) -> set[Task]:
        queues = [place.ready for place in self.schedule.places.values()]
        return {self._tasks[number] for queue in queues for _, number, _ in queue}

    # -- stepping ----------------------------------------------------------------------------------

    def step(self) -> LogEntry | None:
        """Begin or end one operation; returns the event, or None if nothing can happen. MXNetError
        inside a task: only the program may step."""
        if thread_state.task is not None:
            raise MXNetError(
                f"step inside the task {thread_state.task.name!r}: step where the program pushes"
            )
        return self._step()

    def run(self) -> None:
        """Step until nothing more can happen."""
        while self.step() is not None:
            continue

    def choose(self) -> Step | None:
        """The next step: the order of a threaded engine that keeps to the predicted times, or one
        of all possible steps, drawn from the seed and the number of the step. (A late end means
        that the operation took longer than predicted.) None: nothing can happen."""
        if self._seed is None:
            return self.schedule.next()
        able = list(self.schedule.able())
        return able[self._draw(f"step {self.steps}", len(able))] if able else None

    def _draw(self, what: str, n: int) -> int:
        return random.Random(f"{self._seed}, {what}").randrange(n)

    def _step(self) -> LogEntry | None:
        with self._serial:
            step = self.choose()
            if step is None:
                return None
            operation, begins = step
            task = self._tasks[operation.number]
            held = signals.hold() if task.defers else None
            try:
                return (self._begin if begins else self._end)(operation, task)
            except BaseException as problem:
                self._give_up(operation, task, problem)
                raise
            finally:
                signals.release(held)

    def _begin(self, operation: SteppedOperation, task: Task) -> LogEntry:
        # An invalid duration is an error before anything has happened.
        duration_us = self._duration_us(task)
        with self.lock:
            self.running.add(task)
            worker = self.schedule.begin(operation)
        operation.status = "running"
        operation.began_ns = self.clock()
        event = self._log("begin", operation)
        self._outcomes[task] = _, ran = self._execute(task, worker)
        self.schedule.ends[operation] = self.now_us + (duration_us if ran else 0.0)
        self.steps += 1
        return event

    def _end(self, operation: SteppedOperation, task: Task) -> LogEntry:
        self.schedule.go_to_end(operation)
        failure, ran = self._outcomes[task]
        with self.lock:
            self._settle(task, failure, ran)
            self.schedule.end(operation)
            del self._outcomes[task], self._tasks[task.seq]
            operation.status = "done" if failure is None else "failed" if ran else "skipped"
            operation.ended_ns = self.clock()
            event = self._log("end", operation)
            self._finish(task)
        self.steps += 1
        return event

    def _give_up(self, operation: SteppedOperation, task: Task, problem: BaseException) -> None:
        """Clean up after Ctrl-C in a step, or after `times` gave no valid duration."""
        with self.lock:
            if task in self._dispatched():
                if task not in self.running:
                    return  # nothing has happened
                self.schedule.withdraw(operation)
            if task in self.pending and task in self._outcomes:  # it has run, and must still end
                self.schedule.ends.setdefault(operation, self.now_us)
                return
            self.schedule.end(operation)
            self._tasks.pop(task.seq, None)
            if self._outcomes.pop(task, None) is None:
                operation.status = "failed"
            self._abandon(task, problem)

    def _log(self, kind: str, operation: SteppedOperation) -> LogEntry:
        event = LogEntry(kind, operation.number, operation.name, operation.worker, self.now_us)
        self.log.append(event)
        return event

    # -- waiting -----------------------------------------------------------------------------------

    def _advance(self) -> None:
        """A line that asks for the third time, with no step between, would ask for ever: step."""
        if self.steps == self._asked_at and thread_state.task is None:
            self._step()
        self._asked_at = self.steps

    def _block(self, lock: threading.Lock, deadline: float | None = None) -> bool:
        """Step until `lock` is open, or until only another thread can open it."""
        while lock.locked() and self._step() is not None:
            continue
        return block(lock, deadline)

    def _run_ready(self) -> None:
        """A push that waits for room steps until a task is complete."""
        while self.room_locks and self._step() is not None:
            continue

    # -- what it shows -----------------------------------------------------------------------------

    def __str__(self) -> str:
        """The clock, and a line for each operation."""
        rows = [operation for _, operation in sorted(self.operations.items())]
        n = Counter(row.status for row in rows)
        order = "done", "failed", "skipped", "running", "ready", "waiting"
        summary = ", ".join(f"{n[status]} {status}" for status in order if status in n)
        head = f"{self.now_us:g} us: {summary or 'nothing was pushed'}"
        table = [(str(row), row.status, row.worker, self._when(row)) for row in rows]
        widths = [max((len(row[i]) for row in table), default=0) for i in range(3)]
        lines = ["  ".join([*(c.ljust(w) for c, w in zip(r, widths)), r[3]]) for r in table]
        return "\n".join([head, *(line.rstrip() for line in lines)])

    def _when(self, operation: SteppedOperation) -> str:
        if not operation.began_ns:
            return ""
        began_us = (operation.began_ns - self._made_ns) / 1000
        if not operation.ended_ns:
            return f"since {began_us:g} us"
        return f"{began_us:g} to {(operation.ended_ns - self._made_ns) / 1000:g} us"


def predict_us(task: Task) -> float:
    """The time on a simulated lane; else the engine's prediction; for a copy, the time a link
    takes; else `UNKNOWN_US`."""
    lane_time = find_lane_time(task)
    us = None if lane_time is None else lane_time(task)
    if us is not None:
        return us
    if task.predicted_us < 1e9:
        return task.predicted_us
    footprint = task.footprint() if task.lane != "compute" else None
    return UNKNOWN_US if footprint is None else 10.0 + footprint().nbytes / LINK_BYTES_PER_US


def duration_of(times: Times) -> Callable[[Task], float]:
    """A function that gives a task's duration in microseconds of the virtual clock."""
    known = callable(times) or isinstance(times, (int, float, Mapping, type(None)))
    if not known or isinstance(times, bool):
        raise TypeError(f"times is microseconds, a dict by name, or a function; got {times!r}")

    def duration_us(task: Task) -> float:
        if callable(times):
            us: float | None = times(task)
        else:
            us = times.get(task.name) if isinstance(times, Mapping) else times
            us = predict_us(task) if us is None else us
        if not (isinstance(us, (int, float)) and 0 <= us < float("inf")):
            raise ValueError(f"times: {task.name} takes 0 or more microseconds, got {us!r}")
        return float(us)

    return duration_us

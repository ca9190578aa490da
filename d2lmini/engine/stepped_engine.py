"""The stepped engine: the same rules on one thread and a virtual clock, one step at a time.

>>> from d2lmini import engine, nd
>>> with engine.stepped(times=20) as s:
...     a = nd.ones((1, 2))
...     b = a * 2
...     c = a * 3
...     a += 1
...     s.name(a=a, b=b, c=c)
...     print(s.run_to(3))               # nothing has run before this line
...     print(s.who_waits_for_whom())
...     print(s)
20 us: cpu 2 begins 3 _mul_scalar
4 _plus_scalar waits to write a, which 2 _mul_scalar reads
4 _plus_scalar waits to write a, which 3 _mul_scalar reads
20 us: 1 done, 2 running, 1 waiting
1 _ones         done     cpu 1  0 to 20 us
2 _mul_scalar   running  cpu 1  since 20 us
3 _mul_scalar   running  cpu 2  since 20 us
4 _plus_scalar  waiting

A push queues. A step begins or ends one operation: the operation computes when it begins, on the
thread that steps, and releases its Vars when it ends, after its predicted duration (`times=`) on
the virtual clock. A wait of the program steps as far as it needs, and so does a line that asks
again and again whether work is pending; the end of the scope steps to the end. `core` decides which
operations are ready, as on the other engines; `schedule` which of them can begin on an idle worker,
or end, and its policy picks one of these.

An operation runs once, so there is no way back: to see another order, run the program anew, with
another `seed=` or with `order=`.

Instruments hear the same events as on every engine. `profile()` within the scope takes its times
from the virtual clock, so a timeline, an account or a replay shows virtual time.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from math import inf

from d2lmini.base import MXNetError, callsite
from d2lmini.engine import signals, worker_pools
from d2lmini.engine.core import Task
from d2lmini.engine.engine import block
from d2lmini.engine.failure import Failure
from d2lmini.engine.rendezvous import StallDetector
from d2lmini.engine.schedule import InOrder, ListOrder, Schedule, Seeded
from d2lmini.engine.scheduler import thread_state
from d2lmini.engine.stepped_records import LogEntry, SteppedOperation, Times, duration_of
from d2lmini.engine.stepped_view import View


class SteppedEngine(View):
    """Runs one operation at a time, under the caller's control.

    seed      choose a random legal order; the same seed gives the same trace
    mingled   with a seed: also take random steps before each push, as if workers did not wait for
              the program
    workers   of the CPU, on the virtual clock; devices have the workers of their lanes
    times     microseconds of all operations, {name: microseconds}, or a function of the task;
              default: the times of a simulated device; else as predicted (`predicted_us`),
              100 if not predicted
    order     numbers of operations: run one at a time, always the first in the list that can run

    ValueError for less than one worker, seed with order, mingled without seed.
    """

    kind = "stepped"
    serial = True
    virtual = True

    def __init__(
        self,
        seed: int | None = None,
        workers: int = 2,
        times: Times = None,
        order: Iterable[int] | None = None,
        mingled: bool = False,
        limit: int | None = None,
    ):
        if not isinstance(workers, int) or workers < 1:
            raise ValueError(f"engine.stepped: workers is 1 or more, got {workers!r}")
        self._size = workers
        if (mingled and seed is None) or (order is not None and seed is not None):
            raise ValueError("engine.stepped: give seed= or order=; mingled= needs a seed=")
        self._duration_us = duration_of(times)
        self._policy = Seeded(seed, mingled) if seed is not None else InOrder()
        if order is not None:
            self._policy = ListOrder(order)
        super().__init__(0.0, limit)

    def _begin_anew(self) -> None:
        super()._begin_anew()
        self._serial = threading.RLock()
        self._asked_at = -1  # the steps when a line last asked again whether work is pending
        self.schedule = Schedule(lambda operation: worker_pools.names_of(operation, self._size))
        self._tasks: dict[int, Task] = {}  # of the operations that have not ended
        self._outcomes: dict[Task, tuple[Failure | None, bool]] = {}

    @property
    def workers(self) -> int:
        return self._size

    # -- pushing ----------------------------------------------------------------------------------

    def push(self, task: Task) -> None:
        if self._is_for_later(task):
            return
        task.site = task.site or callsite.find()
        task.priority += thread_state.priority
        task.prepare()
        user = thread_state.task is None
        for _ in range(self._policy.steps_before_push(self) if user else 0):
            self._step()
        while not self._enter(task, user):
            self.pause(task)

    def _claim(self, task: Task, hand_out: bool = True) -> bool:
        is_ready = super()._claim(task, hand_out)
        self._operation(task)
        return is_ready

    def _operation(self, task: Task) -> SteppedOperation:
        """The record of `task`, made when the task is pushed (for a rendezvous: complete)."""
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

    def _hand_out(self, task: Task) -> None:
        operation = self._operation(task)
        operation.ready_ns = self.clock()
        operation.status = "ready"
        self.schedule.make_ready(operation)

    def reset_lanes(self) -> None:
        """The lanes have changed; the engine is idle."""
        self.schedule.places.clear()

    def _dispatched(self) -> set[Task]:
        return {self._tasks[ready.number] for ready in self.schedule.waiting_to_begin()}

    # -- stepping ----------------------------------------------------------------------------------

    def step(self) -> LogEntry | None:
        """Begin or end one operation; returns the event, or None if nothing can happen. MXNetError
        inside a task: only the program may step."""
        if thread_state.task is not None:
            raise MXNetError(
                f"step inside the task {thread_state.task.name!r}: step where the program pushes"
            )
        return self._step()

    def _step(self) -> LogEntry | None:
        with self._serial:
            step = self._policy.next(self)
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

    def run(self) -> None:
        """Step until nothing more can happen."""
        while self.step() is not None:
            continue

    def run_to(self, target: int | str) -> LogEntry:
        """Step until an operation begins: the one of that number, the next of that name, or the
        next from a line with that text, "train.py:12" or "c = a * 3". ValueError if none will."""
        wanted = {
            operation.number for operation in self._yet_to_begin() if _matches(operation, target)
        }
        while wanted:
            event = self.step()
            if event is None:
                break
            if event.kind == "begin" and event.number in wanted:
                return event
        left = ", ".join(map(str, self._yet_to_begin())) or "none"
        raise ValueError(f"run_to: nothing that is {target!r} will begin; yet to begin: {left}")

    def _begin(self, operation: SteppedOperation, task: Task) -> LogEntry:
        # An invalid duration is an error before anything has happened.
        duration_us = self._duration_us(task)
        with self.lock:
            self.running.add(task)
            worker = self.schedule.begin(operation)
            self.schedule.ends[operation] = inf  # for `_give_up`
        operation.status = "running"
        operation.began_ns = self.clock()
        event = self._log("begin", operation)
        self._outcomes[task] = _, ran = self._execute(task, worker)
        self.schedule.ends[operation] = self.now_us + (duration_us if ran else 0.0)
        self.steps += 1
        return event

    def _end(self, operation: SteppedOperation, task: Task) -> LogEntry:
        self.now_us = max(self.now_us, self.schedule.ends[operation])
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
            if self.schedule.is_ready(operation):
                if task not in self.running:
                    return  # nothing has happened
                self.schedule.withdraw(operation)
            if task in self.pending and task in self._outcomes:  # it has run, and must still end
                if self.schedule.ends.get(operation, inf) == inf:
                    self.schedule.ends[operation] = self.now_us
                return
            self.schedule.end(operation)
            self._tasks.pop(task.seq, None)
            if self._outcomes.pop(task, None) is None:
                operation.status = "failed"
            self._abandon(task, problem)

    # -- waiting -----------------------------------------------------------------------------------

    def _advance(self) -> None:
        """A line that asks for the third time, with no step between, would ask for ever: step."""
        if self.steps == self._asked_at and thread_state.task is None:
            self._step()
        self._asked_at = self.steps

    def _block(self, lock: threading.Lock, deadline: float | None = None) -> bool:
        """Step until `lock` is open."""
        watch = StallDetector(self)
        while True:
            while lock.locked() and self._step() is not None:
                continue
            soon = watch.until(deadline)
            if block(lock, soon):
                return True
            if soon == deadline:
                return False
            watch.look()

    def _work_off(self) -> None:
        """A push that waits for room steps until a task is complete."""
        while self.room_locks and self._step() is not None:
            continue


def _matches(operation: SteppedOperation, target: int | str) -> bool:
    if isinstance(target, int):
        return operation.number == target
    return operation.name == target or target in operation.where

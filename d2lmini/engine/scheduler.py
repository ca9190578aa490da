"""Life cycle of a task, shared by all engines: push, run, release.

    push -> (inline: run here and now) | pause while too much is pending -> claim -> ready ->
    run on a worker -> complete -> release

Ctrl-C may interrupt a user's thread at any call. A push has happened once its task is in
`pending`: from then on `_mend` completes the push, before that `_mend` undoes it.

A finalizer may run at any moment, even while its thread holds the lock in the middle of a
transition. A task that the finalizer pushes then is deferred: the thread that releases the lock, or
the next one that comes to it, pushes the task; a wait is refused. Elsewhere a finalizer may push
and wait like any code.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, ClassVar

from d2lmini.base import callsite, instrument
from d2lmini.context import Context
from d2lmini.engine import core, signals
from d2lmini.engine.budget import Budget
from d2lmini.engine.core import Task, Var, WaitRequest
from d2lmini.engine.failure import Failure, Report, Reports, WriteSkipped


class _ThreadState(threading.local):
    """State of a thread: the task it runs, its added priority.

    A worker always has a `task` (itself, between tasks), and a thread that waits for a Var has its
    WaitRequest: a finalizer may run on such a thread at any time, and must not wait either.
    """

    task: Any = None
    bulk_size = 0  # MXNet's hint, which changes nothing (`engine.bulk`)
    priority = 0  # added to the priority of every task the thread pushes
    pool: Any = None  # of a worker: the pool it belongs to
    cut = False  # the thread works at a piece of an operation that was cut
    job: Any = None  # the job of that piece (device/parallel.py)


thread_state = _ThreadState()

#: By thread: a function that each wait calls at its start, and twice a second while it lasts. An
#: exception from this function ends the wait, as Ctrl-C does on the main thread.
interrupts: dict[int, Callable[[], None]] = {}


class Scheduler:
    """The state shared by pushing, running and releasing tasks.

    pending        tasks that were pushed and are not complete
    running        those of them that have begun
    wait_requests  the waits that are queued for a Var now
    idle_locks     each blocks a wait for everything
    room_locks     each blocks a push for which too much is pending
    """

    #: Records operations to push later (`d2lmini.lazy`); the same for all engines, or None. Every
    #: push and wait is reported to the recorder.
    recorder: ClassVar[Any] = None

    #: (context, lane) -> what runs its tasks, for a device that works asynchronously to the host;
    #: see `worker_pools`.
    runners: ClassVar[dict[tuple[Context, str], Any]] = {}

    #: Do the workers run on the user's thread, where Ctrl-C strikes?
    serial = False

    #: May callers issue what is to run on a device that works asynchronously to the host?
    issues = False

    #: Is the clock virtual? Then nothing sleeps until a time on it.
    virtual = False

    #: The engine's clock, in nanoseconds.
    clock = staticmethod(time.perf_counter_ns)

    def __init__(self, inline_below: float, limit: int | None):
        self.lock = core.lock
        self.inline_below = inline_below
        self.budget = Budget(limit)
        self._begin_anew()

    def _begin_anew(self) -> None:
        """Empty all lists and counts: at the start, and in a forked child."""
        self.budget = Budget(self.budget.limit)
        self.pending: set[Task] = set()
        self.running: set[Task] = set()
        self.wait_requests: set[WaitRequest] = set()
        self.idle_locks: list[threading.Lock] = []
        self.room_locks: list[threading.Lock] = []
        self.reports = Reports()
        self.ran = 0  # tasks that ran, other than inline
        self.inlined = 0
        self.skipped = 0
        self._sequence = 0
        # Pushed by finalizers while their thread held the lock.
        self._deferred: deque[Task] = deque()

    # -- pushing ----------------------------------------------------------------------------------

    def push(self, task: Task) -> None:
        """Enter `task`; returns at once, or after running a small task (see `run_inline`)."""
        raise NotImplementedError

    def offer(self, task: Task) -> bool:
        """Enter a task of the recorder's; False if the bound on pending bytes forbids it now.
        Never waits."""
        user = thread_state.task is None
        small = task.predicted_us < self.inline_below and task.ctx.is_cpu
        if user and small and self.run_inline(task):
            return True
        task.prepare()
        return self._enter(task, user)

    def run_inline(self, task: Task) -> bool:
        """Run a small task here and now if nothing it depends on is pending; else return False.

        The lock is held meanwhile, so no other thread can begin to write the task's inputs: the
        same transitions as on a worker, unobserved.
        """
        with self.lock:
            if not self._run_now(task, task.run):
                return False
        if self._deferred:
            self._push_deferred()
        return True

    def _run_now(self, task: Task, run: Callable[[], None]) -> bool:
        """Run a task by `run()` if nothing that it depends on is pending; else return False (lock
        held)."""
        if not core.passes_through(task):
            return False
        observed = bool(instrument.listeners)
        if observed:
            self._tell_inline(task)
        failure = None
        steps = task.defers and task.multi_step
        held = signals.hold() if steps else None
        self.inlined += 1
        try:
            run()
            if task.failures is not None:
                self._fail_parts(task)
        except BaseException as problem:
            failure = Failure(task.name, task.site or callsite.find(), problem)
            task.seq = self._sequence
            # Otherwise Ctrl-C did no harm: one call makes the change, or the memory is new.
            if steps or not (failure.interrupt and task.defers):
                self._fail(task, failure, ran=True)
            if failure.interrupt:
                raise
        finally:
            if observed:
                instrument.emit("end", task, failure)
            if held is not None:
                signals.release(held)
        return True

    def _tell_inline(self, task: Task) -> None:
        task.prepare()
        task.site = callsite.find()
        instrument.emit("push", task)
        instrument.emit("ready", task)
        instrument.emit("start", task, "caller")

    def _enter(self, task: Task, bounded: bool = False) -> bool:
        """Claim the Vars of `task` and dispatch it if it is ready. False if `bounded` and the task
        would pass the bound on pending bytes."""
        with self.lock:
            if bounded and not self.budget.admits(task):
                return False
            self._claim(task)
        if self._deferred:
            self._push_deferred()
        return True

    def _claim(self, task: Task) -> None:
        """Claim the Vars of `task`; if it is ready, hand it out (lock held)."""
        try:
            self._sequence += 1
            task.seq = self._sequence
            is_ready = core.claim(task)
            self.pending.add(task)
            self.budget.pin(task)
            if instrument.listeners:
                instrument.emit("push", task)
            if is_ready:
                self._dispatch([task])
        except BaseException:
            self._mend(task)
            raise

    def _is_for_later(self, task: Task) -> bool:
        """True if `task` must be pushed later. It is deferred if a finalizer pushes it while its
        thread is inside the engine, and recorded in a lazy scope. Pushes deferred tasks first."""
        if self.lock._is_owned():  # type: ignore[attr-defined]
            self._defer(task)
            return True
        if signals.noted:
            signals.deliver()
        if self._deferred:
            self._push_deferred()
        return self.recorder is not None and self.recorder.takes(task)

    def _defer(self, task: Task) -> None:
        """Defer a task that a finalizer pushes while its thread is inside the engine."""
        task.site = callsite.find()
        task.prepare()
        self._deferred.append(task)

    def _push_deferred(self) -> None:
        """Push the tasks that finalizers deferred, in order."""
        tasks = list(self._deferred)
        if self.recorder is not None and not self.recorder.settles(tasks):
            return
        with self.lock:
            self._claim_deferred(tasks)
        self._run_ready()

    def _claim_deferred(self, tasks: list[Task]) -> None:
        for task in tasks:
            if self._deferred and self._deferred[0] is task:
                self._claim(self._deferred.popleft())

    def _dispatch(self, ready: Iterable[Task]) -> None:
        """Hand out ready tasks and grant ready waits (lock held)."""
        for task in ready:
            if isinstance(task, WaitRequest):
                if task.opened.locked():
                    task.opened.release()
                continue
            if instrument.listeners:
                instrument.emit("ready", task)
            self._hand_out(task)

    def _hand_out(self, task: Task) -> None:
        """Give a ready task to the thread that runs it (lock held)."""
        raise NotImplementedError

    def _dispatched(self) -> set[Task]:
        """The tasks handed out that have not begun (lock held)."""
        raise NotImplementedError

    def _mend(self, task: Task) -> None:
        """Repair after Ctrl-C interrupted a transition of `task`: undo the push if it had not
        happened, and complete everything else (lock held)."""
        if task in self.pending:
            self.budget.pin(task)
        else:
            core.withdraw(task)
        self.wait_requests.discard(task)  # type: ignore[arg-type]
        known = self._dispatched() | self.running
        ready = core.mend((*task.shared, *task.writes))
        self._dispatch(t for t in ready if t not in known)
        self._wake_waiting()

    def _run_ready(self) -> None:
        """Run ready tasks that no worker will run; called without the lock before a wait blocks."""

    def helpers(self, n: int, job: Any, late: bool = False) -> int | None:
        """Call up to `n` idle workers to share in `job` (device/parallel.py); returns how many
        come. With `late`, others may join during the job. None: no worker can ever come. If any
        come or may, `shared` is called when the job is over."""
        return None

    def end_sharing(self, job: Any) -> None:
        """`job` is done."""

    # -- running ----------------------------------------------------------------------------------

    def _run(self, task: Task, worker: str) -> None:
        """Run a granted task and release its Vars."""
        outcome = self._execute(task, worker)
        with self.lock:
            self._settle(task, *outcome)
            del outcome  # only the Vars keep a failure alive
            self._finish(task)

    def _run_here(self, task: Task) -> None:
        """Run a ready task on a user's thread. Ctrl-C waits until a task of the library has ended.
        Ctrl-C may interrupt a user's function at any call: then the values the function writes are
        unknown, and everything else goes on."""
        held = signals.hold() if task.defers else None
        try:
            self.running.add(task)
            self._run(task, "caller")
        except BaseException as problem:
            with self.lock:
                if task in self.running:
                    self._abandon(task, problem)
            raise
        finally:
            signals.release(held)

    def _abandon(self, task: Task, problem: BaseException) -> None:
        if task in self.pending:  # else its outcome is settled
            self._settle(task, Failure(task.name, task.site, problem), False)
        self.pending.discard(task)
        self.running.discard(task)
        self._mend(task)

    def _execute(self, task: Task, worker: str) -> tuple[Failure | None, bool]:
        """Run a task unless an input is missing: (its failure or None, whether it ran)."""
        failure = task.cancelled or self.missing(task)
        if failure is not None:
            return failure, False
        if instrument.listeners:
            instrument.emit("start", task, worker)
        outer, thread_state.task = thread_state.task, task
        try:
            self._run_task(task)
        except BaseException as problem:
            if (self.serial or worker == "caller") and not isinstance(problem, Exception):
                raise
            return Failure(task.name, task.site, problem), True
        finally:
            thread_state.task = outer
        return None, True

    def _run_task(self, task: Task) -> None:
        """Run a task, by the runner of its lane if there is one; on a simulated lane, return when
        the time of the lane has passed."""
        runner = None if task.ctx.is_cpu else self.runners.get((task.ctx, task.lane))
        if runner is not None:
            runner.run(task)
        elif self.virtual or (lane_time := find_lane_time(task)) is None:
            task.run()
        else:
            begin_ns = time.perf_counter_ns()
            task.run()
            _sleep_until(begin_ns + 1000 * (lane_time(task) or 0.0))

    def missing(self, task: Task) -> Failure | None:
        """The failure for which `task` must be skipped, if a value that it reads is missing."""
        for var in task.reads:
            if var.error is not None and core.is_missing(var, self, task.seq):
                return var.error.origin
        return None

    def _settle(self, task: Task, failure: Failure | None, ran: bool) -> None:
        """Record the outcome of a task (lock held)."""
        if failure is not None:
            self._fail(task, failure, ran)
        else:
            for var in task.writes:
                if var.error is not None:
                    var.error = None
            for var in task.reads:
                if var.error is not None:
                    self.lift(var)
            if task.failures is not None:
                self._fail_parts(task)
        self.budget.drain()
        self.budget.unpin(task)
        if instrument.listeners:
            instrument.emit("end", task, failure)
        if ran:
            self.ran += 1
        else:
            self.skipped += 1
        self.pending.discard(task)

    def _finish(self, task: Task) -> None:
        """Release the Vars of `task` and wake the threads that wait for this (lock held)."""
        self._dispatch(core.release(task))
        self.pending.discard(task)
        self.running.discard(task)
        self._wake_waiting()

    def _wake_waiting(self) -> None:
        """A task is complete: wake the pushes that wait for room and the waits for everything."""
        if self.room_locks:
            open_all(self.room_locks)
        if self.idle_locks and not self.pending:
            open_all(self.idle_locks)

    def take_unreported(self) -> tuple[list[Failure], list[Report]]:
        """The failures that no wait has raised: those whose Vars live, and those whose Vars died.
        They count as raised from now on (lock held)."""
        return self.reports.take(self, self._sequence)

    def lift(self, var: Var) -> None:
        """Clear the `WriteSkipped` error of `var` once every task pushed before the user knew is
        done (lock held): then small operations may run inline again."""
        error = var.error
        alone = not var.queue and len(var.readers) <= 1 and var.writer is None
        if alone and error is not None and not error.blocks(self):
            var.error = None

    def _fail_parts(self, task: Task) -> None:
        """Keep the failures of parts of a task that ran (lock held)."""
        known = {var.error.origin for var in getattr(task, "shared", ()) if var.error is not None}
        for var, failure in (task.failures or {}).items():
            if task.keeps(var):
                self._keep_unchanged(task, (var,), failure)
            else:
                var.error = failure
            if failure not in known:
                known.add(failure)
                self.reports.add(failure, task.seq, keep=False)

    def _fail(self, task: Task, failure: Failure, ran: bool) -> None:
        """Keep `failure` on the Vars that `task` writes, as `core` defines; report the failure if
        the task `ran` (lock held)."""
        missing: Iterable[Var] = task.writes
        if not failure.interrupt and (task.preserves_old or not ran):
            results = [var for var in task.writes if not task.keeps(var)]
            if results:
                missing = results
            elif task.atomic or not ran:
                missing = ()
                self._keep_unchanged(task, task.writes, failure)
        for var in missing:
            var.error = failure
        if ran and not failure.interrupt:
            self.reports.add(failure, task.seq, keep=not task.writes)

    def _keep_unchanged(self, task: Task, variables: Iterable[Var], failure: Failure) -> None:
        """`task` did not write `variables` because of `failure`. A value that was missing stays
        missing; of two failures that no wait has raised, the first one counts."""
        kept = [v for v in variables if v.error is None or not v.error.blocks(self, task.seq)]
        if kept:
            error = WriteSkipped(failure, self, task.seq)
            if error.report is not failure.report:
                self.reports.add(error, task.seq, keep=False)
            for var in kept:
                var.error = error


# -- simulated lanes -------------------------------------------------------------------------------
#
# A simulated device (`d2lmini.virtual_gpus`) computes on the cores of this machine, but its tasks
# shall take as long as on the hardware that it stands for. So each of its lanes may have a function
# that gives the time of a task. After a task has run, the worker of the lane sleeps until that time
# has passed; other lanes continue meanwhile. A task that really takes longer is not delayed
# further. The stepped engine does not sleep: the same times pass on its virtual clock. The engine
# knows the lanes, the devices (one floor up) know the rates: `worker_pools.install`.

#: The microseconds that a task takes on its lane, at least; None: not known.
LaneTime = Callable[[Task], float | None]

#: (context, lane) -> its function; other lanes take the time they take.
lane_times: dict[tuple[Context, str], LaneTime] = {}

#: `time.sleep` returns up to about 0.1 ms late, so a worker wakes that much earlier.
_LATE_NS = 100_000


def find_lane_time(task: Task) -> LaneTime | None:
    """The function of the task's lane; None for a lane that is not simulated."""
    return None if task.ctx.is_cpu else lane_times.get((task.ctx, task.lane))


def _sleep_until(end_ns: float) -> None:
    """Block this thread until `time.perf_counter_ns()` is `end_ns`, or return at once if that is
    past. The thread sleeps, but for the last 0.1 ms, in which it lets other threads run."""
    left_ns = end_ns - time.perf_counter_ns()
    if left_ns > _LATE_NS:
        time.sleep((left_ns - _LATE_NS) / 1e9)
    while time.perf_counter_ns() < end_ns:
        time.sleep(0)


def open_all(locks: list[threading.Lock]) -> None:
    """Release all `locks`; the threads that block on them look again and may come back."""
    for lock in locks:
        if lock.locked():
            lock.release()
    locks.clear()

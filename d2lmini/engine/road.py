"""The road of a task, as every engine has it: from the push to the release of what it held.

    push -> (inline: run here and now) | pause while too much is pending -> claim -> ready ->
    run on a worker -> complete -> release

Ctrl-C may strike a user's thread at any call. A push has happened as soon as its task stands in
`pending`: what comes after is then completed by `_mend`, what came before is taken back.

A finalizer may run at any moment, even while its thread holds the lock and has half-made a move.
What it pushes then is laid aside and pushed by whoever leaves the lock or comes to it next; a wait
is refused. Elsewhere a finalizer may push and wait like any code.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, ClassVar, Protocol

from d2lmini import callsite, instrument
from d2lmini.context import Context
from d2lmini.engine import core, signals
from d2lmini.engine.budget import Budget
from d2lmini.engine.bulk import Segment
from d2lmini.engine.core import Gate, Task, Var
from d2lmini.engine.failure import Failure, Report, Reports, Unchanged
from d2lmini.engine.meeting import Meeting, at_rest


class _Here(threading.local):
    """Per thread: what it runs, the size of bulk segments and the priority it asked for.

    A worker counts as running something for all its life (itself, between tasks), and a thread in
    line for a Var its wait: a finalizer may run there at any time, and must not wait either.
    """

    task: Any = None
    bulk_size = 0
    priority = 0  # added to that of every task it pushes
    pool: Any = None  # of a worker: the pool it belongs to
    cut = False  # it works at a piece of an operation that was cut
    job: Any = None  # whose piece it works at (device/parallel.py)


here = _Here()

#: By thread, what each of its waits asks at first, and twice a second while it lasts: what that
#: raises ends the wait, as Ctrl-C does on the main thread.
interrupts: dict[int, Callable[[], None]] = {}


class Runner(Protocol):
    """Who runs the tasks of a lane of a device that works behind the host; see `lanes`."""

    def run(self, task: Task) -> None:
        """Run `task`, and see to it that what it makes the device do comes in its order."""

    def finish(self, deadline: float | None = None) -> bool:
        """Block until the device has done what it was told here; False at the deadline."""


class Road:
    """What a task passes, and the lists that it stands in meanwhile.

    pending     tasks and bulk segments that were pushed and are not complete
    running     those of them that have begun
    gates       of the waits that are in line for a Var now
    segments    open bulk segments, by thread
    meetings    that have not run, and perhaps some that have (`meeting.at_rest` strikes them out)
    idle_locks  each blocks a wait for everything
    room_locks  each blocks a push for which too much is pending
    """

    #: Who records operations that are to be pushed later, if need be (`d2lmini.lazy`); of all
    #: engines the same one, None while there is none. It is told of every push and wait.
    recorder: ClassVar[Any] = None

    #: (context, lane) -> who runs its tasks, where that is more than calling `Task.run`.
    runners: ClassVar[dict[tuple[Context, str], Runner]] = {}

    #: Do its workers run on the user's thread, where Ctrl-C strikes?
    serial = False

    #: What its times are read from, in nanoseconds.
    clock = staticmethod(time.perf_counter_ns)

    def __init__(self, inline_below: float, limit: int | None):
        self.lock = core.lock
        self.inline_below = inline_below
        self.budget = Budget(limit)
        self._begin_anew()

    def _begin_anew(self) -> None:
        """Empty all lists and counts: at first, and in a forked child."""
        self.budget = Budget(self.budget.limit)
        self.pending: set[Task] = set()
        self.running: set[Task] = set()
        self.gates: set[Gate] = set()
        self.segments: dict[int, Segment] = {}
        self.meetings: set[Meeting] = set()
        self.idle_locks: list[threading.Lock] = []
        self.room_locks: list[threading.Lock] = []
        self.reports = Reports()
        self.ran = 0  # tasks that ran, other than inline
        self.inlined = 0
        self.skipped = 0
        self._sequence = 0
        self._late: deque[Task] = deque()  # pushed by finalizers while their thread held the lock

    # -- pushing ----------------------------------------------------------------------------------

    def push(self, task: Task) -> None:
        """Enter `task`; returns at once, or after running it where it is small (see `inline`)."""
        raise NotImplementedError

    def offer(self, task: Task) -> bool:
        """Enter a task of the recorder's, unless the bound on pending bytes forbids it now: then
        False. Never waits."""
        user = here.task is None
        small = task.predicted_us < self.inline_below and task.ctx.is_cpu
        if user and small and self.run_inline(task):
            return True
        task.prepare()
        return self._enter(task, user)

    def run_inline(self, task: Task) -> bool:
        """Run a small task here and now if nothing it depends on is pending; else say False.

        The lock is held meanwhile, so no other thread can begin to write what it reads: the same
        transitions as on a worker, with nobody to observe them.
        """
        with self.lock:
            if not core.passes_through(task):
                return False
            observed = bool(instrument.listeners)
            if observed:
                self._tell_inline(task)
            failure = None
            steps = task.defers and task.in_steps
            held = signals.hold() if steps else None
            self.inlined += 1
            try:
                task.run()
                if task.failures is not None:
                    self._fail_parts(task)
            except BaseException as problem:
                failure = Failure(task.name, task.site or callsite.find(), problem)
                task.seq = self._sequence
                # Else Ctrl-C did no harm: what the task changes is changed by one call, or is new.
                if steps or not (failure.sudden and task.defers):
                    self._fail(task, failure, ran=True)
                if failure.sudden:
                    raise
            finally:
                if observed:
                    instrument.emit("end", task, failure)
                if held is not None:
                    signals.release(held)
        if self._late:
            self._push_late()
        return True

    def _tell_inline(self, task: Task) -> None:
        task.prepare()
        task.site = callsite.find()
        instrument.emit("push", task)
        instrument.emit("ready", task)
        instrument.emit("start", task, "caller")

    def _enter(self, task: Task, bounded: bool = False) -> bool:
        """Claim what `task` touches and dispatch it if it is ready. False if it is `bounded` and
        would pass the bound on pending bytes."""
        with self.lock:
            if bounded and not self._admits(task):
                return False
            self._claim(task)
        if self._late:
            self._push_late()
        return True

    def _admits(self, task: Task) -> bool:
        """May `task` be queued now? Yes, too, if room can only come of what is pushed next."""
        return self.budget.admits(task) or at_rest(self)

    def _claim(self, task: Task) -> None:
        if self.segments:
            self._flush((*task.shared, *task.writes))
        try:
            self._sequence += 1
            task.seq = self._sequence
            ready = core.claim(task)
            self.pending.add(task)
            self.budget.pin(task)
            if instrument.listeners:
                instrument.emit("push", task)
            if ready:
                self._dispatch([task])
        except BaseException:
            self._mend(task)
            raise

    def _is_for_later(self, task: Task) -> bool:
        """Is it not to be pushed now: laid aside, for a finalizer pushes it in the midst of the
        engine's own work, or written down by a lazy scope? What was laid aside is pushed first."""
        if self.lock._is_owned():  # type: ignore[attr-defined]
            self._lay_aside(task)
            return True
        if signals.noted:
            signals.deliver()
        if self._late:
            self._push_late()
        return self.recorder is not None and self.recorder.takes(task)

    def _lay_aside(self, task: Task) -> None:
        """A finalizer pushes while its thread is in the midst of a move."""
        task.site = callsite.find()
        task.prepare()
        self._late.append(task)

    def _push_late(self) -> None:
        """Push what finalizers have laid aside, in their order."""
        tasks = list(self._late)
        if self.recorder is not None and not self.recorder.settles(tasks):
            return
        with self.lock:
            self._claim_late(tasks)
        self._work_off()

    def _claim_late(self, tasks: list[Task]) -> None:
        for task in tasks:
            if self._late and self._late[0] is task:
                self._claim(self._late.popleft())

    def _flush(self, variables: Iterable[Var] | None = None, own: bool = True) -> None:
        """Close the open bulk segment of this thread, if `own`, and those of others that touch one
        of `variables`; all if None is given (lock held)."""
        if self.segments:
            mine = threading.get_ident()
            for thread, segment in list(self.segments.items()):
                if own if thread == mine else variables is None or segment.touches(variables):
                    self._close(thread)

    def _close(self, thread: int) -> None:
        segment = self.segments[thread]
        segment.open = False
        del self.segments[thread]
        try:
            if segment.all_granted():
                self._dispatch([segment])
        except BaseException:
            self._mend(segment)
            raise

    def _dispatch(self, ready: Iterable[Task]) -> None:
        """Hand ready tasks to whoever runs them (lock held)."""
        for task in ready:
            if isinstance(task, Gate):
                if task.opened.locked():
                    task.opened.release()
                continue
            if instrument.listeners:
                for each in task.parts:
                    instrument.emit("ready", each)
            self._hand_out(task)

    def _hand_out(self, task: Task) -> None:
        """Give a ready task to who runs it (lock held)."""
        raise NotImplementedError

    def _handed_out(self) -> set[Task]:
        """The tasks given out and not begun (lock held)."""
        raise NotImplementedError

    def _mend(self, task: Task) -> None:
        """Ctrl-C came in the midst of a move of `task`: take it back if it was not pushed yet, and
        complete everything else (lock held)."""
        if task in self.pending:
            for each in task.parts:
                self.budget.pin(each)
        else:
            core.withdraw(task)
        self.gates.discard(task)  # type: ignore[arg-type]
        known = self._handed_out() | self.running
        ready = core.mend((*task.shared, *task.writes))
        self._dispatch(t for t in ready if t not in known)
        self._wake_waiting()

    def _work_off(self) -> None:
        """Run what is ready, if nobody else will; called without the lock before a wait blocks."""

    def helpers(self, n: int, job: Any, late: bool = False) -> int | None:
        """Call up to `n` idle workers to share in `job` (device/parallel.py); how many come. With
        `late` others may join it while it lasts. None: nobody will ever come. If any come or may,
        `shared` is called when it is over."""
        return None

    def shared(self, job: Any) -> None:
        """`job` is done."""

    # -- running ----------------------------------------------------------------------------------

    def _run(self, task: Task, worker: str) -> None:
        """Run a granted task, or the tasks of a segment one by one, and pass on what it held."""
        if isinstance(task, Segment):
            together = self._run_as_one(task, worker)
            while task.parts:
                outcome = together or self._execute(task.parts[0], worker)
                with self.lock:
                    self._settle(task.parts[0], *outcome)
                    del outcome  # a failure lives by its Vars alone
                    task.parts.popleft()
            del together
            with self.lock:
                self._finish(task)
        else:
            outcome = self._execute(task, worker)
            with self.lock:
                self._settle(task, *outcome)
                del outcome
                self._finish(task)

    def _run_as_one(self, segment: Segment, worker: str) -> tuple[Failure | None, bool] | None:
        """Run all tasks of a segment at one go, where its device can: the outcome of each, as
        `_execute` says it. None: nothing was done."""
        if segment.ctx.is_cpu or instrument.listeners:  # those are told of each task
            return None
        one = Segment.as_one(segment)
        if one is None:
            return None
        outcome = self._execute(one, worker)
        return outcome if one.ran else None

    def _run_here(self, task: Task) -> None:
        """Run a ready task on a user's thread. Ctrl-C waits until the library's own tasks have
        ended. It may strike a user's function at any call: then what that writes is unknown, and
        everything else goes on."""
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
            if held is not None:
                signals.release(held)

    def _abandon(self, task: Task, problem: BaseException) -> None:
        if task in self.pending:  # else its outcome is in the books
            for each in task.parts:
                self._settle(each, Failure(each.name, each.site, problem), False)
        self.pending.discard(task)
        self.running.discard(task)
        self._mend(task)

    def _execute(self, task: Task, worker: str) -> tuple[Failure | None, bool]:
        """Run a task unless what it needs is missing: (why it has no result, if so; has it run)."""
        failure = task.cancelled or self.missing(task)
        if failure is not None:
            return failure, False
        if instrument.listeners:
            instrument.emit("start", task, worker)
        outer, here.task = here.task, task
        try:
            runner = None if task.ctx.is_cpu else self.runners.get((task.ctx, task.lane))
            if runner is None:
                task.run()
            else:
                runner.run(task)
        except BaseException as problem:
            if (self.serial or worker == "caller") and not isinstance(problem, Exception):
                raise
            return Failure(task.name, task.site, problem), True
        finally:
            here.task = outer
        return None, True

    def missing(self, task: Task) -> Failure | None:
        """Why `task` is to be skipped, if a value that it reads is missing."""
        for var in task.reads:
            if var.error is not None and core.is_missing(var, self, task.seq):
                return var.error.origin
        return None

    def _settle(self, task: Task, failure: Failure | None, ran: bool) -> None:
        """Enter the outcome of a task in the books (lock held)."""
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
        """Pass on what `task` held; open the doors of those who wait for that (lock held)."""
        self._dispatch(core.release(task))
        self.pending.discard(task)
        self.running.discard(task)
        self._wake_waiting()

    def _wake_waiting(self) -> None:
        """Something is complete: let those look who wait for room, or for everything."""
        if self.room_locks:
            open_all(self.room_locks)
        if self.idle_locks and not self.pending:
            open_all(self.idle_locks)

    def untold(self) -> tuple[list[Failure], list[Report]]:
        """The failures that no wait has raised: those whose Vars live, and those whose Vars died.
        They count as told from now on (lock held)."""
        return self.reports.take(self, self._sequence)

    def lift(self, var: Var) -> None:
        """Forget that a write of `var` did not happen, once everything that was pushed before the
        user knew is done (lock held): then small operations may run inline again."""
        error = var.error
        alone = not var.queue and len(var.readers) <= 1 and var.writer is None
        if alone and error is not None and not error.blocks(self):
            var.error = None

    def _fail_parts(self, task: Task) -> None:
        """Keep what failed in a task that ran all the same (lock held)."""
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
        """Keep `failure` on what `task` writes, as the first page of `core` says; that of a task
        that `ran` is to be reported (lock held)."""
        missing: Iterable[Var] = task.writes
        if not failure.sudden and (task.spares or not ran):
            results = [var for var in task.writes if not task.keeps(var)]
            if results:
                missing = results
            elif task.atomic or not ran:
                missing = ()
                self._keep_unchanged(task, task.writes, failure)
        for var in missing:
            var.error = failure
        if ran and not failure.sudden:
            self.reports.add(failure, task.seq, keep=not task.writes)

    def _keep_unchanged(self, task: Task, variables: Iterable[Var], failure: Failure) -> None:
        """`task` did not write `variables` because of `failure`. Where a value was missing before,
        it still is; of two failures that no wait has raised, the first one counts."""
        kept = [v for v in variables if v.error is None or not v.error.blocks(self, task.seq)]
        if kept:
            error = Unchanged(failure, self, task.seq)
            if error.report is not failure.report:
                self.reports.add(error, task.seq, keep=False)
            for var in kept:
                var.error = error


def open_all(locks: list[threading.Lock]) -> None:
    """Let those go on who block on `locks`; they look again and may come back."""
    for lock in locks:
        if lock.locked():
            lock.release()
    locks.clear()

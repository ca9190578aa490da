"""What every engine shares: the one wait, inline execution, errors, and the count of what ran.

`ThreadedEngine` and `NaiveEngine` differ only in who runs a task that is ready. The road of a task:

    push -> (inline: run here and now) | pause while too much is pending -> claim -> ready ->
    run on a worker -> complete -> release
"""

from __future__ import annotations

import os
import threading
import time
import warnings
from typing import Any, NamedTuple

from d2lmini import callsite, instrument
from d2lmini.base import MXNetError
from d2lmini.callsite import Site
from d2lmini.engine import core
from d2lmini.engine.budget import Budget
from d2lmini.engine.bulk import Segment
from d2lmini.engine.core import Gate, Task, Var
from d2lmini.engine.failure import Failure, Report

# Windows delivers Ctrl-C only between waits; elsewhere it interrupts one.
_PATIENCE_S = 0.1 if os.name == "nt" else 60.0


class Stats(NamedTuple):
    """Counts since the engine started. pushed = executed + skipped + pending.

    executed counts every operation that ran, wherever; `inline` of them ran on the caller's
    thread. skipped: what they needed had failed or they were cancelled. paused: pushes that had
    to wait for the bound.
    """

    pushed: int
    executed: int
    inline: int
    skipped: int
    pending: int
    pending_bytes: int
    peak_pending_bytes: int
    limit_bytes: int | None
    paused: int
    workers: int


class _Here(threading.local):
    """Per thread: the task it is running, its open bulk segment and the size it asked for."""

    task: Task | None = None
    segment: Any = None
    bulk_size = 0


here = _Here()


class Engine:
    """Orders and runs tasks; see `core` for the rules and the promises."""

    kind = "?"

    def __init__(self, inline_below: float = 0.0, limit: int | None = None):
        self.lock = threading.RLock()
        self.inline_below = inline_below
        self.budget = Budget(limit)
        self.pending: set[Task] = set()
        self.running: set[Task] = set()
        self.ran = 0  # tasks that ran, other than inline
        self.inlined = 0
        self.skipped = 0
        self._sequence = 0
        self._reports: list[Report] = []
        self._idle_locks: list[threading.Lock] = []
        self._paused_locks: list[threading.Lock] = []

    # -- pushing ----------------------------------------------------------------------------------

    def push(self, task: Task) -> None:
        """Enter `task`; returns at once, or after running it where it is small (see `inline`)."""
        raise NotImplementedError

    def run_inline(self, task: Task) -> bool:
        """Run a small task here and now if nothing it depends on is pending; else say False.

        The lock is held meanwhile, so no other thread can begin to write what it reads: the same
        transitions as on a worker, with nobody to observe them.
        """
        with self.lock:
            for var in task.reads:
                if var.writer is not None or var.queue or var.error is not None:
                    return False
            for var in task.writes:
                if var.writer is not None or var.readers or var.queue or var.error is not None:
                    return False
            for var in task.writes:
                var.version += 1
                if var.weight:
                    var.filled = True  # type: ignore[attr-defined]
            if instrument.listeners:
                return self._run_inline_observed(task)
            try:
                task.run()
            except Exception as problem:
                self._fail(task, Failure(task.name, callsite.find(), problem))
            self.inlined += 1
        return True

    def _run_inline_observed(self, task: Task) -> bool:
        failure = None
        task.prepare()
        task.site = callsite.find()
        instrument.emit("push", task)
        instrument.emit("ready", task)
        instrument.emit("start", task, "caller")
        try:
            task.run()
        except Exception as problem:
            failure = Failure(task.name, task.site, problem)
            self._fail(task, failure)
        self.inlined += 1
        instrument.emit("end", task, failure)
        return True

    def _enter(self, task: Task) -> None:
        """Claim what `task` touches and dispatch it if it is ready. All of it or nothing: an
        interrupt between two lines takes the half-made push back."""
        task.site = task.site or callsite.find()
        with self.lock:
            try:
                task.prepare()
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
                self._take_back(task)
                raise

    def _take_back(self, task: Task) -> None:
        self._undispatch(task)
        self.pending.discard(task)
        self._dispatch(core.withdraw(task))
        for var in (*task.shared, *task.writes):
            if var.weight:
                var.pins.discard(task)  # type: ignore[attr-defined]
        self.budget.recount(self.pending)

    def _dispatch(self, ready: list[Task]) -> None:
        """Hand ready tasks to whoever runs them (lock held)."""
        raise NotImplementedError

    def _undispatch(self, task: Task) -> None:
        """Take a task back that was handed out and not yet begun (lock held)."""

    def helpers(self, n: int, job: Any) -> int:
        """Call up to `n` idle workers to share in `job` (device/parallel.py); how many come."""
        return 0

    # -- running ----------------------------------------------------------------------------------

    def _run(self, task: Task, worker: str) -> None:
        """Run a granted task, or the tasks of a segment one by one, and pass on what it held."""
        if isinstance(task, Segment):
            for each in task.tasks:
                failure, ran = self._execute(each, worker)
                with self.lock:
                    self._settle(each, failure, ran)
            with self.lock:
                self._finish(task)
        else:
            failure, ran = self._execute(task, worker)
            with self.lock:
                self._settle(task, failure, ran)
                self._finish(task)

    def _execute(self, task: Task, worker: str) -> tuple[Failure | None, bool]:
        """Run a task unless what it needs is missing: (why it has no result or None, did it run)."""
        failure = task.cancelled or next((v.error for v in task.reads if v.error is not None), None)
        if failure is not None:
            return failure, False
        if instrument.listeners:
            instrument.emit("start", task, worker)
        outer, here.task = here.task, task
        try:
            task.run()
        except BaseException as problem:
            return Failure(task.name, task.site, problem), True
        finally:
            here.task = outer
        return None, True

    def _settle(self, task: Task, failure: Failure | None, ran: bool) -> None:
        """Enter the outcome of a task in the books (lock held)."""
        if failure is not None:
            self._fail(task, failure, new=ran)
        else:
            for var in task.writes:
                if var.error is not None:
                    var.error = None
        if ran:
            self.ran += 1
        else:
            self.skipped += 1
        self.pending.discard(task)
        self.running.discard(task)
        self.budget.drain()
        self.budget.unpin(task)
        if instrument.listeners:
            instrument.emit("end", task, failure)

    def _begin(self, task: Task) -> None:
        """From now on `task` runs and cannot be cancelled (lock held)."""
        self.running.add(task)
        if isinstance(task, Segment):
            self.running.update(task.tasks)

    def _finish(self, task: Task) -> None:
        """Pass on what `task` held; open the doors of those who wait for that (lock held)."""
        self.pending.discard(task)
        self.running.discard(task)
        self._dispatch(core.release(task))
        if self._paused_locks:
            _open_all(self._paused_locks)
        if not self.pending and self._idle_locks:
            _open_all(self._idle_locks)

    def _fail(self, task: Task, failure: Failure, new: bool = True) -> None:
        for var in task.writes:
            var.error = failure
        if new:
            self._reports = [r for r in self._reports if not r.seen]
            self._reports.append(failure.report)

    # -- waiting: every wait of every kind passes `_wait` -----------------------------------------

    def wait(self, by: str, var: Var, write: bool = False) -> None:
        """Block until what was pushed before on `var` is done: its writes, and for `write` its
        reads too. Raises the error kept on it. `by` names the caller's way of waiting."""
        if self._wait(by, var, write, hold=False) is None and var.error is not None:
            raise var.error.error(callsite.find(), by)

    def hold(self, by: str, var: Var) -> Gate:
        """`wait`, and keep `var` from being written until `let_go(gate)`."""
        gate = self._wait(by, var, False, hold=True)
        assert gate is not None
        if var.error is not None:
            self.let_go(gate)
            raise var.error.error(callsite.find(), by)
        return gate

    def let_go(self, gate: Gate) -> None:
        """End a `hold`."""
        with self.lock:
            self._dispatch(core.release(gate))

    def wait_all(self, by: str = "waitall", timeout_s: float | None = None) -> bool:
        """Block until nothing is pending; then raise the first error no wait has raised yet.
        False if `timeout_s` passed first."""
        if self._wait(by, None, False, hold=False, timeout_s=timeout_s) is False:
            return False
        self._report(by)
        return True

    def _wait(
        self,
        by: str,
        var: Var | None,
        write: bool,
        hold: bool,
        timeout_s: float | None = None,
    ) -> Any:
        """The one wait. `var` None: for everything. The granted Gate if `hold`, else None; False
        after `timeout_s`."""
        if here.task is not None:
            raise MXNetError(
                f"{by} inside the task {here.task.name!r}: a task must not wait, for it would hold "
                "a worker that the awaited work may need. Name what it needs in reads= instead."
            )
        begin = time.perf_counter_ns() if instrument.listeners else 0
        self._flush()
        if var is None:
            granted: Any = self._wait_idle(timeout_s)
        else:
            granted = self._wait_turn(var, write, hold)
        if begin and instrument.listeners:
            end = time.perf_counter_ns()
            instrument.emit("wait", by, var, callsite.find(), begin, end)
        return granted

    def _wait_turn(self, var: Var, write: bool, hold: bool) -> Gate | None:
        gate = None
        try:
            with self.lock:
                self.budget.drain()
                free = var.writer is None and not var.queue and not (write and var.readers)
                if free and not hold:
                    return None
                gate = Gate((), (var,)) if write else Gate((var,))
                version = var.version
                ready = core.claim(gate)
                var.version = version  # a wait changes nothing
            if not ready:
                _block(gate.opened)
        except BaseException:  # Ctrl-C: leave the line
            if gate is not None:
                with self.lock:
                    self._dispatch(core.withdraw(gate))
            raise
        if hold:
            return gate
        self.let_go(gate)
        return None

    def _wait_idle(self, timeout_s: float | None) -> bool | None:
        while True:
            with self.lock:
                self.budget.drain()
                if not self.pending:
                    return None
                opened = threading.Lock()
                opened.acquire()
                self._idle_locks.append(opened)
            if not _block(opened, timeout_s):
                return False

    def pause(self, task: Task) -> None:
        """Back-pressure: block the pushing thread until the bound admits `task`."""
        with self.lock:
            self.budget.drain()
            if self.budget.admits(task):
                return
            self.budget.paused += 1
        self._flush(everywhere=True)
        begin = time.perf_counter_ns() if instrument.listeners else 0
        while True:
            with self.lock:
                self.budget.drain()
                if self.budget.admits(task):
                    break
                opened = threading.Lock()
                opened.acquire()
                self._paused_locks.append(opened)
            _block(opened)
        if begin and instrument.listeners:
            end = time.perf_counter_ns()
            instrument.emit("wait", "backpressure", None, callsite.find(), begin, end)

    def _flush(self, everywhere: bool = False) -> None:
        """Close open bulk segments: this thread's, or all."""

    # -- errors that nobody has seen --------------------------------------------------------------

    def _report(self, by: str) -> None:
        """Raise the errors that no wait has raised, as one; warn of those whose values died."""
        with self.lock:
            reports, self._reports = self._reports, []
        unseen = [r for r in reports if not r.seen]
        for report in unseen:
            report.seen = True
        failures = [f for f in (r.failure() for r in unseen) if f is not None]
        for report in unseen:
            if report.failure() is None:
                warnings.warn(
                    "an operation failed and its result was dropped unseen:\n" + report.summary,
                    stacklevel=5,
                )
        if failures:
            error = failures[0].error(callsite.find(), by)
            also = "".join(f"\nalso failed: {f.summary()}" for f in failures[1:])
            raise type(error)(f"{error}{also}")

    # -- looking at it --------------------------------------------------------------------------------

    @property
    def workers(self) -> int:
        """Threads that may run tasks of the CPU."""
        return 1

    def stats(self) -> Stats:
        """A snapshot of the counts."""
        with self.lock:
            self.budget.drain()
            pending = sum(not isinstance(task, Segment) for task in self.pending)
            executed = self.ran + self.inlined
            return Stats(
                executed + self.skipped + pending, executed, self.inlined, self.skipped,
                pending, self.budget.pending, self.budget.peak, self.budget.limit,
                self.budget.paused, self.workers,
            )  # fmt: skip

    def limit_pending(self, nbytes: int | None) -> None:
        """Bound the bytes that may be pending; None: half of the memory available."""
        with self.lock:
            self.budget.limit = nbytes
            self.budget.peak = self.budget.pending
            _open_all(self._paused_locks)

    def cancel_pending(self) -> int:
        """Drop what has not begun; its results raise "cancelled" where they are waited for.
        How many tasks were dropped."""
        self._flush(everywhere=True)
        site = callsite.find()
        count = 0
        with self.lock:
            for task in self.pending:
                if task.cancelled is None and task not in self.running:
                    problem = MXNetError(f"{task.name}: cancelled before it ran")
                    task.cancelled = Failure(task.name, task.site or site, problem)
                    count += 1
        return count

    def check(self) -> None:
        """Assert the invariants of `core` over everything pending (lock taken)."""
        with self.lock:
            for var in {v for t in self.pending for v in (*t.shared, *t.writes)}:
                assert var.writer is None or not var.readers, "I1: a writer beside readers"
                assert not var.queue or var.writer or var.readers, "I2: a queue behind nobody"
                if var.queue:
                    assert var.queue[0][1] or var.writer, "I3: the head could be granted"
            if not self.pending:
                assert self.budget.pending == 0, "I6: bytes pending without a task"


def _block(lock: threading.Lock, timeout_s: float | None = None) -> bool:
    """Wait for another thread to open `lock`; interruptible by Ctrl-C. False after `timeout_s`."""
    deadline = None if timeout_s is None else time.monotonic() + timeout_s
    while True:
        left = _PATIENCE_S if deadline is None else deadline - time.monotonic()
        if left <= 0:
            return False
        if lock.acquire(timeout=min(left, _PATIENCE_S)):
            return True


def _open_all(locks: list[threading.Lock]) -> None:
    for lock in locks:
        lock.release()
    locks.clear()

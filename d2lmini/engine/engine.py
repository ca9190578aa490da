"""An engine's interface: waits, counts, bounds, cancelling; and the serial engine. The other
engines add the threads that run.

Every wait passes through `Engine._wait`, so that no wait stays hidden.

A user thread that needs a value queues for its Var with a `WaitRequest`, like any task, and blocks
until the request is granted. A wait for everything blocks until nothing is pending; a push that
finds too much pending blocks until the bound admits it. Ctrl-C interrupts all three, and all three
are refused where blocking could never end: on a worker, and in a finalizer that runs inside the
engine.
"""

from __future__ import annotations

import os
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from typing import NamedTuple, NoReturn, TypeVar

from d2lmini.base import MXNetError, callsite, instrument
from d2lmini.base.callsite import Site
from d2lmini.engine import core, signals
from d2lmini.engine.budget import default_limit
from d2lmini.engine.core import Task, Var, WaitRequest
from d2lmini.engine.failure import Failure, join_summaries
from d2lmini.engine.scheduler import Scheduler, interrupts, open_all, thread_state

# Windows delivers Ctrl-C only between waits. Elsewhere Ctrl-C interrupts a wait, unless it came in
# the instant before the thread fell asleep.
_PATIENCE_S = 0.1 if os.name == "nt" else 0.5

T = TypeVar("T")


class _Polls(threading.local):
    """The thread's last question whether work is pending: (who asked, line, pushed), and when it
    was first asked."""

    last: tuple[object, int] = (None, 0)


_polls = _Polls()


class Stats(NamedTuple):
    """Counts since the engine started. pushed = executed + skipped + pending.

    executed: operations that ran, on any thread; `inline` of them on the caller's thread.
    skipped: operations that were cancelled or whose inputs failed. paused: pushes that waited for
    the bound.
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


class Engine(Scheduler):
    """Orders and runs tasks; see `core` for the rules and the promises."""

    kind = "?"

    #: Every living engine: after a fork the child restarts all of them.
    alive: weakref.WeakSet[Engine] = weakref.WeakSet()

    def __init__(self, inline_below: float, limit: int | None):
        super().__init__(inline_below, limit)
        Engine.alive.add(self)

    # -- waiting ----------------------------------------------------------------------------------

    def wait(self, by: str, var: Var, write: bool = False) -> None:
        """Block until the earlier writes of `var` are done, and for `write` the earlier reads too.
        Raises the Var's error. `by` names the calling function in messages and traces."""
        if self.recorder is not None:
            self.recorder.run_for_wait(by, var, write)
        # In this order: a task seen in the queue cannot have become the writer since.
        if var.queue or var.writer is not None or var.error is not None or (write and var.readers):
            self.read(by, var, _nothing, write)
        else:
            self._wait(by, var, _nothing, write)

    def read(self, by: str, var: Var, get: Callable[[], T], write: bool = False) -> T:
        """`wait`, and return `get()`; no task writes `var` meanwhile."""
        if self.recorder is not None:
            self.recorder.run_for_wait(by, var, write)
        request = WaitRequest(by, var, write)
        outer = thread_state.task
        try:
            self._wait(
                by, var, lambda: self._enqueue_wait(request, hold=get is not _nothing), write
            )
            if var.error is not None:
                self._raise_error(by, var)
            return get()
        finally:
            thread_state.task = outer
            try:
                self._release_wait(request)
            except BaseException:  # Ctrl-C during `_release_wait`, or before it began
                self._release_wait(request)
                raise

    def _raise_error(self, by: str, var: Var) -> None:
        """Raise the error of `var`, unless the Var has its old value (a `WriteSkipped`) and a wait
        has raised the failure already."""
        with core.lock:
            failure = var.error
            if failure is None or not failure.blocks(self):
                self.lift(var)
                return
            failure.report.tell(self, self._sequence)
        raise failure.error(callsite.find(), by)

    def wait_idle(self, by: str, timeout_s: float | None = None) -> bool:
        """Block until nothing is pending; raises no error of a task. False after `timeout_s`."""
        if self.recorder is not None:
            self.recorder.run_for_wait(by, None)
        return self._wait(by, None, lambda: self._wait_idle(timeout_s))

    def wait_all(self, by: str = "waitall", timeout_s: float | None = None) -> bool:
        """`wait_idle`, then raise the errors that no wait has raised yet."""
        if not self.wait_idle(by, timeout_s):
            return False
        self._report(by)
        return True

    def note_poll(self, by: str, var: Var | None, pushed: int, pending: bool) -> None:
        """The program asked whether work is pending. A line that asks until none is, and pushes
        nothing meanwhile, waits: tell the listeners."""
        site, now = callsite.find(1), self.clock()
        asked = by, callsite.same_line(site), pushed
        before, begin = _polls.last
        if before != asked:
            begin = now
        elif pending:
            self._advance()
        elif instrument.listeners:
            instrument.emit("wait", by, var, site, begin, now)
        _polls.last = (asked, begin) if pending else (None, 0)

    def _advance(self) -> None:
        """A line asks again, and work is still pending. Workers need no help."""

    def pause(self, task: Task) -> None:
        """Back-pressure: block the pushing thread until the bound admits `task`."""
        if self.budget.limit is None:
            self.budget.limit = default_limit()
        with self.lock:
            admitted = self.budget.admits(task)
        if not admitted:
            self.budget.paused += 1
            self._wait("backpressure", None, lambda: self._stand_for_room(task))

    def _wait(self, by: str, var: Var | None, block: Callable[[], T], write: bool = False) -> T:
        """The one wait: refuse where it could not end, block, notify listeners. A value that is
        complete for the engine may be pending on its device; then wait for the device too."""
        if thread_state.task is not None or core.lock._is_owned():  # type: ignore[attr-defined]
            self._refuse(by)
        if interrupts:
            _interrupt()
        if signals.noted:
            signals.deliver()
        if instrument.before_wait is not None:
            instrument.before_wait(by, var)
        if self._deferred:
            self._push_deferred()
        begin = self.clock() if instrument.listeners else 0
        result = block()
        if var is not None and var.order is not None and not core.is_missing(var, self):
            var.order.wait(write)
        if begin and instrument.listeners:
            end = self.clock()
            instrument.emit("wait", by, var, callsite.find(2), begin, end)
        if instrument.dropped:
            instrument.tell_dropped()
        if instrument.after_wait is not None:
            instrument.after_wait()
        return result

    def _refuse(self, by: str) -> NoReturn:
        if thread_state.task is not None:
            raise MXNetError(
                f"{by} inside the task {thread_state.task.name!r}: a task must not wait, because "
                "it would hold a worker that the awaited work may need. Name its inputs in reads= "
                "instead."
            )
        raise MXNetError(
            f"{by} inside a finalizer (__del__): it interrupts the engine's own work and "
            "must not wait. Push the work instead."
        )

    def _report(self, by: str) -> None:
        """Raise the errors that no wait has raised, as one; warn of those whose values died."""
        with self.lock:
            failures, dropped = self.take_unreported()
        try:
            if dropped:
                callsite.warn(
                    f"{len(dropped)} operation(s) failed and the results were dropped unseen:\n"
                    + join_summaries([report.summary() for report in dropped])
                )
        finally:  # warnings may be errors
            if failures:
                error = failures[0].error(callsite.find(), by)
                also = join_summaries([f"also failed: {f.report.summary()}" for f in failures[1:]])
                raise type(error)(f"{error}\n{also}" if also else str(error))

    # -- what the waits block on ------------------------------------------------------------------

    def _enqueue_wait(self, request: WaitRequest, hold: bool) -> None:
        """Block until the request's Var is granted. Without `hold`, do not claim a free Var."""
        if self._join_line(request, hold):
            self._block(request.opened)

    def _join_line(self, request: WaitRequest, hold: bool = True) -> bool:
        """True if the request's Var is not granted yet."""
        var = request.var
        with core.lock:
            self.budget.drain()
            free = var.writer is None and not var.queue and not (request.writes and var.readers)
            if free and not hold:
                return False
            thread_state.task = request  # a thread in the queue must not wait for later tasks
            self.wait_requests.add(request)
            if request.claim():
                return False
        self._run_ready()
        return True

    def step_aside(self, request: WaitRequest, handle: Callable[[], object]) -> None:
        """Call a signal's handler while this thread is blocked in a wait, and then queue again,
        behind all that the handler pushed."""
        thread_state.task = None
        self._release_wait(request)
        handle()
        request.waits = 1
        request.opened.acquire(blocking=False)
        if self.recorder is not None:
            self.recorder.run_for_wait(request.name, request.var, bool(request.writes))
        if not self._join_line(request):
            request.opened.release()

    def _release_wait(self, request: WaitRequest) -> None:
        """Leave the queue, wherever the request stands in it; idempotent."""
        if request not in self.wait_requests:
            return
        with core.lock:
            try:
                self._dispatch(core.withdraw(request))
                self.wait_requests.discard(request)
            except BaseException:
                self._mend(request)
                raise
        self._run_ready()

    def _wait_idle(self, timeout_s: float | None) -> bool:
        """Block until nothing is pending; False after `timeout_s`."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            if self._deferred:
                self._push_deferred()
            with core.lock:
                self.budget.drain()
                opened = None
                if self.pending or self._deferred:
                    opened = _make_shut_lock(self.idle_locks)
            if opened is None:
                return self._finish_devices(deadline)
            self._run_ready()
            if not self._block(opened, deadline):
                return False

    def _finish_devices(self, deadline: float | None) -> bool:
        """Block until the devices have finished; False at the deadline. The failure of a device is
        added to the errors that no wait has raised yet."""
        finished = True
        for (ctx, _), runner in list(self.runners.items()):
            try:
                finished = runner.finish(deadline) and finished
            except MXNetError as problem:
                with self.lock:
                    self.reports.add(Failure(str(ctx), None, problem), self._sequence, keep=True)
        return finished

    def _stand_for_room(self, task: Task) -> None:
        """Block until the bound admits `task`."""
        while True:
            with core.lock:
                self.budget.drain()
                if self.budget.admits(task):
                    return
                opened = _make_shut_lock(self.room_locks)
            self._run_ready()
            block(opened)

    def _block(self, lock: threading.Lock, deadline: float | None = None) -> bool:
        """`block`; an engine without threads of its own runs tasks meanwhile."""
        return block(lock, deadline)

    # -- counts, bounds, ends ---------------------------------------------------------------------

    @property
    def workers(self) -> int:
        """Number of threads that may run tasks of the CPU."""
        return 1

    def stats(self) -> Stats:
        """A snapshot of the counts."""
        with self.lock:
            self.budget.drain()
            pending = len(self.pending) + len(self._deferred)
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
            open_all(self.room_locks)

    def cancel_pending(self) -> int:
        """Drop the tasks that have not begun; waits on their results raise "cancelled". Returns
        how many tasks were dropped."""
        site = callsite.find()
        with self.lock:
            return self._cancel_all(site)

    def _cancel_all(self, site: Site | None) -> int:
        count = 0
        for task in self.pending - self.running:
            if task.cancelled is None:
                problem = MXNetError(f"{task.name}: cancelled before it ran")
                task.cancelled = Failure(task.name, task.site or site, problem)
                count += 1
        return count

    def after_fork(self) -> None:
        """In a forked child, which has no workers: fail all pending tasks and begin anew."""
        for task in (*self.pending, *self.wait_requests):
            for var in (*task.shared, *task.writes):
                core.forget(var)
        for task in self.pending:
            self.budget.unpin(task)
            problem = MXNetError(
                f"{task.name}: pending at fork; only the parent process computes it"
            )
            failure = Failure(task.name, task.site, problem)
            failure.interrupt = True  # the parent may have been running it
            self._fail(task, failure, ran=False)
        sequence = self._sequence
        self._begin_anew()
        self._sequence = sequence

    def reset_lanes(self) -> None:
        """The devices or the numbers of workers have changed; see `worker_pools`."""

    def stop(self) -> None:
        """Let the workers end when no task is left; for engines made by `engine.use`."""

    def end(self) -> None:
        """The process ends: end the workers; threads that push or wait run the tasks."""

    def unwind(self) -> None:
        """The process ends with tasks pending: stop those that run."""


class NaiveEngine(Engine):
    """The serial engine: every task runs at its push, on the caller's thread, in program order. A
    task pushed by a task runs after it.

    Same interface, same rules, same results to the bit; nothing overlaps. The tests use it as their
    oracle and readers as their debugger: a breakpoint or a traceback is at the line that issued the
    work. Errors are still raised by waits, as on the other engines.
    """

    kind = "naive"

    def __init__(self, limit: int | None = None):
        super().__init__(0.0, limit)

    def _begin_anew(self) -> None:
        super()._begin_anew()
        self._ready: deque[Task] = deque()
        self._serial = threading.RLock()

    def push(self, task: Task) -> None:
        if self._is_for_later(task):
            return
        task.site = task.site or callsite.find()
        task.prepare()
        with self._serial:
            self._enter(task)
            self._run_ready()

    def _run_ready(self) -> None:
        with self._serial:
            self._run_queue()

    def _run_queue(self) -> None:
        while self._ready and not self.running:
            task = self._ready[0]
            if task in self.pending:
                self._run_here(task)
            if self._ready and self._ready[0] is task:
                self._ready.popleft()

    def _hand_out(self, task: Task) -> None:
        self._ready.append(task)

    def _dispatched(self) -> set[Task]:
        return set(self._ready)


def _interrupt() -> None:
    """Call this thread's function in `interrupts`, if it has one."""
    ask = interrupts.get(threading.get_ident())
    if ask is not None:
        ask()


def _nothing() -> None:
    """The `get` of a wait that needs no value; also the `block` of a wait for a free Var."""


def _make_shut_lock(locks: list[threading.Lock]) -> threading.Lock:
    """A locked lock to block on, appended to `locks`, which another thread will open."""
    lock = threading.Lock()
    lock.acquire()
    locks.append(lock)
    return lock


def block(lock: threading.Lock, deadline: float | None = None) -> bool:
    """Wait for another thread to open `lock`; False at the deadline. Ctrl-C and the thread's
    function in `interrupts` can end the wait."""
    while True:
        if interrupts:
            _interrupt()
        left = _PATIENCE_S if deadline is None else min(deadline - time.monotonic(), _PATIENCE_S)
        if left <= 0:
            return False
        if lock.acquire(timeout=left):
            return True
        if sys.is_finalizing():  # no other thread runs any more
            raise MXNetError("the process ended before the awaited work was done")

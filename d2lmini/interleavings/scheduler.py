"""One run of a program under a scheduler that decides which thread takes the next step.

Every thread of the program is a thread of the operating system, but only one runs at a time. Each
blocks on a lock of its own, `turn`, until its turn comes. A thread that comes to an operation
(`step`) announces the operation, and the run chooses the thread that goes on. A step is the
operation that was announced and the code after it, up to the thread's next operation.

An operation is enabled if it would not block. If no operation is enabled, the virtual clock jumps
to the next deadline of a sleep or a timeout; if there is none, all threads are blocked for ever and
the run has failed. With timers="any" a sleep or a timeout may also end while others could run.

The default order goes on with the thread that ran last, and when that thread blocks or ends, with
the next one by number. So a schedule is known by its deviations from the default order. Each is a
`Choice`: after the n-th step of a thread, another thread goes on.
"""

from __future__ import annotations

import _thread
import ctypes
import gc
import logging
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from itertools import count
from typing import Any

from d2lmini.interleavings.failures import (
    Failure,
    describe_block,
    describe_error,
    describe_hang,
    describe_no_end,
)  # fmt: skip
from d2lmini.interleavings.records import Bounds, Choice, Operation, Step, Uses
from d2lmini.interleavings.sites import Site, find_site, site_of

#: A thread that could have taken so many steps since its last one takes the next: under every
#: schedule, a loop that polls lets the thread run that it waits for.
FAIR_STEPS = 100
#: The thread that explores looks so often whether a run has passed its time.
LOOK_S = 0.5
#: A thread of a run that is over gets so long to end.
END_S = 1.0
#: ... and may do so many operations meanwhile that do not block.
LATE_STEPS = 100
#: The key of the virtual clock.
CLOCK = ("clock",)

monotonic, allocate_lock = time.monotonic, _thread.allocate_lock


class Ended(BaseException):
    """Ends a thread whose run is over."""


class TimeIsUp(Exception):
    """The time for all runs has passed."""


class ControlledThread:
    """A thread of the program."""

    def __init__(self, run: Run, thread: threading.Thread, work: Callable[[], object]):
        self.run = run
        self.number = len(run.threads)
        self.thread: Any = thread
        self.name = thread.name
        self.daemon = thread.daemon
        self.work = work
        self.turn = allocate_lock()
        self.turn.acquire()
        self.gone = allocate_lock()
        self.gone.acquire()
        self.steps = self.late_steps = 0
        self.made = count()
        self.born = 0  # the number of the step that started the thread
        self.holds: list[Any] = []
        self.finished = False
        self.key, self.life = ("thread", self.number), ("daemon", self.number)
        self.ident = 0
        self.waited = 0  # so many steps could have been its own since its last one
        self.since = 0  # the number of steps of the run when the operation was announced
        self.pending: Operation | None = None
        thread._controlled = self  # type: ignore[attr-defined]
        thread._started.set()  # type: ignore[attr-defined]

    def __str__(self) -> str:
        return self.name

    def step(
        self,
        what: str,
        target: Any,
        ready: Callable[[bool], bool] | None = None,
        timeout: float | None = None,
        uses: Uses | None = None,
        site: Site | None = None,
    ) -> Step:
        """Announce an operation on `target`; returns when the scheduler lets this thread do it.

        ready(late) tells whether the operation would not block; `late` is True if its time is up.
        """
        run = self.run
        if run.over:
            # A finalizer or `finally` may tidy up; what would block, or does not end, is ended.
            self.late_steps += 1
            if self.late_steps > LATE_STEPS or (ready is not None and not ready(False)):
                raise Ended
            site = run.trace[0].operation.site
            return Step(self, Operation(what, target, (), None, None, site), run)
        deadline = None
        if uses is None:
            uses = ((target.key, True),)
        if timeout is not None:
            deadline = run.now + timeout
            if run.any_time:  # the clock was read just now; the operation may set it
                run.trace[-1].uses += ((CLOCK, False),)
                uses += ((CLOCK, True),)
        self.pending = Operation(what, target, uses, ready, deadline, site or find_site())
        self.since = len(run.trace)
        chosen = run.hand_on()
        if chosen is not self:
            if chosen is not None:
                chosen.turn.release()
            self.turn.acquire()
            if run.over:
                raise Ended
        return run.trace[-1]

    def begin(self) -> None:
        """Start the thread of the operating system; it waits for its first turn."""
        function = getattr(self.thread, "_target", None) or self.work
        site = site_of(function)
        self.pending = Operation("begins", self, ((self.key, False),), None, None, site)
        self.since = len(self.run.trace)
        _thread.start_new_thread(self._run_work, ())

    def _run_work(self) -> None:
        thread_state.thread = self
        self.ident = threading.get_ident()
        threading._active[self.ident] = self.thread  # type: ignore[attr-defined]
        self.thread._ident = self.ident
        self.turn.acquire()
        failure = None
        try:
            if not self.run.over:
                if self.run.bounds.tracer is not None:
                    sys.settrace(self.run.bounds.tracer)
                self.work()
        except (Ended, SystemExit):
            failure = None
        except BaseException as error:
            failure = describe_error(self, error)
        sys.settrace(None)
        threading._active.pop(self.ident, None)  # type: ignore[attr-defined]
        thread_state.thread = None
        _mark_ended(self.thread)
        try:
            self._leave(failure)
        finally:
            self.gone.release()

    def _leave(self, failure: Failure | None) -> None:
        run = self.run
        self.finished = True
        self.pending = None
        if run.over:
            return
        run.trace[-1].uses += ((self.key, True),)
        if not self.daemon:
            run.unfinished -= 1
            # The run may be over with this step: it must not be exchanged with a daemon's step.
            daemons = [thread for thread in run.threads if thread.daemon]
            run.trace[-1].uses += tuple([(thread.life, False) for thread in daemons])
        if failure is not None:
            run.stop(failure)
            return
        chosen = run.hand_on()
        if chosen is not None:
            chosen.turn.release()


def _mark_ended(thread: Any) -> None:
    """Let other threads' `join` return: an executor's threads are joined at the process's end."""
    thread._is_stopped = True
    for name in "_handle", "_os_thread_handle":  # Python 3.13, 3.14
        if hasattr(thread, name):
            handle = _thread._make_thread_handle(thread.ident)  # type: ignore[attr-defined]
            handle._set_done()
            setattr(thread, name, handle)


class _ThreadState(threading.local):
    thread: ControlledThread | None = None


thread_state = _ThreadState()


def current() -> ControlledThread | None:
    """The controlled thread that calls; None for all other threads of the process."""
    return thread_state.thread


class Run:
    """One execution of `program`; `choose(run, enabled, default)` picks the next thread, or None to
    give the run up.

    threads  by number; 0 runs the program
    trace    the steps taken so far
    failure  None, or what went wrong
    value    what the program returned
    """

    def __init__(
        self,
        program: Callable[[], object],
        choose: Callable[[Run, list[ControlledThread], ControlledThread], Any],
        bounds: Bounds,
    ):
        self.program = program
        self.choose = choose
        self.bounds = bounds
        self.any_time = bounds.timers == "any"
        self.threads: list[ControlledThread] = []
        self.trace: list[Step] = []
        self.failure: Failure | None = None
        self.value: object = None
        self.over = False
        self.cut = False
        self.made: Counter[tuple[Site, str]] = Counter()  # objects, by line and class
        self.announced: dict[int, Operation] = {}  # by thread, what it was about to do at the end
        self.unfinished = 1
        self.now = 0.0
        self.epoch = 0
        self.hashes = 0
        self.is_forced = False  # does a thread take this step because it has waited for long?
        self._done = allocate_lock()
        self._done.acquire()

    # -- on the thread that explores --------------------------------------------------------------

    def go(self) -> Run:
        """Run the program to its end, to a failure or to a bound."""
        main = ControlledThread(
            self, threading.Thread(None, self.program, "main", daemon=False), self._program
        )
        self.threads.append(main)
        collects = gc.isenabled()
        gc.disable()  # a finalizer at an arbitrary step would differ from run to run
        try:
            main.begin()
            self._begin_main(main)
            self._watch()
        finally:
            self.over = True
            self._end_threads()
            if collects:
                gc.enable()
        return self

    def _program(self) -> None:
        self.value = self.program()

    def _begin_main(self, main: ControlledThread) -> None:
        operation = main.pending
        assert operation is not None, "a thread begins with an operation"
        main.pending = None
        main.steps = 1
        step = Step(main, operation, self)
        step.enabled = (0,)
        self.trace.append(step)
        main.turn.release()

    def _watch(self) -> None:
        """Wait for the end; fail if no step ends for long. TimeIsUp at the deadline."""
        steps, since, patience_s = 0, monotonic(), self.bounds.patience_s
        while not self._done.acquire(timeout=min(patience_s, LOOK_S)):
            now = monotonic()
            if len(self.trace) != steps:
                steps, since = len(self.trace), now
            elif now - since >= patience_s:
                self.failure = describe_hang(self)
                return
            if now > self.bounds.deadline:
                raise TimeIsUp

    def _end_threads(self) -> None:
        """End the threads that are left, one after the other."""
        log = logging.getLogger("concurrent.futures")
        log.disabled = True  # an executor's thread logs the exception that ends it
        try:
            for thread in self.threads:
                self._end_thread(thread)
        finally:
            log.disabled = False

    def _end_thread(self, thread: ControlledThread) -> None:
        if not thread.finished and thread.turn.locked():
            thread.turn.release()
        if thread.gone.acquire(timeout=END_S):
            return
        ctypes.pythonapi.PyThreadState_SetAsyncExc(
            ctypes.c_ulong(thread.ident), ctypes.py_object(Ended)
        )
        if not thread.gone.acquire(timeout=END_S) and self.failure is None:
            self.failure = describe_hang(self)

    # -- on the thread that runs ------------------------------------------------------------------

    def hand_on(self) -> ControlledThread | None:
        """Choose the thread that takes the next step, and record the step; None if the run is over.

        Called by the thread that runs, which then releases `turn` of the chosen one."""
        if not self.unfinished:
            self.stop(None)
            return None
        enabled = self._enabled()
        while not enabled:
            if not self._jump():
                self.stop(describe_block(self))
                return None
            enabled = self._enabled()
        if len(self.trace) >= self.bounds.steps:
            self.stop(describe_no_end(self))
            return None
        before = self.trace[-1].thread
        enabled = self._limit_waiting(enabled)
        default = self._default(before, enabled)
        chosen: ControlledThread | None = default
        try:
            chosen = self.choose(self, enabled, default)
        except BaseException as error:
            self.stop(Failure("exploration", str(error), error))
            return None
        if chosen is None:
            self.cut = True
            self.stop(None)
            return None
        self._record(chosen, enabled, default, before)
        return chosen

    def _record(
        self,
        chosen: ControlledThread,
        enabled: list[ControlledThread],
        default: ControlledThread,
        before: ControlledThread,
    ) -> None:
        operation, chosen.pending = chosen.pending, None
        assert operation is not None, "only a thread with an operation is enabled"
        deadline = operation.deadline
        if deadline is not None and self.any_time and deadline > self.now:
            ready = operation.ready
            if ready is None or not ready(False):
                self.now = deadline
        chosen.steps += 1
        chosen.waited = 0
        step = Step(chosen, operation, self)
        step.enabled = tuple([thread.number for thread in enabled])
        step.after = before.number, before.steps - (chosen is before)
        step.default = default.number
        step.preempts = default is before and chosen is not before
        if chosen.daemon:
            step.uses += ((chosen.life, True),)
        self.trace.append(step)

    def _enabled(self) -> list[ControlledThread]:
        now, any_time = self.now, self.any_time
        enabled = []
        for thread in self.threads:
            operation = thread.pending
            if operation is None:
                continue
            ready, deadline = operation.ready, operation.deadline
            late = deadline is not None and (any_time or deadline <= now)
            if ready is None or ready(late):
                enabled.append(thread)
        return enabled

    def _limit_waiting(self, enabled: list[ControlledThread]) -> list[ControlledThread]:
        """Of the threads that could take the next step, those that may be chosen."""
        longest = max(enabled, key=lambda thread: thread.waited)
        self.is_forced = longest.waited >= FAIR_STEPS
        for thread in enabled:
            thread.waited += 1
        return [longest] if self.is_forced else enabled

    def _jump(self) -> bool:
        """Set the clock to the next deadline; False if there is none."""
        deadlines = [
            thread.pending.deadline
            for thread in self.threads
            if thread.pending is not None
            and thread.pending.deadline is not None
            and thread.pending.deadline > self.now
        ]
        if not deadlines:
            return False
        self.now = min(deadlines)
        self.epoch += 1
        return True

    def _default(
        self, before: ControlledThread, enabled: list[ControlledThread]
    ) -> ControlledThread:
        operation = before.pending
        stays = operation is not None and operation.what != "yields"
        if stays and before in enabled:
            return before
        for thread in enabled:
            if thread.number > before.number:
                return thread
        return enabled[0]

    def stop(self, failure: Failure | None) -> None:
        """End the run."""
        self.failure = failure
        self.announced = {t.number: t.pending for t in self.threads if t.pending is not None}
        self.over = True
        self._done.release()

    # -- what happened ----------------------------------------------------------------------------

    @property
    def choices(self) -> tuple[Choice, ...]:
        """The deviations from the default order: the schedule."""
        return tuple(
            Choice(*step.after, step.thread.number)
            for step in self.trace
            if step.thread.number != step.default
        )

    @property
    def preemptions(self) -> int:
        """How often a thread was interrupted that could have gone on."""
        return sum(step.preempts for step in self.trace)

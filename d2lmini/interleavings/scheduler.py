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

import ctypes
import gc
import logging
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from d2lmini.interleavings.controlled import ControlledThread, Ended, allocate_lock
from d2lmini.interleavings.failures import (
    Failure,
    describe_block,
    describe_hang,
    describe_no_end,
)
from d2lmini.interleavings.records import Bounds, Choice, Operation, Step
from d2lmini.interleavings.sites import Site

#: A thread that could have taken so many steps since its last one takes the next: under every
#: schedule, a loop that polls lets the thread run that it waits for.
FAIR_STEPS = 100
#: The thread that explores looks so often whether a run has passed its time.
LOOK_S = 0.5
#: A thread of a run that is over gets so long to end.
END_S = 1.0
#: The real one: `time.monotonic` is replaced while programs run.
monotonic = time.monotonic


class TimeIsUp(Exception):
    """The time for all runs has passed."""


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

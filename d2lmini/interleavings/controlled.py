"""A thread of a program under the scheduler: it announces each operation and waits for its turn."""

from __future__ import annotations

import _thread
import sys
import threading
from collections.abc import Callable
from itertools import count
from typing import TYPE_CHECKING, Any

from d2lmini.interleavings.failures import Failure, describe_error
from d2lmini.interleavings.records import Operation, Step, Uses
from d2lmini.interleavings.sites import Site, find_site, site_of

if TYPE_CHECKING:
    from d2lmini.interleavings.scheduler import Run

#: The real one: `threading.Lock` is replaced while programs run.
allocate_lock = _thread.allocate_lock
#: A thread of a run that is over may do so many more operations, if they do not block.
LATE_STEPS = 100
#: The key of the virtual clock.
CLOCK = ("clock",)


class Ended(BaseException):
    """Ends a thread whose run is over."""


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

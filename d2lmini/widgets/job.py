"""A function that runs beside the notebook, and can be asked to stop.

    job = Job(lambda job: train(net), over=print)
    job.start()             # on a thread of its own; `run()`: here and now
    job.cancel()            # it ends at its next wait, yield or report of progress
    job.join()

No thread is ever killed. `cancel` leaves a mark; the job's own thread looks for it at every wait of
the engine, in the waits too (`engine.road.interrupts`), and raises `Cancelled` there, as Ctrl-C
would on the main thread: the engine is as usable afterwards as after Ctrl-C. What the function had
pushed by then is done to its end, so that what it changed, a net's parameters say, keeps its
values; to be asked a second time drops what has not begun, and whoever reads its results gets
"cancelled".

>>> from d2lmini.widgets.job import Job
>>> job = Job(lambda job: [job.progress(i, 3) for i in range(3)] and "done")
>>> job.run()
'done'
>>> job.state, job.done, job.total
('done', 2, 3)
"""

from __future__ import annotations

import atexit
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Sized
from typing import Any

from d2lmini import callsite, engine
from d2lmini.base import MXNetError
from d2lmini.engine.failure import listed
from d2lmini.engine.road import interrupts

#: The thread's name. It pushes, so it is none of the engine's own, which begin with "d2lmini-".
NAME = "experiment"

_started: weakref.WeakSet[Job] = weakref.WeakSet()


class Cancelled(BaseException):
    """Ends a job where it waits. No Exception: what a program does about its errors is not meant
    for it."""


class Job:
    """One run of `function(job)`; `over(job)` is called at its end, on the same thread.

    state      "new", "running", then "done", "failed" or "cancelled"
    result     what the function returned, once it is done
    problem    of one that failed: what was raised, and at which of the user's lines, as text
    done, total    how far it says it is; total is None where it does not know
    begin_s, elapsed_s    when it began (`time.perf_counter`), and how long it took until all that
                          it had pushed was computed
    """

    def __init__(
        self, function: Callable[[Job], Any], over: Callable[[Job], object] | None = None
    ) -> None:
        self.function = function
        self.over = over
        self.state = "new"
        self.result: Any = None
        self.problem = ""
        self.done: float = 0
        self.total: float | None = None
        self.begin_s = 0.0
        self.elapsed_s = 0.0
        self._asked = 0  # how often to stop,
        self._heard = 0  # how many of which its thread knows of
        self._thread: threading.Thread | None = None
        self._gone = threading.Event()

    # -- asked from outside, on any thread ---------------------------------------------------------

    @property
    def alive(self) -> bool:
        """Is somebody at work for it? In a forked child nobody is."""
        return self._thread is not None and self._thread.is_alive() and not self._gone.is_set()

    def enter(self) -> None:
        """This thread is at work for it, until it has one of its own (`start`)."""
        self._thread = threading.current_thread()
        self.begin_s = time.perf_counter()
        self.state = "running"

    def leave(self) -> None:
        """Nobody is at work for it any more."""
        self._gone.set()

    @property
    def stopping(self) -> bool:
        """Was it asked to end?"""
        return self._asked > 0

    def cancel(self) -> None:
        """Ask it to end. Asked again: drop what it has pushed and what has not begun."""
        self._asked += 1

    def join(self, timeout_s: float | None = None) -> bool:
        """Wait until it is over, and its thread has ended; False at the timeout."""
        thread = self._thread
        if thread is not None and thread.name == NAME and thread is not threading.current_thread():
            thread.join(timeout_s)
        elif self.alive:
            self._gone.wait(timeout_s)
        return not self.alive

    # -- running -----------------------------------------------------------------------------------

    def start(self) -> None:
        """Run on a thread of its own; what is raised there becomes `problem`."""
        self.enter()
        _started.add(self)
        self._thread = threading.Thread(target=self._run_kept, name=NAME, daemon=True)
        self._thread.start()

    def run(self) -> Any:
        """Run on this thread, give the result; what is raised passes through."""
        self.enter()
        try:
            return self._call(engine.waitall)
        finally:
            self.leave()

    def _call(self, settle: Callable[[], object]) -> Any:
        mine = threading.get_ident()
        before, interrupts[mine] = interrupts.get(mine), self.check
        try:
            self.result = self.function(self)
            settle()
            self.state = "done"
        except Exception:
            self.state = "cancelled" if self._heard else "failed"
            raise
        except BaseException:
            self.state = "cancelled"
            raise
        finally:
            self.elapsed_s = time.perf_counter() - self.begin_s
            interrupts.pop(mine, None)
            if before is not None:
                interrupts[mine] = before
        return self.result

    def _run_kept(self) -> None:
        try:
            self._call(_settle)
        except BaseException as problem:
            if self.state == "failed":
                self.problem = told(problem)
        # Not above: as long as the error is handled, its frames hold the function's arrays.
        if self.state != "done":
            self._finish()
        try:
            if self.over is not None:
                self.over(self)
        finally:
            self.leave()

    def _finish(self) -> None:
        """It ended before its time. Wait for what it has pushed, so that the next run begins with
        an idle engine, unless that takes too long for who asks a third time: another thread may
        push on and on."""
        interrupts[threading.get_ident()] = self._drop
        try:
            while self._asked < 3 and not engine.current.wait_idle("experiment", 0.1):
                continue
        finally:
            interrupts.pop(threading.get_ident(), None)
        also = _failures()
        if also:
            self.problem = "\n".join(filter(None, (self.problem, f"also failed: {also}")))

    # -- asked on its own thread -------------------------------------------------------------------

    def check(self) -> None:
        """At waits. Asked to end: raise Cancelled, once, for what cleans up may wait; asked again,
        drop what has not begun."""
        if self._asked != self._heard:
            first = self._heard == 0
            self._drop()
            if first:
                raise Cancelled

    def _drop(self) -> None:
        if self._asked > max(1, self._heard):
            engine.cancel_pending()
        self._heard = self._asked

    def progress(self, done: Any, total: float | None = None) -> Any:
        """Say how far it is: `progress(3, 10)`, or `for x in progress(xs)`. Raises Cancelled."""
        if isinstance(done, Iterable):
            return self._each(done)
        self.done, self.total = done, total
        self.step()
        return None

    def _each(self, items: Iterable[Any]) -> Iterator[Any]:
        self.done, self.total = 0, len(items) if isinstance(items, Sized) else None
        for item in items:
            self.step()
            yield item
            self.done += 1
        self.step()

    def step(self) -> None:
        """Raise Cancelled if it has been asked to end."""
        if self._asked:
            self._drop()
            raise Cancelled


def _settle() -> None:
    """Wait for everything; MXNetError for what failed, also if nobody can see its results any
    more: a warning, as `waitall` would give, is lost on a thread."""
    engine.current.wait_idle("experiment")
    problem = _failures()
    if problem:
        raise MXNetError(problem)


def _failures() -> str:
    """What no wait has reported yet, in words."""
    with engine.current.lock:
        failures, dropped = engine.current.untold()
    reports = sorted([*(each.report for each in failures), *dropped], key=lambda each: each.order)
    return listed([each.summary() for each in reports])


def told(error: BaseException) -> str:
    """An error as text: what it says, and the user's lines that led there, the innermost first."""
    lines = [f"{type(error).__name__}: {error}"]
    for word, site in zip(_words(), reversed(callsite.raised_at(error))):
        lines.append(f"  {word} {callsite.describe(site)}")
    return "\n".join(lines)


def _words() -> Iterator[str]:
    yield "at"
    while True:
        yield "called from"


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=interrupts.clear)


@atexit.register
def _stop_all() -> None:
    """At the end of the process: ask those that run to end, and give them a moment."""
    running = [job for job in _started if job.alive]
    for job in running:
        job.cancel()
        job.cancel()
    for job in running:
        job.join(2)

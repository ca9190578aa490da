"""A function that runs in the background of a notebook, and can be cancelled.

    job = BackgroundJob(lambda: train(net), over=print)
    job.start()             # on its own thread
    job.cancel()            # the job ends at its next wait
    job.join()

No thread is ever killed. `cancel` sets a flag; the job's own thread checks the flag at and during
every wait of the engine (`engine.scheduler.interrupts`), and raises `Cancelled` there, as Ctrl-C
would on the main thread: the engine is as usable afterwards as after Ctrl-C. Tasks already pushed
run to their end, so that the state they change, such as a net's parameters, keeps valid values; a
second `cancel` drops the tasks that have not begun, and reading their results raises "cancelled".

A notebook shows what a job prints on its own thread in the cell that is running at that time.

>>> from d2lmini.widgets.background_job import BackgroundJob
>>> job = BackgroundJob(lambda: 6 * 7)
>>> job.start()
>>> job.join()
>>> job.result, job.state
(42, 'done')
"""

from __future__ import annotations

import atexit
import threading
import time
from collections.abc import Callable
from typing import Any

from d2lmini import engine
from d2lmini.base import callsite, forks
from d2lmini.engine.scheduler import interrupts

#: The thread's name. The thread pushes, so its name lacks the engine threads' prefix "d2lmini-".
NAME = "dial"


class Cancelled(BaseException):
    """Ends a job at its wait. Not an Exception, so that a program's error handlers do not catch
    it."""


class BackgroundJob(threading.Thread):
    """One run of `function()`; `over(job)` is called at its end, on the same thread.

    state      "running", then "done", "failed" or "cancelled"
    result     the function's result, once the job is done
    problem    of a failed job: the error, and the user's line that raised it, as text
    begin_s, elapsed_s    when it began (`time.perf_counter`), and how long it took until all its
                          pushed tasks were computed
    """

    def __init__(
        self,
        function: Callable[[], Any],
        over: Callable[[BackgroundJob], object] | None = None,
    ) -> None:
        super().__init__(name=NAME, daemon=True)
        self.function = function
        self.over = over
        self.state = "running"
        self.result: Any = None
        self.problem = ""
        self.begin_s = time.perf_counter()
        self.elapsed_s = 0.0
        self._asked = 0  # cancel requests so far,
        self._heard = 0  # and how many of them the job's thread has seen

    @property
    def alive(self) -> bool:
        """True while the function runs, or what it has pushed; False in a forked child."""
        return self.state == "running" and self.is_alive()

    @property
    def stopping(self) -> bool:
        """True if the job was cancelled."""
        return self._asked > 0

    def cancel(self) -> None:
        """Cancel the job. A second call drops the tasks that it has pushed and that have not
        begun."""
        self._asked += 1

    # -- on its own thread -------------------------------------------------------------------------

    def run(self) -> None:
        state, mine = "done", threading.get_ident()
        interrupts[mine] = self.check
        try:
            self.result = self.function()
            engine.waitall()
        except BaseException as problem:
            state = "cancelled"
            if isinstance(problem, Exception) and not self._heard:
                state, self.problem = "failed", describe_error(problem)
        self.elapsed_s = time.perf_counter() - self.begin_s
        # After the handler: while the error is handled, its frames keep the function's arrays
        # alive. After an early end, wait for the tasks that the job has pushed, so that the next
        # run begins with an idle engine. A third `cancel` ends the wait, because another thread may
        # push forever.
        interrupts[mine] = self._drop
        while state != "done" and self._asked < 3 and not engine.current.wait_idle("cancel", 0.1):
            continue
        interrupts.pop(mine, None)
        self.state = state
        if self.over is not None:
            self.over(self)

    def check(self) -> None:
        """Called at waits. After a `cancel` raise Cancelled, once, because cleanup code may wait;
        after a second one, drop the tasks that have not begun."""
        if self._asked != self._heard:
            first = self._heard == 0
            self._drop()
            if first:
                raise Cancelled

    def _drop(self) -> None:
        if self._asked > max(1, self._heard):
            engine.cancel_pending()
        self._heard = self._asked


def describe_error(error: BaseException) -> str:
    """An error as text: its message, and the user's lines that led there, the innermost first."""
    lines = [f"  at {callsite.describe(site)}" for site in callsite.lines_of_error(error)]
    return "\n".join([f"{type(error).__name__}: {error}", *reversed(lines)])


forks.at_fork(after_in_child=interrupts.clear)


@atexit.register
def _stop_all() -> None:
    """At exit of the process: cancel the running jobs, and give them a moment."""
    running = [thread for thread in threading.enumerate() if isinstance(thread, BackgroundJob)]
    for job in running:
        job.cancel()
        job.cancel()
    for job in running:
        job.join(2)

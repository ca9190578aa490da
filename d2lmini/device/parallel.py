"""One operation over several cores: idle workers share its pieces.

The worker that runs an operation cuts it (`parallel_for`) and works through the pieces; idle
workers help, including those that become idle while pieces are left; if all are busy, the worker
does everything itself. So cores are never oversubscribed, and the same few threads serve several
operations at once as well as one large operation. A piece may be cut further: the thread that waits
for the piece helps with the smaller ones.

The cut must depend on sizes only, never on the number of helpers: then results do not depend on
the schedule. NumPy releases the interpreter lock inside a call, but getting the lock back costs a
wake-up; pieces of about 256k elements (a quarter of a millisecond) are the smallest that gain.

>>> from d2lmini.device.parallel import parallel_for
>>> done = []
>>> parallel_for(3, done.append)
>>> sorted(done)
[0, 1, 2]
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from queue import SimpleQueue
from typing import Any

from d2lmini import engine
from d2lmini.base import instrument
from d2lmini.device.errstate import run_quietly
from d2lmini.engine.scheduler import thread_state

#: Elements per piece of an elementwise operation.
GRAIN = 1 << 18


def parallel_for(
    n: int, body: Callable[[int], Any], whole: Callable[[], Any] | None = None
) -> None:
    """Run body(0) ... body(n - 1), in any order, perhaps in parallel; return when all are done.

    The first exception of a piece is raised after the others have ended. `whole` does the work of
    all pieces in one call, with the same bits; it is called when no other thread can help.
    """
    # A cut within a piece belongs to the piece.
    if n < 2 or thread_state.cut or not instrument.listeners:
        _run_pieces(n, body, whole)
        return
    begin_ns = engine.current.clock()
    try:
        thread_state.cut = True
        own, over_ns = _run_pieces(n, body, whole)
    finally:
        thread_state.cut = False
    instrument.emit("share", thread_state.task, n, begin_ns, own, over_ns, whole is None)


def _run_pieces(
    n: int, body: Callable[[int], Any], whole: Callable[[], Any] | None
) -> tuple[int, int]:
    """The number of pieces this thread took itself, and when the last of those was over."""
    current = engine.current
    job = _ParallelJob(n, body)
    called = current.helpers(n - 1, job, late=whole is None) if n > 1 else None
    if whole is not None and not called:
        whole()
        return n, current.clock()
    if called is None:
        for i in range(n):
            body(i)
        return n, current.clock()
    try:
        job.tell()
        own = job.work()
        over_ns = current.clock()
        while (other := job.news.get()) is not None:
            other.work()
    finally:
        current.end_sharing(job)
        # A helper that wakes late finds no piece; it must not keep the arrays alive.
        if job.is_over:
            del job.body
    problem, job.problem = job.problem, None
    if problem is not None:
        try:
            raise problem
        finally:
            del problem  # its traceback names this frame: a cycle that would keep arrays alive
    return own, over_ns


class _ParallelJob:
    """The pieces of one operation, and how many are done.

    taken  no pieces are left to take; is_over: all are done
    outer  the job whose piece began this one
    news   for the thread that waits for all pieces: jobs begun in the pieces, with which it can
           help; None when all are done

    A waiting thread takes pieces only from the job it waits for, so there is no deadlock.
    """

    __slots__ = ("body", "finished", "is_over", "n", "news", "numbers", "outer", "problem", "taken")

    def __init__(self, n: int, body: Callable[[int], Any]):
        self.n = n
        self.body = body
        self.numbers = count()  # next() on it is atomic
        self.finished = count(1)
        self.news: SimpleQueue[_ParallelJob | None] = SimpleQueue()
        self.outer: _ParallelJob | None = thread_state.job
        self.problem: BaseException | None = None
        self.taken = False
        self.is_over = False

    def tell(self) -> None:
        """Offer this job to the threads that wait for the piece in which it began."""
        outer = self.outer
        while outer is not None:
            outer.news.put(self)
            outer = outer.outer

    def work(self) -> int:
        """Take pieces until none is left; returns how many."""
        mine = 0
        before, thread_state.job = thread_state.job, self
        try:
            for i in self.numbers:
                if i >= self.n:
                    self.taken = True
                    break
                mine += 1
                try:
                    run_quietly(self.body, i)
                except BaseException as problem:
                    self.problem = self.problem or problem
                if next(self.finished) == self.n:
                    self.is_over = True
                    self.news.put(None)
        finally:
            thread_state.job = before
        return mine

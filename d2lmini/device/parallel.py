"""One operation over several cores: pieces of it shared among workers that have nothing to do.

The worker that runs an operation cuts it (`parallel_for`), works through the pieces, and idle
workers help, also those that become idle while there are pieces left; if all are busy it does
everything itself. So cores are never oversubscribed, and several operations at once and one large
operation are served by the same few threads. A piece may be cut further: whoever waits for it helps
with what it has cut.

The cut must depend on sizes only, never on who helps: then results do not depend on the schedule.
NumPy lets go of the interpreter inside a call, but taking it back costs a wake-up; pieces of
about 256k elements (a quarter of a millisecond) are the smallest that gain.

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

from d2lmini import engine, instrument
from d2lmini.device.quiet import run_quietly
from d2lmini.engine.road import here

#: Elements per piece of an elementwise operation.
GRAIN = 1 << 18


def parallel_for(
    n: int, body: Callable[[int], Any], whole: Callable[[], Any] | None = None
) -> None:
    """Run body(0) ... body(n - 1), in any order, perhaps at once; return when all are done.

    The first exception of a piece is raised after the others have ended. `whole` does the work of
    all pieces in one call, to the bit; it is called when nobody is there to share with.
    """
    if n < 2 or here.cut or not instrument.listeners:  # what is cut within a piece is part of it
        _run_pieces(n, body, whole)
        return
    begin_ns = engine.current.clock()
    try:
        here.cut = True
        own, over_ns = _run_pieces(n, body, whole)
    finally:
        here.cut = False
    instrument.emit("share", here.task, n, begin_ns, own, over_ns, whole is None)


def _run_pieces(
    n: int, body: Callable[[int], Any], whole: Callable[[], Any] | None
) -> tuple[int, int]:
    """How many pieces this thread took itself, and when the last of those was over."""
    current = engine.current
    job = _Job(n, body)
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
        current.shared(job)
        # A helper that wakes late finds nothing to do; it is not to keep the arrays alive.
        if job.is_over:
            del job.body
    problem, job.problem = job.problem, None
    if problem is not None:
        try:
            raise problem
        finally:
            del problem  # its traceback names this frame: a circle that would keep arrays alive
    return own, over_ns


class _Job:
    """Pieces not yet taken, and how many are done.

    taken  there are none left to take; is_over: all are done
    outer  the job in a piece of which this one was begun
    news   for the thread that waits for all pieces: jobs that were begun in them, where it can
           help; None when all are done

    Who waits helps with nothing but what it waits for. So nobody waits for a thread that waits.
    """

    __slots__ = ("body", "finished", "is_over", "n", "news", "numbers", "outer", "problem", "taken")

    def __init__(self, n: int, body: Callable[[int], Any]):
        self.n = n
        self.body = body
        self.numbers = count()  # next() on it is atomic
        self.finished = count(1)
        self.news: SimpleQueue[_Job | None] = SimpleQueue()
        self.outer: _Job | None = here.job
        self.problem: BaseException | None = None
        self.taken = False
        self.is_over = False

    def tell(self) -> None:
        """Tell those who wait for the piece in which this was begun."""
        outer = self.outer
        while outer is not None:
            outer.news.put(self)
            outer = outer.outer

    def work(self) -> int:
        """Take pieces until none is left; how many it were."""
        mine = 0
        before, here.job = here.job, self
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
            here.job = before
        return mine

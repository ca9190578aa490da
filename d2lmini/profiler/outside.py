"""What a trace records of the program outside the engine: what its threads tell each other, and the
NumPy arrays that it got.

>>> import threading
>>> from d2lmini import cpu, nd, profile
>>> with profile() as trace:
...     x = nd.ones((2, 2))
...     thread = threading.Thread(target=x.wait_to_read)
...     thread.start()
...     thread.join()
...     kept = x.asnumpy()
>>> [(notice.kind, notice.pushed) for notice in trace.notices if notice.thread == "MainThread"][-1]
('join', 1)
>>> [copy.nbytes for copy in trace.copies]
[16]

A thread that joins another knows that the waits of the other are over, as if it had waited itself.
The event graph follows this over any number of threads.
"""

from __future__ import annotations

import weakref
from typing import Any, NamedTuple

from d2lmini import callsite
from d2lmini.callsite import Site
from d2lmini.engine.scheduler import thread_state
from d2lmini.profiler.recorder import Recorder
from d2lmini.profiler.threads import this_thread


class Notice(NamedTuple):
    """A thread passes on what it knows, or learns what another passed on.

    token      the same number for both
    kind       "tell", or how the thread learned: start, join, result, wait
    thread     the thread
    operation  number of the operation within which the thread told it; 0: none
    pushed, waits    number of operations pushed, and of waits ended, before it
    site       the line
    """

    token: int
    kind: str
    thread: str
    operation: int
    pushed: int
    waits: int
    site: Site | None

    @property
    def where(self) -> str:
        """The line: "train.py:12: thread.join()"."""
        return callsite.describe(self.site)


class Copy(NamedTuple):
    """A NumPy copy of an array appeared (nbytes > 0) or was given back (< 0)."""

    when_ns: int
    nbytes: int
    site: Site | None


class OutsideRecorder(Recorder):
    """Records notices and copies beside the operations."""

    def __init__(self) -> None:
        super().__init__()
        self.notices: list[Notice] = []
        self.copies: list[Copy] = []

    def _count_waits(self) -> int:
        """The number of waits recorded so far."""
        raise NotImplementedError

    def tell(self, token: int) -> None:
        self._note(token, "tell")

    def told(self, token: int, kind: str) -> None:
        self._note(token, kind)

    def _note(self, token: int, kind: str) -> None:
        operation = self._open.get(thread_state.task)  # type: ignore[call-overload]
        number = 0 if operation is None else operation.number
        self.notices.append(
            Notice(
                token, kind, this_thread(), number, self.count, self._count_waits(), callsite.find()
            )
        )

    def copied(self, array: Any) -> None:
        site, nbytes = callsite.find(), array.nbytes
        self.copies.append(Copy(self._clock(), nbytes, site))
        weakref.finalize(array, self._given_back, nbytes, site).atexit = False

    def _given_back(self, nbytes: int, site: Site | None) -> None:
        self.copies.append(Copy(self._clock(), -nbytes, site))

"""The queues that a controlled program gets from `queue`; each operation is one step."""

from __future__ import annotations

import queue
from collections.abc import Callable
from typing import Any

from d2lmini.interleavings.controlled import ControlledThread
from d2lmini.interleavings.primitives import REAL, Primitive, controlled

REAL |= {
    name: getattr(queue, name) for name in ("LifoQueue", "PriorityQueue", "Queue", "SimpleQueue")
}


class Queue(Primitive):
    """A queue; see `queue.Queue`. A subclass may replace `_init`, `_qsize`, `_put` and `_get`."""

    kind = "Queue"

    def __init__(self, maxsize: int = 0):
        self.maxsize = maxsize
        super().__init__(maxsize)

    def reset(self) -> None:
        self.unfinished_tasks = 0
        self._init(self.maxsize)

    @controlled
    def put(
        self,
        thread: ControlledThread,
        item: Any,
        block: bool = True,
        timeout: float | None = None,
    ) -> None:
        """Add `item`; wait while the queue is full. Full if the time was up."""
        self._wait(thread, "puts into", lambda: not self._is_full(), block, timeout, queue.Full)
        self._put(item)
        self.unfinished_tasks += 1

    @controlled
    def get(
        self, thread: ControlledThread, block: bool = True, timeout: float | None = None
    ) -> Any:
        """Remove and return an item; wait while the queue is empty. Empty if the time was up."""
        self._wait(thread, "gets from", lambda: self._qsize() > 0, block, timeout, queue.Empty)
        return self._get()

    def _wait(
        self,
        thread: ControlledThread,
        what: str,
        ready: Callable[[], bool],
        block: bool,
        timeout: float | None,
        error: type[Exception],
    ) -> None:
        if timeout is not None and timeout < 0:
            raise ValueError("'timeout' must be a non-negative number")
        if block:
            step = thread.step(what, self, lambda late: late or ready(), timeout)
        else:
            step = thread.step(what, self)
        if not ready():
            step.result = "in vain"
            raise error

    def put_nowait(self, item: Any) -> None:
        """Add `item`; Full if there is no room."""
        self.put(item, False)

    def get_nowait(self) -> Any:
        """Remove and return an item; Empty if there is none."""
        return self.get(False)

    @controlled
    def task_done(self, thread: ControlledThread) -> None:
        """Tell that an item has been worked at."""
        thread.step("tells task_done to", self)
        if self.unfinished_tasks == 0:
            raise ValueError("task_done() called too many times")
        self.unfinished_tasks -= 1

    @controlled
    def join(self, thread: ControlledThread) -> None:
        """Wait until every item has been worked at."""
        thread.step("joins", self, lambda late: self.unfinished_tasks == 0)

    @controlled
    def qsize(self, thread: ControlledThread) -> int:
        """The number of items."""
        thread.step("looks at", self, uses=self.read)
        return self._qsize()

    @controlled
    def empty(self, thread: ControlledThread) -> bool:
        """True if there is no item."""
        thread.step("looks at", self, uses=self.read)
        return not self._qsize()

    @controlled
    def full(self, thread: ControlledThread) -> bool:
        """True if there is no room."""
        thread.step("looks at", self, uses=self.read)
        return self._is_full()

    def _is_full(self) -> bool:
        return 0 < self.maxsize <= self._qsize()

    _init: Any = queue.Queue._init
    _qsize: Any = queue.Queue._qsize
    _put: Any = queue.Queue._put
    _get: Any = queue.Queue._get


class LifoQueue(Queue):
    """A stack; see `queue.LifoQueue`."""

    kind = "LifoQueue"
    _init = queue.LifoQueue._init
    _put = queue.LifoQueue._put
    _get = queue.LifoQueue._get


class PriorityQueue(Queue):
    """A queue that gives the least item first; see `queue.PriorityQueue`."""

    kind = "PriorityQueue"
    _init = queue.PriorityQueue._init
    _put = queue.PriorityQueue._put
    _get = queue.PriorityQueue._get


class SimpleQueue(Queue):
    """A queue without bound; see `queue.SimpleQueue`."""

    kind = "SimpleQueue"

    def __init__(self) -> None:
        self.maxsize = 0
        Primitive.__init__(self)

"""The order of work on several devices: what `labs.streams` has, and what the fake adds.

Two simplifications. If one thread of the host waits for some work, all threads of the host count as
coming after it: locks and queues between threads are not seen here, and each order that is missed
would be a false alarm. And an array with steps, such as `x[::2]`, counts as all bytes from its
first to its last.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from labs import streams
from labs.streams import Access, Clock


class Queue(streams.Queue):
    """A stream of `device`, known to CuPy by `ptr`.

    capture  the graph that is being captured here, or None
    """

    def __init__(self, device: int, ptr: int, name: str, kind: str, weight: int):
        super().__init__(name, kind, weight)
        self.device = device
        self.ptr = ptr
        self.capture: Any = None


class Work(streams.Work):
    """One entry of a queue.

    time_s  when it ran
    """

    queue: Queue
    inner = (*streams.Work.inner, str(Path(__file__).parents[1]))

    def __init__(
        self,
        queue: Queue,
        name: str,
        run: Callable[[], object] | None = None,
        waits: Sequence[streams.Work] = (),
    ):
        super().__init__(queue, name, run, waits)
        self.time_s = 0.0

    @property
    def is_ready(self) -> bool:
        """True if it is the next on its queue, and all that it waits for has run."""
        return self.queue.pending[0] is self and all(wait.done for wait in self.waits)

    def finish(self) -> None:
        super().finish()
        self.time_s = time.perf_counter()


class Block(streams.Block):
    """A piece of memory of a pool.

    device   its device; None: pinned memory of the host
    life     how often the pool gave it out
    earlier  the accesses in its earlier lives
    is_gone  True after it was returned to the driver
    """

    def __init__(self, nbytes: int, device: int | None):
        super().__init__(nbytes)
        self.device = device
        self.life = 0
        self.earlier: list[Access] = []
        self.is_gone = False

    def begin_life(self) -> None:
        """The pool gives it out."""
        self.life += 1
        self.earlier = list(self.accesses)

    @property
    def is_idle(self) -> bool:
        """True if all work that uses it has run."""
        return all(access.work.done for access in self.accesses)

    def __repr__(self) -> str:
        where = "pinned memory" if self.device is None else f"memory of device {self.device}"
        return f"{where} ({len(self.bytes)} bytes)"


class Region(streams.Region):
    """The bytes from `start` to `stop` of a block."""

    __slots__ = ()
    block: Block

    def explain(self, new: Access, old: Access, host: Clock) -> str:
        text = super().explain(new, old, host)
        if old in self.block.earlier:
            text += (
                ". The memory was given back and given out again in between: before the last array "
                f"on it is deleted, {new.work.queue} has to wait for {old.work.queue}"
            )
        return text

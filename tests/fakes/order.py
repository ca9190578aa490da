"""Who came before whom: vector clocks over streams, and memory that remembers who used it.

CUDA promises an order between two pieces of work in few cases only: both on one stream; an event
recorded after the first and waited for before the second; the host having waited for the first
before it issued the second. Each promise is a line in a clock: `clock[queue] = n` says "after the
first n works of that queue". Work that is issued takes the clock of its queue, an event takes it
along, whoever waits for the event merges it. Memory keeps its last writer and the readers since;
new work that may overlap one it conflicts with is an OrderError *at issue*, in every schedule, not
only where the values go wrong. Clocks are after L. Lamport (1978) and F. Mattern (1989); their use
against races is that of FastTrack (Flanagan and Freund, 2009).

One simplification: what any thread of the host has waited for, all threads know. How they tell each
other (locks, queues) is not seen here, and each telling that is missed would be a false alarm.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

#: What fresh memory, and host memory that a copy is still to fill, is full of: NaN as any float.
POISON = 0xFF


class OrderError(AssertionError):
    """Two accesses that nothing orders, at least one of them a write."""


class Queue:
    """What a stream is to the device: works in order of issue, and a clock.

    pending  issued and not yet run
    clock    queue -> how many of its works come before whatever is issued here next
    capture  the graph that is being captured here, if one is
    """

    def __init__(self, device: int, ptr: int, label: str, weight: int = 1):
        self.device = device
        self.ptr = ptr
        self.label = label
        self.weight = weight
        self.issued = 0
        self.pending: deque[Work] = deque()
        self.clock: Clock = {}
        self.capture: Any = None

    def __repr__(self) -> str:
        return self.label


class Work:
    """One entry of a queue: a kernel, a copy, the record of an event, a wait for one.

    waits   records that must have run before
    party   works of several queues that run together or not at all (a collective), of `size`
    """

    __slots__ = ("clock", "done", "name", "party", "queue", "run", "seq", "size", "time_s", "waits")

    def __init__(
        self,
        queue: Queue,
        name: str,
        run: Callable[[], object] | None = None,
        waits: Sequence[Work] = (),
    ):
        self.queue = queue
        self.name = name
        self.run = run
        self.waits = waits
        self.party = [self]
        self.size = 1
        self.done = False
        self.time_s = 0.0
        self.seq = queue.issued + 1
        self.clock = {**queue.clock, queue: self.seq}

    def is_after(self, other: Work, host: Clock) -> bool:
        """Whether it comes after `other`, by what streams waited for or what the `host` did."""
        return max(self.clock.get(other.queue, 0), host.get(other.queue, 0)) >= other.seq

    @property
    def is_ready(self) -> bool:
        """Whether it, and those it runs together with, are next on their queues and wait for
        nothing."""
        return len(self.party) == self.size and all(
            work.queue.pending[0] is work and all(wait.done for wait in work.waits)
            for work in self.party
        )

    def __repr__(self) -> str:
        return f"{self.name!r} (work {self.seq} of {self.queue})"


#: Queue -> how many of its works come before.
Clock = dict[Queue, int]


def merge(clock: Clock, other: Clock) -> None:
    """Make `clock` also come after all that `other` comes after."""
    for queue, seq in other.items():
        if clock.get(queue, 0) < seq:
            clock[queue] = seq


class Access(NamedTuple):
    """`work` reads or writes the bytes from `start` to `stop` of a block in its `life`."""

    work: Work
    start: int
    stop: int
    writes: bool
    life: int


class Block:
    """A piece of memory with the accesses that later ones must come after.

    bytes    the NumPy array that stands for it
    device   whose it is; None: pinned memory of the host
    life     how often it was given out
    is_gone  has the driver it back?
    """

    def __init__(self, nbytes: int, device: int | None):
        self.bytes = np.full(nbytes, POISON, np.uint8)
        self.address = self.bytes.ctypes.data
        self.device = device
        self.life = 0
        self.is_gone = False
        self.accesses: list[Access] = []

    @property
    def is_idle(self) -> bool:
        """Whether all that was issued here has run."""
        return all(access.work.done for access in self.accesses)

    def __repr__(self) -> str:
        where = "pinned memory" if self.device is None else f"memory of device {self.device}"
        return f"{where} at {self.address:#x} ({len(self.bytes)} bytes)"


class Region(NamedTuple):
    """The bytes from `start` to `stop` of a block."""

    block: Block
    start: int
    stop: int

    def check(self, work: Work, writes: bool, host: Clock) -> None:
        """OrderError if `work` may overlap an access that it conflicts with."""
        for access in self._overlapping():
            if (writes or access.writes) and not work.is_after(access.work, host):
                raise OrderError(self._explain(work, writes, access))

    def note(self, work: Work, writes: bool, host: Clock) -> None:
        """Remember the access by `work`, instead of those that whoever comes after it follows."""
        block, start, stop = self
        block.accesses = [
            old
            for old in block.accesses
            if not (start <= old.start and old.stop <= stop and work.is_after(old.work, host))
            or (old.writes and not writes)
        ]
        block.accesses.append(Access(work, start, stop, writes, block.life))

    def _overlapping(self) -> Iterator[Access]:
        for access in self.block.accesses:
            if access.start < self.stop and self.start < access.stop:
                yield access

    def _explain(self, work: Work, writes: bool, old: Access) -> str:
        text = (
            f"{work} {'writes' if writes else 'reads'} {self.block}, which {old.work} "
            f"{'writes' if old.writes else 'reads'}, and nothing orders the two. "
            f"Missing: {work.queue} does not wait_event() for an event recorded on "
            f"{old.work.queue} after {old.work.name!r}, nor did the host wait for one"
        )
        if old.life != self.block.life:
            text += (
                ". The memory was given back and given out again in between: whoever gave it back "
                f"had to make {work.queue} wait for {old.work.queue} first"
            )
        return text

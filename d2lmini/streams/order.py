"""The order of work: vector clocks of streams, and memory that remembers its accesses.

CUDA orders two pieces of work in four cases only: both are on one stream; an event was recorded
after the first, and the second came after a wait for this event; the host waited for the first
before it issued the second; one is on the default stream and the other on a *blocking* stream.
A vector clock holds all this: `clock[queue] = n` says "after the first n works of that queue". Work
that is issued gets the clock of its queue; an event carries the clock along; a queue that waits for
the event merges it. Memory keeps its last writes and the reads since. Work that conflicts with one
of them and does not come after it is an OrderError *when it is issued*, in every schedule, not only
in those in which the values are wrong. The clocks are after L. Lamport (1978) and F. Mattern
(1989); their use against data races is that of FastTrack (Flanagan and Freund, 2009).

Two simplifications. If one thread of the host waits for some work, all threads of the host count as
coming after it: locks and queues between threads are not seen here, and each order that is missed
would be a false alarm. And an array with steps, such as `x[::2]`, counts as all bytes from its
first to its last.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from d2lmini import callsite
from d2lmini.streams.errors import OrderError

#: Each byte of fresh memory, and of host memory that a copy is still to fill: NaN as any float.
POISON = 0xFF


class Queue:
    """A stream as the device sees it: works in the order of issue, and a clock.

    pending   issued and not yet run
    last      the work that was issued last
    clock     queue -> how many of its works come before the next work that is issued here
    blocking  True for a stream that waits for the default stream, and the other way round
    capture   the graph that is being captured here, or None
    """

    def __init__(self, device: int, ptr: int, label: str, weight: int = 1, blocking: bool = False):
        self.device = device
        self.ptr = ptr
        self.label = label
        self.weight = weight
        self.blocking = blocking
        self.issued = 0
        self.pending: deque[Work] = deque()
        self.last: Work | None = None
        self.clock: Clock = {}
        self.capture: Any = None

    def __repr__(self) -> str:
        return self.label


class Work:
    """One entry of a queue: a kernel, a copy, the record of an event, a wait for one.

    waits   records that must have run before
    party   works of several queues that run together or not at all (a collective), of `size`
    site    the line of the program that issued it
    """

    __slots__ = (
        "clock", "done", "name", "party", "queue", "run", "seq", "site", "size", "time_s", "waits",
    )  # fmt: skip

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
        self.site = callsite.find()

    def is_after(self, other: Work, host: Clock) -> bool:
        """True if it comes after `other`, by waits of streams or of the `host`."""
        return self.known(other.queue, host) >= other.seq

    def known(self, queue: Queue, host: Clock) -> int:
        """How many works of `queue` come before it."""
        return max(self.clock.get(queue, 0), host.get(queue, 0))

    @property
    def is_ready(self) -> bool:
        """True if it, and the works that run together with it, are the next on their queues, and
        all that they wait for has run."""
        return len(self.party) == self.size and all(
            work.queue.pending[0] is work and all(wait.done for wait in work.waits)
            for work in self.party
        )

    @property
    def where(self) -> str:
        """The line that issued it."""
        return callsite.describe(self.site)

    def __repr__(self) -> str:
        return f"{self.name!r} (work {self.seq} of {self.queue})"


#: Queue -> how many of its works come before.
Clock = dict[Queue, int]


def merge(clock: Clock, other: Clock) -> None:
    """Let `clock` also come after all that `other` comes after."""
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
    """A piece of memory, and the accesses that later accesses must come after.

    bytes    the NumPy array that stands for it
    device   its device; None: pinned memory of the host
    life     how often the pool gave it out
    is_gone  True after it was returned to the driver
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
        """True if all work that uses it has run."""
        return all(access.work.done for access in self.accesses)

    def __repr__(self) -> str:
        where = "pinned memory" if self.device is None else f"memory of device {self.device}"
        return f"{where} ({len(self.bytes)} bytes)"


class Region(NamedTuple):
    """The bytes from `start` to `stop` of a block."""

    block: Block
    start: int
    stop: int

    def check(self, work: Work, writes: bool, host: Clock) -> None:
        """OrderError if `work` may overlap an access that conflicts with it."""
        for access in self._overlapping():
            if (writes or access.writes) and not work.is_after(access.work, host):
                raise OrderError(self._explain(work, writes, access, host))

    def check_host(self, writes: bool, host: Clock) -> None:
        """OrderError if the host reads or writes here, and may overlap work that conflicts."""
        for access in self._overlapping():
            work = access.work
            if (writes or access.writes) and host.get(work.queue, 0) < work.seq:
                act = "writes" if writes else "reads"
                raise OrderError(
                    f"the host {act} {self.block}, which {work} "
                    f"{'writes' if access.writes else 'reads'}, and nothing orders the two\n"
                    f"  {work.name!r}: {work.where}\n"
                    f"  the host: {callsite.describe(callsite.find())}\n"
                    f"Missing: the host does not wait for {work.queue} after {work.name!r}. Call "
                    "synchronize() of the stream, or of an event that is recorded there after it"
                )

    def note(self, work: Work, writes: bool, host: Clock) -> None:
        """Remember the access by `work`, and forget accesses that all later work need not know:
        those that come before it."""
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

    def _explain(self, work: Work, writes: bool, access: Access, host: Clock) -> str:
        old = access.work
        text = (
            f"{work} {'writes' if writes else 'reads'} {self.block}, which {old} "
            f"{'writes' if access.writes else 'reads'}, and nothing orders the two\n"
            f"  {old.name!r}: {old.where}\n"
            f"  {work.name!r}: {work.where}\n"
            f"Missing: {work.queue} does not wait_event() for an event recorded on {old.queue} "
            f"after {old.name!r}, nor did the host wait for one"
        )
        known = work.known(old.queue, host)
        if known:
            text += (
                f". {work.queue} comes after work {known} of {old.queue}, and {old.name!r} is work "
                f"{old.seq}: the event was recorded too early"
            )
        elif 0 in (work.queue.ptr, old.queue.ptr) and work.queue.device == old.queue.device:
            text += (
                ". The null stream and a stream made with non_blocking=True do not wait for each "
                "other"
            )
        if access.life != self.block.life:
            text += (
                ". The memory was given back and given out again in between: before the last array "
                f"on it is deleted, {work.queue} has to wait for {old.queue}"
            )
        return text

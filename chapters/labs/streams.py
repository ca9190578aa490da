"""A simulated GPU: streams that run in any order CUDA allows, and an error for every data race.

    def program():
        a, b = Stream(non_blocking=True), Stream(non_blocking=True)
        with a:
            x = zeros(2)
            x += 1
        b.wait_event(a.record())        # an event: after the work of `a` so far
        with b:
            return (x * 10).get()

    check(program)                      # OrderError without the line with the event

Names and rules are those of `cupy` and `cupy.cuda`. The host issues work on a stream and goes on at
once. The work of one stream runs in its order, and streams run side by side: a random number
chooses the next work among all work that CUDA may run. NumPy computes the values; times are not
simulated.

The first part of this file is the check. CUDA orders two pieces of work in four cases only: both
are on one stream; an event was recorded after the first, and the second came after a wait for this
event; the host waited for the first before it issued the second; one is on the null stream and the
other on a *blocking* stream. Vector clocks hold all four: `clock[queue] == n` says "after the first
n works of that queue". Memory keeps its accesses. Work that conflicts with an access and does not
come after it is an OrderError when the work is issued: in every run, not only in those with wrong
values. The clocks are after Lamport (1978) and Mattern (1989), their use is that of FastTrack
(Flanagan and Freund, 2009).

The second part is the machine that runs the work, the third what programs use.
"""

from __future__ import annotations

import random
import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
from numpy.lib import mixins

from d2lmini.base import callsite

#: Each byte of fresh memory: NaN as any float.
POISON = 0xFF


class OrderError(AssertionError):
    """A data race: two accesses to the same memory that nothing orders, at least one a write."""


# -- the order of work -----------------------------------------------------------------------------


class Queue:
    """A stream as the GPU sees it: work in the order of issue, and a clock.

    kind     "null", "blocking" or "non-blocking": the null stream and the blocking streams wait
             for each other
    weight   how likely it is chosen to run
    pending  issued and not yet run
    last     the work that was issued last
    clock    queue -> how many of its works come before the next work that is issued here
    """

    def __init__(self, name: str, kind: str, weight: int = 1):
        self.name = name
        self.kind = kind
        self.weight = weight
        self.pending: deque[Any] = deque()
        self.last: Any = None
        self.clock: Clock = {}

    def __repr__(self) -> str:
        return self.name


#: Queue -> how many of its works come before.
Clock = dict[Queue, int]


def merge(clock: Clock, other: Clock) -> None:
    """Let `clock` also come after all that `other` comes after."""
    for queue, seq in other.items():
        if clock.get(queue, 0) < seq:
            clock[queue] = seq


class Work:
    """One entry of a queue: a kernel, a copy, the record of an event, a wait for one.

    run    computes it; None: there is nothing to compute
    waits  work that must have run before
    site   the line of the program that issued it: the nearest that is not in the files `inner`
    """

    inner = (__file__, mixins.__file__)

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
        self.waits = [wait for wait in waits if not wait.done]
        self.done = False
        self.seq = 1 if queue.last is None else queue.last.seq + 1
        self.clock = {**queue.clock, queue: self.seq}
        for wait in waits:
            merge(self.clock, wait.clock)
        self.site = self._find_site()

    def _find_site(self) -> callsite.Site:
        frame: Any = sys._getframe()
        while frame.f_code.co_filename.startswith(self.inner):
            frame = frame.f_back
        return frame.f_code, frame.f_lasti

    @property
    def is_ready(self) -> bool:
        """True if it is the next on its queue, and all that it waits for has run."""
        return self.queue.pending[0] is self and all(wait.done for wait in self.waits)

    def is_after(self, other: Work, host: Clock) -> bool:
        """True if it comes after `other`, by waits of streams or of the `host`."""
        return self.known(other.queue, host) >= other.seq

    def known(self, queue: Queue, host: Clock) -> int:
        """How many works of `queue` come before it."""
        return max(self.clock.get(queue, 0), host.get(queue, 0))

    def compute(self) -> None:
        """Compute its values."""
        if self.run is not None:
            with np.errstate(all="ignore"):
                self.run()

    def finish(self) -> None:
        """Note that it has run."""
        self.done, self.run, self.waits = True, None, []

    @property
    def where(self) -> str:
        """The line that issued it, as text."""
        return callsite.describe(self.site)

    def __repr__(self) -> str:
        return f"{self.name!r} (work {self.seq} of {self.queue})"


class Access(NamedTuple):
    """`work` reads or writes the bytes from `start` to `stop` of a block."""

    work: Work
    start: int
    stop: int
    writes: bool

    @property
    def verb(self) -> str:
        return "writes" if self.writes else "reads"


class Block:
    """A piece of memory, and the accesses that later work must come after.

    bytes  the NumPy array that stands for it
    """

    def __init__(self, nbytes: int):
        self.bytes = np.full(nbytes, POISON, np.uint8)
        self.address = self.bytes.ctypes.data
        self.accesses: list[Access] = []

    def __repr__(self) -> str:
        return f"memory ({len(self.bytes)} bytes)"


class Region(NamedTuple):
    """The bytes from `start` to `stop` of a block."""

    block: Block
    start: int
    stop: int

    def check(self, work: Work, writes: bool, host: Clock) -> None:
        """OrderError if `work` may overlap an access that conflicts with it."""
        for old in self.block.accesses:
            overlaps = old.start < self.stop and self.start < old.stop
            if overlaps and (writes or old.writes) and not work.is_after(old.work, host):
                new = Access(work, self.start, self.stop, writes)
                raise OrderError(self.explain(new, old, host))

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
        block.accesses.append(Access(work, start, stop, writes))

    def explain(self, new: Access, old: Access, host: Clock) -> str:
        """The text of the OrderError."""
        late, early = new.work, old.work
        text = (
            f"{late} {new.verb} {self.block}, which {early} {old.verb}, "
            "and nothing orders the two\n"
            f"  {early.name!r}: {early.where}\n"
            f"  {late.name!r}: {late.where}\n"
            f"Missing: {late.queue} does not wait_event() for an event recorded on {early.queue} "
            f"after {early.name!r}, nor did the host wait for one"
        )
        known = late.known(early.queue, host)
        if known:
            text += (
                f". {late.queue} comes after work {known} of {early.queue}, and {early.name!r} is "
                f"work {early.seq}: the event was recorded too early"
            )
        elif {late.queue.kind, early.queue.kind} == {"null", "non-blocking"}:
            text += (
                ". The null stream and a stream made with non_blocking=True do not wait for each "
                "other"
            )
        return text


# -- the machine -----------------------------------------------------------------------------------


class Machine:
    """Queues of work that run in a random order, as CUDA may run them.

    Work that is next on its queue and waits for no event may run when the host issues other work,
    or not until the host waits: a random number decides. So a right program gives the same values
    with every seed, and a program that relies on luck does not.

    checks      False: no access is checked, and a data race shows in the values alone
    eagerness   how likely ready work runs when the host issues work; None: drawn, 0 to 0.9
    waits       why the host waited, each time
    host_clock  what the host has waited for
    busy        the queues that have pending work
    entered     the streams of the `with` statements around the present line
    """

    def __init__(self, seed: int, checks: bool = True, eagerness: float | None = None):
        self.random = random.Random(seed)
        drawn = self.random.choice((0.0, 0.3, 0.6, 0.9))
        self.eagerness = drawn if eagerness is None else eagerness
        self.checks = checks
        self.waits: list[Any] = []
        self.host_clock: Clock = {}
        self.queues: list[Any] = []
        self.busy: dict[Any, None] = {}
        self.entered: list[Any] = []

    def draw_weight(self) -> int:
        """The weight of a new queue: some streams are far quicker than others."""
        return self.random.choice((1, 1, 5, 25))

    def issue(
        self,
        queue: Queue,
        name: str,
        run: Callable[[], object] | None = None,
        reads: Sequence[Region] = (),
        writes: Sequence[Region] = (),
        waits: Sequence[Work] = (),
    ) -> Any:
        """Put work on `queue`; returns it. OrderError for a data race."""
        work = Work(queue, name, run, [*waits, *self.implicit_waits(queue)])
        self.access(work, reads, writes)
        self.enqueue(work)
        self.run_some()
        return work

    def implicit_waits(self, queue: Queue) -> list[Work]:
        """CUDA's rule for the null stream and blocking streams: each begins only after the work
        that the other was given before."""
        others = {"null": "blocking", "blocking": "null"}.get(queue.kind)
        return [q.last for q in self.queues if q.kind == others and q.last is not None]

    def access(self, work: Work, reads: Sequence[Region], writes: Sequence[Region]) -> None:
        """Check what `work` reads and writes, and remember it."""
        for act in (Region.check, Region.note) if self.checks else (Region.note,):
            for region in reads:
                act(region, work, False, self.host_clock)
            for region in writes:
                act(region, work, True, self.host_clock)

    def enqueue(self, work: Work) -> None:
        """Append `work` to its queue."""
        queue = work.queue
        queue.clock, queue.last = work.clock, work
        queue.pending.append(work)
        self.busy[queue] = None

    def synchronize(self, work: Work, why: str) -> None:
        """The host waits until `work` has run, and from now on comes after it."""
        self.waits.append(why)
        while not work.done:
            self.step()
        merge(self.host_clock, work.clock)

    def run_some(self) -> None:
        """Run some of the work that is ready."""
        while self.random.random() < self.eagerness and self.step():
            pass

    def step(self) -> bool:
        """Run one work that is ready; False if there is none."""
        ready = [queue for queue in self.busy if queue.pending[0].is_ready]
        if not ready:
            return False
        (queue,) = self.random.choices(ready, [queue.weight for queue in ready])
        self.execute(queue.pending[0])
        return True

    def execute(self, work: Work) -> None:
        """Run `work`, the next on its queue."""
        self.dequeue(work)
        work.compute()
        work.finish()

    def dequeue(self, work: Work) -> None:
        """Take `work` off the front of its queue."""
        work.queue.pending.popleft()
        if not work.queue.pending:
            del self.busy[work.queue]


_machines: list[Machine] = []


def current() -> Machine:
    """The machine of the innermost `simulate`."""
    if not _machines:
        raise RuntimeError("there is no GPU here: call this in a program for check() or simulate()")
    return _machines[-1]


@contextmanager
def simulate(seed: int = 0, **options: Any) -> Iterator[Machine]:
    """A scope with a simulated GPU; `seed` chooses one of the legal orders, `options` are those of
    `Machine`."""
    _machines.append(Machine(seed, **options))
    _machines[-1].queues.append(Queue("the null stream", "null", _machines[-1].draw_weight()))
    try:
        yield _machines[-1]
    finally:
        _machines.pop()


def check(program: Callable[[], Any], orders: int = 20, **options: Any) -> str:
    """Run `program()` in several orders; return a sentence if it has no data race.

    OrderError for a data race, or if the result (numbers, NumPy arrays and tuples of these) depends
    on the order. `options` are those of `Machine`.
    """
    first: Any = None
    for seed in range(orders):
        with simulate(seed, **options):
            result = program()
        if seed == 0:
            first = result
        elif not _equal(first, result):
            raise OrderError(
                f"the result depends on the order: {first!r} in order 0, {result!r} in order {seed}"
            )
    return f"no data race; the same result in {orders} orders"


def _equal(a: Any, b: Any) -> bool:
    if isinstance(a, Array):
        raise TypeError(f"expected numbers or NumPy arrays, got {a!r}: return x.get()")
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        return len(a) == len(b) and all(map(_equal, a, b))
    return np.array_equal(a, b, equal_nan=np.asarray(a).dtype.kind in "fc")


# -- streams and events ----------------------------------------------------------------------------


class Stream:
    """`cupy.cuda.Stream`: work in the order of issue. In a `with` statement it is the current one.

    non_blocking  True: no order with the null stream
    null          True: the null stream, which is current outside `with` statements
    """

    def __init__(self, non_blocking: bool = False, null: bool = False):
        machine = current()
        if null:
            self.queue = machine.queues[0]
            return
        kind = "non-blocking" if non_blocking else "blocking"
        self.queue = Queue(f"stream {len(machine.queues)}", kind, machine.draw_weight())
        machine.queues.append(self.queue)

    def __enter__(self) -> Stream:
        current().entered.append(self)
        return self

    def __exit__(self, *error: object) -> None:
        current().entered.pop()

    def record(self, event: Event | None = None) -> Event:
        """Record `event`, or a new one, after the work that was issued so far; returns it."""
        event = Event() if event is None else event
        event.record(self)
        return event

    def wait_event(self, event: Event) -> None:
        """Let all work that is issued here later wait for `event`, as it was recorded last."""
        if event.work is not None:
            current().issue(self.queue, "wait_event", waits=[event.work])

    def synchronize(self) -> None:
        """Let the host wait for all work that was issued here."""
        work = current().issue(self.queue, "synchronize")
        current().synchronize(work, "Stream.synchronize")


class Event:
    """`cupy.cuda.Event`: a mark in the work of a stream, or none yet."""

    work: Work | None = None

    def record(self, stream: Stream | None = None) -> None:
        """Mark the work that `stream`, or the current stream, was given so far. An event that is
        recorded again forgets the first mark; waits that were issued before keep it."""
        self.work = current().issue(_queue_of(stream), "record")

    def synchronize(self) -> None:
        """Let the host wait until the work before the mark has run."""
        if self.work is not None:
            current().synchronize(self.work, "Event.synchronize")


def get_current_stream() -> Stream:
    """The stream of the innermost `with` statement; without one the null stream."""
    return current().entered[-1] if current().entered else Stream(null=True)


def _queue_of(stream: Stream | None) -> Queue:
    return (get_current_stream() if stream is None else stream).queue


# -- arrays ----------------------------------------------------------------------------------------


class Array(mixins.NDArrayOperatorsMixin):
    """An array of the GPU: each operator, and each elementwise function of NumPy, is a kernel on
    the current stream.

    raw  the NumPy array that stands for it; reading it is not checked
    """

    def __init__(self, block: Block, raw: np.ndarray):
        self.block = block
        self.raw = raw

    @property
    def region(self) -> Region:
        """The bytes from its first element to its last."""
        start, stop = np.lib.array_utils.byte_bounds(self.raw)
        return Region(self.block, start - self.block.address, stop - self.block.address)

    def __len__(self) -> int:
        return len(self.raw)

    def __repr__(self) -> str:
        return f"<array {self.raw.shape} {self.raw.dtype} of the GPU>"

    def __array_ufunc__(self, function: Any, method: str, *inputs: Any, **options: Any) -> Any:
        if method != "__call__" or options.keys() - {"out"}:
            return NotImplemented
        (out,) = options.get("out", (None,))
        return launch(function.__name__, function, inputs, out)

    def sum(self) -> Array:
        """The sum of all elements, an array of no axes."""
        return launch("sum", np.sum, (self,))

    def __getitem__(self, key: Any) -> Array:
        """A view, for integers and slices."""
        parts = key if isinstance(key, tuple) else (key,)
        if not all(isinstance(part, (int, slice, type(...))) for part in parts):
            raise TypeError(f"expected integers and slices as indices, got {key!r}")
        return Array(self.block, self.raw[parts if ... in parts else (*parts, ...)])

    def __setitem__(self, key: Any, value: Any) -> None:
        launch("copy", np.positive, (value,), self[key])

    def set(self, values: np.ndarray, stream: Stream | None = None) -> None:
        """Copy a NumPy array here, on `stream` or the current one; returns at once."""
        expected, got = ((np.shape(x), getattr(x, "dtype", type(x))) for x in (self.raw, values))
        if expected != got:
            raise TypeError(f"expected a NumPy array with shape and dtype {expected}, got {got}")
        source = values.copy()
        queue, run = _queue_of(stream), lambda: np.copyto(self.raw, source)
        current().issue(queue, "copy from host", run, writes=[self.region])

    def get(self, stream: Stream | None = None) -> np.ndarray:
        """Copy to the host, on `stream` or the current one; the host waits for the copy."""
        result = np.empty_like(self.raw)
        queue, run = _queue_of(stream), lambda: np.copyto(result, self.raw)
        work = current().issue(queue, "copy to host", run, reads=[self.region])
        current().synchronize(work, "a copy to the host")
        return result

    def item(self) -> Any:
        """The only element, as a Python number; the host waits."""
        return self.get().item()


def launch(name: str, function: Callable[..., Any], inputs: Sequence[Any], out: Any = None) -> Any:
    """Issue a kernel on the current stream: `function` of arrays and numbers, into `out` or a new
    array, which is returned."""
    for x in inputs:
        if not isinstance(x, (Array, int, float, np.generic)):
            raise TypeError(
                f"{name}: expected arrays of the GPU and numbers, got {type(x)}; x.set(values) "
                "copies a NumPy array to an array of the GPU"
            )
    raws = [x.raw if isinstance(x, Array) else x for x in inputs]
    if out is None:
        with np.errstate(all="ignore"):
            like = np.asarray(function(*raws))  # the values come later, the shape is that of now
        out = empty(like.shape, like.dtype)

    def run() -> None:
        out.raw[...] = function(*raws)

    reads = [x.region for x in inputs if isinstance(x, Array)]
    current().issue(get_current_stream().queue, name, run, reads, [out.region])
    return out


def empty(shape: Any, dtype: Any = float) -> Array:
    """An array full of NaN."""
    like = np.empty(shape, dtype)
    block = Block(max(like.nbytes, 1))
    return Array(block, np.ndarray(like.shape, like.dtype, block.bytes))


def zeros(shape: Any, dtype: Any = float) -> Array:
    """An array that a kernel on the current stream fills with zeros."""
    result = empty(shape, dtype)
    result[...] = 0
    return result

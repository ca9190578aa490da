"""The machine behind the fake: queues of work that run in a seeded random order, as CUDA may.

Issuing puts work on its stream's queue and returns. What is next on some queue and waits for no
event may run at any call of the host, or not until the host waits for it: which of them, a random
number says. So a program that is right gives the same values under every seed, and one that relies
on luck does not. Beside the values every access is checked when it is issued (`order`).

>>> from fakes.machine import Machine
>>> machine = Machine(devices=1, memory=1 << 20, seed=0)
>>> queue, log = machine.new_queue(0), []
>>> for name in "ab":
...     work = machine.issue(queue, name, lambda name=name: log.append(name))
>>> machine.synchronize(work, "the example")
>>> log
['a', 'b']
"""

from __future__ import annotations

import bisect
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from fakes.order import Block, Clock, OrderError, Queue, Region, Work, merge

#: The errors that the fake raises, as CUDA words them.
STATUS = {
    1: "cudaErrorInvalidValue: invalid argument",
    2: "cudaErrorMemoryAllocation: out of memory",
    35: "cudaErrorInsufficientDriver: CUDA driver version is insufficient for CUDA runtime version",
    101: "cudaErrorInvalidDevice: invalid device ordinal",
    214: "cudaErrorECCUncorrectable: uncorrectable ECC error encountered",
    400: "cudaErrorInvalidResourceHandle: invalid resource handle",
    600: "cudaErrorNotReady: device not ready",
    700: "cudaErrorIllegalAddress: an illegal memory access was encountered",
    719: "cudaErrorLaunchFailure: unspecified launch failure",
    900: "cudaErrorStreamCaptureUnsupported: operation not permitted when stream is capturing",
    901: "cudaErrorStreamCaptureInvalidated: operation failed due to a previous error during "
    "capture",
    905: "cudaErrorStreamCaptureIsolation: dependency created on uncaptured work in another stream",
}


class CUDARuntimeError(RuntimeError):
    """What `cupy.cuda.runtime` raises: `status` is CUDA's number."""

    def __init__(self, status: int):
        super().__init__(STATUS.get(status, f"cudaError{status}"))
        self.status = status


class CUBLASError(RuntimeError):
    """What `cupy.cuda.cublas` raises: `status` is cuBLAS's number, which is none of CUDA's."""

    def __init__(self, status: int):
        names = {3: "CUBLAS_STATUS_ALLOC_FAILED", 13: "CUBLAS_STATUS_EXECUTION_FAILED"}
        super().__init__(names[status])
        self.status = status


class DeadlockError(RuntimeError):
    """The host waits for what can never run."""


_current: list[Machine] = []


def current() -> Machine:
    """The machine that there is now; as where there is no driver otherwise."""
    if not _current:
        raise CUDARuntimeError(35)
    return _current[-1]


@contextmanager
def running(machine: Machine) -> Iterator[None]:
    """A scope in which `machine` is the one that there is."""
    _current.append(machine)
    try:
        yield
    finally:
        _current.remove(machine)


@dataclass
class Fault:
    """What is to go wrong: `status` on `device`, at the `after`-th work from now that fits `name`.

    at      "issue": the call raises; "run": the work fails later, and the first wait notices;
            "malloc": an allocation raises
    sticky  the device is lost with it, as after an illegal address
    """

    device: int
    status: int = 700
    at: str = "run"
    name: str | None = None
    after: int = 0
    sticky: bool = True

    def strikes(self, device: int, name: str, at: str) -> bool:
        if (device, at) != (self.device, self.at) or self.name not in (None, name):
            return False
        self.after -= 1
        return self.after < 0


class Machine:
    """Devices with memory, queues of work, the host that issues and waits.

    eagerness   how likely a ready work runs at a call of the host; None: drawn, 0 to 0.9
    patience_s  how long a wait in which nothing can run hopes for other threads of the host
    waits       (name of the thread, why) of each time that the host waited for a device
    issued      how often work of each name was issued
    events      every event that was created
    errors      every OrderError, also those that nobody has caught
    """

    def __init__(
        self,
        devices: int,
        memory: int,
        seed: int,
        eagerness: float | None = None,
        patience_s: float = 0.5,
    ):
        self.devices = devices
        self.memory = memory
        self.used = [0] * devices
        self.random = random.Random(seed)
        self.eagerness = (
            self.random.choice((0.0, 0.3, 0.6, 0.9)) if eagerness is None else eagerness
        )
        self.patience_s = patience_s
        self.waits: list[tuple[str, str]] = []
        self.issued: Counter[str] = Counter()
        self.events: list[Any] = []
        self.compute_types: dict[str, int] = {}
        self.errors: list[OrderError] = []
        self.faults: list[Fault] = []
        self.lost: dict[int, CUDARuntimeError] = {}
        self.host_clock: Clock = {}
        self.queues: list[Queue] = []
        self._busy: dict[Queue, None] = {}  # those that have work, in order
        self.contexts: set[int] = set()  # on which devices `use_device` has made one
        self.local = threading.local()
        self.lock = threading.RLock()
        self.changed = threading.Condition(self.lock)
        self._stuck_since: float | None = None
        self._blocks: list[Block] = []
        self._untold: list[OrderError] = []
        self.pool: Any = None
        self.pinned_pool: Any = None
        self.allocator: Any = None
        self._null = [self.new_queue(i, null=True) for i in range(devices)]

    # -- queues and threads

    def new_queue(self, device: int, null: bool = False) -> Queue:
        with self.lock:
            number = len(self.queues)
            label = f"{'null stream' if null else f'stream {number}'} of device {device}"
            ptr = 0 if null else 0x1000 + 16 * number
            queue = Queue(device, ptr, label, weight=self.random.choice((1, 1, 5, 25)))
            self.queues.append(queue)
            return queue

    def queue_at(self, ptr: int, device: int) -> Queue:
        """The queue of a stream's `ptr`."""
        if ptr == 0:
            return self._null[device]
        for queue in self.queues:
            if queue.ptr == ptr:
                return queue
        raise CUDARuntimeError(400)

    def add_event(self, event: Any) -> int:
        """The `ptr` of a new event."""
        with self.lock:
            self.events.append(event)
            return 0x2000 + 16 * len(self.events)

    def event_at(self, ptr: int) -> Any:
        """The event of that `ptr`."""
        number = (ptr - 0x2000) // 16
        if not 0 < number <= len(self.events):
            raise CUDARuntimeError(400)
        return self.events[number - 1]

    @property
    def current_device(self) -> int:
        """Of this thread; a new thread begins on device 0."""
        return getattr(self.local, "device", 0)

    def use_device(self, device: int) -> None:
        if not 0 <= device < self.devices:
            raise CUDARuntimeError(101)
        self.local.device = device
        self.contexts.add(device)

    @property
    def streams(self) -> list[Any]:
        """This thread's current stream of each device; None: the null stream."""
        if not hasattr(self.local, "streams"):
            self.local.streams = [None] * self.devices
        return self.local.streams

    @property
    def current_queue(self) -> Queue:
        """That of this thread's current stream of its current device."""
        device = self.current_device
        stream = self.streams[device]
        return self._null[device] if stream is None else stream.queue

    def queue_of(self, stream: Any) -> Queue:
        """That of `stream`; None: the current one."""
        return self.current_queue if stream is None else stream.queue

    # -- issuing

    @contextmanager
    def call(self, *devices: int) -> Iterator[None]:
        """A call of the host that concerns `devices`: alone, on living ones; then time passes."""
        with self.lock:
            if self._untold:
                raise self._untold.pop(0)
            for device in devices:
                if device in self.lost:
                    raise CUDARuntimeError(self.lost[device].status) from self.lost[device]
            try:
                yield
            except OrderError as error:
                self.errors.append(error)
                raise
            self.changed.notify_all()
            while self.random.random() < self.eagerness and self._step():
                pass

    def issue(
        self,
        queue: Queue,
        name: str,
        run: Callable[[], object] | None = None,
        reads: Sequence[Region] = (),
        writes: Sequence[Region] = (),
        waits: Sequence[Work] = (),
    ) -> Work | None:
        """Put work on `queue`; None where the queue is being captured into a graph."""
        with self.call(queue.device):
            if run is not None:
                self.strike(queue.device, name, "issue")
            if queue.capture is not None:
                queue.capture.add(name, run, reads, writes, waits)
                return None
            work = self.prepare(queue, name, run, reads, writes, waits)
            self.enqueue(work)
            return work

    def prepare(
        self,
        queue: Queue,
        name: str,
        run: Callable[[], object] | None = None,
        reads: Sequence[Region] = (),
        writes: Sequence[Region] = (),
        waits: Sequence[Work] = (),
        with_clocks: Sequence[Clock] = (),
    ) -> Work:
        """Work that is checked against what the memory has seen; the caller holds the lock."""
        work = Work(queue, name, run, [wait for wait in waits if not wait.done])
        for clock in (*(wait.clock for wait in waits), *with_clocks):
            merge(work.clock, clock)
        for act in (Region.check, Region.note):
            for region in reads:
                act(region, work, False, self.host_clock)
            for region in writes:
                act(region, work, True, self.host_clock)
        return work

    def enqueue(self, work: Work) -> None:
        self._stuck_since = None
        queue = work.queue
        self.issued[work.name] += 1
        queue.issued, queue.clock = work.seq, work.clock
        queue.pending.append(work)
        self._busy[queue] = None

    def refuse_capture(self, queue: Queue) -> None:
        """The host would wait for work that is only being recorded: that ends a capture."""
        if queue.capture is not None:
            queue.capture.invalidate()

    def report(self, error: OrderError) -> None:
        """An error met where nobody can catch it: the next call of the host raises it."""
        self.errors.append(error)
        self._untold.append(error)

    def take_errors(self) -> list[OrderError]:
        """Every OrderError that there is when all is done that can be done; they are forgotten, so
        that none is raised at the end, and so is work that is stuck."""
        with self.lock:
            try:
                self._run_all()
            except DeadlockError:
                for queue in self._busy:
                    while queue.pending:
                        queue.pending.popleft().done = True
                self._busy.clear()
            taken, self.errors = self.errors, []
            self._untold.clear()
            return taken

    # -- waiting

    def synchronize(self, work: Work, why: str) -> None:
        """The host waits until `work` has run, and from now on comes after it."""
        with self.call(work.queue.device):
            self.waits.append((threading.current_thread().name, why))
            self._run_until(lambda: work.done)
            self._learn(work)
        with self.call(work.queue.device):
            pass  # a fault of what ran is told by the wait that ran it

    def synchronize_queues(self, queues: Sequence[Queue], why: str) -> None:
        for queue in queues:
            self.refuse_capture(queue)
            known = self.host_clock.get(queue, 0) >= queue.issued
            if known and queue.device not in self.lost:
                continue
            work = self.issue(queue, why)
            assert work is not None
            self.synchronize(work, why)

    def _learn(self, work: Work) -> None:
        """The host knows now that `work` is done; clocks of streams need not tell it any more."""
        merge(self.host_clock, work.clock)
        queue, host = work.queue, self.host_clock
        queue.clock = {q: seq for q, seq in queue.clock.items() if seq > host.get(q, 0)}

    def poll(self, work: Work) -> bool:
        """Whether `work` has run: the host asks, and time passes with each question."""
        with self.call(work.queue.device):
            if not work.done and self.random.random() < 0.7:
                self._pass_time()
            if work.done:
                self._learn(work)
            return work.done

    def _run_until(self, is_done: Callable[[], bool]) -> None:
        while not is_done():
            if not self._pass_time():
                self.changed.wait(0.001)

    def _pass_time(self) -> bool:
        """Run something; False where nothing can run, DeadlockError if that lasts."""
        now = time.monotonic()
        if self._step():
            self._stuck_since = None
            return True
        if self._stuck_since is None:
            self._stuck_since = now
        elif now - self._stuck_since > self.patience_s:
            raise DeadlockError(self._stuck())
        return False

    def _stuck(self) -> str:
        lines = ["the host waits for what can never run; next on the queues are:"]
        for queue in self.queues:
            if queue.pending:
                work = queue.pending[0]
                missing = [repr(wait) for wait in work.waits if not wait.done]
                missing += [
                    f"{other} on its way to the front of {other.queue}"
                    for other in work.party
                    if other.queue.pending[0] is not other
                ]
                if len(work.party) < work.size:
                    missing.append(f"{work.size - len(work.party)} more ranks to call it")
                lines.append(f"  {work}, which waits for {', '.join(missing)}")
        return "\n".join(lines)

    def is_over(self, work: Work) -> bool:
        """Whether the host knows that `work` uses no memory any more: it has waited for it, or the
        device is lost."""
        device = work.queue.device
        return self.host_clock.get(work.queue, 0) >= work.seq or device in self.lost

    # -- running

    def _step(self) -> bool:
        """Run one work that may run; False if there is none."""
        ready = [queue for queue in self._busy if queue.pending[0].is_ready]
        if not ready:
            return False
        first = self.random.choices(ready, [queue.weight for queue in ready])[0].pending[0]
        for work in first.party:
            work.queue.pending.popleft()
            if not work.queue.pending:
                del self._busy[work.queue]
        try:
            if not any(work.queue.device in self.lost for work in first.party):
                for work in first.party:
                    if work.run is not None or work.size > 1:
                        self.strike(work.queue.device, work.name, "run")
                for work in first.party:
                    if work.run is not None:
                        with np.errstate(all="ignore"):
                            work.run()
        except CUDARuntimeError:
            pass  # its device is lost now; whoever waits for it is told
        except OrderError as error:
            self.report(error)
        except Exception as error:  # a kernel that fails is an illegal address at best
            self.lose(first.queue.device, 700, error)
        for work in first.party:
            work.done, work.run, work.waits = True, None, ()
            work.time_s = time.perf_counter()
        self.changed.notify_all()
        return True

    def finish(self) -> None:
        """Run all that is left; the first OrderError that nobody was told is raised."""
        with self.lock:
            self._run_all()
            if self._untold:
                raise self._untold.pop(0)

    def _run_all(self) -> None:
        self._run_until(lambda: not self._busy)

    # -- faults

    def fail(self, device: int, **how: object) -> None:
        """Let something go wrong on `device`: see `Fault`."""
        with self.lock:
            self.faults.append(Fault(device, **how))  # type: ignore[arg-type]

    def strike(self, device: int, name: str, at: str) -> None:
        for fault in self.faults:
            if fault.strikes(device, name, at):
                self.faults.remove(fault)
                if fault.sticky:
                    self.lose(device, fault.status, None)
                raise CUDARuntimeError(fault.status)

    def lose(self, device: int, status: int, cause: BaseException | None) -> None:
        error = CUDARuntimeError(status)
        error.__cause__ = cause
        self.lost.setdefault(device, error)

    # -- memory

    def add_block(self, block: Block) -> None:
        with self.lock:
            bisect.insort(self._blocks, block, key=lambda block: block.address)

    def remove_block(self, block: Block) -> None:
        with self.lock:
            self._blocks.remove(block)

    def region_at(self, address: int, nbytes: int) -> Region | None:
        """The `nbytes` at `address`; None: no memory that CUDA knows."""
        with self.lock:
            i = bisect.bisect_right(self._blocks, address, key=lambda block: block.address) - 1
            if i >= 0:
                block = self._blocks[i]
                start = address - block.address
                if start + nbytes <= len(block.bytes):
                    return Region(block, start, start + nbytes)
            return None

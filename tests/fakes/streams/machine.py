"""The machine of the fake: that of `labs.streams`, for several devices and threads of the host.

Every call of the host goes through `Machine.call`, under one lock. A wait in which nothing can run
goes on for a while, because another thread of the host may issue what is missing.

>>> from fakes.streams.machine import Machine
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
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from labs import streams
from labs.streams import OrderError, merge

from d2lmini.base.scopes import contextmanager
from fakes.streams.errors import CUDARuntimeError, DeadlockError, Fault
from fakes.streams.order import Block, Queue, Region, Work

_current: list[Machine] = []


def current() -> Machine:
    """The machine of the innermost scope; without a scope, the error of a computer without a
    driver."""
    if not _current:
        raise CUDARuntimeError(35)
    return _current[-1]


@contextmanager
def running(machine: Machine) -> Iterator[None]:
    """A scope in which `machine` is the current machine. What is left runs at the end."""
    _current.append(machine)
    try:
        yield
        machine.finish()
    finally:
        _current.remove(machine)


class Machine(streams.Machine):
    """Devices with memory, queues of work, and the host that issues and waits.

    patience_s  how long a wait in which nothing can run goes on, for other threads of the host
    waits       (name of the thread, why) of each time that the host waited for a device
    issued      how often work of each name was issued
    events      every event that was created
    errors      every OrderError, also those that were not caught
    """

    def __init__(
        self, devices: int, memory: int, seed: int, patience_s: float = 0.5, **options: Any
    ):
        super().__init__(seed, **options)
        self.devices = devices
        self.memory = memory
        self.used = [0] * devices
        self.patience_s = patience_s
        self.issued: Counter[str] = Counter()
        self.events: list[Any] = []
        self.errors: list[OrderError] = []
        self.faults: list[Fault] = []
        self.lost: dict[int, CUDARuntimeError] = {}
        self.contexts: set[int] = set()  # devices that `use_device` has used
        self.local = threading.local()
        self.lock = threading.RLock()
        self.changed = threading.Condition(self.lock)
        self._stuck_since: float | None = None
        self._blocks: list[Block] = []
        self._untold: list[OrderError] = []
        self.pool: Any = None
        self.pinned_pool: Any = None
        self.allocator: Any = None
        self._null = [self.new_queue(i, "null") for i in range(devices)]

    # -- queues and threads

    def new_queue(self, device: int, kind: str = "non-blocking") -> Queue:
        with self.lock:
            number = len(self.queues)
            name = "null stream" if kind == "null" else f"stream {number - self.devices + 1}"
            ptr = 0 if kind == "null" else 0x1000 + 16 * number
            name += f" of device {device}"
            queue = Queue(device, ptr, name, kind, self.draw_weight())
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
            self.run_some()

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
                queue.capture.add(run, reads, writes, waits)
                return None
            work = Work(queue, name, run, [*waits, *self.implicit_waits(queue)])
            self.access(work, reads, writes)
            self.enqueue(work)
            return work

    def implicit_waits(self, queue: Queue) -> list[Work]:
        """Only streams of one device wait for each other."""
        return [work for work in super().implicit_waits(queue) if work.queue.device == queue.device]

    def enqueue(self, work: Work) -> None:
        self._stuck_since = None
        self.issued[work.name] += 1
        super().enqueue(work)

    def refuse_capture(self, queue: Queue) -> None:
        """End a capture with an error: the host would wait for work that is only recorded."""
        if queue.capture is not None:
            queue.capture.invalidate()

    def report(self, error: OrderError) -> None:
        """Keep an error that arises where it cannot be caught: the host's next call raises it."""
        if self.checks:
            self.errors.append(error)
            self._untold.append(error)

    def take_errors(self) -> list[OrderError]:
        """Run all work that can run; return every OrderError, and forget the errors and the work
        that is stuck, so that nothing is raised at the end."""
        with self.lock:
            try:
                self._run_all()
            except DeadlockError:
                for queue in self.busy:
                    while queue.pending:
                        queue.pending.popleft().done = True
                self.busy.clear()
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
            pass  # raises the fault of work that ran in this wait

    def synchronize_queues(self, queues: Sequence[Queue], why: str) -> None:
        for queue in queues:
            self.refuse_capture(queue)
            known = queue.last is None or self.host_clock.get(queue, 0) >= queue.last.seq
            if known and queue.device not in self.lost:
                continue
            work = self.issue(queue, why)
            assert work is not None
            self.synchronize(work, why)

    def _learn(self, work: Work) -> None:
        """The host knows that `work` is done; clocks of streams need not say so any more."""
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
        if self.step():
            self._stuck_since = None
            return True
        if self._stuck_since is None:
            self._stuck_since = now
        elif now - self._stuck_since > self.patience_s:
            raise DeadlockError(self._stuck())
        return False

    def _stuck(self) -> str:
        lines = ["the host waits for work that can never run; next on the queues are:"]
        for queue in self.queues:
            if queue.pending:
                work = queue.pending[0]
                missing = [repr(wait) for wait in work.waits if not wait.done]
                lines.append(f"  {work}, which waits for {', '.join(missing)}")
        return "\n".join(lines)

    def is_over(self, work: Work) -> bool:
        """True if `work` uses no memory any more: the host has waited for it, or the device is
        lost."""
        device = work.queue.device
        return self.host_clock.get(work.queue, 0) >= work.seq or device in self.lost

    # -- running

    def execute(self, work: Work) -> None:
        """Run `work`, the next on its queue."""
        self.dequeue(work)
        try:
            if work.queue.device not in self.lost:
                if work.run is not None:
                    self.strike(work.queue.device, work.name, "run")
                work.compute()
        except CUDARuntimeError:
            pass  # its device is lost now; each wait for it raises
        except OrderError as error:
            self.report(error)
        except Exception as error:  # a kernel that fails is an illegal address at best
            self.lose(work.queue.device, 700, error)
        work.finish()
        self.changed.notify_all()

    def finish(self) -> None:
        """Run all work that is left; raise the first OrderError that was not raised yet."""
        with self.lock:
            self._run_all()
            if self._untold:
                raise self._untold.pop(0)

    def _run_all(self) -> None:
        self._run_until(lambda: not self.busy)

    # -- faults

    def fail(self, device: int, **how: object) -> None:
        """Plant a failure on `device`: see `Fault`."""
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

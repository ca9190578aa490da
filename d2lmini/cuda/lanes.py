"""A lane of a GPU: one stream, and the worker that puts tasks there.

The engine hands a task to the lane instead of running it (`engine.lanes`). The lane lets its stream
wait for what the task depends on, runs it, which puts its work on the stream, and marks the place.
Then the task counts as done; who needs its result on the host waits for the mark besides.

A worker makes its device and stream the current ones when it runs its first task, and they stay so:
CuPy keeps both per thread. A user's thread that runs a task itself (`NaiveEngine`) does so for the
length of the task, or lets another thread run it where a return to the GPU that was current would
make a context there (`current`).
"""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from d2lmini import instrument
from d2lmini.cuda import current
from d2lmini.cuda.memory import Block
from d2lmini.cuda.staging import Staging
from d2lmini.cuda.streams import Mark, Stream
from d2lmini.engine import road
from d2lmini.engine.core import FunctionTask, Task, lock

if TYPE_CHECKING:
    from d2lmini.cuda.device import CudaDevice
    from d2lmini.cuda.recording import Workspace


class _Here(threading.local):
    """Per thread: the lane whose device and stream are current, and how a worker would leave it.
    That is forgotten with the thread, and by it: on any other it would change what is current
    there."""

    lane: CudaLane | None = None
    stack: ExitStack | None = None


here = _Here()


class CudaLane:
    """One stream of a device and what belongs to it.

    graves     blocks allocated here whose arrays are gone, not yet looked at
    waiting    those of them that another stream has yet to be done with, oldest first
    staging    pinned memory, of a lane that copies
    workspace  that of its recordings, if there are any
    """

    def __init__(self, device: CudaDevice, name: str):
        self.device = device
        self.name = name
        self.graves: deque[Block] = deque()
        self.waiting: deque[Block] = deque()
        self.workspace: weakref.ref[Workspace] | None = None
        self._stream: Stream | None = None
        self._staging: Staging | None = None
        self._busy = threading.Lock()  # for the streams' books; nobody waits here, but for an end

    @property
    def stream(self) -> Stream:
        """Made once, for CuPy's pool knows its arenas by their streams."""
        if self._stream is None:
            cuda = self.device.xp.cuda
            with cuda.Device(self.device.ordinal):
                self._stream = Stream(cuda, cuda.Stream(non_blocking=True), self)
            current.in_use.add(self.device.ordinal)
        return self._stream

    @property
    def staging(self) -> Staging:
        if self._staging is None:
            self._staging = Staging(self.device.xp.cuda)
        return self._staging

    # -- what the engine asks ----------------------------------------------------------------------

    def run(self, task: Task) -> None:
        """Run `task`: put its work on the stream, after all it depends on."""
        device = self.device
        device.check()
        with self._busy:
            try:
                if here.lane is self:
                    self._run(task)
                elif self._may_enter(task):
                    self._enter_and_run(task)
                else:
                    current.ask(device, lambda: self._enter_and_run(task))
            except Exception as problem:
                raise device.explained(problem) from None

    def _may_enter(self, task: Task) -> bool:
        """May this thread make the lane's GPU its current one to run `task`? Always where that is a
        user's function, which may push, and so wait for what this thread holds."""
        return (
            road.here.pool is not None
            or type(task) is FunctionTask
            or current.is_in_use(self.device.xp.cuda)
        )

    def _enter_and_run(self, task: Task) -> None:
        with self.entered():
            self._run(task)

    def _run(self, task: Task) -> None:
        stream = self.stream
        self.bury()
        stream.begin(task)
        told = instrument.issuing
        if told:
            instrument.emit("issue", task, self)
        try:
            task.run()
        finally:
            if told:
                instrument.emit("issued", task, self)
            stream.end(task)  # also after an error: some of it may be on its way
        self.device.pool.reserved = self.device.allocator.total_bytes()

    def finish(self, deadline: float | None = None) -> bool:
        """Block until all that was put here is done; False at the deadline. MXNetError if the
        device failed."""
        mark = None if self._stream is None else self._stream.last
        return mark is None or self.device.dead is not None or self.wait(mark, deadline)

    # -- inside ------------------------------------------------------------------------------------

    def wait(self, mark: Mark, deadline: float | None = None) -> bool:
        """Block until a mark has passed; False at the deadline. MXNetError if the device failed,
        for then nothing that is on it can be trusted."""
        self.device.check()
        try:
            return mark.wait(deadline)
        except Exception as problem:
            raise self.device.told(problem) from None

    def check(self, mark: Mark) -> None:
        """MXNetError if the device of a mark failed, which is asked now."""
        self.device.check()
        try:
            mark.ask()  # where something failed, every question is answered by that
        except Exception as problem:
            raise self.device.told(problem) from None

    def timestamp(self) -> Any:
        """An event that knows when the GPU has come so far; on the worker of this lane."""
        event = self.device.xp.cuda.Event()
        event.record(self.stream.handle)
        return event

    def confirm(self, seq: int) -> None:
        """Ask whether the device was well when it did what is before mark `seq`, which others have
        seen come to pass; MXNetError if not."""
        stream = self.stream
        if seq <= stream.passed:
            return
        if stream.last is not None:
            self.check(stream.last)
        stream.passed = max(stream.passed, seq)

    @contextmanager
    def entered(self) -> Iterator[None]:
        """A scope in which device and stream are current on this thread."""
        outer = here.lane
        if outer is self:
            yield
            return
        stack = ExitStack()
        cupy = self.device.xp
        stack.enter_context(cupy.cuda.Device(self.device.ordinal))
        stack.enter_context(self.stream.handle)
        stack.enter_context(cupy.cuda.using_allocator(self.device.allocate))
        here.lane = self
        if road.here.pool is not None and outer is None:
            here.stack = stack  # it serves this lane only, and never leaves it
            yield
            return
        try:
            yield
        finally:
            here.lane = outer
            stack.close()

    def bury(self, at_once: bool = False) -> None:
        """Let go of the memory of arrays that were dropped, if all who used it are done or come
        before what this stream does next. `at_once`: memory is short, so let the stream wait for
        the others. (Memory of another library is kept until all are done.)"""
        pool = self.device.pool
        if pool.freed:
            with lock:
                pool.drain()
        while self.graves:
            block = self.graves.popleft()
            if not block.foreign and self.stream.has_seen(block.order.marks(True)):
                block.array = None
            else:
                self.waiting.append(block)
        # One that is not done ends the look, so that a task asks CUDA about one block at most.
        while self.waiting and self.waiting[0].is_done_with:
            self.waiting.popleft().array = None
        if at_once:
            for block in self.waiting:
                if not block.foreign:
                    self.stream.wait(block.order.marks(True))
                    block.array = None
            self.waiting = deque(block for block in self.waiting if block.foreign)


def with_memory(call: Callable[[], Any]) -> Any:
    """What `call` gives, on a lane's thread with a second try (`CudaDevice.retry`)."""
    lane = here.lane
    return call() if lane is None else lane.device.retry(call)

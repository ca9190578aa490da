"""A lane of a GPU: one stream, and the worker that puts tasks on the stream.

The engine hands a task to the lane instead of running it (`engine.worker_pools`). The lane makes
its stream wait for the task's dependencies, runs the task, which puts its work on the stream, and
records a mark behind the work. Then the task counts as done; a thread that needs the result on the
host waits for the mark as well.

A worker makes its device and stream current when it runs its first task, and they stay current:
CuPy keeps both per thread. A user's thread that runs a task itself (`NaiveEngine`) makes them
current for the duration of the task.
"""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from d2lmini.base import instrument
from d2lmini.base.scopes import contextmanager
from d2lmini.cuda import current
from d2lmini.cuda.issue import (
    WAITING,
    key_of,
    lanes,
    may_issue,
    may_wait,
    prepare_issue,
    prepare_launches,
)
from d2lmini.cuda.launches import given_of
from d2lmini.cuda.memory import Block
from d2lmini.cuda.streams import Stream, StreamMark
from d2lmini.engine import scheduler
from d2lmini.engine.core import Task, lock

if TYPE_CHECKING:
    from d2lmini.cuda.device import CudaDevice


#: A call's launches are prepared when it has run so many times.
BEFORE = 8


class StreamWorker:
    """One stream of a device and what belongs to it.

    pending_free  blocks allocated here whose arrays are gone, not yet examined
    waiting       the pending frees that another stream still uses, oldest first
    launches      by `key_of` a task: the launches that its call has
    reasons       or why its call has none
    graph_results addresses of the results of graphs, which stay the same
    spares        by spec: arrays of results that are gone, for the next results
    """

    def __init__(self, device: CudaDevice, name: str):
        self.device = device
        self.name = name
        self.pending_free: deque[Block] = deque()
        self.waiting: deque[Block] = deque()
        self.graph_results: set[int] = set()
        self.spares: dict[tuple, list[Any]] = {}
        self.launches: dict[Any, Any] = {}
        self.reasons: dict[Any, str] = {}
        self._times: dict[Any, int] = {}
        self._calls: dict[Any, weakref.ref] = {}
        self._scratch: dict[int, Any] = {}
        self.cuda_device = device.xp.cuda.runtime.getDevice
        if name == "compute":
            lanes[device.ctx] = self
        self.busy = threading.Lock()  # guards the stream's bookkeeping; only `finish` waits for it

    @cached_property
    def stream(self) -> Stream:
        """The stream, made once: CuPy's pool identifies its arenas by stream."""
        cuda = self.device.xp.cuda
        with cuda.Device(self.device.ordinal):
            made = Stream(cuda, cuda.Stream(non_blocking=True), self)
        return made

    # -- called by the engine ----------------------------------------------------------------------

    def run(self, task: Task) -> None:
        """Run `task`: put its work on the stream, behind all its dependencies."""
        device = self.device
        device.check()
        with self.busy:
            try:
                with self.enter_scope():
                    self._run(task)
            except Exception as problem:
                raise device.task_error(problem) from None

    def _run(self, task: Task) -> None:
        if self.name == "compute" and task.callee is not None:
            self._prepare(task)
        self._run_ordered(task)
        self.device.pool.reserved = self.device.allocator.total_bytes()

    def _run_ordered(self, task: Task) -> None:
        """Run `task` behind all its dependencies, and put a mark behind it."""
        stream = self.stream
        self.free_pending()
        stream.begin(task.shared, task.writes)
        is_observed = instrument.issuing
        if is_observed:
            instrument.emit("issue", task, self)
        try:
            launches = None if task.callee is None else self.launches.get(key_of(task))
            issue = launches and self._prepare_issue(task, launches, True)
            if issue:
                issue.launch()
            else:
                task.run()
        finally:
            if is_observed:
                instrument.emit("issued", task, self)
            # Also after an error: some of the work may be on the stream.
            stream.end(task.shared, task.writes, stream.unverified(task.reads))

    def finish(self, deadline: float | None = None) -> bool:
        """Block until all work on the stream is done; False at the deadline. MXNetError if the
        device failed."""
        stream = vars(self).get("stream")
        mark = None if stream is None else stream.last
        return mark is None or self.device.dead is not None or self.wait(mark, deadline)

    # -- issuing on the callers' threads (see `issue`) ---------------------------------------------

    def take(self, task: Task) -> Callable[[], None] | None:
        """What puts the work of `task`, whose launches are prepared, on the stream from this
        thread; None if the task must run as on a worker (lock held)."""
        launches = self.launches.get(key_of(task))
        if launches is None or not may_issue(self) or not self.busy.acquire(blocking=False):
            return None
        issue = None
        try:
            issue = self._prepare_issue(task, launches)
        except Exception as problem:
            raise self.device.task_error(problem) from None
        finally:
            if issue is None:
                self.busy.release()
        return issue and issue.run

    def give_back(self) -> None:
        """Workers may use the lane again."""
        self.busy.release()

    def runs_anywhere(self, task: Task) -> bool:
        """True if the caller may run `task`: its kernels are compiled, nothing in it waits, and no
        worker is busy here (lock held)."""
        reason = self.reasons.get(key_of(task), WAITING)
        return reason != WAITING and not self.busy.locked() and may_issue(self)

    def _prepare_issue(self, task: Any, launches: Any, is_worker: bool = False) -> Any:
        inputs = task.inputs
        if None in inputs:  # an optional input that is not given
            inputs = [operand for operand in inputs if operand is not None]
        given = given_of(task)
        issue = prepare_issue(self, launches, inputs, task.outputs, given, is_worker)
        if issue is None and launches.given not in (None, [*given]):
            self.launches.pop(key_of(task), None)  # such a call needs other launches from now on
        return issue

    def _prepare(self, task: Any) -> None:
        """Prepare the launches of a task: at once, for they need not round as CuPy does; but only
        when its call comes often if that makes no difference."""
        key, call = key_of(task), task.callee
        if key in self.launches or key in self.reasons:
            return
        if key not in self._calls:
            known = self.launches, self.reasons, self._times, self._calls
            self._calls[key] = weakref.ref(call, lambda _: [d.pop(key, None) for d in known])
        times = self._times[key] = self._times.get(key, 0) + 1
        if times <= BEFORE and may_wait(call):
            return
        found = prepare_launches(self, call, task)
        if type(found) is str:
            self.reasons[key] = found
        else:
            self.launches[key] = found

    def allocate(self, spec: Any) -> Any:
        """A new array on this stream, on any thread; MemoryError if memory is short."""
        device, pool = self.device, self.device.pool
        if pool.limit is not None and pool.live + spec.nbytes > pool.limit:
            raise MemoryError(pool.explain(spec.nbytes))
        with self.stream.handle:
            memory = device.allocator.malloc(spec.nbytes)
        return device.xp.ndarray(spec.shape, spec.dtype, memory)

    def scratch(self, number: int, nbytes: int) -> Any:
        """Memory for intermediate results, as bytes: the same for all programs of this lane, whose
        work is done in order. Twice as large each time that it is too small."""
        found = self._scratch.get(number)
        if found is None or found.nbytes < nbytes:
            nbytes = max(nbytes, 0 if found is None else 2 * found.nbytes)
            found = self._scratch[number] = self.device.xp.empty(nbytes, np.uint8)
        return found

    # -- called by marks, copies and the profiler --------------------------------------------------

    def wait(self, mark: StreamMark, deadline: float | None = None) -> bool:
        """Block until a mark has passed; False at the deadline. MXNetError if the device failed,
        because then nothing on the device can be trusted."""
        self.device.check()
        try:
            return mark.wait(deadline)
        except Exception as problem:
            raise self.device.waiting_error(problem) from None

    def check(self, mark: StreamMark) -> None:
        """Query the device of a mark; MXNetError if the device failed."""
        self.device.check()
        try:
            mark.query()  # on a failed device every query raises that error
        except Exception as problem:
            raise self.device.waiting_error(problem) from None

    def timestamp(self) -> Any:
        """A timing event recorded now on the stream; called on the worker of this lane."""
        event = self.device.xp.cuda.Event()
        event.record(self.stream.handle)
        return event

    def check_errors(self, seq: int) -> None:
        """Check that the device was healthy when it did the work before mark `seq`, which other
        threads have seen pass; MXNetError if the device failed."""
        stream = self.stream
        if seq <= stream.passed:
            return
        if stream.last is not None:
            self.check(stream.last)
        stream.passed = max(stream.passed, seq)

    @contextmanager
    def enter_scope(self) -> Iterator[None]:
        """A scope in which the lane's device and stream are current on this thread."""
        outer = current.thread_state.lane
        if outer is self:
            yield
            return
        stack = ExitStack()
        cupy = self.device.xp
        stack.enter_context(cupy.cuda.Device(self.device.ordinal))
        stack.enter_context(self.stream.handle)
        stack.enter_context(cupy.cuda.using_allocator(self.device.allocate))
        current.thread_state.lane = self
        if scheduler.thread_state.pool is not None and outer is None:
            # The thread serves only this lane, and never leaves it.
            current.thread_state.stack = stack
            yield
            return
        try:
            yield
        finally:
            current.thread_state.lane = outer
            stack.close()

    def free_pending(self, at_once: bool = False) -> None:
        """Free the blocks of dropped arrays whose users are all done or come before the next work
        on this stream. `at_once`: memory is short, so the stream waits for the other streams.
        (Memory of another library is kept until all users are done.)"""
        pool = self.device.pool
        if pool.freed:
            with lock:
                pool.drain()
        while self.pending_free:
            block = self.pending_free.popleft()
            order = block.order
            is_ours = order.is_on(self.stream) or self.stream.has_seen(order.marks(True))
            if block.foreign or not is_ours:
                self.waiting.append(block)
                continue
            block.free()
        # Stop at the first block still in use, so a task queries CUDA about one block at most.
        while self.waiting and self.waiting[0].is_unused:
            self.waiting.popleft().free()
        if at_once:
            for block in self.waiting:
                if not block.foreign:
                    self.stream.wait(block.order.marks(True))
                    block.free()
            self.waiting = deque(block for block in self.waiting if block.foreign)
            for spares in self.spares.values():
                spares.clear()
            # Launches are prepared again, in new scratch memory.
            for launches in self.launches.values():
                if launches.graphs is not None:
                    launches.graphs.restart()
            self.launches.clear()
            self._scratch.clear()
            self.spares.clear()

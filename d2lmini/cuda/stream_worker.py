"""A lane of a GPU: one stream, and who puts work on the stream.

The engine hands a task to the lane instead of running it (`engine.worker_pools`). The lane makes
its stream wait for the task's dependencies, runs the task, which puts its work on the stream, and
records a mark behind the work. Then the task counts as done; a thread that needs the result on the
host waits for the mark as well.

A launch is asynchronous anyway. So where all that an operation reads has been issued, and its
launches are prepared (`launches`), the caller's thread puts them on the stream itself, in a tenth
of the time of a task. What compiles a kernel, waits for the GPU, cannot be recorded, or depends on
something that is not issued yet goes to the worker of the lane. All work that callers issue is
behind one *open* mark of the stream, whose event is recorded when somebody waits for it
(`streams`).

A worker makes its device and stream current when it runs its first task, and they stay current:
CuPy keeps both per thread. A user's thread that runs a task itself (`NaiveEngine`) makes them
current for the duration of the task.
"""

from __future__ import annotations

import threading
import weakref
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np

from d2lmini import autograd, engine
from d2lmini.base import callsite, instrument
from d2lmini.base.scopes import contextmanager
from d2lmini.context import Context
from d2lmini.cuda.kernels.launch import NotRecorded
from d2lmini.cuda.launches import Launches, given_of
from d2lmini.cuda.memory import Block, is_short_of_memory
from d2lmini.cuda.streams import Stream, StreamMark
from d2lmini.device.storage import Chunk
from d2lmini.engine import scheduler, signals
from d2lmini.engine.core import Task, lock
from d2lmini.engine.failure import Failure
from d2lmini.graph.program import Program, push
from d2lmini.ndarray import dispatch
from d2lmini.ndarray.compute import Operand, OpTask
from d2lmini.ndarray.dispatch import wrap
from d2lmini.ndarray.plan import CallPlan, find_plan
from d2lmini.ops.core import modes
from d2lmini.ops.spec import Spec

if TYPE_CHECKING:
    from d2lmini.cuda.device import CudaDevice

#: At most so many marks of a stream have not passed while callers issue. A mark is behind fifteen
#: tiny launches at most; after about a thousand CUDA lets the host wait.
MOST_AHEAD = 48
#: An open mark gets its event when the work behind it is predicted to take so long: then marks pass
#: while the host goes on.
MARK_US = 30.0
#: One of these ufuncs, whose results are exact, so the same by any kernel, is computed by CuPy so
#: many times before its launches are prepared: such calls come with many different numbers. All
#: others are prepared at once, for they need not round as CuPy does.
BEFORE = 8
EXACT = frozenset(
    "add subtract multiply divide maximum minimum negative absolute square sqrt sign "
    "equal not_equal greater greater_equal less less_equal".split()
)


class _ThreadState(threading.local):
    """Per thread: the lane whose task it runs, and the scope that restores the device and stream
    that were current before. A worker's scope is dropped with its thread and on this thread only:
    on another thread it would change what is current there."""

    lane: StreamWorker | None = None
    stack: ExitStack | None = None


thread_state = _ThreadState()


class StreamWorker:
    """One stream of a device and what belongs to it.

    pending_free  blocks allocated here whose arrays are gone, not yet examined
    waiting       the pending frees that another stream still uses, oldest first
    launches      by `key_of` a task: the launches that its call has
    reasons       or why its call has none
    spares        by spec: arrays of results that are gone, for the next results
    """

    def __init__(self, device: CudaDevice, name: str):
        self.device = device
        self.name = name
        self.pending_free: deque[Block] = deque()
        self.waiting: deque[Block] = deque()
        self.spares: dict[tuple, list[Any]] = {}
        self.launches: dict[Any, Any] = {}
        self.reasons: dict[Any, str] = {}
        self._times: Counter = Counter()
        self._calls: dict[Any, weakref.ref] = {}
        self._scratch: Any = None
        self.cuda_device = device.xp.cuda.runtime.getDevice
        self.busy = threading.Lock()  # guards the stream's bookkeeping; only `finish` waits for it
        self.give_back = self.busy.release

    @cached_property
    def stream(self) -> Stream:
        """The stream, made once: CuPy's pool identifies its arenas by stream."""
        cuda = self.device.xp.cuda
        with cuda.Device(self.device.ordinal):
            return Stream(cuda.Stream(non_blocking=True), self)

    # -- called by the engine ----------------------------------------------------------------------

    def run(self, task: Task) -> None:
        """Run `task`: put its work on the stream, behind all its dependencies."""
        device = self.device
        device.check()
        with self.busy:
            try:
                with self.enter_scope():
                    if self.name == "compute" and task.callee is not None:
                        self._prepare(task)
                    self._run_ordered(task)
                    device.pool.reserved = device.allocator.total_bytes()
            except Exception as problem:
                raise device.task_error(problem) from None

    def _run_ordered(self, task: Task) -> None:
        """Run `task` behind all its dependencies, and put a mark behind it."""
        stream = self.stream
        self.free_pending()
        stream.begin(task.shared, task.writes)
        if is_observed := instrument.issuing:
            instrument.emit("issue", task, self)
        try:
            (self._issue_of(task, is_worker=True) or task.run)()
        finally:
            if is_observed:
                instrument.emit("issued", task, self)
            # Also after an error: some of the work may be on the stream.
            stream.end(task.shared, task.writes, stream.unverified(task.reads))

    def finish(self, deadline: float | None = None) -> bool:
        """Block until all work on the stream is done; False at the deadline. MXNetError if the
        device failed."""
        stream = vars(self).get("stream")
        return stream is None or self.device.dead is not None or self.wait(stream.last, deadline)

    # -- issuing on the callers' threads -----------------------------------------------------------

    def may_issue(self) -> bool:
        """True if callers may put work on the stream now."""
        device = self.device
        is_here = device.dead is None and self.cuda_device() == device.ordinal
        return is_here and self.stream.is_near(MOST_AHEAD)

    def take(self, task: Task) -> Callable[[], None] | None:
        """What puts the work of `task`, whose launches are prepared, on the stream from this
        thread; None if a worker must run the task (lock held)."""
        if not self.may_issue() or not self.busy.acquire(blocking=False):
            return None
        issue = None
        try:
            issue = self._issue_of(task)
        except Exception as problem:
            raise self.device.task_error(problem) from None
        finally:
            if issue is None:
                self.busy.release()
        return issue

    def _issue_of(self, task: Any, is_worker: bool = False) -> Callable[[], None] | None:
        launches = None if task.callee is None else self.launches.get(key_of(task))
        if launches is None:
            return None
        inputs = [operand for operand in task.inputs if operand is not None]
        return prepare_issue(self, launches, inputs, task.outputs, given_of(task), is_worker)

    def _prepare(self, task: Any) -> None:
        """Prepare the launches of a task, on the worker."""
        key, call = key_of(task), task.callee
        if key in self.launches or key in self.reasons:
            return
        if key not in self._calls:
            known = self.launches, self.reasons, self._times, self._calls
            self._calls[key] = weakref.ref(call, lambda _: [d.pop(key, None) for d in known])
        self._times[key] += 1
        ufunc = call.op.ufunc if isinstance(call, CallPlan) else None
        if ufunc is not None and ufunc.__name__ in EXACT and self._times[key] <= BEFORE:
            return
        try:
            self.launches[key] = Launches(self, key, call, task)
        except NotRecorded as problem:
            self.reasons[key] = str(problem)
            if isinstance(call, Program) and call.replays is not None:
                call.replays.restart(str(problem))

    def allocate(self, spec: Any) -> Any:
        """A new array on this stream, on any thread; MemoryError if memory is short."""
        device, pool = self.device, self.device.pool
        if pool.limit is not None and pool.live + spec.nbytes > pool.limit:
            raise MemoryError(pool.explain(spec.nbytes))
        with self.stream.handle:
            memory = device.allocator.malloc(spec.nbytes)
        return device.xp.ndarray(spec.shape, spec.dtype, memory)

    def scratch(self, nbytes: int) -> Any:
        """Memory for intermediate results: the same for all programs of this lane, whose work is
        done in order."""
        if self._scratch is None or self._scratch.nbytes < nbytes:
            self._scratch = None
            for launches in self.launches.values():
                if launches.fixed:
                    launches.fixed = None
            self._scratch = self.allocate(Spec((nbytes,), np.uint8))
        return self._scratch

    # -- called by marks, copies and the profiler --------------------------------------------------

    def wait(self, mark: StreamMark, deadline: float | None = None) -> bool:
        """Block until a mark has passed; False at the deadline. MXNetError if the device failed,
        because then nothing on the device can be trusted."""
        return self.ask(partial(mark.wait, deadline))

    def ask(self, question: Callable[[], bool]) -> bool:
        """The answer to a question about the device; MXNetError if the device failed, for then
        every query of a mark raises that error."""
        self.device.check()
        try:
            return question()
        except Exception as problem:
            raise self.device.waiting_error(problem) from None

    def timestamp(self) -> Any:
        """A timing event recorded now on the stream; called on the worker of this lane."""
        event = self.device.xp.cuda.Event()
        event.record(self.stream.handle)
        return event

    @contextmanager
    def enter_scope(self) -> Iterator[None]:
        """A scope in which the lane's device and stream are current on this thread."""
        outer = thread_state.lane
        if outer is self:
            yield
            return
        cuda = self.device.xp.cuda
        with ExitStack() as stack:
            stack.enter_context(cuda.Device(self.device.ordinal))
            stack.enter_context(self.stream.handle)
            stack.enter_context(cuda.using_allocator(self.device.allocate))
            stack.callback(setattr, thread_state, "lane", outer)
            thread_state.lane = self
            if scheduler.thread_state.pool is not None and outer is None:
                # The thread serves only this lane, and never leaves it.
                thread_state.stack = stack.pop_all()
            yield

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
            if block.foreign or not self.stream.has_seen(block.order.marks(True)):
                self.waiting.append(block)
                continue
            block.free()
        # Stop at the first block still in use, so a task queries CUDA about one block at most.
        while self.waiting and self.waiting[0].is_unused:
            self.waiting.popleft().free()
        if at_once:
            for block in [block for block in self.waiting if not block.foreign]:
                self.stream.wait(block.order.marks(True))
                self.waiting.remove(block)
                block.free()
            for launches in self.launches.values():
                if launches.graphs is not None:
                    launches.graphs.restart()
            for spares in self.spares.values():
                spares.clear()
            self._scratch = None
            self.launches.clear()  # they are prepared again


# -- launches and their arrays ---------------------------------------------------------------------


def key_of(task: Any) -> Any:
    """What the launches of a task's call depend on."""
    call = task.callee
    if type(task) is OpTask and (task.op.injects or None in task.inputs):
        attrs = task.attrs
        missing = tuple([i for i, operand in enumerate(task.inputs) if operand is None])
        return id(call), attrs.get("training"), attrs.get("rng") is None, missing
    return id(call)


def prepare_issue(
    lane: StreamWorker, launches: Launches, inputs: Sequence[Operand], outputs: Sequence[Operand],
    given: Sequence[Any], is_worker: bool = False,
) -> Callable[[], None] | None:  # fmt: skip
    """What puts launches, or a graph of them, on the stream, with arrays, new ones for new outputs.
    None if an output overwrites what they still read, if memory is short, if a call with these
    numbers needs other launches; or, with the lock held on a caller's thread, if it depends on what
    is not issued yet."""
    stream = lane.stream
    memory: list[Any] = []
    reads, writes, fresh, marks = [], [], [], []  # type: ignore[var-annotated]
    for chunk, offset, spec in inputs:
        if not is_worker:
            order = chunk.order
            if chunk.writer is not None or chunk.queue or chunk.error is not None or order is None:
                return None
            mark = order.writer
            if mark is None or order.unverified:
                return None
            if mark.stream is not stream:
                if mark.stream.device is not lane.device:
                    return None
                marks.append(mark)
            reads.append(order)
        data = chunk.data.data
        memory.append(data + offset * spec.dtype.itemsize if offset else data)
    is_apart = True
    for chunk, offset, spec in outputs:
        if chunk.data is None:
            memory.append(None)
            continue
        if not is_worker:
            if chunk.writer is not None or chunk.readers or chunk.queue or chunk.error is not None:
                return None
            marks += chunk.order.marks(True)
            writes.append(chunk.order)
        memory.append(chunk.data.data + (offset or 0) * spec.dtype.itemsize)
        is_apart = is_apart and all([chunk is not operand[0] for operand in inputs])
    if not is_worker and (lane.device.pool.freed or lane.pending_free or lane.waiting):
        lane.free_pending()
    if not (is_apart or launches.is_map):
        return None
    for i in launches.mutated:
        if sum([inputs[i][0] is operand[0] for operand in inputs]) > 1:
            return None
        if not is_worker:
            marks += reads[i].marks(True)
            writes.append(reads[i])
    if launches.given is not None and not launches.renew(given, lane.device.xp):
        return None
    graphs, found = launches.graphs, launches
    if graphs is not None:
        found = graphs.choose(lane, launches, memory, inputs, is_worker)
        if found is None:
            return None
    for n, ((chunk, _, spec), spares) in enumerate(zip(outputs, found.spares), len(inputs)):
        if memory[n] is None:
            try:
                array = spares.pop() if spares else lane.allocate(spec)
            except MemoryError:
                return None
            fresh.append((chunk, array, spares))
            memory[n] = array.data
    if marks and not stream.has_seen(marks):
        stream.wait(marks)

    def issue() -> None:
        """Behind the open mark of the stream; a worker puts a mark of its own behind its task."""
        mark = stream.last
        if mark.event is not None or not mark.seq:
            mark = stream.open_mark()
        for order in reads:
            order.readers[stream] = mark
        for order in writes:
            order.record_write(mark, {})
        try:
            found.run(memory)
        except Exception as problem:
            if not is_short_of_memory(problem):
                raise lane.device.task_error(problem) from None
            lane.device.trim(lane)
            found.run(memory)
        for chunk, array, spares in fresh:
            block = chunk.block = Block(array, lane, spares, found is not launches)
            block.order.writer = mark
            with lock:
                chunk.order = block.order
                chunk.own(array)
        stream.us += found.predicted_us
        if stream.us > MARK_US and not is_worker:
            mark.close()

    return issue


# -- calls without a task --------------------------------------------------------------------------


def issue_call(
    call: Any, inputs: Sequence[Any], ctx: Context, kind: type, given: Sequence[Any] = ()
) -> list[Any] | None:
    """The results of a call with new outputs only, issued here without a task; None if it must be
    queued. The most frequent calls, with as few Python calls as possible."""
    current = engine.current
    lane: Any = current.runners.get((ctx, "compute"))
    launches = None if lane is None else lane.launches.get(id(call))
    if (
        launches is None
        or launches.mutated
        or scheduler.thread_state.task is not None
        or instrument.listeners
        or not current.issues
        or current.recorder is not None
        or current._deferred
        or signals.noted
        or lock._is_owned()  # type: ignore[attr-defined]
        or not lane.may_issue()
    ):
        return None
    operands = [(x._chunk, x._offset, x._spec) for x in inputs if x._ctx is ctx]
    if len(operands) < len(inputs):
        return None
    pool = lane.device.pool
    outputs = [(Chunk(pool, spec.nbytes), None, spec) for spec in launches.specs]
    with lock:
        if not lane.busy.acquire(False):
            return None
        try:
            issue = prepare_issue(lane, launches, operands, outputs, given)
            if issue is None:
                return None
            issue()
        except Exception as error:
            failure = Failure(launches.name, callsite.find(), lane.device.task_error(error))
            for chunk, _, _ in outputs:
                chunk.error = failure
            current.reports.add(failure, current._sequence, keep=False)
        finally:
            lane.busy.release()
        current.inlined += 1
    results = []
    for chunk, _, spec in outputs:
        if chunk.weight:
            chunk.filled = True  # type: ignore[attr-defined]
        results.append(wrap(chunk, spec, ctx, kind=kind))
    return results


def issue_op(op: Any, inputs: tuple, attrs: dict[str, Any], kind: type) -> Any:
    """The result of a call of an op with one new output; None if it must be queued."""
    plan = find_plan(op, inputs, attrs)
    if plan is None or len(plan.outputs) > 1:
        return None
    results = issue_call(plan, inputs, inputs[0]._ctx, kind)
    if results is None:
        return None
    if modes.recording and any([x._node is not None for x in inputs]):
        autograd.record_op(op, inputs, attrs, results)
    return results[0]


def push_program(
    program: Program, inputs: Sequence[Any], ctx: Context, keys: Sequence[Any],
    outs: Sequence[Any] = (),
) -> list[Any]:  # fmt: skip
    """The outputs of a call of a program, issued here or queued."""
    kind = dispatch.kind_of(inputs)
    results = None if outs else issue_call(program, inputs, ctx, kind, keys)
    return push(program, inputs, ctx, keys, outs) if results is None else results


dispatch.issue = issue_op

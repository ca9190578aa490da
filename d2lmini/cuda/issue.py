"""Operations issued where they are called: no task for a worker, no event.

A launch is asynchronous anyway. So where all that an operation reads has been issued, and its
launches are prepared (`launches`), the caller's thread puts them on the stream itself, in a tenth
of the time of a task. What compiles a kernel, waits for the GPU, or depends on something that
is not issued yet goes to the worker of the lane.

All work that callers issue is behind one *open* mark of the stream, whose event is recorded when
somebody waits for it (`streams`).
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any, NamedTuple

from d2lmini import autograd, callsite, engine, instrument
from d2lmini.context import Context
from d2lmini.cuda.current import thread_state
from d2lmini.cuda.launches import Launches, program_of
from d2lmini.cuda.memory import Block, is_short_of_memory
from d2lmini.cuda.streams import Stream, StreamOrder
from d2lmini.device.storage import Chunk
from d2lmini.engine import scheduler, signals
from d2lmini.engine.core import lock
from d2lmini.engine.failure import Failure
from d2lmini.graph.ir import topological
from d2lmini.graph.plan import Arenas
from d2lmini.graph.program import Program
from d2lmini.ndarray import dispatch
from d2lmini.ndarray.compute import array_of
from d2lmini.ndarray.dispatch import wrap
from d2lmini.ndarray.plan import CallPlan, find_plan
from d2lmini.ops.core import modes

if TYPE_CHECKING:
    from d2lmini.cuda.stream_worker import StreamWorker

#: At most so many marks of a stream have not passed while callers issue. A mark is behind fifteen
#: tiny launches at most; after about a thousand CUDA lets the host wait.
MOST_AHEAD = 48
#: An open mark gets its event when the work behind it is predicted to take so long: then marks pass
#: while the host goes on.
MARK_US = 30.0

#: The lanes that compute, by context.
lanes: weakref.WeakValueDictionary[Context, StreamWorker] = weakref.WeakValueDictionary()


def prepare_launches(lane: StreamWorker, call: Any) -> Launches | str:
    """The launches of a call, an op's plan or a program, on the worker of the lane; or why there
    are none."""
    try:
        ctx = lane.device.ctx
        if waits(call):
            return WAITING
        if not isinstance(call, (CallPlan, Program)):
            return "it is replayed"
        if isinstance(call, CallPlan):
            if call.op.injects:
                return "it asks for the mode or draws"
            if call.op.mutates:
                return "it changes an input"
            if not call.inputs:
                return "it reads nothing"
            call = program_of(call, ctx, Arenas(ctx))
        program: Program = call
        if program.mutated:
            return "it changes an input"
        if len(program.parts) > 1:
            return "it runs in parts"
        return Launches(lane, program)
    except Exception as problem:  # whatever a program does that is no launch
        return f"{type(problem).__name__}: {problem}"


#: Ufuncs whose results are exact, so the same by any kernel.
EXACT = frozenset(
    "add subtract multiply divide maximum minimum negative absolute square sqrt sign "
    "equal not_equal greater greater_equal less less_equal".split()
)


def may_wait(call: Any) -> bool:
    """True if a call may be computed by CuPy as long as it is rare: one exact ufunc. Such calls
    come with many different numbers."""
    ufunc = call.op.ufunc if isinstance(call, CallPlan) else None
    return ufunc is not None and ufunc.__name__ in EXACT


#: Ops that wait for the GPU: a sort does, and what finds out where indices are equal.
WAITS = frozenset(
    "sort argsort topk _first _shuffle shuffle take _take_grad _getitem_grad _backward_gather_nd "
    "CTCLoss _contrib_boolean_mask".split()
)
#: Why a call that waits has no launches.
WAITING = "it waits for the GPU"


def waits(call: Any) -> bool:
    """True if a call, an op's plan or a program or its replays, may wait for the GPU."""
    if isinstance(call, CallPlan):
        return call.name in WAITS
    program = call if isinstance(call, Program) else call.program
    return any(
        node.op is not None and node.op.name in WAITS for node in topological(program.outputs)
    )


def arrange(lane: StreamWorker, launches: Launches, task: Any) -> Arranged | None:
    """The arrays of a task for its launches, new ones for new outputs; None if an output overwrites
    what the launches still read, or if memory is short."""
    if None in task.inputs:
        return None
    arrays = [array_of(operand) for operand in task.inputs]
    read = [operand[0] for operand in task.inputs]
    fresh = []
    for (chunk, offset, spec), kind, spares in zip(
        task.outputs, launches.outputs, launches.spares, strict=True
    ):
        if chunk.data is not None:
            if chunk in read and not (launches.is_map and offset is None):
                return None
            arrays.append(array_of((chunk, offset, spec)))
            continue
        array = spares.pop() if spares else _allocate(lane, kind, chunk.nbytes)
        if array is None:
            return None
        fresh.append((chunk, array, spares))
        arrays.append(array)
    return Arranged(lane, launches, (*arrays, *launches.scratch), fresh)


def launch(lane: Any, launches: Launches, arrays: tuple) -> None:
    """Run the launches; once more if a library finds no memory, after cached memory was freed."""
    try:
        launches.run(arrays)
    except Exception as problem:
        if not is_short_of_memory(problem):
            raise
        outer, thread_state.lane = thread_state.lane, lane
        try:
            lane.device.trim()
        finally:
            thread_state.lane = outer
        launches.run(arrays)


class Arranged(NamedTuple):
    """Launches with their arrays. fresh: the new outputs, as chunk, array and where the array is
    kept when it is not used any more."""

    lane: Any
    launches: Launches
    arrays: tuple
    fresh: list[tuple[Chunk, Any, list[Any] | None]]

    def run(self) -> None:
        """Launch, and give the new outputs their arrays."""
        launch(self.lane, self.launches, self.arrays)
        for chunk, array, spares in self.fresh:
            block = chunk.block = Block(array, self.lane)
            block.spares = spares
            with lock:
                chunk.order = block.order
                chunk.own(array)


class PlainIssue:
    """A task that is issued on its caller's thread as a worker would run it."""

    __slots__ = ("lane", "task")

    def __init__(self, lane: Any, task: Any):
        self.lane = lane
        self.task = task

    def run(self) -> None:
        """Run the task with the stream current on this thread."""
        lane, task = self.lane, self.task
        task.prepare()
        device = lane.device
        with lane.stream.handle, device.xp.cuda.using_allocator(device.allocate):
            thread_state.lane, scheduler.thread_state.task = lane, task
            try:
                lane.run_in_scope(task)
            finally:
                thread_state.lane = scheduler.thread_state.task = None


class Issue(NamedTuple):
    """A task that is issued by its launches: what it reads and writes in place."""

    arranged: Arranged
    reads: list[StreamOrder]
    writes: list[StreamOrder]

    def run(self) -> None:
        """Launch, and note on the Vars that it is on this stream."""
        arranged = self.arranged
        stream = arranged.lane.stream
        mark = stream.open or stream.open_mark()  # the lock is held: nobody closes it meanwhile
        for order in self.reads:
            order.readers[stream] = mark
        for order in self.writes:
            order.record_write(mark, {})
        arranged.run()
        for chunk, _, _ in arranged.fresh:
            chunk.order.writer = mark
        stream.us += arranged.launches.predicted_us
        if stream.us > MARK_US:
            mark.close()


def prepare_issue(lane: StreamWorker, task: Any) -> Issue | PlainIssue | None:
    """What is needed to issue a task on this thread; None if a worker must run it (lock held)."""
    launches = lane.launches.get(id(task.callee), 0)
    device, stream = lane.device, lane.stream
    if (
        type(launches) is int
        or device.dead is not None
        or lane.cuda_device() != device.ordinal
        or not stream.is_near(MOST_AHEAD)
    ):
        return None
    if type(launches) is str:
        return None if launches == WAITING else PlainIssue(lane, task)
    if None in task.inputs:  # an optional input that is not given
        return None
    reads, writes, marks = [], [], []
    for chunk, _, _ in task.inputs:
        order = chunk.order
        if chunk.writer is not None or chunk.queue or chunk.error is not None:
            return None
        mark = None if order is None or order.unverified else order.writer
        if mark is None or mark.stream.device is not device:
            return None
        marks.append(mark)
        reads.append(order)
    for chunk, _, _ in task.outputs:
        order = chunk.order
        if chunk.data is not None:
            if chunk.writer is not None or chunk.readers or chunk.queue or chunk.error is not None:
                return None
            marks += order.marks(True)
            writes.append(order)
    if lane.device.pool.freed or lane.pending_free or lane.waiting:
        lane.free_pending()
    arranged = arrange(lane, launches, task)
    if arranged is None:
        return None
    if not stream.has_seen(marks):
        stream.wait(marks)
    return Issue(arranged, reads, writes)


def issue_new(op: Any, inputs: tuple, attrs: dict[str, Any], kind: type) -> Any:
    """The result of a call of an op with one new output, issued here without a task; None if the
    call must be queued. The most frequent calls, with as few Python calls as possible."""
    plan = find_plan(op, inputs, attrs)
    ctx = inputs[0]._ctx
    lane = lanes.get(ctx)
    if plan is None or lane is None:
        return None
    launches = lane.launches.get(id(plan))
    if type(launches) is not Launches or len(launches.spares) > 1:
        return None
    current = engine.current
    if (
        scheduler.thread_state.task is not None
        or instrument.listeners
        or not current.issues
        or current.recorder is not None
        or current._late
        or signals.noted
        or lock._is_owned()  # type: ignore[attr-defined]
    ):
        return None
    device, stream = lane.device, lane.stream
    if not stream.is_near(MOST_AHEAD) or lane.cuda_device() != device.ordinal:
        return None
    with lock:
        if device.dead is not None or not lane.busy.acquire(False):
            return None
        try:
            chunk = _issue_here(lane, stream, launches, inputs, ctx)
        finally:
            lane.busy.release()
        if chunk is None:
            return None
        current.inlined += 1
    array = wrap(chunk, launches.spec, ctx, kind=kind)
    if modes.recording:
        for x in inputs:
            if x._node is not None:
                autograd.record_op(op, inputs, attrs, [array])
                break
    return array


def _issue_here(lane: Any, stream: Stream, launches: Launches, inputs: tuple, ctx: Context) -> Any:
    """The chunk of the result, issued; None if the call must be queued (lock held)."""
    arrays = []
    for x in inputs:
        chunk = x._chunk
        if chunk.writer is not None or chunk.queue or chunk.error is not None:
            return None
        order = chunk.order
        if order is None or order.unverified or x._ctx is not ctx or x._offset is not None:
            return None
        mark = order.writer
        if mark is None or mark.stream is not stream:
            if mark is None or mark.stream.device is not stream.device:
                return None
            stream.wait((mark,))
        arrays.append(chunk.data)
    pool = lane.device.pool
    if pool.freed:
        lane.free_pending()
    spares = launches.spares[0]
    nbytes = launches.spec.nbytes
    out = spares.pop() if spares else _allocate(lane, launches.outputs[0], nbytes)
    if out is None:
        return None
    mark = stream.open or stream.open_mark()  # the lock is held: nobody closes it meanwhile
    for x in inputs:
        x._chunk.order.readers[stream] = mark
    problem = None
    try:
        launch(lane, launches, (*arrays, out, *launches.scratch))
    except Exception as error:
        problem = lane.device.task_error(error)
    chunk = Chunk(pool, nbytes)
    block = chunk.block = Block(out, lane)
    block.spares = spares
    order = chunk.order = block.order
    order.writer = mark
    chunk.data = out
    pool.live += nbytes
    if pool.live > pool.peak:
        pool.peak = pool.live
    if chunk.weight:
        chunk.filled = True
    if problem is not None:
        failure = chunk.error = Failure(launches.name, callsite.find(), problem)
        engine.current.reports.add(failure, engine.current._sequence, keep=False)
    stream.us += launches.predicted_us
    if stream.us > MARK_US:
        mark.close()
    return chunk


def _allocate(lane: Any, kind: tuple, nbytes: int) -> Any:
    """A new array on this stream; None if memory is short."""
    device = lane.device
    pool = device.pool
    if pool.limit is not None and pool.live + nbytes > pool.limit:
        return None
    shape, dtype = kind
    with lane.stream.handle:
        try:
            memory = device.allocator.malloc(nbytes)
        except Exception:
            return None
    return device.xp.ndarray(shape, dtype, memory)


dispatch.issue = issue_new

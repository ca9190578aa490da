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
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from d2lmini import autograd, engine
from d2lmini.base import callsite, instrument
from d2lmini.context import Context
from d2lmini.cuda.current import thread_state
from d2lmini.cuda.launches import Launches, given_of
from d2lmini.cuda.memory import Block, is_short_of_memory
from d2lmini.cuda.recorder import NotRecorded
from d2lmini.cuda.streams import StreamOrder
from d2lmini.device.storage import Chunk
from d2lmini.engine import scheduler, signals
from d2lmini.engine.core import lock
from d2lmini.engine.failure import Failure
from d2lmini.graph.ir import topological
from d2lmini.graph.program import Program, push
from d2lmini.ndarray import dispatch
from d2lmini.ndarray.compute import Operand, OpTask
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


# -- which calls have launches ---------------------------------------------------------------------


def key_of(task: Any) -> Any:
    """What the launches of a task's call depend on."""
    call = task.callee
    if type(task) is OpTask and (task.op.injects or None in task.inputs):
        attrs = task.attrs
        missing = tuple([i for i, operand in enumerate(task.inputs) if operand is None])
        return id(call), attrs.get("training"), attrs.get("rng") is None, missing
    return id(call)


def prepare_launches(lane: StreamWorker, call: Any, task: Any) -> Launches | str:
    """The launches of a task's call, an op's plan or a program, on the worker of the lane; or why
    there are none."""
    if waits(call):
        reason = WAITING
    elif isinstance(call, CallPlan) and not call.inputs and not given_of(task):
        reason = "it makes constants, which need not be kept"
    else:
        try:
            return Launches(lane, call, task)
        except NotRecorded as problem:
            reason = str(problem)
    if isinstance(call, Program) and call.replays is not None:
        call.replays.restart(reason)
    return reason


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
    "CTCLoss".split()
)
#: Why a call that waits has no launches.
WAITING = "it waits for the GPU"


def waits(call: Any) -> bool:
    """True if a call, an op's plan or a program, may wait for the GPU."""
    if isinstance(call, CallPlan):
        return call.name in WAITS
    return any([node.op and node.op.name in WAITS for node in topological(call.outputs)])


# -- launches and their arrays ---------------------------------------------------------------------


class Issue:
    """Launches, or a graph of them, and their arrays, ready to be put on the stream of a lane.

    memory  where the inputs and outputs begin
    fresh   the new outputs: chunk, array, and where the array is kept when it is not used any more
    reads   the orders of the inputs
    writes  those of what is changed in place
    """

    __slots__ = ("fresh", "lane", "launches", "memory", "reads", "writes")

    def __init__(
        self, lane: StreamWorker, launches: Any, memory: list[Any], fresh: list[Any],
        reads: Sequence[StreamOrder], writes: Sequence[StreamOrder],
    ):  # fmt: skip
        self.lane = lane
        self.launches = launches
        self.memory = memory
        self.fresh = fresh
        self.reads = reads
        self.writes = writes

    def launch(self) -> None:
        """Put the launches on the stream, and give the new outputs their arrays. Once more if a
        library finds no memory, after cached memory was freed."""
        lane, launches = self.lane, self.launches
        try:
            launches.run(self.memory)
        except Exception as problem:
            if not is_short_of_memory(problem):
                raise lane.device.task_error(problem) from None
            outer, thread_state.lane = thread_state.lane, lane
            try:
                lane.device.trim()
            finally:
                thread_state.lane = outer
            launches.run(self.memory)
        for chunk, array, spares in self.fresh:
            block = chunk.block = Block(array, lane, spares)
            with lock:
                chunk.order = block.order
                chunk.own(array)

    def run(self) -> None:
        """The same on a caller's thread: behind the open mark of the stream (lock held)."""
        stream = self.lane.stream
        mark = stream.open or stream.open_mark()  # the lock is held: nobody closes it meanwhile
        for order in self.reads:
            order.readers[stream] = mark
        for order in self.writes:
            order.record_write(mark, {})
        self.launch()
        for chunk, _, _ in self.fresh:
            chunk.order.writer = mark
        stream.us += self.launches.predicted_us
        if stream.us > MARK_US:
            mark.close()


def prepare_issue(
    lane: StreamWorker, launches: Launches, inputs: Sequence[Operand], outputs: Sequence[Operand],
    given: Sequence[Any], is_worker: bool = False,
) -> Issue | None:  # fmt: skip
    """Launches with arrays, new ones for new outputs. None if an output overwrites what they still
    read, if memory is short, if a call with these numbers needs other launches; or, with the lock
    held on a caller's thread, if it depends on what is not issued yet."""
    stream = lane.stream
    memory, reads, writes, fresh, marks = [], [], [], [], []
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
    n = len(inputs)
    for (chunk, _, spec), spares in zip(outputs, found.spares):
        if memory[n] is None:
            try:
                array = spares.pop() if spares else lane.allocate(spec)
            except MemoryError:
                return None
            fresh.append((chunk, array, spares))
            memory[n] = array.data
        n += 1
    if marks and not stream.has_seen(marks):
        stream.wait(marks)
    return Issue(lane, found, memory, fresh, reads, writes)


def may_issue(lane: StreamWorker) -> bool:
    """True if callers may put work on the stream of a lane now."""
    device = lane.device
    return (
        device.dead is None
        and lane.cuda_device() == device.ordinal
        and lane.stream.is_near(MOST_AHEAD)
    )


# -- calls without a task --------------------------------------------------------------------------


def issue_call(
    call: Any, inputs: Sequence[Any], ctx: Context, kind: type, given: Sequence[Any] = ()
) -> list[Any] | None:
    """The results of a call with new outputs only, issued here without a task; None if it must be
    queued. The most frequent calls, with as few Python calls as possible."""
    lane = lanes.get(ctx)
    launches = None if lane is None else lane.launches.get(id(call))
    current = engine.current
    if (
        lane is None
        or launches is None
        or launches.mutated
        or scheduler.thread_state.task is not None
        or instrument.listeners
        or not current.issues
        or current.recorder is not None
        or current._deferred
        or signals.noted
        or lock._is_owned()  # type: ignore[attr-defined]
        or not may_issue(lane)
    ):
        return None
    operands: list[Operand] = []
    for x in inputs:
        if x._ctx is not ctx:
            return None
        operands.append((x._chunk, x._offset, x._spec))
    outputs: list[Operand] = []
    for spec in launches.specs:
        outputs.append((Chunk(lane.device.pool, spec.nbytes), None, spec))
    with lock:
        if not lane.busy.acquire(False):
            return None
        try:
            issue = prepare_issue(lane, launches, operands, outputs, given)
            if issue is None:
                return None
            issue.run()
        except Exception as error:
            _fail(launches.name, outputs, lane.device.task_error(error))
        finally:
            lane.busy.release()
        current.inlined += 1
    results = []
    for chunk, _, spec in outputs:
        if chunk.weight:
            chunk.filled = True  # type: ignore[attr-defined]
        results.append(wrap(chunk, spec, ctx, kind=kind))
    return results


def _fail(name: str, outputs: Sequence[Operand], problem: Exception) -> None:
    """Keep the error of a call on its outputs (lock held)."""
    failure = Failure(name, callsite.find(), problem)
    for chunk, _, _ in outputs:
        chunk.error = failure
    engine.current.reports.add(failure, engine.current._sequence, keep=False)


def issue_op(op: Any, inputs: tuple, attrs: dict[str, Any], kind: type) -> Any:
    """The result of a call of an op with one new output; None if it must be queued."""
    plan = find_plan(op, inputs, attrs)
    if plan is None or len(plan.outputs) > 1:
        return None
    results = issue_call(plan, inputs, inputs[0]._ctx, kind)
    if results is None:
        return None
    if modes.recording:
        for x in inputs:
            if x._node is not None:
                autograd.record_op(op, inputs, attrs, results)
                break
    return results[0]


def push_program(
    program: Program, inputs: Sequence[Any], ctx: Context, keys: Sequence[Any],
    outs: Sequence[Any] = (),
) -> list[Any]:  # fmt: skip
    """The outputs of a call of a program, issued here or queued."""
    results = None
    if not outs:
        results = issue_call(program, inputs, ctx, dispatch.kind_of(inputs), keys)
    return push(program, inputs, ctx, keys, outs) if results is None else results


dispatch.issue = issue_op

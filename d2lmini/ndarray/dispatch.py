"""Dispatch: apply an op or a compiled program to NDArrays, inline or by a queued task.

    apply(op, inputs, attrs, out)     an op
    run_inline(call, inputs, ctx)     anything with a kernel: an op's `CallPlan`, a compiled program

A small call whose inputs are ready runs inline, on the caller's thread (`run_inline`, the fast
path): on four numbers a NumPy kernel takes a third of a microsecond, and the dispatch must not take
ten. The engine's lock is held meanwhile, so no other thread changes what the call reads or writes.
Results are new arrays, or go into tiny arrays given as `out=`. A call is queued if it is large, if
an input is pending, failed or on a device, or if the call fails. Shape, dtype and context
errors are raised here, on the caller's thread; an error of the computation occurs inside the task
and is kept on the outputs' Vars.

>>> from d2lmini import engine, nd
>>> x = nd.ones((2, 2))
>>> before = engine.stats().inline
>>> y = x + 1
>>> engine.stats().inline - before
1
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import zip_longest
from math import inf
from time import perf_counter_ns
from typing import Any

import numpy as np

from d2lmini import autograd, engine
from d2lmini.base import MXNetError, callsite, instrument
from d2lmini.context import Context, current_context
from d2lmini.device import errstate
from d2lmini.device.errstate import run_locked
from d2lmini.device.storage import SMALL, Chunk, Pool, check_there, pool_of
from d2lmini.engine import signals
from d2lmini.engine.budget import Handle
from d2lmini.engine.core import lock
from d2lmini.engine.scheduler import thread_state
from d2lmini.ndarray.compute import OpTask, array_of
from d2lmini.ndarray.plan import CallPlan, find_plan, plan_of
from d2lmini.ops import random_state
from d2lmini.ops.core import Op, Spec, Value, modes, registry

#: The class of arrays; `NDArray` registers itself here, since it imports this module.
Array: Any = None
#: `NDArray` and, once it is loaded, `np.ndarray`. A result has the class of the first input.
CLASSES: set[type] = set()

#: Issues a call on a GPU on the caller's thread, or returns None; set by the add-on.
issue: Any = None

new = object.__new__
ndarray = np.ndarray
_copy = registry["_copy"]

#: Any ufunc on arrays under 4 KiB is predicted to take less than this.
SMALL_US = 12.0


def wrap(
    chunk: Chunk, spec: Spec, ctx: Context, handle: Handle | None = None,
    offset: int | None = None, node: Any = None, kind: type | None = None,
) -> Any:  # fmt: skip
    """An array of class `kind` in `chunk`: all of it, or from element `offset` on. Arrays that
    share a chunk share its handle."""
    array = new(kind or Array)
    array._chunk = chunk
    array._handle = Handle(chunk) if handle is None and chunk.weight else handle
    array._offset = offset
    array._spec = spec
    array._ctx = ctx
    array._node = node
    return array


def apply(
    op: Op, inputs: tuple, attrs: dict[str, Any], out: Any = None, ctx: Context | None = None
) -> Any:
    """Apply `op` to NDArrays; returns one NDArray, or a list of NDArrays.

    This function has the most frequent calls, with as few Python calls as possible: one tiny new
    array, made by a known plan or, as for `x + 1` and `x * y`, by a single ufunc on arrays of one
    spec, for which no plan is looked up. `apply_any` handles all other calls."""
    kind: Any = type(inputs[0]) if inputs else None
    if out is not None or (kind is not Array and kind not in CLASSES):
        return apply_any(op, inputs, attrs, out, ctx, None)
    x = inputs[0]
    if not x._ctx.is_cpu and issue is not None:
        result = issue(op, inputs, attrs, kind)
        return apply_any(op, inputs, attrs, out, ctx, None) if result is None else result
    current = engine.current
    spec = whole = x._spec
    scalars = spec.scalar_cache
    plan = None
    if op.ufunc is None or scalars is None:
        plan = find_plan(op, inputs, attrs)
        if plan is None or not plan.small or plan.predicted_us >= current.inline_below:
            return apply_any(op, inputs, attrs, out, ctx, plan)
        spec = plan.outputs[0]
    elif current.inline_below < SMALL_US:
        return apply_any(op, inputs, attrs, out, ctx, None)
    if thread_state.task or instrument.apart:
        return apply_any(op, inputs, attrs, out, ctx, plan)
    watched = instrument.all_in_one
    result = None
    chunk = x._chunk
    with lock:
        begin_ns = perf_counter_ns() if watched else 0
        if (
            chunk.writer is None
            and not chunk.queue
            and chunk.error is None
            and (chunk.spec is whole or _is_all(chunk, x))
        ):
            a = chunk.data
            try:
                if plan is None and attrs:
                    result = run_locked(op.ufunc, a, scalars[attrs["scalar"]])  # type: ignore[index]
                elif (others := _ready(inputs[1:], x._ctx) if len(inputs) > 1 else ()) is None:
                    pass
                elif plan is None:
                    if not others or inputs[1]._spec is whole:
                        result = run_locked(op.ufunc, a, *others)
                elif plan.kernel is not None:
                    result = run_locked(plan.kernel, np, a, *others)
                else:
                    (result,) = run_locked(plan.run, (a, *others), plan.no_outputs, attrs)
            except Exception:  # the task keeps the error on the outputs; `queue` reports non-arrays
                result = None
            if result is not None:
                pool = chunk.pool
                chunk = Chunk(pool, spec.nbytes)
                chunk.data = result if type(result) is ndarray else np.asarray(result)
                chunk.spec = spec
                pool.live += spec.nbytes
                current.inlined = inlined = current.inlined + 1
                if not inlined & 63:
                    pool.review()
                if watched:
                    # One plan for all numbers.
                    plan = plan or plan_of(
                        op, tuple(x._spec for x in inputs), attrs and {"scalar": 1}
                    )
                    _tell(plan, x._ctx, inputs, (chunk,), begin_ns)
    if result is None:
        return apply_any(op, inputs, attrs, out, ctx, plan)
    array = new(kind)  # `wrap` inlined: saves a call on every small operation
    array._chunk = chunk
    array._handle = array._offset = array._node = None
    array._spec = spec
    array._ctx = x._ctx
    for x in inputs:
        if x._node is not None:
            if modes.recording:
                autograd.record_op(op, inputs, attrs, [array])
            break
    return array


def apply_any(
    op: Op, inputs: tuple, attrs: dict[str, Any], out: Any, ctx: Context | None,
    plan: CallPlan | None,
) -> Any:  # fmt: skip
    """`apply` for any call; `plan` is the call's plan if it was looked up already."""
    if op.simple and (not inputs or type(inputs[0]) in CLASSES):
        if plan is None:
            plan = find_plan(op, inputs, attrs)
        where = inputs[0]._ctx if inputs else ctx or current_context()
        if plan and plan.simple and where.is_cpu and (out is None or not modes.recording):
            outs = () if out is None else (out,)
            results = run_inline(plan, inputs, where, outs, attrs)
            if results is not None:
                if modes.recording:
                    autograd.record_op(op, inputs, attrs, results)
                return results[0]
    return queue(op, inputs, attrs, out, ctx, plan)


def kind_of(inputs: Sequence[Any]) -> type:
    """The class of the results of a call."""
    return type(inputs[0]) if inputs else Array


# -- inline --------------------------------------------------------------------------------------


def run_inline(
    call: Any, inputs: Sequence[Any], ctx: Context, outs: Sequence[Any] = (), given: Any = ()
) -> list[Any] | None:
    """Compute `call` inline, on the CPU; returns the outputs, new arrays where `outs` has None.
    Returns None if the call must be queued; then nothing has changed.

    call: the `CallPlan` of an op, or of a compiled program what has the same attributes: `name`,
    `predicted_us`, `outputs`, `tiny`, `no_outputs` (a None for each output), `cost`, and `run`,
    which gets the arrays, the places of the results, and `given`: an op's attributes, or the
    random keys.

    Existing contents of `outs` are replaced by one copy each, after everything is computed. So an
    output may also be an input, and neither a failure nor Ctrl-C leaves half of a result."""
    current = engine.current
    if call.predicted_us >= current.inline_below or thread_state.task or instrument.apart:
        return None
    # A task must replace contents or take pool memory while listeners want memory events, while the
    # memory checker watches, and when a finalizer runs inside a state change.
    if (outs or not call.tiny) and (
        instrument.listeners or current._deferred or errstate.began is not None or lock._is_owned()  # type: ignore[attr-defined]
    ):
        return None
    watched = instrument.all_in_one
    with lock:
        begin_ns = perf_counter_ns() if watched else 0
        chunks = places = call.no_outputs
        try:
            arrays = _ready(inputs, ctx)
            if arrays is None or (outs and not _may_replace(outs, call.outputs)):
                return None
            pool = inputs[0]._chunk.pool if inputs else pool_of(ctx)
            if not call.tiny:
                chunks, places = _allocated(call.outputs, outs, pool)
            results = run_locked(call.run, arrays, places, given)
        except Exception:  # the task keeps the error on the outputs; `queue` reports non-arrays
            return None
        kind = type(inputs[0]) if inputs else Array
        found = _enter(call.outputs, results, chunks, outs, pool, ctx, kind)
        current.inlined = inlined = current.inlined + 1
        if not inlined & 63:
            pool.review()
        if watched:
            _tell(call, ctx, inputs, tuple(y._chunk for y in found), begin_ns)
    return found


def _ready(inputs: Iterable[Any], ctx: Context) -> list[np.ndarray] | None:
    """The arrays of the inputs, if no input is pending or failed, and all are on the CPU in this
    context (lock held)."""
    arrays = []
    for x in inputs:
        chunk = x._chunk
        if chunk.writer is not None or chunk.queue or chunk.error is not None or x._ctx is not ctx:
            return None
        if chunk.spec is x._spec or _is_all(chunk, x):
            arrays.append(chunk.data)
        elif chunk.data is not None and ctx.is_cpu:  # a view
            arrays.append(array_of((chunk, x._offset, x._spec)))
        else:
            return None
    return arrays


def _is_all(chunk: Chunk, x: Any) -> bool:
    """True if `x` is all of its memory, in that shape, and on the CPU. A True is remembered."""
    if chunk.data is None or chunk.data.shape != x._spec.shape or not x._ctx.is_cpu:
        return False
    chunk.spec = x._spec
    return True


def _may_replace(outs: Sequence[Any], specs: Sequence[Spec]) -> bool:
    """True if each of `outs` is a tiny array on the CPU, has its spec, no task reads or writes its
    memory, and backward needs nothing of its old contents (lock held)."""
    for out, spec in zip(outs, specs):
        if out is None:
            continue
        if type(out) not in CLASSES or out._spec is not spec or spec.nbytes >= SMALL:
            return False
        chunk = out._chunk
        busy = chunk.writer is not None or chunk.readers or chunk.queue
        if busy or chunk.error is not None or chunk.data is None or not out._ctx.is_cpu:
            return False
        if chunk.saved is not None or chunk.parts:
            begin = out._offset or 0
            if chunk.cells_in(begin, begin + spec.size):
                return False
    return True


def _allocated(
    specs: Sequence[Spec], outs: Sequence[Any], pool: Pool
) -> tuple[Sequence[Chunk | None], Sequence[np.ndarray | None]]:
    """New memory for the outputs that are not tiny and not in `outs`, as chunks and as arrays (lock
    held)."""
    chunks: list[Chunk | None] = []
    places: list[np.ndarray | None] = []
    for out, spec in zip_longest(outs, specs):
        chunk = Chunk(pool, spec.nbytes) if out is None and spec.nbytes >= SMALL else None
        chunks.append(chunk)
        places.append(None if chunk is None else chunk.allocate(spec.shape, spec.dtype))
    return chunks, places


def _enter(
    specs: Sequence[Spec], results: Sequence[Any], chunks: Sequence[Chunk | None],
    outs: Sequence[Any], pool: Pool, ctx: Context, kind: type,
) -> list[Any]:  # fmt: skip
    """Results as arrays: those in `chunks`, `outs`, each filled by one call, and new ones, whose
    memory is the tiny results (lock held). Ctrl-C leaves either all of several `outs` unchanged, or
    all filled."""
    held = signals.hold() if len(outs) > 1 else None
    try:
        arrays: list[Any] = []
        for out, result, spec, chunk in zip_longest(outs, results, specs, chunks):
            if out is not None:
                chunk = out._chunk
                chunk.version += 1
                place = chunk.data if chunk.spec is spec else array_of((chunk, out._offset, spec))
                place[...] = result
            elif chunk is None:
                chunk = Chunk(pool, spec.nbytes)
                chunk.data = result
                chunk.spec = spec
                pool.live += spec.nbytes
            if chunk.weight:  # also if `out` is a part of this chunk
                chunk.filled = True
            arrays.append(wrap(chunk, spec, ctx, kind=kind) if out is None else out)
    finally:
        if held is not None:
            signals.release(held)
    return arrays


def _tell(
    call: Any, ctx: Context, inputs: Iterable[Any], writes: tuple[Chunk, ...], begin_ns: int
) -> None:
    """Notify listeners of an inline computation (lock held)."""
    end_ns = perf_counter_ns()
    writes[0].pool.review()  # report earlier frees first
    reads = tuple([x._chunk for x in inputs])
    instrument.emit(
        "small", call.name, ctx, reads, writes, callsite.find(2), call.predicted_us, call.cost,
        begin_ns, end_ns,
    )  # fmt: skip


# -- the queue -----------------------------------------------------------------------------------


def queue(
    op: Op, inputs: tuple, attrs: dict[str, Any], out: Any, ctx: Context | None,
    plan: CallPlan | None,
) -> Any:  # fmt: skip
    """Apply `op` by a task; returns one NDArray or a list. plan: the call's plan, if known."""
    if op.mutates and modes.repeats:
        inputs = copies_of(inputs, op.mutated(len(inputs), attrs))
    operands: list[Any] = []
    reads = []
    for x in inputs:
        if x is None:
            operands.append(None)
            continue
        if not isinstance(x, Array):
            if isinstance(x, Value):  # a traced value: captures the arrays in its graph
                return x._apply(op, inputs, attrs, out)
            hint = "; make an NDArray of it with nd.array(...)" if hasattr(x, "__len__") else ""
            raise TypeError(f"{op.name}: expected NDArrays, got {type(x).__name__}{hint}")
        operands.append((x._chunk, x._offset, x._spec))
        reads.append(x._chunk)
        if ctx is None:
            ctx = x._ctx
        elif x._ctx is not ctx and not (ctx.is_cpu and x._ctx.is_cpu):
            raise MXNetError(
                f"{op.name}: inputs are on {ctx} and {x._ctx}; move one with .as_in_context({ctx})"
            )
    ctx = ctx or current_context()
    if plan is None:
        plan = plan_of(op, [x._spec for x in inputs if x is not None], attrs)
    inferred = plan.outputs
    if op.injects:
        attrs = dict(attrs)
        if "training" in op.injects:
            attrs["training"] = modes.training
        if op.random:
            attrs["rng"] = random_state.next_key(ctx) if op.draws(**attrs) else None
    shown = len(inferred)
    if shown > 1 and callable(op.outputs):
        # Further outputs are for backward only: BatchNorm's mean and deviation.
        shown = op.outputs(**attrs)
    pool = reads[0].pool if reads else pool_of(ctx)
    outs: list[Any] = []
    if out is not None:
        outs = list(out) if isinstance(out, (list, tuple)) else [out]
        check_out(op.name, outs, inferred[:shown], ctx)
        if modes.recording:
            autograd.check_in_place(op, inputs, outs, all([y._offset is None for y in outs]))
            inputs = copies_of(inputs, (), outs)  # the tape saves them after the write
        note_writes(outs)
        # Only a whole chunk is overwritten; a part of a chunk is a read-modify-write.
        reads += [y._chunk for y in outs if y._offset is not None]
    kind, new_specs = kind_of(inputs), inferred[len(outs) :]
    outs += [wrap(Chunk(pool, spec.nbytes), spec, ctx, kind=kind) for spec in new_specs]
    outputs = [(y._chunk, y._offset, y._spec) for y in outs]
    writes = [y._chunk for y in outs]
    if op.mutates:
        mutated = [inputs[i] for i in op.mutated(len(inputs), attrs)]
        if modes.recording:
            autograd.check_in_place(op, (), mutated, False)
        note_writes(mutated)
        writes += [x._chunk for x in mutated]
    if not ctx.is_cpu:
        check_there(reads + writes)
    task = OpTask(op, operands, outputs, attrs, ctx, plan, tuple(reads), tuple(writes))
    engine.current.push(task)
    if modes.recording:
        autograd.record_op(op, inputs, attrs, outs)
    return outs[0] if shown == 1 else outs[:shown]


def copies_of(
    inputs: Sequence[Any], positions: Sequence[int], outs: Sequence[Any] = ()
) -> tuple[Any, ...]:
    """The inputs, with copies at `positions`, and of what lies in the memory of `outs`: of what a
    call will change."""
    memory = [y._chunk for y in outs]
    return tuple([
        x.copy() if x is not None and (i in positions or x._chunk in memory) else x
        for i, x in enumerate(inputs)
    ])  # fmt: skip


def note_writes(arrays: Iterable[Any]) -> None:
    """Called before a push that writes into existing arrays: copies what backward still needs of
    their contents (`Chunk`)."""
    for x in arrays:
        chunk = x._chunk
        if chunk.saved is not None or chunk.parts:
            begin = x._offset or 0
            hand_over(x, begin, begin + x._spec.size)


def hand_over(x: Any, begin: int = 0, end: float = inf) -> None:
    """Give the cells of the memory of `x` a copy of what a push will overwrite: elements `begin` to
    `end`. The copies are operations like any other, so they read the old contents."""
    chunk, dtype = x._chunk, x._spec.dtype
    with lock:
        cells = chunk.cells_in(begin, end)
    for first, last, cell in cells:
        site = callsite.find()
        size = chunk.nbytes // dtype.itemsize if first is None else last - first
        old = wrap(chunk, Spec((size,), dtype), x._ctx, x._handle, first)
        copy = apply(_copy, (old,), _copy.defaults)
        if cell[0] is not None:  # else another thread's copy is there, which is older
            cell[:] = None, copy, site
    if cells:
        with lock:
            chunk.cells_in(begin, end)


def check_out(name: str, outs: Sequence[Any], inferred: Sequence[Spec], ctx: Context) -> None:
    """MXNetError or TypeError unless `outs` can take the results."""
    if len(outs) != len(inferred):
        raise MXNetError(f"{name}: gives {len(inferred)} outputs, out= has {len(outs)}")
    for x, spec in zip(outs, inferred, strict=True):
        if not isinstance(x, Array):
            raise TypeError(f"{name}: out= takes NDArrays, got {type(x).__name__}")
        if x._spec != spec:
            raise MXNetError(f"{name}: out= has {x._spec}, the result {spec}")
        if x._ctx.is_cpu is not ctx.is_cpu or not (ctx.is_cpu or x._ctx is ctx):
            raise MXNetError(f"{name}: out= is on {x._ctx}, the inputs are on {ctx}")

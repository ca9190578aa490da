"""The short road of operations on tiny arrays: nothing pending, so compute here and now.

What `apply` and `Engine.run_inline` do, with every call saved that can be: on four numbers a NumPy
kernel takes a third of a microsecond, and the way there must not take ten. Under the one lock
nobody can begin to write what is read here. Whoever asks for more goes the long road: something is
large, pending, failed, a view, on a device, wrong, or watched event by event.

>>> from d2lmini import engine, nd
>>> x = nd.ones((2, 2))
>>> before = engine.stats().inline
>>> y = x + 1
>>> engine.stats().inline - before
1
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from time import perf_counter_ns
from typing import Any

import numpy as np

from d2lmini import autograd, callsite, engine, instrument
from d2lmini.context import Context
from d2lmini.device.quiet import run_locked
from d2lmini.device.storage import Chunk
from d2lmini.engine.core import lock
from d2lmini.engine.road import here
from d2lmini.ndarray.plan import Plan, known_plan, ufunc_plan
from d2lmini.ops.core import Op, modes

#: The class of arrays; `NDArray` registers itself here, for it stands on this module.
Array: Any = None

new = object.__new__
ndarray = np.ndarray

#: No ufunc on arrays under 4 KiB is predicted to take longer than this.
SMALL_US = 12.0


def apply_small(x: Any, op: Op, inputs: tuple, attrs: dict[str, Any]) -> Any:
    """`op` on NDArrays, of which `x` is the first, if it is a simple one that is over sooner than
    it could be handed to a worker and whose result is tiny; None when this call has to go the long
    road."""
    current = engine.current
    if here.task or instrument.apart:
        return None
    spec = x._spec
    plan = None
    ufunc = op.ufunc
    beside = spec.beside
    if ufunc is None or beside is None:
        plan = known_plan(op, inputs, attrs)
        if plan is None or plan.tiny is None or plan.predicted_us >= current.inline_below:
            return None
        spec = plan.tiny
    elif current.inline_below < SMALL_US:
        return None
    watched = instrument.all_in_one
    ctx = x._ctx
    chunk = x._chunk
    with lock:
        begin_ns = perf_counter_ns() if watched else 0
        if chunk.writer is not None or chunk.queue or chunk.error is not None:
            return None
        if chunk.spec is not x._spec and not is_all(chunk, x):
            return None
        a = chunk.data
        try:
            others = () if len(inputs) == 1 else _contents(inputs[1:], ctx)
            if others is None:
                return None
            if plan is not None:
                if plan.kernel is not None:
                    result = run_locked(plan.kernel, np, a, *others)
                else:
                    result = run_locked(op.compute, np, a, *others, **attrs)
                    result = _fitted(result, plan, a, *others)
            elif attrs:
                result = run_locked(ufunc, a, beside[attrs["scalar"]])
            elif not others:
                result = run_locked(ufunc, a)
            elif inputs[1]._spec is spec:
                result = run_locked(ufunc, a, *others)
            else:
                return None
        except Exception:  # the long road keeps it on the outputs, or knows what is no array
            return None
        pool = chunk.pool
        chunk = Chunk(pool, spec.nbytes)
        chunk.data = result if type(result) is ndarray else np.asarray(result)
        chunk.spec = spec
        pool.live += spec.nbytes
        current.inlined = inlined = current.inlined + 1
        if not inlined & 63:
            pool.review()
        if watched:
            plan = ufunc_plan(op, inputs, attrs) if plan is None else plan
            tell(op.name, ctx, inputs, (chunk,), plan.predicted_us, plan.cost, begin_ns)
    array = new(Array)
    array._chunk = chunk
    array._handle = array._offset = array._node = None
    array._spec = spec
    array._ctx = ctx
    for x in inputs:
        if x._node is not None:
            if modes.recording:
                autograd.recorded(op, inputs, attrs, [array])
            break
    return array


def _contents(inputs: tuple, ctx: Context) -> list[np.ndarray] | None:
    """The arrays of the inputs, if nothing is pending on them, none has failed, and each is the
    whole of its memory in this context (lock held)."""
    arrays = []
    for x in inputs:
        chunk = x._chunk
        if chunk.writer is not None or chunk.queue or chunk.error is not None:
            return None
        if x._ctx is not ctx or (chunk.spec is not x._spec and not is_all(chunk, x)):
            return None
        arrays.append(chunk.data)
    return arrays


def is_all(chunk: Chunk, x: Any) -> bool:
    """Is `x` all of its memory, in that very shape, and on the CPU? If so, it is remembered."""
    if chunk.data is None or chunk.data.shape != x._spec.shape or not x._ctx.is_cpu:
        return False
    chunk.spec = x._spec
    return True


def tell(
    name: str, ctx: Context, inputs: Iterable[Any], writes: tuple[Chunk, ...], predicted_us: float,
    footprint: Callable[[], Any], begin_ns: int,
) -> None:  # fmt: skip
    """Let those who listen know of what went the short road (lock held)."""
    end_ns = perf_counter_ns()
    writes[0].pool.review()  # what was given back before is told before
    reads = tuple([x._chunk for x in inputs])
    instrument.emit(
        "small", name, ctx, reads, writes, callsite.find(2), predicted_us, footprint, begin_ns,
        end_ns,
    )  # fmt: skip


def _fitted(result: Any, plan: Plan, *inputs: Any) -> np.ndarray:
    """The result as what a chunk can hold: as promised, contiguous, seen by nobody else. If it is
    so already, the plan keeps the kernel that gives such."""
    spec = plan.outputs[0]
    if type(result) is not np.ndarray:
        return np.array(result, spec.dtype, order="C")
    if result.shape != spec.shape or result.dtype != spec.dtype:
        raise AssertionError(f"computed {result.shape} {result.dtype}, promised {spec}")
    if result.base is not None or not result.flags.carray or _is_among(result, inputs):
        # Without `order` a copy of a transposed array is in Fortran's order too.
        return np.array(result, spec.dtype, order="C")
    plan.keep_kernel()
    return result


def _is_among(result: np.ndarray, inputs: Iterable[np.ndarray]) -> bool:
    return any(a is result for a in inputs)

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
from d2lmini.device import quiet
from d2lmini.device.storage import SMALL, Chunk
from d2lmini.engine.core import lock
from d2lmini.engine.road import here
from d2lmini.ndarray.plan import known_plan, ufunc_plan
from d2lmini.ops.core import Op, modes
from d2lmini.ops.numbers import fit

#: The class of arrays; `NDArray` registers itself here, for it stands on this module.
Array: Any = None

new = object.__new__

#: No ufunc on arrays under 4 KiB is predicted to take longer than this.
SMALL_US = 12.0


def apply_small(op: Op, inputs: tuple, attrs: dict[str, Any]) -> Any:
    """`op` on NDArrays, if it is a simple one that is over sooner than it could be handed to a
    worker and whose result is tiny; None when this call has to go the long road."""
    current = engine.current
    context = quiet.here.context
    if context is None or here.task or instrument.apart:
        return None
    watched = instrument.all_in_one
    if not inputs or type(inputs[0]) is not Array:
        return None
    x = inputs[0]
    spec = x._spec
    ctx = x._ctx
    if x._offset is not None or not ctx.is_cpu:
        return None
    ufunc = op.ufunc
    plan = None
    if ufunc is None or spec.dtype.kind != "f" or spec.nbytes >= SMALL:
        plan = known_plan(op, inputs, attrs)
        if plan is None or plan.tiny is None or plan.predicted_us >= current.inline_below:
            return None
        spec = plan.tiny
        ufunc = None
    elif current.inline_below < SMALL_US:
        return None
    chunk = x._chunk
    with lock:
        begin_ns = perf_counter_ns() if watched else 0
        a = chunk.data
        if a is None or chunk.writer is not None or chunk.queue or chunk.error is not None:
            return None
        if a.shape != x._spec.shape:
            return None
        try:
            if ufunc is None:
                arrays = [np, a]
                for y in inputs[1:]:
                    chunk = y._chunk
                    a = chunk.data
                    if chunk.writer is not None or chunk.queue or a is None:
                        return None
                    if chunk.error is not None or y._offset is not None or y._ctx is not ctx:
                        return None
                    if a.shape != y._spec.shape:
                        return None
                    arrays.append(a)
                result = context.run(op.compute, *arrays, **attrs)
                if not _fits(result, spec, arrays):
                    result = np.array(result, spec.dtype)
            elif attrs:
                result = context.run(ufunc, a, fit[np][spec.dtype][attrs["scalar"]])
            elif len(inputs) == 1:
                result = context.run(ufunc, a)
            else:
                y = inputs[1]
                chunk = y._chunk
                b = chunk.data
                if chunk.writer is not None or chunk.queue or b is None or chunk.error is not None:
                    return None
                if y._offset is not None or y._spec is not spec or b.shape != spec.shape:
                    return None
                if y._ctx is not ctx:
                    return None
                result = context.run(ufunc, a, b)
        except Exception:  # the long road keeps it on the outputs
            return None
        pool = chunk.pool
        chunk = Chunk(pool, spec.nbytes)
        chunk.data = result if type(result) is np.ndarray else np.asarray(result)
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
    if modes.recording:
        for x in inputs:
            if x is not None and x._node is not None:
                autograd.recorded(op, inputs, attrs, [array])
                break
    return array


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


def _fits(result: Any, spec: Any, arrays: list[Any]) -> bool:
    """Can it be the contents of a chunk: fresh, contiguous, as promised?"""
    if type(result) is not np.ndarray:
        return False
    if result.shape != spec.shape or result.dtype != spec.dtype:
        raise AssertionError(f"computed {result.shape} {result.dtype}, promised {spec}")
    if result.base is not None or not result.flags.c_contiguous:
        return False
    for a in arrays:  # noqa: SIM110  (a generator would take as long as the rest)
        if a is result:
            return False
    return True

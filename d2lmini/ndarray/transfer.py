"""Copies between devices: each is one task on a copy lane of a device.

A copy to a device runs on the lane "in" of that device, a copy from a device to the CPU on the lane
"out", a copy between devices on the lane "in" of the target. So both devices continue to compute,
and two copies in opposite directions do not wait for each other.

>>> from d2lmini import cpu, gpu, nd, virtual_gpus
>>> with virtual_gpus(1):
...     x = nd.array([1, 2, 3], ctx=gpu(0))         # one copy in
...     (x * 2).asnumpy()                           # one copy out, and a wait for it
array([2., 4., 6.], dtype=float32)
"""

from __future__ import annotations

from typing import Any

import numpy as np

from d2lmini import autograd, engine
from d2lmini.base import MXNetError
from d2lmini.context import Context, cpu
from d2lmini.device.devices import device_of
from d2lmini.device.storage import Chunk, check_there, pool_of
from d2lmini.engine.core import Task, Var
from d2lmini.ndarray import dispatch
from d2lmini.ndarray.compute import Operand, array_of, is_missing
from d2lmini.ndarray.dispatch import apply, note_writes, wrap
from d2lmini.ops.core import Spec, modes, registry
from d2lmini.ops.spec import Cost

_KINDS = {True: "CPU", False: "GPU"}

#: Where a copy begins or ends; on the CPU perhaps a NumPy array that no other code uses.
End = Operand | np.ndarray


class Transfer(Task):
    """A copy between devices."""

    __slots__ = ("lane", "source", "target")

    defers = True

    def __init__(self, source: End, source_ctx: Context, target: End, target_ctx: Context):
        self.lane = "out" if target_ctx.is_cpu else "in"
        ctx = source_ctx if target_ctx.is_cpu else target_ctx
        reads = (source[0],) if isinstance(source, tuple) else ()
        writes: tuple[Var, ...] = (target[0],) if isinstance(target, tuple) else (Var(),)
        # MXNet's task names.
        name = f"Copy{_KINDS[source_ctx.is_cpu]}2{_KINDS[target_ctx.is_cpu]}"
        super().__init__(name, reads, writes, ctx)
        self.source = source
        self.target = target

    def keeps(self, var: Var) -> bool:
        if var in self.reads:
            return True
        there = isinstance(self.target, tuple) and self.target[0].data is not None
        return there and not any(map(is_missing, self.reads))

    def footprint(self) -> Any:
        """The bytes over the link."""
        source = self.source
        nbytes = source[2].nbytes if isinstance(source, tuple) else source.nbytes
        return lambda: Cost(0.0, float(nbytes))

    def run(self) -> None:
        target = self.target
        if isinstance(target, tuple):
            chunk, _, spec = target
            fresh = chunk.data is None
            target = chunk.allocate(spec.shape, spec.dtype) if fresh else array_of(target)
        source = self.source
        source = array_of(source) if isinstance(source, tuple) else source
        device_of(self.ctx).copy(target, source)


def upload(array: np.ndarray, ctx: Context) -> Any:
    """A new NDArray on a device other than the CPU, from a host array that does not change."""
    spec = Spec(array.shape, array.dtype)
    result = wrap(Chunk(pool_of(ctx), spec.nbytes), spec, ctx)
    engine.current.push(Transfer(array, cpu(), (result._chunk, None, spec), ctx))
    return result


def read(x: Any, by: str) -> np.ndarray:
    """A NumPy copy of an array on a device; waits, recorded as `by` in the ledger."""
    check_there((x._chunk,))
    result = np.empty(x._spec.shape, x._spec.dtype)
    task = Transfer((x._chunk, x._offset, x._spec), x._ctx, result, cpu())
    engine.current.push(task)
    engine.current.wait(by, task.writes[0])
    return result


def copyto(source: Any, target: Any) -> Any:
    """Copy `source` into an NDArray, or to a context; see NDArray.copyto. Between devices the dtype
    is converted before the transfer."""
    if isinstance(target, Context):
        spec = source._spec
        chunk = Chunk(pool_of(target), spec.nbytes)  # a missing device is an error here
        target = wrap(chunk, spec, target, kind=type(source))
    if not isinstance(target, dispatch.Array):
        raise TypeError(f"copyto: expected an NDArray or a Context, got {type(target).__name__}")
    if target._spec.shape != source._spec.shape:
        raise MXNetError(f"copyto: source has shape {source.shape}, target {target.shape}")
    if target._chunk is source._chunk and target._offset == source._offset:
        return target  # the same memory
    op, dtype = registry["_copyto"], target._spec.dtype
    here, there = source._ctx, target._ctx
    if here is there or (here.is_cpu and there.is_cpu):
        apply(op, (source,), op.bound(dtype=dtype), target)
        return target
    if source._spec.dtype != dtype:
        source = source.astype(dtype)
    check_there((source._chunk, target._chunk))
    whole = target._offset is None
    if modes.recording:
        autograd.check_in_place(op, (source,), [target], whole)
    begin = (source._chunk, source._offset, source._spec)
    end = (target._chunk, target._offset, target._spec)
    task = Transfer(begin, here, end, there)
    note_writes([target])
    if not whole:
        task.reads += (target._chunk,)
    engine.current.push(task)
    if modes.recording and source._node is not None:
        autograd.record_op(op, (source,), {"dtype": dtype}, [target])
    return target

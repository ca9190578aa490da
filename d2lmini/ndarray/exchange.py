"""Import and export of arrays: other devices, NumPy, DLPack, pickles, files.

A copy between devices is one task on a copy lane of a device. A copy to a device runs on the lane
"in" of that device, a copy from a device to the CPU on the lane "out", a copy between devices on
the lane "in" of the target. So both devices continue to compute, and two copies in opposite
directions do not wait for each other.

>>> from d2lmini import cpu, gpu, nd, virtual_gpus
>>> with virtual_gpus(1):
...     x = nd.array([1, 2, 3], ctx=gpu(0))         # one copy in
...     (x * 2).asnumpy()                           # one copy out, and a wait for it
array([2., 4., 6.], dtype=float32)

Exports that share memory keep the chunk alive as long as the foreign array lives: the base of
NumPy's array is a `Lease`.

>>> import numpy as np
>>> x = nd.ones((2, 2))
>>> np.from_dlpack(x).sum()
np.float32(4.0)
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from d2lmini import autograd, engine
from d2lmini.base import MXNetError
from d2lmini.context import Context, cpu, current_context
from d2lmini.device import storage
from d2lmini.device.devices import device_of, exists, gpus
from d2lmini.device.storage import Chunk, check_there, pool_of
from d2lmini.engine.core import Task, Var
from d2lmini.ndarray import dispatch, serialize
from d2lmini.ndarray.compute import Operand, array_of, never_computed
from d2lmini.ndarray.dispatch import apply, note_writes, wrap
from d2lmini.ops.core import Cost, Spec, as_dtype, modes, registry

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
        return there and not any(map(never_computed, self.reads))

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
    spec = source._spec
    if isinstance(target, Context):
        chunk = Chunk(pool_of(target), spec.nbytes)  # a missing device is an error here
        target = wrap(chunk, spec, target, kind=type(source))
    if not isinstance(target, dispatch.Array):
        raise TypeError(f"copyto: expected an NDArray or a Context, got {type(target).__name__}")
    if target._spec.shape != spec.shape:
        raise MXNetError(f"copyto: source has shape {source.shape}, target {target.shape}")
    if target._chunk is source._chunk and target._offset == source._offset:
        return target  # the same memory
    op, dtype = registry["_copyto"], target._spec.dtype
    here, there = source._ctx, target._ctx
    if here is there or (here.is_cpu and there.is_cpu):
        apply(op, (source,), op.bound(dtype=dtype), target)
        return target
    source = source.astype(dtype, copy=False)
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
    if modes.recording:
        autograd.record_op(op, (source,), {"dtype": dtype}, [target])
    return target


# -- NumPy and DLPack ------------------------------------------------------------------------------

#: DLPack's number of CUDA devices.
_CUDA = 2


def from_array(array: np.ndarray, ctx: Context, adopt: bool = False) -> Any:
    """A new NDArray with the contents of `array`: a copy, or the same memory if `adopt` and the
    memory is writable and in C order. A device other than the CPU gets a copy later: with `adopt`
    of what `array` holds then."""
    array = np.asarray(array)  # a subclass becomes a plain array
    spec = Spec(array.shape, array.dtype)
    chunk = Chunk(pool_of(ctx), spec.nbytes)
    result = wrap(chunk, spec, ctx)
    if not ctx.is_cpu:
        source = array if adopt else array.copy()
        engine.current.push(Transfer(source, cpu(), (chunk, None, spec), ctx))
        return result
    if adopt and chunk.pool.adopts and array.flags.carray:
        chunk.adopt(array)
    else:
        np.copyto(chunk.allocate(spec.shape, spec.dtype), array)
    if chunk.weight:
        chunk.filled = True
    return result


def to_dlpack(x: Any, **options: Any) -> Any:
    """A DLPack capsule that shares the memory of `x`; waits for pending writes. Works for GPUs too,
    through CuPy; the consumer must be done with the memory before its last handle dies."""
    check_there((x._chunk,))
    engine.current.wait("dlpack", x._chunk)
    operand = x._chunk, x._offset, x._spec
    if x._ctx.is_cpu:
        return x._chunk.pool.make_lease(array_of(operand), x._chunk).__dlpack__(**options)
    return device_of(x._ctx).lend(array_of(operand), x._chunk, **options)


def from_dlpack(source: Any) -> Any:
    """An NDArray that shares the memory of another library's array, on the CPU or on a CUDA GPU. If
    several contexts use that GPU, the result is on the current or the first of them.

    Read-only and non-contiguous arrays are copied; NumPy 2.0 exports all arrays as read-only. The
    function waits for the other library's work on its current stream; afterwards each side must
    know that the other is done before it writes. MXNetError if there is no such GPU; TypeError for
    an object without `__dlpack__`.
    """
    if hasattr(source, "_chunk") and not source._ctx.is_cpu:
        return source._alias(None)
    if not hasattr(source, "__dlpack__"):
        raise TypeError(
            f"from_dlpack: expected an array with __dlpack__, got {type(source).__name__}"
        )
    kind, number = source.__dlpack_device__()
    if kind == _CUDA:
        return _borrow(source, number)
    array = np.from_dlpack(source)
    as_dtype(array.dtype)
    if not array.flags.c_contiguous or not array.flags.writeable:
        return from_array(array, cpu())
    return sharing(array, cpu())


def sharing(array: np.ndarray, ctx: Context) -> Any:
    """An NDArray in the memory of `array`, which other code shares and may write."""
    x = from_array(array, ctx, adopt=True)
    if storage.checker is not None:
        storage.checker.mark_shared(x._chunk)
    return x


def _borrow(source: Any, number: int) -> Any:
    """An NDArray on memory of GPU `number` that belongs to another library."""
    here = [gpu for gpu in gpus() if gpu.kind == "cuda" and gpu.dlpack_device()[1] == number]
    if not here:
        raise MXNetError(
            f"from_dlpack: the array is on CUDA's device {number}, which has no context here; copy "
            "it to the CPU first"
        )
    device = next((gpu for gpu in here if gpu.ctx == current_context()), here[0])
    pool = pool_of(device.ctx)

    def take(array: Any) -> tuple[Chunk, Spec]:
        spec = Spec(array.shape, as_dtype(array.dtype))
        chunk = Chunk(pool, spec.nbytes)
        chunk.adopt(device.xp.ascontiguousarray(array))
        chunk.block.foreign = True
        return chunk, spec

    chunk, spec = device.borrow(source, take)
    if chunk.weight:
        chunk.filled = True
    return wrap(chunk, spec, device.ctx)


# -- pickles and files -----------------------------------------------------------------------------


def unpickle(kind: type, array: np.ndarray, device: tuple[int, int]) -> Any:
    """An array of class `kind` with these contents; on the CPU if its device is missing."""
    return from_array(array, _place_of(device))._alias(None, kind)


def save(fname: str | os.PathLike[str], data: Any) -> None:
    """Write an NDArray, a list, or a dict by name, in MXNet's `.params` format; waits. ValueError
    for other data, TypeError for a list or dict of anything else."""
    if hasattr(data, "_chunk"):
        data = [data]
    if not isinstance(data, (dict, Sequence)) or isinstance(data, str):
        raise ValueError(f"save: expected an NDArray, a list or a dict, got {type(data).__name__}")
    names, arrays = (list(data), data.values()) if isinstance(data, dict) else ([], data)
    if not all(isinstance(n, str) for n in names) or not all(hasattr(x, "_chunk") for x in arrays):
        raise TypeError("save: expected NDArrays (nd.array(...) makes one), by strings as names")
    serialize.save(fname, [entry_of(x, "save") for x in arrays], names)


def load(fname: str | os.PathLike[str]) -> Any:
    """Read a file of `save` or MXNet: a dict if its arrays have names, else a list. Arrays of a
    missing device go to the CPU."""
    return _make_loaded(*serialize.load(fname))


def load_frombuffer(buf: Any) -> Any:
    """`load` from bytes."""
    return _make_loaded(*serialize.load_frombuffer(buf))


def _make_loaded(entries: list, names: list[str]) -> Any:
    # As in MXNet, all arrays of CPUs come to cpu(0).
    places = [_place_of(device) for _, device in entries]
    arrays = [from_array(x, cpu() if at.is_cpu else at) for (x, _), at in zip(entries, places)]
    return dict(zip(names, arrays, strict=True)) if names else arrays


def entry_of(x: Any, by: str) -> tuple[np.ndarray, tuple[int, int]]:
    """The contents of an array, and its device as MXNet's files write it; waits."""
    return x._read(by), (x._ctx.device_typeid, x._ctx.device_id)


def _place_of(device: tuple[int, int]) -> Context:
    """The context that MXNet's files write so; cpu(0) if there is no such GPU here."""
    ctx = Context(Context.devtype2str.get(device[0], "cpu"), device[1])
    return ctx if ctx.is_cpu or exists(ctx) else cpu()

"""Import and export of arrays: NumPy, DLPack, other devices, pickles, files.

Exports that share memory keep the chunk alive as long as the foreign array lives: the base of
NumPy's array is a `Lease`.

>>> import numpy as np
>>> from d2lmini import nd
>>> x = nd.ones((2, 2))
>>> np.from_dlpack(x).sum()
np.float32(4.0)
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from d2lmini import engine
from d2lmini.base import MXNetError
from d2lmini.context import Context, cpu, current_context
from d2lmini.device import storage
from d2lmini.device.devices import device_of, exists, gpus
from d2lmini.device.storage import Chunk, check_there, pool_of
from d2lmini.ndarray import serialize, transfer
from d2lmini.ndarray.compute import array_of
from d2lmini.ndarray.dispatch import apply, wrap
from d2lmini.ops.core import Spec, as_dtype, registry

#: DLPack's number of CUDA devices.
_CUDA = 2


def from_array(array: np.ndarray, ctx: Context, adopt: bool = False) -> Any:
    """A new NDArray with the contents of `array`: a copy, or the same memory if `adopt` and the
    memory is writable and in C order."""
    array = np.asarray(array)  # a subclass becomes a plain array
    if not ctx.is_cpu:
        return transfer.upload(array if adopt else array.copy(), ctx)
    spec = Spec(array.shape, array.dtype)
    chunk = Chunk(pool_of(ctx), spec.nbytes)
    if adopt and chunk.pool.adopts and array.flags.carray:
        chunk.adopt(array)
    else:
        np.copyto(chunk.allocate(spec.shape, spec.dtype), array)
    if chunk.weight:
        chunk.filled = True
    return wrap(chunk, spec, ctx)


def empty(shape: Any, ctx: Context | None = None, dtype: Any = None) -> Any:
    """An NDArray without defined contents; its memory is allocated at its first write."""
    ctx = ctx or current_context()
    spec = Spec((shape,) if isinstance(shape, int) else tuple(shape), as_dtype(dtype or "float32"))
    if not ctx.is_cpu:  # on a device only tasks allocate memory
        pool_of(ctx)
        return apply(registry["_zeros"], (), {"shape": spec.shape, "dtype": spec.dtype}, None, ctx)
    chunk = Chunk(pool_of(ctx), spec.nbytes)
    chunk.allocate(spec.shape, spec.dtype)
    return wrap(chunk, spec, ctx)


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


def to_record(x: Any) -> bytearray:
    """The contents, dtype, shape and context of an array in MXNet's format; waits."""
    return bytearray(serialize.dump_record(*_entry(x, "pickle")))


def restore(x: Any, record: bytes) -> None:
    """Make `x`, which is blank, the array of a record, as unpickling asks."""
    array, device = serialize.load_record(record)
    made = from_array(array, _place_of(device))
    for name in ("_chunk", "_spec", "_ctx", "_handle", "_offset", "_node"):
        setattr(x, name, getattr(made, name))


def save(fname: str | os.PathLike[str], data: Any) -> None:
    """Write an NDArray, a list, or a dict by name, in MXNet's `.params` format; waits. ValueError
    for other data, TypeError for a list or dict of anything else."""
    if hasattr(data, "_chunk"):
        data = [data]
    if not isinstance(data, (dict, Sequence)) or isinstance(data, str):
        raise ValueError(
            f"save: expected an NDArray, a list of them or a dict of them by name, "
            f"got {type(data).__name__}"
        )
    names, arrays = (list(data), data.values()) if isinstance(data, dict) else ([], data)
    if not all(isinstance(name, str) for name in names):
        raise TypeError("save: the names of a dict must be strings")
    for x in arrays:
        if not hasattr(x, "_chunk"):
            raise TypeError(f"save: expected NDArrays, got {type(x).__name__}; use nd.array(...)")
    serialize.save(fname, [_entry(x, "save") for x in arrays], names)


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


def _entry(x: Any, by: str) -> tuple[np.ndarray, tuple[int, int]]:
    """The contents of an array, and its device as MXNet's files write it; waits."""
    return x._read(by), (x._ctx.device_typeid, x._ctx.device_id)


def _place_of(device: tuple[int, int]) -> Context:
    """The context that MXNet's files write so; cpu(0) if there is no such GPU here."""
    ctx = Context(Context.devtype2str.get(device[0], "cpu"), device[1])
    return ctx if ctx.is_cpu or exists(ctx) else cpu()

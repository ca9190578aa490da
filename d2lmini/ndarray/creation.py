"""Functions of `nd` that create arrays, and functions that are not a single op.

>>> from d2lmini import nd
>>> nd.array([[1, 2], [3, 4]])           # float32 for any source, as in MXNet
<BLANKLINE>
[[1. 2.]
 [3. 4.]]
<NDArray 2x2 @cpu(0)>
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from d2lmini import engine
from d2lmini.base import ArgumentTypeError, MXNetError, integer_types
from d2lmini.context import Context, cpu, current_context
from d2lmini.device.storage import pool_of
from d2lmini.ndarray import exchange
from d2lmini.ndarray.dispatch import apply
from d2lmini.ndarray.ndarray import NDArray
from d2lmini.ops.checks import check_storage
from d2lmini.ops.core import Op, as_dtype, registry
from d2lmini.ops.signature import name_function


def _make(op: str, ctx: Context | None, out: NDArray | None = None, **attrs: Any) -> NDArray:
    """Apply an op without inputs on `ctx`."""
    attrs.pop("name", None)
    if out is not None:
        ctx = out.context
    ctx = ctx or current_context()
    pool_of(ctx)
    _, attrs = registry[op].bind((), attrs)
    return apply(registry[op], (), attrs, out, ctx)


def without_inputs(op: Op, name: str) -> Callable[..., NDArray]:
    """An op without array inputs as `nd.NAME`: with `ctx`, the device of the result."""

    def make(*args: Any, ctx: Context | None = None, out: NDArray | None = None, **attrs: Any):
        _, attrs = op.bind(args, attrs)
        return _make(op.name, ctx, out, **attrs)

    return name_function(make, op, "d2lmini.ndarray", name)


def _check_shape(name: str, shape: Any, *others: Any) -> None:
    """ArgumentTypeError if the call gives one axis of the shape after the other: `zeros(2, 3)`."""
    if isinstance(others[0], integer_types):
        axes = ", ".join(str(axis) for axis in (shape, *others) if isinstance(axis, integer_types))
        raise ArgumentTypeError(
            f"{name}: the shape is one argument; the second is ctx, a Context such as cpu(), not "
            f"{others[0]}; write nd.{name}(({axes}))"
        )


def _dtype(dtype: Any) -> np.dtype:
    try:
        return as_dtype("float32" if dtype is None else dtype)
    except TypeError as problem:
        raise ArgumentTypeError(str(problem)) from None


def array(source_array: Any, ctx: Context | None = None, dtype: Any = None) -> NDArray:
    """A copy of numbers, nested lists, a NumPy array or an NDArray, as an NDArray on `ctx`.

    dtype: default: the dtype of an NDArray source, else float32 (also for NumPy's int and float64).
    MXNetError for a number that no dtype holds.
    """
    ctx = ctx or current_context()
    if isinstance(source_array, NDArray):
        source_array = source_array.as_nd_ndarray()
        result = source_array.astype(dtype or source_array.dtype)
        return result if result.context == ctx else result.copyto(ctx)
    dtype = _dtype(dtype)
    try:
        values = np.asarray(source_array, dtype=dtype)
    except OverflowError:  # integers wrap around, as in C
        try:
            values = np.asarray(source_array).astype(dtype)
        except OverflowError as problem:
            raise MXNetError(f"array: a number is out of range: {problem}") from None
    except (TypeError, ValueError) as problem:
        if isinstance(source_array, (list, tuple)) and any(
            isinstance(x, NDArray) for x in source_array
        ):
            values = np.stack([np.asarray(x) for x in source_array]).astype(dtype)
        else:
            raise TypeError(f"array: expected numbers in even nesting: {problem}") from None
    return exchange.from_array(values, ctx)


def empty(
    shape: Any, ctx: Context | None = None, dtype: Any = None, stype: str | None = None
) -> NDArray:
    """An array with undefined contents. stype: only 'default'."""
    _check_shape("empty", shape, ctx, dtype, stype)
    check_storage(stype)
    return exchange.empty(shape, ctx, _dtype(dtype))


def zeros(
    shape: Any, ctx: Context | None = None, dtype: Any = None, stype: str | None = None,
    **kwargs: Any,
) -> NDArray:  # fmt: skip
    """An array of zeros, float32 by default. stype: only 'default'; kwargs: `out`."""
    _check_shape("zeros", shape, ctx, dtype, stype)
    check_storage(stype)
    return _make("_zeros", ctx, shape=shape, dtype=_dtype(dtype), **kwargs)


def ones(shape: Any, ctx: Context | None = None, dtype: Any = None, **kwargs: Any) -> NDArray:
    """An array of ones, float32 by default. kwargs: `out`."""
    _check_shape("ones", shape, ctx, dtype)
    return _make("_ones", ctx, shape=shape, dtype=_dtype(dtype), **kwargs)


def full(
    shape: Any,
    val: Any,
    ctx: Context | None = None,
    dtype: Any = None,
    out: NDArray | None = None,
) -> NDArray:
    """An array filled with `val`: a number, or an array that broadcasts to `shape`."""
    if isinstance(val, (NDArray, np.ndarray)):
        out = empty(shape, ctx, dtype) if out is None else out
        out[:] = val
        return out
    return _make("_full", ctx, out, shape=shape, value=val, dtype=_dtype(dtype))


def arange(
    start: float,
    stop: float | None = None,
    step: float = 1.0,
    repeat: int = 1,
    infer_range: bool = False,
    ctx: Context | None = None,
    dtype: Any = "float32",
) -> NDArray:
    """start, start + step, ... below stop, each `repeat` times; arange(n): 0, 1, ..., n - 1.
    dtype: float32 by default, float64 for None, as in MXNet."""
    dtype = _dtype("float64" if dtype is None else dtype)
    return _make("_arange", ctx, start=start, stop=stop, step=step, repeat=repeat, dtype=dtype)


def linspace(
    start: float,
    stop: float,
    num: int,
    endpoint: bool = True,
    ctx: Context | None = None,
    dtype: Any = "float32",
) -> NDArray:
    """`num` evenly spaced numbers from start to stop. dtype: float32 by default, float64 for None,
    as in MXNet."""
    dtype = _dtype("float64" if dtype is None else dtype)
    return _make("_linspace", ctx, start=start, stop=stop, num=num, endpoint=endpoint, dtype=dtype)


def eye(
    N: int, M: int = 0, k: int = 0, ctx: Context | None = None, dtype: Any = None, **kwargs: Any
) -> NDArray:
    """Ones on diagonal k of an (N, M or N) array. kwargs: `out`."""
    return _make("_eye", ctx, N=N, M=M, k=k, dtype=_dtype(dtype), **kwargs)


def from_numpy(ndarray: np.ndarray, zero_copy: bool = True) -> NDArray:
    """An NDArray of a NumPy array; `zero_copy` shares the memory and makes the NumPy array
    read-only, so that the program cannot write without the engine's knowledge; calling this again
    shares it again. An array that NumPy cannot make writable (the memory of a `bytes`) is copied.
    ValueError if the array is not C-contiguous."""
    if not isinstance(ndarray, np.ndarray):
        raise TypeError(f"from_numpy: expected a NumPy array, got {type(ndarray).__name__}")
    as_dtype(ndarray.dtype)
    if not zero_copy:
        return exchange.from_array(ndarray, current_context())
    ctx = current_context()
    if not ndarray.flags.c_contiguous:
        raise ValueError("from_numpy: only C-contiguous arrays can be shared; use zero_copy=False")
    with suppress(ValueError):  # an earlier call made it read-only, or the memory is
        ndarray.flags.writeable = True
    shared = ndarray.view(np.ndarray)
    ndarray.flags.writeable = False
    return exchange.sharing(shared, ctx if ctx.is_cpu else cpu())


def to_dlpack_for_read(data: NDArray) -> Any:
    """A DLPack capsule of the array's memory; waits for pending writes."""
    return data.to_dlpack_for_read()


def to_dlpack_for_write(data: NDArray) -> Any:
    """A DLPack capsule of the array's memory; waits for pending writes and reads."""
    return data.to_dlpack_for_write()


def waitall() -> None:
    """Block until all pushed operations are done; raises the errors that no wait has raised yet."""
    engine.waitall()


def concatenate(arrays: Sequence[NDArray], axis: int = 0, always_copy: bool = True) -> NDArray:
    """`concat` of a list along `axis`; ValueError for an empty list."""
    if not arrays:
        raise ValueError("concatenate: expected at least one array")
    if len(arrays) == 1 and not always_copy:
        return arrays[0]
    return registry["concat"](*arrays, dim=axis)


def moveaxis(tensor: NDArray, source: Any, destination: Any) -> NDArray:
    """Move axes to new positions; the other axes keep their order."""
    order = np.moveaxis(
        np.empty((0,) * tensor.ndim), source, destination
    )  # checks the arguments, with NumPy's errors
    del order
    axes = list(range(tensor.ndim))
    sources = [s % tensor.ndim for s in ([source] if isinstance(source, int) else source)]
    places = [
        d % tensor.ndim for d in ([destination] if isinstance(destination, int) else destination)
    ]
    rest = [a for a in axes if a not in sources]
    for place, axis in sorted(zip(places, sources, strict=True)):
        rest.insert(place, axis)
    return registry["transpose"](tensor, axes=tuple(rest))


save, load, load_frombuffer = exchange.save, exchange.load, exchange.load_frombuffer
from_dlpack = exchange.from_dlpack

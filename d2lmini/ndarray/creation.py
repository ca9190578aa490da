"""Functions of `nd` that create arrays.

>>> from d2lmini import nd
>>> nd.array([[1, 2], [3, 4]])           # float32 for any source, as in MXNet
<BLANKLINE>
[[1. 2.]
 [3. 4.]]
<NDArray 2x2 @cpu(0)>
>>> nd.arange(3).shape, nd.zeros((2, 3)).shape
((3,), (2, 3))
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np

from d2lmini.base import ArgumentTypeError, MXNetError, integer_types
from d2lmini.context import Context, cpu, current_context
from d2lmini.device.storage import pool_of
from d2lmini.ndarray import exchange
from d2lmini.ndarray.dispatch import apply
from d2lmini.ndarray.exchange import from_dlpack, load, load_frombuffer, save
from d2lmini.ndarray.ndarray import NDArray
from d2lmini.ops.checks import check_storage
from d2lmini.ops.core import Op, as_dtype, registry
from d2lmini.ops.signature import name_function, python_signature

__all__ = [
    "arange", "array", "empty", "eye", "from_dlpack", "from_numpy", "full", "linspace", "load",
    "load_frombuffer", "ones", "save", "zeros",
]  # fmt: skip


def _make(op: str, ctx: Context | None, out: NDArray | None = None, **attrs: Any) -> NDArray:
    """Apply an op without inputs on `ctx`."""
    attrs.pop("name", None)
    if out is not None:
        ctx = out.context
    ctx = ctx or current_context()
    pool_of(ctx)
    _, attrs = registry[op].bind((), attrs)
    return apply(registry[op], (), attrs, out, ctx)


def without_inputs(
    op: Op, name: str, last: str = "out name kwargs", none: str = "float64"
) -> Callable[..., NDArray]:
    """An op without array inputs as `nd.NAME`: takes the op's attributes, with the context before
    the dtype, and then `last`, as in MXNet. none: what dtype=None means."""
    signature = python_signature(op, last)
    names = [word for word in signature.parameters if word != "kwargs"]

    def make(*args: Any, **attrs: Any) -> NDArray:
        if len(args) > len(names) or not attrs.keys().isdisjoint(names[: len(args)]):
            raise ArgumentTypeError(f"{name}: too many arguments; takes {', '.join(names)}")
        attrs |= zip(names, args)
        ctx = attrs.pop("ctx", None)
        _check_context(name, ctx, *args)
        if "stype" in names:
            check_storage(attrs.pop("stype", None))
        if "dtype" in attrs:
            attrs["dtype"] = _dtype(attrs["dtype"], none)
        return _make(op.name, ctx, **attrs)

    make.__signature__ = signature  # type: ignore[attr-defined]
    return name_function(make, op, "d2lmini.ndarray", name)


def _check_context(name: str, ctx: Any, *args: Any) -> None:
    """ArgumentTypeError if the call gives one axis of the shape after the other: `zeros(2, 3)`."""
    if isinstance(ctx, integer_types):
        axes = ", ".join(str(axis) for axis in args if isinstance(axis, integer_types))
        raise ArgumentTypeError(
            f"{name}: the shape is one argument; the second is ctx, a Context such as cpu(), not "
            f"{ctx}; write nd.{name}(({axes}))"
        )


def _dtype(dtype: Any, none: str = "float32") -> np.dtype:
    try:
        return as_dtype(none if dtype is None else dtype)
    except TypeError as problem:
        raise ArgumentTypeError(str(problem)) from None


zeros = without_inputs(registry["_zeros"], "zeros", "stype kwargs", none="float32")
ones = without_inputs(registry["_ones"], "ones", "kwargs", none="float32")
eye = without_inputs(registry["_eye"], "eye", "kwargs", none="float32")
arange = without_inputs(registry["_arange"], "arange", "")
linspace = without_inputs(registry["_linspace"], "linspace", "")


def full(
    shape: Any, val: Any, ctx: Context | None = None, dtype: Any = None, out: NDArray | None = None
) -> NDArray:
    """An array filled with `val`: a number, or an array that broadcasts to `shape`."""
    if isinstance(val, (NDArray, np.ndarray)):
        out = empty(shape, ctx, dtype) if out is None else out
        out[:] = val
        return out
    return _make("_full", ctx, out, shape=shape, value=val, dtype=_dtype(dtype))


def empty(
    shape: Any, ctx: Context | None = None, dtype: Any = None, stype: str | None = None
) -> NDArray:
    """An array with undefined contents. stype: only 'default'."""
    _check_context("empty", ctx, shape, ctx, dtype, stype)
    check_storage(stype)
    return exchange.empty(shape, ctx, _dtype(dtype))


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

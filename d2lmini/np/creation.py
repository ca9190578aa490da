"""Functions of `np` that make arrays from numbers.

>>> from d2lmini import np
>>> np.array([1, 2]), np.zeros((0, 3)).shape, np.arange(3), np.array(2.5).shape
(array([1., 2.]), (0, 3), array([0., 1., 2.]), ())

float32 unless a dtype is given; `np.array` keeps the dtype of a NumPy array.
"""

from __future__ import annotations

from typing import Any

import numpy as onp

from d2lmini.base import ArgumentTypeError
from d2lmini.context import current_context
from d2lmini.ndarray import exchange
from d2lmini.ndarray import functions as nd
from d2lmini.np.shapes import broadcast_to, reshape, stack
from d2lmini.np.values import Array, as_type, check_array, fill, full_shape, is_number
from d2lmini.ops.core import Value, as_dtype, registry


def array(object, dtype=None, ctx=None):
    """A copy of numbers, nested lists or an array, on `ctx`. Without `dtype`: that of a NumPy
    array or of an `np.ndarray`, else float32."""
    ctx = ctx or current_context()
    if isinstance(object, Value):
        copy = as_type(check_array("array", object), dtype)
        copy = registry["_copy"](copy) if copy is object else copy
        return copy if copy.ctx == ctx else copy.copyto(ctx)
    if isinstance(object, (list, tuple)) and any(isinstance(x, Value) for x in object):
        return array(stack([x if isinstance(x, Value) else array(x) for x in object]), dtype, ctx)
    values = _numbers(object)
    if dtype is None:
        dtype = values.dtype if isinstance(object, (onp.ndarray, onp.generic)) else "float32"
    values = onp.array(values, as_dtype(dtype), order="C")
    return exchange.from_array(values, ctx, adopt=True).as_np_ndarray()


def _numbers(source):
    """`source` as a NumPy array of numbers; TypeError for anything else."""
    try:
        values = onp.asarray(_plain(source))
    except ValueError as problem:
        raise TypeError(f"np.array: expected numbers in even nesting: {problem}") from None
    if values.dtype.kind not in "biuf":
        raise ArgumentTypeError(
            f"np.array: expected numbers of at most 64 bits, got {type(source).__name__} of "
            f"{values.dtype}"
        )
    return values


def _plain(x):
    """Nested lists with the arrays in them as NumPy's."""
    if isinstance(x, (list, tuple)):
        return [_plain(item) for item in x]
    return x.asnumpy() if isinstance(x, Value) else x  # type: ignore[attr-defined]


def _check_order(order):
    if order != "C":
        raise NotImplementedError(f"only order='C' is supported, got {order!r}")


def _made(make, order, dtype, *args):
    """An array by a function of `nd`, float32 by default."""
    _check_order(order)
    return make(*args, dtype="float32" if dtype is None else dtype).as_np_ndarray()


def zeros(shape, dtype=None, order="C", ctx=None):
    """An array of zeros."""
    return _made(nd.zeros, order, dtype, full_shape(shape), ctx)


def ones(shape, dtype=None, order="C", ctx=None):
    """An array of ones."""
    return _made(nd.ones, order, dtype, full_shape(shape), ctx)


def empty(shape, dtype=None, order="C", ctx=None):
    """An array with undefined contents."""
    return _made(nd.empty, order, dtype, full_shape(shape), ctx)


def full(shape, fill_value, dtype=None, order="C", ctx=None, out=None):
    """An array of one value; bool for True and False. An array as value is broadcast."""
    _check_order(order)
    if isinstance(fill_value, Value):
        value = as_type(check_array("full", fill_value), dtype)
        return fill(out, broadcast_to(value, shape))
    if dtype is None and isinstance(fill_value, (bool, onp.bool_)):
        dtype = "bool"
    return fill(out, _made(nd.full, order, dtype, full_shape(shape), fill_value, ctx))


def zeros_like(a: Array, dtype=None, order="C", ctx=None, out=None):
    """`zeros` in the shape, dtype and context of `a`."""
    return fill(out, zeros(a.shape, dtype or a.dtype, order, ctx or a.ctx))


def ones_like(a: Array, dtype=None, order="C", ctx=None, out=None):
    """`ones` in the shape, dtype and context of `a`."""
    return fill(out, ones(a.shape, dtype or a.dtype, order, ctx or a.ctx))


def arange(start, stop=None, step=1, dtype=None, ctx=None):
    """start, start + step, ... below stop; arange(n): 0, 1, ..., n - 1. ZeroDivisionError for a
    step of 0."""
    if not step:
        raise ZeroDivisionError("np.arange: step is 0")
    return _made(nd.arange, "C", dtype, start, stop, step, 1, False, ctx)


def linspace(start, stop, num=50, endpoint=True, retstep=False, dtype=None, axis=0, ctx=None):
    """`num` evenly spaced numbers from start to stop; `retstep`: and their distance."""
    if axis != 0 or not is_number(start) or not is_number(stop):
        raise NotImplementedError("np.linspace: start and stop are numbers, axis is 0")
    result = _made(nd.linspace, "C", dtype, start, stop, num, endpoint, ctx)
    return (result, (stop - start) / max(1, num - bool(endpoint))) if retstep else result


def eye(N, M=None, k=0, dtype="float32", ctx=None):
    """Ones on diagonal k of an (N, M or N) array."""
    return _made(nd.eye, "C", dtype, N, N if M is None else M, k, ctx)


def meshgrid(*xi, indexing="xy", sparse=False, copy=True):
    """Coordinates of a grid: for each vector an array that varies along its axis only. indexing
    is 'xy' or 'ij', ValueError for others."""
    if indexing not in ("xy", "ij"):
        raise ValueError(f"np.meshgrid: indexing is 'xy' or 'ij', got {indexing!r}")
    axes = [*range(len(xi))]
    axes[:2] = axes[:2][:: -1 if indexing == "xy" else 1]
    sizes = [[-1 if i == axis else 1 for i in range(len(xi))] for axis in axes]
    grids = [reshape(x, shape) for x, shape in zip(xi, sizes)]
    return grids if sparse else broadcast_arrays(*grids)


def broadcast_arrays(*args):
    """The arrays, numbers or lists repeated to their common shape."""
    arrays: list[Any] = [x if isinstance(x, Value) else array(x) for x in args]
    shape = onp.broadcast_shapes(*[x.shape for x in arrays])
    return [broadcast_to(x, shape) for x in arrays]


def copy(a: Array, out=None):
    """A copy."""
    return fill(out, registry["_copy"](a))

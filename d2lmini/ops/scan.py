"""Positions of extremes, and running sums: argmax, argmin, argmax_channel, cumsum.

>>> from d2lmini import nd
>>> x = nd.array([[1, 9, 3], [7, 7, 0]])
>>> nd.argmax(x, axis=1)
<BLANKLINE>
[1. 0.]
<NDArray 2 @cpu(0)>
>>> nd.cumsum(x, axis=1)
<BLANKLINE>
[[ 1. 10. 13.]
 [ 7. 14. 14.]]
<NDArray 2x3 @cpu(0)>
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from d2lmini.base import MXNetError
from d2lmini.base.callsite import warn
from d2lmini.base.dtypes import finfo, is_float
from d2lmini.ops import chunking
from d2lmini.ops.core import DType, Spec, normalize_axis, op
from d2lmini.ops.reduce import reads_all, reduction_rule, reshape_to
from d2lmini.ops.subscript import reverse

# -- positions -------------------------------------------------------------------------------------


def check_positions(length: int, dtype: np.dtype, instead: str) -> None:
    """Check that positions 0 ... length-1 are exact in `dtype`: warn if a floating dtype rounds
    them, MXNetError if they exceed the dtype. `instead` advises the user."""
    floating = is_float(dtype)
    if floating:
        exact = 1 << (finfo(dtype).nmant + 1)
    else:
        exact = 1 if dtype.kind == "b" else int(np.iinfo(dtype).max)
    if length - 1 <= exact:
        return
    text = f"positions up to {length - 1} are not exact in {dtype.name}, which goes up to {exact}"
    if not floating or length - 1 > float(finfo(dtype).max):
        raise MXNetError(f"{text}; {instead}")
    warn(f"{text}, and are rounded; {instead}")


_shape_of_positions = reduction_rule("int64", of_nothing=False)


def _infer_position(data: Spec, *, axis: int | None = None, keepdims: bool = False) -> Spec:
    spec = _shape_of_positions(data, axis=axis, keepdims=keepdims, exclude=False)
    length = data.size if axis is None else data.shape[axis]
    check_positions(length, spec.dtype, "convert the data first, as by x.astype('float64')")
    return spec


def find_extreme(
    xp: Any, data: Any, method: str, axis: int | None, keepdims: bool = False
) -> Any:  # fmt: skip
    """The first position of "argmax" or "argmin", which nan is, as in NumPy. (CuPy takes the last
    nan of several.)"""
    found = getattr(data, method)(axis=axis, keepdims=keepdims)
    if xp is np or data.dtype.kind != "f":
        return found
    nan = data != data
    first = nan.argmax(axis=axis, keepdims=keepdims)
    return xp.where(nan.any(axis=axis, keepdims=keepdims), first, found)


def _position(xp: Any, data: Any, method: str, axis: int | None, keepdims: bool, out: Any) -> Any:
    found = find_extreme(xp, data, method, axis, keepdims)
    dtype = np.int64 if data.dtype.kind == "b" else data.dtype
    return chunking.place(xp, xp.asarray(found).reshape(found.shape or (1,)), dtype, out)


@op(infer=_infer_position, flops=reads_all, grad=None)
def argmax(xp, data, *, axis: int | None = None, keepdims: bool = False, out=None):
    """Position of the largest element along `axis`, the first of several; a nan counts as largest.

    (..., n, ...) -> the shape without that axis (with size 1 if keepdims; (1,) if none is left).
    axis=None counts in the flattened array. The positions have the dtype of the data, so float32
    by default, and int64 for bool. Positions that are not exact in a floating dtype (beyond 2^24 in
    float32) are rounded with a warning; MXNet rounds them silently. MXNetError at the call for an
    empty axis, and for an axis whose positions exceed the dtype.

    >>> nd.argmax(nd.array([[1, 5, 5], [7, 2, 3]]), axis=1).asnumpy().tolist()
    [1.0, 0.0]
    """
    return _position(xp, data, "argmax", axis, keepdims, out)


@op(infer=_infer_position, flops=reads_all, grad=None)
def argmin(xp, data, *, axis: int | None = None, keepdims: bool = False, out=None):
    """Position of the smallest element along `axis`; nan counts as smallest. Else as `argmax`."""
    return _position(xp, data, "argmin", axis, keepdims, out)


# -- running sums ----------------------------------------------------------------------------------


#: Rows of at least this many elements are added with one call each.
ROW = 128


def _infer_cumsum(a: Spec, *, axis: int | None = None, dtype: Any = None) -> Spec:
    if axis is not None:
        normalize_axis(axis, len(a.shape))
    counted = np.dtype(np.int64) if a.dtype.kind == "b" else a.dtype
    return Spec((a.size,) if axis is None else a.shape, dtype or counted)


@op(mxnet_name="_np_cumsum", infer=_infer_cumsum)
def cumsum(xp, a, *, axis: int | None = None, dtype: DType | None = None, out=None):
    """Running sum along `axis`, or of the flattened array: y[i] = x[0] + ... + x[i].

    Shape kept ((size,) for axis=None). The dtype is kept, unless `dtype` is given; bool is summed
    in int64, float16 in float32.
    """
    if axis is None:
        a, axis = a.reshape(-1), 0
    dtype = np.dtype(dtype or (np.int64 if a.dtype.kind == "b" else a.dtype))
    acc = np.float32 if dtype == np.float16 else dtype
    if xp is not np or acc != dtype or prod(a.shape[axis % a.ndim + 1 :]) < ROW:
        return chunking.place(xp, xp.cumsum(a, axis=axis, dtype=acc), dtype, out)
    # NumPy's cumsum goes down each column, through all of memory: here go row by row.
    out = np.empty(a.shape, dtype) if out is None else out
    rows, sums = np.moveaxis(a, axis, 0), np.moveaxis(out, axis, 0)
    sums[:1] = rows[:1]
    for i in range(1, len(rows)):
        np.add(sums[i - 1], rows[i], out=sums[i], dtype=dtype, casting="unsafe")
    return out


@cumsum.gradient(saves="a.shape a.dtype")
def _(g, shape, a_dtype, *, axis, dtype):
    along = 0 if axis is None else axis
    back = reverse(cumsum(reverse(g, axis=(along,)), axis=along), axis=(along,))
    if dtype is not None:
        back = back.astype(a_dtype)
    return reshape_to(back, shape) if axis is None else back

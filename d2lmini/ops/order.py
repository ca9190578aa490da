"""Order: sort, argsort, topk; positions of extremes, argmax and argmin; and running sums, cumsum.

>>> from d2lmini import nd
>>> x = nd.array([[3, 1, 2], [5, 5, 4]])
>>> nd.argsort(x)
<BLANKLINE>
[[1. 2. 0.]
 [2. 0. 1.]]
<NDArray 2x3 @cpu(0)>
>>> nd.topk(x, k=2, ret_typ="value")
<BLANKLINE>
[[3. 2.]
 [5. 5.]]
<NDArray 2x2 @cpu(0)>

Equal elements keep their order, in both directions (in MXNet only where lines are short). nan
counts as the largest number, as in NumPy (in MXNet its position is undefined).
Positions are float32 unless `dtype` says otherwise; MXNetError at the call where they would not be
exact. axis=None sorts the flattened array. float16 and bool are allowed (MXNet sorts neither).

Values have a gradient, which goes back to the position of the element; positions have none.

>>> nd.argmax(x, axis=1)
<BLANKLINE>
[0. 0.]
<NDArray 2 @cpu(0)>
>>> nd.cumsum(x, axis=1)
<BLANKLINE>
[[ 3.  4.  6.]
 [ 5. 10. 14.]]
<NDArray 2x3 @cpu(0)>
"""

from __future__ import annotations

from math import log2, prod
from typing import Any

import numpy as np

from d2lmini.base import MXNetError
from d2lmini.base.callsite import warn
from d2lmini.base.dtypes import finfo, is_float
from d2lmini.ops import chunking
from d2lmini.ops.checks import check_choice
from d2lmini.ops.composed import composed
from d2lmini.ops.core import DType, Shape, Spec, normalize_axis, op, with_axis
from d2lmini.ops.index import adjoint, integers
from d2lmini.ops.reduce import reads_all, reduction_rule, reshape_to
from d2lmini.ops.subscript import reverse


def _lines(shape: Shape, axis: int | None) -> tuple[Shape, int]:
    """The shape of what is sorted, and the axis: the flattened array for None."""
    return ((prod(shape),), 0) if axis is None else (shape, normalize_axis(axis, len(shape)))


def _comparisons(data: Spec, **_: Any) -> float:
    return data.size * log2(max(data.size, 2))


@op(
    infer=lambda data, *, axis, is_ascend: Spec(_lines(data.shape, axis)[0], data.dtype),
    flops=_comparisons, output_names=("output0",), mxnet_outputs=2,
)  # fmt: skip
def sort(xp, data, *, axis: int | None = -1, is_ascend: bool = True, out=None):
    """The elements in rising order along `axis`, or in falling order; shape and dtype kept."""
    shape, at = _lines(data.shape, axis)
    rising = xp.sort(data.reshape(shape), axis=at)
    return chunking.place(xp, rising if is_ascend else xp.flip(rising, at), data.dtype, out)


@sort.gradient(saves="data data.shape")
def _(g, data, shape, *, axis, is_ascend):
    lines, at = _lines(shape, axis)
    order = first(reshape_to(data, lines), axis=at, k=lines[at], is_ascend=is_ascend)
    return reshape_to(put_along(g, order, axis=at, shape=lines), shape)


@op("_first", infer=lambda data, *, axis, k, **_: Spec(with_axis(data.shape, axis, k), "int64"),
    flops=_comparisons, grad=None)  # fmt: skip
def first(xp, data, *, axis: int, k: int, is_ascend: bool):
    """The positions of the first k elements along `axis` in rising or falling order."""
    n = data.shape[axis]
    if k == 1 and n and not is_ascend:
        return find_extreme(xp, data, "argmax", axis, keepdims=True)
    if xp is np and 64 <= n >= 8 * k and not (data != data).any():
        return np.moveaxis(_first_of_many(np.moveaxis(data, axis, -1), k, is_ascend), -1, axis)
    order = _sorting_order(xp, data, axis, is_ascend)
    return order[chunking.along(axis % data.ndim, slice(k))]


def _sorting_order(xp: Any, data: Any, axis: int, is_ascend: bool) -> Any:
    """Positions in sorted order along `axis`; of equal elements the first comes first."""
    if is_ascend:
        return xp.argsort(data, axis=axis, kind="stable")
    # Sorted from the end, read from the end.
    backwards = xp.argsort(xp.flip(data, axis), axis=axis, kind="stable")
    return data.shape[axis] - 1 - xp.flip(backwards, axis)


def _first_of_many(lines: Any, k: int, is_ascend: bool) -> Any:
    """`first` along the last axis, where sorting all to find a few would take ten times as long."""
    place = k - 1 if is_ascend else lines.shape[-1] - k
    last = np.partition(lines, place, axis=-1)[..., place : place + 1]  # the k-th
    better = lines < last if is_ascend else lines > last
    equal = lines == last
    room = k - better.sum(axis=-1, keepdims=True)
    chosen = better | (equal & (np.cumsum(equal, axis=-1, dtype=np.int32) <= room))
    position = np.nonzero(chosen)[-1].reshape(*lines.shape[:-1], k)  # rising in each line
    found = np.take_along_axis(lines, position, -1)
    return np.take_along_axis(position, _sorting_order(np, found, -1, is_ascend), -1)


def _in_dtype(order: Any, size: int, dtype: Any) -> Any:
    """Positions along an axis of `size`, converted to `dtype`."""
    check_positions(size, np.dtype(dtype), "use a wider dtype, such as 'int64'")
    return order.astype(dtype, copy=False)


@composed(flops=_comparisons, grad=None, free_dtypes=("data",))
def argsort(data, *, axis: int | None = -1, is_ascend: bool = True, dtype: DType = "float32"):
    """The positions that sort each line along `axis`, of `dtype`; shape kept, (size,) for None."""
    shape, at = _lines(data.shape, axis)
    order = first(reshape_to(data, shape), axis=at, k=shape[at], is_ascend=is_ascend)
    return _in_dtype(order, shape[at], dtype)


def _topk_dtypes(attrs: dict[str, Any], data: Any, n: int) -> list[Any]:
    picked = {"value": [data], "both": [data, attrs["dtype"]]}
    return picked.get(attrs["ret_typ"], [attrs["dtype"]])


@composed(
    flops=_comparisons,
    outputs=lambda ret_typ="indices", **_: 2 if ret_typ == "both" else 1,
    mxnet_outputs=lambda attrs: 1 if attrs["ret_typ"] == "indices" else 2,
    free_dtypes=("data",), output_dtypes=_topk_dtypes,
    constants=lambda attrs: ("data",) if attrs["ret_typ"] == "indices" else (),
)  # fmt: skip
def topk(
    data, *, axis: int | None = -1, k: int = 1, ret_typ: str = "indices",
    is_ascend: bool = False, dtype: DType = "float32",
):  # fmt: skip
    """The k largest elements of each line along `axis` (the smallest if is_ascend), sorted.

    ret_typ: 'indices' gives their positions (of `dtype`), 'value' the elements, 'both' a list of
    the two. k < 1 means all. (..., n, ...) -> (..., k, ...); axis=None takes the k largest of all,
    (k,). Only values have a gradient. MXNetError at the call for k > n.

    >>> nd.topk(nd.array([3, 9, 7]), k=2, ret_typ="value").asnumpy().tolist()
    [9.0, 7.0]
    """
    check_choice("ret_typ", ret_typ, ("value", "indices", "both"))
    shape, at = _lines(data.shape, axis)
    n = shape[at]
    if k > n:
        raise MXNetError(f"k={k} is more than the {n} elements along the axis")
    lines = reshape_to(data, shape)
    order = first(lines, axis=at, k=k if k > 0 else n, is_ascend=is_ascend)
    if ret_typ == "indices":
        return _in_dtype(order, n, dtype)
    value = take_along(lines, order, axis=at)
    return value if ret_typ == "value" else (value, _in_dtype(order, n, dtype))


# -- to and from positions along an axis -----------------------------------------------------------


@op("_take_along", infer=lambda data, index, *, axis: Spec(index.shape, data.dtype), flops=0)
def take_along(xp, data, index, *, axis: int):
    """data[..., index[...], ...]: the elements of each line at the positions in `index`."""
    return xp.take_along_axis(data, integers(xp, index), axis)


@adjoint(take_along, "_put_along", flops=0)
def put_along(xp, data, index, *, axis: int, shape: Shape):
    """Zeros of `shape`, with data at distinct positions along `axis`."""
    result = xp.zeros(shape, data.dtype)
    xp.put_along_axis(result, integers(xp, index), data, axis)
    return result


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


def find_extreme(xp: Any, data: Any, method: str, axis: int | None, keepdims: bool = False) -> Any:
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


def _infer_cumsum(a: Spec, *, axis: int | None) -> Spec:
    return Spec(_lines(a.shape, axis)[0], np.int64 if a.dtype.kind == "b" else a.dtype)


@op(mxnet_name="_np_cumsum", infer=_infer_cumsum, left_out=("dtype",))
def cumsum(xp, a, *, axis: int | None = None, out=None):
    """Running sum along `axis`, or of the flattened array: y[i] = x[0] + ... + x[i].

    Shape kept ((size,) for axis=None). The dtype is kept; bool is summed in int64, float16 in
    float32.
    """
    if axis is None:
        a, axis = a.reshape(-1), 0
    dtype = np.dtype(np.int64) if a.dtype.kind == "b" else a.dtype
    acc = np.float32 if dtype == np.float16 else dtype
    if xp is not np or acc != dtype or prod(a.shape[axis % a.ndim + 1 :]) < ROW:
        return chunking.place(xp, xp.cumsum(a, axis=axis, dtype=acc), dtype, out)
    # NumPy's cumsum goes down each column, through all of memory: here go row by row.
    out = np.empty(a.shape, dtype) if out is None else out
    rows, sums = np.moveaxis(a, axis, 0), np.moveaxis(out, axis, 0)
    sums[:1] = rows[:1]
    for i in range(1, len(rows)):
        np.add(sums[i - 1], rows[i], out=sums[i], dtype=dtype)
    return out


@cumsum.gradient(saves="a.shape")
def _(g, shape, *, axis):
    along = 0 if axis is None else axis
    back = reverse(cumsum(reverse(g, axis=(along,)), axis=along), axis=(along,))
    return reshape_to(back, shape) if axis is None else back

"""Sorting: sort, argsort, topk.

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
"""

from __future__ import annotations

from collections.abc import Callable
from math import log2, prod
from typing import Any

import numpy as np

from d2lmini.base import MXNetError
from d2lmini.ops import chunking
from d2lmini.ops.checks import check_choice
from d2lmini.ops.core import DType, Shape, Spec, normalize_axis, op, with_axis
from d2lmini.ops.reduce import reshape_to
from d2lmini.ops.scan import check_positions

#: Sorting costs about 50 ns an element, so small chunks pay off.
GRAIN = 1 << 15


def _lines(data: Any, axis: int | None) -> tuple[Any, int]:
    """Data and the axis to sort; the flattened array for None."""
    return (data.reshape(-1), 0) if axis is None else (data, axis % data.ndim)


def _line_shape(data: Spec, axis: int | None) -> tuple[Shape, int]:
    if axis is None:
        return (data.size,), 0
    return data.shape, normalize_axis(axis, len(data.shape))


def _comparisons(data: Spec, **_: Any) -> float:
    return data.size * log2(max(data.size, 2))


def _by_lines(xp: Any, data: Any, axis: int, out: Any, body: Callable[[Any], Any]) -> Any:
    """out = body(data), in chunks; `body` takes and returns lines along the last axis."""

    def piece(index: Any) -> None:
        result = body(chunking.lines(xp, data[index], axis))
        out[index] = result if axis == data.ndim - 1 else xp.moveaxis(result, -1, axis)

    chunking.over_lines(xp, data.shape, axis, piece, GRAIN)
    return out


def _sorting_order(xp: Any, lines: Any, is_ascend: bool) -> Any:
    """Positions in sorted order; ties by position."""
    if is_ascend:
        return xp.argsort(lines, axis=-1, kind="stable")
    # A stable ascending sort of the reversed line is a stable descending sort.
    backwards = xp.argsort(lines[..., ::-1], axis=-1, kind="stable")
    return lines.shape[-1] - 1 - backwards[..., ::-1]


def _first_positions(xp: Any, lines: Any, k: int, is_ascend: bool) -> Any:
    """The first k of `_sorting_order`, without sorting the rest where k is small."""
    n = lines.shape[-1]
    if k == 1 and n and not is_ascend:
        return xp.expand_dims(lines.argmax(axis=-1), -1)
    if xp is not np or 8 * k > n or n < 64 or (lines != lines).any():
        return _sorting_order(xp, lines, is_ascend)[..., :k]
    place = k - 1 if is_ascend else n - k
    last = xp.partition(lines, place, axis=-1)[..., place : place + 1]  # the k-th best
    better = lines < last if is_ascend else lines > last
    equal = lines == last
    room = k - better.sum(axis=-1, keepdims=True)
    chosen = better | (equal & (xp.cumsum(equal, axis=-1, dtype=np.int32) <= room))
    position = xp.nonzero(chosen)[-1].reshape(*lines.shape[:-1], k)  # rising in each line
    order = _sorting_order(xp, xp.take_along_axis(lines, position, -1), is_ascend)
    return xp.take_along_axis(position, order, -1)


# -- sort and argsort ------------------------------------------------------------------------------


def _infer_sort(data: Spec, *, axis: int | None = -1, is_ascend: bool = True) -> Spec:
    return Spec(_line_shape(data, axis)[0], data.dtype)


@op(infer=_infer_sort, flops=_comparisons, output_names=("output0",), mxnet_outputs=2)
def sort(xp, data, *, axis: int | None = -1, is_ascend: bool = True, out=None):
    """Each line along `axis` sorted up or down; dtype and shape kept, (size,) for None."""
    data, axis = _lines(data, axis)
    if out is None:
        out = xp.empty(data.shape, data.dtype)

    def ordered(lines: Any) -> Any:
        rising = xp.sort(lines, axis=-1)
        return rising if is_ascend else rising[..., ::-1]

    return _by_lines(xp, data, axis, out, ordered)


@sort.gradient(saves="data data.shape")
def _(g, data, shape, *, axis, is_ascend):
    order = argsort(data, axis=axis, is_ascend=is_ascend, dtype="int64")
    return _scatter_back(g, order, shape, axis)


_WIDER = "use a wider dtype, such as 'int64'"


def _infer_argsort(
    data: Spec, *, axis: int | None = -1, is_ascend: bool = True, dtype: Any = "float32"
) -> Spec:
    shape, axis = _line_shape(data, axis)
    check_positions(shape[axis], np.dtype(dtype), _WIDER)
    return Spec(shape, dtype)


@op(infer=_infer_argsort, flops=_comparisons, grad=None, free_dtypes=("data",))
def argsort(
    xp, data, *, axis: int | None = -1, is_ascend: bool = True, dtype: DType = "float32", out=None
):
    """The positions that sort each line along `axis`, of `dtype`; shape kept, (size,) for None."""
    data, axis = _lines(data, axis)
    if out is None:
        out = xp.empty(data.shape, dtype)
    return _by_lines(xp, data, axis, out, lambda x: _sorting_order(xp, x, is_ascend))


# -- topk ------------------------------------------------------------------------------------------


def _topk_dtypes(attrs: dict[str, Any], data: Any, n: int) -> list[Any]:
    picked = {"value": [data], "both": [data, attrs["dtype"]], "mask": [data]}
    return picked.get(attrs["ret_typ"], [attrs["dtype"]])


def _infer_topk(
    data: Spec, *, axis: int | None = -1, k: int = 1, ret_typ: str = "indices",
    is_ascend: bool = False, dtype: Any = "float32",
) -> Spec | list[Spec]:  # fmt: skip
    check_choice("ret_typ", ret_typ, ("value", "indices", "mask", "both"))
    shape, axis = _line_shape(data, axis)
    if k > shape[axis]:
        raise MXNetError(f"k={k} is more than the {shape[axis]} elements along the axis")
    if ret_typ == "mask":
        return data
    if ret_typ != "value":
        check_positions(shape[axis], np.dtype(dtype), _WIDER)
    top = with_axis(shape, axis, k if k > 0 else shape[axis])
    value, indices = Spec(top, data.dtype), Spec(top, dtype)
    if ret_typ == "both":
        return [value, indices]
    return value if ret_typ == "value" else indices


@op(
    infer=_infer_topk,
    flops=_comparisons,
    outputs=lambda ret_typ="indices", **_: 2 if ret_typ == "both" else 1,
    mxnet_outputs=lambda attrs: 1 if attrs["ret_typ"] in ("indices", "mask") else 2,
    free_dtypes=("data",),
    output_dtypes=_topk_dtypes,
)
def topk(
    xp, data, *, axis: int | None = -1, k: int = 1, ret_typ: str = "indices",
    is_ascend: bool = False, dtype: DType = "float32",
):  # fmt: skip
    """The k largest elements of each line along `axis` (the smallest if is_ascend), sorted.

    ret_typ: 'indices' gives their positions (of `dtype`), 'value' the elements, 'both' a list of
    the two, 'mask' an array like the data with 1 at their positions and 0 elsewhere. k < 1 means
    all. (..., n, ...) -> (..., k, ...); axis=None takes the k largest of all, (k,). Only values
    have a gradient. MXNetError at the call for k > n.

    >>> nd.topk(nd.array([3, 9, 7]), k=2, ret_typ="value").asnumpy().tolist()
    [9.0, 7.0]
    """
    lines, at = _lines(data, axis)
    n = lines.shape[at]
    k = k if k > 0 else n
    order = xp.empty(with_axis(lines.shape, at, k), np.int64)
    _by_lines(xp, lines, at, order, lambda x: _first_positions(xp, x, k, is_ascend))
    if ret_typ == "mask":
        mask = xp.zeros(lines.shape, data.dtype)
        xp.put_along_axis(mask, order, mask.dtype.type(1), at)
        return mask.reshape(data.shape)
    if ret_typ == "indices":
        return order.astype(dtype)
    value = xp.take_along_axis(lines, order, at)
    return value if ret_typ == "value" else (value, order.astype(dtype))


@topk.gradient(saves="data data.shape")
def _(g, data, shape, *, axis, k, ret_typ, is_ascend):
    if ret_typ in ("indices", "mask"):
        return None
    order = topk(data, axis=axis, k=k, is_ascend=is_ascend, dtype="int64")
    return _scatter_back(g[0] if ret_typ == "both" else g, order, shape, axis)


# -- to and from positions along an axis -----------------------------------------------------------


def _scatter_back(g: Any, order: Any, shape: Shape, axis: int | None) -> Any:
    """g at the positions `order` along `axis` of zeros of `shape`."""
    if axis is not None:
        return put_along(g, order, axis=axis, size=shape[axis])
    return reshape_to(put_along(g, order, axis=0, size=prod(shape)), shape)


def _infer_put_along(data: Spec, index: Spec, *, axis: int, size: int) -> Spec:
    assert data.shape == index.shape, (data.shape, index.shape)
    axis = normalize_axis(axis, len(data.shape))
    return Spec(with_axis(data.shape, axis, size), data.dtype)


@op("_put_along", infer=_infer_put_along, flops=0)
def put_along(xp, data, index, *, axis: int, size: int):
    """Zeros of size `size` along `axis`, with data at distinct positions along that axis."""
    result = xp.zeros(with_axis(data.shape, axis, size), data.dtype)
    xp.put_along_axis(result, index.astype(np.int64, copy=False), data, axis)
    return result


@put_along.gradient(saves="index")
def _(g, index, *, axis):
    return take_along(g, index, axis=axis), None


def _infer_take_along(data: Spec, index: Spec, *, axis: int) -> Spec:
    return Spec(index.shape, data.dtype)


@op("_take_along", infer=_infer_take_along, flops=0)
def take_along(xp, data, index, *, axis: int):
    """data[..., index[...], ...]: the elements of each line at the positions in `index`."""
    return xp.take_along_axis(data, index.astype(np.int64, copy=False), axis)


@take_along.gradient(saves="data.shape index")
def _(g, shape, index, *, axis):
    return put_along(g, index, axis=axis, size=shape[axis]), None

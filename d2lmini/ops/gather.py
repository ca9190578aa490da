"""Ops on coordinates: gather_nd, scatter_nd, (un)ravel_index, index_array.

`indices` is (M, Y...): M rows of coordinates, one column for each selected item, as in MXNet.

>>> from d2lmini import nd
>>> x = nd.array([[0, 1], [2, 3]])
>>> nd.gather_nd(x, nd.array([[1, 1, 0], [0, 1, 0]]))     # x[1, 0], x[1, 1], x[0, 0]
<BLANKLINE>
[2. 3. 0.]
<NDArray 3 @cpu(0)>
>>> nd.unravel_index(nd.array([22, 41]), shape=(7, 6))    # elements 22 and 41 of a (7, 6) array
<BLANKLINE>
[[3. 6.]
 [4. 5.]]
<NDArray 2x2 @cpu(0)>

After MXNet's operators of the same names. A coordinate outside its axis is an IndexError at run
time. Negative coordinates of scatter_nd, for which MXNet writes outside the array, count from the
end. (A GPU does not check: a coordinate outside counts as the nearest end, and of several values
for one place any may remain.)
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from d2lmini.base import MXNetError
from d2lmini.ops.checks import check_shape
from d2lmini.ops.core import Shape, Spec, normalize_axis, op
from d2lmini.ops.places import (
    adjoint,
    coordinate,
    flatten_places,
    integers,
    scatter,
    scatter_add,
    within,
)

# -- by coordinates --------------------------------------------------------------------------------


def _depth(indices: Spec, shape: Shape) -> int:
    """Number of axes that the columns of `indices` index; MXNetError if `shape` has fewer."""
    if len(indices.shape) < 2:
        raise MXNetError(f"indices is {indices.shape}, need (M, ...) with 2 axes or more")
    if indices.shape[0] > len(shape):
        raise MXNetError(
            f"indices is {indices.shape}: {indices.shape[0]} numbers for each element, but "
            f"{shape} has {len(shape)} axes"
        )
    return indices.shape[0]


def _infer_gather_nd(data: Spec, indices: Spec) -> Spec:
    m = _depth(indices, data.shape)
    return Spec(indices.shape[1:] + data.shape[m:], data.dtype)


def _columns(xp: Any, indices: Any, shape: Shape) -> tuple:
    """Coordinates for `array[...]`, checked against `shape`."""
    return tuple(within(xp, i, n, axis) for axis, (i, n) in enumerate(zip(indices, shape)))


@op(infer=_infer_gather_nd, flops=0, free_dtypes=("indices",))
def gather_nd(xp, data, indices):
    """Elements or slices by coordinates: y[i] = data[indices[0, i], ..., indices[M-1, i]].

    data (X0, ..., XN-1), indices (M, Y...) with M <= N -> (Y..., XM, ..., XN-1) of data's dtype.
    Negative coordinates count from the end; a coordinate outside is an IndexError at run time.
    """
    return data[_columns(xp, indices, data.shape)]


def _infer_scatter(data: Spec, indices: Spec, *, shape: Shape) -> Spec:
    m = _depth(indices, shape)
    why = f"for indices {indices.shape} and shape {shape}"
    check_shape("data", data, indices.shape[1:] + shape[m:], why=why)
    return Spec(shape, data.dtype)


@op(infer=_infer_scatter, free_dtypes=("indices",), flops=0)
def scatter_nd(xp, data, indices, *, shape: Shape, out=None):
    """Zeros of `shape` with data at coordinates: y[indices[0, i], ..., indices[M-1, i]] = data[i].

    data (Y..., XM, ..., XN-1), indices (M, Y...) -> shape (X0, ..., XN-1). Of several values for
    one place the last remains. A coordinate outside is an IndexError at run time.
    """
    return scatter(xp, _columns(xp, indices, shape), data, shape, out)


@adjoint(gather_nd, "_backward_gather_nd", infer=_infer_scatter, in_mxnet=True)
def _backward_gather_nd(xp, g, indices, *, shape: Shape, out=None):
    """Like `scatter_nd`, but adds up several values for one place."""
    m = indices.shape[0]
    row = flatten_places(_columns(xp, indices, shape), shape)
    after = prod(shape[m:])
    return scatter_add(xp, row[..., None] * after + xp.arange(after), g, shape, out)


@scatter_nd.gradient(saves="indices")
def _(g, indices):
    return gather_nd(g, indices), None


def _infer_index_array(data: Spec, *, axes: Shape | None = None) -> Spec:
    n = len(data.shape)
    chosen = range(n) if axes is None else [normalize_axis(a, n, "index_array: axis") for a in axes]
    return Spec((*data.shape, len(chosen)), np.dtype("int64"))


@op("_contrib_index_array", infer=_infer_index_array, flops=0, grad=None)
def index_array(xp, data, *, axes: Shape | None = None):
    """Each element's own coordinates: (d1, ..., dn) -> (d1, ..., dn, n) of int64.

    With `axes` only those axes, in that order. MXNetError at the call for an axis out of range.
    """
    chosen = range(data.ndim) if axes is None else axes
    if not len(chosen):
        return xp.empty((*data.shape, 0), np.int64)
    return xp.stack([coordinate(xp, data.shape, a % data.ndim) for a in chosen], axis=-1)


# -- flat numbers and coordinates ------------------------------------------------------------------


def _known_shape(shape: Shape) -> Shape:
    if not shape or any(n <= 0 for n in shape[1:]):
        raise MXNetError(f"shape={shape}, need a tuple of sizes, of which the first may be -1")
    return shape


def _infer_ravel(data: Spec, *, shape: Shape = ()) -> Spec:
    _known_shape(shape)
    if len(data.shape) != 2 or data.shape[0] != len(shape):
        raise MXNetError(
            f"data is {data.shape}, need ({len(shape)}, Y): one coordinate "
            f"for each axis of shape={shape}"
        )
    return Spec(data.shape[1:], data.dtype)


@op(mxnet_name="_ravel_multi_index", infer=_infer_ravel, flops=2, grad=None)
def ravel_multi_index(xp, data, *, shape: Shape = ()):
    """Coordinates in an array of `shape` to flat numbers: (M, Y) -> (Y,), dtype kept.

    The first size may be -1. Nothing is checked: coordinates outside give numbers outside.
    """
    return flatten_places(integers(xp, data), shape).astype(data.dtype)


@op(
    mxnet_name="_unravel_index",
    infer=lambda data, *, shape=(): Spec((len(_known_shape(shape)), *data.shape), data.dtype),
    flops=2,
    grad=None,
)
def unravel_index(xp, data, *, shape: Shape = ()):
    """Flat numbers to coordinates in an array of `shape`: (Y...) -> (M, Y...), dtype kept.

    The first size may be -1 and is ignored: a number too large gives a first coordinate too large.
    """
    rest = integers(xp, data)
    columns = []
    for n in reversed(shape[1:]):
        columns.append(rest % n)
        rest = rest // n
    return xp.stack([rest, *reversed(columns)]).astype(data.dtype)

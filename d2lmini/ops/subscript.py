"""The ops behind `x[key]` and `x[key] = value`, with `key` in one plain, hashable form.

`ndarray/indexing.py` reads what a user may write between brackets and brings it to a tuple that
names every axis of x in order. Its items are

    2                 this place of the axis, which disappears from the result
    (0, 6, 2)         a slice: start, stop, step as in range(); stop is None for "past the front"
    None              a new axis of size 1
    ("at", (3, 1))    places given by an index array of shape (3, 1)
    ...               nothing, but it parts the index arrays around it, as NumPy has it

with all numbers counted from the front. Slices can be read off the key; the numbers of all index
arrays are one more input, laid end to end, so that they may still be in the making:

    x[1, ::2]             key (1, (0, 6, 2))
    x[i, None, [5, 0]]    key (("at", (4,)), None, ("at", (2,))), indices: i's numbers, then 5, 0

The gradient of `x[key]` adds up: an element that was taken twice gets the sum.

>>> result_shape(((0, 6, 2), None, ("at", (5, 1))))
(3, 1, 5, 1)
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from d2lmini.base import MXNetError
from d2lmini.ops.core import DType, Shape, Spec, op, registry
from d2lmini.ops.index import integers, scatter_add, take
from d2lmini.ops.reduce import sum_to
from d2lmini.ops.shape import expand_dims, reshape, squeeze

Key = tuple[Any, ...]


def is_at(item: Any) -> bool:
    """Does this item of a key stand for an index array?"""
    return type(item) is tuple and item[0] == "at"


def count(item: tuple) -> int:
    """How many places a slice (start, stop, step) names."""
    start, stop, step = item
    return len(range(start, -1 if stop is None else stop, step))


def result_shape(key: Key) -> Shape:
    """The shape of x[key], after NumPy's rule.

    Index arrays broadcast together. The axes of that shape stand where the arrays stood, or in
    front of all others if a slice, None or `...` parts them; among them a number counts as an
    array. ValueError when the arrays do not broadcast.
    """
    arrays = [item[1] for item in key if is_at(item)]
    if not arrays:
        return tuple(1 if i is None else count(i) for i in key if type(i) is not int)
    places = arrays[0] if len(arrays) == 1 else np.broadcast_shapes(*arrays)
    shape: list[int] = []
    begin, end = None, None  # in `shape`: before the first and after the last array or number
    parted = False
    for item in key:
        if type(item) is int or is_at(item):
            if begin is None:
                begin = len(shape)
            elif end is not None:
                parted = True
            continue
        if begin is not None:
            end = len(shape)
        if item is not Ellipsis:
            shape.append(1 if item is None else count(item))
    at = 0 if parted or begin is None else begin
    return (*shape[:at], *places, *shape[at:])


def locate(xp: Any, key: Key, indices: Any = None) -> tuple:
    """The key as NumPy takes it between brackets."""
    if indices is not None:
        indices = integers(xp, indices).reshape(-1)
    where: list[Any] = []
    taken = 0
    for item in key:
        if type(item) is not tuple:
            where.append(item)
        elif is_at(item):
            size = prod(item[1])
            where.append(indices[taken : taken + size].reshape(item[1]))
            taken += size
        else:
            where.append(slice(*item))
    return tuple(where)


def _infer_getitem(data: Spec, indices: Spec | None = None, *, key: Key) -> Spec:
    return Spec(result_shape(key), data.dtype)


@op(infer=_infer_getitem, flops=0, free_dtypes=("indices",))
def _getitem(xp, data, indices=None, *, key):
    """data[key], in the plain form of this module; dtype kept.

    An index outside its axis is an IndexError at run time. (CuPy does not look: there such an
    index wraps around.)
    """
    return data[locate(xp, key, indices)]


@op(infer=lambda g, indices=None, *, key, shape: Spec(shape, g.dtype), flops=1)
def _getitem_grad(xp, g, indices=None, *, key, shape: Shape, out=None):
    """What flows back through `_getitem`: zeros of `shape`, and g added up at data[key]."""
    where = locate(xp, key, indices)
    if indices is None:
        if out is None:
            out = xp.empty(shape, g.dtype)
        out[...] = 0
        out[where] = g
        return out
    # Flat places of data[key]: each axis's own coordinate, looked up by the same key.
    places: Any = 0
    for axis, n in enumerate(shape):
        column = xp.arange(n).reshape((n,) + (1,) * (len(shape) - 1 - axis))
        places = places * n + xp.broadcast_to(column, shape)[where]
    return scatter_add(xp, places, g, shape, out)


@_getitem.gradient(saves="data.shape indices")
def _(g, shape, indices, *, key):
    return _getitem_grad(g, indices, key=key, shape=shape), None


@_getitem.written_in_mxnet
def _(data, indices=None, *, key):
    """A slice for numbers and slices, then axes gone and axes new."""
    axes = [item for item in key if item is not None and item is not ...]
    arrays = [axis for axis, item in enumerate(axes) if is_at(item)]
    numbers = tuple(axis for axis, item in enumerate(axes) if type(item) is int)
    if len(arrays) > 1 or (arrays and numbers):
        raise MXNetError(
            f"x[{key}] by several arrays has no counterpart in MXNet's files; use take, pick or "
            "gather_nd"
        )
    bounds = [(None, None, 1) if i in arrays else _bounds(item) for i, item in enumerate(axes)]
    begin, end, step = (tuple(b) for b in zip(*bounds, strict=True)) if bounds else ((), (), ())
    y = registry["slice"](data, begin=begin, end=end, step=step)
    if arrays:
        axis = arrays[0]
        places = reshape(indices, shape=axes[axis][1])
        y = take(y, places, axis=axis, mode="wrap")  # -1 is the last
    if numbers:
        y = squeeze(y, axis=numbers)
    for axis, item in enumerate(i for i in key if type(i) is not int and i is not ...):
        if item is None:
            y = expand_dims(y, axis=axis)
    return registry["_copy"](y)


def _bounds(item: Any) -> tuple[int, int | None, int]:
    return (item, item + 1, 1) if type(item) is int else item


@_getitem_grad.gradient(saves="indices")
def _(gg, indices, *, key):
    return _getitem(gg, indices, key=key), None


def _no_output(*_specs: Spec, **_attrs: Any) -> tuple[Spec, ...]:
    return ()


@op(infer=_no_output, outputs=0, mutates=["data"], flops=0, grad=None)
def _setitem(xp, data, value, indices=None, *, key):
    """data[key] = value, in place; value broadcasts and is converted to data's dtype.

    Of several values for one place the last stays. Nothing is written if an index is outside its
    axis, which is an IndexError at run time. (On a GPU any of them stays, and an index outside
    wraps around.)
    """
    data[locate(xp, key, indices)] = value
    return ()


@op(infer=_no_output, outputs=0, mutates=["data"], flops=0, grad=None, in_mxnet=False)
def _setitem_scalar(xp, data, indices=None, *, key, scalar):
    """data[key] = scalar, in place; the scalar is of data's dtype already."""
    data[locate(xp, key, indices)] = scalar
    return ()


@op(
    infer=lambda value, *, shape, dtype: Spec(shape, dtype), flops=0, elementwise=True,
    same_shape=False,
)  # fmt: skip
def _assign(xp, value, *, shape: Shape, dtype: DType, out=None):
    """value broadcast to `shape` and converted to `dtype`: what `x[:] = value` puts in x."""
    if out is None:
        out = xp.empty(shape, dtype)
    xp.copyto(out, value, casting="unsafe")
    return out


@_assign.gradient(saves="value.shape value.dtype")
def _(g, shape, dtype):
    return sum_to(g, shape).astype(dtype)

"""Parts of arrays: slice, slice_axis, reverse, and the ops behind `x[key]` and `x[key] = value`.

>>> from d2lmini import nd
>>> x = nd.arange(12).reshape(3, 4)
>>> nd.slice(x, begin=(0, 1), end=(2, 4))
<BLANKLINE>
[[1. 2. 3.]
 [5. 6. 7.]]
<NDArray 2x3 @cpu(0)>
>>> nd.slice_axis(x, axis=1, begin=-1, end=None)
<BLANKLINE>
[[ 3.]
 [ 7.]
 [11.]]
<NDArray 3x1 @cpu(0)>

The ops copy; `x[1:3]` is a view where possible. The gradient of a part is g padded with zeros
(`_unslice`).

The ops behind `x[key]` and `x[key] = value` take `key` in a canonical, hashable form.
`ndarray/indexing.py` converts what a user writes between brackets to a tuple that covers every axis
of x in order. The items of the tuple are

    2                 this index of the axis, which disappears from the result
    (0, 6, 2)         a slice: start, stop, step as in range(); stop is None for "past the front"
    None              a new axis of size 1
    ("at", (3, 1))    positions from an index array of shape (3, 1)
    ...               no axis, but separates the index arrays around it, as in NumPy

with all numbers counted from the front. The key contains slices; the numbers of all index arrays
are one more input, concatenated, so they need not be computed yet:

    x[1, ::2]             key (1, (0, 6, 2))
    x[i, None, [5, 0]]    key (("at", (4,)), None, ("at", (2,))), indices: i's numbers, then 5, 0

>>> result_shape(((0, 6, 2), None, ("at", (5, 1))))
(3, 1, 5, 1)
"""

from __future__ import annotations

import builtins
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np

from d2lmini.base import MXNetError
from d2lmini.ops import chunking
from d2lmini.ops.core import Bounds, DType, Shape, Spec, normalize_axis, op, op_of_view, registry
from d2lmini.ops.create import zeros
from d2lmini.ops.index import adjoint, integers, scatter, scatter_add, take
from d2lmini.ops.reduce import sum_to
from d2lmini.ops.shape import expand_dims, reshape, squeeze

# -- slice -----------------------------------------------------------------------------------------


@lru_cache(maxsize=1024)
def _key(shape: Shape, begin: Bounds, end: Bounds, step: Bounds) -> tuple[builtins.slice, ...]:
    step = step or (None,) * len(begin)
    if not len(begin) == len(end) == len(step):
        raise MXNetError(f"begin={begin}, end={end} and step={step} must have the same length")
    if len(begin) > len(shape):
        raise MXNetError(f"begin={begin} names {len(begin)} axes, but data is {shape}")
    if 0 in step:
        raise MXNetError(f"step={step} contains 0; a step must not be 0")
    return tuple(map(builtins.slice, begin, end, step))


@op_of_view("slice", aliases=["crop"])
def slice_(xp, data, *, begin: Bounds, end: Bounds, step: Bounds = (), out=None):
    """data[b0:e0:s0, b1:e1:s1, ...] with Python's rules: None, negative numbers and steps.

    Bounds outside are clipped to the array. Axes without bounds are kept whole. dtype kept.
    MXNetError at the call for lengths that differ, too many axes, or a step of 0.
    """
    return chunking.place_view(xp, data[_key(data.shape, begin, end, step)], out)


@adjoint(slice_, "_unslice", flops=0)
def unslice(xp, data, *, shape: Shape, begin: Bounds, end: Bounds, step: Bounds = (), out=None):
    """Zeros of `shape` with `data` at the elements that `slice` reads."""
    out = zeros.compute(xp, shape=shape, dtype=data.dtype, out=out)
    chunking.copy(xp, data, out[_key(shape, begin, end, step)])
    return out


@lru_cache(maxsize=1024)
def _along_axis(shape: Shape, axis: int, begin: int, end: int | None) -> dict[str, Bounds]:
    """`slice_axis` in terms of `slice`."""
    axis = normalize_axis(axis, len(shape))
    size = shape[axis]
    first = begin + size if begin < 0 else begin
    last = size if end is None else end + size if end < 0 else end
    if not 0 <= first <= last <= size:
        raise MXNetError(
            f"begin={begin}, end={end} do not fit axis {axis} of {shape}, of size {size}"
        )
    return {"begin": (None,) * axis + (begin,), "end": (None,) * axis + (end,)}


@op_of_view(always_written=("end",))
def slice_axis(xp, data, *, axis: int, begin: int, end: int | None = None, out=None):
    """data[..., begin:end, ...] along one axis.

    Negative bounds count from the end; None is the end. dtype kept. MXNetError at the call for
    bounds outside (an empty part is allowed, unlike in MXNet).

    >>> nd.slice_axis(nd.array([1, 2, 3, 4]), axis=0, begin=1, end=-1).asnumpy().tolist()
    [2.0, 3.0]
    """
    return slice_.compute(xp, data, **_along_axis(data.shape, axis, begin, end), out=out)


@slice_axis.gradient(saves="data.shape")
def _(g, shape, *, axis, begin, end):
    return unslice(g, shape=shape, **_along_axis(shape, axis, begin, end))


# -- reverse ---------------------------------------------------------------------------------------


@op_of_view(aliases=["flip"], same_shape=True)
def reverse(xp, data, *, axis: Shape, out=None):
    """Reverse the elements along each axis of `axis` (an int or a tuple); shape and dtype kept."""
    return chunking.place_view(xp, xp.flip(data, axis), out)


reverse.gradient()(lambda g, *, axis: reverse(g, axis=axis))


# -- x[key] ----------------------------------------------------------------------------------------

Key = tuple[Any, ...]


def is_at(item: Any) -> bool:
    """True if this item of a key stands for an index array."""
    return type(item) is tuple and item[0] == "at"


def count(item: tuple) -> int:
    """Number of elements of a slice (start, stop, step)."""
    start, stop, step = item
    return len(range(start, -1 if stop is None else stop, step))


def result_shape(key: Key) -> Shape:
    """The shape of x[key], after NumPy's rule.

    Index arrays broadcast together. The axes of the broadcast shape replace those of the arrays, or
    come first if a slice, None or `...` separates the arrays; a number next to arrays counts as an
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
    """The key in the form that NumPy takes between brackets."""
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


@op(infer=lambda data, *_, key: Spec(result_shape(key), data.dtype), flops=0,
    free_dtypes=("indices",))  # fmt: skip
def _getitem(xp, data, indices=None, *, key):
    """data[key], with a key in the form of this module; dtype kept.

    An index outside its axis is an IndexError at run time. (CuPy does not check; there such an
    index wraps around.)
    """
    return data[locate(xp, key, indices)]


@adjoint(_getitem, "_getitem_grad")
def _getitem_grad(xp, g, indices=None, *, key, shape: Shape, out=None):
    """The gradient of `_getitem`: zeros of `shape`, and g added up at data[key]."""
    where = locate(xp, key, indices)
    if indices is None:
        return scatter(xp, where, g, shape, out)
    # Flat positions of data[key]: each axis's own coordinates, indexed with the same key.
    places: Any = 0
    for axis, n in enumerate(shape):
        steps = xp.arange(n).reshape((-1,) + (1,) * (len(shape) - 1 - axis))
        places = places * n + xp.broadcast_to(steps, shape)[where]
    return scatter_add(xp, places, g, shape, out)


@_getitem.written_in_mxnet
def _(data, indices=None, *, key):
    """A slice for numbers and slices, then removal and insertion of axes."""
    axes = [item for item in key if item is not None and item is not ...]
    arrays = [axis for axis, item in enumerate(axes) if is_at(item)]
    if len(arrays) > 1 or (arrays and any(type(item) is int for item in axes)):
        raise MXNetError(f"MXNet's files have no x[{key}] by several arrays; use take or pick")
    bounds = [(None, None, 1) if i in arrays else _bounds(item) for i, item in enumerate(axes)]
    begin, end, step = (tuple(b) for b in zip(*bounds, strict=True)) if bounds else ((), (), ())
    y = registry["slice"](data, begin=begin, end=end, step=step)
    for axis in arrays:
        places = reshape(indices, shape=axes[axis][1] or (1,))
        y = take(y, places, axis=axis, mode="wrap")  # -1 is the last
    gone = [axis for axis, item in enumerate(axes) if type(item) is int or item == ("at", ())]
    if gone and len(gone) == len(axes):  # a single element, of which squeeze would leave an axis
        return registry["_np_reshape"](y, newshape=(1,) * key.count(None))
    if gone:
        y = squeeze(y, axis=tuple(gone))
    for axis, item in enumerate(i for i in key if type(i) is not int and i is not ...):
        if item is None:
            y = expand_dims(y, axis=axis)
    return registry["_copy"](y)


def _bounds(item: Any) -> tuple[int, int | None, int]:
    return (item, item + 1, 1) if type(item) is int else item


@op(infer=lambda *_specs, **_attrs: (), outputs=0, mutates=["data"], flops=0, grad=None)
def _setitem(xp, data, value=None, indices=None, *, key, scalar=None):
    """data[key] = value, in place; value broadcasts and is converted to data's dtype. A number is
    the attribute `scalar`, which already has data's dtype.

    Of several values for one place the last remains. If an index is outside its axis, nothing is
    written and the task raises IndexError. (On a GPU any of several values may remain, and an index
    outside wraps around.)
    """
    data[locate(xp, key, indices)] = scalar if value is None else value
    return ()


@op(
    infer=lambda value, *, shape, dtype: Spec(shape, dtype), flops=0, elementwise=True,
    same_shape=False,
)  # fmt: skip
def _assign(xp, value, *, shape: Shape, dtype: DType, out=None):
    """value broadcast to `shape` and converted to `dtype`: the op of `x[:] = value`."""
    out = xp.empty(shape, dtype) if out is None else out
    xp.copyto(out, value, casting="unsafe")
    return out


_assign.gradient("value.shape value.dtype")(lambda g, shape, dtype: sum_to(g, shape).astype(dtype))

"""Interpret the key of x[...]: any key becomes one canonical form.

    >>> parse((slice(None, None, 2), -1), (4, 3))
    Index(key=((0, 4, 2), 2), shape=(2,), arrays=(), offset=None)
    >>> parse((1, slice(0, 2)), (4, 3)).offset                  # elements 3 and 4: contiguous
    3
    >>> parse(([0, -1],), (4, 3))
    Index(key=(('at', (2,)), (0, 3, 1)), shape=(2, 3), arrays=(array([0, 3]),), offset=None)

This module works at the call and looks at shapes only; `ops/subscript.py` defines the items of
`key`. The rules are NumPy's, except for three of MXNet's: in nd indexing all axes by numbers gives
shape (1,), floats count as integers, and in nd True and False alone are the numbers 1 and 0.
"""

from __future__ import annotations

import operator
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from d2lmini.ops.core import Shape, Value
from d2lmini.ops.subscript import Key, result_shape

_ALL = slice(None)
_PLAIN = {int, type(None)}


class Index(NamedTuple):
    """An interpreted key.

    key      its plain form (see ops/subscript.py)
    shape    the shape of x[key]
    arrays   the index arrays in order: NumPy int64 (checked, from 0 on), or NDArrays
    offset   the first element, where x[key] is contiguous in memory; else None
    """

    key: Key
    shape: Shape
    arrays: tuple[Any, ...] = ()
    offset: int | None = None


def parse(key: Any, shape: Shape, is_np: bool = False) -> Index:
    """Interpret any `key` for an array of `shape`; is_np: a single element has the shape ().

    IndexError: too many indices, out of range, more than one Ellipsis, a mask of another shape.
    ValueError: a type that is no index, a step of 0, index arrays that do not broadcast.
    TypeError: slices of floats, ragged or non-numeric lists.
    """
    items = key if type(key) is tuple else (key,)
    words: list[Any] = []
    for item in items:
        if type(item) is slice and {type(item.start), type(item.stop), type(item.step)} <= _PLAIN:
            words += slice, item.start, item.stop, item.step
        elif type(item) is int or item is None or item is Ellipsis:
            words.append(item)
        else:
            return _interpret([_item(item) for item in items], shape, is_np)
    return _interpret_words(shape, is_np, *words)


@lru_cache(maxsize=1024)
def _interpret_words(shape: Shape, is_np: bool, *words: Any) -> Index:
    """The key of numbers and slices that `words` spell, kept: a slice alone has no hash."""
    rest = iter(words)
    items = [slice(next(rest), next(rest), next(rest)) if w is slice else w for w in rest]
    return _interpret(items, shape, is_np)


def _interpret(items: list[Any], shape: Shape, is_np: bool) -> Index:
    advanced = any(isinstance(item, (np.ndarray, Value)) for item in items)
    normal: list[Any] = []
    arrays: list[Any] = []
    axis = 0
    for item in _expand(items, len(shape), advanced):
        if item is None or item is Ellipsis:
            normal.append(item)
            continue
        if type(item) is slice:
            normal.append(_slice(item, shape[axis]))
        elif type(item) is int:
            normal.append(place_of(item, shape[axis], axis))
        elif _is_mask(item) and not item.ndim:
            normal.append(("mask", int(item)))
        else:
            columns = (item,) if isinstance(item, Value) else _places(item, shape, axis)
            normal += [("at", column.shape) for column in columns]  # type: ignore[union-attr]
            arrays += columns
        axis += _axes_of(item)
    if shape and not is_np and all(type(item) is int or item == ("at", ()) for item in normal):
        # A single element: its last position becomes one of shape (1,), for the result (1,).
        last = normal[-1]
        normal[-1] = (last, last + 1, 1) if type(last) is int else ("at", (1,))
    key = tuple(normal)
    try:
        return Index(
            key, result_shape(key), tuple(arrays), None if advanced else _offset(key, shape)
        )
    except ValueError:
        shapes = " and ".join(str(a.shape) for a in arrays)
        raise ValueError(f"index arrays of shapes {shapes} do not broadcast") from None


def _offset(key: Key, shape: Shape) -> int | None:
    """The position of the first element, if numbers and slices select contiguous memory.

    After an axis with more than one selected place all further axes must be whole, and no step may
    be other than 1. The position follows Horner's scheme: place i of an axis of size n makes it
    `offset * n + i`.
    """
    offset = axis = 0
    spread = False
    for item in key:
        if item is None:
            continue
        n = shape[axis]
        axis += 1
        start, stop, step = item if type(item) is tuple else (item, item + 1, 1)
        if step != 1 or start == stop or (spread and stop - start != n):
            return None
        spread = spread or stop - start > 1
        offset = offset * n + start
    return offset


def _is_mask(item: Any) -> bool:
    return isinstance(item, np.ndarray) and item.dtype == bool


def _axes_of(item: Any) -> int:
    """The number of axes for which an item stands."""
    return item.ndim if _is_mask(item) else 1


def _item(item: Any) -> Any:
    """One item of a key as an int, slice, None, Ellipsis, int64 or bool array, or NDArray."""
    if type(item) is int or type(item) is slice or item is None or item is Ellipsis:
        return item
    if isinstance(item, Value):
        if item.dtype == np.bool_:  # type: ignore[attr-defined]
            raise ValueError(
                "an NDArray of bool is not an index: the shape of the result would depend on its "
                "values; index by mask.asnumpy() == 1, which waits for them"
            )
        return item
    if isinstance(item, (list, tuple, range, np.ndarray)):
        return _index_array(item)
    try:
        return operator.index(item)
    except TypeError:
        raise ValueError(
            f"an NDArray cannot be indexed by {item!r} of type {type(item).__name__}; use "
            "integers, slices, None, ..., or arrays of integers"
        ) from None


def _index_array(item: Any) -> Any:
    """A list, tuple or NumPy array as int64 or bool array; a single number as int."""
    if type(item) in (list, tuple) and any(isinstance(i, Value) for i in item):
        raise TypeError(
            "a list of NDArrays is not an index; name several axes by x[i, j], or join the arrays "
            "with nd.stack"
        )
    try:
        array = np.asarray(item)
    except ValueError:
        raise TypeError(f"the index {item!r} is not an array: its rows differ in length") from None
    if array.dtype.kind not in "iufb":
        raise TypeError(f"the index {item!r} is an array of {array.dtype}, not of integers")
    if array.dtype != bool:
        array = array.astype(np.int64)  # a copy: the caller may change the original
    return array if array.ndim or array.dtype == bool else int(array)


def _expand(items: list[Any], ndim: int, advanced: bool) -> list[Any]:
    """The items for all axes: `...` replaced, or missing axes added at the end."""
    dots = [i for i, item in enumerate(items) if item is Ellipsis]
    named = [item for item in items if item is not None and item is not Ellipsis]
    used = sum(map(_axes_of, named))
    if len(dots) > 1:
        raise IndexError("an index can only have a single ellipsis ('...')")
    if used > ndim:
        raise IndexError(f"too many indices ({used}) for array with {ndim} dimensions")
    rest = [_ALL] * (ndim - used)
    if not dots:
        return items + rest
    # An ellipsis that stands for no axis still separates the index arrays around it.
    between = rest if rest or not advanced else [Ellipsis]
    return items[: dots[0]] + between + items[dots[0] + 1 :]


def _slice(item: slice, n: int) -> tuple[int, int | None, int]:
    """(start, stop, step) of a slice of an axis of size n; equal slices give equal tuples."""
    start, stop, step = item.indices(n)
    size = len(range(start, stop, step))
    if size == 0:
        return 0, 0, 1
    if size == 1:
        return start, start + 1, 1
    end = start + size * step
    return start, end if end >= 0 else None, step


def place_of(item: int, n: int, axis: int) -> int:
    """`item` counted from the front; IndexError if outside an axis of size n."""
    if not -n <= item < n:
        raise IndexError(f"index {item} is out of bounds for axis {axis} with size {n}")
    return item + n if item < 0 else item


def _places(array: np.ndarray, shape: Shape, axis: int) -> tuple[np.ndarray, ...]:
    """A NumPy index array, checked and counted from 0; a mask gives one array per axis."""
    if array.dtype == bool:
        if array.shape != shape[axis : axis + array.ndim]:
            raise IndexError(
                f"the mask has shape {array.shape}, but the axes it stands for have sizes "
                f"{shape[axis : axis + array.ndim]}"
            )
        return array.nonzero()
    n = shape[axis]
    if array.size:
        low, high = int(array.min()), int(array.max())
        place_of(high, n, axis)
        if low < 0:
            place_of(low, n, axis)
            array = np.where(array < 0, array + n, array)
    return (array,)

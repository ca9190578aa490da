"""x[key] and x[key] = value: views where memory layout allows, else copies and gathers.

The type of the key decides the result, as in MXNet and NumPy:

    numbers and slices that name one stretch of memory   a view: x[1], x[1:3], x[0, 2:4], x[0][0]
    other numbers and slices                             a copy: x[:, 0], x[::2], x[::-1]
    a list, NumPy array or NDArray of integers           a gather: x[[0, 2]], x[:, i], x[i, j]

A view shares the memory and the engine's Var of its base, so a write to one is visible in the
other. Indexing every axis by a number gives shape (1,), as in MXNet; () of an `np.ndarray`.

>>> from d2lmini import nd
>>> x = nd.zeros((2, 3))
>>> x[1] = nd.array([1, 2, 3])
>>> row = x[1]
>>> row[:] = row * 10
>>> x[:, [2, 0]]
<BLANKLINE>
[[ 0.  0.]
 [30. 10.]]
<NDArray 2x2 @cpu(0)>

Nothing here waits (except for an NDArray as a bound of a slice, x[i:], which must be a number). An
NDArray as an index is one more input of the operation, so an index outside its axis is found at run
time, while numbers, lists and NumPy arrays are checked at the call.
Float NDArrays count as integers, never as masks: `x[x > 0]` takes rows 0 and 1. A mask must be a
NumPy array of bool (MXNet takes such arrays, too, as the numbers 0 and 1).

`parse` interprets the key: any key becomes one canonical form.

    >>> parse((slice(None, None, 2), -1), (4, 3))
    Index(key=((0, 4, 2), 2), shape=(2,), arrays=(), offset=None)
    >>> parse((1, slice(0, 2)), (4, 3)).offset                  # elements 3 and 4: contiguous
    3
    >>> parse(([0, -1],), (4, 3))
    Index(key=(('at', (2,)), (0, 3, 1)), shape=(2, 3), arrays=(array([0, 3]),), offset=None)

It works at the call and looks at shapes only; `ops/subscript.py` defines the items of `key`. The
rules are NumPy's, except for three of MXNet's: in nd indexing all axes by numbers gives shape (1,),
floats count as integers, and in nd True and False alone are the numbers 1 and 0.
"""

from __future__ import annotations

import operator
from functools import lru_cache
from math import prod
from typing import Any, NamedTuple

import numpy as np

from d2lmini import autograd
from d2lmini.base import ArgumentTypeError, ArgumentValueError
from d2lmini.ndarray.dispatch import apply
from d2lmini.ndarray.exchange import from_array
from d2lmini.ops.core import Shape, Value, invoke, modes, registry
from d2lmini.ops.create import full
from d2lmini.ops.elementwise import broadcast_shape
from d2lmini.ops.scalar_cache import convert
from d2lmini.ops.subscript import Key, _assign, _getitem, _setitem, result_shape

# -- the key ---------------------------------------------------------------------------------------

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
    ValueError: a type that is no index, a step of 0, ragged lists, index arrays that do not
    broadcast. TypeError: slices of floats, non-numeric lists.
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
    return Index(key, result_shape(key), tuple(arrays), None if advanced else _offset(key, shape))


def _offset(key: Key, shape: Shape) -> int | None:
    """The position of the first element, if numbers and slices select contiguous memory.

    After an axis with more than one selected place all further axes must be whole, and no step may
    be other than 1. The position follows Horner's scheme: place i of an axis of size n makes it
    `offset * n + i`.
    """
    offset, spread = 0, False
    for n, item in zip(shape, (item for item in key if item is not None)):
        start, stop, step = item if type(item) is tuple else (item, item + 1, 1)
        if step != 1 or start == stop or (spread and stop - start != n):
            return None
        spread = spread or stop - start > 1
        offset = offset * n + start
    return offset


def _axes_of(item: Any) -> int:
    """The number of axes for which an item stands."""
    return item.ndim if isinstance(item, np.ndarray) and item.dtype == bool else 1


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
    """A list, tuple or NumPy array as int64 or bool array; a single number as int. IndexError for
    a mask of no axis."""
    if type(item) in (list, tuple) and any(isinstance(i, Value) for i in item):
        raise TypeError(
            "a list of NDArrays is not an index; name several axes by x[i, j], or join the arrays "
            "with nd.stack"
        )
    array = np.asarray(item)  # ValueError if its rows differ in length
    if array.dtype.kind not in "iufb":
        raise TypeError(f"the index {item!r} is an array of {array.dtype}, not of integers")
    if array.dtype != bool:
        array = array.astype(np.int64)  # a copy: the caller may change the original
    elif not array.ndim:
        raise IndexError("True and False as masks are left out; index by an array of bool")
    return array if array.ndim else int(array)


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
    places = range(n)[item]
    step = places.step if len(places) > 1 else 1
    start = places[0] if places else 0
    end = start + len(places) * step
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


# -- reading ---------------------------------------------------------------------------------------


def getitem(x: Any, key: Any) -> Any:
    """x[key]: a view, a copy or a gather; see the module's docstring. Never waits.

    Cost: a view moves nothing; else the bytes of the result are read and written once.
    """
    place, index = _find(x, key)
    if place is None:
        return select(x, index)
    if x._node is not None and modes.recording and place is not x:
        # The tape records the operation whose result the view shows.
        attrs = {"key": parse(key, x._spec.shape, x.is_np).key}
        autograd.record_op(_getitem, (x,), attrs, [place])
    return place


def _find(x: Any, key: Any) -> tuple[Any, Any]:
    """(x[key] as a view, x itself for x[:]; None), or (None, the interpreted key) if the elements
    are not contiguous in memory."""
    shape = x._spec.shape
    if type(key) is int and shape and -shape[0] <= key < shape[0]:  # the most common key
        rest = shape[1:]
        offset = (key if key >= 0 else key + shape[0]) * prod(rest)
        return x._view(offset, rest if rest or x.is_np else (1,)), None
    if is_whole(key):
        return x, None
    index = parse(key, shape, x.is_np)
    if index.offset is None:
        return None, index
    return x._view(index.offset, index.shape), None


def is_whole(key: Any) -> bool:
    """True for x[:] and x[()]."""
    if type(key) is slice:
        return key.start is None and key.stop is None and key.step is None
    return type(key) is tuple and not key


def select(x: Any, index: Index) -> Any:
    """The elements that an interpreted key names, of an array or of what stands for one in a
    trace, by the op: a copy or a gather."""
    return invoke(_getitem, (x, *_inputs(index.arrays, x)), {"key": index.key}, None)


def _inputs(arrays: tuple[Any, ...], x: Any) -> tuple[Any, ...]:
    """The index arrays of a key as one more input, concatenated; () if there are none."""
    if not arrays:
        return ()
    if not any(isinstance(a, Value) for a in arrays):
        arrays = (np.concatenate([a.ravel() for a in arrays]),)
    values: list[Any] = [
        a.as_in_context(x.ctx) if isinstance(a, Value) else from_array(a, x.ctx, adopt=True)  # type: ignore[attr-defined]
        for a in arrays
    ]
    if len(values) == 1:
        return (values[0],)
    flat = [v.astype("int64", copy=False).reshape((-1,)) for v in values]
    return (registry["concat"](*flat, dim=0),)


# -- writing ---------------------------------------------------------------------------------------


def setitem(x: Any, key: Any, value: Any) -> None:
    """x[key] = value, pushed as one operation. Never waits.

    value: a number, list, NumPy array or NDArray, broadcast to the shape of x[key] (extra leading
    axes of size 1 are dropped) and converted to x's dtype as C converts: 1.7 to 1, 300 to uint8
    44. Of several values for one element the last remains.

    While recording, x gets the history of a value that is written to all of x, in x's own order. A
    value with a history cannot be written to a part of x, nor to a view: MXNetError.

    Errors as in `parse`; ValueError when value does not broadcast; TypeError when value is neither
    a number nor an array of numbers. An error leaves x unchanged. Cost: writes the bytes of x[key],
    reads those of value.
    """
    place, index = _find(x, key)
    shape = index.shape if place is None else place._spec.shape
    dtype = x._spec.dtype
    if not isinstance(value, Value):
        value = _constant(value, dtype)
        if isinstance(value, np.ndarray):
            value = from_array(_fit(value, shape), x._ctx, adopt=True)
    else:
        value = _fit(value, shape)
    scalar = None if isinstance(value, Value) else value
    if modes.recording:
        used = [v for v in (value, *(index.arrays if index else ())) if isinstance(v, Value)]
        whole = place is not None and place._offset is None  # all of x, and x is all of its memory
        autograd.check_in_place(_assign, used, [x], whole)

    if place is None:
        if scalar is None:
            value = value.copy() if value._chunk is x._chunk else value.as_in_context(x._ctx)
        inputs = (x, value if scalar is None else None, *_inputs(index.arrays, x))
        invoke(_setitem, inputs, {"key": index.key, "scalar": scalar}, None)
    elif scalar is not None:
        attrs = {"shape": shape, "value": scalar, "dtype": dtype}
        apply(full, (), attrs, place, x._ctx)
    else:
        if value._chunk is x._chunk:
            start, begin = value._offset or 0, place._offset or 0
            if start == begin and value.shape == shape:
                # x[1] = x[1], the last step of x[1] += 2
                if modes.recording and value._node is not None:
                    x._continue(value)
                return
            if start < begin + place.size and begin < start + value.size:
                # In chunks, some elements would be overwritten before they are read.
                value = value.copy()
        value = value.as_in_context(x._ctx)
        invoke(_assign, (value,), {"shape": shape, "dtype": dtype}, place)
        if place is not x and place._node is not None:
            x._continue(place)


def _constant(value: Any, dtype: np.dtype) -> Any:
    """A number as a scalar of `dtype`, a list or NumPy array as a new array of `dtype`."""
    if type(value) is float or (type(value) is int and value.bit_length() < 1024):
        with np.errstate(all="ignore"):
            return convert(value, dtype)[()]
    values = value if type(value) in (list, tuple) else ()
    mixed = any(isinstance(v, Value) for v in values)
    array = np.asarray(None if mixed else value)  # ValueError if its rows differ in length
    if array.dtype.kind not in "iufb":
        raise ArgumentTypeError(
            f"an NDArray does not take {value!r} of type {type(value).__name__}; assign a number, "
            "a list of numbers, a NumPy array or an NDArray (several are joined by nd.stack)"
        )
    with np.errstate(all="ignore"):
        array = array.astype(dtype, order="C")  # always a copy: the caller may change the original
    return array if array.ndim else array[()]


def _fit(value: Any, shape: Shape) -> Any:
    """`value` without extra leading axes; ValueError if it does not broadcast to `shape`."""
    given = value.shape
    if given == shape:
        return value
    extra = max(0, len(given) - len(shape))
    fitted = given[extra:]
    if prod(given[:extra]) != 1 or broadcast_shape(fitted, shape) != shape:
        raise ArgumentValueError(
            f"a value of shape {given} does not broadcast to {shape}, the shape of the selection"
        )
    if not extra:
        return value
    return value.reshape(fitted) if isinstance(value, np.ndarray) else value._reshaped(fitted)

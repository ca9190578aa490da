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

`keys.parse` interprets the key; this module decides what to push.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from d2lmini import autograd
from d2lmini.base import ArgumentTypeError, ArgumentValueError
from d2lmini.ndarray.dispatch import apply
from d2lmini.ndarray.exchange import from_array
from d2lmini.ndarray.keys import Index, parse
from d2lmini.ops.core import Shape, Value, invoke, modes, registry
from d2lmini.ops.create import full
from d2lmini.ops.elementwise import broadcast_shape
from d2lmini.ops.scalar_cache import convert
from d2lmini.ops.subscript import _assign, _getitem, _setitem

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
    if _is_whole(key):
        return x, None
    index = parse(key, shape, x.is_np)
    if index.offset is None:
        return None, index
    return x._view(index.offset, index.shape), None


def _is_whole(key: Any) -> bool:
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
        used = (value, *(index.arrays if place is None else ()))
        used = tuple([array for array in used if isinstance(array, Value)])
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
            if _begin(value) == _begin(place) and value.shape == shape:
                # x[1] = x[1], the last step of x[1] += 2
                if modes.recording and value._node is not None:
                    x._continue(value)
                return
            if _overlap(value, place):
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


def _begin(x: Any) -> int:
    """The offset of x in its chunk, in elements."""
    return x._offset or 0


def _overlap(a: Any, b: Any) -> bool:
    """True if two arrays of one chunk share an element."""
    return _begin(a) < _begin(b) + b.size and _begin(b) < _begin(a) + a.size

"""What the functions of `np` do with their arguments: check them, promote dtypes, fill `out=`.

The functions call the ops of `nd`, which want equal dtypes and have no arrays without axes. Here is
what turns NumPy's rules into theirs:

>>> from d2lmini import np
>>> from d2lmini.np.values import drop_axes, promote
>>> a, b = promote("add", np.array([1, 2], dtype="int32"), np.array([0.5, 1]))
>>> a.dtype, b.dtype
(dtype('float32'), dtype('float32'))
>>> drop_axes(np.ones((1,))).shape
()
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, TypeGuard

import numpy as onp

from d2lmini.bfloat16 import is_float
from d2lmini.ops.core import Value, invoke, registry
from d2lmini.ops.fluent import NUMBERS

FLOAT32 = onp.dtype("float32")


def is_number(x: Any) -> bool:
    """True for a Python or NumPy number."""
    return isinstance(x, NUMBERS) or (isinstance(x, onp.ndarray) and not x.ndim)


def is_array(x: Any) -> TypeGuard[Any]:
    """True for an array, or what stands for one in a trace."""
    return isinstance(x, Value)


def check_array(name: str, x: Any) -> Any:
    """`x`; TypeError unless `x` is an `np.ndarray`, or stands for one in a trace."""
    if isinstance(x, Value) and x.is_np:
        return x
    hint = ""
    if isinstance(x, Value):
        hint = "; x.as_np_ndarray() has the same memory"
    elif hasattr(x, "__len__") or hasattr(x, "__array__"):
        hint = "; make one with np.array(x)"
    kind = "numpy.ndarray" if isinstance(x, onp.ndarray) else type(x).__name__
    raise TypeError(f"np.{name}: expected an np.ndarray, got {kind}{hint}")


def dtype_of(x: Any) -> onp.dtype:
    """The NumPy dtype of a value."""
    return x._spec.dtype


def as_type(x: Any, dtype: Any) -> Any:
    """`x` converted to `dtype`, or `x` itself if it has that dtype."""
    if dtype is None or onp.dtype(dtype) == dtype_of(x):
        return x
    return registry["Cast"](x, dtype=onp.dtype(dtype))


def common_dtype(name: str, dtypes: Sequence[onp.dtype]) -> onp.dtype:
    """The dtype of a result: the widest float, else the widest integer.

    As in MXNet, integers do not widen a float: int64 and float16 give float16. TypeError for int8
    and uint8, for which no dtype is left that arrays here have."""
    floats = [dtype for dtype in dtypes if is_float(dtype)]
    if floats:
        return max(floats, key=lambda dtype: dtype.itemsize)
    result = onp.result_type(*dtypes)
    if result == "int16":
        raise TypeError(f"np.{name}: int8 and uint8 have no common dtype; convert one with astype")
    return result


def promote(name: str, *arrays: Any) -> list[Any]:
    """The arrays in their common dtype."""
    if all(x._spec.dtype is arrays[0]._spec.dtype for x in arrays):
        return list(arrays)
    dtype = common_dtype(name, [dtype_of(x) for x in arrays])
    return [as_type(x, dtype) for x in arrays]


def as_float(x: Any) -> Any:
    """`x`; integers and bool as float32."""
    return x if is_float(dtype_of(x)) else as_type(x, FLOAT32)


def beside(x: Any, number: Any) -> tuple[Any, Any]:
    """An array and a number, as Python's, in the dtype of the result: the rule of all functions.

    It is NumPy's rule (NEP 50), with float32 as the float: a number takes the array's dtype, unless
    it is of a higher kind: a float beside integers or bool gives float32, an integer beside bool
    int64. A NumPy scalar counts as its number, as in MXNet. An integer out of the dtype's range
    wraps around, as in MXNet, where NumPy refuses; comparisons, `maximum`, `minimum` and `clip`
    take it as it is."""
    number = number.item() if hasattr(number, "item") else number
    kind = x._spec.dtype.kind
    if kind == "f":
        return x, number
    if kind in "biu" and isinstance(number, float):
        return as_float(x), number
    return (as_type(x, "int64") if kind == "b" and type(number) is not bool else x), number


def reshape_to(x: Any, shape: tuple[int, ...]) -> Any:
    """A copy of `x` in a shape without codes, which may be () or have zeros."""
    if not shape or 0 in shape:
        return registry["_spread"](x, kept=shape, shape=shape)
    return registry["reshape"](x, shape=shape)


def drop_axes(x: Any) -> Any:
    """The one element of `x` in an array of shape ()."""
    return x if not x.shape else reshape_to(x, ())


def constant(value: Any, like: Any) -> Any:
    """A number as an array in the shape and with the device of `like`, in the dtype that it has
    `beside` it: a value of a graph in a trace, like any other result."""
    like, value = beside(like, value)
    zeros = registry["zeros_like"](as_type(like, "uint8") if dtype_of(like).kind == "b" else like)
    return as_type(value - zeros, dtype_of(like))  # not zeros + value, which loses -0.0


def at_least_1d(x: Any) -> Any:
    """`x` with one axis if it has none."""
    return x if x.shape else reshape_to(x, (1,))


def fill(out: Any, result: Any) -> Any:
    """`result`, or `out` filled with it. ValueError if their shapes differ, TypeError for floats
    into integers, and for numbers into bool."""
    if out is None:
        return result
    if out.shape != result.shape:
        raise ValueError(f"out= has shape {out.shape}, the result is {result.shape}")
    given, kept = ("biuf".find(dtype_of(x).kind) for x in (result, out))
    if given > max(kept, 2) or given > 0 == kept:
        raise TypeError(
            f"an array of {dtype_of(out)} cannot take a result of {dtype_of(result)} in place; "
            "write x = x / y instead of x /= y, or convert with astype first"
        )
    invoke(registry["_copy"], (as_type(result, dtype_of(out)),), {}, out)
    return out


def full_shape(shape: Any) -> tuple[int, ...]:
    """A shape given as an int or a sequence, as a tuple of ints."""
    if isinstance(shape, (int, onp.integer)):
        return (int(shape),)
    return tuple(int(n) for n in shape)


def infer_size(shape: Sequence[int], size: int) -> tuple[int, ...]:
    """`shape` with its -1 replaced, for an array of `size` elements; ValueError if none fits."""
    known = [int(n) for n in shape]
    if known.count(-1) == 1:
        rest = -prod(known)
        known[known.index(-1)] = size // rest if rest else 0
    if prod(known) != size or any(n < 0 for n in known):
        raise ValueError(f"cannot reshape array of size {size} into shape {tuple(shape)}")
    return tuple(known)

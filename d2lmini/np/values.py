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

A definition in these modules is a row of the table of functions and methods of `np`. Its first line
says the name, the parameters in NumPy's order with their defaults, and with `Array` that the first
one must be an `np.ndarray`; its docstring is that of the function and the method:

    def ravel(x: Array, order="C"):
        '''The elements in one axis.'''
        return reshape(x, x.size, order)

The definitions call each other as they are, so an argument is checked once, where a program calls.

>>> np.ravel([1, 2])
Traceback (most recent call last):
    ...
TypeError: np.ravel: expected an np.ndarray, got list; make one with np.array(x)
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, wraps
from types import FunctionType
from typing import Any, TypeGuard

import numpy as onp

from d2lmini.base.dtypes import is_float
from d2lmini.ops.core import Value, invoke, registry
from d2lmini.ops.fluent import NUMBERS
from d2lmini.symbol.symbol import NotImplementedForSymbol, Symbol

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


def read(x: Any, name: str) -> onp.ndarray:
    """The values of an array; waits. NotImplementedForSymbol in a trace, where there are none."""
    if isinstance(check_array(name, x), Symbol):
        raise NotImplementedForSymbol(f"np.{name}")
    return x.asnumpy()


def as_type(x: Any, dtype: Any) -> Any:
    """`x` converted to `dtype`, or `x` itself if it has that dtype."""
    if dtype is None or onp.dtype(dtype) == x._spec.dtype:
        return x
    return registry["Cast"](x, dtype=onp.dtype(dtype))


def promote(name: str, *arrays: Any) -> list[Any]:
    """The arrays in their common dtype: the widest float, else the widest integer.

    As in MXNet, integers do not widen a float: int64 and float16 give float16. TypeError for int8
    and uint8, for which no dtype is left that arrays here have."""
    if all(x._spec.dtype is arrays[0]._spec.dtype for x in arrays):
        return list(arrays)
    dtypes = [x._spec.dtype for x in arrays]
    floats = [dtype for dtype in dtypes if is_float(dtype)]
    widest = max(floats, key=lambda dtype: dtype.itemsize) if floats else onp.result_type(*dtypes)
    if widest == "int16":
        raise TypeError(f"np.{name}: int8 and uint8 have no common dtype; convert one with astype")
    return [as_type(x, widest) for x in arrays]


def as_float(x: Any) -> Any:
    """`x`; integers and bool as float32."""
    return x if is_float(x._spec.dtype) else as_type(x, FLOAT32)


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
    zeros = registry["zeros_like"](as_type(like, "uint8") if like._spec.dtype.kind == "b" else like)
    return as_type(value - zeros, like._spec.dtype)  # not zeros + value, which loses -0.0


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
    given, kept = ("biuf".find(x._spec.dtype.kind) for x in (result, out))
    if given > max(kept, 2) or given > 0 == kept:
        raise TypeError(
            f"an array of {out._spec.dtype} cannot take a result of {result.dtype} in place; "
            "write x = x / y instead of x /= y, or convert with astype first"
        )
    invoke(registry["_copy"], (as_type(result, out._spec.dtype),), {}, out)
    return out


def full_shape(shape: Any) -> tuple[int, ...]:
    """A shape given as an int or a sequence, as a tuple of ints."""
    if isinstance(shape, (int, onp.integer)):
        return (int(shape),)
    return tuple(int(n) for n in shape)


# -- definitions -----------------------------------------------------------------------------------

#: Annotates a first parameter that must be an `np.ndarray`, or stand for one in a trace.
Array = Any


def functions_of(definitions: dict[str, Any], module: str = "d2lmini.np") -> dict[str, Callable]:
    """The public functions among the global names of a module, as `module` shows them."""
    return {
        name: _bind(value, module)
        for name, value in definitions.items()
        if isinstance(value, FunctionType)
        and value.__globals__ is definitions
        and not name.startswith("_")
    }


@cache
def _bind(function: Any, module: str) -> Callable[..., Any]:
    """The function that checks its first argument, if the definition says so."""
    bound, name = function, f"{module}.{function.__name__}".removeprefix("d2lmini.np.")
    first, needs = next(iter(function.__annotations__.items()), ("", ""))
    if needs == "Array":

        @wraps(function)
        def bound(*args: Any, **kwargs: Any) -> Any:
            if args or first in kwargs:
                check_array(name, args[0] if args else kwargs[first])
            return function(*args, **kwargs)

    bound.__module__ = module  # where pickle finds it
    bound.__annotations__.setdefault("return", "Any")
    return bound

"""Operators and methods of values: `x + y`, `x.sum()`, `x.exp()` are ops under another spelling.

`NDArray` and `Symbol` inherit them. What an operator means is fixed by two tables at the foot: for
each operator the op on two values and the op on a value and a number; and the names of ops that
are also methods, as in MXNet.
"""

from __future__ import annotations

import numbers
from collections.abc import Callable
from typing import Any

import numpy as np

from d2lmini.ops.core import Value, invoke, registry

_NUMBERS = (int, float, bool, np.number, np.bool_, numbers.Number)


class Fluent(Value):
    """A value with operators and methods."""

    __slots__ = ()

    def __neg__(self) -> Any:
        return invoke(registry["negative"], (self,), registry["negative"].defaults, None)

    def __abs__(self) -> Any:
        return invoke(registry["abs"], (self,), registry["abs"].defaults, None)

    def __pos__(self) -> Any:
        return self


def _operator(symbol: str, pair: str, scalar: str, reverse: bool = False) -> Callable:
    """A method for `self OP other`: the op on a pair of values or on a value and a number."""
    pair_op, scalar_op = registry[pair], registry[scalar]

    def method(self: Any, other: Any) -> Any:
        kind = type(other)
        if kind is int or kind is float:
            return self._apply(scalar_op, (self,), {"scalar": other})
        if isinstance(other, Value):
            pair_of = (other, self) if reverse else (self, other)
            return pair_of[0]._apply(pair_op, pair_of, pair_op.defaults)
        if isinstance(other, _NUMBERS):
            return invoke(scalar_op, (self,), {"scalar": other}, None)
        raise TypeError(
            f"{symbol}: expected an NDArray or a number beside an NDArray, got "
            f"{type(other).__name__}; make an NDArray of it with nd.array(...)"
        )

    return method


def _in_place(symbol: str, pair: str, scalar: str) -> Callable:
    """A method for `self OP= other`: the same ops, with `self` as the place of the result."""
    pair_op, scalar_op = registry[pair], registry[scalar]

    def method(self: Any, other: Any) -> Any:
        if isinstance(other, Value):
            return invoke(pair_op, (self, other), pair_op.defaults, self)
        if isinstance(other, _NUMBERS):
            return invoke(scalar_op, (self,), {"scalar": other}, self)
        raise TypeError(
            f"{symbol}: expected an NDArray or a number, got {type(other).__name__}; "
            "make an NDArray of it with nd.array(...)"
        )

    return method


def _method(name: str) -> Callable:
    op = registry[name]

    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        return op(self, *args, **kwargs)

    method.__name__ = name
    method.__doc__ = f"`{op.usage}` of this array.\n\n{op.__doc__ or ''}"
    return method


# operator: (op on two values, op on a value and a number, the same with the number on the left)
_ARITHMETIC = {
    "add": ("+", "broadcast_add", "_plus_scalar", "_plus_scalar"),
    "sub": ("-", "broadcast_sub", "_minus_scalar", "_rminus_scalar"),
    "mul": ("*", "broadcast_mul", "_mul_scalar", "_mul_scalar"),
    "truediv": ("/", "broadcast_div", "_div_scalar", "_rdiv_scalar"),
    "mod": ("%", "broadcast_mod", "_mod_scalar", "_rmod_scalar"),
    "pow": ("**", "broadcast_power", "_power_scalar", "_rpower_scalar"),
}
_COMPARISONS = {
    "eq": ("==", "broadcast_equal", "_equal_scalar"),
    "ne": ("!=", "broadcast_not_equal", "_not_equal_scalar"),
    "gt": (">", "broadcast_greater", "_greater_scalar"),
    "ge": (">=", "broadcast_greater_equal", "_greater_equal_scalar"),
    "lt": ("<", "broadcast_lesser", "_lesser_scalar"),
    "le": ("<=", "broadcast_lesser_equal", "_lesser_equal_scalar"),
}
_METHODS = """
    abs arccos arccosh arcsin arcsinh arctan arctanh argmax argmax_channel argmin argsort
    broadcast_axes broadcast_like broadcast_to cbrt ceil clip cos cosh degrees depth_to_space diag
    exp expm1 fix flip floor log log10 log1p log2 log_softmax max mean min nanprod nansum norm
    one_hot ones_like pad pick prod radians rcbrt reciprocal relu repeat rint round rsqrt
    shape_array sigmoid sign sin sinh size_array slice slice_axis slice_like softmax softmin sort
    space_to_depth split split_v2 sqrt square sum swapaxes take tan tanh tile topk transpose trunc
    zeros_like
""".split()


def _equipped(cls: type) -> None:
    for name, (symbol, pair, scalar, reverse) in _ARITHMETIC.items():
        setattr(cls, f"__{name}__", _operator(symbol, pair, scalar))
        setattr(cls, f"__r{name}__", _operator(symbol, pair, reverse, reverse=True))
        setattr(cls, f"__i{name}__", _in_place(symbol + "=", pair, scalar))
    for name, (symbol, pair, scalar) in _COMPARISONS.items():
        setattr(cls, f"__{name}__", _operator(symbol, pair, scalar))
    for name in _METHODS:
        setattr(cls, name, _method(name))


_equipped(Fluent)

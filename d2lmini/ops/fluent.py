"""Operators and functions of values: `x + y` and `nd.add(x, 2)` call ops.

>>> from d2lmini import nd
>>> x = nd.array([-1, 2])
>>> 2 - x, nd.maximum(0, x)
(
[3. 0.]
<NDArray 2 @cpu(0)>,
[0. 2.]
<NDArray 2 @cpu(0)>)
>>> nd.power(2, 10)
1024

`NDArray` and `Symbol` inherit the operators from `Fluent`, and the methods (`methods.py`). The
operands decide which op an operator or a function calls: `family.broadcast` for two values,
`family.scalar` for a value and a number, `family.reflected` for a number and a value (see
`elementwise.py`).
"""

from __future__ import annotations

import numbers
from collections.abc import Callable
from typing import Any

import numpy as np

from d2lmini.ops import binary  # noqa: F401  (it declares the families)
from d2lmini.ops.core import Op, Spec, Value, invoke, registry
from d2lmini.ops.elementwise import FAMILIES, Family
from d2lmini.ops.signature import named

NUMBERS = (int, float, bool, np.number, np.bool_, numbers.Number)


class Fluent(Value):
    """A value with operators and methods."""

    __slots__ = ()

    def __neg__(self) -> Any:
        if self._spec.dtype.char == "?":  # type: ignore[attr-defined]
            return self * -1  # type: ignore[operator]
        return invoke(registry["negative"], (self,), registry["negative"].defaults, None)

    def __abs__(self) -> Any:
        return invoke(registry["abs"], (self,), registry["abs"].defaults, None)

    def __pos__(self) -> Any:
        return self


class Typed:
    """What a value's `_spec` says: of an array, or of a Symbol of a typed graph."""

    __slots__ = ()

    _spec: Spec

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes of the axes."""
        return self._spec.shape

    @property
    def dtype(self) -> type:
        """The NumPy type of the elements, e.g. numpy.float32."""
        return self._spec.dtype.type

    @property
    def size(self) -> int:
        """Number of elements."""
        return self._spec.size

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self._spec.shape)

    @property
    def stype(self) -> str:
        """Storage type: always 'default' (dense)."""
        return "default"


def _operator(symbol: str, pair_op: Op, scalar_op: Op, reverse: bool = False) -> Callable:
    """A method for `self OP other`: the op on two values or on a value and a number."""

    def method(self: Any, other: Any) -> Any:
        kind = type(other)
        if kind is int or kind is float:
            return self._apply(scalar_op, (self,), {"scalar": other})
        if isinstance(other, Value):
            pair_of = (other, self) if reverse else (self, other)
            return pair_of[0]._apply(pair_op, pair_of, pair_op.defaults)
        if isinstance(other, NUMBERS):
            return invoke(scalar_op, (self,), {"scalar": other}, None)
        raise TypeError(
            f"{symbol}: expected an NDArray or a number beside an NDArray, got "
            f"{type(other).__name__}; make an NDArray of it with nd.array(...)"
        )

    return method


def _in_place(function: Callable[..., Any]) -> Callable:
    """A method for `self OP= other`: the function, with `self` as the output."""

    def method(self: Any, other: Any) -> Any:
        return function(self, other, out=self)

    return method


def function_of(name: str, family: Family) -> Callable[..., Any]:
    """The function of two values, of a value and a number, or of two numbers."""
    pair_op, scalar_op, reflected_op = family.broadcast, family.scalar, family.reflected

    def function(lhs: Any, rhs: Any, out: Any = None) -> Any:
        if isinstance(lhs, Value):
            if isinstance(rhs, Value):
                return invoke(pair_op, (lhs, rhs), pair_op.defaults, out)
            if isinstance(rhs, NUMBERS):
                return invoke(scalar_op, (lhs,), {"scalar": rhs}, out)
        elif isinstance(lhs, NUMBERS):
            if isinstance(rhs, Value):
                return invoke(reflected_op, (rhs,), {"scalar": lhs}, out)
            if isinstance(rhs, NUMBERS):
                return family.of_numbers(lhs, rhs)
        raise TypeError(
            f"{name}: expected arrays or numbers, got {type(lhs).__name__} and "
            f"{type(rhs).__name__}; make an array with nd.array(...)"
        )

    doc = (
        f"{family.means}, element by element; shapes broadcast.\n\n"
        "    Each side is an array or a number; the number takes the array's dtype. Two numbers\n"
        f"    give a number. See `{pair_op.name}` and `{scalar_op.name}`."
    )
    return named(function, "d2lmini.ndarray", name, doc)


def _power(name: str, family: Family) -> Callable[..., Any]:
    """The function of a family with MXNet's names for the sides of a power."""
    function = function_of(name, family)

    def power(base: Any, exp: Any) -> Any:
        return function(base, exp)

    return named(power, function.__module__, name, function.__doc__ or "")


#: The functions that `nd` and `sym` offer.
FUNCTIONS: dict[str, Callable[..., Any]] = {
    name: _power(name, family) if family.name == "power" else function_of(name, family)
    for family in FAMILIES.values()
    for name in family.functions
}


def _add_operators(cls: type) -> None:
    for family in FAMILIES.values():
        if not family.operator:
            continue
        (symbol, name), pair, scalar = family.operator.split(), family.broadcast, family.scalar
        setattr(cls, f"__{name}__", _operator(symbol, pair, scalar))
        if not family.truth:
            setattr(cls, f"__r{name}__", _operator(symbol, pair, family.reflected, reverse=True))
            if name != "pow":  # as in MXNet, x **= 2 makes a new array
                setattr(cls, f"__i{name}__", _in_place(function_of(symbol + "=", family)))


_add_operators(Fluent)

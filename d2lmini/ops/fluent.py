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

`NDArray` and `Symbol` inherit the operators from `Fluent`, and the methods: `x.sum()` calls the op
`sum`. The operands decide which op an operator or a function calls: `family.broadcast` for two
values, `family.scalar` for a value and a number, `family.reflected` for a number and a value (see
`elementwise.py`).

Pictures show an op by what a program writes to call it. Errors, traces and printed tables keep the
op's own name, which programs compare with:

>>> [shown_name(name) for name in ("broadcast_mul", "_plus_scalar", "_rminus_scalar", "dot")]
['*', '+', '-', 'dot']
>>> [shown_name(name) for name in ("_ones", "_random_uniform", "CopyGPU2CPU")]
['nd.ones', 'nd.random.uniform', 'CopyGPU2CPU']
>>> shown_with_number("_plus_scalar", "1"), shown_with_number("_rminus_scalar", "2.0")
('+ 1', '2 -')
"""

from __future__ import annotations

import numbers
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from d2lmini.ops import binary  # noqa: F401  (it declares the families)
from d2lmini.ops.core import Spec, Value, as_dtype, invoke, registry
from d2lmini.ops.elementwise import FAMILIES, Family
from d2lmini.ops.signature import named, text_of

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

    @property
    def T(self) -> Any:
        """The value with reversed axes (a copy)."""
        return self if self.ndim < 2 else registry["transpose"](self)

    def __len__(self) -> int:
        if not self._spec.shape:
            raise TypeError("len() of an array without axes")
        return self._spec.shape[0]

    def __iter__(self) -> Iterator[Any]:
        return (self[i] for i in range(len(self)))  # type: ignore[index]

    def astype(self, dtype: Any, copy: bool = True) -> Any:
        """A copy converted to `dtype`; the value itself if it has that dtype and not `copy`."""
        dtype = as_dtype(dtype, "float32")
        if not copy and dtype == self._spec.dtype:
            return self
        return invoke(registry["Cast"], (self,), {"dtype": dtype}, None)


def _operator(symbol: str, family: Family, reverse: bool = False) -> Callable:
    """A method for `self OP other`: the function of the family, or, for the most frequent operands,
    its op at once."""
    function, pair_op = function_of(symbol, family), family.broadcast
    scalar_op = family.reflected if reverse else family.scalar

    def method(self: Any, other: Any) -> Any:
        kind = type(other)
        if kind is int or kind is float:
            return self._apply(scalar_op, (self,), {"scalar": other})
        if isinstance(other, Value):
            pair_of = (other, self) if reverse else (self, other)
            return pair_of[0]._apply(pair_op, pair_of, pair_op.defaults)
        return function(other, self) if reverse else function(self, other)

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


def _add_operator(family: Family, symbol: str, name: str) -> None:
    setattr(Fluent, f"__{name}__", _operator(symbol, family))
    if not family.truth:
        setattr(Fluent, f"__r{name}__", _operator(symbol, family, reverse=True))
        if name != "pow":  # as in MXNet, x **= 2 makes a new array
            function = function_of(symbol + "=", family)
            setattr(Fluent, f"__i{name}__", lambda x, y: function(x, y, out=x))


for _family in FAMILIES.values():
    if _family.operator:
        _add_operator(_family, *_family.operator.split())


# -- methods ---------------------------------------------------------------------------------------

#: The ops that are also methods, as in MXNet.
METHODS = """
    abs arccos arccosh arcsin arcsinh arctan arctanh argmax argmin argsort broadcast_axes
    broadcast_like broadcast_to cbrt ceil clip cos cosh degrees depth_to_space diag exp
    expand_dims expm1 fix flatten flip floor log log10 log1p log2 log_softmax max mean min
    nansum norm one_hot ones_like pad pick prod radians rcbrt reciprocal relu repeat
    reshape_like rint round rsqrt shape_array sigmoid sign sin sinh size_array slice slice_axis
    softmax softmin sort space_to_depth split split_v2 sqrt square squeeze sum swapaxes take tan
    tanh tile topk transpose trunc zeros_like
""".split()


def _method(name: str) -> Callable:
    op = registry[name]

    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        return op(self, *args, **kwargs)

    doc = f"`{op.usage}` of this array.\n\n{text_of(op)}"
    return named(method, "d2lmini.ops.fluent", f"Fluent.{name}", doc)


def add_methods() -> None:
    """Give values their methods, when all ops are declared."""
    for name in METHODS:
        setattr(Fluent, name, _method(name))


# -- names in pictures -----------------------------------------------------------------------------


def shown_name(name: str) -> str:
    """An operator's sign, the function that makes an array, or the name itself."""
    op = registry.get(name)
    if op is not None and op.family is not None and op.family.operator:
        return op.family.operator.split()[0]  # type: ignore[no-any-return]
    if op is None or not name.startswith("_") or op.arity or op.variadic:
        return name
    return "nd." + name[1:].replace("random_", "random.", 1)


def shown_with_number(name: str, number: str) -> str:
    """The operator of an op on an array and a number, with the number on its side of the sign; ""
    if the op has no sign."""
    sign = shown_name(name)
    if sign == name:
        return ""
    parts = [sign, f"{float(number):g}"]
    return " ".join(reversed(parts) if name.startswith("_r") else parts)

"""Functions of `np` that work element by element; each is a row that names an op of `nd`.

>>> from d2lmini import np
>>> np.add(np.array([1, 2]), 0.5)
array([1.5, 2.5])
>>> np.array([1, 2], dtype="int32") / 2, np.array([1, 2]) > 1
(array([0.5, 1. ]), array([False,  True]))
>>> np.exp(1.0)                                   # numbers give NumPy's numbers
np.float64(2.718281828459045)

A number takes the array's dtype unless it is of a higher kind: int32 + 1.5 is float32 (see
`values.beside`). `/` gives floats. Of two arrays the wider float decides, then the wider integer.
Comparisons give bool.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as onp

from d2lmini.base import MXNetError
from d2lmini.np.values import (
    as_float,
    as_type,
    beside,
    check_array,
    constant,
    dtype_of,
    fill,
    is_number,
    promote,
)
from d2lmini.ops.core import Value, invoke, registry
from d2lmini.ops.elementwise import FAMILIES, Family
from d2lmini.ops.signature import named
from d2lmini.symbol.symbol import Symbol

#: What NumPy's ufuncs take besides `out`, with the only values that are supported here.
UFUNC_OPTIONS = {"where": True, "casting": "same_kind", "order": "K", "dtype": None, "subok": True}


def check_options(name: str, options: dict[str, Any]) -> None:
    """TypeError for an option that ufuncs do not have, NotImplementedError for another value."""
    for option, value in options.items():
        if option not in UFUNC_OPTIONS:
            raise TypeError(f"np.{name}() got an unexpected keyword argument {option!r}")
        default = UFUNC_OPTIONS[option]
        if type(value) is not type(default) or value != default:
            hint = {"where": "; use np.where", "dtype": "; use astype"}.get(option, "")
            raise NotImplementedError(
                f"np.{name}: {option} must be {default!r}, got {value!r}{hint}"
            )


# -- two operands ----------------------------------------------------------------------------------

#: np's name -> the family of arithmetic.
BINARY = {
    "add": "add", "subtract": "sub", "multiply": "mul", "divide": "div", "true_divide": "div",
    "mod": "mod", "remainder": "mod", "power": "power", "maximum": "maximum",
    "minimum": "minimum", "hypot": "hypot", "arctan2": "arctan2", "equal": "equal",
    "not_equal": "not_equal", "greater": "greater", "greater_equal": "greater_equal",
    "less": "lesser", "less_equal": "lesser_equal", "logical_and": "logical_and",
    "logical_or": "logical_or", "logical_xor": "logical_xor",
}  # fmt: skip

#: Families whose result is a float also for integers.
FLOAT_FAMILIES = ("div", "hypot", "arctan2")


def _binary(name: str, family: Family) -> Callable[..., Any]:
    pair_op, scalar_op, reflected_op = family.broadcast, family.scalar, family.reflected
    floats, truth = family.name in FLOAT_FAMILIES, family.truth

    def function(x1: Any, x2: Any, out: Any = None, **options: Any) -> Any:
        if options:
            check_options(name, options)
        left, right = isinstance(x1, Value), isinstance(x2, Value)
        plain = type(x2) in (int, float) and not truth and out is None and left and x1.is_np
        if plain and x1._spec.dtype.kind == "f":  # the most frequent call
            return x1._apply(scalar_op, (x1,), {"scalar": x2})
        if left and right:
            inputs = promote(name, check_array(name, x1), check_array(name, x2))
            op, attrs = pair_op, dict(pair_op.defaults)
        elif (left or right) and is_number(x2 if left else x1):
            x, number = (x1, x2) if left else (x2, x1)
            inputs = [check_array(name, x)]
            if truth:
                inputs[0], number = _as_comparable(x, number, family.name.startswith("logical"))
            else:
                inputs[0], number = beside(x, number)
            op, attrs = (scalar_op if left else reflected_op), {"scalar": number}
        elif is_number(x1) and is_number(x2):
            return fill(out, getattr(onp, name)(x1, x2))
        else:
            return check_array(name, x2 if left or is_number(x1) else x1)
        if floats:
            inputs = [as_float(x) for x in inputs]
        if not truth and inputs[0]._spec.dtype.kind == "b":
            return fill(out, _of_bools(name, op, inputs, attrs))
        if out is not None and not truth and dtype_of(out) == dtype_of(inputs[0]):
            return invoke(op, tuple(inputs), attrs, out)
        result = inputs[0]._apply(op, tuple(inputs), attrs)
        return fill(out, as_type(result, bool) if truth else result)

    means = f"{family.means}, element by element; shapes broadcast."
    return named(function, "d2lmini.np", name, means)


def _as_comparable(x: Any, number: Any, logical: bool) -> tuple[Any, Any]:
    """The array in a dtype that has the number: the ops give the number the dtype of the array.
    logical: only whether they are 0 matters."""
    number = number.item() if hasattr(number, "item") else number
    dtype = dtype_of(x)
    if logical:
        return x, int(bool(number))
    if dtype.kind not in "biu" or (isinstance(number, int) and _fits(number, dtype)):
        return x, number
    if isinstance(number, int) and _fits(number, onp.dtype("int64")):
        return as_type(x, "int64"), number
    far = onp.inf if number > 0 else -onp.inf
    return as_type(x, "float64"), number if isinstance(number, float) else far


def _fits(number: int, dtype: onp.dtype) -> bool:
    limits = onp.iinfo("uint8" if dtype.kind == "b" else dtype)
    return int(limits.min) <= number <= int(limits.max)


def _of_bools(name: str, op: Any, inputs: list[Any], attrs: dict[str, Any]) -> Any:
    """Arithmetic of bools, which gives bool: 1 + 1 is True."""
    if name == "subtract":
        raise MXNetError("np.subtract of bool arrays has no meaning; use np.not_equal or astype")
    inputs = [as_type(x, "uint8") for x in inputs]
    return as_type(op(*inputs, **attrs), bool)


# -- one operand -----------------------------------------------------------------------------------

#: np's name -> the op's, where they differ.
UNARY = {
    **{
        name: name
        for name in """abs arccos arccosh arcsin arcsinh arctan arctanh cbrt ceil cos cosh degrees
        exp expm1 fix floor log log10 log1p log2 negative radians reciprocal rint sign sin sinh sqrt
        square tan tanh trunc""".split()
    },
    "absolute": "abs", "fabs": "abs", "rad2deg": "degrees", "deg2rad": "radians",
}  # fmt: skip

#: Ops whose result is a truth value.
TRUTH = {
    "isnan": "_contrib_isnan", "isinf": "_contrib_isinf", "isfinite": "_contrib_isfinite",
    "logical_not": "logical_not",
}  # fmt: skip


def _unary(name: str, op_name: str, truth: bool) -> Callable[..., Any]:
    op = registry[op_name]

    def function(x: Any, out: Any = None, **options: Any) -> Any:
        if options:
            check_options(name, options)
        if is_number(x) and not isinstance(x, Value):
            return fill(out, getattr(onp, name)(x))
        check_array(name, x)
        if truth:
            x = as_type(x, "uint8") if dtype_of(x).kind == "b" else x
            return fill(out, as_type(op(x), bool))
        x = as_type(x, "int64") if op_name == "negative" and dtype_of(x).kind == "b" else x
        if out is not None and dtype_of(out) == dtype_of(x):
            return op(x, out=out)
        return fill(out, x._apply(op, (x,), op.defaults))

    means = f"{(op.__doc__ or name).splitlines()[0]}"
    return named(function, "d2lmini.np", name, means)


WITHOUT_GRADIENT = {
    "bitwise_and": "Bitwise and of integers or bool", "bitwise_or": "Bitwise or of the same",
    "bitwise_xor": "Bitwise xor of the same", "fmod": "x1 - trunc(x1 / x2) * x2",
    "floor_divide": "The largest integer not above x1 / x2",
}  # fmt: skip


def _without_gradient(name: str, means: str) -> Callable[..., Any]:
    op = registry["_by_ufunc"]

    def function(x1: Any, x2: Any, out: Any = None, **options: Any) -> Any:
        if options:
            check_options(name, options)
        if is_number(x1) and is_number(x2):
            return fill(out, getattr(onp, name)(x1, x2))
        x1 = constant(x1, check_array(name, x2)) if is_number(x1) else check_array(name, x1)
        x2 = constant(x2, x1) if is_number(x2) else check_array(name, x2)
        inputs, attrs = promote(name, x1, x2), {"how": name}
        if dtype_of(inputs[0]).kind == "b" and not name.startswith("bitwise"):
            return fill(out, _of_bools(name, op, inputs, attrs))
        return fill(out, op(*inputs, **attrs))

    return named(function, "d2lmini.np", name, f"{means}; shapes broadcast.")


def clip(a: Any, a_min: Any, a_max: Any, out: Any = None) -> Any:
    """Each element limited to [a_min, a_max]; None for no limit. ValueError if both are None."""
    if a_min is None and a_max is None:
        raise ValueError("np.clip: at least one of a_min and a_max must be a number")
    if is_number(a):
        return fill(out, onp.clip(a, a_min, a_max))
    a = check_array("clip", a)
    for end in (a_min, a_max):
        a = a if end is None else beside(a, end)[0]
    low = -onp.inf if a_min is None else a_min
    high = onp.inf if a_max is None else a_max
    return fill(out, registry["clip"](a, a_min=low, a_max=high))


def around(x: Any, decimals: int = 0, out: Any = None) -> Any:
    """Round to `decimals` places, halves to the even neighbour."""
    if not isinstance(x, Value):
        return onp.round(x, decimals)
    x = check_array("around", x)
    if dtype_of(x).kind in "iub" and decimals >= 0:
        return fill(out, registry["_copy"](x))
    scale = 10.0**decimals
    return fill(out, registry["rint"](x) if not decimals else registry["rint"](x * scale) / scale)


def _is_infinity(name: str, infinity: float) -> Callable[..., Any]:
    def function(x: Any, out: Any = None, **options: Any) -> Any:
        x = x if is_number(x) else check_array(name, x)
        return FUNCTIONS["equal"](x, infinity, out, **options)

    return named(function, "d2lmini.np", name, f"True where an element is {infinity:+}.")


def nan_to_num(
    x: Any, copy: bool = True, nan: float = 0.0, posinf: Any = None, neginf: Any = None
) -> Any:
    """nan replaced by `nan`, infinities by `posinf` and `neginf` (default: the largest floats);
    without `copy` in `x` itself, but a value of a graph stays what it is."""
    if is_number(x):
        return onp.nan_to_num(x, nan=nan, posinf=posinf, neginf=neginf)
    if dtype_of(check_array("nan_to_num", x)).kind != "f":
        return registry["_copy"](x) if copy else x
    limits = onp.finfo(dtype_of(x))
    where, zero, result = registry["where"], registry["zeros_like"](x), x
    for test, value in (
        (registry["_contrib_isnan"](x), nan),
        (FUNCTIONS["equal"](x, onp.inf), float(limits.max) if posinf is None else posinf),
        (FUNCTIONS["equal"](x, -onp.inf), float(limits.min) if neginf is None else neginf),
    ):
        result = where(as_type(test, dtype_of(x)), zero + value, result)
    return result if copy or isinstance(x, Symbol) else fill(x, result)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    **{name: _binary(name, FAMILIES[family]) for name, family in BINARY.items()},
    **{name: _unary(name, op, False) for name, op in UNARY.items()},
    **{name: _unary(name, op, True) for name, op in TRUTH.items()},
    **{name: _without_gradient(name, means) for name, means in WITHOUT_GRADIENT.items()},
    "bitwise_not": _unary("bitwise_not", "_bitwise_not", False),
    "invert": _unary("invert", "_bitwise_not", False),
    "clip": clip, "around": around, "round": around, "round_": around,
    "isposinf": _is_infinity("isposinf", onp.inf), "isneginf": _is_infinity("isneginf", -onp.inf),
    "nan_to_num": nan_to_num,
}  # fmt: skip

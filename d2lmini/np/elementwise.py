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
from d2lmini.np.binding import functions_of
from d2lmini.np.values import (
    as_float,
    as_type,
    beside,
    check_array,
    constant,
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


def _check_options(name: str, options: dict[str, Any]) -> None:
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

#: NumPy's ufuncs of two operands that no family has; they have no gradient.
BY_UFUNC = {
    "bitwise_and": "Bitwise and of integers or bool", "bitwise_or": "Bitwise or of the same",
    "bitwise_xor": "Bitwise xor of the same", "fmod": "x1 - trunc(x1 / x2) * x2",
    "floor_divide": "The largest integer not above x1 / x2",
}  # fmt: skip


def _function_of_two(name: str, family: Family | None) -> Callable[..., Any]:
    """The function by the ops of its family; without one by the ufunc, which takes two arrays."""
    truth = family is not None and family.truth
    floats = family is not None and family.name in FLOAT_FAMILIES
    pair_op, scalar_op, pair_attrs = registry["_by_ufunc"], None, {"how": name}
    if family:
        pair_op, scalar_op, reflected_op = family.broadcast, family.scalar, family.reflected
        pair_attrs = dict(pair_op.defaults)
    simple = scalar_op is not None and not truth

    def function(x1: Any, x2: Any, out: Any = None, **options: Any) -> Any:
        if options:
            _check_options(name, options)
        left, right = isinstance(x1, Value), isinstance(x2, Value)
        plain = type(x2) in (int, float) and simple and out is None and left and x1.is_np
        if plain and x1._spec.dtype.kind == "f":  # the most frequent call
            return x1._apply(scalar_op, (x1,), {"scalar": x2})
        op, attrs = pair_op, pair_attrs
        if left and right:
            inputs = promote(name, check_array(name, x1), check_array(name, x2))
        elif (left or right) and is_number(x2 if left else x1):
            x, number = (x1, x2) if left else (x2, x1)
            check_array(name, x)
            if truth:
                x, number = _as_comparable(x, number, name.startswith("logical"))
            else:
                x, number = beside(x, number)
            if scalar_op:
                op, attrs, inputs = (scalar_op if left else reflected_op), {"scalar": number}, [x]
            else:
                inputs = [x, constant(number, x)][:: 1 if left else -1]
        elif is_number(x1) and is_number(x2):
            return fill(out, getattr(onp, name)(x1, x2))
        else:
            return check_array(name, x2 if left or is_number(x1) else x1)
        if floats:
            inputs = [as_float(x) for x in inputs]
        if inputs[0]._spec.dtype.kind == "b" and not truth and not name.startswith("bitwise"):
            return fill(out, _of_bools(name, op, inputs, attrs))
        if out is not None and not truth and out.dtype == inputs[0].dtype:
            return invoke(op, tuple(inputs), attrs, out)
        result = inputs[0]._apply(op, tuple(inputs), attrs)
        return fill(out, as_type(result, bool) if truth else result)

    means = f"{family.means}, element by element" if family else BY_UFUNC[name]
    return named(function, "d2lmini.np", name, f"{means}; shapes broadcast.")


def _as_comparable(x, number, logical):
    """The array in a dtype that has the number: the ops give the number the dtype of the array.
    logical: only whether they are 0 matters."""
    number = number.item() if hasattr(number, "item") else number
    if logical:
        return x, int(bool(number))
    if x.dtype.kind not in "biu":
        return x, number
    if isinstance(number, int):
        for dtype in (x.dtype, onp.dtype("int64")):
            limits = onp.iinfo("uint8" if dtype.kind == "b" else dtype)
            if limits.min <= number <= limits.max:
                return as_type(x, dtype), number
        number = onp.inf if number > 0 else -onp.inf
    return as_type(x, "float64"), number


def _of_bools(name, op, inputs, attrs):
    """Arithmetic of bools, which gives bool: 1 + 1 is True."""
    if name == "subtract":
        raise MXNetError("np.subtract of bool arrays has no meaning; use np.not_equal or astype")
    inputs = [as_type(x, "uint8") for x in inputs]
    return as_type(op(*inputs, **attrs), bool)


# -- one operand -----------------------------------------------------------------------------------

#: Functions that have the name of their op.
SAME_NAME = """
    abs arccos arccosh arcsin arcsinh arctan arctanh cbrt ceil cos cosh degrees exp expm1 fix floor
    log log10 log1p log2 negative radians reciprocal rint sign sin sinh sqrt square tan tanh trunc
""".split()

#: np's name -> the op's.
UNARY = {
    **dict(zip(SAME_NAME, SAME_NAME)),
    "absolute": "abs", "fabs": "abs", "rad2deg": "degrees", "deg2rad": "radians",
    "bitwise_not": "_bitwise_not", "invert": "_bitwise_not",
}  # fmt: skip

#: Ops whose result is a truth value.
TRUTH = {
    "isnan": "_contrib_isnan", "isinf": "_contrib_isinf", "isfinite": "_contrib_isfinite",
    "logical_not": "logical_not",
}  # fmt: skip


def _function_of_one(name: str, op_name: str, truth: bool = False) -> Callable[..., Any]:
    op = registry[op_name]

    def function(x: Any, out: Any = None, **options: Any) -> Any:
        if options:
            _check_options(name, options)
        if is_number(x):
            return fill(out, getattr(onp, name)(x))
        check_array(name, x)
        if (truth or op_name == "negative") and x._spec.dtype.kind == "b":
            x = as_type(x, "uint8" if truth else "int64")
        if out is not None and not truth and out.dtype == x.dtype:
            return op(x, out=out)
        result = x._apply(op, (x,), op.defaults)
        return fill(out, as_type(result, bool) if truth else result)

    return named(function, "d2lmini.np", name, (op.__doc__ or name).splitlines()[0])


def clip(a, a_min, a_max, out=None):
    """Each element limited to [a_min, a_max]; None for no limit. ValueError if both are None."""
    if a_min is None and a_max is None:
        raise ValueError("np.clip: at least one of a_min and a_max must be a number")
    if is_number(a):
        return fill(out, onp.clip(a, a_min, a_max))
    check_array("clip", a)
    low, high = -onp.inf if a_min is None else a_min, onp.inf if a_max is None else a_max
    for end in (a_min, a_max):
        a = a if end is None else beside(a, end)[0]
    return fill(out, registry["clip"](a, a_min=low, a_max=high))


def around(x, decimals=0, out=None):
    """Round to `decimals` places, halves to the even neighbour."""
    if not isinstance(x, Value):
        return onp.round(x, decimals)
    if check_array("around", x).dtype.kind in "iub" and decimals >= 0:
        return fill(out, registry["_copy"](x))
    scale = 10.0**decimals
    return fill(out, registry["rint"](x * scale) / scale if decimals else registry["rint"](x))


def _is_infinity(name: str, infinity: float) -> Callable[..., Any]:
    def function(x: Any, out: Any = None, **options: Any) -> Any:
        x = x if is_number(x) else check_array(name, x)
        return FUNCTIONS["equal"](x, infinity, out, **options)

    return named(function, "d2lmini.np", name, f"True where an element is {infinity:+}.")


def nan_to_num(x, copy=True, nan=0.0, posinf=None, neginf=None):
    """nan replaced by `nan`, infinities by `posinf` and `neginf` (default: the largest floats);
    without `copy` in `x` itself, but a value of a graph stays what it is."""
    if is_number(x):
        return onp.nan_to_num(x, nan=nan, posinf=posinf, neginf=neginf)
    if check_array("nan_to_num", x).dtype.kind != "f":
        return registry["_copy"](x) if copy else x
    limits, zero, result = onp.finfo(x.dtype), registry["zeros_like"](x), x
    for test, value in (
        (registry["_contrib_isnan"](x), nan),
        (x == onp.inf, float(limits.max) if posinf is None else posinf),
        (x == -onp.inf, float(limits.min) if neginf is None else neginf),
    ):
        result = registry["where"](as_type(test, x.dtype), zero + value, result)
    return result if copy or isinstance(x, Symbol) else fill(x, result)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    **{name: _function_of_two(name, FAMILIES[family]) for name, family in BINARY.items()},
    **{name: _function_of_two(name, None) for name in BY_UFUNC},
    **{name: _function_of_one(name, op) for name, op in UNARY.items()},
    **{name: _function_of_one(name, op, truth=True) for name, op in TRUTH.items()},
    **functions_of(globals()),
    "isposinf": _is_infinity("isposinf", onp.inf), "isneginf": _is_infinity("isneginf", -onp.inf),
}  # fmt: skip
FUNCTIONS["round"] = FUNCTIONS["round_"] = FUNCTIONS["around"]

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
from d2lmini.base.dtypes import is_float
from d2lmini.np.values import (
    as_type,
    beside,
    check_array,
    constant,
    fill,
    functions_of,
    is_array,
    is_number,
    promote,
)
from d2lmini.ops.core import Value, invoke, registry
from d2lmini.ops.elementwise import FAMILIES, Family
from d2lmini.ops.fluent import function_of
from d2lmini.ops.signature import named

# -- two operands ----------------------------------------------------------------------------------

#: np's name -> the family: families have the names of NumPy's ufuncs.
BINARY = {family.ufunc: family for family in FAMILIES.values() if family.ufunc}
BINARY |= {"true_divide": FAMILIES["div"], "mod": FAMILIES["mod"], "remainder": FAMILIES["mod"]}

#: Families whose result is a float also for integers.
FLOAT_FAMILIES = ("div", "hypot", "arctan2")

#: NumPy's ufuncs of two operands that no family has; they have no gradient.
BY_UFUNC = {
    "bitwise_and": "Bitwise and of integers or bool", "bitwise_or": "Bitwise or of the same",
    "bitwise_xor": "Bitwise xor of the same", "fmod": "x1 - trunc(x1 / x2) * x2",
    "floor_divide": "The largest integer not above x1 / x2",
}  # fmt: skip


def _function_of_two(name: str, family: Family | None) -> Callable[..., Any]:
    """The function of a family, or else of a ufunc, on operands of one dtype."""
    compute = function_of(name, family) if family else _by_ufunc(name)
    truth = family is not None and family.truth
    floats = family is not None and family.name in FLOAT_FAMILIES
    quick = None if family is None or truth else family.scalar

    def with_number(x: Any, number: Any) -> Any:
        if not is_number(number):
            check_array(name, number)
        check_array(name, x)
        return _comparable(x, number, name.startswith("logical")) if truth else beside(x, number)

    def function(x1: Any, x2: Any, out: Any = None) -> Any:
        plain = type(x2) in (int, float) and quick and out is None and isinstance(x1, Value)
        if plain and x1.is_np and x1._spec.dtype.kind == "f":  # the most frequent call
            return x1._apply(quick, (x1,), {"scalar": x2})
        if isinstance(x1, Value) and isinstance(x2, Value):
            check_array(name, x1), check_array(name, x2)
            if x1._spec.dtype is not x2._spec.dtype:  # type: ignore[attr-defined]
                x1, x2 = promote(name, x1, x2)
        elif isinstance(x1, Value):
            x1, x2 = with_number(x1, x2)
        elif isinstance(x2, Value):
            x2, x1 = with_number(x2, x1)
        elif is_number(x1) and is_number(x2):
            return fill(out, getattr(onp, name)(x1, x2))
        else:
            return check_array(name, x2 if is_number(x1) else x1)
        dtype = (x1 if isinstance(x1, Value) else x2)._spec.dtype  # type: ignore[union-attr]
        # Arithmetic of bools gives bool: 1 + 1 is True.
        bools = dtype.kind == "b" and not (truth or floats or name.startswith("bitwise"))
        if bools:
            _check_bools(name)
        wide = "uint8" if bools else "float32" if floats and not is_float(dtype) else dtype
        if wide is not dtype:
            x1, x2 = [as_type(x, wide) if isinstance(x, Value) else x for x in (x1, x2)]
        if truth or bools:
            return fill(out, as_type(compute(x1, x2), bool))
        if out is not None and out.dtype == wide:
            return compute(x1, x2, out)
        return fill(out, compute(x1, x2))

    means = f"{family.means}, element by element" if family else BY_UFUNC[name]
    return named(function, "d2lmini.np", name, f"{means}; shapes broadcast.")


def _check_bools(name: str) -> None:
    """MXNetError for arithmetic of bools that has no meaning."""
    if name == "subtract":
        raise MXNetError("np.subtract of bool arrays has no meaning; use np.not_equal, astype")


def _by_ufunc(name: str) -> Callable[..., Any]:
    def compute(x1: Any, x2: Any, out: Any = None) -> Any:
        inputs = [x if is_array(x) else constant(x, y) for x, y in ((x1, x2), (x2, x1))]
        return invoke(registry["_by_ufunc"], tuple(inputs), {"how": name}, out)

    return compute


def _comparable(x, number, logical):
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

    def function(x: Any, out: Any = None) -> Any:
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


FUNCTIONS: dict[str, Callable[..., Any]] = {
    **{name: _function_of_two(name, family) for name, family in BINARY.items()},
    **{name: _function_of_two(name, None) for name in BY_UFUNC},
    **{name: _function_of_one(name, op) for name, op in UNARY.items()},
    **{name: _function_of_one(name, op, truth=True) for name, op in TRUTH.items()},
    **functions_of(globals()),
}  # fmt: skip
FUNCTIONS["round"] = FUNCTIONS["round_"] = FUNCTIONS["around"]

"""The functions on two arrays, an array and a number, or two numbers: `nd.add`, `nd.maximum`, ...

>>> from d2lmini import nd
>>> nd.maximum(0, nd.array([-1, 2]))
<BLANKLINE>
[0. 2.]
<NDArray 2 @cpu(0)>
>>> nd.power(2, 10)
1024

They choose among ops: on two arrays the broadcasting one of `pairs.py` or `compare.py`, beside a
number the one of `scalars.py`, mirrored if the number stands on the left. The operators `x + y`,
`2 - x`, `x > 0` are the same choice (`fluent.py`).
"""

from __future__ import annotations

import math
import numbers
import operator
from collections.abc import Callable
from typing import Any

from d2lmini.ops import compare, pairs, scalars  # noqa: F401  (they declare the ops chosen here)
from d2lmini.ops.core import Value, invoke, registry

NUMBERS = (int, float, numbers.Number)


def _function(
    name: str, pair: str, beside: str, mirrored: str, plain: Callable[[Any, Any], Any], means: str
) -> Callable[..., Any]:
    pair_op, beside_op, mirrored_op = registry[pair], registry[beside], registry[mirrored]

    def function(lhs: Any, rhs: Any, out: Any = None) -> Any:
        if isinstance(lhs, Value):
            if isinstance(rhs, Value):
                return invoke(pair_op, (lhs, rhs), pair_op.defaults, out)
            if isinstance(rhs, NUMBERS):
                return invoke(beside_op, (lhs,), {"scalar": rhs}, out)
        elif isinstance(lhs, NUMBERS):
            if isinstance(rhs, Value):
                return invoke(mirrored_op, (rhs,), {"scalar": lhs}, out)
            if isinstance(rhs, NUMBERS):
                return plain(lhs, rhs)
        raise TypeError(
            f"{name}: expected arrays or numbers, got {type(lhs).__name__} and "
            f"{type(rhs).__name__}; make an array with nd.array(...)"
        )

    function.__name__ = function.__qualname__ = name
    function.__doc__ = (
        f"{means}, element by element; shapes broadcast.\n\n"
        "    Each side is an array or a number; the number takes the array's dtype. Two numbers\n"
        f"    give a number. See `{pair}` and `{beside}`."
    )
    return function


def _truth(function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], float]:
    return lambda lhs, rhs: float(function(lhs, rhs))


# name: (op on two arrays, array and number, number and array, two numbers, meaning)
_TABLE: dict[str, tuple[str, str, str, Callable[[Any, Any], Any], str]] = {
    "add": ("broadcast_add", "_plus_scalar", "_plus_scalar", operator.add, "lhs + rhs"),
    "subtract": (
        "broadcast_sub", "_minus_scalar", "_rminus_scalar", operator.sub, "lhs - rhs"),
    "multiply": ("broadcast_mul", "_mul_scalar", "_mul_scalar", operator.mul, "lhs * rhs"),
    "divide": ("broadcast_div", "_div_scalar", "_rdiv_scalar", operator.truediv, "lhs / rhs"),
    "true_divide": (
        "broadcast_div", "_div_scalar", "_rdiv_scalar", operator.truediv, "lhs / rhs"),
    "modulo": (
        "broadcast_mod", "_mod_scalar", "_rmod_scalar", operator.mod,
        "The remainder of lhs / rhs, with the sign of rhs"),
    "power": (
        "broadcast_power", "_power_scalar", "_rpower_scalar", operator.pow,
        "lhs to the power of rhs"),
    "maximum": (
        "broadcast_maximum", "_maximum_scalar", "_maximum_scalar", max,
        "The larger of lhs and rhs"),
    "minimum": (
        "broadcast_minimum", "_minimum_scalar", "_minimum_scalar", min,
        "The smaller of lhs and rhs"),
    "hypot": (
        "broadcast_hypot", "_hypot_scalar", "_hypot_scalar", math.hypot,
        "sqrt(lhs**2 + rhs**2)"),
    "arctan2": (
        "broadcast_arctan2", "_arctan2_scalar", "_rarctan2_scalar", math.atan2,
        "The angle of the point with height lhs and width rhs"),
}  # fmt: skip
for _name, _mirrored, _plain, _means in [
    ("equal", "equal", operator.eq, "1 where lhs == rhs, else 0"),
    ("not_equal", "not_equal", operator.ne, "1 where lhs != rhs, else 0"),
    ("greater", "lesser", operator.gt, "1 where lhs > rhs, else 0"),
    ("greater_equal", "lesser_equal", operator.ge, "1 where lhs >= rhs, else 0"),
    ("lesser", "greater", operator.lt, "1 where lhs < rhs, else 0"),
    ("lesser_equal", "greater_equal", operator.le, "1 where lhs <= rhs, else 0"),
    ("logical_and", "logical_and", lambda a, b: bool(a) and bool(b), "1 where both are not 0"),
    ("logical_or", "logical_or", lambda a, b: bool(a) or bool(b), "1 where one is not 0"),
    ("logical_xor", "logical_xor", lambda a, b: bool(a) != bool(b), "1 where just one is not 0"),
]:
    _TABLE[_name] = (
        f"broadcast_{_name}", f"_{_name}_scalar", f"_{_mirrored}_scalar", _truth(_plain), _means,
    )  # fmt: skip

#: The names that `nd` (and `sym`) take over from here.
FUNCTIONS = (*_TABLE, "pow")

globals().update({_name: _function(_name, *_row) for _name, _row in _TABLE.items()})
pow = globals()["power"]

"""Functions of two operands: arithmetic, comparisons and logic, one row each.

>>> from d2lmini import nd
>>> column, row = nd.array([[1], [2]]), nd.array([10, 20, 30])
>>> column * row                           # broadcast_mul
<BLANKLINE>
[[10. 20. 30.]
 [20. 40. 60.]]
<NDArray 2x3 @cpu(0)>
>>> nd.array([1, 2, 3]) ** 2 - 0.5         # _power_scalar, _minus_scalar
<BLANKLINE>
[0.5 3.5 8.5]
<NDArray 3 @cpu(0)>
>>> nd.array([1, 2, 3], dtype="int32") * 1.5       # the number takes the array's dtype: 1
<BLANKLINE>
[1 2 3]
<NDArray 3 @cpu(0)>
>>> nd.array([0, 1, 2, 3]) > 1
<BLANKLINE>
[0. 0. 1. 1.]
<NDArray 4 @cpu(0)>

`elementwise.py` explains the fields of a row and the ops that it declares.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from d2lmini.base import MXNetError
from d2lmini.base.dtypes import is_float
from d2lmini.ops.checks import check_float, refuse_gradient
from d2lmini.ops.chunking import place
from d2lmini.ops.core import ALL, Number, Spec, op, registry
from d2lmini.ops.elementwise import Family, broadcast_any, equal_any, unbroadcast
from d2lmini.ops.scalar_cache import maximum_scalar, minimum_scalar, scalars

# -- arithmetic ------------------------------------------------------------------------------------

add = Family(
    "add", "add", "lhs + rhs",
    broadcast="broadcast_add broadcast_plus", equal="elemwise_add _add _plus _Plus _grad_add",
    scalar="_plus_scalar _PlusScalar",
    operator="+ add", commutative=True, identity=-0.0,  # -0.0 + 0.0 is 0.0
    onnx="Add", gradients=(lambda g: g, lambda g: g),
)  # fmt: skip

sub = Family(
    "sub", "subtract", "lhs - rhs",
    broadcast="broadcast_sub broadcast_minus", equal="elemwise_sub _sub _minus _Minus",
    scalar="_minus_scalar _MinusScalar", reflected="_rminus_scalar _RMinusScalar",
    operator="- sub", functions="subtract", identity=0.0, onnx="Sub",
    gradients=(lambda g: g, lambda g: -g),
)  # fmt: skip

mul = Family(
    "mul", "multiply", "lhs * rhs",
    equal="elemwise_mul _mul _Mul", operator="* mul", functions="multiply",
    commutative=True, identity=1, onnx="Mul",
    gradients=(lambda g, rhs: g * rhs, lambda g, lhs: g * lhs),
)  # fmt: skip


def _divide_integers(xp: Any, lhs: Any, rhs: Any, out: Any) -> Any:
    if xp is np or lhs.dtype.itemsize < 8:
        return xp.floor_divide(lhs - xp.fmod(lhs, rhs), rhs, out=out)
    # CuPy's fmod of integers converts to float64.
    below = xp.floor_divide(lhs, rhs)
    is_broken = (below * rhs != lhs) & xp.not_equal(rhs, 0)
    is_broken &= xp.less(lhs, 0) != xp.less(rhs, 0)
    return xp.add(below, is_broken, out=out)


div = Family(
    "div", "divide", "lhs / rhs",
    "; integers are cut towards zero, and an integer divided by 0 is 0.\n\n"
    "    (MXNet's process dies of the latter.)",
    equal="elemwise_div _div _Div", reflected="_rdiv_scalar _RDivScalar",
    operator="/ truediv", functions="divide true_divide",
    identity=1, onnx="Div", integers=_divide_integers,
)  # fmt: skip


@div.equal.gradient(saves="y lhs.shape rhs")
@div.broadcast.gradient(saves="y lhs.shape rhs")
def _(g, y, lhs_shape, rhs, *, needs=ALL):
    g_lhs = g / rhs
    g_rhs = -(g_lhs * y) if needs[1] else None
    return unbroadcast(g_lhs if needs[0] else None, g_rhs, lhs_shape, rhs.shape)


div.scalar.gradient()(lambda g, *, scalar: g / scalar)
div.reflected.gradient("y data")(lambda g, y, data: -(g * y / data))


def _remainder(xp, lhs, rhs, *, out=None):
    if lhs.dtype.kind != "f":
        return xp.mod(lhs, rhs, out=out)
    by_zero = rhs == 0  # before writing `out`, which may be rhs itself
    # Not xp.mod: of infinities CuPy's is nan, and the signs of NumPy's zeros are not MXNet's.
    y = xp.fmod(lhs, rhs)
    shift = xp.where(xp.less(lhs, 0) != xp.less(rhs, 0), xp.where(y != 0, rhs, 0), -0.0)
    y = xp.asarray(xp.add(y, shift, out=out))
    xp.copyto(y, 0, where=by_zero)
    return y


mod = Family(
    "mod", "", "lhs - floor(lhs / rhs) * rhs: the remainder, with the sign of rhs",
    "; 0 where rhs is 0.",
    reflected="_rmod_scalar _RModScalar", operator="% mod", functions="modulo",
    flops=40, compute=_remainder,
    gradients=(lambda g: g, lambda g, lhs, rhs: -(g * registry["floor"](lhs / rhs))),
)  # fmt: skip


def _power_of_integers(xp: Any, lhs: Any, rhs: Any, out: Any, dtype: Any = None) -> Any:
    # 1 and -1 are the only integers whose inverse is not truncated to 0; -1 keeps its sign if rhs
    # is odd. (Either operand may be a number; ufuncs return arrays for numbers, operators do not.)
    inverse = xp.where(xp.equal(xp.abs(lhs), 1), xp.power(lhs, rhs & 1), 0)
    y = xp.where(xp.less(rhs, 0), inverse, xp.power(lhs, xp.maximum(rhs, 0)))
    return place(xp, y, dtype or xp.promote_types(lhs.dtype, rhs.dtype), out)


def _power_beside(xp, data, *, scalar: Number, out=None):
    """Integer powers of floats use abs(data): NumPy takes fifty times longer for negative bases,
    mostly to find out that the exponent is an integer. 0.5 is sqrt."""
    if data.dtype.kind != "f":  # the exponent keeps its sign beside unsigned integers
        wide = np.dtype("int64")
        dtype = wide if data.dtype.kind == "b" else data.dtype
        return _power_of_integers(xp, data, scalars[xp][wide][scalar], out, dtype)
    number = scalars[xp][data.dtype][scalar]
    if scalar == 2:
        return xp.square(data, out=out)
    if scalar == 0.5:
        return xp.sqrt(data, out=out)
    if not float(scalar).is_integer():
        return xp.power(data, number, out=out)
    is_far = abs(scalar) > 2 / float(np.finfo(data.dtype).eps)
    if scalar % 2 == 0 or is_far:  # even, as all far numbers
        return xp.power(xp.abs(data), number, out=out)
    return xp.copysign(xp.power(xp.abs(data), number), data, out=out)


power = Family(
    "power", "power", "lhs to the power of rhs",
    "; nan for a negative float to a broken power.\n\n    Integers to a negative power are cut "
    "towards zero, as in 2 ** -1 = 0; 0 ** -1 is 0 too.",
    reflected="_rpower_scalar _RPowerScalar", operator="** pow", functions="power pow",
    flops=20, identity=1, onnx="Pow",
    integers=_power_of_integers, beside=_power_beside,
    gradients=(lambda g, lhs, rhs: g * (rhs * lhs ** (rhs - 1)),
               lambda g, y, lhs: g * (y * registry["log"](lhs))),
)  # fmt: skip


@power.scalar.gradient(saves="data")
def _(g, data, *, scalar):
    if scalar == 0:
        return registry["zeros_like"](data)
    if scalar == 1:
        return g
    return g * (data * 2 if scalar == 2 else data ** (scalar - 1) * scalar)


@power.reflected.gradient(saves="y")
def _(g, y, *, scalar):
    return g * (y * (math.log(scalar) if scalar > 0 else -math.inf if scalar == 0 else math.nan))


def _maximum_beside(xp, data, *, scalar: Number, out=None):
    return maximum_scalar(xp, data, scalar, out)  # of 0.0 and -0.0 it is the number


maximum = Family(
    "maximum", "maximum", "The larger of lhs and rhs",
    "; nan if one of them is. At ties the gradient goes to lhs.",
    of_numbers=max, onnx="Max", numbers="clamped_scalars", beside=_maximum_beside,
    gradients=(lambda g, lhs, rhs: g * (lhs >= rhs), lambda g, lhs, rhs: g * (lhs < rhs)),
)  # fmt: skip


def _minimum_beside(xp, data, *, scalar: Number, out=None):
    return minimum_scalar(xp, data, scalar, out)


minimum = Family(
    "minimum", "minimum", "The smaller of lhs and rhs",
    "; nan if one of them is. At ties the gradient goes to lhs.",
    of_numbers=min, onnx="Min", numbers="clamped_scalars", beside=_minimum_beside,
    gradients=(lambda g, lhs, rhs: g * (lhs <= rhs), lambda g, lhs, rhs: g * (lhs > rhs)),
)  # fmt: skip


def _hypot_of_integers(xp: Any, lhs: Any, rhs: Any, out: Any) -> Any:
    y = xp.hypot(lhs.astype(xp.float64), rhs.astype(xp.float64))
    return place(xp, y, rhs.dtype, out)


hypot = Family(
    "hypot", "hypot", "sqrt(lhs**2 + rhs**2)", ", without overflow in between; integers are cut.",
    of_numbers=math.hypot, flops=20, commutative=True, integers=_hypot_of_integers,
    # Not g / y * lhs: 1 / y overflows where y is denormal.
    gradients=(lambda g, y, lhs: g * (lhs / y), lambda g, y, lhs, rhs: g * (rhs / y)),
)  # fmt: skip

Family(
    "arctan2", "arctan2",
    "The angle, in (-pi, pi], of the point with height lhs and width rhs", "; floats only.",
    equal="_arctan2", scalar="_arctan2_scalar", reflected="_rarctan2_scalar",
    of_numbers=math.atan2, flops=20, mxnet=False, check=check_float,
    gradients=(lambda g, lhs, rhs: g / (lhs * lhs + rhs * rhs) * rhs,
               lambda g, lhs, rhs: -(g / (lhs * lhs + rhs * rhs) * lhs)),
)  # fmt: skip

# -- comparisons and logic -------------------------------------------------------------------------
#
# As in MXNet the result is 0 or 1 in the dtype of the inputs, so that programs can average it or
# use it as a factor. A comparison with nan is 0 (`!=`: 1); in logic everything but 0 is true.
#
# As in MXNet a number is first cast to the array's dtype: an int32 array is equal to 1.5 where it
# is 1, and nothing in a uint8 array is above -1, which is 255. A bool array gives int64.
#
# None of these ops has a gradient: it is 0 wherever it exists.


def _truth(name: str, means: str, ufunc: str = "", **facts: Any) -> None:
    of_numbers = getattr(np, ufunc or name)
    Family(
        name, ufunc or name, f"1 where {means}, else 0", ", in the inputs' dtype.", truth=True,
        check=None, of_numbers=lambda lhs, rhs: int(of_numbers(lhs, rhs)), **facts,
    )  # fmt: skip


_truth("equal", "lhs == rhs", operator="== eq", onnx="Equal")
_truth("not_equal", "lhs != rhs", operator="!= ne")
_truth("greater", "lhs > rhs", operator="> gt", mirror="lesser", onnx="Greater")
_truth("greater_equal", "lhs >= rhs", operator=">= ge", mirror="lesser_equal",
       onnx="GreaterOrEqual")  # fmt: skip
_truth("lesser", "lhs < rhs", "less", operator="< lt", mirror="greater", onnx="Less")
_truth("lesser_equal", "lhs <= rhs", "less_equal", operator="<= le", mirror="greater_equal",
       onnx="LessOrEqual")  # fmt: skip
_truth("logical_and", "lhs and rhs are both not 0", onnx="And")
_truth("logical_or", "lhs or rhs or both are not 0", onnx="Or")
_truth("logical_xor", "just one of lhs and rhs is not 0", onnx="Xor")


@refuse_gradient
@op("_contrib_allclose", infer=lambda a, b, **_: Spec(equal_any(a, b).shape[:0], "uint8"),
    flops=lambda a, b, **_: 4 * a.size)  # fmt: skip
def allclose(xp, a, b, *, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = True):
    """1 if abs(a - b) <= atol + rtol * abs(b) everywhere, else 0; shape (), uint8."""
    return xp.asarray(xp.allclose(a, b, rtol, atol, equal_nan)).astype(xp.uint8)


# -- for `np`: operators on bits, // and fmod ------------------------------------------------------


def integers_only(data: Spec) -> Spec:
    """The output's spec is the input's, which must not be of floats."""
    if is_float(data.dtype):
        raise MXNetError(f"needs integers or bool, got {data.dtype}; convert with astype('int32')")
    return data


def _infer_ufunc(lhs: Spec, rhs: Spec, *, how: str) -> Spec:
    if how.startswith("bitwise"):
        integers_only(lhs)
    return broadcast_any(lhs, rhs)


@op("_by_ufunc", infer=_infer_ufunc, grad=None)
def by_ufunc(xp, lhs, rhs, *, how: str):
    """The ufunc `how` of lhs and rhs, of one dtype, which the result has too; shapes broadcast."""
    return getattr(xp, how)(lhs, rhs)


@op("_bitwise_not", infer=integers_only, grad=None)
def bitwise_not(xp, data):
    """Every bit inverted: -x - 1 of integers, "not" of bool."""
    return xp.invert(data)

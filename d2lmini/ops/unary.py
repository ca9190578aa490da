"""Functions of one array, one row each: powers, exponentials, trigonometry, signs, rounding.

>>> from d2lmini import nd
>>> nd.sqrt(nd.array([1, 4, 9]))
<BLANKLINE>
[1. 2. 3.]
<NDArray 3 @cpu(0)>
>>> nd.sqrt(nd.array([1, 4, 10], dtype="int32"))       # integers stay integers, as in MXNet
<BLANKLINE>
[1 2 3]
<NDArray 3 @cpu(0)>
>>> x = nd.array([-2.5, -0.5, 0.5, 2.5])
>>> nd.round(x), nd.rint(x)                 # halves: away from zero, and down
(
[-3. -1.  1.  3.]
<NDArray 4 @cpu(0)>,
[-3. -1.  0.  2.]
<NDArray 4 @cpu(0)>)

All ops keep the dtype. Outside its domain a function gives nan or inf and no error. Only the
predicates at the end accept bool arrays.

A gradient is the derivative, written in ops on values: a function of `g` and of the kept values. It
uses only the result `y` where that is shorter than the formula in the input.

`activation.py` has tanh, relu, other activations and clip; `special.py` has erf and gamma.
"""

from __future__ import annotations

from collections.abc import Callable
from math import log as ln
from math import pi
from typing import Any

import numpy as np

from d2lmini.ops.checks import check_numbers
from d2lmini.ops.core import Op, Spec, op, registry
from d2lmini.ops.elementwise import Gradient, names_of
from d2lmini.ops.identity import cast_into, copy_values
from d2lmini.ops.scalar_cache import fit


def numbers_only(data: Spec, **_attrs: Any) -> Spec:
    """The output's spec is the input's, which must not be bool."""
    check_numbers(data)
    return data


def widely(xp: Any, function: Callable, data: Any, out: Any) -> Any:
    """Apply a function for float32 and float64 arrays to any array, in a wider dtype if necessary.

    float16 is converted to float32, integers to float64; the result is cast back (integers are
    truncated towards zero).
    """
    dtype = data.dtype
    if dtype.char in "fd":
        return function(xp, data, out=out)
    wide = data.astype(np.float32 if dtype.char == "e" else np.float64)
    return cast_into(xp, function(xp, wide, out=None), dtype, out)


def pointwise(
    name: str = "", gradient: Gradient | None = None, *, integers: str = "converted",
    infer: Callable[..., Spec] = numbers_only, **facts: Any,
) -> Callable[[Callable], Op]:  # fmt: skip
    """Declare an op of one array, given as a function (xp, data, *, out=None).

    gradient  of `g` and of those of `y` and `data` that it names; None: no gradient
    integers  "converted": the function is for float32 and float64 arrays, see `widely`;
              "exact": it takes arrays of any numbers; "kept": integers do not change
    facts     flops, onnx, ...: as for `Op`

    The function must read all of `data` before it writes to `out`: they may be the same array.
    """

    def declare(function: Callable) -> Op:
        def by_floats(xp, data, *, out=None):
            if data.dtype.char in "fd":
                return function(xp, data, out=out)
            return widely(xp, function, data, out)

        def floats_only(xp, data, *, out=None):
            if data.dtype.kind == "f":
                return function(xp, data, out=out)
            return copy_values(xp, data, out)

        compute = {"converted": by_floats, "exact": function, "kept": floats_only}[integers]
        compute.__doc__ = function.__doc__
        more = {"integers": integers, **facts, **({"grad": None} if gradient is None else {})}
        declared: Op = op(name or function.__name__, infer=infer, elementwise=True, **more)(compute)
        if gradient is not None:
            declared.gradient(" ".join(names_of(gradient)))(gradient)
        return declared

    return declare


def unary(
    name: str, means: str, gradient: Gradient | None, flops: float = 1, onnx: str | None = None,
    *, ufunc: str = "", integers: str = "converted", fast: bool = False,
) -> Op:  # fmt: skip
    """Declare an op that is one ufunc, by default the ufunc of the same name.

    fast: tiny arrays may use the ufunc directly (`Op.ufunc`).
    """
    ufunc = ufunc or name

    def compute(xp, data, *, out=None):
        return getattr(xp, ufunc)(data, out=out)

    compute.__doc__ = means
    declared = pointwise(name, gradient, integers=integers, flops=flops, onnx=onnx)(compute)
    if fast:
        declared.ufunc = getattr(np, ufunc)
    return declared


# -- powers and roots ----------------------------------------------------------------------------

square = unary("square", "data * data.", lambda g, data: g * 2 * data, integers="exact", fast=True)
sqrt = unary(
    "sqrt", "The square root; nan below 0.", lambda g, y: g / (y * 2), onnx="Sqrt", fast=True
)
cbrt = unary("cbrt", "The cube root, also of negative numbers.", lambda g, y: g / (y * y * 3), 10)


@pointwise("rsqrt", lambda g, y: g * (y * y * y * -0.5), flops=2)
def rsqrt(xp, data, *, out=None):
    """1 / sqrt(data); inf at 0, nan below."""
    root = xp.sqrt(data, out=out)
    return xp.divide(fit[xp][data.dtype][1], root, out=out)


@pointwise("rcbrt", lambda g, y, data: g * (y / data) * (-1 / 3), flops=11)
def rcbrt(xp, data, *, out=None):
    """1 / cbrt(data)."""
    root = xp.cbrt(data, out=out)
    return xp.divide(fit[xp][data.dtype][1], root, out=out)


@pointwise("reciprocal", lambda g, y: -(g * (y * y)), onnx="Reciprocal")
def reciprocal(xp, data, *, out=None):
    """1 / data."""
    return xp.divide(fit[xp][data.dtype][1], data, out=out)


# -- exponentials and logarithms -----------------------------------------------------------------

exp = unary("exp", "e to the power of data.", lambda g, y: g * y, 10, "Exp", fast=True)
expm1 = unary("expm1", "exp(data) - 1, with all digits also near 0.", lambda g, y: g * (y + 1), 12)
log = unary(
    "log", "The natural logarithm; -inf at 0, nan below.", lambda g, data: g / data, 10, "Log",
    fast=True,
)  # fmt: skip
log2 = unary("log2", "The logarithm to base 2.", lambda g, data: g / (data * ln(2)), 10)
log10 = unary("log10", "The logarithm to base 10.", lambda g, data: g / (data * ln(10)), 10)
log1p = unary(
    "log1p", "log(1 + data), with all digits also near 0.", lambda g, data: g / (data + 1), 12
)

# -- trigonometry --------------------------------------------------------------------------------

sin = unary(
    "sin", "The sine of an angle in radians.", lambda g, data: g * data.cos(), 15, "Sin", fast=True
)
cos = unary(
    "cos", "The cosine of an angle in radians.", lambda g, data: -(g * data.sin()), 15, "Cos",
    fast=True,
)  # fmt: skip
tan = unary("tan", "The tangent of an angle in radians.", lambda g, y: g * (y * y + 1), 20, "Tan")
arcsin = unary(
    "arcsin", "The angle, in [-pi/2, pi/2], whose sine is data; nan outside [-1, 1].",
    lambda g, data: g / (1 - data * data).sqrt(), 15, "Asin",
)  # fmt: skip
arccos = unary(
    "arccos", "The angle, in [0, pi], whose cosine is data; nan outside [-1, 1].",
    lambda g, data: -(g / (1 - data * data).sqrt()), 15, "Acos",
)  # fmt: skip
arctan = unary(
    "arctan", "The angle, in [-pi/2, pi/2], whose tangent is data.",
    lambda g, data: g / (data * data + 1), 15, "Atan",
)  # fmt: skip
degrees = unary(
    "degrees", "An angle in radians as degrees: data * 180 / pi.", lambda g: g * (180 / pi)
)
radians = unary(
    "radians", "An angle in degrees as radians: data * pi / 180.", lambda g: g * (pi / 180)
)

# -- hyperbolic functions ------------------------------------------------------------------------

sinh = unary("sinh", "(exp(data) - exp(-data)) / 2.", lambda g, data: g * data.cosh(), 20, "Sinh")
cosh = unary("cosh", "(exp(data) + exp(-data)) / 2.", lambda g, data: g * data.sinh(), 20, "Cosh")
arcsinh = unary(
    "arcsinh", "The number whose sinh is data.",
    lambda g, data: g / (data * data + 1).sqrt(), 20, "Asinh",
)  # fmt: skip
arccosh = unary(
    "arccosh", "The number, at least 0, whose cosh is data; nan below 1.",
    lambda g, data: g / (data * data - 1).sqrt(), 20, "Acosh",
)  # fmt: skip
arctanh = unary(
    "arctanh", "The number whose tanh is data; nan outside [-1, 1].",
    lambda g, data: g / (1 - data * data), 20, "Atanh",
)  # fmt: skip


# -- signs ---------------------------------------------------------------------------------------

abs_ = unary(
    "abs", "The absolute value.", lambda g, data: g * sign(data), onnx="Abs",
    ufunc="absolute", integers="exact", fast=True,
)  # fmt: skip
sign: Op = unary(
    "sign", "-1 below 0, 0 at 0, 1 above; nan stays nan (MXNet: 0).", None, onnx="Sign",
    integers="exact",
)  # fmt: skip
negative = unary(
    "negative", "-data; unsigned integers wrap around.", lambda g: -g, onnx="Neg",
    integers="exact", fast=True,
)  # fmt: skip

# -- rounding ------------------------------------------------------------------------------------

floor = unary(
    "floor", "The largest whole number not above data.", None, onnx="Floor", integers="kept"
)
ceil = unary(
    "ceil", "The smallest whole number not below data.", None, onnx="Ceil", integers="kept"
)
trunc = unary("trunc", "The whole part: rounds towards zero.", None, integers="kept")
fix = unary(
    "fix", "The whole part: rounds towards zero, as `trunc`.", None, ufunc="trunc", integers="kept"
)


def round_values(xp: Any, data: Any, *, out: Any = None) -> Any:
    """The nearest whole number; halves go away from zero (2.5 to 3, -2.5 to -3)."""
    # Not 0.5 itself: 0.49999997 + 0.5 is 1 in float32. The next number below 0.5 avoids this, and
    # where its sum with a half is inexact, the sum rounds up.
    almost_half = np.nextafter(data.dtype.type(0.5), data.dtype.type(0))
    y = xp.copysign(almost_half, data)
    y = xp.add(data, y, out=out)
    return xp.trunc(y, out=out)


round_ = pointwise("round", integers="kept")(round_values)


@pointwise("rint", integers="kept")
def rint(xp, data, *, out=None):
    """The nearest whole number; halves go down (2.5 to 2, -2.5 to -3), as in MXNet."""
    y = xp.floor(data)
    return xp.add(y, data - y > 0.5, out=out)


# -- straight-through estimators: rounded forward, a copy backward -------------------------------

round_ste = pointwise("_contrib_round_ste", lambda g: g, integers="kept")(round_values)
sign_ste = unary(
    "_contrib_sign_ste", "`sign`, with a gradient of 1 everywhere.", lambda g: g, ufunc="sign",
    integers="exact",
)  # fmt: skip

# -- predicates ----------------------------------------------------------------------------------


def question(name: str, means: str, answer: Callable[..., Any], **facts: Any) -> Op:
    """Declare a predicate: its result is 0 or 1 in the dtype of the input, which may be bool."""

    def compute(xp, data, *, out=None):
        y = answer(xp, data, out)
        return y if out is not None else y.astype(data.dtype, copy=False)

    compute.__doc__ = f"1 where data is {means}, else 0, in data's dtype."
    declared: Op = op(name, elementwise=True, grad=None, **facts)(compute)
    return declared


question("logical_not", "0", lambda xp, data, out: xp.equal(data, 0, out=out))
isnan = question(
    "_contrib_isnan", "nan", lambda xp, data, out: xp.isnan(data, out=out), in_mxnet=False
)
isinf = question(
    "_contrib_isinf", "inf or -inf", lambda xp, data, out: xp.isinf(data, out=out), in_mxnet=False
)
isfinite = question(
    "_contrib_isfinite", "neither nan nor inf nor -inf",
    lambda xp, data, out: xp.isfinite(data, out=out), in_mxnet=False,
)  # fmt: skip


@isnan.written_in_mxnet
def _(data):
    return registry["_not_equal"](data, data)


@isinf.written_in_mxnet
def _(data):
    return abs(data) == float("inf")


@isfinite.written_in_mxnet
def _(data):
    nothing = registry["elemwise_sub"](data, data)  # 0, or nan
    return registry["_equal"](nothing, nothing)

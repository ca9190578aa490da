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
            return widely(xp, function, data, out)

        def floats_only(xp, data, *, out=None):
            if data.dtype.kind == "f":
                return function(xp, data, out=out)
            return copy_values(xp, data, out)

        compute = {"converted": by_floats, "exact": function, "kept": floats_only}[integers]
        compute.__doc__ = function.__doc__
        declared: Op = op(name or function.__name__, infer=infer, elementwise=True, grad=None,
                          integers=integers, **facts)(compute)  # fmt: skip
        if gradient is not None:
            declared.gradient(" ".join(names_of(gradient)))(gradient)
        return declared

    return declare


def unary(
    name: str, means: str, gradient: Gradient | None, flops: float = 1, onnx: str | None = None,
    *, ufunc: str = "", integers: str = "converted",
) -> Op:  # fmt: skip
    """Declare an op that is one ufunc, by default the ufunc of the same name."""
    ufunc = ufunc or name

    def compute(xp, data, *, out=None):
        return getattr(xp, ufunc)(data, out=out)

    compute.__doc__ = means
    declared = pointwise(name, gradient, integers=integers, flops=flops, onnx=onnx)(compute)
    declared.ufunc = getattr(np, ufunc)
    return declared


# -- powers and roots ----------------------------------------------------------------------------

unary("square", "data * data.", lambda g, data: g * 2 * data, integers="exact")
unary("sqrt", "The square root; nan below 0.", lambda g, y: g / (y * 2), onnx="Sqrt")
unary("cbrt", "The cube root, also of negative numbers.", lambda g, y: g / (y * y * 3), 10)


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

unary("exp", "e to the power of data.", lambda g, y: g * y, 10, "Exp")
unary("expm1", "exp(data) - 1, with all digits also near 0.", lambda g, y: g * (y + 1), 12)
unary("log", "The natural logarithm; -inf at 0, nan below.", lambda g, data: g / data, 10, "Log")
unary("log2", "The logarithm to base 2.", lambda g, data: g / (data * ln(2)), 10)
unary("log10", "The logarithm to base 10.", lambda g, data: g / (data * ln(10)), 10)
unary("log1p", "log(1 + data), with all digits also near 0.", lambda g, data: g / (data + 1), 12)

# -- trigonometry --------------------------------------------------------------------------------

unary("sin", "The sine of an angle in radians.", lambda g, data: g * data.cos(), 15, "Sin")
unary("cos", "The cosine of an angle in radians.", lambda g, data: -(g * data.sin()), 15, "Cos")
unary("tan", "The tangent of an angle in radians.", lambda g, y: g * (y * y + 1), 20, "Tan")
unary("arcsin", "The angle, in [-pi/2, pi/2], whose sine is data; nan outside [-1, 1].",
      lambda g, data: g / (1 - data * data).sqrt(), 15, "Asin")  # fmt: skip
unary("arccos", "The angle, in [0, pi], whose cosine is data; nan outside [-1, 1].",
      lambda g, data: -(g / (1 - data * data).sqrt()), 15, "Acos")  # fmt: skip
unary("arctan", "The angle, in [-pi/2, pi/2], whose tangent is data.",
      lambda g, data: g / (data * data + 1), 15, "Atan")  # fmt: skip
unary("degrees", "An angle in radians as degrees: data * 180 / pi.", lambda g: g * (180 / pi))
unary("radians", "An angle in degrees as radians: data * pi / 180.", lambda g: g * (pi / 180))

# -- hyperbolic functions ------------------------------------------------------------------------

unary("sinh", "(exp(data) - exp(-data)) / 2.", lambda g, data: g * data.cosh(), 20, "Sinh")
unary("cosh", "(exp(data) + exp(-data)) / 2.", lambda g, data: g * data.sinh(), 20, "Cosh")
unary("arcsinh", "The number whose sinh is data.",
      lambda g, data: g / (data * data + 1).sqrt(), 20, "Asinh")  # fmt: skip
unary("arccosh", "The number, at least 0, whose cosh is data; nan below 1.",
      lambda g, data: g / (data * data - 1).sqrt(), 20, "Acosh")  # fmt: skip
unary("arctanh", "The number whose tanh is data; nan outside [-1, 1].",
      lambda g, data: g / (1 - data * data), 20, "Atanh")  # fmt: skip

# -- signs ---------------------------------------------------------------------------------------

unary("abs", "The absolute value.", lambda g, data: g * data.sign(), 1, "Abs", integers="exact")
unary("sign", "-1 below 0, 0 at 0, 1 above; nan stays nan (MXNet: 0).", None, 1, "Sign",
      integers="exact")  # fmt: skip
unary("negative", "-data; unsigned integers wrap around.", lambda g: -g, 1, "Neg", integers="exact")

# -- rounding ------------------------------------------------------------------------------------

unary("floor", "The largest whole number not above data.", None, 1, "Floor", integers="kept")
unary("ceil", "The smallest whole number not below data.", None, 1, "Ceil", integers="kept")
unary("trunc", "The whole part: rounds towards zero.", None, integers="kept")
unary("fix", "The whole part, as `trunc`.", None, ufunc="trunc", integers="kept")


@pointwise("round", integers="kept")
def round_(xp, data, *, out=None):
    """The nearest whole number; halves go away from zero (2.5 to 3, -2.5 to -3)."""
    # Not 0.5 itself: 0.49999997 + 0.5 is 1 in float32. The next number below 0.5 avoids this, and
    # where its sum with a half is inexact, the sum rounds up.
    almost_half = np.nextafter(data.dtype.type(0.5), data.dtype.type(0))
    y = xp.copysign(almost_half, data)
    y = xp.add(data, y, out=out)
    return xp.trunc(y, out=out)


@pointwise("rint", integers="kept")
def rint(xp, data, *, out=None):
    """The nearest whole number; halves go down (2.5 to 2, -2.5 to -3), as in MXNet."""
    y = xp.floor(data)
    return xp.add(y, data - y > 0.5, out=out)


# -- predicates ----------------------------------------------------------------------------------


@op(elementwise=True, grad=None)
def logical_not(xp, data, *, out=None):
    """1 where data is 0, else 0, in data's dtype."""
    y = xp.equal(data, 0, out=out)  # (a third of the time of NumPy's logical_not)
    return y if out is not None else y.astype(data.dtype, copy=False)


def question(ufunc: str, means: str) -> Op:
    """Declare a predicate: its result is 0 or 1 in the dtype of the input, which may be bool."""

    def compute(xp, data, *, out=None):
        y = getattr(xp, ufunc)(data, out=out)
        return y if out is not None else y.astype(data.dtype, copy=False)

    compute.__doc__ = f"1 where data is {means}, else 0, in data's dtype."
    declared: Op = op(f"_contrib_{ufunc}", elementwise=True, grad=None, in_mxnet=False)(compute)
    return declared


isnan = question("isnan", "nan")
isinf = question("isinf", "inf or -inf")
isfinite = question("isfinite", "neither nan nor inf nor -inf")
isnan.written_in_mxnet(lambda data: registry["_not_equal"](data, data))
isinf.written_in_mxnet(lambda data: abs(data) == float("inf"))
# inf - inf is nan.
isfinite.written_in_mxnet(lambda data: registry["elemwise_sub"](data, data) == 0.0)

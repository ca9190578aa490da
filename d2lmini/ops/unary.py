"""Functions of one array: powers, exponentials, trigonometry, signs, rounding, erf and gamma.

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

`activation.py` has tanh, relu, other activations and clip.

NumPy has no erf, gamma, gammaln and digamma. The series here compute their own
coefficients, so a reader can check them:

>>> nd.erf(nd.array([0, 0.5, 3]))                  # probability of |error| < x * sqrt(2) sigma
<BLANKLINE>
[0.         0.52049994 0.9999779 ]
<NDArray 3 @cpu(0)>
>>> nd.gamma(nd.array([1, 2, 3, 4, 5]))            # (n - 1)!
<BLANKLINE>
[ 1.  1.  2.  6. 24.]
<NDArray 5 @cpu(0)>

Accuracy (relative unless stated) against a calculation with 50 digits; `eps` is 1.2e-7 in float32,
2.2e-16 in float64:

    erf        float32 and float64 3 eps
    gamma      float64 100 eps; at whole numbers to 18 exact
    gammaln    float64 50 eps; near its zeros, absolute
    digamma    float64 10 eps; near zeros, absolute

All but erf, which networks use often (GELU), are computed in float64 whatever the dtype, so
float32 results are correct to the last digit or the one before.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from math import exp, factorial, log, pi, sqrt
from typing import Any

import numpy as np

from d2lmini.ops.checks import check_numbers, refuse_gradient
from d2lmini.ops.core import Op, Spec, op, registry
from d2lmini.ops.create import cast_into, copy_values
from d2lmini.ops.elementwise import Gradient, names_of
from d2lmini.ops.scalar_cache import scalars


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
    return xp.divide(scalars[xp][data.dtype][1], root, out=out)


@pointwise("rcbrt", lambda g, y, data: g * (y / data) * (-1 / 3), flops=11)
def rcbrt(xp, data, *, out=None):
    """1 / cbrt(data)."""
    root = xp.cbrt(data, out=out)
    return xp.divide(scalars[xp][data.dtype][1], root, out=out)


@pointwise("reciprocal", lambda g, y: -(g * (y * y)), onnx="Reciprocal")
def reciprocal(xp, data, *, out=None):
    """1 / data."""
    return xp.divide(scalars[xp][data.dtype][1], data, out=out)


# -- exponentials and logarithms -----------------------------------------------------------------

unary("exp", "e to the power of data.", lambda g, y: g * y, 10, "Exp")
unary("expm1", "exp(data) - 1, with all digits also near 0.", lambda g, y: g * (y + 1), 12)
unary("log", "The natural logarithm; -inf at 0, nan below.", lambda g, data: g / data, 10, "Log")
unary("log2", "The logarithm to base 2.", lambda g, data: g / (data * log(2)), 10)
unary("log10", "The logarithm to base 10.", lambda g, data: g / (data * log(10)), 10)
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


# -- the error function and the gamma function -----------------------------------------------------

#: Elements of a block: its temporaries stay in the cache over dozens of passes, which halves the
#: time.
BLOCK = 1 << 14


def in_blocks(xp: Any, function: Callable, data: Any, out: Any) -> Any:
    """function(xp, data, out), block by block where `data` is large; one call on a GPU."""
    if data.size <= BLOCK or xp is not np or not data.flags.c_contiguous:
        return function(xp, data, out)
    if out is None:
        out = np.empty_like(data)
    elif not out.flags.c_contiguous:
        return function(xp, data, out)
    flat, place = data.reshape(-1), out.reshape(-1)
    for i in range(0, data.size, BLOCK):
        function(xp, flat[i : i + BLOCK], place[i : i + BLOCK])
    return out


def polynomial(xp: Any, coefficients: list[float], x: Any) -> Any:
    """c_0 + c_1 x + c_2 x^2 + ..., by W. G. Horner's rule."""
    y = xp.full_like(x, coefficients[-1])
    for c in reversed(coefficients[:-1]):
        y *= x
        y += c
    return y


@lru_cache(maxsize=2)
def _erf_numbers(itemsize: int) -> tuple[list[float], float, list[float], float]:
    """The coefficients of the series, the step and the nodes of the rule, and where erf is 1."""
    n_series, h, n_nodes, top = {4: (7, 0.7, 7, 4.0), 8: (13, 0.5, 12, 6.0)}[itemsize]
    series = [2 / sqrt(pi) * (-1) ** k / (factorial(k) * (2 * k + 1)) for k in range(n_series)]
    return series, h, [(n * h) ** 2 for n in range(1, n_nodes + 1)], top


def _erf(xp: Any, data: Any, out: Any) -> Any:
    """Below 1/2, the series erf(x) = 2/sqrt(pi) * sum over k of (-1)^k x^(2k+1) / (k! (2k+1)).

    Above, the trapezoidal rule with step h for an integral over the whole line, whose error falls
    off like exp(-(pi/h)^2), with the correction for its pole (Chiarella and Reichel 1968; Hunter
    and Regan 1972):

        erfc(x) = 2hx/pi * exp(-x^2) * (1/(2x^2) + sum over n of exp(-(nh)^2) / ((nh)^2 + x^2))
                  - 2 / (exp(2 pi x / h) - 1)            for 0 < x < pi/h
    """
    series, h, nodes, top = _erf_numbers(data.dtype.itemsize)
    size = xp.abs(data)
    x = xp.minimum(size, 0.5)
    low = polynomial(xp, series, x * x)
    low *= x
    x = xp.minimum(xp.maximum(size, 0.5), top)
    square = x * x
    tail = 0.5 / square
    term = xp.empty_like(x)
    for node in nodes:
        xp.add(square, node, out=term)
        xp.divide(exp(-node), term, out=term)
        tail += term
    tail *= x
    tail *= xp.exp(-square)
    tail *= 2 * h / pi
    tail -= 2 / xp.expm1(2 * pi / h * x)
    return xp.copysign(xp.where(size < 0.5, low, 1 - tail), data, out=out)


@pointwise("erf", lambda g, data: g * (-(data * data)).exp() * (2 / sqrt(pi)), flops=60, onnx="Erf")
def erf(xp, data, *, out=None):
    """2/sqrt(pi) * the integral of exp(-t^2) from 0 to data."""
    return in_blocks(xp, _erf, data, out)


def in_double(gradient: Gradient | None, **facts: Any) -> Callable[[Callable], Op]:
    """Declare a unary op that is computed in float64 and cast back; integers are truncated."""

    def declare(function: Callable) -> Op:
        def convert(xp, data, out):
            return cast_into(xp, function(xp, data.astype(np.float64)), data.dtype, out)

        def compute(xp, data, *, out=None):
            return in_blocks(xp, convert, data, out)

        compute.__doc__ = function.__doc__
        name = function.__name__
        return pointwise(name, gradient, integers="exact", flops=150, **facts)(compute)

    return declare


#: The Bernoulli numbers B_2, B_4, ..., of which eight terms give all digits of float64 in the
#: asymptotic series below, from `_LIFT` on; the recurrence gamma(x + 1) = x gamma(x) shifts smaller
#: arguments up.
_B = [1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510]
_STIRLING = [b / ((2 * k + 2) * (2 * k + 1)) for k, b in enumerate(_B)]
_DIGAMMA = [b / (2 * k + 2) for k, b in enumerate(_B)]
_LIFT = 10


def _reduced(xp: Any, data: Any) -> tuple[Any, ...]:
    """For reflection and recurrence: (x = 1 - data below 0, else data; data < 0; its distance to
    the next whole number; z = x + 10 below 10, else x; x < 10; x (x+1) ... (x+9) below 10, else 1).
    """
    negative, offset = data < 0, data - xp.rint(data)
    x = xp.where(negative, 1 - data, data)
    low = x < _LIFT
    product = x.copy()
    for k in range(1, _LIFT):
        product *= x + k
    return x, negative, offset, xp.where(low, x + _LIFT, x), low, xp.where(low, product, 1.0)


@in_double(lambda g, y, data: g * (y * registry["digamma"](data)))
def gamma(xp, data):
    """The gamma function, (n - 1)! at n; nan at negative integers.

    Stirling's series, the recurrence below 10, gamma(x) gamma(1 - x) = pi / sin(pi x) below 0.
    """
    x, negative, offset, z, _, rising = _reduced(xp, data)
    root = z ** (z / 2 - 0.25)  # squared at the end: z ** (z - 1/2) alone would overflow early
    stirling = xp.exp(polynomial(xp, _STIRLING, 1 / (z * z)) / z - z) * sqrt(2 * pi)
    y = root * stirling * root / rising
    y = xp.where((x == xp.rint(x)) & (x < 19), xp.rint(y), y)
    y = xp.where(x > 172, xp.inf, y)  # overflow, where the formula gives inf * 0
    sine = xp.sin(pi * offset) * xp.where(xp.fmod(xp.rint(data), 2) == 0, 1.0, -1.0)
    return xp.where(negative, xp.where(offset == 0, xp.nan, pi / (sine * y)), y)


@in_double(lambda g, data: g * registry["digamma"](data))
def gammaln(xp, data):
    """log(abs(gamma(data))); inf at 0, at negative integers and at both infinities."""
    _, negative, offset, z, _, rising = _reduced(xp, data)
    y = (z - 0.5) * xp.log(z) - z + (log(2 * pi) / 2 + polynomial(xp, _STIRLING, 1 / (z * z)) / z)
    y = xp.where(z == xp.inf, z, y - xp.log(rising))
    y = xp.where(negative, xp.log(pi / xp.abs(xp.sin(pi * offset))) - y, y)
    return xp.where(data == -xp.inf, xp.inf, y)


@refuse_gradient
@in_double(None, in_mxnet=False)
def digamma(xp, data):
    """The derivative of gammaln; nan at negative integers.

    MXNet has it only inside the gradient of gammaln.
    """
    x, negative, offset, z, low, _ = _reduced(xp, data)
    y = xp.log(z) - 0.5 / z - polynomial(xp, _DIGAMMA, 1 / (z * z)) / (z * z)
    y = y - xp.where(low, sum(1 / (x + k) for k in range(_LIFT)), 0.0)
    below = xp.where(offset == 0, xp.nan, y - pi / xp.tan(pi * offset))
    return xp.where(negative, below, y)

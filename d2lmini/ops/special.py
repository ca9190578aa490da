"""erf, erfinv, gamma, gammaln and digamma, computed from their formulas.

NumPy has none of them. The series here compute their own coefficients, so a reader can check them:

>>> from d2lmini import nd
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
    erfinv     float64 4 eps
    gamma      float64 100 eps; at whole numbers to 18 exact
    gammaln    float64 50 eps; near its zeros, absolute
    digamma, trigamma    float64 10 eps; near zeros, absolute

All but erf, which networks use often (GELU), are computed in float64 whatever the dtype, so
float32 results are correct to the last digit or the one before.
"""

from __future__ import annotations

from collections.abc import Callable
from math import exp, factorial, log, pi, sqrt
from typing import Any

import numpy as np

from d2lmini.ops.checks import refuse_gradient
from d2lmini.ops.core import Op, registry
from d2lmini.ops.elementwise import Gradient
from d2lmini.ops.identity import cast_into
from d2lmini.ops.unary import pointwise

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


# -- the error function --------------------------------------------------------------------------


class _ErfFormula:
    """The constants of erf for one precision.

    Below 1/2, the series erf(x) = 2/sqrt(pi) * sum over k of (-1)^k x^(2k+1) / (k! (2k+1)).

    Above, the trapezoidal rule with step h for an integral over the whole line, whose error falls
    off like exp(-(pi/h)^2), with the correction for its pole (Chiarella and Reichel 1968; Hunter
    and Regan 1972):

        erfc(x) = 2hx/pi * exp(-x^2) * (1/(2x^2) + sum over n of exp(-(nh)^2) / ((nh)^2 + x^2))
                  - 2 / (exp(2 pi x / h) - 1)            for 0 < x < pi/h
    """

    def __init__(self, n_series: int, h: float, n_rule: int, top: float):
        self.series = [
            2 / sqrt(pi) * (-1) ** k / (factorial(k) * (2 * k + 1)) for k in range(n_series)
        ]
        self.h = h
        self.nodes = [((n * h) ** 2, exp(-((n * h) ** 2))) for n in range(1, n_rule + 1)]
        self.top = top  # erf is 1 from here on in this precision

    def small(self, xp: Any, x: Any) -> Any:
        """erf(x) for |x| <= 1/2."""
        y = polynomial(xp, self.series, x * x)
        y *= x
        return y

    def tail(self, xp: Any, a: Any) -> Any:
        """erfc(a) for 1/2 <= a <= top."""
        square = a * a
        y = 0.5 / square
        term = xp.empty_like(a)
        for node, weight in self.nodes:
            xp.add(square, node, out=term)
            xp.divide(weight, term, out=term)
            y += term
        y *= a
        y *= xp.exp(-square)
        y *= 2 * self.h / pi
        y -= 2 / xp.expm1(2 * pi / self.h * a)
        return y


_SINGLE = _ErfFormula(n_series=7, h=0.7, n_rule=7, top=4.0)
_DOUBLE = _ErfFormula(n_series=13, h=0.5, n_rule=12, top=6.0)


def _erf(xp: Any, data: Any, out: Any) -> Any:
    formula = _SINGLE if data.dtype.itemsize == 4 else _DOUBLE
    a = xp.abs(data)
    high = 1 - formula.tail(xp, xp.minimum(xp.maximum(a, 0.5), formula.top))
    y = xp.where(a < 0.5, formula.small(xp, xp.minimum(a, 0.5)), high)
    return xp.copysign(y, data, out=out)


@pointwise("erf", lambda g, data: g * (-(data * data)).exp() * (2 / sqrt(pi)), flops=60, onnx="Erf")
def erf(xp, data, *, out=None):
    """2/sqrt(pi) * the integral of exp(-t^2) from 0 to data."""
    return in_blocks(xp, _erf, data, out)


def in_double(
    name: str, gradient: Gradient | None, flops: float = 150, **facts: Any
) -> Callable[[Callable], Op]:
    """Declare a unary op that is computed in float64 and cast back; integers are truncated."""

    def declare(function: Callable) -> Op:
        def convert(xp, data, out):
            return cast_into(xp, function(xp, data.astype(np.float64)), data.dtype, out)

        def compute(xp, data, *, out=None):
            return in_blocks(xp, convert, data, out)

        compute.__doc__ = function.__doc__
        return pointwise(name, gradient, integers="exact", flops=flops, **facts)(compute)

    return declare


# -- the gamma function and its derivatives --------------------------------------------------------


def _bernoulli(n: int) -> list[float]:
    """The Bernoulli numbers B_2, B_4, ..., B_2n, each rounded to the nearest float; computed from
    tangent numbers, which are integers (R. P. Brent and D. Harvey, "Fast computation of Bernoulli,
    tangent and secant numbers", 2011).

    >>> _bernoulli(4) == [1 / 6, -1 / 30, 1 / 42, -1 / 30]
    True
    """
    tangent = [factorial(k) for k in range(n)]
    for k in range(1, n):
        for j in range(k, n):
            tangent[j] = (j - k) * tangent[j - 1] + (j - k + 2) * tangent[j]
    return [-((-1) ** k) * 2 * k * t / (4**k * (4**k - 1)) for k, t in enumerate(tangent, start=1)]


# The asymptotic series below hold from here on, where eight terms give all digits of float64;
# the recurrence gamma(x + 1) = x gamma(x) shifts smaller arguments up.
_LIFT = 10
_B = _bernoulli(8)


_STIRLING = [b / ((2 * k + 2) * (2 * k + 1)) for k, b in enumerate(_B)]
_DIGAMMA = [b / (2 * k + 2) for k, b in enumerate(_B)]


def _rising(xp: Any, x: Any, low: Any) -> Any:
    """x (x+1) ... (x+9) where `low`, else 1."""
    product = x.copy()
    for k in range(1, _LIFT):
        product *= x + k
    return xp.where(low, product, 1.0)


def _reduced(xp: Any, data: Any) -> tuple[Any, ...]:
    """For reflection and recurrence: (x = 1 - data below 0, else data; data < 0; its distance to
    the next whole number; z = x + 10 below 10, else x; x < 10)."""
    negative, offset = data < 0, data - xp.rint(data)
    x = xp.where(negative, 1 - data, data)
    low = x < _LIFT
    return x, negative, offset, xp.where(low, x + _LIFT, x), low


@in_double("gamma", lambda g, y, data: g * (y * registry["digamma"](data)))
def gamma(xp, data):
    """The gamma function, (n - 1)! at n; nan at negative integers.

    Stirling's series, the recurrence below 10, gamma(x) gamma(1 - x) = pi / sin(pi x) below 0.
    """
    x, negative, offset, z, low = _reduced(xp, data)
    root = z ** (z / 2 - 0.25)  # squared at the end: z ** (z - 1/2) alone would overflow early
    stirling = xp.exp(polynomial(xp, _STIRLING, 1 / (z * z)) / z - z) * sqrt(2 * pi)
    y = root * stirling * root / _rising(xp, x, low)
    y = xp.where((x == xp.rint(x)) & (x < 19), xp.rint(y), y)
    y = xp.where(x > 172, xp.inf, y)  # overflow, where the formula gives inf * 0
    sine = xp.sin(pi * offset) * xp.where(xp.fmod(xp.rint(data), 2) == 0, 1.0, -1.0)
    return xp.where(negative, xp.where(offset == 0, xp.nan, pi / (sine * y)), y)


@in_double("gammaln", lambda g, data: g * registry["digamma"](data))
def gammaln(xp, data):
    """log(abs(gamma(data))); inf at 0, at negative integers and at both infinities."""
    x, negative, offset, z, low = _reduced(xp, data)
    y = (z - 0.5) * xp.log(z) - z + (log(2 * pi) / 2 + polynomial(xp, _STIRLING, 1 / (z * z)) / z)
    y = xp.where(z == xp.inf, z, y - xp.log(_rising(xp, x, low)))
    y = xp.where(negative, xp.log(pi / xp.abs(xp.sin(pi * offset))) - y, y)
    return xp.where(data == -xp.inf, xp.inf, y)


@refuse_gradient
@in_double("digamma", None, in_mxnet=False)
def digamma(xp, data):
    """The derivative of gammaln; nan at negative integers.

    MXNet has it only inside the gradient of gammaln.
    """
    x, negative, offset, z, low = _reduced(xp, data)
    y = xp.log(z) - 0.5 / z - polynomial(xp, _DIGAMMA, 1 / (z * z)) / (z * z)
    y = y - xp.where(low, sum(1 / (x + k) for k in range(_LIFT)), 0.0)
    below = xp.where(offset == 0, xp.nan, y - pi / xp.tan(pi * offset))
    return xp.where(negative, below, y)

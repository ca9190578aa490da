"""Mathematical functions of one array: powers, exponentials, trigonometry.

>>> from d2lmini import nd
>>> nd.sqrt(nd.array([1, 4, 9]))
<BLANKLINE>
[1. 2. 3.]
<NDArray 3 @cpu(0)>
>>> nd.sqrt(nd.array([1, 4, 10], dtype="int32"))       # integers stay integers, as in MXNet
<BLANKLINE>
[1 2 3]
<NDArray 3 @cpu(0)>

Each op keeps the dtype: float32 and float64 are computed as they are, float16 in float32, integers
in float64 and cut towards zero. Outside its domain a function gives nan or inf and no error.

A gradient rule is the derivative as one would write it, in ops on values; where the result `y` says
it shorter than the input, only `y` is kept for backward.

Rounding, signs, activations and the like: `elemwise.py`; erf and gamma: `special.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from math import log as ln
from math import pi
from typing import Any

import numpy as np

from d2lmini.ops.core import Op, Spec, op
from d2lmini.ops.numbers import fit
from d2lmini.ops.pairs import check_numbers
from d2lmini.ops.passing import cast_into
from d2lmini.ops.slopes import tanh_backward


def numbers_only(data: Spec, **_attrs: Any) -> Spec:
    """The output is like the input, which is not bool."""
    check_numbers(data)
    return data


def widely(xp: Any, function: Callable, data: Any, out: Any) -> Any:
    """A function on float32 and float64 arrays applied to any: by way of a wider dtype, if need be.

    float16 goes by way of float32, integers by way of float64; the result is cast back.
    """
    dtype = data.dtype
    if dtype.char in "fd":
        return function(xp, data, out=out)
    wide = data.astype(np.float32 if dtype.char == "e" else np.float64)
    return cast_into(xp, function(xp, wide, out=None), dtype, out)


def pointwise(name: str = "", flops: float = 1, **options: Any) -> Callable[[Callable], Op]:
    """Declare an op of one array, given as a function on float32 and float64 arrays.

    The function may read `data` only before it first writes to `out`: they may be one array.
    """

    def declare(function: Callable) -> Op:
        def compute(xp, data, *, out=None):
            if data.dtype.char in "fd":
                return function(xp, data, out=out)
            return widely(xp, function, data, out)

        compute.__doc__ = function.__doc__
        options.setdefault("infer", numbers_only)
        return op(name or function.__name__, flops=flops, elementwise=True, **options)(compute)

    return declare


# -- powers and roots ----------------------------------------------------------------------------


@op(infer=numbers_only, elementwise=True)
def square(xp, data, *, out=None):
    """data * data."""
    return xp.square(data, out=out)


@square.gradient(saves="data")
def _(g, data):
    return g * (data * 2)


@pointwise()
def sqrt(xp, data, *, out=None):
    """The square root; nan below 0."""
    return xp.sqrt(data, out=out)


@sqrt.gradient(saves="y")
def _(g, y):
    return g / (y * 2)


@pointwise(flops=2)
def rsqrt(xp, data, *, out=None):
    """1 / sqrt(data); inf at 0, nan below."""
    root = xp.sqrt(data, out=out)
    return xp.divide(fit[xp][data.dtype][1], root, out=out)


@rsqrt.gradient(saves="y")
def _(g, y):
    return g * (y * y * y * -0.5)


@pointwise(flops=10)
def cbrt(xp, data, *, out=None):
    """The cube root, also of negative numbers."""
    return xp.cbrt(data, out=out)


@cbrt.gradient(saves="y")
def _(g, y):
    return g / (y * y * 3)


@pointwise(flops=11)
def rcbrt(xp, data, *, out=None):
    """1 / cbrt(data)."""
    root = xp.cbrt(data, out=out)
    return xp.divide(fit[xp][data.dtype][1], root, out=out)


@rcbrt.gradient(saves="y data")
def _(g, y, data):
    return g * (y / data) * (-1 / 3)


@pointwise()
def reciprocal(xp, data, *, out=None):
    """1 / data."""
    return xp.divide(fit[xp][data.dtype][1], data, out=out)


@reciprocal.gradient(saves="y")
def _(g, y):
    return -(g * (y * y))


# -- exponentials and logarithms -----------------------------------------------------------------


@pointwise(flops=10)
def exp(xp, data, *, out=None):
    """e to the power of data."""
    return xp.exp(data, out=out)


@exp.gradient(saves="y")
def _(g, y):
    return g * y


@pointwise(flops=12)
def expm1(xp, data, *, out=None):
    """exp(data) - 1, with all digits also near 0."""
    return xp.expm1(data, out=out)


@expm1.gradient(saves="y")
def _(g, y):
    return g * (y + 1)


@pointwise(flops=10)
def log(xp, data, *, out=None):
    """The natural logarithm; -inf at 0, nan below."""
    return xp.log(data, out=out)


@log.gradient(saves="data")
def _(g, data):
    return g / data


@pointwise(flops=10)
def log2(xp, data, *, out=None):
    """The logarithm to base 2."""
    return xp.log2(data, out=out)


@log2.gradient(saves="data")
def _(g, data):
    return g / (data * ln(2))


@pointwise(flops=10)
def log10(xp, data, *, out=None):
    """The logarithm to base 10."""
    return xp.log10(data, out=out)


@log10.gradient(saves="data")
def _(g, data):
    return g / (data * ln(10))


@pointwise(flops=12)
def log1p(xp, data, *, out=None):
    """log(1 + data), with all digits also near 0."""
    return xp.log1p(data, out=out)


@log1p.gradient(saves="data")
def _(g, data):
    return g / (data + 1)


# -- trigonometry --------------------------------------------------------------------------------


@pointwise(flops=15)
def sin(xp, data, *, out=None):
    """The sine of an angle in radians."""
    return xp.sin(data, out=out)


@sin.gradient(saves="data")
def _(g, data):
    return g * data.cos()


@pointwise(flops=15)
def cos(xp, data, *, out=None):
    """The cosine of an angle in radians."""
    return xp.cos(data, out=out)


@cos.gradient(saves="data")
def _(g, data):
    return -(g * data.sin())


@pointwise(flops=20)
def tan(xp, data, *, out=None):
    """The tangent of an angle in radians."""
    return xp.tan(data, out=out)


@tan.gradient(saves="y")
def _(g, y):
    return g * (y * y + 1)


@pointwise(flops=15)
def arcsin(xp, data, *, out=None):
    """The angle, in [-pi/2, pi/2], whose sine is data; nan outside [-1, 1]."""
    return xp.arcsin(data, out=out)


@arcsin.gradient(saves="data")
def _(g, data):
    return g / (1 - data * data).sqrt()


@pointwise(flops=15)
def arccos(xp, data, *, out=None):
    """The angle, in [0, pi], whose cosine is data; nan outside [-1, 1]."""
    return xp.arccos(data, out=out)


@arccos.gradient(saves="data")
def _(g, data):
    return -(g / (1 - data * data).sqrt())


@pointwise(flops=15)
def arctan(xp, data, *, out=None):
    """The angle, in [-pi/2, pi/2], whose tangent is data."""
    return xp.arctan(data, out=out)


@arctan.gradient(saves="data")
def _(g, data):
    return g / (data * data + 1)


@pointwise()
def degrees(xp, data, *, out=None):
    """An angle in radians as degrees: data * 180 / pi."""
    return xp.degrees(data, out=out)


@degrees.gradient()
def _(g):
    return g * (180 / pi)


@pointwise()
def radians(xp, data, *, out=None):
    """An angle in degrees as radians: data * pi / 180."""
    return xp.radians(data, out=out)


@radians.gradient()
def _(g):
    return g * (pi / 180)


# -- hyperbolic functions ------------------------------------------------------------------------


@pointwise(flops=20)
def sinh(xp, data, *, out=None):
    """(exp(data) - exp(-data)) / 2."""
    return xp.sinh(data, out=out)


@sinh.gradient(saves="data")
def _(g, data):
    return g * data.cosh()


@pointwise(flops=20)
def cosh(xp, data, *, out=None):
    """(exp(data) + exp(-data)) / 2."""
    return xp.cosh(data, out=out)


@cosh.gradient(saves="data")
def _(g, data):
    return g * data.sinh()


@pointwise(flops=12)
def tanh(xp, data, *, out=None):
    """sinh(data) / cosh(data)."""
    return xp.tanh(data, out=out)


@tanh.gradient(saves="y")
def _(g, y):
    return tanh_backward(g, y)


@pointwise(flops=20)
def arcsinh(xp, data, *, out=None):
    """The number whose sinh is data."""
    return xp.arcsinh(data, out=out)


@arcsinh.gradient(saves="data")
def _(g, data):
    return g / (data * data + 1).sqrt()


@pointwise(flops=20)
def arccosh(xp, data, *, out=None):
    """The number, at least 0, whose cosh is data; nan below 1."""
    return xp.arccosh(data, out=out)


@arccosh.gradient(saves="data")
def _(g, data):
    return g / (data * data - 1).sqrt()


@pointwise(flops=20)
def arctanh(xp, data, *, out=None):
    """The number whose tanh is data; nan outside [-1, 1]."""
    return xp.arctanh(data, out=out)


@arctanh.gradient(saves="data")
def _(g, data):
    return g / (1 - data * data)

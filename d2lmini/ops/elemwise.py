"""Signs, rounding, activations, choices and casts: what is done to each element for itself.

>>> from d2lmini import nd
>>> x = nd.array([-2.5, -0.5, 0.5, 2.5])
>>> nd.relu(x)
<BLANKLINE>
[0.  0.  0.5 2.5]
<NDArray 4 @cpu(0)>
>>> nd.round(x), nd.rint(x)                 # halves: away from zero, and down
(
[-3. -1.  1.  3.]
<NDArray 4 @cpu(0)>,
[-3. -1.  0.  2.]
<NDArray 4 @cpu(0)>)

All keep the dtype, `cast` apart. Signs and rounding of integers are exact at any size.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Any

import numpy as np

from d2lmini.ops.checks import check_float
from d2lmini.ops.core import Number, Op, Spec, op, registry
from d2lmini.ops.limits import at_least, at_most
from d2lmini.ops.numbers import fit
from d2lmini.ops.passing import copied
from d2lmini.ops.scalars import beside_number
from d2lmini.ops.slopes import relu_backward, sigmoid_backward
from d2lmini.ops.unary import numbers_only, pointwise, widely

# -- signs ---------------------------------------------------------------------------------------


@op("abs", infer=numbers_only, elementwise=True)
def abs_(xp, data, *, out=None):
    """The absolute value."""
    return xp.abs(data, out=out)


@abs_.gradient(saves="data")
def _(g, data):
    return g * sign(data)


@op(infer=numbers_only, elementwise=True, grad=None)
def sign(xp, data, *, out=None):
    """-1 below 0, 0 at 0, 1 above; nan stays nan (MXNet: 0)."""
    return xp.sign(data, out=out)


@op(infer=numbers_only, elementwise=True)
def negative(xp, data, *, out=None):
    """-data; unsigned integers wrap around."""
    return xp.negative(data, out=out)


@negative.gradient()
def _(g):
    return -g


# -- rounding ------------------------------------------------------------------------------------


def _rounding(function: Callable) -> Op:
    """Declare an op that leaves integers as they are; its gradient is 0."""

    def compute(xp, data, *, out=None):
        if data.dtype.kind == "f":
            return function(xp, data, out=out)
        return copied(xp, data, out)

    compute.__doc__ = function.__doc__
    name = function.__name__.rstrip("_")
    return op(name, infer=numbers_only, elementwise=True, grad=None)(compute)


@_rounding
def floor(xp, data, *, out=None):
    """The largest whole number not above data."""
    return xp.floor(data, out=out)


@_rounding
def ceil(xp, data, *, out=None):
    """The smallest whole number not below data."""
    return xp.ceil(data, out=out)


@_rounding
def trunc(xp, data, *, out=None):
    """The whole part: rounds towards zero."""
    return xp.trunc(data, out=out)


@_rounding
def fix(xp, data, *, out=None):
    """The whole part: rounds towards zero, as `trunc`."""
    return xp.trunc(data, out=out)


@_rounding
def round_(xp, data, *, out=None):
    """The nearest whole number; halves go away from zero (2.5 to 3, -2.5 to -3)."""
    # Not 0.5 itself: 0.49999997 + 0.5 is 1 in float32. The number below 0.5 does not have this
    # trouble, and where the sum of a half with it is inexact, it rounds up.
    almost_half = np.nextafter(data.dtype.type(0.5), data.dtype.type(0))
    y = xp.copysign(almost_half, data)
    y = xp.add(data, y, out=out)
    return xp.trunc(y, out=out)


@_rounding
def rint(xp, data, *, out=None):
    """The nearest whole number; halves go down (2.5 to 2, -2.5 to -3), as in MXNet."""
    y = xp.floor(data)
    return xp.add(y, data - y > 0.5, out=out)


# -- activations ---------------------------------------------------------------------------------


@op(infer=numbers_only, elementwise=True)
def relu(xp, data, *, out=None):
    """max(data, 0); nan stays nan. The gradient at 0 is 0."""
    return at_least(xp, data, 0, out)


@relu.gradient(saves="y")
def _(g, y):
    return relu_backward(g, y)


@pointwise(flops=13)
def sigmoid(xp, data, *, out=None):
    """1 / (1 + exp(-data))."""
    one = fit[xp][data.dtype][1]
    y = xp.negative(data, out=out)
    y = xp.exp(y, out=out)
    y = xp.add(y, one, out=out)
    return xp.divide(one, y, out=out)


@sigmoid.gradient(saves="y")
def _(g, y):
    return sigmoid_backward(g, y)


@pointwise(flops=3)
def softsign(xp, data, *, out=None):
    """data / (1 + abs(data))."""
    scale = xp.abs(data)
    scale = scale + fit[xp][data.dtype][1]
    return xp.divide(data, scale, out=out)


@softsign.gradient(saves="data")
def _(g, data):
    scale = abs_(data) + 1
    return g / (scale * scale)


def _floats_only(data: Spec, **_attrs: Any) -> Spec:
    check_float(data)
    return data


@op(infer=_floats_only, flops=4, elementwise=True)
def hard_sigmoid(xp, data, *, alpha: float = 0.2, beta: float = 0.5, out=None):
    """max(0, min(1, alpha * data + beta)); floats only."""

    def formula(xp, x, out):
        numbers = fit[xp][x.dtype]
        y = xp.multiply(x, numbers[alpha], out=out)
        y = xp.add(y, numbers[beta], out=out)
        return at_most(xp, at_least(xp, y, 0, out), 1, out)

    return widely(xp, formula, data, out)


@hard_sigmoid.gradient(saves="y")
def _(g, y, *, alpha):
    return g * ((y > 0) * (y < 1)) * alpha


@op(infer=numbers_only, flops=5, elementwise=True, always_written=("scalar",))
def smooth_l1(xp, data, *, scalar: float = 1.0, out=None):
    """(scalar * data)**2 / 2 where abs(data) < 1 / scalar**2, else abs(data) - 0.5 / scalar**2.

    A parabola near 0, a straight line further out. With a = abs(data) and c = min(a, 1/scalar**2)
    both are scalar**2 * c * (a - c/2). Integers are cut towards zero.
    """
    square = scalar * scalar
    end_of_parabola = 1 / square if square else inf

    def formula(xp, x, out):
        a = xp.abs(x)
        c = xp.minimum(a, end_of_parabola)
        return xp.multiply(a - c / 2, c * square, out=out)

    return widely(xp, formula, data, out)


@smooth_l1.gradient(saves="data")
def _(g, data, *, scalar):
    return g * clip(data * (scalar * scalar), a_min=-1.0, a_max=1.0)


def _between(data: Spec, *, a_min: Any, a_max: Any) -> Spec:
    numbers_only(data)
    for end in (a_min, a_max):
        if abs(end) != inf:
            beside_number(data, scalar=end)
    return data


@op(infer=_between, flops=2, elementwise=True)
def clip(xp, data, *, a_min: Number, a_max: Number, out=None):
    """min(max(data, a_min), a_max); nan stays nan. The gradient passes where nothing was clipped.

    Limits beside an integer array are cut towards zero, and may lie outside its range.
    """
    # Two ufuncs, not xp.clip, which takes 2 us to find out that it is these two.
    return at_most(xp, at_least(xp, data, a_min, out), a_max, out)


@clip.gradient(saves="data")
def _(g, data, *, a_min, a_max):
    return g * ((data >= a_min) * (data <= a_max))


# -- questions with a yes or no answer -----------------------------------------------------------


def _question(name: str, **facts: Any) -> Callable[[Callable], Op]:
    """Declare an op that answers with 0 or 1 in the dtype of its input."""

    def declare(function: Callable) -> Op:
        def compute(xp, data, *, out=None):
            y = function(xp, data, out)
            return y if out is not None else y.astype(data.dtype, copy=False)

        compute.__doc__ = function.__doc__
        return op(name, elementwise=True, grad=None, **facts)(compute)

    return declare


@_question("logical_not")
def logical_not(xp, data, out):
    """1 where data is 0, else 0, in data's dtype."""
    return xp.equal(data, 0, out=out)


@_question("_contrib_isnan", in_mxnet=False)
def isnan(xp, data, out):
    """1 where data is nan, else 0, in data's dtype."""
    return xp.isnan(data, out=out)


@isnan.written_in_mxnet
def _(data):
    return registry["_not_equal"](data, data)


@_question("_contrib_isinf", in_mxnet=False)
def isinf(xp, data, out):
    """1 where data is inf or -inf, else 0, in data's dtype."""
    return xp.isinf(data, out=out)


@isinf.written_in_mxnet
def _(data):
    return registry["abs"](data) == float("inf")


@_question("_contrib_isfinite", in_mxnet=False)
def isfinite(xp, data, out):
    """1 where data is neither nan nor inf nor -inf, else 0, in data's dtype."""
    return xp.isfinite(data, out=out)


@isfinite.written_in_mxnet
def _(data):
    nothing = registry["elemwise_sub"](data, data)  # 0, or nan
    return registry["_equal"](nothing, nothing)

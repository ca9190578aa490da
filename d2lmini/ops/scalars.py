"""Arithmetic on an array and a number: `x + 1` is `_plus_scalar(x, scalar=1)`, ...

>>> from d2lmini import nd
>>> nd.array([1, 2, 3]) ** 2 - 0.5
<BLANKLINE>
[0.5 3.5 8.5]
<NDArray 3 @cpu(0)>
>>> nd.array([1, 2, 3], dtype="int32") * 1.5       # the number takes the array's dtype: 1
<BLANKLINE>
[1 2 3]
<NDArray 3 @cpu(0)>

**The number takes the array's dtype.** As in MXNet, for an integer array it is cut towards zero
and wraps around (uint8 + 300 adds 44); a bool array beside a number counts as int64. NumPy's own
rules would do otherwise, so every number is fitted first: `fit[xp][dtype][number]` is the number
as a 0-d array of exactly the array's dtype (for CuPy, as a NumPy scalar).

These ops are the ones most used on tiny arrays. The table makes them quicker than plain Python
numbers would be: NumPy takes 0.3 us less for a 0-d array of the right dtype than for a number
whose dtype it has to find out, and a number in use is found in the table in 0.1 us.
"""

from __future__ import annotations

import math
from typing import Any

from d2lmini.base import MXNetError
from d2lmini.ops import pairs
from d2lmini.ops.core import Number, Spec, op, registry
from d2lmini.ops.limits import at_least, at_most
from d2lmini.ops.numbers import fit


def beside_number(data: Spec, *, scalar: Any) -> Spec:
    """The array's own shape and dtype; int64 for bool. Numbers that cannot fit are refused here."""
    if data.dtype.kind == "f" and (type(scalar) is float or type(scalar) is int):
        return data
    try:
        number = float(scalar)
    except (TypeError, ValueError):
        raise TypeError(f"expected a number, got {type(scalar).__name__}") from None
    except OverflowError:
        number = 0.0 if data.dtype.kind != "f" else math.inf
    if data.dtype.kind != "f" and not math.isfinite(number):
        raise MXNetError(
            f"{scalar} is no number of {data.dtype.name}; convert with .astype('float32')"
        )
    return Spec(data.shape, "int64") if data.dtype.kind == "b" else data


def _scalar_op(name: str, aliases: str, flops: float = 1) -> Any:
    return op(name, aliases=aliases.split(), infer=beside_number, flops=flops, elementwise=True)


# -- the ops -------------------------------------------------------------------------------------


@_scalar_op("_plus_scalar", "_PlusScalar")
def plus_scalar(xp, data, *, scalar: Number, out=None):
    """data + scalar."""
    return xp.add(data, fit[xp][data.dtype][scalar], out=out)


@plus_scalar.gradient()
def _(g):
    return g


@_scalar_op("_minus_scalar", "_MinusScalar")
def minus_scalar(xp, data, *, scalar: Number, out=None):
    """data - scalar."""
    return xp.subtract(data, fit[xp][data.dtype][scalar], out=out)


@minus_scalar.gradient()
def _(g):
    return g


@_scalar_op("_rminus_scalar", "_RMinusScalar")
def rminus_scalar(xp, data, *, scalar: Number, out=None):
    """scalar - data."""
    return xp.subtract(fit[xp][data.dtype][scalar], data, out=out)


@rminus_scalar.gradient()
def _(g):
    return -g


@_scalar_op("_mul_scalar", "_MulScalar")
def mul_scalar(xp, data, *, scalar: Number, out=None):
    """data * scalar."""
    return xp.multiply(data, fit[xp][data.dtype][scalar], out=out)


@mul_scalar.gradient()
def _(g, *, scalar):
    return g * scalar


@_scalar_op("_div_scalar", "_DivScalar")
def div_scalar(xp, data, *, scalar: Number, out=None):
    """data / scalar; integers are cut towards zero."""
    return pairs.div.compute(xp, data, fit[xp][data.dtype][scalar], out=out)


@div_scalar.gradient()
def _(g, *, scalar):
    return g / scalar


@_scalar_op("_rdiv_scalar", "_RDivScalar")
def rdiv_scalar(xp, data, *, scalar: Number, out=None):
    """scalar / data; integers are cut towards zero."""
    return pairs.div.compute(xp, fit[xp][data.dtype][scalar], data, out=out)


@rdiv_scalar.gradient(saves="y data")
def _(g, y, data):
    return -(g * y / data)


@_scalar_op("_mod_scalar", "_ModScalar", flops=40)
def mod_scalar(xp, data, *, scalar: Number, out=None):
    """data - floor(data / scalar) * scalar: the remainder, with the sign of scalar; 0 by 0."""
    return pairs.mod.compute(xp, data, fit[xp][data.dtype][scalar], out=out)


@mod_scalar.gradient()
def _(g):
    return g


@_scalar_op("_rmod_scalar", "_RModScalar", flops=40)
def rmod_scalar(xp, data, *, scalar: Number, out=None):
    """scalar - floor(scalar / data) * data: the remainder, with the sign of data; 0 by 0."""
    return pairs.mod.compute(xp, fit[xp][data.dtype][scalar], data, out=out)


@rmod_scalar.gradient(saves="data")
def _(g, data, *, scalar):
    return -(g * registry["floor"](scalar / data))


@_scalar_op("_power_scalar", "_PowerScalar", flops=20)
def power_scalar(xp, data, *, scalar: Number, out=None):
    """data to the power of scalar; see `broadcast_power`.

    Whole powers of floats go by way of abs(data): NumPy takes fifty times longer for negative
    bases, most of it in finding out that the exponent is whole. 0.5 is sqrt.
    """
    number = fit[xp][data.dtype][scalar]
    if data.dtype.kind != "f":
        return pairs.power.compute(xp, data, number, out=out)
    if scalar == 2:
        return xp.square(data, out=out)
    if scalar == 0.5:
        return xp.sqrt(data, out=out)
    if not float(scalar).is_integer():
        return xp.power(data, number, out=out)
    if scalar % 2 == 0:
        return xp.power(xp.abs(data), number, out=out)
    return xp.copysign(xp.power(xp.abs(data), number), data, out=out)


@power_scalar.gradient(saves="data")
def _(g, data, *, scalar):
    if scalar == 0:
        return registry["zeros_like"](data)
    if scalar == 1:
        return g
    return g * (data * 2 if scalar == 2 else data ** (scalar - 1) * scalar)


@_scalar_op("_rpower_scalar", "_RPowerScalar", flops=20)
def rpower_scalar(xp, data, *, scalar: Number, out=None):
    """scalar to the power of data; see `broadcast_power`. Its gradient is nan for scalar < 0."""
    return pairs.power.compute(xp, fit[xp][data.dtype][scalar], data, out=out)


@rpower_scalar.gradient(saves="y")
def _(g, y, *, scalar):
    return g * (y * (math.log(scalar) if scalar > 0 else -math.inf if scalar == 0 else math.nan))


@_scalar_op("_maximum_scalar", "_MaximumScalar")
def maximum_scalar(xp, data, *, scalar: Number, out=None):
    """The larger of data and scalar; nan where data is. At ties the gradient goes to data."""
    return at_least(xp, data, scalar, out)


@maximum_scalar.gradient(saves="data")
def _(g, data, *, scalar):
    return g * (data >= scalar)


@_scalar_op("_minimum_scalar", "_MinimumScalar")
def minimum_scalar(xp, data, *, scalar: Number, out=None):
    """The smaller of data and scalar; nan where data is. At ties the gradient goes to data."""
    return at_most(xp, data, scalar, out)


@minimum_scalar.gradient(saves="data")
def _(g, data, *, scalar):
    return g * (data <= scalar)


@_scalar_op("_hypot_scalar", "_HypotScalar", flops=20)
def hypot_scalar(xp, data, *, scalar: Number, out=None):
    """sqrt(data**2 + scalar**2), without overflow in between; integers are cut."""
    return pairs.hypot.compute(xp, data, fit[xp][data.dtype][scalar], out=out)


@hypot_scalar.gradient(saves="y data")
def _(g, y, data):
    return g * (data / y)


def _floating(data: Spec, *, scalar: Any) -> Spec:
    if data.dtype.kind != "f":
        raise MXNetError(
            f"needs floating point, got {data.dtype.name}; convert with .astype('float32')"
        )
    return beside_number(data, scalar=scalar)


@op("_arctan2_scalar", infer=_floating, flops=20, elementwise=True)
def arctan2_scalar(xp, data, *, scalar: Number, out=None):
    """The angle, in (-pi, pi], of the point with height data and width scalar; floats only."""
    return xp.arctan2(data, fit[xp][data.dtype][scalar], out=out)


@arctan2_scalar.gradient(saves="data")
def _(g, data, *, scalar):
    return g * scalar / (data * data + scalar * scalar)


@op("_rarctan2_scalar", infer=_floating, flops=20, elementwise=True)
def rarctan2_scalar(xp, data, *, scalar: Number, out=None):
    """The angle, in (-pi, pi], of the point with height scalar and width data; floats only."""
    return xp.arctan2(fit[xp][data.dtype][scalar], data, out=out)


@rarctan2_scalar.gradient(saves="data")
def _(g, data, *, scalar):
    return -(g * scalar / (data * data + scalar * scalar))

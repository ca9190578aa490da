"""Activation functions: relu, sigmoid, tanh, ..., and `Activation` and `LeakyReLU`, which choose
one by `act_type`.

>>> from d2lmini import nd
>>> x = nd.array([-2, 0, 3])
>>> nd.Activation(x, act_type="relu")
<BLANKLINE>
[0. 0. 3.]
<NDArray 3 @cpu(0)>
>>> nd.LeakyReLU(x, act_type="leaky", slope=0.1)
<BLANKLINE>
[-0.2  0.   3. ]
<NDArray 3 @cpu(0)>

They keep shape and dtype and work element by element. `softmax.py` has the softmax family, which
does not.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Any

import numpy as np

from d2lmini.base import MXNetError
from d2lmini.ops.binary import minimum
from d2lmini.ops.checks import check_choice, check_float, check_optional
from d2lmini.ops.chunking import place
from d2lmini.ops.composed import composed
from d2lmini.ops.core import Number, Shape, Spec, op, registry
from d2lmini.ops.elementwise import infer_with_scalar
from d2lmini.ops.scalar_cache import clamped_scalars, maximum_scalar, minimum_scalar, scalars
from d2lmini.ops.unary import numbers_only, pointwise, unary, widely

# -- relu, sigmoid, tanh, softsign -----------------------------------------------------------------
#
# The gradient of each of the commonest activations is one op: g times the derivative as a function
# of the output y. A composition would take two or three ops, and each op reads and writes memory
# once more, which is most of the cost. These ops are differentiable in turn.


@pointwise("relu", lambda g, y: relu_backward(g, y), integers="exact")
def relu(xp, data, *, out=None):
    """max(data, 0); nan stays nan. The gradient at 0 is 0.

    >>> nd.relu(nd.array([-1, 0, 2])).asnumpy().tolist()
    [0.0, 0.0, 2.0]
    """
    return maximum_scalar(xp, data, 0, out)


@op("_relu_backward", flops=2, elementwise=True)
def relu_backward(xp, g, output, *, out=None):
    """g where the output is above 0, else 0."""
    # Convert to numbers first: a ufunc that converts while it computes is slow.
    return xp.multiply((output > 0).astype(g.dtype), g, out=out)


relu_backward.gradient("output")(lambda gg, output: (relu_backward(gg, output), None))


@pointwise("sigmoid", lambda g, y: sigmoid_backward(g, y), flops=13, onnx="Sigmoid")
def sigmoid(xp, data, *, out=None):
    """1 / (1 + exp(-data))."""
    one = scalars[xp][data.dtype][1]
    y = xp.negative(data, out=out)
    y = xp.exp(y, out=out)
    y = xp.add(one, y, out=out)
    return xp.divide(one, y, out=out)


@op("_sigmoid_backward", flops=3, elementwise=True)
def sigmoid_backward(xp, g, output, *, out=None):
    """g y (1 - y), y the output."""
    slope = (1 - output) * output
    return xp.multiply(slope, g, out=out)


@sigmoid_backward.gradient(saves="g output")
def _(gg, g, output):
    return sigmoid_backward(gg, output), gg * g * (1 - 2 * output)


tanh = unary("tanh", "sinh(data) / cosh(data).", lambda g, y: tanh_backward(g, y), 12, "Tanh")


@op("_tanh_backward", flops=3, elementwise=True)
def tanh_backward(xp, g, output, *, out=None):
    """g (1 - y^2), y the output."""
    slope = 1 - output * output
    return xp.multiply(slope, g, out=out)


@tanh_backward.gradient(saves="g output")
def _(gg, g, output):
    return tanh_backward(gg, output), gg * g * output * -2


@pointwise("softsign", lambda g, data: g / (abs(data) + 1).square(), flops=3, onnx="Softsign")
def softsign(xp, data, *, out=None):
    """data / (1 + abs(data))."""
    scale = xp.abs(data)
    scale = scale + scalars[xp][data.dtype][1]
    return xp.divide(data, scale, out=out)


# -- piecewise linear functions --------------------------------------------------------------------


@op(infer=numbers_only, flops=5, elementwise=True, always_written=("scalar",))
def smooth_l1(xp, data, *, scalar: float = 1.0, out=None):
    """(scalar * data)**2 / 2 where abs(data) < 1 / scalar**2, else abs(data) - 0.5 / scalar**2.

    A parabola near 0, a straight line further out. With a = abs(data) and c = min(a, 1/scalar**2)
    both are scalar**2 * c * (a - c/2). Integers are truncated towards zero.
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
            infer_with_scalar(data, scalar=end)
    return data


@op(infer=_between, flops=2, elementwise=True)
def clip(xp, data, *, a_min: Number, a_max: Number, out=None):
    """min(max(data, a_min), a_max); nan stays nan. The gradient is g where nothing was clipped.

    Limits for an integer array are truncated towards zero, and may lie outside its range. If a_min
    is above a_max, elements above a_max are a_max and the others a_min, as in MXNet.

    >>> nd.clip(nd.array([-1, 0.5, 9]), 0, 1).asnumpy().tolist()
    [0.0, 0.5, 1.0]
    """
    if a_min > a_max:
        top = clamped_scalars[xp][data.dtype][a_max]
        y = xp.where(data > top, top, maximum_scalar(xp, data, a_min))
        return place(xp, y, data.dtype, out)
    # Two ufuncs instead of xp.clip, which takes 2 us to choose the same two.
    return minimum_scalar(xp, maximum_scalar(xp, data, a_min, out), a_max, out)


clip.gradient("data")(lambda g, data, *, a_min, a_max: g * ((data >= a_min) * (data <= a_max)))


# -- Activation -----------------------------------------------------------------------------------


def _softrelu(xp: Any, data: Any, out: Any) -> Any:
    """log(1 + exp(x)) as max(x, 0) + log1p(exp(-|x|)), without overflow or loss of digits."""
    tail = xp.abs(data, out=xp.empty(data.shape, data.dtype))
    xp.negative(tail, out=tail)
    xp.exp(tail, out=tail)
    tail = _log1p_of_small(xp, tail)
    return xp.add(maximum_scalar(xp, data, 0, out), tail, out=out)


def _log1p_of_small(xp: Any, x: Any) -> Any:
    """log(1 + x) of x from 0 to 1, with full precision also near 0.

    NumPy computes log1p element by element, 15 ns each, while log takes 2 or 3. So this takes the
    logarithm of u = 1 + x and subtracts the rounding error of u, divided by u.
    """
    if xp is not np or x.dtype.char not in "fd":
        return xp.log1p(x)
    u = np.add(x, 1, out=np.empty_like(x))
    error = u - 1
    error -= x
    error /= u
    np.log(u, out=u)
    return np.subtract(u, error, out=u)


#: act_type -> the gradient as a function of g and the output.
_RULES: dict[str, Callable[..., Any]] = {
    "relu": relu_backward,
    "sigmoid": sigmoid_backward,
    "softrelu": lambda g, y: g * (1 - (-y).exp()),
    "softsign": lambda g, y: g * (1 - abs(y)) ** 2,  # 1 - |y| = 1 / (1 + |x|)
    "tanh": tanh_backward,
}


def _infer_activation(data: Spec, *, act_type: str) -> Spec:
    check_choice("act_type", act_type, tuple(_RULES))
    check_float(data)
    return data


@op(infer=_infer_activation, flops=8, elementwise=True)
def Activation(xp, data, *, act_type: str, out=None):
    """relu max(x, 0), sigmoid 1 / (1 + e^-x), tanh, softrelu log(1 + e^x), softsign x / (1 + |x|).

    Any shape, floating dtype, both kept. MXNetError at the call for another act_type. relu passes
    nan on (MXNet's Activation makes it 0, its nd.relu does not).
    """
    if act_type == "softrelu":
        return _softrelu(xp, data, out)
    return registry[act_type].compute(xp, data, out=out)


Activation.gradient("y")(lambda g, y, *, act_type: _RULES[act_type](g, y))


# -- LeakyReLU ------------------------------------------------------------------------------------

#: S. Klambauer et al., "Self-Normalizing Neural Networks" (2017).
SELU_ALPHA = 1.6732632423543772848170429916717
SELU_SCALE = 1.0507009873554804934193349852946


def _gamma_shape(data: Shape, gamma: Shape) -> Shape:
    """The shape in which prelu's slopes broadcast: one for all, or one per channel (axis 1)."""
    channel = 1 if len(data) > 1 else 0
    if np.prod(gamma) == 1:
        return (1,) * len(data)
    if len(data) and gamma in ((data[channel],), (1, data[channel])):
        return (1,) * channel + (data[channel],) + (1,) * (len(data) - channel - 1)
    raise MXNetError(
        f"gamma is {gamma}, need (1,) or one slope for each channel of data {data}, its axis "
        f"{channel}"
    )


def _infer_leaky(data: Spec, gamma: Spec | None = None, *, act_type: str, **_: Any) -> Spec:
    check_choice("act_type", act_type, ("elu", "gelu", "leaky", "prelu", "selu"))
    check_float(data, gamma)
    check_optional("gamma", gamma, act_type == "prelu", f"act_type={act_type!r}")
    if gamma is not None:
        _gamma_shape(data.shape, gamma.shape)
    return data


def _expm1_of_negative(x: Any) -> Any:
    """exp(x) - 1 of x up to 0: 2 t / (1 - t) with t = tanh(x / 2). NumPy computes expm1 element by
    element, five times as slowly as tanh."""
    t = tanh(x * 0.5)
    return (t + t) / (1 - t)


@composed(
    infer=_infer_leaky, flops=4, same_shape=("data",),
    optional=lambda attrs: ("gamma",) if attrs["act_type"] == "prelu" else (),
    initial={"gamma": ("Constant", {"value": 0.25})}, left_out=("lower_bound", "upper_bound"),
)  # fmt: skip
def LeakyReLU(data, gamma=None, *, act_type: str = "leaky", slope: float = 0.25):
    """Activations that are not zero for x < 0; for x > 0 all but selu and gelu give x.

    leaky    slope x                                     below zero
    prelu    gamma x, gamma a learnt input: (1,), or one per channel (axis 1)
    elu      slope (e^x - 1)
    selu     1.0507 (x, or 1.6733 (e^x - 1))             (Klambauer et al. 2017)
    gelu     x Phi(x), Phi the normal distribution's     (Hendrycks and Gimpel 2016)

    Any shape, floating dtype, both kept. MXNetError at the call for another act_type, such as
    MXNet's 'rrelu', or a gamma that is missing, unexpected, or of
    another shape. (The gradient of selu in MXNet 1.9 lacks a factor; here it is right.)
    """
    if act_type == "gelu":
        return data * ((registry["erf"](data * 0.5**0.5) + 1) * 0.5)  # 2 x may overflow
    below = minimum.scalar(data, scalar=0.0)
    if act_type == "selu":
        return (relu(data) + _expm1_of_negative(below) * SELU_ALPHA) * SELU_SCALE
    if act_type == "elu":
        return relu(data) + _expm1_of_negative(below) * slope
    factor: Any = slope
    if act_type == "prelu":
        factor = gamma.reshape(_gamma_shape(data.shape, gamma.shape))
    return relu(data) + below * factor


@LeakyReLU.infer_inputs
def _(given, out, attrs):
    data = given["data"]
    if attrs["act_type"] == "prelu" and data and given.get("gamma") is None:
        return {"gamma": (data[1] if len(data) > 1 else 1,)}
    return {}

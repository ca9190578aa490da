"""Softmax, related functions, and an output op with a built-in loss gradient.

>>> from d2lmini import nd
>>> nd.softmax(nd.array([[1, 1], [0, 1000]]))
<BLANKLINE>
[[0.5 0.5]
 [0.  1. ]]
<NDArray 2x2 @cpu(0)>

softmax(x)_i = exp(x_i) / sum_j exp(x_j) along an axis. Subtracting the largest x first does not
change the result and keeps exp from overflowing.

`SoftmaxOutput` comes from symbolic training: its forward gives the prediction; its backward gives
the gradient of a loss that is never computed, and ignores the arriving gradient. It ends a network
and needs no loss after it.
"""

from __future__ import annotations

from functools import partial
from math import prod
from typing import Any

from d2lmini.base import MXNetError
from d2lmini.ops.checks import check_choice, check_float, check_shape
from d2lmini.ops.composed import composed
from d2lmini.ops.core import Shape, Spec, normalize_axis, registry
from d2lmini.ops.reduce import reshape_to


def _infer_softmax(data: Spec, *, axis: int, temperature: float | None) -> Spec:
    check_float(data)
    normalize_axis(axis, len(data.shape))
    if temperature == 0:
        raise MXNetError("temperature must not be 0")
    return data


def _scaled(data: Any, scale: float) -> Any:
    return data if scale == 1 else data * scale


def below_largest(x: Any, axis: int) -> Any:
    """x minus its largest element along `axis`; this does not change the result."""
    if x.shape[axis] == 0:
        return x
    return x - registry["BlockGrad"](x.max(axis=axis, keepdims=True))


def _shares(x: Any, axis: int) -> Any:
    """exp(x) over its sum along `axis`."""
    e = below_largest(x, axis).exp()
    return e / e.sum(axis=axis, keepdims=True)


_softmax_op = partial(
    composed, infer=_infer_softmax, flops=5, same_shape=True,
    left_out=("length", "use_length", "dtype"),
)  # fmt: skip


@_softmax_op()
def softmax(data, *, axis: int = -1, temperature: float | None = None):
    """exp(data / temperature), divided by its sum along `axis`: positive numbers that add up to 1.

    Any shape, floating dtype; MXNetError at the call for others. Cost: about 5 FLOPs an element.

    >>> nd.softmax(nd.array([[0, 0], [2, 2]])).asnumpy().tolist()
    [[0.5, 0.5], [0.5, 0.5]]
    """
    return _shares(_scaled(data, 1 / (temperature or 1)), axis)


@_softmax_op()
def log_softmax(data, *, axis: int = -1, temperature: float | None = None):
    """log(softmax(data)), more accurate than the two steps; attributes as for `softmax`."""
    x = below_largest(_scaled(data, 1 / (temperature or 1)), axis)
    return x - x.exp().sum(axis=axis, keepdims=True).log()


@_softmax_op()
def softmin(data, *, axis: int = -1, temperature: float | None = None):
    """softmax(-data): the smallest element gets the largest share; attributes as for `softmax`."""
    return _shares(_scaled(data, -1 / (temperature or 1)), axis)


def _softmax_gradient(g: Any, y: Any, axis: int, scale: float) -> Any:
    return _scaled(y * (g - (g * y).sum(axis=axis, keepdims=True)), scale)


@softmax.gradient(saves="y")
def _(g, y, *, axis, temperature):
    return _softmax_gradient(g, y, axis, 1 / (temperature or 1))


@softmin.gradient(saves="y")
def _(g, y, *, axis, temperature):
    return _softmax_gradient(g, y, axis, -1 / (temperature or 1))


@log_softmax.gradient(saves="y")
def _(g, y, *, axis, temperature):
    return _scaled(g - y.exp() * g.sum(axis=axis, keepdims=True), 1 / (temperature or 1))


# -- SoftmaxOutput --------------------------------------------------------------------------------


def _infer_softmax_output(
    data: Spec, label: Spec, *, multi_output: bool, normalization: str, **_: Any
) -> Spec:  # fmt: skip
    check_float(data, label)
    check_choice("normalization", normalization, ("null", "batch", "valid"))
    shape = data.shape
    if not shape or (multi_output and len(shape) < 2):
        raise MXNetError(f"data needs more axes, got {shape}")
    if multi_output:
        rest = shape[2:]
        labels = [(shape[0], *rest), (shape[0], 1, *rest), (shape[0], prod(rest))]
    else:
        labels = [shape[:-1], shape[:1]]
    check_shape("label", label, shape, *labels, why="probabilities like data, or class numbers")
    return data


def _view_of_classes(shape: Shape, multi_output: bool) -> Shape:
    """The shape with the classes on axis 1: (instances, classes, places)."""
    if multi_output:
        return (shape[0], shape[1], prod(shape[2:]))
    return (shape[0], prod(shape[1:]), 1)


@composed(
    aliases=["Softmax"], infer=_infer_softmax_output, flops=5, is_loss=True, mixed_dtypes=True,
    same_shape=("data",), constants=("label",),
    left_out=("preserve_shape", "out_grad", "smooth_alpha"),
)  # fmt: skip
def SoftmaxOutput(
    data, label, *, grad_scale: float = 1.0, ignore_label: float = -1.0,
    multi_output: bool = False, use_ignore: bool = False, normalization: str = "null",
):  # fmt: skip
    """softmax(data) forward, the gradient of its cross-entropy with `label` backward.

    The classes are all axes but the first, merged; with multi_output axis 1. label holds class
    numbers (a number outside means no class), or probabilities of data's shape. Class numbers have
    data's shape without the axis of the classes. Where classes are merged, they may have data's
    shape without the last axis, as in MXNet: the first of them count.

    Backward ignores the arriving gradient:
        (softmax(data) - one_hot(label)) * grad_scale / m
    m is 1, or with multi_output the number of places of an instance; normalization 'batch'
    multiplies m by the number of instances, 'valid' by the number of labels other than
    ignore_label. With use_ignore such labels give a zero gradient. For probabilities m is 1 and
    nothing is ignored. The label gets no gradient. After MXNet's
    SoftmaxOutput.
    """
    view = _view_of_classes(data.shape, multi_output)
    return reshape_to(softmax(reshape_to(data, view), axis=1), data.shape)


@SoftmaxOutput.gradient(saves="y label")
def _(
    g, y, label, *, grad_scale, ignore_label, multi_output, use_ignore, normalization
):  # fmt: skip
    shape, label_shape = y.shape, label.shape
    label = label.astype(y.dtype, copy=False)
    if label_shape == shape:
        return (y - label) * grad_scale, None
    I, K, P = view = _view_of_classes(shape, multi_output)
    label = label.reshape((-1,)).slice_axis(0, 0, I * P).reshape((I, P)).trunc()
    target = registry["one_hot"](label, depth=K, dtype=y.dtype).swapaxes(1, 2)  # (I, K, P)
    dx = y.reshape(view) - target
    counted = label != int(ignore_label)
    if use_ignore:
        dx = dx * counted.reshape((I, 1, P))
    if normalization == "valid":
        dx = dx * (grad_scale / counted.sum().clip(1, I * P)).reshape((1, 1, 1))
    else:
        places = P if multi_output else 1
        dx = dx * (grad_scale / (prod(label_shape) if normalization == "batch" else places))
    return dx.reshape(shape), None


@SoftmaxOutput.infer_inputs
def _(given, out, attrs):
    data = given["data"]
    if not data or given["label"] is not None:
        return {}
    return {"label": (data[0], *data[2:]) if attrs["multi_output"] else data[:-1]}

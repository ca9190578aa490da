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

from math import inf, prod
from typing import Any

import numpy as np

from d2lmini.base import MXNetError
from d2lmini.ops.checks import check_choice, check_float, check_optional, check_shape
from d2lmini.ops.composed import composed
from d2lmini.ops.core import DType, Shape, Spec, normalize_axis, registry, with_axis
from d2lmini.ops.identity import where
from d2lmini.ops.reduce import reshape_to
from d2lmini.ops.shape import arange_like

at_least = registry["_maximum_scalar"]


def _infer_softmax(
    data: Spec, length: Spec | None = None, *, axis: int, temperature: float | None, dtype: Any,
    use_length: bool | None,
) -> Spec:  # fmt: skip
    check_float(data)
    axis = normalize_axis(axis, len(data.shape))
    check_optional("length", length, bool(use_length), f"use_length={bool(use_length)}")
    if temperature == 0:
        raise MXNetError("temperature must not be 0")
    if length is not None:
        if length.dtype.kind not in "iu":
            raise MXNetError(f"length must be integers, got {length.dtype.name}")
        check_shape("length", length, with_axis(data.shape, axis))
    dtype = data.dtype if dtype is None else dtype
    check_float(Spec(data.shape, dtype))
    return Spec(data.shape, dtype)


def _infer_plain(data: Spec, *, use_length: bool | None, **attrs: Any) -> Spec:
    if use_length:
        raise MXNetError("use_length is not supported here; use nd.softmax and take the logarithm")
    return _infer_softmax(data, use_length=False, **attrs)


def _scaled(data: Any, scale: float, dtype: Any) -> Any:
    """scale data, computed in data's dtype or in `dtype`, whichever is more exact."""
    if dtype is not None:
        data = data.astype(np.result_type(dtype, data.dtype), copy=False)
    return data if scale == 1 else data * scale


def _cast(y: Any, dtype: Any) -> Any:
    return y if dtype is None else y.astype(dtype, copy=False)


def below_largest(x: Any, axis: int) -> Any:
    """x minus its largest element along `axis`; this does not change the result."""
    if x.shape[axis] == 0:
        return x
    return x - registry["BlockGrad"](x.max(axis=axis, keepdims=True))


def _shares(x: Any, axis: int) -> Any:
    """exp(x) over its sum along `axis`."""
    e = below_largest(x, axis).exp()
    return e / e.sum(axis=axis, keepdims=True)


@composed(
    infer=_infer_softmax, flops=5, same_shape=("data",), free_dtypes=("length",),
    presumed_dtypes={"length": "int32"},
    optional=lambda attrs: ("length",) if attrs["use_length"] else (), constants=("length",),
)  # fmt: skip
def softmax(
    data, length=None, *, axis: int = -1, temperature: float | None = None,
    dtype: DType | None = None, use_length: bool | None = False,
):  # fmt: skip
    """exp(x / temperature), divided by its sum along `axis`: positive numbers that add up to 1.

    Any shape, floating dtype; `dtype` is the result's. With use_length, `length` (integers, of
    data's shape without that axis) is the number of valid elements; the others become 0.
    MXNetError at the call for axis, dtypes, length. Cost: about 5 FLOPs an element.

    >>> nd.softmax(nd.array([[0, 0], [2, 2]])).asnumpy().tolist()
    [[0.5, 0.5], [0.5, 0.5]]
    """
    x = _scaled(data, 1 / (temperature or 1), dtype)
    if length is None or not x.shape[axis]:
        return _cast(_shares(x, axis), dtype)
    limits = np.finfo(x.dtype)
    valid = _is_valid(x, length, axis)
    x = where(valid, x, x.zeros_like() - inf)
    # Of a row without valid elements the largest is -inf, and the sum is 0.
    e = (x - at_least(x.max(axis=axis, keepdims=True), scalar=float(limits.min))).exp()
    total = at_least(e.sum(axis=axis, keepdims=True), scalar=float(limits.tiny))
    return _cast(e / total, dtype)


def _is_valid(x: Any, length: Any, axis: int) -> Any:
    """1 at the places along `axis` before `length`, else 0."""
    axis %= x.ndim
    places = arange_like(x, axis=axis).reshape((-1,) + (1,) * (x.ndim - 1 - axis))
    return (places < length.astype(x.dtype).expand_dims(axis)).broadcast_to(x.shape)


@softmax.infer_inputs
def _(given, out, attrs):
    data = given["data"]
    if not data:
        return {}
    return {"length": with_axis(data, normalize_axis(attrs["axis"], len(data))) or None}


@composed(infer=_infer_plain, flops=5, same_shape=True)
def log_softmax(
    data, *, axis: int = -1, temperature: float | None = None, dtype: DType | None = None,
    use_length: bool | None = False,
):  # fmt: skip
    """log(softmax(data)), more accurate than the two steps; attributes as for `softmax`."""
    x = below_largest(_scaled(data, 1 / (temperature or 1), dtype), axis)
    return _cast(x - x.exp().sum(axis=axis, keepdims=True).log(), dtype)


@composed(infer=_infer_plain, flops=5, same_shape=True)
def softmin(
    data, *, axis: int = -1, temperature: float | None = None, dtype: DType | None = None,
    use_length: bool | None = False,
):  # fmt: skip
    """softmax(-data): the smallest element gets the largest share; attributes as for `softmax`."""
    return _cast(_shares(_scaled(data, -1 / (temperature or 1), dtype), axis), dtype)


def _softmax_gradient(g: Any, y: Any, axis: int, scale: float = 1, dtype: Any = None) -> Any:
    dx = y * (g - (g * y).sum(axis=axis, keepdims=True))
    return _cast(dx if scale == 1 else dx * scale, dtype)


@softmax.gradient(saves="y data.dtype")
def _(g, y, dtype, *, axis, temperature):
    return _softmax_gradient(g, y, axis, 1 / (temperature or 1), dtype), None


@softmin.gradient(saves="y data.dtype")
def _(g, y, dtype, *, axis, temperature):
    return _softmax_gradient(g, y, axis, -1 / (temperature or 1), dtype)


@log_softmax.gradient(saves="y data.dtype")
def _(g, y, dtype, *, axis, temperature):
    dx = g - y.exp() * g.sum(axis=axis, keepdims=True)
    return _cast(dx if temperature in (None, 1) else dx * (1 / temperature), dtype)


# -- SoftmaxOutput --------------------------------------------------------------------------------


def _infer_softmax_output(
    data: Spec, label: Spec, *, multi_output: bool, preserve_shape: bool, normalization: str,
    **_: Any,
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
        labels = [shape[:-1]] if preserve_shape else [shape[:-1], shape[:1]]
    check_shape("label", label, shape, *labels, why="probabilities like data, or class numbers")
    return data


def _view_of_classes(shape: Shape, multi_output: bool, preserve_shape: bool) -> Shape:
    """The shape with the classes on axis 1: (instances, classes, places)."""
    if multi_output:
        return (shape[0], shape[1], prod(shape[2:]))
    if preserve_shape:
        return (prod(shape[:-1]), shape[-1], 1)
    return (shape[0], prod(shape[1:]), 1)


@composed(
    aliases=["Softmax"], infer=_infer_softmax_output, flops=5, is_loss=True, mixed_dtypes=True,
    same_shape=("data",), constants=("label",),
)  # fmt: skip
def SoftmaxOutput(
    data, label, *, grad_scale: float = 1.0, ignore_label: float = -1.0,
    multi_output: bool = False, use_ignore: bool = False, preserve_shape: bool = False,
    normalization: str = "null", out_grad: bool = False, smooth_alpha: float = 0.0,
):  # fmt: skip
    """softmax(data) forward, the gradient of its cross-entropy with `label` backward.

    The classes are all axes but the first, merged; with preserve_shape the last axis; with
    multi_output axis 1. label holds class numbers (a number outside means no class), or
    probabilities of data's shape. Class numbers have data's shape without the axis of the classes.
    Where classes are merged, they may have data's shape without the last axis, as in MXNet: the
    first of them count.

    Backward ignores the arriving gradient (with out_grad it is a factor):
        (softmax(data) - one_hot(label)) * grad_scale / m
    m is 1, or with multi_output the number of places of an instance; normalization 'batch'
    multiplies m by the number of instances, 'valid' by the number of labels other than
    ignore_label. With use_ignore such labels give a zero gradient. smooth_alpha moves that much
    probability from the label's class to the other classes, equally (not with multi_output). For
    probabilities m is 1 and nothing is ignored. The label gets no gradient. After MXNet's
    SoftmaxOutput.
    """
    view = _view_of_classes(data.shape, multi_output, preserve_shape)
    return reshape_to(softmax(reshape_to(data, view), axis=1), data.shape)


@SoftmaxOutput.gradient(saves="y label")
def _(
    g, y, label, *, grad_scale, ignore_label, multi_output, use_ignore,
    preserve_shape, normalization, out_grad, smooth_alpha,
):  # fmt: skip
    shape, label_shape = y.shape, label.shape
    label = label.astype(y.dtype, copy=False)
    if label_shape == shape:
        dx = (y - label) * grad_scale
        return (dx * g if out_grad else dx), None
    I, K, P = view = _view_of_classes(shape, multi_output, preserve_shape)
    label = label.reshape((-1,)).slice_axis(0, 0, I * P).reshape((I, P)).trunc()
    target = registry["one_hot"](label, depth=K, dtype=y.dtype).swapaxes(1, 2)  # (I, K, P)
    if smooth_alpha and not multi_output:
        share = smooth_alpha / max(K - 1, 1)
        target = target * (1 - smooth_alpha - share) + share
    dx = y.reshape(view) - target
    counted = label != int(ignore_label)
    if use_ignore:
        dx = dx * counted.reshape((I, 1, P))
    if normalization == "valid":
        dx = dx * (grad_scale / counted.sum().clip(1, I * P)).reshape((1, 1, 1))
    else:
        places = P if multi_output else 1
        dx = dx * (grad_scale / (prod(label_shape) if normalization == "batch" else places))
    dx = dx.reshape(shape)
    return (dx * g if out_grad else dx), None


@SoftmaxOutput.infer_inputs
def _(given, out, attrs):
    data = given["data"]
    if not data or given["label"] is not None:
        return {}
    return {"label": (data[0], *data[2:]) if attrs["multi_output"] else data[:-1]}

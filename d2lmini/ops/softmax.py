"""Softmax, related functions, and output ops with built-in loss gradients.

>>> from d2lmini import nd
>>> nd.softmax(nd.array([[1, 1], [0, 1000]]))
<BLANKLINE>
[[0.5 0.5]
 [0.  1. ]]
<NDArray 2x2 @cpu(0)>

softmax(x)_i = exp(x_i) / sum_j exp(x_j) along an axis. Subtracting the largest x first does not
change the result and keeps exp from overflowing.

`SoftmaxOutput`, `LinearRegressionOutput`, ... come from symbolic training: their forward gives the
prediction; their backward gives the gradient of a loss that is never computed, and ignores the
arriving gradient. They end a network and need no loss after them.
"""

from __future__ import annotations

from functools import partial
from math import prod
from typing import Any

from d2lmini.base import MXNetError
from d2lmini.ops.checks import check_choice, check_float, check_optional, check_shape
from d2lmini.ops.chunking import share
from d2lmini.ops.core import (
    DType,
    Shape,
    Spec,
    as_three_axes,
    normalize_axis,
    op,
    registry,
    with_axis,
)

#: Rows are processed in groups of about this many elements, which stay in the cache from the search
#: for the maximum to the final division.
GRAIN = 1 << 17


def _softmax(xp: Any, x: Any, scale: float, log: bool, mask: Any, y: Any) -> None:
    """Along axis 1 of (rows, n, columns) into y: softmax(scale x), or its logarithm."""
    if scale != 1.0:
        x = xp.multiply(x, y.dtype.type(scale), out=y)
    if mask is not None:
        x = xp.where(mask, -xp.inf, x)
        largest = x.max(axis=1, keepdims=True)
        # A completely masked row: exp(-inf - 0) = 0 everywhere.
        largest = xp.where(largest == -xp.inf, 0, largest)
    else:
        largest = x.max(axis=1, keepdims=True)
    xp.subtract(x, largest, out=y)
    if log:
        y -= xp.log(xp.exp(y).sum(axis=1, keepdims=True))
        return
    xp.exp(y, out=y)
    total = y.sum(axis=1, keepdims=True)
    y /= total if mask is None else xp.maximum(total, xp.finfo(y.dtype).tiny)


def softmax_along(
    xp: Any, x: Any, axis: int, out: Any = None, *, scale: float = 1.0, log: bool = False,
    length: Any = None, dtype: Any = None,
) -> Any:  # fmt: skip
    """softmax(scale x) along an axis, on arrays; float16 is computed in float32."""
    dtype = dtype or x.dtype
    if out is None:
        out = xp.empty(x.shape, dtype)
    if x.size == 0:
        return out
    wide = "float32" if dtype.itemsize == 2 or x.dtype.itemsize == 2 else dtype
    wide = xp.result_type(wide, x.dtype)
    rows, n, _ = as_three_axes(x.shape, axis)
    x, y = x.reshape(rows, n, -1), out.reshape(rows, n, -1)
    if length is not None:
        length = length.reshape(rows, 1, -1)

    def body(part: slice) -> None:
        mask = None if length is None else xp.arange(n)[:, None] >= length[part]
        if x.dtype == y.dtype == wide:
            _softmax(xp, x[part], scale, log, mask, y[part])
            return
        result = xp.empty(y[part].shape, wide)
        _softmax(xp, x[part].astype(wide), scale, log, mask, result)
        y[part] = result

    share(xp, rows, min(rows, x.size // GRAIN), body)
    return out


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


@op(
    infer=_infer_softmax, flops=5, same_shape=("data",), free_dtypes=("length",),
    presumed_dtypes={"length": "int32"},
    optional=lambda attrs: ("length",) if attrs["use_length"] else (),
)  # fmt: skip
def softmax(
    xp, data, length=None, *, axis: int = -1, temperature: float | None = None,
    dtype: DType | None = None, use_length: bool | None = False, out=None,
):  # fmt: skip
    """exp(x / temperature), divided by its sum along `axis`: positive numbers that add up to 1.

    Any shape, floating dtype; `dtype` is the result's. With use_length, `length` (integers, of
    data's shape without that axis) is the number of valid elements; the others become 0.
    MXNetError at the call for axis, dtypes, length. Cost: about 5 FLOPs an element.

    >>> nd.softmax(nd.array([[0, 0], [2, 2]])).asnumpy().tolist()
    [[0.5, 0.5], [0.5, 0.5]]
    """
    return softmax_along(
        xp, data, axis, out, scale=1 / (temperature or 1), length=length, dtype=dtype
    )


@softmax.infer_inputs
def _(given, out, attrs):
    data = given["data"]
    if not data:
        return {}
    return {"length": with_axis(data, normalize_axis(attrs["axis"], len(data))) or None}


@op(infer=_infer_plain, flops=5, same_shape=True)
def log_softmax(
    xp, data, *, axis: int = -1, temperature: float | None = None, dtype: DType | None = None,
    use_length: bool | None = False, out=None,
):  # fmt: skip
    """log(softmax(data)), more accurate than the two steps; attributes as for `softmax`."""
    return softmax_along(xp, data, axis, out, scale=1 / (temperature or 1), log=True, dtype=dtype)


@op(infer=_infer_plain, flops=5, same_shape=True)
def softmin(
    xp, data, *, axis: int = -1, temperature: float | None = None, dtype: DType | None = None,
    use_length: bool | None = False, out=None,
):  # fmt: skip
    """softmax(-data): the smallest element gets the largest share; attributes as for `softmax`."""
    return softmax_along(xp, data, axis, out, scale=-1 / (temperature or 1), dtype=dtype)


def _softmax_gradient(g: Any, y: Any, axis: int, scale: float, dtype: Any, target: Any) -> Any:
    dx = y * (g - (g * y).sum(axis=axis, keepdims=True))
    dx = dx if scale == 1.0 else dx * scale
    return dx if dtype is None else dx.astype(target)


@softmax.gradient(saves="y data.dtype")
def _(g, y, target, *, axis, temperature, dtype):
    return _softmax_gradient(g, y, axis, 1 / (temperature or 1), dtype, target)


@softmin.gradient(saves="y data.dtype")
def _(g, y, target, *, axis, temperature, dtype):
    return _softmax_gradient(g, y, axis, -1 / (temperature or 1), dtype, target)


@log_softmax.gradient(saves="y data.dtype")
def _(g, y, target, *, axis, temperature, dtype):
    dx = g - y.exp() * g.sum(axis=axis, keepdims=True)
    dx = dx if temperature in (None, 1.0) else dx * (1 / temperature)
    return dx if dtype is None else dx.astype(target)


def _infer_softmax_activation(data: Spec, *, mode: str) -> Spec:
    check_choice("mode", mode, ("instance", "channel"))
    check_float(data)
    if len(data.shape) < (3 if mode == "channel" else 1):
        raise MXNetError(f"mode={mode!r} needs more axes, got {data.shape}")
    return data


@op(infer=_infer_softmax_activation, flops=5, same_shape=True)
def SoftmaxActivation(xp, data, *, mode: str = "instance", out=None):
    """softmax along the last axis, or with mode 'channel' along axis 1. Old; use `softmax`."""
    return softmax_along(xp, data, 1 if mode == "channel" else -1, out)


@SoftmaxActivation.gradient(saves="y")
def _(g, y, *, mode):
    return _softmax_gradient(g, y, 1 if mode == "channel" else -1, 1.0, None, None)


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


@op(
    aliases=["Softmax"], infer=_infer_softmax_output, flops=5, is_loss=True, mixed_dtypes=True,
    same_shape=("data",),
)  # fmt: skip
def SoftmaxOutput(
    xp, data, label, *, grad_scale: float = 1.0, ignore_label: float = -1.0,
    multi_output: bool = False, use_ignore: bool = False, preserve_shape: bool = False,
    normalization: str = "null", out_grad: bool = False, smooth_alpha: float = 0.0, out=None,
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
    place = None if out is None else out.reshape(view)
    return softmax_along(xp, data.reshape(view), 1, place).reshape(data.shape)


@SoftmaxOutput.gradient(saves="y y.shape data.dtype label label.shape")
def _(
    g, y, shape, dtype, label, label_shape, *, grad_scale, ignore_label, multi_output, use_ignore,
    preserve_shape, normalization, out_grad, smooth_alpha,
):  # fmt: skip
    if label_shape == shape:
        dx = (y - label) * grad_scale
        return (dx * g if out_grad else dx), None
    I, K, P = view = _view_of_classes(shape, multi_output, preserve_shape)
    label = label.reshape((-1,))[: I * P].reshape((I, P)).trunc()
    target = registry["one_hot"](label, depth=K, dtype=dtype).swapaxes(1, 2)  # (I, K, P)
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


def _infer_cross_entropy(data: Spec, label: Spec) -> Spec:
    check_float(data, label)
    if len(data.shape) != 2:
        raise MXNetError(f"data must be (N, classes), got {data.shape}")
    check_shape("label", label, data.shape[:1])
    return Spec((1,), data.dtype)


@op(
    infer=_infer_cross_entropy, flops=lambda data, label, *, out: 5.0 * data.size,
    mixed_dtypes=True,
)  # fmt: skip
def softmax_cross_entropy(xp, data, label):
    """Sum over the rows of -log(softmax(data)[label]): (N, classes), (N,) -> (1,).

    label has data's dtype; numbers outside are clipped. (MXNet bounds each term at 18.42, which is
    -log(1e-8); here it is exact.)
    """
    places = xp.clip(label, 0, data.shape[1] - 1).astype("int64")[:, None]
    picked = xp.take_along_axis(softmax_along(xp, data, 1, log=True), places, 1)
    return -picked.sum().reshape(1)


@softmax_cross_entropy.gradient(saves="data data.shape data.dtype label")
def _(g, data, shape, dtype, label):
    label = label.clip(0, shape[1] - 1)
    return g * (softmax(data) - registry["one_hot"](label, depth=shape[1], dtype=dtype)), None


# -- regression outputs ---------------------------------------------------------------------------


def _infer_regression(data: Spec, label: Spec, **_: Any) -> Spec:
    check_float(data, label)
    shapes = [data.shape]
    if len(data.shape) > 1 and prod(data.shape[1:]) == 1:
        shapes.append(data.shape[:1])
    check_shape("label", label, *shapes, why="the shape of data")
    return data


def _per_instance(shape: Shape, grad_scale: float) -> float:
    """grad_scale over the number of outputs of one instance."""
    return grad_scale / max(prod(shape[1:]), 1)


_regression = partial(
    op, infer=_infer_regression, is_loss=True, mixed_dtypes=True, same_shape=("data",)
)


@_regression(flops=0)
def LinearRegressionOutput(xp, data, label, *, grad_scale: float = 1.0, out=None):
    """data forward; backward (data - label) * grad_scale / m, the gradient of half the squared
    error, with m outputs per instance. Backward ignores the arriving gradient."""
    return xp.positive(data, out=out)


@_regression(flops=0)
def MAERegressionOutput(xp, data, label, *, grad_scale: float = 1.0, out=None):
    """data forward; backward sign(data - label) * grad_scale / m: gradient of the absolute error.
    As in MXNet the sign is -1 where data equals label.
    """
    return xp.positive(data, out=out)


@MAERegressionOutput.gradient(saves="y y.shape label")
def _(g, y, shape, label, *, grad_scale):
    return ((y > label.reshape(shape)) * 2 - 1) * _per_instance(shape, grad_scale), None


@_regression(flops=8)
def LogisticRegressionOutput(xp, data, label, *, grad_scale: float = 1.0, out=None):
    """sigmoid(data) forward; backward (sigmoid(data) - label) * grad_scale / m: the gradient of the
    cross-entropy of a binary prediction."""
    return registry["sigmoid"].compute(xp, data, out=out)


@LinearRegressionOutput.gradient(saves="y y.shape label")
@LogisticRegressionOutput.gradient(saves="y y.shape label")
def _(g, y, shape, label, *, grad_scale):
    return (y - label.reshape(shape)) * _per_instance(shape, grad_scale), None


@LinearRegressionOutput.infer_inputs
@MAERegressionOutput.infer_inputs
@LogisticRegressionOutput.infer_inputs
def _(given, out, attrs):
    data = given["data"]
    if not data or given["label"] is not None:
        return {}
    return {"label": data[:1] if len(data) == 2 and data[1] == 1 else data}

"""Softmax, related functions and losses.

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

The losses of classification and of regression are an op each:

>>> scores = nd.array([[1000, 0], [0, 0]])
>>> nd._internal._softmax_cross_entropy(scores, nd.array([1, 0]))
<BLANKLINE>
[1.000000e+03 6.931472e-01]
<NDArray 2 @cpu(0)>

For scores x and a class c, or probabilities t,

    l = log(sum exp x) - x_c                           l = sum(t) log(sum exp x) - sum(t x)

`gluon.loss.SoftmaxCrossEntropyLoss` is this with a mean and a weight. One op for all keeps only
scores and labels for backward. `_squared_error` is `gluon.loss.L2Loss`: as separate ops
(difference, square, factor, mean) it would take more time in a step of a small network than the
matrix products.
"""

from __future__ import annotations

from functools import partial
from math import prod
from typing import Any

from d2lmini.base import MXNetError
from d2lmini.ops.checks import check_axes, check_float, check_numbers, check_shape
from d2lmini.ops.composed import composed
from d2lmini.ops.core import Shape, Spec, normalize_axis, registry, with_axis
from d2lmini.ops.index import pick
from d2lmini.ops.reduce import reshape_to
from d2lmini.ops.shape import reshape_like


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


def _gradient_of_shares(sign: int) -> Any:
    def rule(g, y, *, axis, temperature):
        slope = y * (g - (g * y).sum(axis=axis, keepdims=True))
        return _scaled(slope, sign / (temperature or 1))

    return rule


softmax.gradient("y")(_gradient_of_shares(1))
softmin.gradient("y")(_gradient_of_shares(-1))


@log_softmax.gradient(saves="y")
def _(g, y, *, axis, temperature):
    return _scaled(g - y.exp() * g.sum(axis=axis, keepdims=True), 1 / (temperature or 1))


# -- SoftmaxOutput --------------------------------------------------------------------------------


def _infer_softmax_output(data: Spec, label: Spec, **_: Any) -> Spec:
    check_float(data, label)
    shape = data.shape
    check_axes(data, 1, "one axis or more")
    why = "probabilities like data, or class numbers"
    check_shape("label", label, shape, shape[:-1], shape[:1], why=why)
    return data


def _rows(shape: Shape) -> Shape:
    """The shape with an instance in each row: all classes are merged."""
    return shape[0], prod(shape[1:])


@composed(
    aliases=["Softmax"], infer=_infer_softmax_output, flops=5, is_loss=True, mixed_dtypes=True,
    same_shape=("data",), constants=("label",),
    left_out=(
        "ignore_label", "multi_output", "use_ignore", "preserve_shape", "normalization", "out_grad",
        "smooth_alpha",
    ),
)  # fmt: skip
def SoftmaxOutput(data, label, *, grad_scale: float = 1.0):
    """softmax(data) forward, the gradient of its cross-entropy with `label` backward.

    The classes are all axes but the first, merged. label (N,) holds class numbers (a number outside
    means no class), or probabilities of data's shape. Class numbers may also have data's shape
    without the last axis, as in MXNet: the first of them count.

    Backward ignores the arriving gradient: it gives (softmax(data) - one_hot(label)) * grad_scale.
    The label gets no gradient. After MXNet's SoftmaxOutput.
    """
    return reshape_to(softmax(reshape_to(data, _rows(data.shape)), axis=1), data.shape)


@SoftmaxOutput.gradient(saves="y label")
def _(g, y, label, *, grad_scale):
    label = label.astype(y.dtype, copy=False)
    if label.shape == y.shape:
        return (y - label) * grad_scale, None
    N, K = rows = _rows(y.shape)
    classes = label.reshape((-1,)).slice_axis(0, 0, N).trunc()
    target = registry["one_hot"](classes, depth=K, dtype=y.dtype)
    return ((y.reshape(rows) - target) * grad_scale).reshape(y.shape), None


SoftmaxOutput.infer_inputs(
    lambda given, out, attrs: {"label": given["label"] or (given["data"] and given["data"][:-1])}
)


def _infer_cross_entropy(
    data: Spec, label: Spec, *, axis: int, sparse_label: bool, batch_axis: int, scale: float
) -> Spec:
    check_float(data)
    axis = normalize_axis(axis, len(data.shape))
    batch_axis = normalize_axis(batch_axis, len(data.shape), "batch_axis")
    if sparse_label:
        dropped = with_axis(data.shape, axis) or (1,)
        why = f"a class number for each place of data {data.shape} without axis {axis}"
        check_shape("label", label, dropped, with_axis(data.shape, axis, 1), why=why)
        if data.shape[axis] == 0 and label.size:
            raise MXNetError(f"data {data.shape} has no classes along axis {axis}")
    else:
        check_float(data, label)
        if label.size != data.size:
            raise MXNetError(f"label is {label.shape}, need {data.shape}: probabilities like data")
    return Spec((with_axis(data.shape, axis, 1)[batch_axis],), data.dtype)


@composed(
    "_softmax_cross_entropy", infer=_infer_cross_entropy, mixed_dtypes=True,
    flops=lambda data, label, **_: 5.0 * data.size,
    constants=lambda attrs: ("label",) if attrs["sparse_label"] else (),
)  # fmt: skip
def softmax_cross_entropy_mean(
    data, label, *, axis: int = -1, sparse_label: bool = True, batch_axis: int = 0,
    scale: float = 1.0,
):  # fmt: skip
    """scale times the mean of -log softmax(data)[label] over each example: (N, ...) -> (N,).

    Classes are along `axis`, examples along `batch_axis`. label holds class numbers of any dtype,
    in data's shape without `axis` (or with 1 there), clipped to the classes; or with sparse_label
    False probabilities of data's shape and dtype. float16 is computed in float32.
    MXNetError at the call for axes, shapes, dtypes.
    """
    kept = with_axis(data.shape, axis, 1)
    x = below_largest(data, axis)
    logarithm = x.exp().sum(axis=axis, keepdims=True).log()
    if sparse_label:
        losses = logarithm - pick(x, reshape_to(label, kept), axis=axis, keepdims=True)
    else:
        losses = (reshape_to(label, data.shape) * (logarithm - x)).sum(axis=axis, keepdims=True)
    n = kept[batch_axis]
    if prod(kept) > n:
        losses = losses.sum(axis=batch_axis, exclude=True, keepdims=True)
    return reshape_to(losses * (scale * n / max(prod(kept), 1)), (n,))


@softmax_cross_entropy_mean.written_in_mxnet
def _(data, label, *, axis, sparse_label, batch_axis, scale):
    p = log_softmax(data, axis=axis)
    if sparse_label:
        taken = pick(p, label, axis=axis, keepdims=True)
    else:
        products = registry["elemwise_mul"](p, reshape_like(label, p))
        taken = products.sum(axis=axis, keepdims=True)
    return (taken * -scale).mean(axis=batch_axis, exclude=True)


# -- squared error --------------------------------------------------------------------------------


def _infer_squared_error(pred: Spec, label: Spec, *, scale: float, batch_axis: int) -> Spec:
    check_numbers(pred, label)
    if label.size != pred.size:
        raise MXNetError(
            f"cannot reshape label {label.shape} into {pred.shape}, the shape of pred: they have "
            f"{label.size} and {pred.size} elements"
        )
    return Spec(
        (pred.shape[normalize_axis(batch_axis, len(pred.shape), "batch_axis")],), pred.dtype
    )


@composed(
    "_squared_error", infer=_infer_squared_error, flops=lambda pred, label, **_: 3.0 * pred.size
)
def squared_error(pred, label, *, scale: float = 1.0, batch_axis: int = 0):
    """scale times the mean of (pred - label)^2 over each example: (N, ...) -> (N,).

    label has as many elements as pred, in any shape, and the same dtype, which is kept; float16 is
    computed in float32, integers in float64. MXNetError at the call for sizes, dtypes, axis.
    """
    dtype = pred.dtype
    if pred._spec.dtype.kind != "f":
        pred, label = pred.astype("float64"), label.astype("float64")
    difference = pred - reshape_to(label, pred.shape)
    total = (difference * difference).sum(axis=batch_axis, exclude=True)
    factor = scale * pred.shape[batch_axis] / max(prod(pred.shape), 1)
    return (total * factor).astype(dtype, copy=False)


@squared_error.written_in_mxnet
def _(pred, label, *, scale, batch_axis):
    difference = registry["elemwise_sub"](pred, reshape_like(label, pred))
    return (difference.square() * scale).mean(axis=batch_axis, exclude=True)

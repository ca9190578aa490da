"""The losses of classification and of regression: softmax cross-entropy and the squared error.

>>> from d2lmini import nd
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

from math import prod
from typing import Any

from d2lmini.base import MXNetError
from d2lmini.ops.checks import check_float, check_numbers, check_one_dtype, check_shape
from d2lmini.ops.composed import composed
from d2lmini.ops.core import Spec, normalize_axis, registry, with_axis
from d2lmini.ops.index import pick
from d2lmini.ops.reduce import reshape_to
from d2lmini.ops.shape import reshape_like
from d2lmini.ops.softmax import below_largest, log_softmax


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


def _flops(data: Spec, label: Spec, **_: Any) -> float:
    return 5.0 * data.size


@composed(
    "_softmax_cross_entropy", infer=_infer_cross_entropy, flops=_flops, mixed_dtypes=True,
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
    check_numbers(pred)
    check_one_dtype(pred, label)
    if label.size != pred.size:
        raise MXNetError(
            f"cannot reshape label {label.shape} into {pred.shape}, the shape of pred: they have "
            f"{label.size} and {pred.size} elements"
        )
    return Spec(
        (pred.shape[normalize_axis(batch_axis, len(pred.shape), "batch_axis")],), pred.dtype
    )


@composed(
    "_squared_error",
    infer=_infer_squared_error,
    flops=lambda pred, label, *, out, **_: 3.0 * pred.size,
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

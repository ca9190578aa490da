"""The squared error of predictions and labels: the loss of regression.

>>> from d2lmini import nd
>>> pred, label = nd.array([[1, 3], [0, 0]]), nd.zeros((2, 2))
>>> nd._internal._squared_error(pred, label, scale=0.5)
<BLANKLINE>
[2.5 0. ]
<NDArray 2 @cpu(0)>

This is `gluon.loss.L2Loss`: as separate ops (difference, square, factor, mean) it would take more
time in a step of a small network than the matrix products.
"""

from __future__ import annotations

from math import prod

from d2lmini.base import MXNetError
from d2lmini.ops.checks import check_numbers, check_one_dtype
from d2lmini.ops.composed import composed
from d2lmini.ops.core import Spec, normalize_axis, registry
from d2lmini.ops.reduce import reshape_to
from d2lmini.ops.shape import reshape_like


def _infer(pred: Spec, label: Spec, *, scale: float, batch_axis: int) -> Spec:
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


@composed("_squared_error", infer=_infer, flops=lambda pred, label, *, out, **_: 3.0 * pred.size)
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

"""The fused squared error of predictions and labels, and its gradient, one op each.

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

from collections.abc import Callable
from math import prod
from typing import Any

from d2lmini.base import MXNetError
from d2lmini.ops.checks import check_numbers, check_one_dtype
from d2lmini.ops.chunking import place, share
from d2lmini.ops.core import ALL, Shape, Spec, as_three_axes, normalize_axis, op, registry
from d2lmini.ops.shape import reshape_like

#: Examples are processed in groups of about this many elements.
GRAIN = 1 << 17


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


def _factor(shape: Shape, batch_axis: int, scale: float) -> float:
    """The weight of one element's square in the mean of its example."""
    return scale * shape[batch_axis] / max(prod(shape), 1)


def _wide(xp: Any, dtype: Any) -> Any:
    return xp.promote_types(dtype, "float32" if dtype.kind == "f" else "float64")


def _over_examples(
    xp: Any, pred: Any, label: Any, batch_axis: int, body: Callable[[slice, Any], None]
) -> None:
    """Call body(part, pred - label) for groups of examples, as (before, part, after)."""
    view = as_three_axes(pred.shape, batch_axis)
    wide = _wide(xp, pred.dtype)
    pred, label = pred.reshape(view), label.reshape(view)

    def group(part: slice) -> None:
        body(part, xp.subtract(pred[:, part], label[:, part], dtype=wide))

    share(xp, view[1], min(view[1], pred.size // GRAIN), group)


@op("_squared_error", infer=_infer, flops=lambda pred, label, *, out, **_: 3.0 * pred.size)
def squared_error(xp, pred, label, *, scale: float = 1.0, batch_axis: int = 0, out=None):
    """scale times the mean of (pred - label)^2 over each example: (N, ...) -> (N,).

    label has as many elements as pred, in any shape, and the same dtype, which is kept; float16 is
    computed in float32, integers in float64. MXNetError at the call for sizes, dtypes, axis.
    """
    y = xp.empty(pred.shape[batch_axis], _wide(xp, pred.dtype))

    def body(part: slice, difference: Any) -> None:
        difference *= difference
        y[part] = difference.sum(axis=(0, 2))

    _over_examples(xp, pred, label, batch_axis, body)
    y *= y.dtype.type(_factor(pred.shape, batch_axis, scale))
    return place(xp, y, pred.dtype, out)


@op("_squared_error_backward", infer=lambda g, pred, label, **_: pred, flops=2)
def squared_error_backward(
    xp, g, pred, label, *, scale: float = 1.0, batch_axis: int = 0, out=None
):  # fmt: skip
    """The gradient of pred: 2 (pred - label) times g of the example and the element's weight."""
    dx = xp.empty(pred.shape, pred.dtype) if out is None else out
    place = dx.reshape(as_three_axes(pred.shape, batch_axis))
    wide = _wide(xp, pred.dtype)
    slope = g.astype(wide) * wide.type(2 * _factor(pred.shape, batch_axis, scale))

    def body(part: slice, difference: Any) -> None:
        xp.multiply(difference, slope[part, None], out=place[:, part], casting="unsafe")

    _over_examples(xp, pred, label, batch_axis, body)
    return dx


@squared_error.gradient(saves="pred label label.shape")
def _(g, pred, label, label_shape, *, scale, batch_axis, needs=ALL):
    dpred = squared_error_backward(g, pred, label, scale=scale, batch_axis=batch_axis)
    return dpred, -dpred.reshape(label_shape) if needs[1] else None


@squared_error.written_in_mxnet
def _(pred, label, *, scale, batch_axis):
    difference = registry["elemwise_sub"](pred, reshape_like(label, pred))
    return (difference.square() * scale).mean(axis=batch_axis, exclude=True)


@squared_error_backward.gradient(saves="g pred pred.shape label label.shape")
def _(u, g, pred, shape, label, label_shape, *, scale, batch_axis):
    factor = 2 * _factor(shape, batch_axis, scale)
    view = [1] * len(shape)
    view[batch_axis] = shape[batch_axis]
    dg = (u * (pred - label.reshape(shape))).sum(axis=batch_axis, exclude=True) * factor
    dpred = u * (g.reshape(tuple(view)) * factor)
    return dg, dpred, -dpred.reshape(label_shape)

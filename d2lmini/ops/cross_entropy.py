"""Fused softmax cross-entropy of scores and labels, and its gradient, one op each.

>>> from d2lmini import nd
>>> scores = nd.array([[1000, 0], [0, 0]])
>>> nd._internal._softmax_cross_entropy(scores, nd.array([1, 0]))
<BLANKLINE>
[1.000000e+03 6.931472e-01]
<NDArray 2 @cpu(0)>

For scores x and a class c, or probabilities t,

    l = log(sum exp x) - x_c                           dl/dx = softmax(x) - one_hot(c)
    l = sum(t) log(sum exp x) - sum(t x)               dl/dx = sum(t) softmax(x) - t

`gluon.loss.SoftmaxCrossEntropyLoss` is this with a mean and a weight. Composed of other ops it
takes five ops, and ten in backward; each does little work and reads and writes all scores.

Backward recomputes the exponentials: this costs less than the memory for keeping them.
"""

from __future__ import annotations

from math import prod
from typing import Any

from d2lmini.base import MXNetError
from d2lmini.ops.checks import check_float, check_shape
from d2lmini.ops.chunking import place, share
from d2lmini.ops.core import (
    ALL,
    Shape,
    Spec,
    as_three_axes,
    normalize_axis,
    op,
    registry,
    with_axis,
)
from d2lmini.ops.index import integers, pick
from d2lmini.ops.shape import reshape_like
from d2lmini.ops.softmax import GRAIN, log_softmax, softmax


def factor_of(shape: Shape, axis: int, batch_axis: int, scale: float) -> float:
    """The weight of a place's loss in the mean of its example."""
    kept = with_axis(shape, axis, 1)
    return scale * kept[batch_axis] / max(prod(kept), 1)


def _infer(
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


def _in_blocks(xp: Any, data: Any, axis: int, body: Any) -> None:
    """Call body(part, x) for blocks x (rows, classes, columns) of the scores, at least float32."""
    if not data.size:
        return
    view = rows, _, _ = as_three_axes(data.shape, axis)
    wide = xp.promote_types(data.dtype, "float32")
    x = data.reshape(view)
    n = min(rows, x.size // GRAIN)
    share(xp, rows, n, lambda part: body(part, x[part].astype(wide, copy=False)))


def _places(xp: Any, label: Any, part: slice, x: Any, rows: int) -> tuple:
    """The index of the labels' scores in a block."""
    classes = integers(xp, label.reshape(rows, -1)[part]).clip(0, x.shape[1] - 1)
    return xp.arange(x.shape[0])[:, None], classes, xp.arange(x.shape[2])


def _flops(data: Spec, label: Spec, **_: Any) -> float:
    return 5.0 * data.size


@op("_softmax_cross_entropy", infer=_infer, flops=_flops, mixed_dtypes=True)
def softmax_cross_entropy_mean(
    xp, data, label, *, axis: int = -1, sparse_label: bool = True, batch_axis: int = 0,
    scale: float = 1.0, out=None,
):  # fmt: skip
    """scale times the mean of -log softmax(data)[label] over each example: (N, ...) -> (N,).

    Classes are along `axis`, examples along `batch_axis`. label holds class numbers of any dtype,
    in data's shape without `axis` (or with 1 there), clipped to the classes; or with sparse_label
    False probabilities of data's shape and dtype. float16 is computed in float32.
    MXNetError at the call for axes, shapes, dtypes.
    """
    kept = with_axis(data.shape, axis, 1)
    wide = xp.promote_types(data.dtype, "float32")
    rows, _, columns = as_three_axes(data.shape, axis)
    losses = xp.zeros((rows, columns), wide)

    def body(part: slice, x: Any) -> None:
        x = x - x.max(axis=1, keepdims=True)
        logarithm = xp.log(xp.exp(x).sum(axis=1))
        if sparse_label:
            xp.subtract(logarithm, x[_places(xp, label, part, x, rows)], out=losses[part])
        else:
            x -= logarithm[:, None]
            x *= label.reshape(rows, x.shape[1], columns)[part]
            xp.negative(x.sum(axis=1), out=losses[part])

    _in_blocks(xp, data, axis, body)
    y = losses.reshape(kept).sum(axis=other_axes(data, batch_axis))
    y *= wide.type(factor_of(data.shape, axis, batch_axis, scale))
    return place(xp, y, data.dtype, out)


def other_axes(data: Any, batch_axis: int) -> tuple[int, ...]:
    """All axes except the axis of the examples."""
    return tuple(a for a in range(data.ndim) if a != batch_axis % data.ndim)


@op("_softmax_cross_entropy_backward", infer=lambda g, data, label, **_: data, flops=6)
def softmax_cross_entropy_backward(
    xp, g, data, label, *, axis: int = -1, sparse_label: bool = True, batch_axis: int = 0,
    scale: float = 1.0, out=None,
):  # fmt: skip
    """The gradient of data: (softmax(data) - one_hot(label)) times g of the example times the
    place's weight in the mean; with probabilities sum(label) softmax(data) - label."""
    dx = xp.empty(data.shape, data.dtype) if out is None else out
    kept = with_axis(data.shape, axis, 1)
    rows, _, columns = as_three_axes(data.shape, axis)
    wide = xp.promote_types(data.dtype, "float32")
    gs = g.astype(wide) * wide.type(factor_of(data.shape, axis, batch_axis, scale))
    gs = gs.reshape([n if a == batch_axis % data.ndim else 1 for a, n in enumerate(kept)])
    gs = xp.broadcast_to(gs, kept).reshape(rows, 1, columns)
    place = dx.reshape(rows, data.shape[axis], columns)

    def body(part: slice, x: Any) -> None:
        x = x - x.max(axis=1, keepdims=True)
        xp.exp(x, out=x)
        slope = gs[part]
        if sparse_label:
            x *= slope / x.sum(axis=1, keepdims=True)
            x[_places(xp, label, part, x, rows)] -= slope[:, 0]
        else:
            t = label.reshape(place.shape)[part]
            x *= t.sum(axis=1, keepdims=True, dtype=wide) / x.sum(axis=1, keepdims=True)
            x -= t
            x *= slope
        place[part] = x

    _in_blocks(xp, data, axis, body)
    return dx


@softmax_cross_entropy_mean.gradient(saves="data data.shape label label.shape")
def _(
    g, data, shape, label, label_shape, *, axis, sparse_label, batch_axis, scale, needs=ALL
):  # fmt: skip
    how = dict(axis=axis, sparse_label=sparse_label, batch_axis=batch_axis, scale=scale)
    dlabel = None
    if needs[1] and not sparse_label:
        gs = _per_place(g, shape, axis, batch_axis, scale)
        dlabel = (gs * -log_softmax(data, axis=axis)).reshape(label_shape)
    return softmax_cross_entropy_backward(g, data, label, **how) if needs[0] else None, dlabel


@softmax_cross_entropy_mean.written_in_mxnet
def _(data, label, *, axis, sparse_label, batch_axis, scale):
    p = log_softmax(data, axis=axis)
    if sparse_label:
        taken = pick(p, label, axis=axis, keepdims=True)
    else:
        products = registry["elemwise_mul"](p, reshape_like(label, p))
        taken = products.sum(axis=axis, keepdims=True)
    return (taken * -scale).mean(axis=batch_axis, exclude=True)


def _per_place(g: Any, shape: Shape, axis: int, batch_axis: int, scale: float) -> Any:
    """The gradient of each place's loss, a value that broadcasts to data."""
    view = [1] * len(shape)
    view[batch_axis] = with_axis(shape, axis, 1)[batch_axis]
    return g.reshape(tuple(view)) * factor_of(shape, axis, batch_axis, scale)


@softmax_cross_entropy_backward.gradient(saves="g data data.shape data.dtype label label.shape")
def _(
    u, g, data, shape, dtype, label, label_shape, *, axis, sparse_label, batch_axis, scale
):  # fmt: skip
    """With p = softmax(data), T = sum(label) and the mean <u> = sum(u p) the op is linear in g and
    label; its derivative in data is that of p."""
    axis %= len(shape)
    p = softmax(data, axis=axis)
    if sparse_label:
        (rows, classes, columns), total = as_three_axes(shape, axis), 1
        label = label.reshape((rows, columns)).clip(0, classes - 1)
        target = registry["one_hot"](label, depth=classes, dtype=dtype)
        target = target.swapaxes(1, 2).reshape(shape)
    else:
        target = label.reshape(shape)
        total = target.sum(axis=axis, keepdims=True)
    gs = _per_place(g, shape, axis, batch_axis, scale)
    mean = (u * p).sum(axis=axis, keepdims=True)
    losses = mean * total - (u * target).sum(axis=axis, keepdims=True)
    dg = losses.sum(axis=batch_axis, exclude=True) * factor_of(shape, axis, batch_axis, scale)
    ddata = (u - mean) * p * total * gs
    dlabel = None if sparse_label else ((mean - u) * gs).reshape(label_shape)
    return dg, ddata, dlabel

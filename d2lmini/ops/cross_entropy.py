"""The cross-entropy of scores and labels in one operation, and its gradient in another.

>>> from d2lmini import nd
>>> scores = nd.array([[1000, 0], [0, 0]])
>>> nd._internal._softmax_cross_entropy(scores, nd.array([1, 0]))
<BLANKLINE>
[1.000000e+03 6.931472e-01]
<NDArray 2 @cpu(0)>

Of scores x and a class c, or probabilities t,

    l = log(sum exp x) - x_c                           dl/dx = softmax(x) - one_hot(c)
    l = sum(t) log(sum exp x) - sum(t x)               dl/dx = sum(t) softmax(x) - t

`gluon.loss.SoftmaxCrossEntropyLoss` is this with its mean and its weight. Written in other ops it
takes five, and ten on the way back, each of which does little and reads and writes all scores.

Backward takes the exponentials again: that costs less memory than keeping them.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from d2lmini.base import MXNetError
from d2lmini.device.cuda import kernels
from d2lmini.ops.checks import check_float, check_shape
from d2lmini.ops.core import ALL, Shape, Spec, normalize_axis, op, registry
from d2lmini.ops.index import integers, pick
from d2lmini.ops.pieces import share
from d2lmini.ops.shape import reshape_like
from d2lmini.ops.softmax import GRAIN, log_softmax, softmax


def _kept(shape: Shape, axis: int) -> Shape:
    """`shape` with 1 for the axis of the classes: one loss for each place."""
    axis %= len(shape)
    return (*shape[:axis], 1, *shape[axis + 1 :])


def _factor(shape: Shape, axis: int, batch_axis: int, scale: float) -> float:
    """What a place's loss counts in the mean of its example."""
    kept = _kept(shape, axis)
    return scale * kept[batch_axis] / max(prod(kept), 1)


def _infer(
    data: Spec, label: Spec, *, axis: int, sparse_label: bool, batch_axis: int, scale: float
) -> Spec:
    check_float(data)
    axis = normalize_axis(axis, len(data.shape))
    batch_axis = normalize_axis(batch_axis, len(data.shape), "batch_axis")
    if sparse_label:
        dropped = data.shape[:axis] + data.shape[axis + 1 :] or (1,)
        why = f"a class number for each place of data {data.shape} without axis {axis}"
        check_shape("label", label, dropped, _kept(data.shape, axis), why=why)
        if data.shape[axis] == 0 and label.size:
            raise MXNetError(f"data {data.shape} has no classes along axis {axis}")
    else:
        check_float(data, label)
        if label.size != data.size:
            raise MXNetError(f"label is {label.shape}, need {data.shape}: probabilities like data")
    return Spec((_kept(data.shape, axis)[batch_axis],), data.dtype)


def _in_blocks(xp: Any, data: Any, axis: int, body: Any) -> None:
    """Call body(part, x) for blocks x (rows, classes, columns) of the scores, at least float32."""
    if not data.size:
        return
    axis %= data.ndim
    rows = prod(data.shape[:axis])
    wide = xp.promote_types(data.dtype, "float32")
    x = data.reshape(rows, data.shape[axis], -1)
    n = min(rows, x.size // GRAIN)
    share(xp, rows, n, lambda part: body(part, x[part].astype(wide, copy=False)))


def _places(xp: Any, label: Any, part: slice, x: Any, rows: int) -> tuple:
    """Where the scores of the labels lie in a block."""
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
    data's shape without `axis` (or with 1 there), clipped to the classes; or with sparse_label
    False probabilities, as many as data and of its dtype. float16 is computed in float32.
    MXNetError at the call for axes, shapes, dtypes.
    """
    kept = _kept(data.shape, axis)
    wide = xp.promote_types(data.dtype, "float32")
    if xp is not np and data.size:
        return _mean_by_kernel(xp, data, label, axis, sparse_label, batch_axis, scale, wide, out)
    rows, columns = prod(kept[: axis % data.ndim]), prod(kept[axis % data.ndim :])
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
    y = losses.reshape(kept).sum(axis=_others(data, batch_axis))
    y *= wide.type(_factor(data.shape, axis, batch_axis, scale))
    if out is None:
        return y.astype(data.dtype, copy=False)
    out[...] = y
    return out


def _others(data: Any, batch_axis: int) -> tuple[int, ...]:
    """All axes but that of the examples."""
    return tuple(a for a in range(data.ndim) if a != batch_axis % data.ndim)


def _mean_by_kernel(
    xp: Any, data: Any, label: Any, axis: int, sparse_label: bool, batch_axis: int, scale: float,
    wide: Any, out: Any,
) -> Any:  # fmt: skip
    """The losses of all places by one kernel, and where an example has several their sum."""
    kept = _kept(data.shape, axis)
    examples = kept[batch_axis]
    is_one_each = prod(kept) == examples
    y = losses = xp.empty((examples,) if is_one_each else kept, wide)
    if is_one_each and out is not None and out.dtype == wide and out.flags.c_contiguous:
        y = losses = out
    data, label = xp.ascontiguousarray(data), xp.ascontiguousarray(label)
    factor = _factor(data.shape, axis, batch_axis, scale)
    kernels.cross_entropy.cross_entropy(xp, data, label, axis, sparse_label, factor, losses)
    if not is_one_each:
        y = losses.sum(axis=_others(data, batch_axis))
    if out is None:
        return y.astype(data.dtype, copy=False)
    if y is not out:
        out[...] = y
    return out


@op("_softmax_cross_entropy_backward", infer=lambda g, data, label, **_: data, flops=6)
def softmax_cross_entropy_backward(
    xp, g, data, label, *, axis: int = -1, sparse_label: bool = True, batch_axis: int = 0,
    scale: float = 1.0, out=None,
):  # fmt: skip
    """The gradient of data: (softmax(data) - one_hot(label)) times g of the example and what a
    place counts in its mean; with probabilities sum(label) softmax(data) - label."""
    dx = xp.empty(data.shape, data.dtype) if out is None else out
    kept = _kept(data.shape, axis)
    if xp is not np and data.size and dx.flags.c_contiguous:
        g, data, label = (xp.ascontiguousarray(a) for a in (g, data, label))
        factor = _factor(data.shape, axis, batch_axis, scale)
        behind = prod(kept[batch_axis % data.ndim + 1 :])
        kernels.cross_entropy.cross_entropy_gradient(
            xp, g, data, label, axis, sparse_label, factor, dx, kept[batch_axis], behind
        )
        return dx
    rows, columns = prod(kept[: axis % data.ndim]), prod(kept[axis % data.ndim :])
    wide = xp.promote_types(data.dtype, "float32")
    gs = g.astype(wide) * wide.type(_factor(data.shape, axis, batch_axis, scale))
    gs = gs.reshape([n if a == batch_axis % data.ndim else 1 for a, n in enumerate(kept)])
    gs = xp.broadcast_to(gs, kept).reshape(rows, 1, columns)
    place = dx.reshape(rows, data.shape[axis], columns)

    def body(part: slice, x: Any) -> None:
        x = x - x.max(axis=1, keepdims=True)
        xp.exp(x, out=x)
        each = gs[part]
        if sparse_label:
            x *= each / x.sum(axis=1, keepdims=True)
            x[_places(xp, label, part, x, rows)] -= each[:, 0]
        else:
            t = label.reshape(place.shape)[part]
            x *= t.sum(axis=1, keepdims=True, dtype=wide) / x.sum(axis=1, keepdims=True)
            x -= t
            x *= each
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
    """The gradient of each place's loss, to be broadcast; a value."""
    view = [1] * len(shape)
    view[batch_axis] = _kept(shape, axis)[batch_axis]
    return g.reshape(tuple(view)) * _factor(shape, axis, batch_axis, scale)


@softmax_cross_entropy_backward.gradient(saves="g data data.shape data.dtype label label.shape")
def _(
    u, g, data, shape, dtype, label, label_shape, *, axis, sparse_label, batch_axis, scale
):  # fmt: skip
    """With p = softmax(data), T = sum(label) and the mean <u> = sum(u p) the op is linear in g and
    label; its slope in data is that of p."""
    axis %= len(shape)
    p = softmax(data, axis=axis)
    if sparse_label:
        rows, classes, total = prod(shape[:axis]), shape[axis], 1
        label = label.reshape((rows, prod(shape[axis + 1 :]))).clip(0, classes - 1)
        target = registry["one_hot"](label, depth=classes, dtype=dtype)
        target = target.swapaxes(1, 2).reshape(shape)
    else:
        target = label.reshape(shape)
        total = target.sum(axis=axis, keepdims=True)
    gs = _per_place(g, shape, axis, batch_axis, scale)
    mean = (u * p).sum(axis=axis, keepdims=True)
    losses = mean * total - (u * target).sum(axis=axis, keepdims=True)
    dg = losses.sum(axis=batch_axis, exclude=True) * _factor(shape, axis, batch_axis, scale)
    ddata = (u - mean) * p * total * gs
    dlabel = None if sparse_label else ((mean - u) * gs).reshape(label_shape)
    return dg, ddata, dlabel

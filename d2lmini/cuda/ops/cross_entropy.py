"""Softmax cross-entropy on a GPU: one kernel each for the losses and for the gradient."""

from __future__ import annotations

from math import prod

from d2lmini.cuda import kernels
from d2lmini.ops.core import with_axis
from d2lmini.ops.cross_entropy import (
    factor_of,
    other_axes,
    softmax_cross_entropy_backward,
    softmax_cross_entropy_mean,
)


@softmax_cross_entropy_mean.kernel("cuda")
def _(xp, data, label, *, axis=-1, sparse_label=True, batch_axis=0, scale=1.0, out=None):
    how = dict(axis=axis, sparse_label=sparse_label, batch_axis=batch_axis, scale=scale)
    if not data.size:
        return softmax_cross_entropy_mean.compute(xp, data, label, **how, out=out)
    wide = xp.promote_types(data.dtype, "float32")
    kept = with_axis(data.shape, axis, 1)
    examples = kept[batch_axis]
    is_one_each = prod(kept) == examples
    y = losses = xp.empty((examples,) if is_one_each else kept, wide)
    if is_one_each and out is not None and out.dtype == wide and out.flags.c_contiguous:
        y = losses = out
    data, label = xp.ascontiguousarray(data), xp.ascontiguousarray(label)
    factor = factor_of(data.shape, axis, batch_axis, scale)
    kernels.cross_entropy.cross_entropy(xp, data, label, axis, sparse_label, factor, losses)
    if not is_one_each:
        y = losses.sum(axis=other_axes(data, batch_axis))
    if out is None:
        return y.astype(data.dtype, copy=False)
    if y is not out:
        out[...] = y
    return out


@softmax_cross_entropy_backward.kernel("cuda")
def _(xp, g, data, label, *, axis=-1, sparse_label=True, batch_axis=0, scale=1.0, out=None):
    how = dict(axis=axis, sparse_label=sparse_label, batch_axis=batch_axis, scale=scale)
    dx = xp.empty(data.shape, data.dtype) if out is None else out
    if not data.size or not dx.flags.c_contiguous:
        return softmax_cross_entropy_backward.compute(xp, g, data, label, **how, out=dx)
    kept = with_axis(data.shape, axis, 1)
    g, data, label = (xp.ascontiguousarray(a) for a in (g, data, label))
    factor = factor_of(data.shape, axis, batch_axis, scale)
    behind = prod(kept[batch_axis % data.ndim + 1 :])
    kernels.cross_entropy.cross_entropy_gradient(
        xp, g, data, label, axis, sparse_label, factor, dx, kept[batch_axis], behind
    )
    return dx

"""Ops that reduce along rows or columns and then map, each as one formula (`kernels.reductions`).

A formula computes on one element of each array; `xp.sum`, `mean` and `max` are over the axes that
the op reduces, and `xp.index_of` is the number of an element along them. Numbers of 16 bits are
computed in float32.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from d2lmini.cuda.kernels.reductions import reduce_and_map
from d2lmini.ops.core import as_three_axes, with_axis
from d2lmini.ops.cross_entropy import (
    factor_of,
    other_axes,
    softmax_cross_entropy_backward,
    softmax_cross_entropy_mean,
)
from d2lmini.ops.normalization import BatchNorm, first_output, normalize_into
from d2lmini.ops.normalization_backward import normalize_backward
from d2lmini.ops.softmax import log_softmax, softmax, softmin


def _widened(xp: Any, *values: Any) -> list[Any]:
    return [x.astype(xp.promote_types(x.dtype, "float32")) for x in values]


# -- normalization --------------------------------------------------------------------------------


def _normalize(xp: Any, x: Any, gamma: Any, beta: Any, *, eps: float) -> tuple:
    (x,) = _widened(xp, x)
    mean = xp.mean(x)
    away = x - mean
    variance = xp.mean(away * away)
    return away * (gamma / xp.sqrt(variance + eps)) + beta, mean, variance


@normalize_into.kernel("cuda")
def _(
    xp: Any, x: Any, axes: tuple[int, ...], split: int, eps: float, gamma: Any, beta: Any, y: Any
) -> tuple[Any, Any]:  # fmt: skip
    kept = tuple(1 if a in axes else n for a, n in enumerate(x.shape))
    moments = [xp.empty(kept, xp.promote_types(x.dtype, "float32")) for _ in range(2)]
    reduce_and_map(xp, _normalize, [x, gamma, beta], axes, [y, *moments], eps=float(eps))
    return tuple(moments)


def _batch_norm(
    xp: Any, x: Any, gamma: Any, beta: Any, moving_mean: Any, moving_var: Any, *, eps: float,
    momentum: float, fix_gamma: bool, of_batch: bool,
) -> tuple:  # fmt: skip
    gamma = xp.ones_like(gamma) if fix_gamma else gamma
    if of_batch:
        y, *moments = _normalize(xp, x, gamma, beta, eps=eps)
        moved = [
            old * momentum + now.astype(old.dtype) * (1 - momentum)
            for old, now in zip((moving_mean, moving_var), moments)
        ]
    else:
        x, *moments = _widened(xp, x, moving_mean, moving_var)
        y = (x - moments[0]) * (gamma / xp.sqrt(moments[1] + eps)) + beta
        moved = [moving_mean, moving_var]
    return y, moments[0], 1 / xp.sqrt(moments[1] + eps), *moved


@BatchNorm.kernel("cuda")
def _(
    xp, data, gamma, beta, moving_mean, moving_var, *, eps=1e-3, momentum=0.9, fix_gamma=True,
    use_global_stats=False, axis=1, training, out=None, **others,
):  # fmt: skip
    if not data.size:
        return BatchNorm.compute(
            xp, data, gamma, beta, moving_mean, moving_var, eps=eps, momentum=momentum,
            use_global_stats=use_global_stats, axis=axis, training=training, out=out, **others,
        )  # fmt: skip
    of_batch = training and not use_global_stats
    y = first_output(xp, data, out)
    outs = [xp.empty(gamma.shape, gamma.dtype) for _ in range(2)] if out is None else out[1:]
    view = as_three_axes(data.shape, axis)
    columns = [a.reshape(1, view[1], 1) for a in (gamma, beta, moving_mean, moving_var, *outs)]
    moved = columns[2:4] if of_batch else [None, None]
    reduce_and_map(
        xp, _batch_norm, [data.reshape(view), *columns[:4]], (0, 2),
        [y.reshape(view), *columns[4:], *moved], eps=float(eps), momentum=float(momentum),
        fix_gamma=bool(fix_gamma), of_batch=of_batch,
    )  # fmt: skip
    return (y, *outs)


def _normalize_backward(xp: Any, g: Any, x: Any, gamma: Any, *, eps: float) -> tuple:
    """The gradients of x, and of gamma and beta if these are the same in a group; mean and inverse
    deviation."""
    g, x = _widened(xp, g, x)
    mean = xp.mean(x)
    away, slope = x - mean, g * gamma
    inverse = 1 / xp.sqrt(xp.mean(away * away) + eps)
    along = away * (xp.mean(slope * away) * inverse * inverse)
    dx = (slope - xp.mean(slope) - along) * inverse
    return dx, xp.sum(g * away) * inverse, xp.sum(g), mean, inverse


def _parameters_backward(xp: Any, g: Any, x: Any, mean: Any, inverse: Any) -> tuple:
    g, x = _widened(xp, g, x)
    return xp.sum(g * (x - mean) * inverse), xp.sum(g)


@normalize_backward.kernel("cuda")
def _(xp, g, x, gamma, *, axes, eps, out=None):
    if x.size == 0:
        return normalize_backward.compute(xp, g, x, gamma, axes=axes, eps=eps, out=out)
    out = tuple(xp.empty(a.shape, a.dtype) for a in (x, gamma, gamma)) if out is None else out
    shared = tuple(a for a, n in enumerate(gamma.shape) if n == 1)
    kept = tuple(1 if a in axes else n for a, n in enumerate(x.shape))
    outs = [*out, None, None]
    if shared != axes:
        moments = [xp.empty(kept, xp.promote_types(x.dtype, "float32")) for _ in range(2)]
        outs = [out[0], None, None, *moments]
    reduce_and_map(xp, _normalize_backward, [g, x, gamma], axes, outs, eps=float(eps))
    if shared != axes:
        reduce_and_map(xp, _parameters_backward, [g, x, *moments], shared, out[1:])
    return out


# -- softmax --------------------------------------------------------------------------------------


def _softmax(xp: Any, x: Any, *, scale: float, log: bool, wide: Any) -> tuple:
    x = x.astype(wide) * scale
    x = x - xp.max(x)
    e = xp.exp(x)
    return (x - xp.log(xp.sum(e)) if log else e / xp.sum(e),)


def _register_softmax(op: Any, sign: int, log: bool) -> None:
    @op.kernel("cuda")
    def _(
        xp, data, length=None, *, axis=-1, temperature=None, dtype=None, use_length=False, out=None
    ):  # fmt: skip
        how = dict(axis=axis, temperature=temperature, dtype=dtype)
        if length is not None:
            return op.compute(xp, data, length, **how, use_length=use_length, out=out)
        y = xp.empty(data.shape, dtype or data.dtype) if out is None else out
        if data.size:
            wide = np.result_type("float32", y.dtype, data.dtype)
            reduce_and_map(
                xp, _softmax, [data], (axis % data.ndim,), [y], scale=sign / (temperature or 1),
                log=log, wide=wide,
            )  # fmt: skip
        return y


for _op, _sign, _log in ((softmax, 1, False), (softmin, -1, False), (log_softmax, 1, True)):
    _register_softmax(_op, _sign, _log)


# -- softmax cross-entropy ------------------------------------------------------------------------


def _cross_entropy(xp: Any, x: Any, label: Any, *, classes: int, factor: float) -> tuple:
    """The loss of a place. classes: their number where label is one of them; 0 if label is
    probabilities."""
    (x,) = _widened(xp, x)
    x = x - xp.max(x)
    logarithm = xp.log(xp.sum(xp.exp(x)))
    if classes:
        label = xp.clip(label.astype("int64"), 0, classes - 1)
        return (factor * (logarithm - xp.sum(xp.where(xp.index_of(x) == label, x, 0))),)
    return (factor * xp.sum((logarithm - x) * label),)


def _cross_entropy_backward(
    xp: Any, g: Any, x: Any, label: Any, *, classes: int, factor: float
) -> tuple:
    g, x = _widened(xp, g, x)
    e, slope = xp.exp(x - xp.max(x)), g * factor
    if classes:
        label = xp.clip(label.astype("int64"), 0, classes - 1)
        share = e * (slope / xp.sum(e))
        return (xp.where(xp.index_of(x) == label, share - slope, share),)
    return ((e * (xp.sum(label) / xp.sum(e)) - label) * slope,)


def _run_cross_entropy(
    xp: Any, formula: Any, g: Any, data: Any, label: Any, out: Any, axis: int, sparse_label: bool,
    batch_axis: int, scale: float,
) -> None:  # fmt: skip
    kept = with_axis(data.shape, axis, 1)
    label = label.reshape(kept if sparse_label else data.shape)
    reduce_and_map(
        xp, formula, [*g, data, label], (axis % data.ndim,), [out],
        classes=data.shape[axis] if sparse_label else 0,
        factor=float(factor_of(data.shape, axis, batch_axis, scale)),
    )  # fmt: skip


@softmax_cross_entropy_mean.kernel("cuda")
def _(xp, data, label, *, axis=-1, sparse_label=True, batch_axis=0, scale=1.0, out=None):
    kept = with_axis(data.shape, axis, 1)
    examples = kept[batch_axis]
    y = xp.empty((examples,), data.dtype) if out is None else out
    if not data.size:
        y.fill(0)
        return y
    wide = xp.promote_types(data.dtype, "float32")
    is_one_each = prod(kept) == examples
    losses = y.reshape(kept) if is_one_each else xp.empty(kept, wide)
    _run_cross_entropy(
        xp, _cross_entropy, [], data, label, losses, axis, sparse_label, batch_axis, scale
    )
    if not is_one_each:
        y[...] = losses.sum(axis=other_axes(data, batch_axis))
    return y


@softmax_cross_entropy_backward.kernel("cuda")
def _(xp, g, data, label, *, axis=-1, sparse_label=True, batch_axis=0, scale=1.0, out=None):
    dx = xp.empty(data.shape, data.dtype) if out is None else out
    if data.size:
        batch = [1] * data.ndim
        batch[batch_axis] = g.size
        _run_cross_entropy(
            xp, _cross_entropy_backward, [g.reshape(batch)], data, label, dx, axis, sparse_label,
            batch_axis, scale,
        )  # fmt: skip
    return dx

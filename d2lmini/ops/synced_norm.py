"""BatchNorm in four steps, so that devices can exchange sums over their parts of the batch.

    forward    moments of the channels of each part   ->  combine  ->  normalize by common moments
    backward   sums over each part of g and of g h    ->  combine  ->  the gradient of its data

Devices exchange only two numbers per channel. The formulas are those of `normalization.py`, with
means over the parts of all devices; `gluon.contrib.nn.SyncBatchNorm` uses them.

>>> from d2lmini import nd
>>> from d2lmini.ops.core import registry
>>> registry["_channel_moments"](nd.array([[1, 5], [3, 5]]), axis=1)   # means, then variances
<BLANKLINE>
[[2. 5.]
 [1. 0.]]
<NDArray 2x2 @cpu(0)>
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from d2lmini.ops.checks import check_float, check_shapes
from d2lmini.ops.chunking import share
from d2lmini.ops.core import Shape, Spec, as_three_axes, normalize_axis, op
from d2lmini.ops.normalization import GRAIN, update_moving


def _wide(dtype: Any) -> np.dtype:
    """The accumulation dtype: float32 for float16."""
    return np.promote_types(dtype, "float32")


def _pair(data: Spec, axis: int) -> Spec:
    """Two numbers per channel."""
    check_float(data)
    return Spec((2, data.shape[normalize_axis(axis, len(data.shape))]), _wide(data.dtype))


def _check_pairs(data: Spec, axis: int, **inputs: Spec) -> None:
    check_shapes(_pair(data, axis).shape, why=f"axis {axis} of data {data.shape}", **inputs)


def _each(xp: Any, view: Shape, body: Any) -> None:
    """Call body(index) for groups of channels of arrays of that shape."""
    share(xp, view[1], min(view[1], prod(view) // GRAIN), lambda part: body((slice(None), part)))


@op("_channel_moments", infer=lambda data, *, axis: _pair(data, axis), flops=4, grad=None)
def channel_moments(xp, data, *, axis: int = 1):
    """Mean and (biased) variance of each channel: (2, C), in float32 or float64.

    Both are 0 for empty data.
    """
    view = as_three_axes(data.shape, axis)
    x = data.reshape(view)
    out = xp.zeros((2, view[1]), _wide(data.dtype))

    def body(part: Any) -> None:
        block = x[part].astype(out.dtype, copy=False)
        mean = block.mean(axis=(0, 2), keepdims=True)
        block = block - mean
        out[0, part[1]] = mean.reshape(-1)
        out[1, part[1]] = (block * block).mean(axis=(0, 2))

    if x.size:
        _each(xp, view, body)
    return out


def _infer_normalize(
    data: Spec, gamma: Spec, beta: Spec, moving_mean: Spec, moving_var: Spec, moments: Spec, *,
    axis: int, **_: Any,
) -> Spec:  # fmt: skip
    _check_pairs(data, axis, moments=moments)
    check_shapes(
        moments.shape[1:], why=f"axis {axis} of data {data.shape}", gamma=gamma, beta=beta,
        moving_mean=moving_mean, moving_var=moving_var,
    )  # fmt: skip
    return data


@op(
    "_normalize_by", infer=_infer_normalize, flops=4, grad=None,
    mutates=["moving_mean", "moving_var"],
)  # fmt: skip
def normalize_by(
    xp, data, gamma, beta, moving_mean, moving_var, moments, *, axis: int = 1, eps: float = 1e-5,
    momentum: float = 0.9, fix_gamma: bool = False, out=None,
):  # fmt: skip
    """gamma (data - mean) / sqrt(var + eps) + beta, with the moments (2, C) of the channels; shape
    and dtype of data. Both moving arrays become momentum moving + (1 - momentum) moments."""
    update_moving(moving_mean, moving_var, moments, momentum)
    view = as_three_axes(data.shape, axis)
    column = (1, view[1], 1)
    y = xp.empty(data.shape, data.dtype) if out is None else out
    x, place = data.reshape(view), y.reshape(view)
    mean, var = (v.reshape(column) for v in moments)
    scale = 1 / xp.sqrt(var + var.dtype.type(eps))
    if not fix_gamma:
        scale = scale * gamma.reshape(column)
    shift = beta.reshape(column)

    def body(part: Any) -> None:
        block = x[part] - mean[part]
        block *= scale[part]
        xp.add(block, shift[part], out=place[part])

    _each(xp, view, body)
    return y


def _infer_sums(g: Spec, data: Spec, moments: Spec, *, axis: int, eps: float) -> Spec:
    _check_pairs(data, axis, moments=moments)
    return _pair(data, axis)


@op("_norm_sums", infer=_infer_sums, flops=5, grad=None)
def norm_sums(xp, g, data, moments, *, axis: int = 1, eps: float = 1e-5):
    """For each channel the sums of g and of g h: (2, C), where h is data normalized by `moments`.
    These sums are the gradients of beta and gamma."""
    view = as_three_axes(data.shape, axis)
    g, x = g.reshape(view), data.reshape(view)
    mean, var = (v.reshape(1, -1, 1) for v in moments)
    inverse = (1 / xp.sqrt(var + var.dtype.type(eps))).reshape(-1)
    out = xp.zeros((2, view[1]), _wide(data.dtype))

    def body(part: Any) -> None:
        block = x[part] - mean[part]
        block *= g[part]
        out[0, part[1]] = g[part].sum(axis=(0, 2), dtype=out.dtype)
        out[1, part[1]] = block.sum(axis=(0, 2)) * inverse[part[1]]

    _each(xp, view, body)
    return out


def _infer_gradient(
    g: Spec, data: Spec, gamma: Spec, moments: Spec, means: Spec, *, axis: int, **_: Any
) -> Spec:
    _check_pairs(data, axis, moments=moments, means=means)
    return data


@op("_norm_gradient", infer=_infer_gradient, flops=7, grad=None)
def norm_gradient(
    xp, g, data, gamma, moments, means, *, axis: int = 1, eps: float = 1e-5,
    fix_gamma: bool = False, out=None,
):  # fmt: skip
    """The gradient of data: gamma (g - mean(g) - h mean(g h)) / sqrt(var + eps).

    moments: mean and var, means: mean(g) and mean(g h), both (2, C) and of the whole batch.
    """
    view = as_three_axes(data.shape, axis)
    dx = xp.empty(data.shape, data.dtype) if out is None else out
    g, x, place = g.reshape(view), data.reshape(view), dx.reshape(view)
    mean, var = (v.reshape(1, -1, 1) for v in moments)
    of_g, of_gh = (v.reshape(1, -1, 1) for v in means)
    inverse = 1 / xp.sqrt(var + var.dtype.type(eps))
    scale = inverse if fix_gamma else inverse * gamma.reshape(1, -1, 1)
    slope = of_gh * inverse

    def body(part: Any) -> None:
        block = x[part] - mean[part]
        block *= slope[part]
        block += of_g[part]
        xp.subtract(g[part], block, out=block)
        xp.multiply(block, scale[part], out=place[part], casting="same_kind")

    _each(xp, view, body)
    return dx

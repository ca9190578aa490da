"""BatchNorm in four steps, so that devices can exchange sums over their parts of the batch.

    forward    moments of the channels of each part   ->  combine  ->  normalize by common moments
    backward   sums over each part of g and of g h    ->  combine  ->  the gradient of its data

Devices exchange only two numbers per channel; the channels are on axis 1. The formulas are those
of `normalization.py`, with means over the parts of all devices; `gluon.contrib.nn.SyncBatchNorm`
uses them.

>>> from d2lmini import nd
>>> from d2lmini.ops.core import registry
>>> registry["_channel_moments"](nd.array([[1, 5], [3, 5]]))   # means, then variances
<BLANKLINE>
[[2. 5.]
 [1. 0.]]
<NDArray 2x2 @cpu(0)>
"""

from __future__ import annotations

from typing import Any

import numpy as np

from d2lmini.ops.checks import check_float, check_shape
from d2lmini.ops.composed import composed
from d2lmini.ops.core import Spec, registry
from d2lmini.ops.normalization import along, finish, moved, other_axes


def _wide(*values: Any) -> list[Any]:
    return [x.astype(np.promote_types(x.dtype, "float32"), copy=False) for x in values]


def _rows(pair: Any) -> list[Any]:
    """The two rows of a pair, (C,)."""
    return [pair.slice_axis(0, i, i + 1).reshape((-1,)) for i in (0, 1)]


def _normalized(data: Any, moments: Any, eps: float) -> tuple[Any, Any]:
    """h, and 1 / sqrt(var + eps) along the channels."""
    mean, var = along(1, data, *_rows(moments))
    inverse = (var + eps).rsqrt()
    return (data - mean) * inverse, inverse


def _infer_moments(data: Spec) -> Spec:
    check_float(data)
    return Spec((2, data.shape[1]), np.promote_types(data.dtype, "float32"))


@composed("_channel_moments", infer=_infer_moments, flops=4, grad=None)
def channel_moments(data):
    """Mean and (biased) variance of each channel: (2, C), in float32 or float64.

    Both are 0 for empty data.
    """
    (x,) = _wide(data)
    share, axes = 1 / max(x.size // max(x.shape[1], 1), 1), other_axes(x, 1)
    mean = x.sum(axis=axes) * share
    centered = x - along(1, x, mean)[0]
    return registry["stack"](mean, (centered * centered).sum(axis=axes) * share)


def _infer_normalize(data: Spec, gamma: Spec, *others: Spec, **_: Any) -> Spec:
    check_shape("gamma", gamma, data.shape[1:2], why=f"axis 1 of data {data.shape}")
    return data


@composed(
    "_normalize_by", infer=_infer_normalize, flops=4, grad=None, finish=finish, extra=2,
    mutates=["moving_mean", "moving_var"],
)  # fmt: skip
def normalize_by(
    data, gamma, beta, moving_mean, moving_var, moments, *, eps: float, momentum: float,
    fix_gamma: bool,
):  # fmt: skip
    """gamma (data - mean) / sqrt(var + eps) + beta, with the moments (2, C) of the channels; shape
    and dtype of data. Both moving arrays become momentum moving + (1 - momentum) moments."""
    h, _ = _normalized(data, moments, eps)
    scale, shift = along(1, data, gamma, beta)
    means, variances = (
        moved(old, now, momentum) for old, now in zip((moving_mean, moving_var), _rows(moments))
    )
    return (h if fix_gamma else h * scale) + shift, means, variances


@composed("_norm_sums", infer=lambda g, data, moments, **_: moments, flops=5, grad=None)
def norm_sums(g, data, moments, *, eps: float):
    """For each channel the sums of g and of g h: (2, C), where h is data normalized by `moments`.
    These sums are the gradients of beta and gamma."""
    g, data = _wide(g, data)
    axes = other_axes(data, 1)
    h, _ = _normalized(data, moments, eps)
    return registry["stack"](g.sum(axis=axes), (g * h).sum(axis=axes))


@composed("_norm_gradient", infer=lambda g, data, *_, **__: data, flops=7, grad=None)
def norm_gradient(g, data, gamma, moments, means, *, eps: float, fix_gamma: bool):
    """The gradient of data: gamma (g - mean(g) - h mean(g h)) / sqrt(var + eps).

    moments: mean and var, means: mean(g) and mean(g h), both (2, C) and of the whole batch.
    """
    h, inverse = _normalized(data, moments, eps)
    of_g, of_gh = along(1, data, *_rows(means))
    (scale,) = along(1, data, gamma)
    return (g - (of_g + h * of_gh)) * (inverse if fix_gamma else inverse * scale)

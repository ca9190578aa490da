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

from typing import Any

import numpy as np

from d2lmini.ops.checks import check_float, check_shapes
from d2lmini.ops.composed import composed
from d2lmini.ops.core import Spec, normalize_axis, registry
from d2lmini.ops.normalization import along, finish, moved, other_axes


def _pair(data: Spec, axis: int) -> Spec:
    """Two numbers per channel, in the accumulation dtype: float32 for float16."""
    check_float(data)
    channels = data.shape[normalize_axis(axis, len(data.shape))]
    return Spec((2, channels), np.promote_types(data.dtype, "float32"))


def _check_pairs(data: Spec, axis: int, **inputs: Spec) -> None:
    check_shapes(_pair(data, axis).shape, why=f"axis {axis} of data {data.shape}", **inputs)


def _wide(*values: Any) -> list[Any]:
    return [x.astype(np.promote_types(x.dtype, "float32"), copy=False) for x in values]


def _rows(pair: Any) -> list[Any]:
    """The two rows of a pair, (C,)."""
    return [pair.slice_axis(0, i, i + 1).reshape((-1,)) for i in (0, 1)]


def _normalized(data: Any, moments: Any, axis: int, eps: float) -> tuple[Any, Any]:
    """h, and 1 / sqrt(var + eps) along the channels."""
    mean, var = along(axis, data, *_rows(moments))
    inverse = (var + eps).rsqrt()
    return (data - mean) * inverse, inverse


@composed("_channel_moments", infer=lambda data, *, axis: _pair(data, axis), flops=4, grad=None)
def channel_moments(data, *, axis: int = 1):
    """Mean and (biased) variance of each channel: (2, C), in float32 or float64.

    Both are 0 for empty data.
    """
    (x,) = _wide(data)
    n = x.size // max(x.shape[axis], 1)
    axes = other_axes(x, axis)
    mean = x.sum(axis=axes) * (1 / max(n, 1))
    centered = x - along(axis, x, mean)[0]
    return registry["stack"](mean, (centered * centered).sum(axis=axes) * (1 / max(n, 1)))


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


@composed(
    "_normalize_by", infer=_infer_normalize, flops=4, grad=None, finish=finish, extra=2,
    mutates=["moving_mean", "moving_var"],
)  # fmt: skip
def normalize_by(
    data, gamma, beta, moving_mean, moving_var, moments, *, axis: int = 1, eps: float = 1e-5,
    momentum: float = 0.9, fix_gamma: bool = False,
):  # fmt: skip
    """gamma (data - mean) / sqrt(var + eps) + beta, with the moments (2, C) of the channels; shape
    and dtype of data. Both moving arrays become momentum moving + (1 - momentum) moments."""
    h, _ = _normalized(data, moments, axis, eps)
    scale, shift = along(axis, data, gamma, beta)
    means, variances = (
        moved(old, now, momentum) for old, now in zip((moving_mean, moving_var), _rows(moments))
    )
    return (h if fix_gamma else h * scale) + shift, means, variances


def _infer_sums(g: Spec, data: Spec, moments: Spec, *, axis: int, eps: float) -> Spec:
    _check_pairs(data, axis, moments=moments)
    return _pair(data, axis)


@composed("_norm_sums", infer=_infer_sums, flops=5, grad=None)
def norm_sums(g, data, moments, *, axis: int = 1, eps: float = 1e-5):
    """For each channel the sums of g and of g h: (2, C), where h is data normalized by `moments`.
    These sums are the gradients of beta and gamma."""
    g, data = _wide(g, data)
    axes = other_axes(data, axis)
    h, _ = _normalized(data, moments, axis, eps)
    return registry["stack"](g.sum(axis=axes), (g * h).sum(axis=axes))


def _infer_gradient(
    g: Spec, data: Spec, gamma: Spec, moments: Spec, means: Spec, *, axis: int, **_: Any
) -> Spec:
    _check_pairs(data, axis, moments=moments, means=means)
    return data


@composed("_norm_gradient", infer=_infer_gradient, flops=7, grad=None)
def norm_gradient(
    g, data, gamma, moments, means, *, axis: int = 1, eps: float = 1e-5, fix_gamma: bool = False
):  # fmt: skip
    """The gradient of data: gamma (g - mean(g) - h mean(g h)) / sqrt(var + eps).

    moments: mean and var, means: mean(g) and mean(g h), both (2, C) and of the whole batch.
    """
    h, inverse = _normalized(data, moments, axis, eps)
    of_g, of_gh = along(axis, data, *_rows(means))
    (scale,) = along(axis, data, gamma)
    return (g - (of_g + h * of_gh)) * (inverse if fix_gamma else inverse * scale)

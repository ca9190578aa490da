"""Normalization on a GPU: kernels for the moments (`kernels.moments`), one kernel per formula."""

from __future__ import annotations

from typing import Any

from d2lmini.cuda import kernels
from d2lmini.ops.core import as_three_axes
from d2lmini.ops.normalization import (
    BatchNorm,
    all_outputs,
    first_output,
    normalize_into,
)
from d2lmini.ops.normalization_backward import normalize_backward


@normalize_into.kernel("cuda")
def _(
    xp: Any, x: Any, axes: tuple[int, ...], split: int, eps: float, gamma: Any, beta: Any, y: Any
) -> tuple[Any, Any]:  # fmt: skip
    means, variances = kernels.moments.moments(xp, x, axes)
    kernels.fused.apply_fused(
        xp, _normalized, [x, means, variances, gamma, beta], out=y, eps=float(eps)
    )  # fmt: skip
    return means, variances


@BatchNorm.kernel("cuda")
def _(
    xp, data, gamma, beta, moving_mean, moving_var, *, eps=1e-3, momentum=0.9, fix_gamma=True,
    use_global_stats=False, axis=1, training, out=None, **others,
):  # fmt: skip
    of_batch = training and not use_global_stats
    written = (moving_mean, moving_var, *(() if out is None else out[1:])) if of_batch else ()
    if not data.size or not all(place.flags.c_contiguous for place in written):
        return BatchNorm.compute(
            xp, data, gamma, beta, moving_mean, moving_var, eps=eps, momentum=momentum,
            fix_gamma=fix_gamma, use_global_stats=use_global_stats, axis=axis, training=training,
            out=out, **others,
        )  # fmt: skip
    y = first_output(xp, data, out)
    view = as_three_axes(data.shape, axis)
    x, place, column = data.reshape(view), y.reshape(view), (1, view[1], 1)
    scale = xp.ones(column, gamma.dtype) if fix_gamma else gamma.reshape(column)
    shift = beta.reshape(column)
    if of_batch:
        moving = moving_mean, moving_var
        outs = [xp.empty(v.shape, v.dtype) for v in moving] if out is None else out[1:]
        mean, var = kernels.moments.batch_moments(xp, x, (0, 2), moving, outs, momentum, eps)
    else:
        wide = xp.promote_types(x.dtype, "float32")
        mean, var = (v.reshape(column).astype(wide, copy=False) for v in (moving_mean, moving_var))
    kernels.fused.apply_fused(
        xp, _normalized, [x, mean, var, scale, shift], out=place, eps=float(eps)
    )
    if of_batch:
        return (y, *outs)
    inverse = kernels.fused.apply_fused(xp, _inverse, [var], eps=float(eps))
    return all_outputs(y, mean.reshape(-1), inverse.reshape(-1), gamma.dtype, out)


def _normalized(
    xp: Any, x: Any, mean: Any, variance: Any, gamma: Any, beta: Any, *, eps: float
) -> Any:
    return (x - mean) * (gamma / xp.sqrt(variance + eps)) + beta


def _inverse(xp: Any, variance: Any, *, eps: float) -> Any:
    return 1 / xp.sqrt(variance + eps)


@normalize_backward.kernel("cuda")
def _(xp, g, x, gamma, *, axes, eps, out=None):
    if x.size == 0:
        return normalize_backward.compute(xp, g, x, gamma, axes=axes, eps=eps, out=out)
    shapes = (x, gamma, gamma)
    out = tuple(xp.empty(a.shape, a.dtype) for a in shapes) if out is None else out
    dx, dgamma, dbeta = out
    wide = xp.promote_types(x.dtype, "float32")
    shared = tuple(a for a, n in enumerate(gamma.shape) if n == 1)
    in_order = dgamma.flags.c_contiguous and dbeta.flags.c_contiguous
    if shared == axes and in_order:  # gamma has size 1 on the axes of the means
        found = kernels.moments.slope_moments(xp, g, x, axes, eps, dgamma, dbeta)
        kernels.fused.apply_fused(xp, _slope_of_group, [g, x, gamma, *found], out=dx)
        return out
    mean, variance = kernels.moments.moments(xp, x, axes)
    along_h = kernels.fused.apply_fused(xp, _along_h, [g, x, mean, variance], eps=float(eps))
    dgamma[...] = along_h.sum(axis=shared, keepdims=True)
    dbeta[...] = g.sum(axis=shared, dtype=wide, keepdims=True)
    mean_g, mean_gh = (
        kernels.fused.apply_fused(xp, _product, [a, gamma]).mean(
            axis=axes, dtype=wide, keepdims=True
        )
        for a in (g, along_h)
    )
    given = [g, x, gamma, mean, variance, mean_g, mean_gh]
    kernels.fused.apply_fused(xp, _slope, given, out=dx, eps=float(eps))
    return out


def _slope_of_group(
    xp: Any, g: Any, x: Any, gamma: Any, mean: Any, inverse: Any, mean_g: Any, mean_gx: Any
) -> Any:
    return (g - mean_g - (x - mean) * mean_gx) * (inverse * gamma)


def _along_h(xp: Any, g: Any, x: Any, mean: Any, variance: Any, *, eps: float) -> Any:
    return g * (x - mean) / xp.sqrt(variance + eps)


def _product(xp: Any, a: Any, b: Any) -> Any:
    return a * b


def _slope(
    xp: Any, g: Any, x: Any, gamma: Any, mean: Any, variance: Any, mean_g: Any, mean_gh: Any, *,
    eps: float,
) -> Any:  # fmt: skip
    deviation = xp.sqrt(variance + eps)
    return (g * gamma - mean_g - (x - mean) / deviation * mean_gh) / deviation

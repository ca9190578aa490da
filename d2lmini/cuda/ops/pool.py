"""Pooling on a GPU: a thread for each window, or for each pixel (`kernels.pooling`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from d2lmini.cuda.kernels import pooling
from d2lmini.ops.pool import (
    Pooling,
    max_pooling_backward,
    max_pooling_pick,
    pool_of,
    pooling_spread,
    windows_on,
)


def _divisor(average: bool, include_pad: bool) -> int:
    """The divisor of a kernel: one of the constants of `kernels.pooling`."""
    if not average:
        return pooling.SUM
    return pooling.MEAN if include_pad else pooling.MEAN_ON_IMAGE


@Pooling.kernel("cuda")
def _(
    xp, data, *, kernel=(), pool_type="max", global_pool=False, pooling_convention="valid",
    stride=(), pad=(), p_value=None, count_include_pad=None, out=None, **_,
):  # fmt: skip
    pool = pool_of(data.shape[2:], kernel, stride, pad, global_pool, pooling_convention)
    y = xp.empty((*data.shape[:2], *pool.out), data.dtype) if out is None else out
    powered = pool_type == "lp" and p_value != 1
    x = xp.ascontiguousarray(data**p_value if powered else data)
    if pool_type == "max":
        pooling.max_pool(xp, x, y, pool)
    else:
        divisor = _divisor(pool_type == "avg", count_include_pad is not False)
        pooling.sum_pool(xp, x, y, pool, divisor)
    if powered:
        (xp.sqrt if p_value == 2 else xp.cbrt)(y, out=y)
    return y


@pooling_spread.kernel("cuda")
def _(
    xp, g, *, shape, kernel, stride, pad, average=False, count_include_pad=True, out=None, **_
):  # fmt: skip
    dx = xp.empty(shape, g.dtype) if out is None else out
    pool = windows_on(dx, g, kernel, stride, pad)
    divisor = _divisor(average, count_include_pad)
    pooling.pool_backward(xp, xp.ascontiguousarray(g), dx, pool, divisor)
    return dx


@max_pooling_backward.kernel("cuda")
def _(xp, g, data, y, **how):
    return _on_windows(xp, pooling.max_pool_backward, g, data, y, data.shape, **how)


@max_pooling_pick.kernel("cuda")
def _(xp, u, data, y, **how):
    return _on_windows(xp, pooling.max_pool_pick, u, data, y, y.shape, **how)


def _on_windows(
    xp: Any, launch: Callable[..., None], values: Any, data: Any, y: Any, shape: Any, *,
    kernel: Any, stride: Any, pad: Any, out: Any = None,
) -> Any:  # fmt: skip
    """Fill `out`, of `shape`, from `values` by a function of `kernels.pooling`, for the max pooling
    of `data` to y; return `out`."""
    out = xp.empty(shape, values.dtype) if out is None else out
    pool = windows_on(data, y, kernel, stride, pad)
    launch(xp, *map(xp.ascontiguousarray, (values, data, y)), out, pool)
    return out

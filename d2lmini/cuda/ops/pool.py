"""Pooling on a GPU: a thread for each window, or for each pixel (`kernels.pooling`)."""

from __future__ import annotations

from d2lmini.cuda.kernels import pooling
from d2lmini.ops.pool import (
    max_pooling_backward,
    max_pooling_pick,
    pooling_spread,
    reduce_windows,
)


@reduce_windows.kernel("cuda")
def _(xp, x, pool, kind, y):
    pooling.reduce(xp, xp.ascontiguousarray(x), y, pool, kind)


@pooling_spread.kernel("cuda")
def _(xp, g, *, pool, kind, out=None):
    dx = xp.empty((*g.shape[:2], *pool.size), g.dtype) if out is None else out
    pooling.spread(xp, xp.ascontiguousarray(g), dx, pool, kind)
    return dx


@max_pooling_backward.kernel("cuda")
def _(xp, g, data, y, *, pool, out=None):
    dx = xp.empty(data.shape, g.dtype) if out is None else out
    pooling.give_to_winners(xp, [xp.ascontiguousarray(a) for a in (g, data, y)], dx, pool)
    return dx


@max_pooling_pick.kernel("cuda")
def _(xp, u, data, y, *, pool, out=None):
    picked = xp.empty(y.shape, u.dtype) if out is None else out
    pooling.pick_winners(xp, [xp.ascontiguousarray(a) for a in (u, data, y)], picked, pool)
    return picked

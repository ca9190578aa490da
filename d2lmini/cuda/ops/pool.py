"""Pooling on a GPU: a thread for each window, or for each pixel (`kernels.pooling`)."""

from __future__ import annotations

import numpy as np

from d2lmini.cuda.kernels.pooling import GIVE, REDUCE, SPREAD
from d2lmini.ops import pool as ops


@ops.reduce_windows.kernel("cuda")
def _(xp, x, pool, kind, y):
    # A window outside the image has the lowest number.
    start = float(np.finfo(x.dtype).min) if kind == ops.MAX else 0.0
    REDUCE(xp, y.size, [xp.ascontiguousarray(x), y], pool, start, KIND=kind)


@ops.pooling_spread.kernel("cuda")
def _(xp, g, *, pool, kind, out=None):
    dx = xp.empty((*g.shape[:2], *pool.size), g.dtype) if out is None else out
    SPREAD(xp, dx.size, [xp.ascontiguousarray(g), dx], pool, KIND=kind)
    return dx


@ops.max_pooling_backward.kernel("cuda")
def _(xp, g, data, y, *, pool, out=None):
    dx = xp.empty(data.shape, g.dtype) if out is None else out
    GIVE(xp, dx.size, [*map(xp.ascontiguousarray, (g, data, y)), dx], pool)
    return dx

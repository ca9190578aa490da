"""Rows of `ops/synced_norm.py`: BatchNorm in steps. How they meet: test_sync_batch_norm.py."""

from __future__ import annotations

import numpy as np

from op_rows.case import Case, draw

OURS = {"grad": False, "mxnet": False, "why": "an op of our own: MXNet has it in one, which blocks"}


def axes_of(x):
    return tuple(a for a in range(x.ndim) if a != 1)


def spread(v, x):
    """One number per channel, beside all of x."""
    return v.reshape([-1 if a == 1 else 1 for a in range(x.ndim)]).astype("float64")


def moments(x):
    wide = x.astype("float64")
    if not x.size:
        return np.zeros((2, x.shape[1]), np.promote_types(x.dtype, "float32"))
    axes = axes_of(x)
    pair = np.stack([wide.mean(axes), wide.var(axes)])
    return pair.astype(np.promote_types(x.dtype, "float32"))


def hat(x, m, eps):
    return (x - spread(m[0], x)) / np.sqrt(spread(m[1], x) + eps)


def normalized(x, gamma, beta, mean, var, m, eps, momentum, fix_gamma):
    scale = 1 if fix_gamma else spread(gamma, x)
    return (hat(x, m, eps) * scale + spread(beta, x)).astype(x.dtype)


def sums(g, x, m, eps):
    axes = axes_of(x)
    pair = np.stack([g.astype("float64").sum(axes), (g * hat(x, m, eps)).sum(axes)])
    return pair.astype(m.dtype)


def gradient(g, x, gamma, m, means, eps, fix_gamma):
    away = spread(means[0], x) + hat(x, m, eps) * spread(means[1], x)
    scale = 1 if fix_gamma else spread(gamma, x)
    return ((g - away) * scale / np.sqrt(spread(m[1], x) + eps)).astype(x.dtype)


ROWS = []
for shape in ((5, 3), (2, 3, 4, 5), (2, 4, 3), (0, 3, 2), (64, 48, 9, 11)):
    for dtype in ("float32", "float16", "float64"):
        x, g = draw(shape, dtype=dtype), draw(shape, dtype=dtype, seed=1)
        C = shape[1]
        kind = "float64" if dtype == "float64" else "float32"
        m = np.stack([draw((C,), dtype=kind), draw((C,), 0.5, 2, kind)])
        gamma, beta, mean = (draw((C,), dtype=kind, seed=i) for i in range(3))
        close = {"rtol": 1e-2, "atol": 1e-2} if dtype == "float16" else {"rtol": 1e-4, "atol": 1e-4}
        ROWS.append(Case("_channel_moments", (x,), moments, **OURS, **close))
        ROWS.append(Case("_norm_sums", (g, x, m), sums, {"eps": 1e-5}, **OURS, **close))
        for fixed in (False, True):
            attrs = {"eps": 1e-3, "fix_gamma": fixed}
            given = (x, gamma, beta, mean, m[1], m)
            moving = {**attrs, "momentum": 0.9}
            ROWS.append(Case("_normalize_by", given, normalized, moving, **OURS, **close))
            given = (g, x, gamma, m, m[::-1])
            ROWS.append(Case("_norm_gradient", given, gradient, attrs, **OURS, **close))

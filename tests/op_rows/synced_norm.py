"""Rows of `ops/synced_norm.py`: BatchNorm in steps. How they meet: test_sync_batch_norm.py."""

from __future__ import annotations

import numpy as np

from op_rows.case import Case, draw

OURS = {"grad": False, "mxnet": False, "why": "an op of our own: MXNet has it in one, which blocks"}


def axes_of(x, axis):
    return tuple(a for a in range(x.ndim) if a != axis % x.ndim)


def spread(v, x, axis):
    """One number per channel, beside all of x."""
    return v.reshape([-1 if a == axis % x.ndim else 1 for a in range(x.ndim)]).astype("float64")


def moments(x, axis=1):
    wide = x.astype("float64")
    if not x.size:
        return np.zeros((2, x.shape[axis]), np.promote_types(x.dtype, "float32"))
    axes = axes_of(x, axis)
    pair = np.stack([wide.mean(axes), wide.var(axes)])
    return pair.astype(np.promote_types(x.dtype, "float32"))


def hat(x, m, axis, eps):
    return (x - spread(m[0], x, axis)) / np.sqrt(spread(m[1], x, axis) + eps)


def normalized(x, gamma, beta, mean, var, m, axis=1, eps=1e-5, momentum=0.9, fix_gamma=False):
    scale = 1 if fix_gamma else spread(gamma, x, axis)
    return (hat(x, m, axis, eps) * scale + spread(beta, x, axis)).astype(x.dtype)


def sums(g, x, m, axis=1, eps=1e-5):
    axes = axes_of(x, axis)
    pair = np.stack([g.astype("float64").sum(axes), (g * hat(x, m, axis, eps)).sum(axes)])
    return pair.astype(m.dtype)


def gradient(g, x, gamma, m, means, axis=1, eps=1e-5, fix_gamma=False):
    away = spread(means[0], x, axis) + hat(x, m, axis, eps) * spread(means[1], x, axis)
    scale = 1 if fix_gamma else spread(gamma, x, axis)
    return ((g - away) * scale / np.sqrt(spread(m[1], x, axis) + eps)).astype(x.dtype)


ROWS = []
for shape, axis in (
    ((5, 3), 1), ((2, 3, 4, 5), 1), ((2, 4, 3), -1), ((3, 6), 0), ((0, 3, 2), 1),
    ((64, 48, 9, 11), 1),
):  # fmt: skip
    for dtype in ("float32", "float16", "float64"):
        x, g = draw(shape, dtype=dtype), draw(shape, dtype=dtype, seed=1)
        C = shape[axis]
        kind = "float64" if dtype == "float64" else "float32"
        m = np.stack([draw((C,), dtype=kind), draw((C,), 0.5, 2, kind)])
        gamma, beta, mean = (draw((C,), dtype=kind, seed=i) for i in range(3))
        close = {"rtol": 1e-2, "atol": 1e-2} if dtype == "float16" else {"rtol": 1e-4, "atol": 1e-4}
        ROWS.append(Case("_channel_moments", (x,), moments, {"axis": axis}, **OURS, **close))
        ROWS.append(Case("_norm_sums", (g, x, m), sums, {"axis": axis}, **OURS, **close))
        for fixed in (False, True):
            attrs = {"axis": axis, "eps": 1e-3, "fix_gamma": fixed}
            given = (x, gamma, beta, mean, m[1], m)
            ROWS.append(Case("_normalize_by", given, normalized, attrs, **OURS, **close))
            given = (g, x, gamma, m, m[::-1])
            ROWS.append(Case("_norm_gradient", given, gradient, attrs, **OURS, **close))

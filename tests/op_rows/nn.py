"""Rows of `ops/linalg.py` and `ops/normalization.py`."""

from __future__ import annotations

import numpy as np

from d2lmini.ops.random_state import Key
from op_rows.case import Case, draw

OWN = "an op of ours alone"
HALF = "MXNet has no float16 for this on the CPU"


def fully_connected(x, w, b=None, num_hidden=0, no_bias=False, flatten=True):
    rows = x.reshape(len(x), w.shape[1]) if flatten else x
    y = rows.astype("float64") @ w.T.astype("float64")
    return (y if b is None else y + b).astype(x.dtype)


ROWS = []
for shape, flatten in (
    ((3, 4), True), ((3, 2, 2), True), ((3, 2, 4), False), ((4,), False), ((1, 4), True),
    ((4, 1), True),
):  # fmt: skip
    inner = int(np.prod(shape[1:])) if flatten else shape[-1]
    x, w, b = draw(shape), draw((5, inner), seed=1), draw((5,), seed=2)
    attrs = {"num_hidden": 5, "flatten": flatten}
    ROWS += [
        Case("FullyConnected", (x, w, b), fully_connected, attrs),
        Case("FullyConnected", (x, w), fully_connected, {**attrs, "no_bias": True}),
    ]
for dtype in ("float16", "float64"):
    arrays = (draw((3, 4), dtype=dtype), draw((2, 4), dtype=dtype), draw((2,), dtype=dtype))
    ROWS.append(
        Case("FullyConnected", arrays, fully_connected, {"num_hidden": 2}, rtol=2e-3, atol=5e-3,
             mxnet=dtype != "float16", why=HALF)
    )  # fmt: skip
empty = (draw((0, 4)), draw((2, 4)), draw((2,)))
ROWS.append(
    Case(
        "FullyConnected",
        empty,
        fully_connected,
        {"num_hidden": 2},
        mxnet=False,
        why="no batch of 0",
    )
)

# -- Dropout: its mask is in test_nn.py; here is what does not depend on it -----------------------

for shape in ((3, 4), (1,), (0,), ()):
    ROWS += [
        Case("Dropout", (draw(shape),), lambda x, p=0.5: x, {"p": p},
             mxnet=bool(shape and shape[0]), why="MXNet takes () and a size of 0 for unknown")
        for p in (0.0, 0.5)
    ]  # fmt: skip
always = {"mode": "always"}
ROWS += [
    Case("Dropout", (draw((3, 4)),), lambda x, p, mode: x, {"p": 0.0, **always}),
    Case("Dropout", (draw((3, 4)),), lambda x, p, mode: 0 * x, {"p": 1.0, **always}, mxnet=False,
         why="MXNet divides by zero"),
    Case("_dropped", (draw((3, 4)),), lambda x, p, axes, key: 0 * x,
         {"p": 1.0, "axes": (), "key": Key(1, 0, 0)}, mxnet=False, why=OWN),
]  # fmt: skip

# -- L2Normalization ------------------------------------------------------------------------------


def l2(x, eps=1e-10, mode="instance"):
    axes = {"instance": range(1, x.ndim), "channel": (1,), "spatial": range(2, x.ndim)}[mode]
    square = (x.astype("float64") ** 2).sum(tuple(axes), keepdims=True)
    return (x / np.sqrt(square + eps)).astype(x.dtype)


ROWS += [
    Case("L2Normalization", (draw(shape),), l2, attrs)
    for shape in ((2, 3, 4), (2, 3, 2, 2), (1, 5, 1))
    for attrs in ({}, {"mode": "channel"}, {"mode": "spatial"}, {"eps": 2.0})
]
ROWS += [
    Case("L2Normalization", (draw((3, 4), dtype="float16"),), l2, rtol=2e-3, atol=1e-3),
]


# -- normalization --------------------------------------------------------------------------------


def normalized(x, axes, eps):
    x = x.astype("float64")
    mean, var = x.mean(axes, keepdims=True), x.var(axes, keepdims=True)
    return (x - mean) / np.sqrt(var + eps), mean, np.sqrt(var + eps)


def layer_norm(x, gamma, beta, axis=-1, eps=1e-5):
    h = normalized(x, axis, eps)[0]
    column = (-1, *(1,) * (x.ndim - 1 - axis % x.ndim))
    return (h * gamma.reshape(column) + beta.reshape(column)).astype(x.dtype)


def instance_norm(x, gamma, beta, eps=1e-3):
    h = normalized(x, tuple(range(2, x.ndim)), eps)[0]
    column = (-1, *(1,) * (x.ndim - 2))
    return (h * gamma.reshape(column) + beta.reshape(column)).astype(x.dtype)


def group_norm(x, gamma, beta, num_groups=1, eps=1e-5):
    h = normalized(x.reshape(len(x), num_groups, -1), 2, eps)[0]
    if gamma.shape == (num_groups,):
        gamma, beta = (v.repeat(x.shape[1] // num_groups) for v in (gamma, beta))
    column = (-1, *(1,) * (x.ndim - 2))
    y = h.reshape(x.shape) * gamma.reshape(column) + beta.reshape(column)
    return y.astype(x.dtype)


def batch_norm(
    x, gamma, beta, mean, var, eps=1e-3, fix_gamma=True, output_mean_var=False, axis=1, **_
):
    column = (-1, *(1,) * (x.ndim - 1 - axis % x.ndim))
    inverse = 1 / np.sqrt(var.astype("float64") + eps)
    scale = inverse * (1 if fix_gamma else gamma)
    y = (x - mean.reshape(column)) * scale.reshape(column) + beta.reshape(column)
    results = [y.astype(x.dtype), mean, inverse.astype(var.dtype)]
    return results if output_mean_var else results[0]


def normalized_batch(x, gamma, beta, eps, fix_gamma, axis):
    axes = tuple(a for a in range(x.ndim) if a != axis % x.ndim)
    moments = (m.astype("float64").reshape(-1) for m in (x.mean(axes), x.var(axes)))
    return batch_norm(x, gamma, beta, *moments, eps, fix_gamma, axis=axis)


def parameters(n, dtype="float32"):
    return draw((n,), 0.5, 2, dtype), draw((n,), -1, 1, dtype, seed=1)


def normalize_backward(g, x, gamma, axes, eps):
    h, _mean, deviation = normalized(x, axes, eps)
    gh = (g * gamma).astype("float64")
    away = gh.mean(axes, keepdims=True) + h * (gh * h).mean(axes, keepdims=True)
    shared = tuple(a for a, n in enumerate(gamma.shape) if n == 1)
    sums = ((v.astype("float64")).sum(shared, keepdims=True) for v in (g * h, g))
    return [((gh - away) / deviation).astype(x.dtype), *(v.astype(gamma.dtype) for v in sums)]


CLOSE = {"rtol": 1e-4, "atol": 1e-5}
for shape, axis in (((3, 4), -1), ((2, 3, 4), -1), ((2, 3, 4), 1), ((2, 3, 4), 0), ((5, 1), -1)):
    arrays = (draw(shape), *parameters(shape[axis]))
    ROWS.append(Case("LayerNorm", arrays, layer_norm, {"axis": axis, "eps": 0.1}, **CLOSE))
for shape in ((2, 3, 4), (2, 3, 2, 3), (1, 1, 5)):
    ROWS.append(Case("InstanceNorm", (draw(shape), *parameters(shape[1])), instance_norm, **CLOSE))
for shape, groups in (((2, 4, 3), 2), ((2, 4, 2, 2), 1), ((1, 4, 3), 4)):
    for n in {groups, 4}:
        arrays = (draw(shape), *parameters(n))
        here = {"mxnet": n == groups, "why": "MXNet 1.9 has one gamma per group"}
        ROWS.append(Case("GroupNorm", arrays, group_norm, {"num_groups": groups}, **CLOSE, **here))
for name, expect in (("LayerNorm", layer_norm), ("InstanceNorm", instance_norm),
                     ("GroupNorm", group_norm)):  # fmt: skip
    arrays = (draw((2, 3, 3), dtype="float16"), *parameters(3, "float16"))
    ROWS.append(
        Case(name, arrays, expect, {"num_groups": 3} if name == "GroupNorm" else {}, rtol=1e-2,
             atol=1e-2, mxnet=False, why=HALF)
    )  # fmt: skip
# Outside training; training is in test_nn.py.
for shape, axis in (((2, 3, 4), 1), ((2, 3), 1), ((2, 3, 2, 2), -1), ((2, 1, 3), 1)):
    n = shape[axis]
    for attrs in ({}, {"fix_gamma": False}, {"use_global_stats": True, "eps": 0.01}):
        arrays = (
            draw(shape),
            *parameters(n),
            draw((n,), -1, 1, seed=3),
            draw((n,), 0.5, 2, seed=4),
        )
        if "use_global_stats" not in attrs:
            how = {"eps": 0.01, "fix_gamma": not attrs, "axis": axis}
            ROWS.append(
                Case("_normalized_batch", arrays[:3], normalized_batch, how, **CLOSE, mxnet=False,
                     why="MXNet has no such op: BatchNorm is compared")
            )  # fmt: skip
        attrs = {**attrs, "axis": axis, "output_mean_var": True}
        ROWS.append(Case("BatchNorm", arrays, batch_norm, attrs, **CLOSE))
for other in ("float16", "float32"):
    arrays = (draw((2, 3, 4), dtype="float16"), *parameters(3, other), draw((3,), dtype=other),
              draw((3,), 0.5, 2, other))  # fmt: skip
    ROWS.append(
        Case("BatchNorm", arrays, batch_norm, {"output_mean_var": True}, rtol=1e-2, atol=1e-2,
             mxnet=False, why=HALF)
    )  # fmt: skip

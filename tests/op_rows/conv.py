"""Rows of `ops/conv.py` and `ops/pool.py`."""

from __future__ import annotations

from itertools import product

import numpy as np

from d2lmini.ops.pool import MEAN, MEAN_ON_IMAGE, SUM
from d2lmini.ops.windows import Geometry, geometry
from op_rows.case import Case, draw

OWN = "an op of ours alone"
HALF = "MXNet has no float16 convolution on the CPU"


def full(values, ndim, default):
    return tuple(values) or (default,) * ndim


def window_starts(kernel, stride, dilate, out):
    """(output place, tap, padded input place) of every pair of an output and a weight."""
    for o in product(*map(range, out)):
        for k in product(*map(range, kernel)):
            yield o, k, tuple(a * s + b * d for a, s, b, d in zip(o, stride, k, dilate))


def convolution(
    x, w, b=None, *, kernel, num_filter, stride=(), dilate=(), pad=(), num_group=1, no_bias=False,
    layout=None,
):  # fmt: skip
    """One multiplication after the other."""
    ndim = len(kernel)
    stride, dilate, pad = full(stride, ndim, 1), full(dilate, ndim, 1), full(pad, ndim, 0)
    padded = np.pad(x.astype("float64"), [(0, 0), (0, 0), *((p, p) for p in pad)])
    out = [
        (n - d * (k - 1) - 1) // s + 1
        for n, k, s, d in zip(padded.shape[2:], kernel, stride, dilate)
    ]
    grouped = padded.reshape(len(x), num_group, w.shape[1], *padded.shape[2:])
    filters = w.reshape(num_group, -1, *w.shape[1:]).astype("float64")
    y = np.zeros((len(x), num_group, num_filter // num_group, *out))
    for o, k, i in window_starts(kernel, stride, dilate, out):
        y[(..., *o)] += np.einsum("ngc,gfc->ngf", grouped[(..., *i)], filters[(..., *k)])
    y = y.reshape(len(x), num_filter, *out)
    if b is not None:
        y += b.reshape(-1, *(1,) * ndim)
    return y.astype(x.dtype)


def backward_data(g, w, *, geo, num_group):
    size, kernel, stride, dilate, pad, _ = geo
    shape = (len(g), w.shape[1] * num_group, *size)
    padded = np.zeros((*shape[:2], *(n + 2 * p for n, p in zip(shape[2:], pad))))
    grouped = padded.reshape(len(g), num_group, -1, *padded.shape[2:])
    gs = g.reshape(len(g), num_group, -1, *g.shape[2:])
    filters = w.reshape(num_group, -1, *w.shape[1:])
    for o, k, i in window_starts(kernel, stride, dilate, g.shape[2:]):
        grouped[(..., *i)] += np.einsum("ngf,gfc->ngc", gs[(..., *o)], filters[(..., *k)])
    inside = tuple(slice(p, p + n) for p, n in zip(pad, shape[2:]))
    return padded[(..., *inside)].astype(g.dtype)


def backward_weight(x, g, *, geo, num_group):
    _, kernel, stride, dilate, pad, _ = geo
    padded = np.pad(x, [(0, 0), (0, 0), *((p, p) for p in pad)])
    grouped = padded.reshape(len(x), num_group, -1, *padded.shape[2:])
    gs = g.reshape(len(g), num_group, -1, *g.shape[2:])
    dw = np.zeros((num_group, gs.shape[2], grouped.shape[2], *kernel))
    for o, k, i in window_starts(kernel, stride, dilate, g.shape[2:]):
        dw[(..., *k)] += np.einsum("ngf,ngc->gfc", gs[(..., *o)], grouped[(..., *i)])
    return dw.reshape(-1, *dw.shape[2:]).astype(x.dtype)


def deconvolution(
    x, w, b=None, *, kernel, num_filter, stride=(), dilate=(), pad=(), adj=(), num_group=1,
    no_bias=True,
):  # fmt: skip
    ndim = len(kernel)
    stride, dilate, pad = full(stride, ndim, 1), full(dilate, ndim, 1), full(pad, ndim, 0)
    spread = [
        (n - 1) * s + d * (k - 1) + 1 for n, s, d, k in zip(x.shape[2:], stride, dilate, kernel)
    ]
    adj = full(adj, ndim, 0)
    size = tuple(n - 2 * p + a for n, p, a in zip(spread, pad, adj))
    geo = Geometry(size, kernel, stride, dilate, pad, x.shape[2:])
    y = backward_data(x, w, geo=geo, num_group=num_group)
    return y if b is None else (y + b.reshape(-1, *(1,) * ndim)).astype(y.dtype)


ROWS = []
CLOSE = {"rtol": 1e-4, "atol": 1e-5}
# (spatial size, kernel, further attributes)
GEOMETRIES = (
    ((7,), (3,), {}),
    ((8,), (2,), {"stride": (2,), "pad": (1,)}),
    ((5, 6), (3, 3), {}),
    ((5, 6), (3, 2), {"pad": (1, 0), "stride": (2, 1)}),
    ((7, 7), (3, 3), {"dilate": (2, 2), "pad": (2, 1)}),
    ((5, 4), (1, 1), {"stride": (2, 2)}),
    ((3, 4, 3), (2, 2, 2), {"stride": (1, 2, 1), "pad": (0, 1, 1)}),
)
for size, kernel, attrs in GEOMETRIES:
    attrs = {"kernel": kernel, **attrs}
    for N, C, F, G in ((2, 3, 4, 1), (1, 4, 6, 2), (3, 2, 2, 2)):
        x, w = draw((N, C, *size)), draw((F, C // G, *kernel), seed=1)
        more = {**attrs, "num_filter": F, "num_group": G}
        ROWS += [
            Case("Convolution", (x, w, draw((F,), seed=2)), convolution, more, **CLOSE),
            Case("Convolution", (x, w), convolution, {**more, "no_bias": True}, **CLOSE),
        ]
    y, how = draw((2, 4, *size)), {**attrs, "num_filter": 6, "num_group": 2}
    w, b = draw((4, 3, *kernel), seed=1), draw((6,), seed=2)
    if len(size) < 3 and "dilate" not in attrs:  # MXNet does neither on the CPU
        ROWS += [
            Case("Deconvolution", (y, w), deconvolution, how, **CLOSE),
            Case("Deconvolution", (y, w, b), deconvolution, {**how, "no_bias": False}, **CLOSE),
        ]
    else:
        ROWS.append(
            Case("Deconvolution", (y, w), deconvolution, how, mxnet=False, why="not on its CPU")
        )
    x, w = draw((2, 4, *size)), draw((6, 2, *kernel), seed=1)
    g = convolution(x, w, num_filter=6, num_group=2, **attrs)
    lists = [attrs.get(name, ()) for name in ("stride", "dilate", "pad")]
    how = {"geo": geometry(size, kernel, *lists), "num_group": 2}
    ROWS += [
        Case("_conv_backward_data", (g, w), backward_data, how, **CLOSE,
             mxnet=False, why=OWN),
        Case("_conv_backward_weight", (x, g), backward_weight, how, **CLOSE, mxnet=False,
             why=OWN),
    ]  # fmt: skip
ROWS += [
    Case("Convolution", (draw((2, 2, 5, 5), dtype=dtype), draw((3, 2, 3, 3), dtype=dtype),
         draw((3,), dtype=dtype)), convolution, {"kernel": (3, 3), "num_filter": 3},
         rtol=2e-3, atol=1e-2, mxnet=dtype != "float16", why=HALF)
    for dtype in ("float16", "float64")
] + [
    Case("Convolution", (draw((2, 2, 5, 5)), draw((3, 2, 3, 3))), convolution,
         {"kernel": (3, 3), "num_filter": 3, "no_bias": True, "layout": "NCHW"}, **CLOSE),
    Case("Convolution", (draw((0, 2, 5, 5)), draw((3, 2, 3, 3))), convolution,
         {"kernel": (3, 3), "num_filter": 3, "no_bias": True}, mxnet=False, why="no batch of 0"),
]  # fmt: skip
ROWS += [
    Case("Deconvolution", (draw((2, 3, 3, 4)), draw((3, 2, *kernel), seed=1)), deconvolution,
         {"kernel": kernel, "num_filter": 2, **attrs}, **CLOSE, mxnet=mxnet, why="not on its CPU")
    for kernel, attrs, mxnet in (
        ((3, 3), {"stride": (2, 2), "pad": (1, 1), "adj": (1, 1)}, True),
        ((3, 3), {"dilate": (2, 2)}, False),
    )
]  # fmt: skip

# -- pooling --------------------------------------------------------------------------------------


def windows(size, kernel, stride, pad, convention):
    """(output place, slices of the image, places with padding) of every window."""
    rounded = np.ceil if convention == "full" else np.floor
    out = [int(rounded((n + 2 * p - k) / s)) + 1 for n, k, s, p in zip(size, kernel, stride, pad)]
    for o in product(*map(range, out)):
        starts = [a * s - p for a, s, p in zip(o, stride, pad)]
        ends = [min(a + k, n + p) for a, k, n, p in zip(starts, kernel, size, pad)]
        inside = tuple(slice(max(a, 0), max(min(b, n), 0)) for a, b, n in zip(starts, ends, size))
        yield out, o, inside, np.prod([max(b - a, 1) for a, b in zip(starts, ends)])


def pooling(
    x, *, kernel=(), pool_type="max", global_pool=False, stride=(), pad=(),
    pooling_convention="valid", p_value=None, count_include_pad=None,
):  # fmt: skip
    size = x.shape[2:]
    if global_pool:
        kernel, stride, pad = size, (), ()
    stride, pad = full(stride, len(size), 1), full(pad, len(size), 0)
    y = None
    for out, o, inside, count in windows(size, kernel, stride, pad, pooling_convention):
        y = np.zeros((*x.shape[:2], *out)) if y is None else y
        window = x[(..., *inside)].reshape(*x.shape[:2], -1).astype("float64")
        if pool_type == "max":
            empty = np.full((*x.shape[:2], 1), np.finfo(x.dtype).min)
            y[(..., *o)] = np.concatenate([window, empty], -1).max(-1)
        else:
            if count_include_pad is False:
                count = max(window.shape[-1], 1)
            y[(..., *o)] = window.sum(-1) / (count if pool_type == "avg" else 1)
    return y.astype(x.dtype)


POOLS = (
    ((6,), {"kernel": (3,), "stride": (2,), "pad": (1,), "pooling_convention": "full"}),
    ((5, 5), {"kernel": (2, 2), "stride": (2, 2)}),
    ((5, 5), {"kernel": (3, 3), "stride": (2, 2), "pad": (1, 1)}),
    ((6, 5), {"kernel": (3, 2), "stride": (3, 1), "pad": (1, 0), "pooling_convention": "full"}),
    ((4, 5), {"global_pool": True, "kernel": (2, 2), "stride": (2, 2), "pad": (1, 1)}),
    ((3, 4, 3), {"kernel": (2, 2, 2), "stride": (1, 2, 1), "pad": (0, 1, 1)}),
)
for size, attrs in POOLS:
    x = draw((2, 3, *size), -3, 3)
    for kind in ("max", "avg", "sum"):
        ROWS.append(Case("Pooling", (x,), pooling, {**attrs, "pool_type": kind}, **CLOSE))
    ROWS += [
        Case("Pooling", (x,), pooling, {**attrs, "pool_type": "avg", "count_include_pad": False},
             **CLOSE),
    ]  # fmt: skip
for dtype in ("float16", "float64"):
    for kind in ("max", "avg"):
        attrs = {"kernel": (2, 2), "pool_type": kind}
        ROWS.append(
            Case(
                "Pooling", (draw((1, 2, 3, 4), dtype=dtype),), pooling, attrs, rtol=2e-3, atol=1e-3
            )
        )
ROWS += [
    # Windows that hold no place of the image at all.
    Case("Pooling", (draw((1, 1, 5)),), pooling,
         {"kernel": (1,), "stride": (3,), "pooling_convention": "full", "pool_type": kind})
    for kind in ("max", "avg", "sum")
] + [
    Case("Pooling", (draw((0, 2, 4, 4)),), lambda x, **_: np.zeros((0, 2, 3, 3), "float32"),
         {"kernel": (2, 2), "pool_type": kind}, mxnet=False, why="no batch of 0")
    for kind in ("max", "avg")
]  # fmt: skip


def windows_on(pool):
    """`windows` of this geometry."""
    return windows(pool.size, pool.kernel, pool.stride, pool.pad, "valid")


def winners(data, pool):
    """(output place, images, input place) of the first largest element of every window."""
    for _out, o, inside, _count in windows_on(pool):
        window = data[(..., *inside)]
        flat = window.reshape(*data.shape[:2], -1).argmax(-1)
        for image in np.ndindex(*data.shape[:2]):
            place = np.unravel_index(flat[image], window.shape[2:])
            yield o, image, tuple(p + s.start for p, s in zip(place, inside))


def max_backward(g, data, y, *, pool):
    dx = np.zeros_like(data)
    for o, image, place in winners(data, pool):
        dx[image + place] += g[image + o]
    return dx


def spread(g, *, pool, kind):
    dx = np.zeros((*g.shape[:2], *pool.size), g.dtype)
    for _out, o, inside, count in windows_on(pool):
        divisor = {SUM: 1, MEAN: count, MEAN_ON_IMAGE: dx[(0, 0, *inside)].size}[kind]
        part = g[(..., *o)][(..., *(None,) * len(pool.kernel))]
        dx[(..., *inside)] += part / divisor
    return dx


for size, kernel, stride, pad in (
    ((5, 5), (3, 3), (2, 2), (1, 1)),
    ((4, 4), (2, 2), (2, 2), (0, 0)),
):
    x = draw((2, 3, *size))
    y = pooling(x, kernel=kernel, stride=stride, pad=pad)
    how = {"pool": geometry(size, kernel, stride, (), pad)}
    tied, ones = np.ones_like(x), np.ones_like(y)
    alone = {"mxnet": False, "why": OWN}
    for data, top in ((x, y), (tied, ones)):
        moves = {"grad": False, "mxnet": False, "why": "data and y only say who wins"}
        ROWS += [
            Case("_max_pooling_backward", (draw(y.shape), data, top), max_backward, how, **moves),
        ]
    for kind in (SUM, MEAN, MEAN_ON_IMAGE):
        attrs = {**how, "kind": kind}
        ROWS.append(
            Case("_pooling_spread", (draw(y.shape),), spread, attrs, **CLOSE, **alone, grad=False)
        )

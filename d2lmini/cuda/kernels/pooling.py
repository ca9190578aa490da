"""Pooling on a GPU: a thread for each window; backward, a thread for each pixel.

A maximum's gradient goes to the first place of its window that holds the largest value. If no two
windows overlap, the thread of a window finds that place and writes there. If windows overlap, the
thread of a pixel checks, in every window that contains the pixel, whether the pixel is that place:
this reads more, but only one thread writes each pixel, and the sum always has the same order.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from d2lmini.cuda.kernels.typed import TypedKernel
from d2lmini.cuda.kernels.windows import sizes_of

#: The result for a window: its sum, its mean over all places, or its mean over places in the image.
SUM, MEAN, MEAN_ON_IMAGE = 0, 1, 2

_PARAMETERS = """
    const Index planes, const Index D, const Index H, const Index W,
    const Index KD, const Index KH, const Index KW, const Index SD, const Index SH, const Index SW,
    const Index PD, const Index PH, const Index PW, const Index OD, const Index OH, const Index OW
"""

#: A window cut off at the image's ends: from begin to end along each axis.
_WINDOW = """
struct Window { Index d0, d1, h0, h1, w0, w1; };
__device__ inline Index low(Index a, Index b) { return a < b ? a : b; }
__device__ inline Index high(Index a, Index b) { return a > b ? a : b; }
// How many places along an axis a mean counts (1: its padding, too); 1 if it is a sum (0).
__device__ inline A places(int mean, Index begin, Index K, Index size, Index P) {
    if (mean == 0) return 1;
    const Index from = mean == 1 ? begin : high(begin, 0);
    return high(low(begin + K, mean == 1 ? size + P : size) - from, 1);
}
"""

#: The window of output i, whose plane of x begins at `base`.
_FIND_WINDOW = """
        const Index ow = i % OW, oh = i / OW % OH, od = i / (OW * OH) % OD;
        const Index d = od * SD - PD, h = oh * SH - PH, w = ow * SW - PW;
        const Window in = {high(d, 0), low(d + KD, D), high(h, 0), low(h + KH, H),
                           high(w, 0), low(w + KW, W)};
        const Index base = i / (OW * OH * OD) * (D * H * W);
"""

_FIRST = """
// The first place in the window with the largest value; -1 if the largest value is nan.
__device__ inline Index first_place(const T* x, const Window in, A largest, Index H, Index W) {
    for (Index d = in.d0; d < in.d1; ++d)
        for (Index h = in.h0; h < in.h1; ++h)
            for (Index w = in.w0; w < in.w1; ++w)
                if (loaded(x[(d * H + h) * W + w]) == largest) return (d * H + h) * W + w;
    return -1;
}
"""

_WALK = (
    "for (Index i = blockIdx.x * blockDim.x + threadIdx.x; i < {n}; i += gridDim.x * blockDim.x)"
)
_OUTPUTS = _WALK.format(n="planes * OD * OH * OW")
_PIXELS = _WALK.format(n="planes * D * H * W")


#: The windows over pixel i: from o0 to o1 along each axis.
_WINDOWS_OVER = """
        const Index w = i % W, h = i / W % H, d = i / (W * H) % D, plane = i / (W * H * D);
        const Index w0 = w + PW < KW ? 0 : (w + PW - KW) / SW + 1, w1 = low((w + PW) / SW + 1, OW);
        const Index h0 = h + PH < KH ? 0 : (h + PH - KH) / SH + 1, h1 = low((h + PH) / SH + 1, OH);
        const Index d0 = d + PD < KD ? 0 : (d + PD - KD) / SD + 1, d1 = low((d + PD) / SD + 1, OD);
        A sum = 0;
        for (Index od = d0; od < d1; ++od)
            for (Index oh = h0; oh < h1; ++oh)
                for (Index ow = w0; ow < w1; ++ow) {
                    const Index o = ((plane * OD + od) * OH + oh) * OW + ow;
"""


def _kernel(name: str, body: str, **words: str) -> TypedKernel:
    return TypedKernel(
        name, body, window=_WINDOW, first=_FIRST, parameters=_PARAMETERS, outputs=_OUTPUTS,
        pixels=_PIXELS, find_window=_FIND_WINDOW, windows_over=_WINDOWS_OVER, **words,
    )  # fmt: skip


_POOL = {
    kind: _kernel(
        f"{kind}_pool",
        """$window
extern "C" __global__ void ${kind}_pool(
    const T* x, T* y, const double start, const int mean,$parameters
) {
    $outputs {$find_window
        A total = A(start);
        for (Index d = in.d0; d < in.d1; ++d)
            for (Index h = in.h0; h < in.h1; ++h)
                for (Index w = in.w0; w < in.w1; ++w)
                    total = $combine;
        total /= places(mean, d, KD, D, PD) * places(mean, h, KH, H, PH) *
                 places(mean, w, KW, W, PW);
        y[i] = stored(total);
    }
}
""",
        kind=kind,
        combine=combine,
    )
    for kind, combine in (
        ("max", "maximum(total, loaded(x[base + (d * H + h) * W + w]))"),
        ("sum", "total + loaded(x[base + (d * H + h) * W + w])"),
    )
}

_SCATTER_GRADIENT = _kernel(
    "max_pool_scatter",
    """$window$first
// dx is 0 before; no two windows overlap.
extern "C" __global__ void max_pool_scatter(const T* g, const T* x, const T* y, T* dx,$parameters) {
    $outputs {$find_window
        const Index place = first_place(x + base, in, loaded(y[i]), H, W);
        if (place >= 0) dx[base + place] = g[i];
    }
}
""",
)

_PICK = _kernel(
    "max_pool_pick",
    """$window$first
extern "C" __global__ void max_pool_pick(const T* u, const T* x, const T* y, T* out,$parameters) {
    $outputs {$find_window
        const Index place = first_place(x + base, in, loaded(y[i]), H, W);
        out[i] = place >= 0 ? u[base + place] : T(0);
    }
}
""",
)


_GATHER_GRADIENT = _kernel(
    "max_pool_gather",
    """$window$first
extern "C" __global__ void max_pool_gather(const T* g, const T* x, const T* y, T* dx,$parameters) {
    $pixels {$windows_over
                    // The pixel gets g if it is the first place with the largest value.
                    if (loaded(x[i]) != loaded(y[o])) continue;
                    const Window in = {high(od * SD - PD, 0), low(od * SD - PD + KD, D),
                                       high(oh * SH - PH, 0), low(oh * SH - PH + KH, H),
                                       high(ow * SW - PW, 0), low(ow * SW - PW + KW, W)};
                    const Index base = plane * (D * H * W);
                    if (first_place(x + base, in, loaded(y[o]), H, W) == i - base)
                        sum += loaded(g[o]);
                }
        dx[i] = stored(sum);
    }
}
""",
)

_SPREAD = _kernel(
    "pool_spread",
    """$window
extern "C" __global__ void pool_spread(const T* g, T* dx, const int mean,$parameters) {
    $pixels {$windows_over
                    sum += loaded(g[o]) / (places(mean, od * SD - PD, KD, D, PD) *
                                           places(mean, oh * SH - PH, KH, H, PH) *
                                           places(mean, ow * SW - PW, KW, W, PW));
                }
        dx[i] = stored(sum);
    }
}
""",
)


def max_pool(xp: Any, x: Any, y: Any, pool: Any) -> None:
    """Fill y (..., *out) with the largest value of each window of x (..., *size); nan where the
    window has a nan, the dtype's lowest number where the window is outside the image.

    `pool` has size, kernel, stride, pad and out, each with a number for every axis. Floating
    arrays in order (C-contiguous), all of one dtype, here and below."""
    start = float(np.finfo(x.dtype).min)
    _POOL["max"](x.dtype, x.size, y.size)(xp, y.size, x, y, start, 0, *_sizes(x, pool))


def sum_pool(xp: Any, x: Any, y: Any, pool: Any, mean: int = SUM) -> None:
    """Fill y with the sum or mean of each window; float16 is added up in float32."""
    _POOL["sum"](x.dtype, x.size, y.size)(xp, y.size, x, y, 0.0, mean, *_sizes(x, pool))


def max_pool_backward(xp: Any, g: Any, x: Any, y: Any, dx: Any, pool: Any) -> None:
    """Fill dx, of x's shape: each g goes to the first place of its window that holds y."""
    if all(s >= k for s, k in zip(pool.stride, pool.kernel)) or prod(pool.out) == 1:
        dx.fill(0)
        _SCATTER_GRADIENT(x.dtype, x.size, y.size)(xp, y.size, g, x, y, dx, *_sizes(x, pool))
    else:
        _GATHER_GRADIENT(x.dtype, x.size, y.size)(xp, x.size, g, x, y, dx, *_sizes(x, pool))


def max_pool_pick(xp: Any, u: Any, x: Any, y: Any, picked: Any, pool: Any) -> None:
    """Fill picked, of y's shape, with the element of u at the first maximum of each window of x."""
    _PICK(x.dtype, x.size, y.size)(xp, y.size, u, x, y, picked, *_sizes(x, pool))


def pool_backward(xp: Any, g: Any, dx: Any, pool: Any, mean: int = SUM) -> None:
    """Fill dx (..., *size): each g (..., *out), divided by the number of places that its mean
    counts, is added to all places of its window."""
    _SPREAD(g.dtype, g.size, dx.size)(xp, dx.size, g, dx, mean, *_sizes(dx, pool))


def _sizes(x: Any, pool: Any) -> list[int]:
    return [x.size // max(prod(pool.size), 1), *sizes_of(pool, without="dilate")]

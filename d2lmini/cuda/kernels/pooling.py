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

from d2lmini.cuda.kernels.windows import WindowKernel

#: The result for a window: its sum, its mean over all places, or its mean over places in the image.
SUM, MEAN, MEAN_ON_IMAGE = 0, 1, 2

_COUNT = """
__device__ inline Index low(Index a, Index b) { return a < b ? a : b; }
__device__ inline Index high(Index a, Index b) { return a > b ? a : b; }
// How many places along an axis a mean counts (1: its padding, too); 1 if it is a sum (0).
__device__ inline A places(Index begin, Index K, Index size, Index P) {
    if (MEAN == 0) return 1;
    const Index from = MEAN == 1 ? begin : high(begin, 0);
    return high(low(begin + K, MEAN == 1 ? size + P : size) - from, 1);
}
__device__ inline A count(Index front, Index top, Index left) {
    return places(front, KD, D, PD) * places(top, KH, H, PH) * places(left, KW, W, PW);
}
"""

_SUM = WindowKernel(
    "sum_pool",
    _COUNT
    + """
extern "C" __global__ void sum_pool(const T* x, T* y, const Index n) {
    $outputs
        A total = 0;
        $taps
                    if (inside) total += loaded(x[plane * (D * H * W) + pixel]);
                }
        y[i] = stored(total / count(front, top, left));
    }
}
""",
)

_MAX = WindowKernel(
    "max_pool",
    """
extern "C" __global__ void max_pool(const T* x, T* y, const Index n, const double start) {
    $outputs
        A largest = A(start);
        $taps
                    if (inside) largest = maximum(largest, loaded(x[plane * (D * H * W) + pixel]));
                }
        y[i] = stored(largest);
    }
}
""",
)

_SPREAD = WindowKernel(
    "pool_spread",
    _COUNT
    + """
extern "C" __global__ void pool_spread(const T* g, T* dx, const Index n) {
    $pixels
        A sum = 0;
        $windows
                    sum += loaded(g[plane * (OD * OH * OW) + place])
                         / count(od * SD - PD, oh * SH - PH, ow * SW - PW);
                }
        dx[i] = stored(sum);
    }
}
""",
)

#: The first pixel of a window that has the largest value; -1 if the largest value is nan.
_FIRST = """
        Index found = -1;
        $taps
                    if (found < 0 && inside && loaded(x[plane * (D * H * W) + pixel]) == largest)
                        found = pixel;
                }"""

_SCATTER = WindowKernel(
    "max_pool_scatter",
    """
// dx is 0 before; no two windows overlap.
extern "C" __global__ void max_pool_scatter(
    const T* g, const T* x, const T* y, T* dx, const Index n
) {
    $outputs
        const A largest = loaded(y[i]);"""
    + _FIRST
    + """
        if (found >= 0) dx[plane * (D * H * W) + found] = g[i];
    }
}
""",
)

_PICK = WindowKernel(
    "max_pool_pick",
    """
extern "C" __global__ void max_pool_pick(
    const T* u, const T* x, const T* y, T* out, const Index n
) {
    $outputs
        const A largest = loaded(y[i]);"""
    + _FIRST
    + """
        out[i] = found >= 0 ? u[plane * (D * H * W) + found] : T(0);
    }
}
""",
)

_GATHER = WindowKernel(
    "max_pool_gather",
    """
__device__ inline Index first_place(
    const T* x, A largest, Index plane, Index front, Index top, Index left
) {"""
    + _FIRST
    + """
    return found;
}
extern "C" __global__ void max_pool_gather(
    const T* g, const T* input, const T* output, T* dx, const Index n
) {
    $pixels
        A sum = 0;
        $windows
                    // The pixel gets g if it is the first place with the largest value.
                    const Index o = plane * (OD * OH * OW) + place;
                    const A largest = loaded(output[o]);
                    if (loaded(input[i]) == largest && pixel == first_place(
                            input, largest, plane, od * SD - PD, oh * SH - PH, ow * SW - PW))
                        sum += loaded(g[o]);
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
    _MAX(xp, y.size, [x, y], pool, float(np.finfo(x.dtype).min))


def sum_pool(xp: Any, x: Any, y: Any, pool: Any, mean: int = SUM) -> None:
    """Fill y with the sum or mean of each window; float16 is added up in float32."""
    _SUM(xp, y.size, [x, y], pool, MEAN=mean)


def max_pool_backward(xp: Any, g: Any, x: Any, y: Any, dx: Any, pool: Any) -> None:
    """Fill dx, of x's shape: each g goes to the first place of its window that holds y."""
    if all(s >= k for s, k in zip(pool.stride, pool.kernel)) or prod(pool.out) == 1:
        dx.fill(0)
        _SCATTER(xp, y.size, [g, x, y, dx], pool)
    else:
        _GATHER(xp, x.size, [g, x, y, dx], pool)


def max_pool_pick(xp: Any, u: Any, x: Any, y: Any, picked: Any, pool: Any) -> None:
    """Fill picked, of y's shape, with the element of u at the first maximum of each window of x."""
    _PICK(xp, y.size, [u, x, y, picked], pool)


def pool_backward(xp: Any, g: Any, dx: Any, pool: Any, mean: int = SUM) -> None:
    """Fill dx (..., *size): each g (..., *out), divided by the number of places that its mean
    counts, is added to all places of its window."""
    _SPREAD(xp, dx.size, [g, dx], pool, MEAN=mean)

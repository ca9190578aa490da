"""Pooling on a GPU: a thread for each window; backward, a thread for each pixel.

A maximum's gradient goes to the first place of its window that holds the largest value. The thread
of a pixel checks, in every window that contains the pixel, whether the pixel is that place: only
one thread writes each pixel, and the sum always has the same order.

The kernels take floating arrays in order (C-contiguous), all of one dtype.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from d2lmini.cuda.kernels.windows import WindowKernel
from d2lmini.ops import pool as ops

_COUNT = """
__device__ inline Index low(Index a, Index b) { return a < b ? a : b; }
__device__ inline Index high(Index a, Index b) { return a > b ? a : b; }
// KIND is 0 for a sum, 1 and 2 for a mean, 3 for a maximum. How many places along an axis a mean
// counts (1: its padding, too); 1 if it is no mean.
__device__ inline A places(Index begin, Index K, Index size, Index P) {
    if (KIND == 0 || KIND == 3) return 1;
    const Index from = KIND == 1 ? begin : high(begin, 0);
    return high(low(begin + K, KIND == 1 ? size + P : size) - from, 1);
}
__device__ inline A count(Index front, Index top, Index left) {
    return places(front, KD, D, PD) * places(top, KH, H, PH) * places(left, KW, W, PW);
}
"""

#: y (..., *out): the sum, mean or maximum (KIND) of each window of x (..., *size), from `start` on;
#: float16 is added up in float32. A maximum is nan where the window has a nan.
REDUCE = WindowKernel(
    "pool",
    _COUNT
    + """
extern "C" __global__ void pool(const T* x, T* y, const Index n, const double start) {
    $outputs
        const T* from = x + plane * (D * H * W) + origin;
        A result = A(start);
        $taps
                    if (!inside) continue;
                    const A value = loaded(from[ahead]);
                    result = KIND == 3 ? maximum(result, value) : result + value;
                }
        y[i] = stored(result / count(front, top, left));
    }
}
""",
)

#: dx (..., *size): each g (..., *out), divided by the number of places that its mean counts, is
#: added to all places of its window.
SPREAD = WindowKernel(
    "pool_spread",
    _COUNT
    + """
extern "C" __global__ void pool_spread(const T* g, T* dx, const Index n) {
    $pixels
        const T* from = g + plane * (OD * OH * OW) + last;
        A sum = 0;
        $windows
                    sum += loaded(from[-back]) / count(front, top, left);
                }
        dx[i] = stored(sum);
    }
}
""",
)

_FIRST = """
// The first pixel of a window that has the largest value; -1 if the largest value is nan.
__device__ inline Index first_place(
    const T* x, A largest, Index plane, Index front, Index top, Index left
) {
    const Index origin = (front * H + top) * W + left;
    const T* from = x + plane * (D * H * W) + origin;
    Index found = -1;
    $taps
                    if (found < 0 && inside && loaded(from[ahead]) == largest)
                        found = origin + ahead;
                }
    return found;
}
"""

#: dx, of x's shape: each g goes to the first place of its window of x that holds y.
GIVE = WindowKernel(
    "max_pool_give",
    _FIRST
    + """
extern "C" __global__ void max_pool_give(
    const T* g, const T* input, const T* output, T* dx, const Index n
) {
    $pixels
        A sum = 0;
        $windows
                    // The pixel gets g if it is the first place with the largest value.
                    const Index o = plane * (OD * OH * OW) + last - back;
                    const A largest = loaded(output[o]);
                    if (loaded(input[i]) == largest && pixel == first_place(
                            input, largest, plane, front, top, left))
                        sum += loaded(g[o]);
                }
        dx[i] = stored(sum);
    }
}
""",
)


@ops.reduce_windows.kernel("cuda")
def _(xp: Any, x: Any, pool: Any, kind: Any, y: Any) -> None:
    # A window outside the image has the lowest number.
    start = float(np.finfo(x.dtype).min) if kind == ops.MAX else 0.0
    REDUCE(xp, y.size, [xp.ascontiguousarray(x), y], pool, start, KIND=kind)


@ops.pooling_spread.kernel("cuda")
def _(xp: Any, g: Any, *, pool: Any, kind: Any, out: Any = None) -> Any:
    dx = xp.empty((*g.shape[:2], *pool.size), g.dtype) if out is None else out
    SPREAD(xp, dx.size, [xp.ascontiguousarray(g), dx], pool, KIND=kind)
    return dx


@ops.max_pooling_backward.kernel("cuda")
def _(xp: Any, g: Any, data: Any, y: Any, *, pool: Any, out: Any = None) -> Any:
    dx = xp.empty(data.shape, g.dtype) if out is None else out
    GIVE(xp, dx.size, [*map(xp.ascontiguousarray, (g, data, y)), dx], pool)
    return dx

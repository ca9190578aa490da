"""Depthwise convolution on a GPU: filters of one channel each, which suit matrix products badly.

By im2col and a product, each channel would be a product of a row with a small matrix, after copying
every pixel once per tap. Here a thread computes one output and loops over the taps of its window;
for the gradient of the data a thread computes one pixel and loops over the windows that contain it.
For the gradient of the weights a thread sums one tap over a piece of all outputs; the pieces are
added up at the end. No two threads write to the same place, and the order of the sums depends only
on the sizes.

Images have one to three axes; with M filters for each channel, those of channel c are c * M and so
on. The three functions have the arguments of those in `ops/conv.py`.
"""

from __future__ import annotations

from math import prod
from typing import Any

from d2lmini.cuda.kernels.reductions import sum_rows
from d2lmini.cuda.kernels.windows import WindowKernel

#: Threads that keep a GPU busy.
_THREADS = 1 << 16
#: Outputs in a piece, at least.
_MIN_PIECE = 64

_CONVOLVE = WindowKernel(
    "depthwise",
    """
extern "C" __global__ void depthwise(const T* x, const T* weight, T* y, const Index n) {
    $outputs
        const T* from = x + plane / M * (D * H * W) + origin;
        const T* filter = weight + plane % (C * M) * (KD * KH * KW);
        A sum = 0;
        $taps
                    if (inside) sum += loaded(from[ahead]) * loaded(filter[tap]);
                }
        y[i] = stored(sum);
    }
}
""",
)

_DATA = WindowKernel(
    "depthwise_data",
    """
extern "C" __global__ void depthwise_data(const T* g, const T* weight, T* dx, const Index n) {
    $pixels
        const T* from = g + plane * M * (OD * OH * OW) + last;
        const T* filter = weight + plane % C * M * (KD * KH * KW);
        A sum = 0;
        $windows
                    for (Index m = 0; m < M; ++m)
                        sum += loaded(from[m * (OD * OH * OW) - back])
                             * loaded(filter[m * (KD * KH * KW) + tap]);
                }
        dx[i] = stored(sum);
    }
}
""",
)

_WEIGHT = WindowKernel(
    "depthwise_weight",
    """
// parts[piece, filter, tap]: the sum over outputs piece * length to (piece + 1) * length.
extern "C" __global__ void depthwise_weight(
    const T* x, const T* g, A* parts, const Index n, const Index outputs, const Index length
) {
    const Index places = OD * OH * OW, taps = KD * KH * KW, filters = C * M;
    for (Index i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        const Index tap = i % taps, filter = i / taps % filters;
        const Index begin = i / (taps * filters) * length;
        const Index left = tap % KW * LW - PW, top = tap / KW % KH * LH - PH;
        const Index front = tap / (KW * KH) * LD - PD;
        const Index end = begin + length < outputs ? begin + length : outputs;
        A sum = 0;
        for (Index at = begin; at < end; ++at) {
            const Index place = at % places, image = at / places;
            const Index w = place % OW * SW + left, h = place / OW % OH * SH + top;
            const Index d = place / (OW * OH) * SD + front;
            if (0 <= d && d < D && 0 <= h && h < H && 0 <= w && w < W)
                sum += loaded(x[(((image * C + filter / M) * D + d) * H + h) * W + w])
                     * loaded(g[(image * filters + filter) * places + place]);
        }
        parts[i] = sum;
    }
}
""",
)


def convolve(xp: Any, x: Any, w: Any, geo: Any, groups: int, y: Any) -> None:
    """y = x * w: (N, C, *size), (C*M, 1, *kernel) -> (N, C*M, *out)."""
    arrays = [xp.ascontiguousarray(x), xp.ascontiguousarray(w), y]
    _CONVOLVE(xp, y.size, arrays, geo, C=groups, M=len(w) // groups)


def convolve_data(xp: Any, g: Any, w: Any, geo: Any, groups: int, dx: Any) -> None:
    """(N, C*M, *out), (C*M, 1, *kernel) -> dx (N, C, *size)."""
    arrays = [xp.ascontiguousarray(g), xp.ascontiguousarray(w), dx]
    _DATA(xp, dx.size, arrays, geo, C=groups, M=len(w) // groups)


def convolve_weight(xp: Any, x: Any, g: Any, geo: Any, groups: int, dw: Any) -> None:
    """(N, C, *size), (N, C*M, *out) -> dw (C*M, 1, *kernel). float16 is added up in float32."""
    total = len(x) * prod(geo.out)
    pieces = max(min(_THREADS // dw.size, total // _MIN_PIECE), 1)
    parts = xp.empty((pieces, dw.size), "float32" if x.dtype.itemsize == 2 else x.dtype)
    arrays = [xp.ascontiguousarray(x), xp.ascontiguousarray(g), parts]
    how = dict(C=groups, M=len(dw) // groups)
    _WEIGHT(xp, parts.size, arrays, geo, total, -(-total // pieces), **how)
    sums = xp.empty(dw.size, parts.dtype)
    sum_rows(xp, parts, sums)
    dw[...] = sums.reshape(dw.shape)

"""Depthwise convolution on a GPU: filters of one channel each, which suit matrix products badly.

By im2col and a product, each channel would be a product of a row with a small matrix, after copying
every pixel once per tap. Here a thread computes one output and loops over the taps of its window;
for the gradient of the data a thread computes one pixel and loops over the windows that contain it.
For the gradient of the weights a thread sums one tap over a piece of all outputs; the pieces are
added up at the end. No two threads write to the same place, and the order of the sums depends only
on the sizes.

Images have one to three axes; with M filters for each channel, those of channel c are c * M and so
on. The three functions have the arguments of those in `ops/conv_algorithms.py`.
"""

from __future__ import annotations

from math import prod
from typing import Any

from d2lmini.cuda.kernels.typed import TypedKernel
from d2lmini.cuda.kernels.windows import sizes_of

_PARAMETERS = """
    const Index N, const Index C, const Index M, const Index D, const Index H, const Index W,
    const Index KD, const Index KH, const Index KW, const Index SD, const Index SH, const Index SW,
    const Index LD, const Index LH, const Index LW, const Index PD, const Index PH, const Index PW,
    const Index OD, const Index OH, const Index OW
"""

#: Threads that keep a GPU busy.
_THREADS = 1 << 16
#: Outputs in a piece, at least.
_MIN_PIECE = 64

_CONVOLVE = TypedKernel(
    "depthwise",
    """
// K: the kernel's size, S: stride, L: dilation, P: padding, O: number of windows, along each axis.
extern "C" __global__ void depthwise(const T* x, const T* weight, T* y,$parameters) {
    const Index places = OD * OH * OW, threads = gridDim.x * blockDim.x;
    for (Index i = blockIdx.x * blockDim.x + threadIdx.x; i < N * C * M * places; i += threads) {
        const Index place = i % places, plane = i / places, filter = plane % (C * M);
        const Index left = place % OW * SW - PW, top = place / OW % OH * SH - PH;
        const Index front = place / (OW * OH) * SD - PD;
        const T* image = x + plane / M * (D * H * W);
        const T* tap = weight + filter * (KD * KH * KW);
        A sum = 0;
        for (Index d = front; d < front + KD * LD; d += LD)
            for (Index h = top; h < top + KH * LH; h += LH)
                for (Index w = left; w < left + KW * LW; w += LW, ++tap)
                    if (0 <= d && d < D && 0 <= h && h < H && 0 <= w && w < W)
                        sum += loaded(image[(d * H + h) * W + w]) * loaded(*tap);
        y[i] = stored(sum);
    }
}
""",
    parameters=_PARAMETERS,
)

_DATA = TypedKernel(
    "depthwise_data",
    """
// Tap k of the window at o meets the pixel o * S - P + k * L.
extern "C" __global__ void depthwise_data(const T* g, const T* weight, T* dx,$parameters) {
    const Index places = OD * OH * OW, threads = gridDim.x * blockDim.x;
    for (Index i = blockIdx.x * blockDim.x + threadIdx.x; i < N * C * D * H * W; i += threads) {
        const Index x = i % W + PW, y = i / W % H + PH, z = i / (W * H) % D + PD;
        const Index plane = i / (W * H * D), c = plane % C;
        A sum = 0;
        for (Index m = 0; m < M; ++m) {
            const T* from = g + (plane * M + m) * places;
            const T* tap = weight + (c * M + m) * (KD * KH * KW);
            for (Index d = z; d > z - KD * LD; d -= LD)
                for (Index h = y; h > y - KH * LH; h -= LH)
                    for (Index w = x; w > x - KW * LW; w -= LW, ++tap) {
                        if (d < 0 || h < 0 || w < 0 || d % SD || h % SH || w % SW) continue;
                        const Index od = d / SD, oh = h / SH, ow = w / SW;
                        if (od < OD && oh < OH && ow < OW)
                            sum += loaded(from[(od * OH + oh) * OW + ow]) * loaded(*tap);
                    }
        }
        dx[i] = stored(sum);
    }
}
""",
    parameters=_PARAMETERS,
)

_WEIGHT = TypedKernel(
    "depthwise_weight",
    """
// parts[piece, filter, tap]: the sum over outputs piece * length to (piece + 1) * length.
extern "C" __global__ void depthwise_weight(
    const T* x, const T* g, A* parts, const Index pieces, const Index length,$parameters
) {
    const Index places = OD * OH * OW, taps = KD * KH * KW, filters = C * M;
    const Index threads = gridDim.x * blockDim.x, n = pieces * filters * taps;
    for (Index i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += threads) {
        const Index tap = i % taps, filter = i / taps % filters;
        const Index begin = i / (taps * filters) * length;
        const Index left = tap % KW * LW - PW, top = tap / KW % KH * LH - PH;
        const Index front = tap / (KW * KH) * LD - PD;
        const Index end = begin + length < N * places ? begin + length : N * places;
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
    parameters=_PARAMETERS,
)


def convolve(xp: Any, x: Any, w: Any, geo: Any, groups: int, y: Any) -> None:
    """y = x * w: (N, C, *size), (C*M, 1, *kernel) -> (N, C*M, *out)."""
    x, w = xp.ascontiguousarray(x), xp.ascontiguousarray(w)
    kernel = _CONVOLVE(x.dtype, x.size, y.size)
    kernel(xp, y.size, x, w, y, *_sizes(len(x), groups, len(w), geo))


def convolve_data(xp: Any, g: Any, w: Any, geo: Any, groups: int, dx: Any) -> None:
    """(N, C*M, *out), (C*M, 1, *kernel) -> dx (N, C, *size)."""
    g, w = xp.ascontiguousarray(g), xp.ascontiguousarray(w)
    kernel = _DATA(g.dtype, g.size, dx.size)
    kernel(xp, dx.size, g, w, dx, *_sizes(len(g), groups, len(w), geo))


def convolve_weight(xp: Any, x: Any, g: Any, geo: Any, groups: int, dw: Any) -> None:
    """(N, C, *size), (N, C*M, *out) -> dw (C*M, 1, *kernel). float16 is added up in float32."""
    x, g = xp.ascontiguousarray(x), xp.ascontiguousarray(g)
    total = len(x) * prod(geo.out)
    pieces = max(min(_THREADS // dw.size, total // _MIN_PIECE), 1)
    length = -(-total // pieces)
    parts = xp.empty((pieces, dw.size), "float32" if x.dtype.itemsize == 2 else x.dtype)
    kernel = _WEIGHT(x.dtype, x.size, g.size, parts.size + total)
    sizes = _sizes(len(x), groups, len(dw), geo)
    kernel(xp, parts.size, x, g, parts, pieces, length, *sizes)
    dw[...] = parts.sum(axis=0).reshape(dw.shape).astype(dw.dtype, copy=False)


def _sizes(N: int, C: int, filters: int, geo: Any) -> list[int]:
    """N, C, M, and the fields of the geometry."""
    return [N, C, filters // C, *sizes_of(geo)]

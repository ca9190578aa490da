"""im2col and col2im on a GPU: the windows of a convolution as columns of a matrix, and back.

A thread handles one window and channel and copies the taps down a column of the matrix; its
neighbour has the next window, so that 32 threads read and write contiguous memory. In col2im a
thread handles one pixel and adds up its copies in all columns, in their order: only one thread
writes each pixel, so no atomics are needed and sums are always the same.

Images have one to three axes; missing ones are of size 1. The windows of image n begin at
n * image_stride in the matrix, its rows are row_stride apart: images may lie one after the other,
(N, C * taps, places), or side by side, (C * taps, N, places).
"""

from __future__ import annotations

from math import prod
from typing import Any

from d2lmini.cuda.kernels.typed import TypedKernel

Sizes = tuple[int, ...]

_PARAMETERS = """
    const Index N, const Index C, const Index D, const Index H, const Index W,
    const Index KD, const Index KH, const Index KW, const Index SD, const Index SH, const Index SW,
    const Index LD, const Index LH, const Index LW, const Index PD, const Index PH, const Index PW,
    const Index OD, const Index OH, const Index OW, const Index image_stride, const Index row_stride
"""

_IM2COL = TypedKernel(
    "im2col",
    """
// K: the kernel's size, S: stride, L: dilation, P: padding, O: number of windows, along each axis.
extern "C" __global__ void im2col(const T* image, T* columns,$parameters) {
    const Index places = OD * OH * OW, threads = gridDim.x * blockDim.x;
    for (Index i = blockIdx.x * blockDim.x + threadIdx.x; i < N * C * places; i += threads) {
        const Index place = i % places, plane = i / places, c = plane % C, n = plane / C;
        const Index x = place % OW * SW - PW, y = place / OW % OH * SH - PH;
        const Index z = place / (OW * OH) * SD - PD;
        T* to = columns + n * image_stride + c * (KD * KH * KW) * row_stride + place;
        for (Index d = z; d < z + KD * LD; d += LD)
            for (Index h = y; h < y + KH * LH; h += LH)
                for (Index w = x; w < x + KW * LW; w += LW, to += row_stride) {
                    const bool inside = 0 <= d && d < D && 0 <= h && h < H && 0 <= w && w < W;
                    *to = inside ? image[((plane * D + d) * H + h) * W + w] : T(0);
                }
    }
}
""",
    parameters=_PARAMETERS,
)

_COL2IM = TypedKernel(
    "col2im",
    """
// Tap k of the window at o meets the pixel o * S - P + k * L.
extern "C" __global__ void col2im(const T* columns, T* image,$parameters) {
    const Index threads = gridDim.x * blockDim.x;
    for (Index i = blockIdx.x * blockDim.x + threadIdx.x; i < N * C * D * H * W; i += threads) {
        const Index x = i % W + PW, y = i / W % H + PH, z = i / (W * H) % D + PD;
        const Index plane = i / (W * H * D), c = plane % C, n = plane / C;
        const T* row = columns + n * image_stride + c * (KD * KH * KW) * row_stride;
        A sum = 0;
        for (Index d = z; d > z - KD * LD; d -= LD)
            for (Index h = y; h > y - KH * LH; h -= LH)
                for (Index w = x; w > x - KW * LW; w -= LW, row += row_stride) {
                    if (d < 0 || h < 0 || w < 0 || d % SD || h % SH || w % SW) continue;
                    const Index od = d / SD, oh = h / SH, ow = w / SW;
                    if (od < OD && oh < OH && ow < OW)
                        sum += loaded(row[(od * OH + oh) * OW + ow]);
                }
        image[i] = stored(sum);
    }
}
""",
    parameters=_PARAMETERS,
)


def im2col(xp: Any, image: Any, columns: Any, geometry: Any, side_by_side: bool = False) -> None:
    """Fill columns (N, C * taps, places) from image (N, C, *size); with `side_by_side` the columns
    are (C * taps, N, places). Any dtype, both arrays in order (C-contiguous).

    `geometry` has size, kernel, stride, dilate, pad and out, each with a number for every axis.
    """
    N, C = image.shape[:2]
    _launch(_IM2COL, xp, N * C * prod(geometry.out), image, columns, N, C, geometry, side_by_side)


def col2im(xp: Any, columns: Any, image: Any, geometry: Any, side_by_side: bool = False) -> None:
    """Fill image (N, C, *size): every pixel is the sum of the elements that `im2col` copies from
    it. float16 is added up in float32. Arrays and geometry as in `im2col`."""
    N, C = image.shape[:2]
    _launch(_COL2IM, xp, image.size, columns, image, N, C, geometry, side_by_side)


def _launch(
    kernel: TypedKernel, xp: Any, threads: int, source: Any, target: Any, N: int, C: int,
    geo: Any, side_by_side: bool,
) -> None:  # fmt: skip
    places, rows = prod(geo.out), C * prod(geo.kernel)
    strides = (places, N * places) if side_by_side else (rows * places, places)
    kernel(source.dtype, source.size, target.size)(
        xp, threads, source, target, N, C, *sizes_of(geo), *strides
    )


def sizes_of(geo: Any, without: str = "") -> list[int]:
    """All fields of a geometry except one, filled up in front to three numbers each, as the kernels
    take them."""
    return [
        n
        for name, sizes in zip(geo._fields, geo)
        if name != without
        for n in (int(name != "pad"),) * (3 - len(sizes)) + tuple(sizes)
    ]

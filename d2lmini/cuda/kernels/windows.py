"""Windows over images: the loops of convolution and pooling on a GPU, im2col and col2im.

A kernel has a thread for each output, which goes through the taps of its window (`$taps`), or a
thread for each pixel, which goes through the windows over the pixel (`$windows`). Only one thread
writes each result: no atomics are needed, and sums are always the same. Neighbouring threads work
on neighbouring outputs or pixels, so that 32 threads read and write contiguous memory.

The sizes are constants of the text, so that the compiler divides by constants; the batch is not.
Images have one to three axes (missing ones are of size 1), and for each axis of

    D, H, W     image        K   kernel        S   stride        L   dilation        P   padding

there are O windows. A plane is one channel of one image. im2col makes the windows columns of a
matrix: those of image n begin at n * image_stride, its rows are row_stride apart. So images may lie
one after the other, (N, C * taps, places), or side by side, (C * taps, N, places).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from d2lmini.cuda.kernels.typed import TypedKernel

_LOOPS = {
    # The thread of output i: `place` is that of its window in `plane`, which begins at front, top,
    # left. `$taps` goes through the pixels of the window.
    "outputs": """const Index first = blockIdx.x * blockDim.x + threadIdx.x;
    for (Index i = first; i < n; i += gridDim.x * blockDim.x) {
        const Index place = i % (OD * OH * OW), plane = i / (OD * OH * OW);
        const Index front = place / (OW * OH) * SD - PD, top = place / OW % OH * SH - PH;
        const Index left = place % OW * SW - PW;""",
    "taps": """Index tap = -1;
        for (Index d = front; d < front + KD * LD; d += LD)
            for (Index h = top; h < top + KH * LH; h += LH)
                for (Index w = left; w < left + KW * LW; w += LW) {
                    const bool inside = 0 <= d && d < D && 0 <= h && h < H && 0 <= w && w < W;
                    const Index pixel = (d * H + h) * W + w;
                    ++tap;""",
    # The thread of pixel i. `$windows` goes through the windows over the pixel: at `place`, which
    # has the pixel at its tap `tap`.
    "pixels": """const Index first = blockIdx.x * blockDim.x + threadIdx.x;
    for (Index i = first; i < n; i += gridDim.x * blockDim.x) {
        const Index pixel = i % (D * H * W), plane = i / (D * H * W);
        const Index z = pixel / (H * W) + PD, y = pixel / W % H + PH, x = pixel % W + PW;""",
    "windows": """for (Index od = first_window(z, KD, LD, SD); od < OD && od * SD <= z; ++od)
            for (Index oh = first_window(y, KH, LH, SH); oh < OH && oh * SH <= y; ++oh)
                for (Index ow = first_window(x, KW, LW, SW); ow < OW && ow * SW <= x; ++ow) {
                    const Index kd = z - od * SD, kh = y - oh * SH, kw = x - ow * SW;
                    if (kd % LD || kh % LH || kw % LW) continue;
                    const Index tap = (kd / LD * KH + kh / LH) * KW + kw / LW;
                    const Index place = (od * OH + oh) * OW + ow;""",
}  # fmt: skip
_FIRST_WINDOW = """
// The first window that reaches a place of the padded image.
__device__ inline Index first_window(Index x, Index K, Index L, Index S) {
    const Index reach = (K - 1) * L;
    return x < reach ? 0 : (x - reach + S - 1) / S;
}
"""
_FIELDS = ("size", "kernel", "stride", "dilate", "pad", "out")


class WindowKernel:
    """A kernel over windows: `kernel(xp, n, arrays, geometry, *numbers, **constants)` launches it
    for n outputs or pixels. Its parameters are the arrays, n and the numbers."""

    def __init__(self, name: str, body: str):
        self.typed = TypedKernel(name, _FIRST_WINDOW + body, **_LOOPS)

    def __call__(
        self, xp: Any, n: int, arrays: Sequence[Any], geometry: Any, *numbers: float,
        **constants: int,
    ) -> None:  # fmt: skip
        """`geometry` has size, kernel, stride, dilate (or not), pad and out, each with a number
        for every axis. Arrays are in order (C-contiguous)."""
        sizes = [n, *(a.size for a in arrays)]
        kernel = self.typed(arrays[0].dtype, *sizes, **constants_of(geometry), **constants)
        kernel(xp, n, *arrays, n, *numbers)


def constants_of(geometry: Any) -> dict[str, int]:
    """The constants of a geometry, filled up in front to three axes.

    >>> from d2lmini.ops.windows import geometry
    >>> found = constants_of(geometry((7, 6), (3, 2), (1, 1), (1, 1), (0, 0)))
    >>> [found[name] for name in ("D", "H", "W", "KD", "KH", "KW", "OD", "OH", "OW")]
    [1, 7, 6, 1, 3, 2, 1, 5, 5]
    """
    found = {}
    for letter, field in zip(("", "K", "S", "L", "P", "O"), _FIELDS):
        sizes = getattr(geometry, field, ())
        sizes = (int(field != "pad"),) * (3 - len(sizes)) + tuple(sizes)
        found.update({letter + axis: size for axis, size in zip("DHW", sizes)})
    return found


_IM2COL = WindowKernel(
    "im2col",
    """
extern "C" __global__ void im2col(
    const T* image, T* columns, const Index n, const Index image_stride, const Index row_stride
) {
    $outputs
        T* to = columns + plane / C * image_stride + place;
        const T* from = image + plane * (D * H * W);
        const Index row = plane % C * (KD * KH * KW);
        $taps
                    to[(row + tap) * row_stride] = inside ? from[pixel] : T(0);
                }
    }
}
""",
)

_COL2IM = WindowKernel(
    "col2im",
    """
extern "C" __global__ void col2im(
    const T* columns, T* image, const Index n, const Index image_stride, const Index row_stride
) {
    $pixels
        const T* from = columns + plane / C * image_stride;
        const Index row = plane % C * (KD * KH * KW);
        A sum = 0;
        $windows
                    sum += loaded(from[(row + tap) * row_stride + place]);
                }
        image[i] = stored(sum);
    }
}
""",
)


def im2col(xp: Any, image: Any, columns: Any, geometry: Any, side_by_side: bool = False) -> None:
    """Fill columns (N, C * taps, places) from image (N, C, *size); with `side_by_side` the columns
    are (C * taps, N, places). Any dtype."""
    n = prod(image.shape[:2]) * prod(geometry.out)
    strides = _strides(image, geometry, side_by_side)
    _IM2COL(xp, n, [image, columns], geometry, *strides, C=image.shape[1])


def col2im(xp: Any, columns: Any, image: Any, geometry: Any, side_by_side: bool = False) -> None:
    """Fill image (N, C, *size): every pixel is the sum of the elements that `im2col` copies from
    it. float16 is added up in float32."""
    strides = _strides(image, geometry, side_by_side)
    _COL2IM(xp, image.size, [columns, image], geometry, *strides, C=image.shape[1])


def _strides(image: Any, geometry: Any, side_by_side: bool) -> tuple[int, int]:
    """image_stride and row_stride of the columns."""
    (N, C), places = image.shape[:2], prod(geometry.out)
    return (places, N * places) if side_by_side else (C * prod(geometry.kernel) * places, places)

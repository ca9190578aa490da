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

_TEXTS = {
    # Where the columns of an image, and their rows, begin.
    "strides": """const Index places = OD * OH * OW, taps = KD * KH * KW;
    const Index image_stride = SIDE_BY_SIDE ? places : C * taps * places;
    const Index row_stride = SIDE_BY_SIDE ? images * places : places;""",
    # The thread of output i: `place` is that of its window in `plane`, which begins at front, top,
    # left, the pixel `origin`. `$taps` goes through the pixels of the window, `origin + ahead`. How
    # far ahead they are is constant, so the compiler can write the taps one by one.
    "outputs": """const Index first = blockIdx.x * blockDim.x + threadIdx.x;
    for (Index i = first; i < n; i += gridDim.x * blockDim.x) {
        const Index place = i % (OD * OH * OW), plane = i / (OD * OH * OW);
        const Index front = place / (OW * OH) * SD - PD, top = place / OW % OH * SH - PH;
        const Index left = place % OW * SW - PW, origin = (front * H + top) * W + left;""",
    "taps": """for (Index kd = 0; kd < KD; ++kd)
            for (Index kh = 0; kh < KH; ++kh)
                for (Index kw = 0; kw < KW; ++kw) {
                    const unsigned d = front + kd * LD, h = top + kh * LH, w = left + kw * LW;
                    const bool inside = d < D && h < H && w < W;  // negative ones are large
                    const Index tap = (kd * KH + kh) * KW + kw;
                    const Index ahead = (kd * LD * H + kh * LH) * W + kw * LW;""",
    # The thread of pixel i. `$windows` goes through the windows over the pixel: at the place
    # `last - back`, which has the pixel at its tap `tap` and begins at front, top, left. How far
    # it goes back along an axis is constant, so the compiler can write the windows one by one.
    "pixels": """const Index first = blockIdx.x * blockDim.x + threadIdx.x;
    for (Index i = first; i < n; i += gridDim.x * blockDim.x) {
        const Index pixel = i % (D * H * W), plane = i / (D * H * W);
        const Index z = pixel / (H * W) + PD, y = pixel / W % H + PH, x = pixel % W + PW;
        const Index last_d = last_window(z, OD, KD, SD, LD);
        const Index last_h = last_window(y, OH, KH, SH, LH);
        const Index last_w = last_window(x, OW, KW, SW, LW);
        const Index last = (last_d * OH + last_h) * OW + last_w;""",
    "windows": """for (Index d = most_windows(OD, KD, SD, LD) - 1; d >= 0; --d)
            for (Index h = most_windows(OH, KH, SH, LH) - 1; h >= 0; --h)
                for (Index w = most_windows(OW, KW, SW, LW) - 1; w >= 0; --w) {
                    const Index to_d = distance(z, d, OD, KD, SD, LD);
                    const Index to_h = distance(y, h, OH, KH, SH, LH);
                    const Index to_w = distance(x, w, OW, KW, SW, LW);
                    const bool has_pixel = has_tap(last_d - d, OD, to_d, KD, LD)
                        && has_tap(last_h - h, OH, to_h, KH, LH)
                        && has_tap(last_w - w, OW, to_w, KW, LW);
                    if (!has_pixel) continue;
                    const Index tap = (to_d / LD * KH + to_h / LH) * KW + to_w / LW;
                    const Index back = (d * OH + h) * OW + w;
                    const Index front = z - PD - to_d, top = y - PH - to_h;
                    const Index left = x - PW - to_w;""",
}  # fmt: skip
_WINDOWS = """
// Along an axis with O windows: how many are tried (all, or as many as can reach one pixel); the
// last of them; and how far the pixel lies from the begin of the window `back` windows before it.
__device__ constexpr Index most_windows(Index O, Index K, Index S, Index L) {
    return O <= (K - 1) * L / S ? O : (K - 1) * L / S + 1;
}
__device__ inline Index last_window(unsigned x, Index O, Index K, Index S, Index L) {
    return O <= (K - 1) * L / S ? O - 1 : x / (unsigned) S;
}
__device__ inline Index distance(unsigned x, Index back, Index O, Index K, Index S, Index L) {
    return O <= (K - 1) * L / S ? x - (O - 1 - back) * S : x % (unsigned) S + back * S;
}
// Is o a window, and has it a tap at this distance from its begin? (Negative ones are large.)
__device__ inline bool has_tap(unsigned o, unsigned O, unsigned distance, Index K, Index L) {
    return o < O && distance <= (unsigned) ((K - 1) * L) && distance % (unsigned) L == 0;
}
"""
_FIELDS = ("size", "kernel", "stride", "dilate", "pad", "out")


class WindowKernel:
    """A kernel over windows: `kernel(xp, n, arrays, geometry, *numbers, **constants)` launches it
    for n outputs or pixels. Its parameters are the arrays, n and the numbers."""

    def __init__(self, name: str, body: str):
        self.typed = TypedKernel(name, _WINDOWS + body, **_TEXTS)

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
extern "C" __global__ void im2col(const T* image, T* columns, const Index n, const Index images) {
    $strides
    $outputs
        T* to = columns + plane / C * image_stride + plane % C * taps * row_stride + place;
        const T* from = image + plane * (D * H * W) + origin;
        $taps
                    to[tap * row_stride] = inside ? from[ahead] : T(0);
                }
    }
}
""",
)

_COL2IM = WindowKernel(
    "col2im",
    """
extern "C" __global__ void col2im(const T* columns, T* image, const Index n, const Index images) {
    $strides
    $pixels
        const T* from = columns + plane / C * image_stride + plane % C * taps * row_stride;
        from += last;
        A sum = 0;
        $windows
                    sum += loaded(from[tap * row_stride - back]);
                }
        image[i] = stored(sum);
    }
}
""",
)


def im2col(xp: Any, image: Any, columns: Any, geometry: Any, side_by_side: bool = False) -> None:
    """Fill columns (N, C * taps, places) from image (N, C, *size); with `side_by_side` the columns
    are (C * taps, N, places). Any dtype."""
    N, C = image.shape[:2]
    n = N * C * prod(geometry.out)
    _IM2COL(xp, n, [image, columns], geometry, N, C=C, SIDE_BY_SIDE=int(side_by_side))


def col2im(xp: Any, columns: Any, image: Any, geometry: Any, side_by_side: bool = False) -> None:
    """Fill image (N, C, *size): every pixel is the sum of the elements that `im2col` copies from
    it. float16 is added up in float32."""
    N, C = image.shape[:2]
    _COL2IM(xp, image.size, [columns, image], geometry, N, C=C, SIDE_BY_SIDE=int(side_by_side))

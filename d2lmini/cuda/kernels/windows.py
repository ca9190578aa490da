"""Windows over images on a GPU: convolution, pooling.

A kernel has a thread for each output, which goes through the taps of its window, or a thread for
each pixel, which goes through the windows over the pixel. Only one thread writes each result: no
atomics are needed, and sums are always the same. Neighbouring threads work on neighbouring outputs
or pixels, so that 32 threads read and write contiguous memory.

The sizes are constants of the text, so that the compiler divides by constants; the batch is not.
Images have one to three axes (missing ones are of size 1), and for each axis of

    D, H, W     image        K   kernel        S   stride        L   dilation        P   padding

there are O windows. A plane is one channel of one image. Arrays are of one dtype, and inputs are
copied where they are not in order (C-contiguous); float16 is added up in float32.

**Convolution** goes by im2col, for as many images at a time as fit into the workspace.

    y[n] = w @ columns[n]        (F, C*taps) @ (C*taps, OH*OW), in each group of channels

A kernel copies the windows (im2col), a batch of products follows. For the gradient of the data a
kernel adds up, for every pixel, what was copied from it (col2im). For the gradient of the weight
the columns of all images lie side by side, so that one product also sums over the images. The order
of every sum depends only on the sizes, so results are the same each time.

(cuDNN, which has faster algorithms for most sizes, is no longer available through CuPy.)

One filter for each channel (depthwise convolution) suits products badly: each channel would be a
product of a row with a small matrix, after copying every pixel once per tap. There a thread
computes one output, or one pixel of the data's gradient.

`ops.conv` describes the three functions of each algorithm.

**Pooling.** A maximum's gradient goes to the first place of its window that holds the largest
value: the thread of a pixel checks, in every window that contains the pixel, whether the pixel is
that place.
"""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Iterator, Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np

from d2lmini.cuda.kernels.launch import TypedKernel
from d2lmini.ops import pool as ops
from d2lmini.ops.conv import choose_algorithm
from d2lmini.ops.products import matmul
from d2lmini.ops.windows import Geometry


class _Walk(NamedTuple):
    """The beginning of a thread's work, and the loop over its taps or windows."""

    begin: str
    loop: str


# The thread of output i: `place` is that of its window in `plane`, which begins at front, top,
# left, the pixel `origin`. The loop goes through the pixels of the window, `origin + ahead`. How
# far ahead they are is constant, so the compiler can write the taps one by one. (As unsigned
# numbers, negative places are large.)
OUTPUTS = _Walk(
    """const Index place = i % (OD * OH * OW), plane = i / (OD * OH * OW);
        const Index front = place / (OW * OH) * SD - PD, top = place / OW % OH * SH - PH;
        const Index left = place % OW * SW - PW, origin = (front * H + top) * W + left;""",
    """for (Index kd = 0; kd < KD; ++kd)
            for (Index kh = 0; kh < KH; ++kh)
                for (Index kw = 0; kw < KW; ++kw) {
                    const unsigned d = front + kd * LD, h = top + kh * LH, w = left + kw * LW;
                    const bool inside = d < D && h < H && w < W;
                    const Index tap = (kd * KH + kh) * KW + kw;
                    const Index ahead = (kd * LD * H + kh * LH) * W + kw * LW;""",
)
# The thread of pixel i. The loop goes through the windows over the pixel: at the place
# `last - back`, which has the pixel at its tap `tap` and begins at front, top, left. How far it
# goes back along an axis is constant, so the compiler can write the windows one by one.
PIXELS = _Walk(
    """const Index pixel = i % (D * H * W), plane = i / (D * H * W);
        const Index z = pixel / (H * W) + PD, y = pixel / W % H + PH, x = pixel % W + PW;
        const Index last_d = last_window(z, OD, KD, SD, LD);
        const Index last_h = last_window(y, OH, KH, SH, LH);
        const Index last_w = last_window(x, OW, KW, SW, LW);
        const Index last = (last_d * OH + last_h) * OW + last_w;
        A sum = 0;""",
    """for (Index d = most_windows(OD, KD, SD, LD) - 1; d >= 0; --d)
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
)
# Along an axis with O windows: how many are tried (all, or as many as can reach one pixel); the
# last of them; how far the pixel lies from the begin of the window `back` windows before it; and
# whether o is a window that has a tap at this distance from its begin. Then how many places along
# an axis a mean counts (KIND 1: its padding, too), 1 if it is no mean; and the first place of a
# window that holds its largest value.
_FUNCTIONS = f"""
__device__ constexpr Index most_windows(Index O, Index K, Index S, Index L) {{
    return O <= (K - 1) * L / S ? O : (K - 1) * L / S + 1;
}}
__device__ inline Index last_window(unsigned x, Index O, Index K, Index S, Index L) {{
    return O <= (K - 1) * L / S ? O - 1 : x / (unsigned) S;
}}
__device__ inline Index distance(unsigned x, Index back, Index O, Index K, Index S, Index L) {{
    return O <= (K - 1) * L / S ? x - (O - 1 - back) * S : x % (unsigned) S + back * S;
}}
__device__ inline bool has_tap(unsigned o, unsigned O, unsigned distance, Index K, Index L) {{
    return o < O && distance <= (unsigned) ((K - 1) * L) && distance % (unsigned) L == 0;
}}
__device__ inline A places(Index begin, Index K, Index size, Index P) {{
    const Index from = KIND == 1 || begin > 0 ? begin : 0, most = KIND == 1 ? size + P : size;
    const Index found = (begin + K < most ? begin + K : most) - from;
    return KIND == 0 || KIND > 2 || found < 1 ? 1 : found;
}}
__device__ inline A count(Index front, Index top, Index left) {{
    return places(front, KD, D, PD) * places(top, KH, H, PH) * places(left, KW, W, PW);
}}
__device__ inline Index first_place(
    const T* x, A largest, Index plane, Index front, Index top, Index left
) {{
    const Index origin = (front * H + top) * W + left;
    const T* from = x + plane * (D * H * W) + origin;
    {OUTPUTS.loop}
                    if (inside && loaded(from[ahead]) == largest) return origin + ahead;
                }}
    return -1;
}}
"""
#: The letters of the fields of `ops.windows.Geometry`.
_LETTERS = ("", "K", "S", "L", "P", "O")


class WindowKernel:
    """A kernel over windows: `kernel(xp, n, arrays, geometry, *numbers, **constants)` launches it
    for n outputs or pixels. `arrays` are its parameters, the last is the output, which is in
    order; and `numbers`, behind n. `begin`, `each` tap or window, and `end` say what a thread
    computes."""

    def __init__(
        self, name: str, walk: _Walk, arrays: str, begin: str, each: str, end: str = "",
        numbers: str = "",
    ):  # fmt: skip
        self.typed = TypedKernel(
            name,
            f"""{_FUNCTIONS}
extern "C" __global__ void {name}({arrays}, const Index n{numbers}) {{
    const Index first = blockIdx.x * blockDim.x + threadIdx.x;
    for (Index i = first; i < n; i += gridDim.x * blockDim.x) {{
        {walk.begin}
        {begin}
        {walk.loop}
                    {each}
                }}
        {end}
    }}
}}
""",
        )

    def __call__(
        self, xp: Any, n: int, arrays: Sequence[Any], geometry: Any, *numbers: float,
        **constants: int,
    ) -> None:  # fmt: skip
        """`geometry` has size, kernel, stride, dilate, pad and out, each with a number for every
        axis."""
        sizes = [n, *(a.size for a in arrays)]
        constants = constants_of(geometry) | {"C": 1, "KIND": 0} | constants
        kernel = self.typed(arrays[0].dtype, *sizes, **constants)
        distinct = {id(a): a for a in arrays[:-1]}
        whole = {i: xp.ascontiguousarray(a) for i, a in distinct.items()}
        kernel(xp, n, *[whole[id(a)] for a in arrays[:-1]], arrays[-1], n, *numbers)


def constants_of(geometry: Any) -> dict[str, int]:
    """The constants of a geometry, filled up in front to three axes.

    >>> from d2lmini.ops.windows import geometry
    >>> found = constants_of(geometry((7, 6), (3, 2), (1, 1), (1, 1), (0, 0)))
    >>> [found[name] for name in ("D", "H", "W", "KD", "KH", "KW", "OD", "OH", "OW")]
    [1, 7, 6, 1, 3, 2, 1, 5, 5]
    """
    found = {}
    for letter, sizes in zip(_LETTERS, geometry):
        sizes = (int(letter != "P"),) * (3 - len(sizes)) + sizes
        found.update({letter + axis: size for axis, size in zip("DHW", sizes)})
    return found


# -- reducing windows, and the transpose -----------------------------------------------------------

#: The kind of a reduction, besides those of `ops.pool`: the sum of a window times a filter.
WEIGHTED = 4
# y (..., *out): the sum, mean, maximum or weighted sum of each window of x (..., *size), from
# `start` on. A maximum is nan where the window has a nan. Each of the C planes of an image has
# its own filter.
_REDUCE = WindowKernel(
    "reduce_windows", OUTPUTS, "const T* x, const T* weight, T* y",
    """const T* from = x + plane * (D * H * W) + origin;
        const T* filter = weight + plane % C * (KD * KH * KW);
        A result = A(start);""",
    """if (!inside) continue;
                    const A value = loaded(from[ahead]);
                    if (KIND == 4) result += value * loaded(filter[tap]);
                    else result = KIND == 3 ? maximum(result, value) : result + value;""",
    "y[i] = stored(result / count(front, top, left));",
    numbers=", const double start",
)  # fmt: skip
# The transpose: each element of g, times the weight or divided by what its mean counts, is added to
# the pixels of its window. There may be an own element for each of them (`row_stride`): a column.
# That of a maximum goes to the first pixel of `data` that holds it; nowhere if it is nan.
_STRIDES = ", const Index image_stride, const Index plane_stride, const Index row_stride"
_PLANE = "plane / C * image_stride + plane % C * plane_stride"
_SPREAD = WindowKernel(
    "spread_windows", PIXELS, "const T* g, const T* data, const T* maxima, T* dx",
    f"""const T* from = g + {_PLANE} + last;
        const T* filter = data + plane % C * (KD * KH * KW);""",
    """if (KIND == 3) {
                        const A most = loaded(maxima[plane * (OD * OH * OW) + last - back]);
                        if (loaded(data[i]) != most) continue;
                        if (pixel != first_place(data, most, plane, front, top, left)) continue;
                    }
                    const A value = loaded(from[tap * row_stride - back]);
                    sum += KIND == 4 ? value * loaded(filter[tap])
                                     : value / count(front, top, left);""",
    "dx[i] = stored(sum);",
    numbers=_STRIDES,
)  # fmt: skip


def _spread(xp: Any, *arrays: Any, geo: Any, row: int = 0, KIND: int = 0) -> Any:
    """Fill the last of g, data, maxima and dx."""
    g, *_, dx = arrays
    # Where planes are alike, an image is one of them: a kernel serves any number of channels.
    C, image = 1, prod(g.shape[2:])
    if row or KIND == WEIGHTED:
        C, image = max(dx.shape[1], 1), prod(g.shape[1:])
    _SPREAD(xp, dx.size, arrays, geo, image, image // C, row, C=C, KIND=KIND)
    return dx


# -- columns --------------------------------------------------------------------------------------

_IM2COL = WindowKernel(
    "im2col", OUTPUTS, "const T* image, T* columns",
    f"""T* to = columns + {_PLANE} + place;
        const T* from = image + plane * (D * H * W) + origin;""",
    "to[tap * row_stride] = inside ? from[ahead] : T(0);",
    numbers=_STRIDES,
)  # fmt: skip


def im2col(xp: Any, image: Any, columns: Any, geometry: Any, side_by_side: bool = False) -> None:
    """Fill columns (N, C * taps, places) from image (N, C, *size); with `side_by_side` the columns
    are (C * taps, N, places). Any dtype."""
    (N, C), places = image.shape[:2], prod(geometry.out)
    row = N * places if side_by_side else places
    strides = places if side_by_side else C * geometry.taps * places, geometry.taps * row, row
    _IM2COL(xp, N * C * places, [image, columns], geometry, *strides, C=C)


def col2im(xp: Any, columns: Any, image: Any, geometry: Any) -> None:
    """Fill image (N, C, *size): every pixel is the sum of the elements that `im2col` copies from
    it."""
    _spread(xp, columns, columns, columns, image, geo=geometry, row=prod(geometry.out))


# -- convolution ---------------------------------------------------------------------------------

#: Most bytes of the columns, unless one image needs more.
WORKSPACE = 256 << 20


def _parts(xp: Any, C: int, geo: Geometry, N: int, dtype: Any) -> Iterator[tuple[slice, Any]]:
    """(images, undefined memory for their columns (images, C*taps, places)), part by part."""
    shape = (C * geo.taps, prod(geo.out))
    most = max(WORKSPACE // max(prod(shape) * dtype.itemsize, 1), 1)
    for begin in range(0, N, most):
        images = min(most, N - begin)
        yield slice(begin, begin + images), xp.empty((images, *shape), dtype)


def _grouped(a: Any, groups: int) -> Any:
    """(N, G*rows, ...) as (N, G, rows, places)."""
    return a.reshape(a.shape[0], groups, a.shape[1] // groups, prod(a.shape[2:]))


def convolve(xp: Any, x: Any, w: Any, geo: Geometry, groups: int, y: Any) -> None:
    """y = x * w: (N, C, *size), (F, C/G, *kernel) -> (N, F, *out)."""
    results = _grouped(y, groups)
    w = w.reshape(groups, w.shape[0] // groups, -1)  # (G, F/G, C/G*taps)
    for part, columns in _parts(xp, x.shape[1], geo, len(x), x.dtype):
        im2col(xp, x[part], columns, geo)
        matmul(xp, w, _grouped(columns, groups), results[part])


def convolve_data(xp: Any, g: Any, w: Any, geo: Geometry, groups: int, dx: Any) -> None:
    """(N, F, *out), (F, C/G, *kernel) -> dx (N, C, *size)."""
    g = _grouped(g, groups)
    w = w.reshape(groups, w.shape[0] // groups, -1).swapaxes(1, 2)  # (G, C/G*taps, F/G)
    for part, columns in _parts(xp, dx.shape[1], geo, len(g), g.dtype):
        matmul(xp, w, g[part], _grouped(columns, groups))
        col2im(xp, columns, dx[part], geo)


def convolve_weight(xp: Any, x: Any, g: Any, geo: Geometry, groups: int, dw: Any) -> None:
    """(N, C, *size), (N, F, *out) -> dw (F, C/G, *kernel)."""
    F = g.shape[1]
    total = dw.reshape(groups, F // groups, -1)  # (G, F/G, C/G*taps)
    total.fill(0)
    for part, memory in _parts(xp, x.shape[1], geo, len(x), x.dtype):
        images, rows, places = memory.shape
        columns = memory.reshape(rows, images, places)
        im2col(xp, x[part], columns, geo, side_by_side=True)
        # All images of a filter, and of a tap, in one row.
        grads = g[part].swapaxes(0, 1).reshape(groups, F // groups, -1)
        total += matmul(xp, grads, columns.reshape(groups, rows // groups, -1).swapaxes(1, 2))


# -- depthwise ------------------------------------------------------------------------------------


def depthwise(xp: Any, x: Any, w: Any, geo: Any, groups: int, y: Any) -> None:
    """y = x * w: (N, C, *size), (C, 1, *kernel) -> (N, C, *out)."""
    _REDUCE(xp, y.size, [x, w, y], geo, 0.0, C=groups, KIND=WEIGHTED)


def depthwise_data(xp: Any, g: Any, w: Any, geo: Any, groups: int, dx: Any) -> None:
    """(N, C, *out), (C, 1, *kernel) -> dx (N, C, *size)."""
    _spread(xp, g, w, g, dx, geo=geo, KIND=WEIGHTED)


#: A way to convolve, as the modules of `ops.conv`.
Algorithm = namedtuple("Algorithm", "convolve convolve_data convolve_weight")
IM2COL = Algorithm(convolve, convolve_data, convolve_weight)
DEPTHWISE = Algorithm(depthwise, depthwise_data, convolve_weight)


@choose_algorithm.kernel("cuda")
def _(xp: Any, N: int, w: Any, geo: Geometry, groups: int) -> Algorithm:
    return DEPTHWISE if groups > 1 and w[:2] == (groups, 1) else IM2COL


# -- pooling --------------------------------------------------------------------------------------


@ops.reduce_windows.kernel("cuda")
def _(xp: Any, x: Any, pool: Any, kind: Any, y: Any) -> None:
    # A window outside the image has the lowest number.
    start = float(np.finfo(x.dtype).min) if kind == ops.MAX else 0.0
    _REDUCE(xp, y.size, [x, x, y], pool, start, KIND=kind)


@ops.pooling_spread.kernel("cuda")
def _(xp: Any, g: Any, *, pool: Any, kind: Any, out: Any = None) -> Any:
    dx = xp.empty((*g.shape[:2], *pool.size), g.dtype) if out is None else out
    return _spread(xp, g, g, g, dx, geo=pool, KIND=kind)


@ops.max_pooling_backward.kernel("cuda")
def _(xp: Any, g: Any, data: Any, y: Any, *, pool: Any, out: Any = None) -> Any:
    dx = xp.empty(data.shape, g.dtype) if out is None else out
    return _spread(xp, g, data, y, dx, geo=pool, KIND=ops.MAX)

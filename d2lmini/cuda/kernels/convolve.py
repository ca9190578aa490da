"""Convolution on a GPU by im2col, for as many images at a time as fit into the workspace.

    y[n] = w @ columns[n]        (F, C*taps) @ (C*taps, OH*OW), in each group of channels

A kernel copies the windows (im2col), a batch of products follows. For the gradient of the data a
kernel adds up, for every pixel, what was copied from it (col2im). For the gradient of the weight
the columns of all images lie side by side, so that one product also sums over the images. The order
of every sum depends only on the sizes, so results are the same each time.

(cuDNN, which has faster algorithms for most sizes, is no longer available through CuPy.)

Filters of one channel each (depthwise convolution) suit products badly: each channel would be a
product of a row with a small matrix, after copying every pixel once per tap. There a thread
computes one output, or one pixel of the data's gradient; the gradient of the weights is a reduction
of the windows, a view of the padded images. With M filters for each channel, those of channel c are
c * M and so on.

`ops.conv` describes the three functions of each algorithm.
"""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Iterator
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np

from d2lmini.cuda.kernels.formulas import Launches, Operand, operand_of, reduction
from d2lmini.cuda.kernels.symbols import names
from d2lmini.cuda.kernels.windows import OUTPUTS, PIXELS, WindowKernel, col2im, im2col
from d2lmini.ops.conv import choose_algorithm
from d2lmini.ops.products import matmul
from d2lmini.ops.windows import Geometry, windows_of, with_padding

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

_DEPTHWISE = WindowKernel(
    "depthwise", OUTPUTS, "const T* x, const T* weight, T* y",
    """const T* from = x + plane / M * (D * H * W) + origin;
        const T* filter = weight + plane % (C * M) * (KD * KH * KW);
        A sum = 0;""",
    "if (inside) sum += loaded(from[ahead]) * loaded(filter[tap]);",
    "y[i] = stored(sum);",
)  # fmt: skip
_DEPTHWISE_DATA = WindowKernel(
    "depthwise_data", PIXELS, "const T* g, const T* weight, T* dx",
    """const T* from = g + plane * M * (OD * OH * OW) + last;
        const T* filter = weight + plane % C * M * (KD * KH * KW);""",
    """for (Index m = 0; m < M; ++m)
                        sum += loaded(from[m * (OD * OH * OW) - back])
                             * loaded(filter[m * (KD * KH * KW) + tap]);""",
    "dx[i] = stored(sum);",
)  # fmt: skip


def depthwise(xp: Any, x: Any, w: Any, geo: Any, groups: int, y: Any) -> None:
    """y = x * w: (N, C, *size), (C*M, 1, *kernel) -> (N, C*M, *out)."""
    _DEPTHWISE(xp, y.size, [x, w, y], geo, C=groups, M=len(w) // groups)


def depthwise_data(xp: Any, g: Any, w: Any, geo: Any, groups: int, dx: Any) -> None:
    """(N, C*M, *out), (C*M, 1, *kernel) -> dx (N, C, *size)."""
    _DEPTHWISE_DATA(xp, dx.size, [g, w, dx], geo, C=groups, M=len(w) // groups)


def depthwise_weight(xp: Any, x: Any, g: Any, geo: Any, groups: int, dw: Any) -> None:
    """(N, C, *size), (N, C*M, *out) -> dw (C*M, 1, *kernel). float16 is added up in float32."""
    launches = _sums_of_windows(x.dtype, len(x), groups, len(dw) // groups, geo)
    launches(xp, xp.ascontiguousarray(with_padding(xp, x, geo)), xp.ascontiguousarray(g), dw)


@lru_cache(maxsize=256)
def _sums_of_windows(dtype: np.dtype, N: int, C: int, M: int, geo: Geometry) -> Launches:
    """Each weight is the sum of its pixel times the output's gradient, over images and windows."""
    ones = (1,) * len(geo.kernel)
    domain = (N, C, M, *geo.kernel, *geo.out)
    x = operand_of(windows_of(np.empty((N, C, *geo.padded), dtype), geo)[:, :, None])
    g, dw = (Operand(dtype, s) for s in ((N, C, M, *ones, *geo.out), (1, C, M, *geo.kernel, *ones)))
    wide = np.promote_types(dtype, "f")
    return reduction(
        "depthwise_weight", [x, g], domain, (0, *range(3 + len(ones), len(domain))), [dw],
        lambda x, g: [names.sum(x.astype(wide) * g.astype(wide)).astype(dtype)],
    )  # fmt: skip


#: A way to convolve, as the modules of `ops.conv`.
Algorithm = namedtuple("Algorithm", "convolve convolve_data convolve_weight")
IM2COL = Algorithm(convolve, convolve_data, convolve_weight)
DEPTHWISE = Algorithm(depthwise, depthwise_data, depthwise_weight)


@choose_algorithm.kernel("cuda")
def _(xp: Any, N: int, w: Any, geo: Geometry, groups: int) -> Algorithm:
    return DEPTHWISE if groups > 1 and w[1] == 1 else IM2COL

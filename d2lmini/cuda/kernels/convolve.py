"""Convolution on a GPU by im2col, for as many images at a time as fit into the workspace.

    y[n] = w @ columns[n]        (F, C*taps) @ (C*taps, OH*OW), in each group of channels

A kernel copies the windows (im2col), a batch of products follows. For the gradient of the data a
kernel adds up, for every pixel, what was copied from it (col2im). For the gradient of the weight
the columns of all images lie side by side, so that one product also sums over the images. The order
of every sum depends only on the sizes, so results are the same each time.

(cuDNN, which has faster algorithms for most sizes, is no longer available through CuPy.)

`ops.conv` describes the three functions. Where each filter has one channel, kernels
compute them without columns (`kernels.depthwise`).
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from math import prod
from typing import Any

from d2lmini.cuda.kernels import depthwise, windows
from d2lmini.ops.conv import choose_algorithm
from d2lmini.ops.products import matmul
from d2lmini.ops.windows import Geometry

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
    x, results = xp.ascontiguousarray(x), _grouped(y, groups)
    w = w.reshape(groups, w.shape[0] // groups, -1)  # (G, F/G, C/G*taps)
    for part, columns in _parts(xp, x.shape[1], geo, len(x), x.dtype):
        windows.im2col(xp, x[part], columns, geo)
        matmul(xp, w, _grouped(columns, groups), results[part])


def convolve_data(xp: Any, g: Any, w: Any, geo: Geometry, groups: int, dx: Any) -> None:
    """(N, F, *out), (F, C/G, *kernel) -> dx (N, C, *size)."""
    g = _grouped(g, groups)
    w = w.reshape(groups, w.shape[0] // groups, -1).swapaxes(1, 2)  # (G, C/G*taps, F/G)
    for part, columns in _parts(xp, dx.shape[1], geo, len(g), g.dtype):
        matmul(xp, w, g[part], _grouped(columns, groups))
        windows.col2im(xp, columns, dx[part], geo)


def convolve_weight(xp: Any, x: Any, g: Any, geo: Geometry, groups: int, dw: Any) -> None:
    """(N, C, *size), (N, F, *out) -> dw (F, C/G, *kernel)."""
    x, F = xp.ascontiguousarray(x), g.shape[1]
    total = dw.reshape(groups, F // groups, -1)  # (G, F/G, C/G*taps)
    total.fill(0)
    for part, memory in _parts(xp, x.shape[1], geo, len(x), x.dtype):
        images, rows, places = memory.shape
        columns = memory.reshape(rows, images, places)
        windows.im2col(xp, x[part], columns, geo, side_by_side=True)
        # All images of a filter, and of a tap, in one row.
        grads = g[part].swapaxes(0, 1).reshape(groups, F // groups, -1)
        total += matmul(xp, grads, columns.reshape(groups, rows // groups, -1).swapaxes(1, 2))


@choose_algorithm.kernel("cuda")
def _(xp: Any, N: int, w: Any, geo: Geometry, groups: int) -> Any:
    return depthwise if groups > 1 and w[1] == 1 else sys.modules[__name__]

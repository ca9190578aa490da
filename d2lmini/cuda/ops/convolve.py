"""Convolution on a GPU by im2col, for as many images at a time as fit into the workspace.

    y[n] = w @ columns[n]        (F, C*taps) @ (C*taps, OH*OW), in each group of channels

A kernel copies the windows (im2col), a batch of products follows. For the gradient of the data a
kernel adds up, for every pixel, what was copied from it (col2im). For the gradient of the weight
the columns of all images lie side by side, so that one product also sums over the images. The order
of every sum depends only on the sizes, so results are the same each time.

(cuDNN, which has faster algorithms for most sizes, is no longer available through CuPy.)

`ops.conv_algorithms` describes the three functions. Where each filter has one channel, kernels
compute them without columns (`kernels.depthwise`).
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from math import prod
from typing import Any

from d2lmini.cuda.kernels import depthwise, windows
from d2lmini.ops.conv_algorithms import choose_algorithm
from d2lmini.ops.im2col import col2im, im2col
from d2lmini.ops.products import matmul
from d2lmini.ops.windows import Geometry, geometry

#: Most bytes of the columns, unless one image needs more.
WORKSPACE = 256 << 20


def _batches(N: int, nbytes: int) -> Iterator[slice]:
    """Split N images into parts whose columns, `nbytes` per image, fit into the workspace."""
    images = max(WORKSPACE // max(nbytes, 1), 1)
    for begin in range(0, N, images):
        yield slice(begin, min(begin + images, N))


def _by_images(xp: Any, C: int, geo: Geometry, N: int, dtype: Any) -> Iterator[tuple[slice, Any]]:
    """(images, undefined columns (images, C*taps, places)), part by part."""
    rows, places = C * geo.taps, prod(geo.out)
    for part in _batches(N, rows * places * dtype.itemsize):
        yield part, xp.empty((part.stop - part.start, rows, places), dtype)


def _grouped(a: Any, groups: int, rows: int) -> Any:
    """(N, G*rows, ...) as (N, G, rows, places)."""
    return a.reshape(a.shape[0], groups, rows, prod(a.shape[2:]))


def convolve(xp: Any, x: Any, w: Any, geo: Geometry, groups: int, y: Any) -> None:
    """y = x * w: (N, C, *size), (F, C/G, *kernel) -> (N, F, *out)."""
    x = xp.ascontiguousarray(x)
    w = w.reshape(groups, w.shape[0] // groups, -1)  # (G, F/G, C/G*taps)
    results = _grouped(y, groups, w.shape[1])
    for part, columns in _by_images(xp, x.shape[1], geo, len(x), x.dtype):
        windows.im2col(xp, x[part], columns, geo)
        matmul(xp, w, _grouped(columns, groups, w.shape[2]), results[part])


def convolve_data(xp: Any, g: Any, w: Any, geo: Geometry, groups: int, dx: Any) -> None:
    """(N, F, *out), (F, C/G, *kernel) -> dx (N, C, *size)."""
    w = w.reshape(groups, w.shape[0] // groups, -1).swapaxes(1, 2)  # (G, C/G*taps, F/G)
    g = _grouped(g, groups, w.shape[2])
    for part, columns in _by_images(xp, dx.shape[1], geo, len(g), g.dtype):
        matmul(xp, w, g[part], _grouped(columns, groups, w.shape[1]))
        windows.col2im(xp, columns, dx[part], geo)


def convolve_weight(xp: Any, x: Any, g: Any, geo: Geometry, groups: int, dw: Any) -> None:
    """(N, C, *size), (N, F, *out) -> dw (F, C/G, *kernel)."""
    x = xp.ascontiguousarray(x)
    rows, F, places = x.shape[1] * geo.taps, g.shape[1], prod(geo.out)
    total = dw.reshape(groups, F // groups, -1)  # (G, F/G, C/G*taps)
    total.fill(0)
    for part in _batches(len(x), rows * places * x.itemsize):
        columns = xp.empty((rows, part.stop - part.start, places), x.dtype)
        windows.im2col(xp, x[part], columns, geo, side_by_side=True)
        # All images of a filter, and of a tap, in one row.
        grads = g[part].swapaxes(0, 1).reshape(groups, F // groups, -1)
        total += matmul(xp, grads, columns.reshape(groups, rows // groups, -1).swapaxes(1, 2))


@choose_algorithm.kernel("cuda")
def _(xp: Any, N: int, w: Any, geo: Geometry, groups: int) -> Any:
    return depthwise if groups > 1 and w[1] == 1 else sys.modules[__name__]


@im2col.kernel("cuda")
def _(xp, data, *, kernel, stride=(), dilate=(), pad=(), out=None):
    N, C, *size = data.shape
    geo = geometry(tuple(size), kernel, stride, dilate, pad)
    if out is None:
        out = xp.empty((N, C * geo.taps, prod(geo.out)), data.dtype)
    windows.im2col(xp, xp.ascontiguousarray(data), out, geo)
    return out


@col2im.kernel("cuda")
def _(xp, data, *, output_size, kernel, stride=(), dilate=(), pad=()):
    geo = geometry(output_size, kernel, stride, dilate, pad)
    image = xp.empty((data.shape[0], data.shape[1] // geo.taps, *output_size), data.dtype)
    windows.col2im(xp, xp.ascontiguousarray(data), image, geo)
    return image

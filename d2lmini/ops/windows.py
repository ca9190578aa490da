"""Windows on images, and the three products of matrices that convolution is made of.

A convolution looks at an image through windows. As a view of the (padded) image they cost no
memory, only strides; a tile of them is copied into a buffer of columns (im2col: K. Chellapilla et
al., 2006), so that

    y = w @ columns        (F, C*kh*kw) @ (C*kh*kw, N*OH*OW)

is a product of matrices, where BLAS is at its best. A tile holds a few images, or, of large ones,
some rows of one: enough columns for BLAS to be quick, few enough for the buffer to stay small.
1x1 kernels need no columns at all. Tiles are worked on one after the other, since BLAS itself uses
all cores; several at once would only be in each other's way.

The convolution y = x * w is linear in x and in w, so its gradients are linear as well:

    convolve         (x, w) -> y
    convolve_data    (g, w) -> dx    w^T @ g gives columns; each is added back where it was copied
                                     from (col2im)
    convolve_weight  (x, g) -> dw    g @ columns^T

>>> import numpy as np
>>> x, w = np.arange(9.0).reshape(1, 1, 3, 3), np.ones((1, 1, 2, 2))
>>> geo = geometry((3, 3), kernel=(2, 2), stride=(), dilate=(), pad=())
>>> y = np.empty((1, 1, *geo.out))
>>> convolve(np, x, w, geo, 1, y)
>>> y
array([[[[ 8., 12.],
         [20., 24.]]]])

The ops on top of these are in `conv.py`.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import product
from math import prod
from typing import Any, NamedTuple

from d2lmini.base import MXNetError
from d2lmini.ops.core import Shape

#: A tile has as many columns as fit into so many elements, and in any case this many.
TILE_ELEMENTS = 1 << 20
FEWEST_COLUMNS = 512


class Geometry(NamedTuple):
    """How windows lie on an image: one number for each spatial axis in every field.

    A window covers `extent` = dilate * (kernel - 1) + 1 places, windows are `stride` apart, and
    `out` of them fit on the image, `size` places long with `pad` zeros on either side.
    """

    size: Shape
    kernel: Shape
    stride: Shape
    dilate: Shape
    pad: Shape
    out: Shape

    @property
    def padded(self) -> Shape:
        """Size of the image with its zeros."""
        return tuple(s + 2 * p for s, p in zip(self.size, self.pad))

    @property
    def taps(self) -> int:
        """Places in a window."""
        return prod(self.kernel)

    @property
    def is_pointwise(self) -> bool:
        """Windows of one place, one for every place: no columns are needed."""
        return self.taps == 1 and self.out == self.size and not any(self.pad)


@lru_cache(maxsize=1024)
def geometry(size: Shape, kernel: Shape, stride: Shape, dilate: Shape, pad: Shape) -> Geometry:
    """The windows of this kernel on an image of this size; MXNetError when none fits."""
    stride, dilate, pad = full_lists(kernel, stride, dilate, pad)
    extents = [d * (k - 1) + 1 for k, d in zip(kernel, dilate)]
    out = tuple((n + 2 * p - e) // s + 1 for n, p, e, s in zip(size, pad, extents, stride))
    if min(out, default=1) < 1:
        raise MXNetError(
            f"the kernel exceeds the input: kernel {kernel} with dilate {dilate} covers "
            f"{tuple(extents)}, the input is {size} and pad {pad}"
        )
    return Geometry(size, kernel, stride, dilate, pad, out)


def full_lists(kernel: Shape, stride: Shape, dilate: Shape, pad: Shape) -> tuple[Shape, ...]:
    """stride, dilate and pad with a number for each axis; left out they are 1, 1 and 0."""
    if not 1 <= len(kernel) <= 3 or min(kernel) < 1:
        raise MXNetError(f"kernel must have one to three positive sizes, got {kernel}")
    ndim = len(kernel)
    one = (1,) * ndim
    given = {"stride": stride or one, "dilate": dilate or one, "pad": pad or (0,) * ndim}
    for name, values in given.items():
        if len(values) != ndim or min(values) < (name != "pad"):
            raise MXNetError(f"{name}={values} does not fit kernel={kernel}: one number per axis")
    return tuple(given.values())


# -- the three, on arrays -------------------------------------------------------------------------
#
# G is num_group: channels and filters are cut into G parts that do not see each other, which is a
# batch of G products. Arrays here are float32 or float64 and contiguous.


class _Tile(NamedTuple):
    """Images n of the batch, rows r of their outputs (the first spatial axis)."""

    n: slice
    r: slice
    shape: Shape  # (images, rows, *rest of out)


def _tiles(N: int, geo: Geometry, column: int) -> list[_Tile]:
    """Cut N images into tiles; `column` is the number of elements in a column."""
    width = prod(geo.out[1:])
    columns = max(TILE_ELEMENTS // max(column, 1), FEWEST_COLUMNS)
    rows = min(max(columns // width, 1), geo.out[0])
    images = max(columns // (width * rows), 1) if rows == geo.out[0] else 1
    return [
        _Tile(
            slice(n, min(n + images, N)),
            slice(r, min(r + rows, geo.out[0])),
            (min(images, N - n), min(rows, geo.out[0] - r), *geo.out[1:]),
        )
        for n in range(0, N, images)
        for r in range(0, geo.out[0], rows)
    ]


class _Buffer:
    """Memory for one tile after the other, with `rows` elements for each of its columns."""

    def __init__(self, xp: Any, tiles: list[_Tile], rows: int, dtype: Any):
        self.memory = xp.empty(rows * max((prod(tile.shape) for tile in tiles), default=0), dtype)

    def shaped(self, *shape: int) -> Any:
        """As much of it as an array of this shape takes."""
        return self.memory[: prod(shape)].reshape(shape)


def _pad(xp: Any, x: Any, geo: Geometry) -> Any:
    if not any(geo.pad):
        return x
    padded = xp.zeros(x.shape[:2] + geo.padded, x.dtype)
    padded[_inside(geo)] = x
    return padded


def _inside(geo: Geometry) -> tuple:
    """Where the image lies in its padded form."""
    return (..., *(slice(p, p + n) for p, n in zip(geo.pad, geo.size)))


def _columns(xp: Any, padded: Any, tile: _Tile, geo: Geometry, groups: int, buffer: Any) -> Any:
    """The windows of a tile, copied: (C, *kernel, images, rows, ...) as (G, C/G*taps, columns)."""
    part = padded[tile.n, :, tile.r.start * geo.stride[0] :]
    n, c, *steps = part.strides
    windows = xp.lib.stride_tricks.as_strided(
        part,
        (part.shape[1], *geo.kernel, *tile.shape),
        (c, *(d * s for d, s in zip(geo.dilate, steps)),
         n, *(t * s for t, s in zip(geo.stride, steps))),
    )  # fmt: skip
    columns = buffer.shaped(*windows.shape)
    xp.copyto(columns, windows)
    return columns.reshape(groups, -1, prod(tile.shape))


def _side_by_side(y: Any, tile: _Tile, groups: int) -> Any:
    """The tile of y (N, F, *out) as (G, F/G, columns): a view if it is of one image."""
    return y[tile.n, :, tile.r].swapaxes(0, 1).reshape(groups, -1, prod(tile.shape))


def convolve(xp: Any, x: Any, w: Any, geo: Geometry, groups: int, y: Any) -> None:
    """y = x * w: (N, C, *size), (F, C/G, *kernel) -> (N, F, *out)."""
    N, C, F = x.shape[0], x.shape[1], w.shape[0]
    w = w.reshape(groups, F // groups, -1)  # (G, F/G, C/G*taps)
    if geo.is_pointwise:
        images = x.reshape(N, groups, C // groups, prod(geo.out))
        xp.matmul(w, images, out=y.reshape(N, groups, F // groups, prod(geo.out)))
        return
    padded = _pad(xp, x, geo)
    tiles = _tiles(N, geo, C * geo.taps)
    buffer = _Buffer(xp, tiles, C * geo.taps, x.dtype)
    results = _Buffer(xp, tiles, F, x.dtype)
    for tile in tiles:
        columns = _columns(xp, padded, tile, geo, groups, buffer)
        result = results.shaped(groups, F // groups, columns.shape[2])
        xp.matmul(w, columns, out=result)
        y[tile.n, :, tile.r] = result.reshape(F, *tile.shape).swapaxes(0, 1)


def convolve_data(xp: Any, g: Any, w: Any, geo: Geometry, groups: int, dx: Any) -> None:
    """(N, F, *out), (F, C/G, *kernel) -> dx (N, C, *size)."""
    N, F, C = g.shape[0], g.shape[1], dx.shape[1]
    w = w.reshape(groups, F // groups, -1).swapaxes(1, 2)  # (G, C/G*taps, F/G)
    if geo.is_pointwise:
        images = g.reshape(N, groups, F // groups, prod(geo.out))
        xp.matmul(w, images, out=dx.reshape(N, groups, C // groups, prod(geo.out)))
        return
    padded = xp.empty((N, C, *geo.padded), dx.dtype) if any(geo.pad) else dx
    padded[...] = 0
    tiles = _tiles(N, geo, C * geo.taps)
    buffer = _Buffer(xp, tiles, C * geo.taps, dx.dtype)
    for tile in tiles:
        columns = buffer.shaped(C, *geo.kernel, *tile.shape)
        place = columns.reshape(groups, -1, prod(tile.shape))
        xp.matmul(w, _side_by_side(g, tile, groups), out=place)
        images = padded[tile.n, :, tile.r.start * geo.stride[0] :].swapaxes(0, 1)
        for tap in product(*map(range, geo.kernel)):
            starts = [t * d for t, d in zip(tap, geo.dilate)]
            where = tuple(
                slice(a, a + (o - 1) * s + 1, s)
                for a, o, s in zip(starts, tile.shape[1:], geo.stride)
            )
            images[(slice(None), slice(None)) + where] += columns[(slice(None),) + tap]
    if padded is not dx:
        xp.copyto(dx, padded[_inside(geo)])


def convolve_weight(xp: Any, x: Any, g: Any, geo: Geometry, groups: int, dw: Any) -> None:
    """(N, C, *size), (N, F, *out) -> dw (F, C/G, *kernel)."""
    N, C, F = x.shape[0], x.shape[1], g.shape[1]
    padded = _pad(xp, x, geo)
    tiles = _tiles(N, geo, C * geo.taps)
    buffer = _Buffer(xp, tiles, C * geo.taps, x.dtype)
    dw[...] = 0
    total = dw.reshape(groups, F // groups, -1)  # (G, F/G, C/G*taps), a view
    for tile in tiles:
        columns = _columns(xp, padded, tile, geo, groups, buffer)
        total += xp.matmul(_side_by_side(g, tile, groups), columns.swapaxes(1, 2))


def computed(xp: Any, function: Any, a: Any, b: Any, geo: Any, groups: int, shape: Shape, out: Any):
    """Call one of the three; float16 goes by way of float32."""
    if a.dtype.itemsize > 2:
        out = xp.empty(shape, a.dtype) if out is None else out
        function(xp, a, b, geo, groups, out)
        return out
    wide = xp.empty(shape, "float32")
    function(xp, a.astype("float32"), b.astype("float32"), geo, groups, wide)
    if out is None:
        return wide.astype(a.dtype)
    out[...] = wide
    return out

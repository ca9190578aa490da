"""Convolution by im2col: the windows of a few images at a time as columns, in the cache.

    y[n] = w @ columns[n]        (F, C*taps) @ (C*taps, OH*OW), for each image of a tile

The products read and write images in place, without transposing. Parts of the batch are shared
among idle workers; a single part shares its products instead (`products.py`). Groups split channels
and filters into G independent parts, which makes a batch of G products of every product.

In memory the columns of a tile lie side by side, (C*taps, images, OH*OW). Images so small that BLAS
would be slow at a product for each are one product, (F, C*taps) @ (C*taps, images*OH*OW). Their
tiles are one part.

The gradient for the data gives columns, each to be added back to its source, tap by tap.

`conv_algorithms.py` describes the three functions.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from math import prod
from typing import Any, NamedTuple

import numpy as np

from d2lmini.device.parallel import parallel_for
from d2lmini.device.scratch import scratch
from d2lmini.ops.chunking import GRAIN, copy, share
from d2lmini.ops.core import Shape
from d2lmini.ops.products import matmul
from d2lmini.ops.windows import Geometry, inside, taps, windows_of, with_zeros

#: Elements in the columns of a tile: few enough for the cache, and enough that a NumPy call takes
#: long compared to getting the interpreter lock back from another worker.
TILE_ELEMENTS = 1 << 19

#: Images side by side have at least this many columns in a tile, so that BLAS is fast.
FEWEST_COLUMNS = 512


def cost(N: int, w: Shape, geo: Geometry) -> float:
    """Predicted nanoseconds for N images on one core: each output costs a copied column, and
    products with few filters are slow."""
    copied = prod(geo.out) * prod(w[1:])
    return N * 1.1 * (copied * (w[0] / 36 + 0.65 + 3 / geo.out[-1]) + 2000)


def is_small(w: Shape, geo: Geometry, groups: int) -> bool:
    """Would a product for each image have too few columns for a weight of shape w?"""
    places = prod(geo.out)
    return places < 256 and prod(w) // groups > 1 << (10 if places < 64 else 17)


class _Tile(NamedTuple):
    """Images n of a batch, and rows r of their outputs (the first spatial axis)."""

    n: slice
    r: slice
    geo: Geometry  # the windows of these outputs

    @property
    def images(self) -> int:
        return self.n.stop - self.n.start

    def outputs(self, y: Any) -> Any:
        """The tile's part of y (N, F, *out): (F, images, rows, ...), a view."""
        return y[self.n, :, self.r].swapaxes(0, 1)


class _Tiles:
    """The tiles of a convolution, and the layout of their columns and outputs."""

    def __init__(self, N: int, w: Shape, geo: Geometry, groups: int):
        self.groups = groups
        self.side_by_side = is_small(w, geo, groups)
        columns = TILE_ELEMENTS // (groups * prod(w[1:]))
        if self.side_by_side:
            columns = max(columns, FEWEST_COLUMNS)
        height, width = geo.out[0], prod(geo.out[1:])
        rows = min(max(columns // width, 1), height)
        images = max(columns // (width * rows), 1) if rows == height else 1
        self.parts = [
            [
                _Tile(n, r, geo._replace(out=(r.stop - r.start, *geo.out[1:])))
                for r in _cut(height, rows)
            ]
            for n in _cut(N, images)
        ]
        if self.side_by_side:
            self.parts = [[tile for part in self.parts for tile in part]]

    def for_each(self, body: Callable[[int, _Tile], None]) -> None:
        """Call body(number of the part, tile) for all tiles; tiles of one part run in order."""

        def work(i: int) -> None:
            for tile in self.parts[i]:
                body(i, tile)

        parallel_for(len(self.parts), work)

    def scratch(self, name: str, shape: Shape, dtype: Any) -> Any:
        """Scratch memory of this shape; arrays in use at the same time need different names."""
        return scratch.array(name, shape, dtype, 8 * TILE_ELEMENTS * dtype.itemsize)

    def columns(self, padded: Any, tile: _Tile) -> Any:
        """The windows of a tile, copied, as matrices."""
        windows = windows_of(padded[tile.n, :, tile.r.start * tile.geo.stride[0] :], tile.geo)
        windows = np.moveaxis(windows, 0, 1 + len(tile.geo.kernel))
        columns = self.scratch("columns", windows.shape, padded.dtype)
        return self.matrices(copy(np, windows, columns), tile)

    def matrices(self, a: Any, tile: _Tile) -> Any:
        """(rows, images, ...), a row for each channel and tap or each filter, as
        (images, G, rows/G, places); images side by side count as one."""
        a = a.reshape(self.groups, -1, tile.images, prod(tile.geo.out))
        if self.side_by_side:
            return a.reshape(1, *a.shape[:2], -1)
        return a.transpose(2, 0, 1, 3)


@lru_cache(maxsize=1024)
def _tiles_of(N: int, w: Shape, geo: Geometry, groups: int) -> _Tiles:
    """The tiles of N images for a weight of shape w."""
    return _Tiles(N, w, geo, groups)


def convolve(xp: Any, x: Any, w: Any, geo: Geometry, groups: int, y: Any, bias: Any = None) -> None:
    """y = x * w + bias: (N, C, *size), (F, C/G, *kernel), (F,) or None -> (N, F, *out)."""
    padded = with_zeros(xp, x, geo)
    tiles = _tiles_of(len(x), w.shape, geo, groups)
    w = w.reshape(groups, len(w) // groups, -1)

    def convolve_tile(_part: int, tile: _Tile) -> None:
        columns, place = tiles.columns(padded, tile), tile.outputs(y)
        if tiles.side_by_side:
            product = tiles.scratch("products", place.shape, y.dtype)
            matmul(xp, w, columns, tiles.matrices(product, tile))
            copy(xp, product, place)
        else:
            matmul(xp, w, columns, tiles.matrices(place, tile))
        if bias is not None:
            place += bias.reshape(-1, *(1,) * (1 + len(geo.out)))

    tiles.for_each(convolve_tile)


def convolve_weight(xp: Any, x: Any, g: Any, geo: Geometry, groups: int, dw: Any) -> None:
    """(N, C, *size), (N, F, *out) -> dw (F, C/G, *kernel)."""
    padded = with_zeros(xp, x, geo)
    tiles = _tiles_of(len(x), dw.shape, geo, groups)
    # Each part of the batch has its own sum: the total does not depend on the order of completion.
    total = dw.reshape(1, groups, len(dw) // groups, -1)
    parts = len(tiles.parts)
    sums = total if parts == 1 else xp.empty((parts, *total.shape[1:]), total.dtype)
    sums[...] = 0

    def add_tile(part: int, tile: _Tile) -> None:
        columns, outputs = tiles.columns(padded, tile), tiles.matrices(tile.outputs(g), tile)
        products = tiles.scratch("products", (len(columns), *total.shape[1:]), total.dtype)
        matmul(xp, outputs, columns.swapaxes(2, 3), products)
        sums[part] += products.sum(axis=0) if len(products) > 1 else products[0]

    tiles.for_each(add_tile)
    if sums is not total:
        sums.sum(axis=0, out=total[0])


def convolve_data(xp: Any, g: Any, w: Any, geo: Geometry, groups: int, dx: Any) -> None:
    """(N, F, *out), (F, C/G, *kernel) -> dx (N, C, *size)."""
    F, C = g.shape[1], dx.shape[1]
    pad = tuple(d * (k - 1) - p for k, d, p in zip(geo.kernel, geo.dilate, geo.pad))
    if groups > 1 and max(geo.stride) == 1 and min(pad) >= 0:
        # A convolution of g with turned filters copies windows, which is faster than adding.
        turned = w.reshape(groups, F // groups, C // groups, -1).swapaxes(1, 2)[..., ::-1]
        turned = turned.reshape(C, F // groups, *geo.kernel)
        convolve(xp, g, turned, geo._replace(size=geo.out, pad=pad, out=geo.size), groups, dx)
        return
    padded = xp.empty((len(g), C, *geo.padded), dx.dtype) if any(geo.pad) else dx
    tiles = _tiles_of(len(g), w.shape, geo, groups)
    w = w.reshape(groups, F // groups, -1).swapaxes(1, 2)  # (G, C/G*taps, F/G)

    def add_tile(_part: int, tile: _Tile) -> None:
        shape = (C, *geo.kernel, tile.images, *tile.geo.out)
        columns = tiles.scratch("columns", shape, g.dtype)
        outputs = tiles.matrices(tile.outputs(g), tile)
        matmul(xp, w, outputs, tiles.matrices(columns, tile))
        images = padded[tile.n].swapaxes(0, 1)
        if tile.r.start == 0:
            images[...] = 0
        images = images[:, :, tile.r.start * geo.stride[0] :]

        def add(part: slice) -> None:
            for tap, pixels in taps(tile.geo):
                images[(part, ..., *pixels)] += columns[(part, *tap)]

        share(xp, C, columns.size // GRAIN if tiles.side_by_side else 1, add)

    tiles.for_each(add_tile)
    if padded is not dx:
        copy(xp, padded[inside(geo)], dx)


def _cut(length: int, step: int) -> list[slice]:
    """`length` in slices of `step`; the last may be shorter."""
    return [slice(i, min(i + step, length)) for i in range(0, length, step)]

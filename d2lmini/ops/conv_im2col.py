"""Convolution by im2col: the windows of a few images at a time as columns, in the cache.

    y[n] = w @ columns[n]        (F, C*taps) @ (C*taps, OH*OW), for each image of a tile

The products read and write images in place, without transposing. Parts of the batch are shared
among idle workers; a single part shares its products instead (`products.py`). Groups split channels
and filters into G independent parts, which makes a batch of G products of every product.

Images so small that BLAS would be slow at a product for each lie side by side instead: a tile of
them is one product, (F, C*taps) @ (C*taps, images*OH*OW). Their tiles are one part.

The gradient for the data gives columns, each to be added back to its source; with stride 1 it is a
convolution of g with turned filters instead.

`conv.py` describes the three functions.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from math import prod
from typing import Any, NamedTuple

import numpy as np

from d2lmini.device.parallel import parallel_for
from d2lmini.device.scratch import scratch
from d2lmini.ops.chunking import GRAIN, along, copy, cut, share
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


class Tile(NamedTuple):
    """Images n of a batch, rows r of their outputs (the first spatial axis)."""

    n: slice
    r: slice
    shape: Shape  # (images, rows, *rest of out)

    def on(self, geo: Geometry) -> Geometry:
        """The windows of the tile alone."""
        return geo._replace(out=self.shape[1:])


class _Tiles:
    """The tiles of a convolution, and the layout of their columns and outputs."""

    def __init__(self, N: int, w: Shape, geo: Geometry, groups: int):
        self.geo, self.groups = geo, groups
        self.side_by_side = is_small(w, geo, groups)
        columns = TILE_ELEMENTS // (groups * prod(w[1:]))
        if self.side_by_side:
            columns = max(columns, FEWEST_COLUMNS)
        width = prod(geo.out[1:])
        rows = min(max(columns // width, 1), geo.out[0])
        images = max(columns // (width * rows), 1) if rows == geo.out[0] else 1
        self.parts = [
            [
                Tile(n, r, (n.stop - n.start, r.stop - r.start, *geo.out[1:]))
                for r in cut(geo.out[0], rows)
            ]
            for n in cut(N, images)
        ]
        if self.side_by_side:
            self.parts = [[tile for part in self.parts for tile in part]]

    def for_each(self, body: Callable[[int, Tile], None]) -> None:
        """Call body(number of the part, tile) for all tiles; tiles of one part run in order."""

        def work(i: int) -> None:
            for tile in self.parts[i]:
                body(i, tile)

        parallel_for(len(self.parts), work)

    def scratch(self, name: str, shape: Shape, dtype: Any) -> Any:
        """Scratch memory of this shape; arrays in use at the same time need different names."""
        return scratch.array(name, shape, dtype, 8 * TILE_ELEMENTS * dtype.itemsize)

    def columns(self, padded: Any, tile: Tile) -> Any:
        """The windows of a tile, copied: (images, G, C/G*taps, places)."""
        part = padded[tile.n, :, tile.r.start * self.geo.stride[0] :]
        windows = windows_of(part, tile.on(self.geo))
        if self.side_by_side:
            windows = np.moveaxis(windows, 0, 1 + len(self.geo.kernel))
        columns = self.scratch("columns", windows.shape, padded.dtype)
        copy(np, windows, columns)
        return self.matrices(columns, tile)

    def outputs(self, y: Any, tile: Tile) -> Any:
        """A tile's part of y (N, F, *out): (images, G, F/G, places), a view where possible."""
        part = y[tile.n, :, tile.r]
        return self.matrices(part.swapaxes(0, 1) if self.side_by_side else part, tile)

    def matrices(self, a: Any, tile: Tile) -> Any:
        """(images, rows, ...), or with the images side by side (rows, images, ...), as
        (images, G, rows/G, places); images side by side count as one."""
        images = 1 if self.side_by_side else tile.shape[0]
        return a.reshape(images, self.groups, -1, prod(tile.shape) // images)


#: The tiles of N images for a weight of shape w: (N, w, geo, groups) -> _Tiles.
_tiles_of = lru_cache(maxsize=1024)(_Tiles)


def convolve(xp: Any, x: Any, w: Any, geo: Geometry, groups: int, y: Any, bias: Any = None) -> None:
    """y = x * w + bias: (N, C, *size), (F, C/G, *kernel), (F,) or None -> (N, F, *out)."""
    N, F = y.shape[:2]
    padded = with_zeros(xp, x, geo)
    tiles = _tiles_of(N, w.shape, geo, groups)
    w = w.reshape(groups, F // groups, -1)

    def tile_of(_part: int, tile: Tile) -> None:
        columns = tiles.columns(padded, tile)
        place = y[tile.n, :, tile.r]
        if tiles.side_by_side:
            product = tiles.scratch("products", (F, *tile.shape), y.dtype)
            matmul(xp, w, columns, tiles.matrices(product, tile))
            copy(xp, product.swapaxes(0, 1), place)
        else:
            matmul(xp, w, columns, tiles.outputs(y, tile))
        if bias is not None:
            place += bias.reshape(-1, *(1,) * len(geo.out))

    tiles.for_each(tile_of)


def convolve_weight(xp: Any, x: Any, g: Any, geo: Geometry, groups: int, dw: Any) -> None:
    """(N, C, *size), (N, F, *out) -> dw (F, C/G, *kernel)."""
    N, F = g.shape[:2]
    padded = with_zeros(xp, x, geo)
    tiles = _tiles_of(N, dw.shape, geo, groups)
    # Each part of the batch has its own sum: the total does not depend on the order of completion.
    total = dw.reshape(1, groups, F // groups, -1)
    parts = len(tiles.parts)
    sums = total if parts == 1 else xp.empty((parts, *total.shape[1:]), total.dtype)
    sums[...] = 0

    def tile_of(part: int, tile: Tile) -> None:
        columns = tiles.columns(padded, tile)
        products = tiles.scratch("products", (len(columns), *total.shape[1:]), total.dtype)
        matmul(xp, tiles.outputs(g, tile), columns.swapaxes(2, 3), products)
        sums[part] += products.sum(axis=0) if len(products) > 1 else products[0]

    tiles.for_each(tile_of)
    if sums is not total:
        sums.sum(axis=0, out=total[0])


def convolve_data(xp: Any, g: Any, w: Any, geo: Geometry, groups: int, dx: Any) -> None:
    """(N, F, *out), (F, C/G, *kernel) -> dx (N, C, *size)."""
    N, F, C = g.shape[0], g.shape[1], dx.shape[1]
    pad = tuple(d * (k - 1) - p for k, d, p in zip(geo.kernel, geo.dilate, geo.pad))
    if max(geo.stride) == 1 and min(pad) >= 0 and 4 * N * prod(geo.out) >= F // groups:
        # A convolution of g with turned filters copies windows, which is faster than adding. (It
        # copies the filters, too: more than few small images are.)
        turned = w.reshape(groups, F // groups, C // groups, -1).swapaxes(1, 2)[..., ::-1]
        turned = turned.reshape(C, F // groups, *geo.kernel)
        convolve(xp, g, turned, geo._replace(size=geo.out, pad=pad, out=geo.size), groups, dx)
        return
    padded = xp.empty((N, C, *geo.padded), dx.dtype) if any(geo.pad) else dx
    across = w.reshape(groups, F // groups, -1).swapaxes(1, 2)  # (G, C/G*taps, F/G)
    tiles = _tiles_of(N, w.shape, geo, groups)
    tiles.for_each(
        lambda _part, tile: _add_windows(xp, padded[tile.n], g, across, tile, geo, tiles)
    )
    if padded is not dx:
        copy(xp, padded[inside(geo)], dx)


def _add_windows(
    xp: Any, images: Any, g: Any, w: Any, tile: Tile, geo: Geometry, tiles: _Tiles
) -> None:
    """Add the columns of a tile back to their source, tap by tap."""
    n, C = images.shape[:2]
    columns = tiles.scratch("columns", (C * geo.taps * prod(tile.shape),), g.dtype)
    outputs = xp.ascontiguousarray(tiles.outputs(g, tile))
    matmul(xp, w, outputs, tiles.matrices(columns, tile))
    if tile.r.start == 0:
        images[...] = 0
    images = images[:, :, tile.r.start * geo.stride[0] :]
    if tiles.side_by_side:
        columns = columns.reshape(C, *geo.kernel, *tile.shape)
        images, axis = images.swapaxes(0, 1), 1
    else:
        columns = columns.reshape(n, C, *geo.kernel, *tile.shape[1:])
        axis = 2

    def add(part: slice) -> None:
        for tap, pixels in taps(tile.on(geo)):
            images[(part, ..., *pixels)] += columns[part][along(axis, *tap)]

    chunks = min(len(images), columns.size // GRAIN) if tiles.side_by_side else 1
    share(xp, len(images), chunks, add)

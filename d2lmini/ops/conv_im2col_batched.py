"""Convolution with the columns of several images side by side: one large product of matrices.

    y = w @ columns        (F, C/G*taps) @ (C/G*taps, N*OH*OW)

For small images with many channels, and for groups: a tile holds enough columns for BLAS to be
fast, and few enough for the buffer to stay small. Tiles are processed one after the other; the
workers share each product, and, channel by channel, the copying and adding. G is the number of
groups: channels and filters are split into G parts that are independent of each other, which makes
a batch of G products.

`conv_algorithms.py` describes the three functions.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import prod
from typing import Any

from d2lmini.ops.chunking import GRAIN, along, copy, share
from d2lmini.ops.products import matmul
from d2lmini.ops.windows import Geometry, Tile, cut_tiles, inside, taps, windows_of, with_zeros

#: Elements of a tile; the number of columns follows, with a minimum.
TILE_ELEMENTS = 1 << 20
FEWEST_COLUMNS = 512


def _tiles(N: int, geo: Geometry, column: int) -> list[Tile]:
    """Cut N images into tiles; `column` is the number of elements in a column."""
    width = prod(geo.out[1:])
    columns = max(TILE_ELEMENTS // max(column, 1), FEWEST_COLUMNS)
    rows = min(max(columns // width, 1), geo.out[0])
    images = max(columns // (width * rows), 1) if rows == geo.out[0] else 1
    return [tile for group in cut_tiles(N, geo, images, rows) for tile in group]


class _Buffer:
    """Memory reused for one tile after the other, with `rows` elements per column."""

    def __init__(self, xp: Any, tiles: list[Tile], rows: int, dtype: Any):
        self.memory = xp.empty(rows * max((prod(tile.shape) for tile in tiles), default=0), dtype)

    def as_shape(self, *shape: int) -> Any:
        """The first part of the memory as an array of this shape."""
        return self.memory[: prod(shape)].reshape(shape)


def _columns(xp: Any, padded: Any, tile: Tile, geo: Geometry, groups: int, buffer: Any) -> Any:
    """The windows of a tile, copied: (C, *kernel, images, rows, ...) as (G, C/G*taps, columns)."""
    windows = xp.moveaxis(windows_of(xp, padded, tile, geo), 0, 1 + len(geo.kernel))
    columns = buffer.as_shape(*windows.shape)
    _by_channels(xp, xp.copyto, columns, windows)
    return columns.reshape(groups, -1, prod(tile.shape))


def _by_channels(xp: Any, body: Callable[..., Any], *arrays: Any) -> None:
    """Call body(*arrays), in chunks if they are large; their first axis is the channels."""
    C = len(arrays[0])
    n = min(C, arrays[0].size // GRAIN)
    share(xp, C, n, lambda part: body(*[a[part] for a in arrays]))


def _side_by_side(y: Any, tile: Tile, groups: int) -> Any:
    """The tile of y (N, F, *out) as (G, F/G, columns): a view if the tile has one image."""
    return y[tile.n, :, tile.r].swapaxes(0, 1).reshape(groups, -1, prod(tile.shape))


def convolve(xp: Any, x: Any, w: Any, geo: Geometry, groups: int, y: Any) -> None:
    """y = x * w: (N, C, *size), (F, C/G, *kernel) -> (N, F, *out)."""
    N, C, F = x.shape[0], x.shape[1], w.shape[0]
    w = w.reshape(groups, F // groups, -1)  # (G, F/G, C/G*taps)
    padded = with_zeros(xp, x, geo)
    tiles = _tiles(N, geo, C * geo.taps)
    buffer = _Buffer(xp, tiles, C * geo.taps, x.dtype)
    results = _Buffer(xp, tiles, F, x.dtype)
    for tile in tiles:
        columns = _columns(xp, padded, tile, geo, groups, buffer)
        result = results.as_shape(groups, F // groups, columns.shape[2])
        matmul(xp, w, columns, result)
        place = y[tile.n, :, tile.r].swapaxes(0, 1)
        _by_channels(xp, xp.copyto, place, result.reshape(F, *tile.shape))


def convolve_data(xp: Any, g: Any, w: Any, geo: Geometry, groups: int, dx: Any) -> None:
    """(N, F, *out), (F, C/G, *kernel) -> dx (N, C, *size)."""
    N, F, C = g.shape[0], g.shape[1], dx.shape[1]
    w = w.reshape(groups, F // groups, -1).swapaxes(1, 2)  # (G, C/G*taps, F/G)
    padded = xp.empty((N, C, *geo.padded), dx.dtype) if any(geo.pad) else dx
    padded[...] = 0
    tiles = _tiles(N, geo, C * geo.taps)
    buffer = _Buffer(xp, tiles, C * geo.taps, dx.dtype)
    for tile in tiles:
        columns = buffer.as_shape(C, *geo.kernel, *tile.shape)
        place = columns.reshape(groups, -1, prod(tile.shape))
        matmul(xp, w, _side_by_side(g, tile, groups), place)
        images = padded[tile.n, :, tile.r.start * geo.stride[0] :].swapaxes(0, 1)
        _by_channels(xp, partial(_add, tile, geo), columns, images)
    if padded is not dx:
        copy(xp, padded[inside(geo)], dx)


def _add(tile: Tile, geo: Geometry, columns: Any, images: Any) -> None:
    """Add columns (C, *kernel, images, rows, ...) back to their source, tap by tap."""
    for tap, pixels in taps(geo, tile.shape[1:]):
        images[(..., *pixels)] += columns[along(1, *tap)]


def convolve_weight(xp: Any, x: Any, g: Any, geo: Geometry, groups: int, dw: Any) -> None:
    """(N, C, *size), (N, F, *out) -> dw (F, C/G, *kernel)."""
    N, C, F = x.shape[0], x.shape[1], g.shape[1]
    padded = with_zeros(xp, x, geo)
    tiles = _tiles(N, geo, C * geo.taps)
    buffer = _Buffer(xp, tiles, C * geo.taps, x.dtype)
    dw[...] = 0
    total = dw.reshape(groups, F // groups, -1)  # (G, F/G, C/G*taps), a view
    for tile in tiles:
        columns = _columns(xp, padded, tile, geo, groups, buffer)
        total += matmul(xp, _side_by_side(g, tile, groups), columns.swapaxes(1, 2))

"""Convolution image by image: the columns of a few images at a time, in the cache.

    y[n] = w @ columns[n]        (F, C*taps) @ (C*taps, OH*OW), for each image of a tile

The products read and write images in place, without transposing. Groups of images are shared among
idle workers; a single group shares its products instead (`products.py`).

The gradient for the data gives columns, each to be added back to its source. With stride 1 the
windows of one tap are a shifted copy of the image. So g is laid out as wide as the (padded) image,
with zeros in between, and one sum over a skewed view of the columns adds up all taps at once.

`conv_algorithms.py` describes the three functions; here there is a single group (num_group = 1).
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

from d2lmini.device.parallel import parallel_for
from d2lmini.device.scratch import scratch
from d2lmini.ops.chunking import along
from d2lmini.ops.core import Shape
from d2lmini.ops.products import matmul
from d2lmini.ops.windows import Geometry, Tile, cut_tiles, inside, taps, windows_of, with_zeros

#: Elements in the columns of a tile: few enough for the cache, and enough that a NumPy call takes
#: long compared to getting the interpreter lock back from another worker.
TILE_ELEMENTS = 1 << 19


def cost(N: int, w: Shape, geo: Geometry) -> float:
    """Predicted nanoseconds for N images on one core: each output costs a copied column, and
    products with few filters are slow. `conv_im2col_batched.py` has about the same cost per image.
    """
    copied = prod(geo.out) * prod(w[1:])
    return N * 1.1 * (copied * (w[0] / 36 + 0.65 + 3 / geo.out[-1]) + 2000)


def _room(name: str, shape: Shape, dtype: Any) -> Any:
    """Scratch memory of this shape; buffers in use at the same time need different names."""
    return scratch.array(name, shape, dtype, 8 * TILE_ELEMENTS * dtype.itemsize)


def _for_each_tile(
    N: int,
    geo: Geometry,
    column: int,
    body: Callable[[int, Tile], None],
    room: int = 1,
) -> None:
    """Call body(number of the group, tile) for all tiles of N images; tiles of one group run in
    order. `column` is the number of elements in a column, `room` the factor by which a tile needs
    more memory."""
    groups = cut_tiles(N, geo, *_choose_tiles(N, geo, column * room))

    def work(i: int) -> None:
        for tile in groups[i]:
            body(i, tile)

    parallel_for(len(groups), work)


def _choose_tiles(N: int, geo: Geometry, column: int) -> tuple[int, int]:
    """Number of images in a group, and of rows in a tile."""
    width = prod(geo.out[1:])
    rows = min(max(TILE_ELEMENTS // (column * width), 1), geo.out[0])
    images = max(TILE_ELEMENTS // (column * width * rows), 1) if rows == geo.out[0] else 1
    return max(min(images, N), 1), rows


def _columns(xp: Any, padded: Any, tile: Tile, geo: Geometry) -> Any:
    """The windows of a tile, copied: (images, C*taps, places)."""
    windows = windows_of(xp, padded, tile, geo)
    columns = _room("columns", windows.shape, padded.dtype)
    xp.copyto(columns, windows)
    return columns.reshape(tile.shape[0], -1, prod(tile.shape[1:]))


def convolve(
    xp: Any, x: Any, w: Any, geo: Geometry, _groups: int, y: Any, bias: Any = None
) -> None:
    """y = x * w + bias: (N, C, *size), (F, C, *kernel), (F,) or None -> (N, F, *out)."""
    N, F = y.shape[:2]
    padded = with_zeros(xp, x, geo)
    w = w.reshape(F, -1)
    y = y.reshape(N, F, prod(geo.out))

    def tile_of(_group: int, tile: Tile) -> None:
        place = y[tile.n, :, tile.places]
        matmul(xp, w, _columns(xp, padded, tile, geo), place)
        if bias is not None:
            place += bias[:, None]

    _for_each_tile(N, geo, w.shape[1], tile_of)


def convolve_weight(xp: Any, x: Any, g: Any, geo: Geometry, _groups: int, dw: Any) -> None:
    """(N, C, *size), (N, F, *out) -> dw (F, C, *kernel)."""
    N, F = g.shape[:2]
    padded = with_zeros(xp, x, geo)
    g = g.reshape(N, F, prod(geo.out))
    total = dw.reshape(F, -1)
    # Each group has its own sum, so the total does not depend on the order of completion.
    images, _rows = _choose_tiles(N, geo, total.shape[1])
    sums = xp.zeros((-(-N // images), *total.shape), total.dtype)

    def tile_of(group: int, tile: Tile) -> None:
        columns = _columns(xp, padded, tile, geo)
        parts = _room("parts", (tile.shape[0], *total.shape), total.dtype)
        matmul(xp, g[tile.n, :, tile.places], columns.swapaxes(1, 2), parts)
        sums[group] += parts.sum(axis=0)

    _for_each_tile(N, geo, total.shape[1], tile_of)
    sums.sum(axis=0, out=total)


def convolve_data(xp: Any, g: Any, w: Any, geo: Geometry, _groups: int, dx: Any) -> None:
    """(N, F, *out), (F, C, *kernel) -> dx (N, C, *size)."""
    N, F, C = g.shape[0], g.shape[1], dx.shape[1]
    w = xp.ascontiguousarray(w.reshape(F, -1).T)  # (C*taps, F)
    padded = xp.empty((N, C, *geo.padded), dx.dtype) if any(geo.pad) else dx
    shifts = all(s == 1 for s in geo.stride)
    wide = geo._replace(out=(geo.out[0], *geo.padded[1:])) if shifts else geo
    add = _add_shifted if shifts else _add_windows

    def tile_of(_group: int, tile: Tile) -> None:
        add(xp, padded[tile.n], g[tile.n, :, tile.r], w, tile, geo)

    room = 1
    if shifts:  # see `_add_shifted`
        room += -(-sum((k - 1) * d * n for k, d, n in zip(geo.kernel, geo.dilate, _steps(geo))) * 2
                  // prod(wide.out))  # fmt: skip
    _for_each_tile(N, wide, w.shape[0], tile_of, room)
    if padded is not dx:
        xp.copyto(dx, padded[inside(geo)])


def _steps(geo: Geometry) -> list[int]:
    """Distance in the (padded) image between neighbours along each axis."""
    return [prod(geo.padded[i + 1 :]) for i in range(len(geo.padded))]


def _add_shifted(xp: Any, images: Any, g: Any, w: Any, tile: Tile, geo: Geometry) -> None:
    """Add the columns of a tile back to their source; strides are 1.

    Number the places of an image line by line: tap t of the window at place q is at place
    q + shift(t). So place p receives the sum over t of columns[t, p - shift(t)]: the elements of a
    view whose tap axes step back by a shift each.
    """
    n, C = images.shape[:2]
    steps = _steps(geo)
    shifts = [d * step for d, step in zip(geo.dilate, steps)]
    margin = sum((k - 1) * shift for k, shift in zip(geo.kernel, shifts))
    places = prod(tile.shape[1:])  # of the columns
    reached = places + (geo.kernel[0] - 1) * shifts[0]  # of the image
    laid = _room("laid", (*g.shape[:2], *tile.shape[1:]), g.dtype)
    laid[...] = 0
    laid[(..., *(slice(size) for size in g.shape[3:]))] = g
    columns = _room("columns", (n, w.shape[0], margin + reached), g.dtype)
    columns[:, :, :margin] = 0
    columns[:, :, margin + places :] = 0
    matmul(xp, w, laid.reshape(*g.shape[:2], -1), columns[:, :, margin : margin + places])
    columns = columns.reshape(n, C, *geo.kernel, -1)
    per_image, per_channel, *per_tap, item = columns.strides
    skewed = xp.lib.stride_tricks.as_strided(
        columns[..., margin:],
        (*geo.kernel, n, C, reached),
        (*(t - s * item for t, s in zip(per_tap, shifts)), per_image, per_channel, item),
    )
    axes = tuple(range(len(geo.kernel)))
    flat = images.reshape(n, C, -1)
    if reached == flat.shape[2]:
        xp.add.reduce(skewed, axis=axes, out=flat)
        return
    begin = tile.r.start * steps[0]
    if begin == 0:
        flat[...] = 0
    place = flat[:, :, begin : begin + reached]
    place += skewed.sum(axis=axes)


def _add_windows(xp: Any, images: Any, g: Any, w: Any, tile: Tile, geo: Geometry) -> None:
    """Add the columns of a tile back to their source, tap by tap."""
    n, C = images.shape[:2]
    columns = _room("columns", (n, w.shape[0], prod(tile.shape[1:])), g.dtype)
    matmul(xp, w, xp.ascontiguousarray(g).reshape(*g.shape[:2], -1), columns)
    columns = columns.reshape(n, C, *geo.kernel, *tile.shape[1:])
    if tile.r.start == 0:
        images[...] = 0
    images = images[:, :, tile.r.start * geo.stride[0] :]
    for tap, pixels in taps(geo, tile.shape[1:]):
        images[(..., *pixels)] += columns[along(2, *tap)]

"""Geometry of windows on images: position, count, and zero padding.

>>> geometry((5, 5), kernel=(3, 3), stride=(2, 2), dilate=(), pad=(1, 1)).out
(3, 3)

Convolution (`conv_algorithms.py`), `im2col` (`im2col.py`) and pooling use it.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from itertools import product
from math import prod
from operator import mul
from typing import Any, NamedTuple

from d2lmini.base import MXNetError
from d2lmini.ops.chunking import copy
from d2lmini.ops.core import Shape


class Geometry(NamedTuple):
    """Layout of windows on an image; every field has one number for each spatial axis.

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
        """Size of the image with padding."""
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
    """stride, dilate and pad with a number for each axis; the defaults are 1, 1 and 0."""
    if not 1 <= len(kernel) <= 3 or min(kernel) < 1:
        raise MXNetError(f"kernel must have one to three positive sizes, got {kernel}")
    ndim = len(kernel)
    one = (1,) * ndim
    given = {"stride": stride or one, "dilate": dilate or one, "pad": pad or (0,) * ndim}
    for name, values in given.items():
        if len(values) != ndim or min(values) < (name != "pad"):
            raise MXNetError(f"{name}={values} does not fit kernel={kernel}: one number per axis")
    return tuple(given.values())


def taps(geo: Geometry, out: Shape | None = None) -> Iterator[tuple[Shape, tuple[slice, ...]]]:
    """For each place in a window: its index, and the index of the pixels that it covers in the
    padded image, for `out` windows from the first on (all of them)."""
    for tap in product(*map(range, geo.kernel)):
        starts = [t * d for t, d in zip(tap, geo.dilate)]
        ends = [a + (n - 1) * s + 1 for a, n, s in zip(starts, out or geo.out, geo.stride)]
        yield tap, tuple(map(slice, starts, ends, geo.stride))


class Tile(NamedTuple):
    """Images n of a batch, rows r of their outputs (the first spatial axis)."""

    n: slice
    r: slice
    shape: Shape  # (images, rows, *rest of out)

    @property
    def places(self) -> slice:
        """The tile's places among all those of an output."""
        width = prod(self.shape[2:])
        return slice(self.r.start * width, self.r.stop * width)


def cut_tiles(N: int, geo: Geometry, images: int, rows: int) -> list[list[Tile]]:
    """Tiles of at most so many images and rows: a list for each group of images."""
    return [
        [
            Tile(slice(n, m), slice(r, q), (m - n, q - r, *geo.out[1:]))
            for r in range(0, geo.out[0], rows)
            for q in [min(r + rows, geo.out[0])]
        ]
        for n in range(0, N, images)
        for m in [min(n + images, N)]
    ]


def windows_of(xp: Any, padded: Any, tile: Tile, geo: Geometry) -> Any:
    """The windows of a tile, a view of the padded images: (images, C, *kernel, rows, ...)."""
    part = padded[tile.n, :, tile.r.start * geo.stride[0] :]
    n, c, *steps = part.strides
    within, between = (map(mul, moves, steps) for moves in (geo.dilate, geo.stride))
    shape = (*part.shape[:2], *geo.kernel, *tile.shape[1:])
    return xp.lib.stride_tricks.as_strided(part, shape, (n, c, *within, *between))


def with_zeros(xp: Any, x: Any, geo: Geometry) -> Any:
    """Zero padding: (N, C, *size) -> (N, C, *padded); x itself where there is no padding."""
    if not any(geo.pad):
        return x
    padded = xp.zeros(x.shape[:2] + geo.padded, x.dtype)
    copy(xp, x, padded[inside(geo)])
    return padded


def inside(geo: Geometry) -> tuple:
    """The index of the image in its padded form."""
    return (..., *(slice(p, p + n) for p, n in zip(geo.pad, geo.size)))

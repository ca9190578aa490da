"""Geometry of windows on images: position, count, and zero padding.

>>> geometry((5, 5), kernel=(3, 3), stride=(2, 2), dilate=(), pad=(1, 1)).out
(3, 3)

Convolution (`conv_algorithms.py`), `im2col` (`im2col.py`) and pooling use it.
"""

from __future__ import annotations

from functools import lru_cache
from math import prod
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

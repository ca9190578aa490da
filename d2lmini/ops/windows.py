"""Geometry of windows on images: position, count, and zero padding.

>>> geometry((5, 5), kernel=(3, 3), stride=(2, 2), dilate=(), pad=(1, 1)).out
(3, 3)

Convolution (`conv.py`) and pooling (`pool.py`) use it, for images (N, C, W), (N, C, H, W) or
(N, C, D, H, W).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from itertools import product
from math import prod
from operator import mul
from typing import Any, NamedTuple

from numpy.lib.stride_tricks import as_strided

from d2lmini.base import MXNetError
from d2lmini.ops.chunking import copy
from d2lmini.ops.core import Shape, Spec

LAYOUTS = {1: "NCW", 2: "NCHW", 3: "NCDHW"}


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
def geometry(
    size: Shape, kernel: Shape, stride: Shape = (), dilate: Shape = (), pad: Shape = (),
    round_up: bool = False,
) -> Geometry:  # fmt: skip
    """The windows of this kernel on an image of this size; MXNetError when none fits. round_up: the
    last window may extend past the end."""
    stride, dilate, pad = full_lists(kernel, stride, dilate, pad)
    extents = tuple(d * (k - 1) + 1 for k, d in zip(kernel, dilate))
    spans = [n + 2 * p - e for n, p, e in zip(size, pad, extents)]
    if min(spans, default=0) < 0:
        raise MXNetError(
            f"the kernel exceeds the input: kernel {kernel} with dilate {dilate} covers "
            f"{extents}, the input is {size} and pad {pad}"
        )
    out = tuple((-(-n // s) if round_up else n // s) + 1 for n, s in zip(spans, stride))
    return Geometry(size, kernel, stride, dilate, pad, out)


@lru_cache(maxsize=1024)
def transposed_geometry(
    size: Shape, kernel: Shape, stride: Shape, dilate: Shape, pad: Shape, adj: Shape
) -> Geometry:
    """The windows of which `size` fit on the output of a transposed convolution; MXNetError if
    impossible."""
    stride, dilate, pad = full_lists(kernel, stride, dilate, pad)
    spread = [s * (n - 1) + d * (k - 1) + 1 for n, k, s, d in zip(size, kernel, stride, dilate)]
    adj = adj or (0,) * len(kernel)
    if len(adj) != len(kernel) or any(not 0 <= a < s for a, s in zip(adj, stride)):
        raise MXNetError(f"adj={adj} must lie in [0, stride) for stride={stride}")
    image = tuple(f - 2 * p + a for f, p, a in zip(spread, pad, adj))
    if min(image) < 1:
        raise MXNetError(f"pad={pad} leaves nothing of the output {tuple(spread)}")
    return Geometry(image, kernel, stride, dilate, pad, size)


def check_layout(layout: str | None, ndim: int, data: Spec) -> None:
    """Check for one to three axes, a channel-first layout and the matching number of axes."""
    if ndim not in LAYOUTS or len(data.shape) != ndim + 2:
        need = LAYOUTS.get(ndim, "(N, C, *size) of one to three sizes")
        raise MXNetError(f"a kernel of {ndim} axes needs data {need}, got {data.shape}")
    if layout not in (None, "None", LAYOUTS[ndim]):
        raise MXNetError(
            f"layout={layout!r} is not supported for a kernel of {ndim} axes, only "
            f"{LAYOUTS[ndim]!r}; move the axes with .transpose()"
        )


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


def taps(geo: Geometry) -> Iterator[tuple[Shape, tuple[slice, ...]]]:
    """For each place in a window: its index, and the index of the pixels that it covers in the
    padded image."""
    for tap in product(*map(range, geo.kernel)):
        starts = [t * d for t, d in zip(tap, geo.dilate)]
        ends = [a + (n - 1) * s + 1 for a, n, s in zip(starts, geo.out, geo.stride)]
        yield tap, tuple(map(slice, starts, ends, geo.stride))


def windows_of(padded: Any, geo: Geometry) -> Any:
    """The windows, a view of the padded images, which may be larger: (images, C, *kernel, *out)."""
    image, channel, *steps = padded.strides
    within, between = (map(mul, moves, steps) for moves in (geo.dilate, geo.stride))
    shape = (*padded.shape[:2], *geo.kernel, *geo.out)
    return as_strided(padded, shape, (image, channel, *within, *between))


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

"""Convolution of narrow images: rows of the image times the kernel as a Toeplitz (band) matrix.

    y[n, rows of outputs] = x[n, rows they look at] @ T

With the rows of an image in sequence, all channels in each, the input rows of one output row are
contiguous: no columns are copied, windows are views. Along a row the kernel is a band matrix (a
Toeplitz matrix), here for one channel and three taps a b c:

        a . .       Many of its multiplications are with zeros. So T covers a few outputs only, the
        b a .       image is copied into blocks of as many columns as these outputs read, and each
        c b a       block is an image by itself. The matrix product makes up for the wasted
        . c b       multiplications: one product of thousands of rows replaces a tiny product for
        . . c       each image, on a copy that was as many times larger as the kernel has taps.

An inf or nan reaches all outputs of its block, since 0 * inf is nan; FFT and Winograd algorithms
have the same property.

The gradients are the same product transposed: the rows of g @ T^T are added up for the data, and
the sums of x^T @ g along the band are the weight's gradient. `plan` predicts the cost from sizes
alone; `conv.py`, which describes the three functions, chooses by that cost.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import nullcontext
from functools import lru_cache
from itertools import product
from math import prod
from typing import Any

import numpy as np

from d2lmini.device import blas
from d2lmini.device.parallel import parallel_for
from d2lmini.device.scratch import scratch
from d2lmini.ops.core import Shape
from d2lmini.ops.windows import Geometry, inside

#: Most multiplications of a tile: half a millisecond, long compared to getting the interpreter lock
#: back from another worker, and few enough for the cache.
TILE = 1 << 24

#: An axis of at most this many numbers is short (`_copy`).
FEW = 16

#: Fixed nanoseconds of a call, beyond those of the image-by-image method.
OVERHEAD = 100_000

#: Block sizes that `plan` tries.
HEIGHTS, WIDTHS = (1, 2), (1, 2, 4, 7, 8)


class ToeplitzPlan:
    """Images of C channels, for F filters, split into blocks of `shape` outputs:

    cuts             blocks down and across
    seen             places of the (padded) image that a block reads, down and across
    row              numbers in a row of a block, all channels
    inner            numbers that a block of outputs reads: rows of T
    outer            numbers in a block of outputs, all filters: columns of T
    step             numbers from a block to the block below it
    height           rows of the image that outputs read
    multiplications  for one image, including those with the band's zeros
    images           images of a tile: a power of two, so that tiles tend to be equal
    """

    def __init__(self, C: int, F: int, geo: Geometry, shape: Shape):
        self.C, self.F, self.geo, self.shape = C, F, geo, shape  # geo has two axes
        self.cuts = tuple(o // n for o, n in zip(geo.out, shape))
        windows = zip(shape, geo.stride, geo.kernel, geo.dilate)
        self.seen = tuple((n - 1) * s + (k - 1) * d + 1 for n, s, k, d in windows)
        self.row = C * self.seen[1]
        self.inner = self.seen[0] * self.row
        self.outer = shape[0] * F * shape[1]
        self.step = shape[0] * geo.stride[0] * self.row
        self.height = (self.cuts[0] - 1) * shape[0] * geo.stride[0] + self.seen[0]
        self.multiplications = prod(self.cuts) * self.inner * self.outer
        self.images = 1 << max(TILE // self.multiplications, 1).bit_length() - 1

    @property
    def cost(self) -> float:
        """Predicted nanoseconds for an image on one core; the mean of the three functions.

        Products with few columns are slower; outputs are copied in items (`_copy`); the gradient
        for the data adds up rows, the gradient for the weight the products of all blocks of a tile.
        """
        blocks = prod(self.cuts)
        item = next(n for n in (4, 2, 1) if self.shape[1] % n == 0)
        return (
            (1 / 36 + 0.45 / self.outer) * self.multiplications
            + self.cuts[1] * self.height * self.row
            + 1.5 / item * blocks * self.outer
            + 0.9 * blocks * self.inner
            + 0.5 * self.cuts[0] * self.inner * self.outer / self.images
        )


@lru_cache(maxsize=1024)
def plan(w: Shape, geo: Geometry) -> ToeplitzPlan:
    """The blocks of lowest cost for a weight of shape w; an image of one axis is one row."""
    F, C = w[:2]
    if len(geo.out) == 1:
        geo = Geometry(*((one, *axis) for one, axis in zip((1, 1, 1, 1, 0, 1), geo)))
    plans = [
        ToeplitzPlan(C, F, geo, shape)
        for shape in product(HEIGHTS, WIDTHS)
        if all(o % n == 0 for o, n in zip(geo.out, shape))
    ]
    return min(plans, key=lambda plan: plan.cost)


def cost(N: int, w: Shape, geo: Geometry) -> float:
    """Predicted nanoseconds for N images on one core; infinite for images of three axes."""
    return N * plan(w, geo).cost + OVERHEAD if len(geo.out) < 3 else math.inf


def _band(plan: ToeplitzPlan, T: Any) -> Any:
    """The view of the weight in T (inner, outer): (F, C, *kernel, *shape), repeated per output."""
    T = T.reshape(*plan.seen, plan.C, plan.shape[0], plan.F, plan.shape[1])
    down, across, channel, out_down, filter, out_across = T.strides
    (dh, dw), (sh, sw) = plan.geo.dilate, plan.geo.stride
    return _view(
        T,
        (plan.F, plan.C, *plan.geo.kernel, *plan.shape),
        (filter, channel, dh * down, dw * across, out_down + sh * down, out_across + sw * across),
    )


def _band_matrix(plan: ToeplitzPlan, w: Any) -> Any:
    T = np.zeros((plan.inner, plan.outer), w.dtype)
    _band(plan, T)[...] = w.reshape(plan.F, plan.C, *plan.geo.kernel, 1, 1)
    return T


def _view(memory: Any, shape: Shape, strides: Shape) -> Any:
    """An array of this shape in the memory of another; faster than NumPy's `as_strided`."""
    return np.ndarray(shape, memory.dtype, memory, 0, strides)


def _copy(to: Any, source: Any) -> None:
    """to[...] = source, for a short last axis.

    NumPy's inner loop over few numbers spends most of its time on starting. So runs are copied as
    items of two or four numbers, with a call for each, which makes another axis the inner loop.
    """
    if to.strides[-1] == source.strides[-1] == to.itemsize:
        if to.shape[-1] > FEW:
            np.copyto(to, source)
            return
        for item in ("S16", "S8"):
            size = np.dtype(item).itemsize
            if size > to.itemsize and to.shape[-1] * to.itemsize % size == 0:
                to, source = to.view(item), source.view(item)
                break
    for i in range(to.shape[-1]):
        np.copyto(to[..., i], source[..., i])


def _input_blocks(plan: ToeplitzPlan, x: Any) -> Any:
    """Input blocks of the outputs: (cuts[0], images * cuts[1], inner), a view of x's copy."""
    images = _images(plan, x)
    if any(plan.geo.pad):
        images[...] = 0
    _copy(images[_inside(plan)], x.transpose(0, 2, 3, 1))
    shape = (len(x), plan.cuts[1], plan.height, plan.row)
    blocks = scratch.array("seen", shape, x.dtype)
    n, line, place, number = images.strides
    across = plan.shape[1] * plan.geo.stride[1] * place
    _copy(blocks, _view(images, shape, (n, across, line, number)))
    return _view(
        blocks,
        (plan.cuts[0], len(x) * plan.cuts[1], plan.inner),
        (plan.step * x.itemsize, plan.height * plan.row * x.itemsize, x.itemsize),
    )


def _inside(plan: ToeplitzPlan) -> tuple:
    """The index of the image in its padded form, channels last."""
    return (slice(None), *inside(plan.geo)[1:])


def _images(plan: ToeplitzPlan, x: Any) -> Any:
    """Scratch memory for the images of x and their zero padding, channels last."""
    return scratch.array("images", (len(x), *plan.geo.padded, plan.C), x.dtype)


def _blocks(plan: ToeplitzPlan, y: Any) -> Any:
    """Outputs (images, F, *out) as (cuts[0], images, cuts[1], shape[0], F, shape[1])."""
    (down, across), (rows, columns) = plan.cuts, plan.shape
    return y.reshape(len(y), plan.F, down, rows, across, columns).transpose(2, 0, 4, 3, 1, 5)


def _copy_blocks(plan: ToeplitzPlan, g: Any) -> Any:
    """(images, F, *out) -> (cuts[0], images * cuts[1], outer)."""
    blocks = _blocks(plan, g)
    copied = scratch.array("blocks", blocks.shape, g.dtype)
    _copy(copied, blocks)
    return copied.reshape(plan.cuts[0], -1, plan.outer)


def _for_each_tile(plan: ToeplitzPlan, N: int, body: Callable[[int, slice], None]) -> None:
    """Call body(number, images) for all tiles of N images, in any order."""
    images = plan.images
    largest = min(images, N) * plan.cuts[1] * plan.inner * plan.outer
    with blas.alone() if largest > blas.SERIAL_PRODUCT else nullcontext():
        parallel_for(-(-N // images), lambda i: body(i, slice(i * images, (i + 1) * images)))


def convolve(
    xp: Any, x: Any, w: Any, geo: Geometry, _groups: int, y: Any, bias: Any = None
) -> None:
    """y = x * w + bias: (N, C, *size), (F, C, *kernel), (F,) or None -> (N, F, *out)."""
    p = plan(w.shape, geo)
    x, y = x.reshape(-1, p.C, *p.geo.size), y.reshape(-1, p.F, *p.geo.out)
    T = _band_matrix(p, w)

    def tile(_i: int, n: slice) -> None:
        seen = _input_blocks(p, x[n])
        product = scratch.array("blocks", (*seen.shape[:2], p.outer), x.dtype)
        np.matmul(seen, T, out=product)
        place = y[n]
        blocks = _blocks(p, place)
        _copy(blocks, product.reshape(blocks.shape))
        if bias is not None:
            place += bias[:, None, None]

    _for_each_tile(p, len(x), tile)


def convolve_weight(xp: Any, x: Any, g: Any, geo: Geometry, _groups: int, dw: Any) -> None:
    """(N, C, *size), (N, F, *out) -> dw (F, C, *kernel)."""
    p = plan(dw.shape, geo)
    x, g = x.reshape(-1, p.C, *p.geo.size), g.reshape(-1, p.F, *p.geo.out)
    # Each tile has its own sum, so the total does not depend on the order of completion.
    sums = np.empty((-(-len(x) // p.images), p.inner, p.outer), dw.dtype)

    def tile(i: int, n: slice) -> None:
        products = scratch.array("products", (p.cuts[0], p.inner, p.outer), dw.dtype)
        np.matmul(_input_blocks(p, x[n]).swapaxes(1, 2), _copy_blocks(p, g[n]), out=products)
        np.add.reduce(products, axis=0, out=sums[i])

    _for_each_tile(p, len(x), tile)
    # In T's memory order; in the order (F, C, *kernel) the sum took ten times as long.
    band = _band(p, sums.sum(axis=0)).transpose(2, 3, 1, 4, 0, 5)
    total = np.add.reduce(band, axis=(3, 5))
    dw.reshape(p.F, p.C, *p.geo.kernel)[...] = total.transpose(3, 2, 0, 1)


def convolve_data(xp: Any, g: Any, w: Any, geo: Geometry, _groups: int, dx: Any) -> None:
    """(N, F, *out), (F, C, *kernel) -> dx (N, C, *size)."""
    p = plan(w.shape, geo)
    g, dx = g.reshape(-1, p.F, *p.geo.out), dx.reshape(-1, p.C, *p.geo.size)
    T = np.ascontiguousarray(_band_matrix(p, w).T)

    def tile(_i: int, n: slice) -> None:
        blocks = _copy_blocks(p, g[n])
        product = scratch.array("products", (*blocks.shape[:2], p.inner), dx.dtype)
        np.matmul(blocks, T, out=product)
        images = _images(p, dx[n])
        _add(p, product, images)
        _copy(dx[n].transpose(0, 2, 3, 1), images[_inside(p)])

    _for_each_tile(p, len(g), tile)


def _add(plan: ToeplitzPlan, product: Any, images: Any) -> None:
    """images = the input rows of the output blocks, added up where they overlap: first blocks below
    one another, then blocks side by side."""
    rows = scratch.array("rows", (product.shape[1], plan.height * plan.row), product.dtype)
    rows[...] = 0
    _overlay(rows, product, plan.step)
    rows = rows.reshape(len(images), plan.cuts[1], plan.height, plan.row)
    images[...] = 0
    lines = images.reshape(*images.shape[:2], -1)[:, : plan.height]
    _overlay(lines, rows.swapaxes(0, 1), plan.shape[1] * plan.geo.stride[1] * plan.C)


def _overlay(whole: Any, parts: Any, step: int) -> None:
    """Add each part to the zeros of `whole`, at offsets of `step` along the last axis.

    Parts far enough apart do not overlap. The first such parts are written instead of added, since
    writing is faster.
    """
    length = parts.shape[-1]
    apart = -(-length // step)
    for i in sorted(range(len(parts)), key=lambda i: i % apart > 0):
        place = whole[..., i * step : i * step + length]
        if i % apart:
            np.add(place, parts[i], out=place)
        else:
            np.copyto(place, parts[i])

"""Winograd convolution: a fourth of the multiplications, for kernels as small as 3 x 3.

Outputs are split into tiles, 4 x 4 for kernels of 3 x 3; each tile reads 6 x 6 input places. Along
both axes these are replaced by their values at six points (`winograd`), and so are the filters.
One product for each pair of points, over all tiles of several images at once, is nearly all of the
work:

    V[p] = values of the tiles      (tiles, C)        p = 0 ... 35
    U[p] = values of the filters    (F, C)
    M[p] = V[p] @ U[p]^T            (tiles, F)        and back from values to outputs

The values are products too, of tiny matrices with long rows: with images laid out as
(H, W, images * C), the places of a tile are rows of memory at equal distances.

The gradient for the data is the same with flipped filters. The gradient for the weight reverses the
order: values of g, the products M[p]^T @ V[p], and from their sums to taps.

As in `conv_toeplitz.py`, an inf or nan reaches all outputs of its tile. `conv.py`
describes the three functions.

Winograd's algorithm: m outputs of a filter of r taps with m + r - 1 multiplications, not m r.

The product of two polynomials is determined by its values at as many points as it has coefficients,
and each value takes one multiplication. A and G give the values at six points of polynomials with m
and with r coefficients (m + r = 7); C finds a polynomial with six coefficients from its values:

    coefficients of g w = C ((A g) (G w))

Multiplying polynomials is a full convolution, that is, the gradient of a convolution for its data;
the convolution itself is the transpose. B is C transposed:

    y = A^T ((G w) (B d))           m outputs y, r taps w, the six places d that they read

>>> import numpy as np
>>> d, w = np.arange(6.0) ** 2, np.array([1.0, 2, 3])
>>> A, B, G = winograd(3, "float64")
>>> A.T @ ((G @ w) * (B @ d))
array([ 14.,  36.,  70., 116.])
>>> [float(d[i : i + 3] @ w) for i in range(4)]
[14.0, 36.0, 70.0, 116.0]

An image applies this along both axes. For 3 x 3 taps that is 36 multiplications for 16 outputs, a
fourth of 144: S. Winograd (1980); for neural networks A. Lavin and S. Gray, "Fast Algorithms for
Convolutional Neural Networks" (2015).

The price is accuracy: values at large points dominate the sums. Five of the points lie close
around 1, the sixth is infinity (the value there is the leading coefficient). In float32 the error
is 1e-6 of the typical size of a result, three times that of a direct sum; with the points 0, 1, -1,
2, -2 it would be twice that, and worse in the worst case.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from itertools import product
from math import prod
from typing import Any, NamedTuple

import numpy as np

from d2lmini.base.scopes import contextmanager
from d2lmini.device import blas
from d2lmini.device.parallel import parallel_for
from d2lmini.device.scratch import loan, scratch
from d2lmini.ops.chunking import cut
from d2lmini.ops.core import Shape
from d2lmini.ops.products import matmul
from d2lmini.ops.windows import Geometry

#: The points except infinity; two pairs, which share their even and odd parts, exact in binary.
FINITE = np.array([0, 0.75, -0.75, 1.5, -1.5])
POINTS = 6

#: Approximate number of values in a group of tiles: few enough for the cache.
VALUES = 1 << 19

#: Minimal number of tiles in a group: products of fewer rows are slow.
FEWEST_TILES = 64

#: Largest number of filter values. They take four times the memory of 3 x 3 taps.
MOST_OF_FILTERS = 1 << 24

#: Rows at distances that are multiples of this many bytes share a few cache sets, so reading across
#: rows would evict each line before its reuse. Such rows are padded.
ALIKE = 512
APART = 16

#: Each thread keeps at most this many bytes of scratch memory per intermediate result.
MOST_BYTES = 1 << 23

PAIRS = POINTS * POINTS


def values(n: int) -> np.ndarray:
    """(6, n): the matrix from a polynomial's n coefficients to its values at the points."""
    matrix = np.zeros((POINTS, n))
    matrix[:-1] = FINITE[:, None] ** np.arange(n)
    matrix[-1, -1] = 1
    return matrix


@lru_cache(maxsize=64)
def winograd(r: int, dtype: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The matrices A (6, 7 - r), B (6, 6) and G (6, r) for r taps.

    C has Lagrange's polynomials as its columns: each is 0 at all points but one. The factor that
    makes it 1 there divides G's row instead, which is used once for many tiles; so B is exact.
    """
    B, G = np.zeros((POINTS, POINTS)), values(r)
    for i, point in enumerate(FINITE):
        others = np.delete(FINITE, i)
        B[i, :-1] = np.poly(others)[::-1]
        G[i] /= np.prod(point - others)
    B[-1] = np.poly(FINITE)[::-1]
    A, B, G = (matrix.astype(dtype) for matrix in (values(POINTS + 1 - r), B, G))
    return A, B, G


@lru_cache(maxsize=64)
def of_filters(kernel: tuple[int, int], dtype: Any) -> np.ndarray:
    """(36, taps): the matrix from the taps of a filter of this size to its values at all points."""
    down, across = (winograd(r, "float64")[2] for r in kernel)
    return np.kron(down, across).astype(dtype)


class _Tiling(NamedTuple):
    """Outputs (N, F, *out) split into tiles of `steps` along both axes, `tiles` per image; a group
    covers `images` images and `rows` rows of tiles."""

    kernel: Shape
    steps: Shape
    tiles: Shape
    images: int
    rows: int

    def groups(self, N: int) -> list[tuple[slice, slice]]:
        """Images and rows of tiles of each group."""
        return list(product(cut(N, self.images), cut(self.tiles[0], self.rows)))


@lru_cache(maxsize=1024)
def _choose_tiling(N: int, channels: int, kernel: Shape, out: Shape) -> _Tiling:
    steps = tuple(POINTS + 1 - k for k in kernel)
    tiles = tuple(-(-n // step) for n, step in zip(out, steps))
    fit = max(VALUES // (PAIRS * channels), FEWEST_TILES)
    if fit < prod(tiles):
        return _Tiling(kernel, steps, tiles, 1, max(fit // tiles[1], 1))
    # The nearest power of two, so that groups tend to be equal.
    images = 1 << (max(round(1.4 * fit / prod(tiles)), 1).bit_length() - 1)
    return _Tiling(kernel, steps, tiles, min(images, N), tiles[0])


def cost(N: int, w: Shape, geo: Geometry) -> float:
    """Predicted nanoseconds for N images on one core; infinite where the method does not apply.

    Includes the values of tiles (the gradient for the data may have more), the products (slow with
    few channels), the values of filters, and the fixed time of a call.
    """
    F, C = w[:2]
    if (
        len(geo.out) != 2
        or any(s > 1 for s in geo.stride + geo.dilate)
        or any(not 2 <= k < POINTS or p >= k for k, p in zip(geo.kernel, geo.pad))
        or PAIRS * F * C > MOST_OF_FILTERS
    ):
        return math.inf
    large, small = max(C, F), min(C, F)
    tiles = N * max(
        prod(_choose_tiling(N, large, geo.kernel, out).tiles) for out in (geo.out, geo.size)
    )
    products = large * small / 37 + 0.5 * large
    return PAIRS * (tiles * (1.6 * C + 1.3 * F + products) + 1.6 * C * F) + 20_000


def _rows(memory: Any, shape: Shape, *steps: int) -> Any:
    """An array in the memory of another: strides in numbers, last axis contiguous."""
    item = memory.itemsize
    return np.ndarray(shape, memory.dtype, memory, 0, (*(item * n for n in steps), item))


def _lay_tiles(x: Any, first: Shape, size: Shape) -> Any:
    """`size` places of images from `first` on, zero padded: (*size, images * C)."""
    n, C = x.shape[:2]
    there = [slice(max(a, 0), min(a + s, end)) for a, s, end in zip(first, size, x.shape[2:])]
    x = x[:, :, there[0], there[1]]
    height, width = x.shape[2:]
    if x.strides[1] % ALIKE == 0:
        distance = height * width + APART
        apart = scratch.array("apart", (n * C * distance,), x.dtype, MOST_BYTES)
        apart = _rows(apart, x.shape, C * distance, distance, width)
        np.copyto(apart, x)
        x = apart
    laid = scratch.array("laid", (*size, n, C), x.dtype, MOST_BYTES)
    place = laid[tuple(slice(t.start - a, t.stop - a) for t, a in zip(there, first))]
    if place.shape != laid.shape:
        laid[...] = 0
    np.copyto(place, x.transpose(2, 3, 0, 1))
    return laid.reshape(*size, n * C)


def _to_points(x: Any, pad: Shape, window: Shape, cut: _Tiling, rows: slice, name: str) -> Any:
    """The values of tiles: (images, C, ...) -> (36, tiles, C). Tiles are `window` places large,
    the first begins `pad` before the image; six places are transformed by B, others by A."""
    n, C = x.shape[:2]
    tiles = (rows.stop - rows.start, cut.tiles[1])
    first = (rows.start * cut.steps[0] - pad[0], -pad[1])
    height, width = (s * (t - 1) + k for s, t, k in zip(cut.steps, tiles, window))
    laid = _lay_tiles(x, first, (height, width))
    down, across = (
        winograd(k, x.dtype)[1 if size == POINTS else 0] for k, size in zip(cut.kernel, window)
    )
    place = n * C
    row = width * place
    halves = scratch.array("halves", (tiles[0], POINTS, row), x.dtype, MOST_BYTES)
    windows = _rows(laid, (tiles[0], window[0], row), cut.steps[0] * row, row)
    np.matmul(down, windows, out=halves)
    points = scratch.array(name, (POINTS, POINTS, *tiles, place), x.dtype, MOST_BYTES)
    windows = _rows(
        halves, (tiles[0], POINTS, tiles[1], window[1], place),
        POINTS * row, row, cut.steps[1] * place, place,
    )  # fmt: skip
    np.matmul(across, windows, out=points.transpose(2, 0, 3, 1, 4))
    return points.reshape(PAIRS, -1, C)


def _from_points(points: Any, cut: _Tiling, rows: slice, y: Any) -> None:
    """The inverse, by A transposed: (36, tiles, F) -> y (images, F, rows of outputs, width)."""
    n, F, height, width = y.shape
    tiles = (rows.stop - rows.start, cut.tiles[1])
    down, across = (winograd(k, y.dtype)[0].T for k in cut.kernel)
    place = n * F + APART
    halves = scratch.array("halves", (POINTS, *tiles, cut.steps[1], place), y.dtype, MOST_BYTES)
    halves[..., n * F :] = 0
    points = points.reshape(POINTS, POINTS, *tiles, n * F)
    np.matmul(across, points.transpose(0, 2, 3, 1, 4), out=halves[..., : n * F])
    row = tiles[1] * cut.steps[1] * place
    laid = scratch.array("laid", (tiles[0], cut.steps[0], row), y.dtype, MOST_BYTES)
    np.matmul(down, halves.reshape(POINTS, tiles[0], row).swapaxes(0, 1), out=laid)
    np.copyto(y, _rows(laid, (height, width, n, F), row, place, F).transpose(2, 3, 0, 1))


def _product(groups: list[Any]) -> Callable[..., Any]:
    """The product to use in a group: serial if groups are shared among workers, else shared."""
    return np.matmul if len(groups) > 1 else partial(matmul, np)


@contextmanager
def _values_of_filters(w: Any, kernel: Shape, turned: bool) -> Iterator[Any]:
    """(F, C, *kernel) -> (36, F, C); `turned`: rotated by 180 degrees, last tap first."""
    matrix = of_filters(kernel, w.dtype)
    with loan((PAIRS, *w.shape[:2]), w.dtype) as values:
        matmul(
            np, matrix[:, ::-1] if turned else matrix, w.reshape(-1, prod(kernel)).T,
            values.reshape(PAIRS, -1),
        )  # fmt: skip
        yield values


def _slide(x: Any, pad: Shape, filters: Any, kernel: Shape, y: Any) -> None:
    """y (N, F, *out) = filters, by their values (36, C, F), on x (N, C, ...) with `pad` zeros."""
    cut = _choose_tiling(len(x), max(filters.shape[1:]), kernel, y.shape[2:])
    groups = cut.groups(len(x))
    multiply = _product(groups)

    def group(i: int) -> None:
        n, rows = groups[i]
        tiles = _to_points(x[n], pad, (POINTS, POINTS), cut, rows, "tiles")
        sums = scratch.array("sums", (PAIRS, tiles.shape[1], y.shape[1]), y.dtype, MOST_BYTES)
        multiply(tiles, filters, out=sums)
        step = cut.steps[0]
        _from_points(sums, cut, rows, y[n, :, rows.start * step : rows.stop * step])

    parallel_for(len(groups), group)


def convolve(xp: Any, x: Any, w: Any, geo: Geometry, _groups: int, y: Any) -> None:
    """y = x * w: (N, C, *size), (F, C, *kernel) -> (N, F, *out)."""
    with blas.alone(), _values_of_filters(w, geo.kernel, turned=False) as filters:
        _slide(x, geo.pad, filters.swapaxes(1, 2), geo.kernel, y)


def convolve_data(xp: Any, g: Any, w: Any, geo: Geometry, _groups: int, dx: Any) -> None:
    """(N, F, *out), (F, C, *kernel) -> dx (N, C, *size)."""
    with blas.alone(), _values_of_filters(w, geo.kernel, turned=True) as filters:
        pad = tuple(k - 1 - p for k, p in zip(geo.kernel, geo.pad))
        _slide(g, pad, filters, geo.kernel, dx)


def convolve_weight(xp: Any, x: Any, g: Any, geo: Geometry, _groups: int, dw: Any) -> None:
    """(N, C, *size), (N, F, *out) -> dw (F, C, *kernel)."""
    (F, C), N = dw.shape[:2], len(x)
    cut = _choose_tiling(N, max(C, F), geo.kernel, geo.out)
    groups = cut.groups(N)
    multiply = _product(groups)
    # Each group has its own sum, so the total does not depend on the order of completion.
    parts = np.empty((len(groups), F * C, geo.taps), dw.dtype)

    def group(i: int) -> None:
        n, rows = groups[i]
        tiles = _to_points(x[n], geo.pad, (POINTS, POINTS), cut, rows, "tiles")
        slopes = _to_points(g[n], (0, 0), cut.steps, cut, rows, "sums")
        with loan((PAIRS, F, C), dw.dtype) as sums:
            multiply(slopes.swapaxes(1, 2), tiles, out=sums)
            multiply(sums.reshape(PAIRS, -1).T, of_filters(geo.kernel, dw.dtype), out=parts[i])

    with blas.alone():
        parallel_for(len(groups), group)
    parts.sum(axis=0, out=dw.reshape(parts.shape[1:]))

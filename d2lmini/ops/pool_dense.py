"""Pooling with unit steps: combine every place with its neighbours, then select some results.

The first places of all windows lie `stride` apart, and NumPy processes twelve such strided elements
in about the time of a hundred contiguous ones. So a window's maximum is computed for *all* places
of a group of images, as one long row of memory against the same row shifted:

    x      3 1 4 1 | 5 9 2 6        rows of four
    right  3 4 4 5 | 9 9 6 .        max(x, x shifted by 1)
    down   9 9 6 .                  max(right, right shifted by 4)
    y      9   6                    the results at the first places

Three of four results are thrown away, and the method still takes a third of the time. Results that
cross the end of a row are never selected.

The gradient of windows of 2 x 2 (`give_to_winners`) treats two adjacent places as one integer of
twice the width: g is written into the lower half, and shifted to the upper half where the place on
the right is the argmax. This is integer arithmetic on the bits of g, exact for every value.

The gradient of a sum over windows that partition the image writes g to all places of its window
(`repeat_windows`): along a row number by number, and then whole rows.

For NumPy arrays only.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from math import prod

import numpy as np

from d2lmini.device.scratch import scratch
from d2lmini.ops.core import Shape
from d2lmini.ops.windows import Geometry

#: Windows with more taps use strided slices: shifting costs too much.
MOST_TAPS = 4

#: By the itemsize: the unsigned integers as wide as one and as two elements.
WIDTHS = {2: ("u2", "u4"), 4: ("u4", "u8")}


def is_near(pool: Geometry) -> bool:
    """True if the windows are small and lie inside the image."""
    return max(pool.kernel) <= MOST_TAPS and all(
        p == 0 and (o - 1) * s + k <= n for n, k, s, _dilate, p, o in zip(*pool)
    )


def combine_neighbours(
    combine: Callable, x: np.ndarray, kernel: Shape, stride: Shape, y: np.ndarray
) -> None:
    """Fill y (images, *out) with what `combine` makes of every window of x (images, *size)."""
    size = x.shape[1:]
    spare = [scratch.array(name, x.size, x.dtype) for name in ("left", "right")]
    row = x.reshape(-1)  # the results so far, at the first `row.size` places
    whole = x
    for axis, k in enumerate(kernel):
        step = prod(size[axis + 1 :])
        source = row
        target = spare[0] if whole is not spare[0] else spare[1]
        for j in range(1, k):
            n = source.size - j * step
            combine(row[:n], source[j * step :], out=target[:n])
            row, whole = target[:n], target
    first = tuple(slice(0, (o - 1) * s + 1, s) for o, s in zip(y.shape[1:], stride))
    y[...] = whole.reshape(x.shape)[(slice(None), *first)]


def cover(pool: Geometry) -> bool:
    """True if every place of the image lies in exactly one window."""
    return all(s == k and p == 0 and o * k == n for n, k, s, _dilate, p, o in zip(*pool))


def repeat_windows(g: np.ndarray, kernel: Shape, dx: np.ndarray) -> None:
    """dx (images, *size): each g (images, *out) at all places of its window."""
    part = g.reshape(-1)
    axes = [a for a in reversed(range(len(kernel))) if kernel[a] > 1]
    names = ("left", "right")
    for i, axis in enumerate(axes):
        k, length = kernel[axis], prod(dx.shape[axis + 2 :])  # a number, a row, an image
        n = part.size * k
        whole = dx.reshape(-1) if axis == axes[-1] else scratch.array(names[i % 2], n, dx.dtype)
        item = f"V{length * dx.itemsize}" if length > 1 else dx.dtype
        places, source = whole.view(item), part.view(item)
        for j in range(k):
            places[j::k] = source
        part = whole
    if not axes:
        dx[...] = g


def are_squares(dtype: np.dtype, pool: Geometry) -> bool:
    """True if `give_to_winners` applies: the windows are 2 x 2, and pairs fit an integer."""
    return (
        (2, 2) == pool.kernel == pool.stride
        and pool.size == tuple(2 * n for n in pool.out)
        and dtype.itemsize in WIDTHS
        and sys.byteorder == "little"
    )


def give_to_winners(g: np.ndarray, x: np.ndarray, y: np.ndarray, dx: np.ndarray) -> None:
    """dx (images, H, W): each g goes to the first place of its 2 x 2 window of x that holds y.

    The upper row wins where its maximum is y, the left place where it is not the smaller one.
    """
    narrow, wide = WIDTHS[x.itemsize]
    W = x.shape[-1]
    line = f"V{W // 2 * x.itemsize}"  # half a row, copied as one thing
    x, y, bits = x.reshape(-1), y.reshape(-1), g.reshape(-1).view(narrow)
    n = x.size
    room = scratch.array("left", n, x.dtype)
    rows = scratch.array("right", n // 2, narrow)

    np.maximum(x[:-1], x[1:], out=room[:-1])
    rows[...] = room.view(wide)  # the lower halves: the places on the left
    lines = rows.view(line)
    upper, lower = room[: n // 2].view(narrow).reshape(2, -1)
    upper.view(line)[...] = lines[0::2]
    upper[...] = upper.view(x.dtype) == y
    upper *= bits
    np.bitwise_xor(bits, upper, out=lower)
    lines[0::2], lines[1::2] = upper.view(line), lower.view(line)

    is_right = scratch.array("flags", n, bool)
    np.less(x[:-1], x[1:], out=is_right[:-1])
    shifts = is_right.view("u2")
    shifts &= 1
    shifts *= 8 * x.itemsize
    np.left_shift(rows, shifts, out=dx.reshape(-1).view(wide), dtype=wide)

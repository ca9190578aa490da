"""Pooling without steps: every place is combined with its neighbours, then some are picked.

The places of an image that stand first in their windows lie `stride` apart, and NumPy walks such a
row of twelve in about the time of a hundred that lie side by side. So a window's maximum is taken
for *all* places of a group of images, as one long row of memory against the same row shifted:

    x      3 1 4 1 | 5 9 2 6        rows of four
    right  3 4 4 5 | 9 9 6 .        max(x, x shifted by 1)
    down   9 9 6 .                  max(right, right shifted by 4)
    y      9   6                    what stands at the first places

Three of four results are thrown away, and it still takes a third of the time. What crosses the end
of a row is never picked.

The gradient of windows of 2 x 2 (`give_to_winners`) takes two places side by side as one number of
twice the width: g is written into its lower half, and moved to the upper one by a shift where the
place on the right has won. That is integer arithmetic on the bits of g, exact whatever it holds.

The gradient of a sum over windows that cover the image, each place in one of them, writes g to all
places of its window (`repeat_windows`): along a row number by number, and then whole rows.

Only NumPy's arrays; a GPU has no rows to walk.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from math import prod

import numpy as np

from d2lmini.device.scratch import scratch
from d2lmini.ops.core import Shape

#: A longer window is walked in steps: there the neighbours are too many.
MOST_TAPS = 4

#: By the size of an element: the unsigned integers as wide as one and as two of them.
WIDTHS = {2: ("u2", "u4"), 4: ("u4", "u8")}


def is_near(size: Shape, kernel: Shape, stride: Shape, pad: Shape, out: Shape) -> bool:
    """Are the windows small, and do they all lie inside the image?"""
    return max(kernel) <= MOST_TAPS and all(
        p == 0 and (o - 1) * s + k <= n for n, k, s, p, o in zip(size, kernel, stride, pad, out)
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


def cover(size: Shape, kernel: Shape, stride: Shape, pad: Shape, out: Shape) -> bool:
    """Does every place of the image lie in one window?"""
    return all(
        s == k and p == 0 and o * k == n for n, k, s, p, o in zip(size, kernel, stride, pad, out)
    )


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


def are_squares(dtype: np.dtype, size: Shape, kernel: Shape, stride: Shape, out: Shape) -> bool:
    """Can `give_to_winners` do it: is the image cut into 2 x 2, and do pairs fit an integer?"""
    return (
        (2, 2) == kernel == stride
        and size == tuple(2 * n for n in out)
        and dtype.itemsize in WIDTHS
        and sys.byteorder == "little"
    )


def give_to_winners(g: np.ndarray, x: np.ndarray, y: np.ndarray, dx: np.ndarray) -> None:
    """dx (images, H, W): each g goes to the first place of its 2 x 2 window of x that holds y.

    The upper row has won where its larger place is y, the left place where it is not the smaller.
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

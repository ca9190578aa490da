"""Shapes for `reshape`: the meaning of the codes 0, -1, -2, -3, -4 in a target shape.

The target is read from left to right while a cursor moves over the axes of the input:

    n > 0       this size; the cursor steps over one axis, whatever its size
    0           keep the axis under the cursor
    -1          the remaining size (at most once); the cursor steps over one axis
    -2          keep all axes from the cursor on
    -3          join the axis under the cursor and the next one
    -4, a, b    split the axis under the cursor into sizes a and b, of which one may be -1

>>> from d2lmini.ops.reshape_codes import infer_reshape
>>> infer_reshape((2, 3, 4), (0, -1))
(2, 12)
>>> infer_reshape((2, 3, 4), (-3, -2))
(6, 4)
>>> infer_reshape((6, 4), (-4, 2, -1, 0))
(2, 3, 4)

With `reverse` both are read from right to left, so that codes name axes counted from the end:

>>> infer_reshape((10, 5, 4), (-1, 0), reverse=True)
(50, 4)

After MXNet's `reshape`, where the two sizes of a split also precede its -4 when reversed. Unlike in
MXNet, a result whose size does not fit is always an error.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from d2lmini.base import ArgumentValueError
from d2lmini.ops.core import Shape


def infer_reshape(shape: Shape, target: Shape, reverse: bool = False) -> Shape:
    """The shape that `target` means for an array of `shape`; ArgumentValueError if none fits."""
    step = -1 if reverse else 1
    try:
        return _follow(shape[::step], target[::step])[::step]
    except _ReshapeError as problem:
        backwards = " with reverse=True" if reverse else ""
        raise ArgumentValueError(
            f"cannot reshape {shape} into {tuple(target)}{backwards}: {problem}"
        ) from None


class _ReshapeError(Exception):
    """The reason why a target does not fit."""


def _follow(shape: Shape, target: Shape) -> Shape:
    """The result's sizes."""
    sizes: list[int] = []
    # -1 stands for the total size over the given size, both without the kept axes. So -1 has a
    # meaning next to a kept axis of size 0: (0, 4) into (0, -1) is (0, 4).
    given, cursor = 1, 0
    kept: set[int] = set()
    codes = iter(target)
    for code in codes:
        if code > 0 or code == -1:
            sizes.append(code)
            given *= abs(code)
            cursor += 1
            continue
        if code < -4:
            raise _ReshapeError(f"{code} is neither a size nor one of the codes 0 to -4")
        used = {-2: max(len(shape) - cursor, 0), -3: 2}.get(code, 1)
        taken = shape[cursor : cursor + used]
        if len(taken) < used:
            raise _ReshapeError(f"no axis is left for code {code}")
        if code == -4:
            taken = _split(taken[0], codes)
        sizes += [prod(taken)] if code == -3 else taken
        kept.update(range(cursor, cursor + used))
        cursor += used
    if sizes.count(-1) > 1:
        raise _ReshapeError("at most one size may be -1")
    if -1 in sizes:
        rest = prod(n for axis, n in enumerate(shape) if axis not in kept)
        if rest % given:
            raise _ReshapeError(f"{rest} elements do not divide by {given}, so no size fits for -1")
        sizes[sizes.index(-1)] = rest // given
    elif prod(sizes) != prod(shape):
        raise _ReshapeError(
            f"it has {prod(shape)} elements, the target would have {prod(sizes)}; "
            "-1 stands for the size that follows from the others"
        )
    return tuple(sizes)


def _split(size: int, codes: Iterator[int]) -> Shape:
    """The two sizes after a -4, for an axis of `size`."""
    given = [next(codes, None), next(codes, None)]
    a, b = given
    if a is None or b is None:
        raise _ReshapeError("code -4 takes two sizes")
    if a == -1 and b > 0:
        a = size // b
    elif b == -1 and a > 0:
        b = size // a
    if a < 0 or b < 0 or a * b != size:
        raise _ReshapeError(f"an axis of size {size} does not split into {given[0]} and {given[1]}")
    return a, b

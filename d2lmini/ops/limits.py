"""The larger, or the smaller, of an array and a number, as quickly as of two arrays.

>>> import numpy as np
>>> at_least(np, np.array([-1.5, 2.0, np.nan]), 0)
array([ 0.,  2., nan])
>>> at_most(np, np.arange(5, dtype="uint8"), 2)
array([0, 1, 2, 2, 2], dtype=uint8)

NumPy's `maximum` of two arrays works on as many numbers at once as a register of the processor
holds; beside a single number it goes one by one, and takes three to four times as long. So the
number is written out: for small arrays in their own shape, for large ones in a row that stays in
the cache nearest to the core and meets the array piece by piece.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from d2lmini.ops.core import Shape
from d2lmini.ops.numbers import limit

#: So many numbers are written out at most.
ROW = 4096


class _Levels(dict):
    """(dtype of the array, number, shape) -> the number, as `limit` has it, in every place."""

    MOST = 200

    def __missing__(self, key: tuple[np.dtype, Any, Shape]) -> np.ndarray:
        dtype, number, shape = key
        if len(self) >= self.MOST:
            self.clear()
        one = limit[np][dtype][number]
        self[key] = level = np.full(shape, one, one.dtype)
        level.flags.writeable = False
        return level


_levels = _Levels()


def at_least(xp: Any, data: Any, number: Any, out: Any = None) -> Any:
    """max(data, number), nan where data is; the shape of data, its dtype (int64 for bool)."""
    if xp is np:
        if data.size <= ROW:
            return np.maximum(data, _levels[data.dtype, number, data.shape], out=out)
        return _by_rows(np.maximum, data, number, out)
    return xp.maximum(data, limit[xp][data.dtype][number], out=out)


def at_most(xp: Any, data: Any, number: Any, out: Any = None) -> Any:
    """min(data, number), nan where data is; the shape of data, its dtype (int64 for bool)."""
    if xp is np:
        if data.size <= ROW:
            return np.minimum(data, _levels[data.dtype, number, data.shape], out=out)
        return _by_rows(np.minimum, data, number, out)
    return xp.minimum(data, limit[xp][data.dtype][number], out=out)


def level(xp: Any, dtype: np.dtype, number: Any, shape: Shape) -> Any:
    """What stands beside an array of this shape: the number in every place if they are few."""
    if xp is np and prod(shape) <= ROW:
        return _levels[dtype, number, shape]
    return limit[xp][dtype][number]


def _by_rows(ufunc: Any, data: np.ndarray, number: Any, out: np.ndarray | None) -> np.ndarray:
    n = data.size
    row = _levels[data.dtype, number, (ROW,)]
    if out is None:
        out = np.empty(data.shape, row.dtype)
    if not (data.flags.c_contiguous and out.flags.c_contiguous):
        return ufunc(data, row[:1], out=out)
    source, target = data.reshape(-1), out.reshape(-1)
    rest = n % ROW
    ufunc(source[: n - rest].reshape(-1, ROW), row, out=target[: n - rest].reshape(-1, ROW))
    if rest:
        ufunc(source[n - rest :], row[:rest], out=target[n - rest :])
    return out

"""Scalars in an array's dtype, cached as 0-d arrays.

>>> import numpy as np
>>> uint8 = np.dtype("uint8")
>>> scalars[np][uint8][300], clamped_scalars[np][uint8][300]
(array(44, dtype=uint8), array(255, dtype=uint8))

There are two tables, `table[xp][dtype][number]`, of 0-d arrays (for CuPy: of NumPy scalars):

    scalars          for arithmetic and comparisons: floats are rounded, integers are cut towards
                     zero and wrap around, as in MXNet
    clamped_scalars  for upper and lower limits: a number outside the range of the dtype is clipped
                     to it, and -0.0 is 0.0

Next to bools a number is an int64, next to bfloat16, whose ops compute in float32, a float32.

Operations on an array and a number are the most frequent ones on tiny arrays. The tables make them
faster than plain Python numbers would be: NumPy takes 0.3 us less for a 0-d array of the right
dtype than for a number whose dtype it must determine, and a look-up takes 0.1 us.

`maximum_scalar` and `minimum_scalar`, the maximum and the minimum of an array and a number, are as
fast as those of two arrays:

>>> maximum_scalar(np, np.array([-1.5, 2.0, np.nan]), 0)
array([ 0.,  2., nan])
>>> minimum_scalar(np, np.arange(5, dtype="uint8"), 2)
array([0, 1, 2, 2, 2], dtype=uint8)

NumPy's `maximum` of two arrays uses SIMD instructions; with a single number it works element by
element and takes three to four times as long. So the number is repeated: for small arrays in their
own shape, for large ones in a row that stays in the L1 cache while the array is processed row by
row.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from math import prod
from types import ModuleType
from typing import Any

import numpy as np

from d2lmini.base.dtypes import CHAR
from d2lmini.ops.signature import Shape


def convert(number: Any, dtype: np.dtype) -> np.ndarray:
    """A number in a dtype, as a new array of shape (): floats are rounded, integers truncated and
    wrapped around, and bool is True for all but 0. nan, inf and floats that no integer holds are
    the least int32 or int64 (so 0 in narrower dtypes), as in C++ on x86."""
    if dtype.kind not in "iu":
        return (
            np.array(float(number)).astype(dtype) if dtype.kind == "V" else np.array(number, dtype)
        )
    if not isinstance(number, (int, np.integer)) and not -(2.0**63) <= number < 2.0**63:
        number = -(2**63) if dtype.itemsize == 8 else -(2**31)
    return np.array(int(number) % 2**64, np.uint64).astype(dtype)


class Table(dict):
    """A dictionary that makes the value of a missing key, and forgets all values when it is full:
    a learning rate that changes with each step must not fill the memory."""

    def __init__(self, make: Callable[[Any], Any], most: int = 1000):
        self.make, self.most = make, most

    def __missing__(self, key: Any) -> Any:
        if len(self) >= self.most:
            self.clear()
        self[key] = value = self.make(key)
        return value


class Numbers(Table):
    """number -> the number in one dtype, in the form with which `xp` computes fastest."""

    def __init__(self, xp: ModuleType, dtype: np.dtype):
        super().__init__(self.fitted)
        self.xp, self.dtype = xp, dtype
        self.zero, self.minus_zero = self.fitted(0), self.fitted(-0.0)

    def __missing__(self, number: Any) -> Any:
        if number == 0:  # 0.0 and -0.0 are the same key
            return self.minus_zero if math.copysign(1.0, number) < 0 else self.zero
        return super().__missing__(number)

    def fitted(self, number: Any) -> Any:
        """The number in this dtype: a 0-d array that cannot be written into; for CuPy the NumPy
        scalar in it."""
        value = convert(number, self.dtype)
        value.flags.writeable = False
        return value if self.xp is np else value[()]


class _Limits(Numbers):
    """Numbers as limits: a number outside the dtype's range is clipped to it."""

    def fitted(self, number: Any) -> Any:
        if self.dtype.kind != "f":
            ends = np.iinfo(self.dtype)
            number = min(max(number, ends.min), ends.max)
        return super().fitted(number + 0)  # -0.0 + 0 is 0.0


#: Type character of an array's dtype -> the dtype of a number beside it, if that is another one.
_BESIDE: dict[str, np.dtype] = {"?": np.dtype("int64"), CHAR: np.dtype("float32")}


def _tables(kind: type[Numbers]) -> Table:
    """xp -> dtype of an array -> number -> the number."""
    return Table(lambda xp: Table(lambda dtype: kind(xp, _BESIDE.get(dtype.char, dtype))))


scalars, clamped_scalars = _tables(Numbers), _tables(_Limits)


# -- limits, repeated ------------------------------------------------------------------------------

#: A number is repeated at most this many times.
ROW = 4096


def _level(key: tuple[np.dtype, Any, Shape]) -> np.ndarray:
    dtype, number, shape = key
    one = clamped_scalars[np][dtype][number]
    array = np.full(shape, one, one.dtype)
    array.flags.writeable = False
    return array


#: (dtype of the array, number, shape) -> the number, as `clamped_scalars` has it, at every element.
_levels = Table(_level, most=200)


def _bound(ufunc: str) -> Callable[..., Any]:
    """The function that compares each element with a number by `ufunc`."""
    of_numpy = getattr(np, ufunc)

    def bound(xp: Any, data: Any, number: Any, out: Any = None) -> Any:
        if xp is np:
            if data.size <= ROW:
                return of_numpy(data, _levels[data.dtype, number, data.shape], out=out)
            return _by_rows(of_numpy, data, number, out)
        return getattr(xp, ufunc)(data, clamped_scalars[xp][data.dtype][number], out=out)

    bound.__doc__ = (
        f"The {ufunc} of each element and a number; nan where data is. int64 for bool arrays."
    )
    return bound


maximum_scalar, minimum_scalar = _bound("maximum"), _bound("minimum")


def level(xp: Any, dtype: np.dtype, number: Any, shape: Shape) -> Any:
    """The limit for an array of this shape: the number at every element if there are few."""
    if xp is np and prod(shape) <= ROW:
        return _levels[dtype, number, shape]
    return clamped_scalars[xp][dtype][number]


def _by_rows(ufunc: Any, data: np.ndarray, number: Any, out: np.ndarray | None) -> np.ndarray:
    n = data.size
    row = _levels[data.dtype, number, (ROW,)]
    out = np.empty(data.shape, row.dtype) if out is None else out
    if not (data.flags.c_contiguous and out.flags.c_contiguous):
        return ufunc(data, row[:1], out=out)
    source, target = data.reshape(-1), out.reshape(-1)
    rest = n % ROW
    ufunc(source[: n - rest].reshape(-1, ROW), row, out=target[: n - rest].reshape(-1, ROW))
    if rest:
        ufunc(source[n - rest :], row[:rest], out=target[n - rest :])
    return out

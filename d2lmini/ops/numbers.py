"""A number in the dtype of the array beside it.

>>> import numpy as np
>>> fit[np][np.dtype("uint8")][300], limit[np][np.dtype("uint8")][300]
(array(44, dtype=uint8), array(255, dtype=uint8))

`fit[xp][dtype][number]` is the number as a 0-d array of exactly that dtype (for CuPy, as a NumPy
scalar): floats are rounded, integers cut towards zero and wrapped around, as in MXNet; beside bools
a number is an int64. `limit` is the same for upper and lower limits, where what lies beyond the
range of the dtype stands at its end.

Operations of an array and a number are the ones most used on tiny arrays. The table makes them
quicker than plain Python numbers would be: NumPy takes 0.3 us less for a 0-d array of the right
dtype than for a number whose dtype it has to find out, and a number in use is found in the table in
0.1 us.
"""

from __future__ import annotations

import math
from types import ModuleType
from typing import Any

import numpy as np


class Numbers(dict):
    """number -> the number in one dtype, made when first asked for."""

    LIMIT = 1000  # a learning rate that changes with each step must not fill the memory
    SIGNED_ZERO = True  # 0.0 and -0.0 are one key, so zeros are not looked up but chosen between

    def __init__(self, xp: ModuleType, dtype: np.dtype):
        self.xp = xp
        self.dtype = dtype
        self.zero, self.minus_zero = self.fitted(0), self.fitted(-0.0)

    def __missing__(self, number: Any) -> Any:
        if number == 0 and self.SIGNED_ZERO:
            return self.minus_zero if math.copysign(1.0, number) < 0 else self.zero
        if len(self) >= self.LIMIT:
            self.clear()
        self[number] = value = self.fitted(number)
        return value

    def fitted(self, number: Any) -> Any:
        """The number in this dtype: floats are rounded, integers cut and wrapped around."""
        if self.dtype.kind == "f":
            return self.frozen(np.array(number, self.dtype))
        return self.frozen(np.array(int(number) % 2**64, np.uint64).astype(self.dtype))

    def frozen(self, value: np.ndarray) -> Any:
        """A 0-d array that nobody can write into; for CuPy the NumPy scalar in it."""
        value.flags.writeable = False
        return value if self.xp is np else value[()]


class NumbersPerDtype(dict):
    """dtype of an array -> the numbers beside it."""

    def __init__(self, xp: ModuleType, table: type[Numbers]):
        self.xp = xp
        self.table = table

    def __missing__(self, dtype: np.dtype) -> Numbers:
        counts_as = np.dtype("int64") if dtype.kind == "b" else dtype
        self[dtype] = numbers = self.table(self.xp, counts_as)
        return numbers


class NumbersPerModule(dict):
    """xp -> dtype -> number -> the number as `xp` likes it best beside an array of that dtype."""

    def __init__(self, table: type[Numbers]):
        self.table = table

    def __missing__(self, xp: ModuleType) -> NumbersPerDtype:
        self[xp] = per_dtype = NumbersPerDtype(xp, self.table)
        return per_dtype


fit = NumbersPerModule(Numbers)


class _Limits(Numbers):
    """Numbers as limits: one beyond the dtype's range stands at its end."""

    SIGNED_ZERO = False

    def fitted(self, number: Any) -> Any:
        if self.dtype.kind != "f":
            ends = np.iinfo(self.dtype)
            number = min(max(number, ends.min), ends.max)
        return super().fitted(number)


#: As `fit`, for upper and lower limits: uint8 above -1 is any uint8.
limit = NumbersPerModule(_Limits)

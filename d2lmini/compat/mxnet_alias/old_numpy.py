"""The result of `asnumpy` under the alias: an array that is also a number if it has one element.

Programs written for MXNet print `"%f" % loss.mean().asnumpy()`, of shape (1,). NumPy 2.4 takes only
arrays without axes for numbers; NumPy at that time took every array of one element.

>>> import math
>>> x = np.array([[2.25]], "float32").view(OneElementArray)
>>> "%f, %d" % (x, x), float(x), round(x, 1), math.sqrt(x), f"{x:.3f}"
('2.250000, 2', 2.25, 2.2, 1.5, '2.250')

Otherwise it is an ndarray: it prints, pickles and copies as an ndarray, slices and results of
ufuncs behave like it, and numbers computed from it are NumPy's scalars. NumPy at that time had no
`round` and `format` for arrays; this class has both.
"""

from __future__ import annotations

from typing import Any

import numpy as np


class OneElementArray(np.ndarray):
    """An ndarray that Python takes for a number when it has one element, whatever its axes."""

    def __float__(self) -> float:
        return float(self._number())

    def __int__(self) -> int:
        return int(self._number())

    def __complex__(self) -> complex:
        return complex(self._number())

    def __trunc__(self) -> int:
        return int(self._number())

    def __round__(self, ndigits: int | None = None) -> Any:
        return round(self._number(), ndigits)

    def __format__(self, spec: str) -> str:
        return format(self._number(), spec) if spec else str(self)

    def _number(self) -> Any:
        """The one element as a Python number; for more a TypeError, in old NumPy's words."""
        if self.size != 1:
            raise TypeError("only size-1 arrays can be converted to Python scalars")
        return self.item()

    # NumPy asks a subclass how to wrap results, and would leave those without axes arrays.
    def __array_wrap__(self, array: Any, context: Any = None, return_scalar: bool = False) -> Any:
        return array[()] if return_scalar else array.view(type(self))

    def __repr__(self) -> str:
        return repr(self.view(np.ndarray))

    def __reduce_ex__(self, protocol: Any) -> Any:
        return self.view(np.ndarray).__reduce_ex__(protocol)

    def __reduce__(self) -> Any:
        return self.view(np.ndarray).__reduce__()

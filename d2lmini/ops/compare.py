"""Comparisons and logic, on two arrays and on an array and a number.

>>> from d2lmini import nd
>>> x = nd.array([0, 1, 2, 3])
>>> x > 1
<BLANKLINE>
[0. 0. 1. 1.]
<NDArray 4 @cpu(0)>
>>> (x > 1).mean()
<BLANKLINE>
[0.5]
<NDArray 1 @cpu(0)>

As in MXNet the result is 0 or 1 **in the dtype of the inputs**, so that it can be averaged or used
as a factor at once. A comparison with nan is 0 (`!=`: 1); in logic everything but 0 is true.

Beside a number, an array is compared with exactly that number: `int32 array == 1.5` is 0
everywhere and `uint8 array > -1` is 1 everywhere. (MXNet first casts the number to the array's
dtype and finds 1 == 1.5 and nothing above -1, which is 255. A bool array gives int64 in both.)

None of these ops has a gradient: it is 0 wherever there is one.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from d2lmini.ops.core import Number, Spec, op
from d2lmini.ops.numbers import Numbers, NumbersPerModule
from d2lmini.ops.pairs import broadcast_any, equal_any, pair
from d2lmini.ops.scalars import beside_number


class _ExactNumbers(Numbers):
    """number -> the number in one dtype if it is the same there; else as a wider one."""

    SIGNED_ZERO = False

    def fitted(self, number: Any) -> Any:
        if self.dtype.kind != "f":
            limits = np.iinfo(self.dtype)
            if not (limits.min <= number <= limits.max and number == int(number)):
                # Neither cut nor wrapped around: 1.5, -1 beside uint8, 2**100, nan, inf.
                return self.frozen(np.array(number, np.float64))
        return super().fitted(number)


exact = NumbersPerModule(_ExactNumbers)


def _beside_any_number(data: Spec, *, scalar: Any) -> Spec:
    """As arithmetic beside a number, but nan and inf may stand beside integers."""
    if data.dtype.kind != "f" and isinstance(scalar, (float, np.floating)):
        scalar = 0
    return beside_number(data, scalar=scalar)


def _as_truth(y: Any, dtype: np.dtype) -> Any:
    """A bool result as 0 and 1 of the inputs' dtype."""
    return y.astype(np.int64 if dtype.char == "?" else dtype, copy=False)


def _declare(name: str, ufunc: str, meaning: str) -> None:
    """`broadcast_NAME`, `_NAME` for equal shapes, and `_NAME_scalar`."""

    def two(xp, lhs, rhs, *, out=None):
        y = getattr(xp, ufunc)(lhs, rhs, out=out)
        return y.astype(lhs.dtype, copy=False) if out is None else y

    def beside(xp, data, *, scalar: Number, out=None):
        y = getattr(xp, ufunc)(data, exact[xp][data.dtype][scalar], out=out)
        return _as_truth(y, data.dtype) if out is None else y

    camel = "_".join(word.capitalize() for word in name.split("_"))
    two.__name__ = name
    two.__doc__ = f"1 where {meaning.format('lhs', 'rhs')}, else 0, in the inputs' dtype."
    pair("", f"_{name} _{camel}", rules=(broadcast_any, equal_any), grad=None)(two)
    beside.__doc__ = (
        f"1 where {meaning.format('data', 'scalar')}, else 0, in data's dtype (bool: int64)."
    )
    op(
        f"_{name}_scalar", aliases=[f"_{camel.replace('_', '')}Scalar"], elementwise=True,
        infer=_beside_any_number, grad=None,
    )(beside)  # fmt: skip


_declare("equal", "equal", "{} == {}")
_declare("not_equal", "not_equal", "{} != {}")
_declare("greater", "greater", "{} > {}")
_declare("greater_equal", "greater_equal", "{} >= {}")
_declare("lesser", "less", "{} < {}")
_declare("lesser_equal", "less_equal", "{} <= {}")
_declare("logical_and", "logical_and", "{} and {} are both not 0")
_declare("logical_or", "logical_or", "{} or {} or both are not 0")
_declare("logical_xor", "logical_xor", "just one of {} and {} is not 0")


@op("_contrib_allclose", infer=lambda a, b, **_: Spec(equal_any(a, b).shape[:0], "uint8"),
    flops=lambda a, b, **_: 4 * a.size, grad=None)  # fmt: skip
def allclose(xp, a, b, *, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = True):
    """1 if abs(a - b) <= atol + rtol * abs(b) everywhere, else 0; shape (), uint8."""
    return xp.asarray(xp.allclose(a, b, rtol, atol, equal_nan)).astype(xp.uint8)

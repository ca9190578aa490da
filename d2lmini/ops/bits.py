"""Functions of two operands without a gradient, for `np`: those on bits, `//` and `fmod`.

>>> from d2lmini import np
>>> np.array([12, 10], dtype="int32") & 6, ~np.array([True, False], dtype="bool")
(array([4, 2], dtype=int32), array([False,  True]))

`nd` has none of these: there `&` and the like raise TypeError, as in MXNet.
"""

from __future__ import annotations

from d2lmini.base import MXNetError
from d2lmini.bfloat16 import is_float
from d2lmini.ops.core import Spec, op
from d2lmini.ops.elementwise import broadcast_any


def check_bits(spec: Spec) -> None:
    """MXNetError for floats."""
    if is_float(spec.dtype):
        raise MXNetError(f"needs integers or bool, got {spec.dtype}; convert with astype('int32')")


def _infer(lhs: Spec, rhs: Spec, *, how: str) -> Spec:
    if how.startswith("bitwise"):
        check_bits(lhs)
    return broadcast_any(lhs, rhs)


@op("_by_ufunc", infer=_infer, grad=None)
def by_ufunc(xp, lhs, rhs, *, how: str):
    """The ufunc `how` of lhs and rhs, of one dtype, which the result has too; shapes broadcast."""
    return getattr(xp, how)(lhs, rhs)


def _infer_not(data: Spec) -> Spec:
    check_bits(data)
    return data


@op("_bitwise_not", infer=_infer_not, grad=None)
def bitwise_not(xp, data):
    """Every bit inverted: -x - 1 of integers, "not" of bool."""
    return xp.invert(data)

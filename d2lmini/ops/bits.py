"""Bitwise and, or, xor and not, of integers and bool: what `&`, `|`, `^` and `~` of `np` call.

>>> from d2lmini import np
>>> np.array([12, 10], dtype="int32") & 6, ~np.array([True, False], dtype="bool")
(array([4, 2], dtype=int32), array([False,  True]))

`nd` has none of these: there `&` and the like raise TypeError, as in MXNet.
"""

from __future__ import annotations

from d2lmini.base import MXNetError
from d2lmini.ops.core import Spec, op
from d2lmini.ops.elementwise import broadcast_any


def check_bits(spec: Spec) -> None:
    """MXNetError for floats."""
    if spec.dtype.kind == "f":
        raise MXNetError(f"needs integers or bool, got {spec.dtype}; convert with astype('int32')")


def _infer_bitwise(lhs: Spec, rhs: Spec | None = None, **_: object) -> Spec:
    check_bits(lhs)
    return lhs if rhs is None else broadcast_any(lhs, rhs)


@op("_bitwise", infer=_infer_bitwise, grad=None)
def bitwise(xp, lhs, rhs=None, *, how: str, scalar: int = 0):
    """`lhs & rhs` for how="and", `|` for "or", `^` for "xor"; without rhs the number `scalar`.

    Integers or bool of one dtype, which the result has; shapes broadcast.
    """
    return getattr(xp, f"bitwise_{how}")(lhs, lhs.dtype.type(scalar) if rhs is None else rhs)


@op("_bitwise_not", infer=_infer_bitwise, grad=None)
def bitwise_not(xp, data):
    """Every bit inverted: -x - 1 of integers, "not" of bool."""
    return xp.invert(data)

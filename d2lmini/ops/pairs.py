"""Arithmetic on two arrays, each op in two forms: `broadcast_add` and `elemwise_add`, ...

Both forms compute the same and share one gradient rule; they differ in the shapes they take. The
first broadcasts as NumPy does and is what `x + y` means; the second asks for equal shapes, so that
a graph can infer the shape of one side from the other.

>>> from d2lmini import nd
>>> column, row = nd.array([[1], [2]]), nd.array([10, 20, 30])
>>> column * row                           # broadcast_mul
<BLANKLINE>
[[10. 20. 30.]
 [20. 40. 60.]]
<NDArray 2x3 @cpu(0)>

Both inputs must have one dtype, which is the result's too: int32 / int32 is int32, cut towards
zero. `bool` arrays are refused, as in MXNet; say first what they should count as.

The gradient of a broadcast is a sum: where an input was repeated, the gradients of its copies add
up. `unbroadcast` does that, and costs nothing where nothing was repeated.

An array and a number: `scalars.py`. Comparisons and logic: `compare.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from d2lmini.base import MXNetError
from d2lmini.ops.core import ALL, Op, Shape, Spec, op, registry
from d2lmini.ops.reduce import sum_to

# -- shape and dtype rules -----------------------------------------------------------------------


@lru_cache(maxsize=4096)
def broadcast_shape(a: Shape, b: Shape) -> Shape | None:
    """NumPy's broadcasting of two shapes; None if they do not fit."""
    if len(a) < len(b):
        a, b = b, a
    lead = len(a) - len(b)
    tail = [m if n == 1 else n if m in (1, n) else -1 for m, n in zip(a[lead:], b, strict=True)]
    return None if -1 in tail else a[:lead] + tuple(tail)


def check_same_dtype(lhs: Spec, rhs: Spec) -> None:
    """MXNetError that tells both dtypes unless they are one."""
    if lhs.dtype != rhs.dtype:
        raise MXNetError(
            f"dtypes differ: lhs is {lhs.dtype.name}, rhs is {rhs.dtype.name}; convert one, "
            f"e.g. lhs.astype('{rhs.dtype.name}')"
        )


def check_numbers(spec: Spec) -> None:
    """MXNetError for a bool array, which has no arithmetic."""
    if spec.dtype.char == "?":
        raise MXNetError("needs numbers, got bool; convert with .astype('int32')")


def broadcast_any(lhs: Spec, rhs: Spec) -> Spec:
    """One dtype, shapes broadcast."""
    if lhs.dtype is not rhs.dtype:
        check_same_dtype(lhs, rhs)
    if lhs.shape == rhs.shape:
        return lhs
    shape = broadcast_shape(lhs.shape, rhs.shape)
    if shape is None:
        raise MXNetError(
            f"shapes do not broadcast: lhs is {lhs.shape}, rhs is {rhs.shape}; "
            "counted from the right, sizes must be equal or 1"
        )
    return Spec(shape, lhs.dtype)


def equal_any(lhs: Spec, rhs: Spec) -> Spec:
    """One dtype, one shape."""
    if lhs.dtype is not rhs.dtype:
        check_same_dtype(lhs, rhs)
    if lhs.shape != rhs.shape:
        raise MXNetError(
            f"shapes differ: lhs is {lhs.shape}, rhs is {rhs.shape}; "
            "this form does not broadcast, the operators and broadcast_* do"
        )
    return lhs


def broadcast_numbers(lhs: Spec, rhs: Spec) -> Spec:
    """As `broadcast_any`, without bool."""
    check_numbers(lhs)
    return broadcast_any(lhs, rhs)


def equal_numbers(lhs: Spec, rhs: Spec) -> Spec:
    """As `equal_any`, without bool."""
    check_numbers(lhs)
    return equal_any(lhs, rhs)


def unbroadcast(g_lhs: Any, g_rhs: Any, lhs_shape: Shape, rhs_shape: Shape) -> tuple[Any, Any]:
    """Gradients in the result's shape (or None), summed back to the shapes of the two inputs."""
    if lhs_shape == rhs_shape:
        return g_lhs, g_rhs
    if g_lhs is not None and g_lhs.shape != lhs_shape:
        g_lhs = sum_to(g_lhs, shape=lhs_shape)
    if g_rhs is not None and g_rhs.shape != rhs_shape:
        g_rhs = sum_to(g_rhs, shape=rhs_shape)
    return g_lhs, g_rhs


# -- declaring both forms ------------------------------------------------------------------------


class Pair:
    """The two forms of one op; `compute` and the gradient rule are common to both."""

    def __init__(self, broadcast: Op, elemwise: Op):
        self.broadcast = broadcast
        self.elemwise = elemwise
        self.compute = broadcast.compute

    def gradient(self, saves: str = "") -> Callable[[Callable], Callable]:
        """Attach one rule to both forms."""

        def attach(rule: Callable) -> Callable:
            self.elemwise.gradient(saves)(rule)
            return self.broadcast.gradient(saves)(rule)

        return attach


def pair(
    broadcast_aliases: str = "", elemwise: str = "", rules: tuple = (), **options: Any
) -> Callable[[Callable], Pair]:
    """Declare `broadcast_NAME` and the form for equal shapes, named by the words of `elemwise`."""
    broadcast_rule, equal_rule = rules or (broadcast_numbers, equal_numbers)

    def declare(compute: Callable) -> Pair:
        what = compute.__doc__ or ""
        first, *others = elemwise.split()
        forms = Pair(
            op(
                f"broadcast_{compute.__name__}", aliases=broadcast_aliases.split(),
                infer=broadcast_rule, elementwise=True, **options,
            )(compute),
            op(first, aliases=others, infer=equal_rule, elementwise=True, **options)(compute),
        )  # fmt: skip
        forms.broadcast.__doc__ = f"{what}\n\n    Shapes broadcast; both inputs have one dtype."
        forms.elemwise.__doc__ = f"{what}\n\n    Both inputs have one shape and one dtype."
        return forms

    return declare


# -- the ops -------------------------------------------------------------------------------------


@pair("broadcast_plus", "elemwise_add _add _plus _Plus _grad_add")
def add(xp, lhs, rhs, *, out=None):
    """lhs + rhs."""
    return xp.add(lhs, rhs, out=out)


@add.gradient(saves="lhs.shape rhs.shape")
def _(g, lhs_shape, rhs_shape, *, needs=ALL):
    if lhs_shape == rhs_shape:
        return g, g
    return unbroadcast(g if needs[0] else None, g if needs[1] else None, lhs_shape, rhs_shape)


@pair("broadcast_minus", "elemwise_sub _sub _minus _Minus")
def sub(xp, lhs, rhs, *, out=None):
    """lhs - rhs."""
    return xp.subtract(lhs, rhs, out=out)


@sub.gradient(saves="lhs.shape rhs.shape")
def _(g, lhs_shape, rhs_shape, *, needs=ALL):
    return unbroadcast(g if needs[0] else None, -g if needs[1] else None, lhs_shape, rhs_shape)


@pair("", "elemwise_mul _mul _Mul")
def mul(xp, lhs, rhs, *, out=None):
    """lhs * rhs."""
    return xp.multiply(lhs, rhs, out=out)


@mul.gradient(saves="lhs rhs")
def _(g, lhs, rhs, *, needs=ALL):
    g_lhs = g * rhs if needs[0] else None
    g_rhs = g * lhs if needs[1] else None
    return unbroadcast(g_lhs, g_rhs, lhs.shape, rhs.shape)


@pair("", "elemwise_div _div _Div")
def div(xp, lhs, rhs, *, out=None):
    """lhs / rhs; integers are cut towards zero, and an integer divided by 0 is 0.

    (MXNet's process dies of the latter.)
    """
    if lhs.dtype.kind == "f":
        return xp.divide(lhs, rhs, out=out)
    if xp is np or lhs.dtype.itemsize < 8:
        return xp.floor_divide(lhs - xp.fmod(lhs, rhs), rhs, out=out)
    # CuPy's fmod of integers goes by way of float64.
    below = xp.floor_divide(lhs, rhs)
    is_broken = (below * rhs != lhs) & xp.not_equal(rhs, 0)
    is_broken &= xp.less(lhs, 0) != xp.less(rhs, 0)
    return xp.add(below, is_broken, out=out)


@div.gradient(saves="y lhs.shape rhs")
def _(g, y, lhs_shape, rhs, *, needs=ALL):
    g_lhs = g / rhs
    g_rhs = -(g_lhs * y) if needs[1] else None
    return unbroadcast(g_lhs if needs[0] else None, g_rhs, lhs_shape, rhs.shape)


@pair("", "_mod _Mod", flops=40)
def mod(xp, lhs, rhs, *, out=None):
    """lhs - floor(lhs / rhs) * rhs: the remainder, with the sign of rhs; 0 where rhs is 0."""
    if lhs.dtype.kind != "f":
        return xp.mod(lhs, rhs, out=out)
    by_zero = rhs == 0  # before `out`, which may be rhs itself, is written
    y = xp.asarray(xp.mod(lhs, rhs, out=out))
    xp.copyto(y, 0, where=by_zero)
    return y


@mod.gradient(saves="lhs rhs")
def _(g, lhs, rhs, *, needs=ALL):
    g_rhs = -(g * registry["floor"](lhs / rhs)) if needs[1] else None
    return unbroadcast(g if needs[0] else None, g_rhs, lhs.shape, rhs.shape)


@pair("", "_power _Power", flops=20)
def power(xp, lhs, rhs, *, out=None):
    """lhs to the power of rhs; nan for a negative float to a broken power.

    Integers to a negative power are cut towards zero, as in 2 ** -1 = 0; 0 ** -1 is 0 too.
    """
    if lhs.dtype.kind == "f":
        return xp.power(lhs, rhs, out=out)
    # 1 and -1 are the only integers whose inverse is not cut to 0; -1 keeps its sign if rhs is odd.
    # (Ufuncs give arrays also of two numbers, of which one may be; operators would not.)
    inverse = xp.where(xp.equal(xp.abs(lhs), 1), xp.power(lhs, rhs & 1), 0)
    y = xp.where(xp.less(rhs, 0), inverse, xp.power(lhs, xp.maximum(rhs, 0)))
    if out is None:
        return y.astype(xp.promote_types(lhs.dtype, rhs.dtype), copy=False)
    xp.copyto(out, y, casting="unsafe")
    return out


@power.gradient(saves="y lhs rhs")
def _(g, y, lhs, rhs, *, needs=ALL):
    g_lhs = g * (rhs * lhs ** (rhs - 1)) if needs[0] else None
    g_rhs = g * (y * registry["log"](lhs)) if needs[1] else None
    return unbroadcast(g_lhs, g_rhs, lhs.shape, rhs.shape)


@pair("", "_maximum _Maximum")
def maximum(xp, lhs, rhs, *, out=None):
    """The larger of lhs and rhs; nan if one of them is. At ties the gradient goes to lhs."""
    return xp.maximum(lhs, rhs, out=out)


@maximum.gradient(saves="lhs rhs")
def _(g, lhs, rhs, *, needs=ALL):
    g_lhs = g * (lhs >= rhs) if needs[0] else None
    g_rhs = g * (lhs < rhs) if needs[1] else None
    return unbroadcast(g_lhs, g_rhs, lhs.shape, rhs.shape)


@pair("", "_minimum _Minimum")
def minimum(xp, lhs, rhs, *, out=None):
    """The smaller of lhs and rhs; nan if one of them is. At ties the gradient goes to lhs."""
    return xp.minimum(lhs, rhs, out=out)


@minimum.gradient(saves="lhs rhs")
def _(g, lhs, rhs, *, needs=ALL):
    g_lhs = g * (lhs <= rhs) if needs[0] else None
    g_rhs = g * (lhs > rhs) if needs[1] else None
    return unbroadcast(g_lhs, g_rhs, lhs.shape, rhs.shape)


@pair("", "_hypot _Hypot", flops=20)
def hypot(xp, lhs, rhs, *, out=None):
    """sqrt(lhs**2 + rhs**2), without overflow in between; integers are cut."""
    if lhs.dtype.kind == "f":
        return xp.hypot(lhs, rhs, out=out)
    y = xp.hypot(lhs.astype(xp.float64), rhs.astype(xp.float64))
    if out is None:
        return y.astype(rhs.dtype)
    xp.copyto(out, y, casting="unsafe")
    return out


@hypot.gradient(saves="y lhs rhs")
def _(g, y, lhs, rhs, *, needs=ALL):
    # Not g / y * lhs: 1 / y overflows where y is denormal.
    g_lhs = g * (lhs / y) if needs[0] else None
    g_rhs = g * (rhs / y) if needs[1] else None
    return unbroadcast(g_lhs, g_rhs, lhs.shape, rhs.shape)


def _floating(rule: Callable[[Spec, Spec], Spec]) -> Callable[[Spec, Spec], Spec]:
    def infer(lhs: Spec, rhs: Spec) -> Spec:
        if lhs.dtype.kind != "f":
            raise MXNetError(
                f"needs floating point, got {lhs.dtype.name}; convert with .astype('float32')"
            )
        return rule(lhs, rhs)

    return infer


@pair("", "_arctan2", rules=(_floating(broadcast_any), _floating(equal_any)), flops=20)
def arctan2(xp, lhs, rhs, *, out=None):
    """The angle, in (-pi, pi], of the point with height lhs and width rhs; floats only."""
    return xp.arctan2(lhs, rhs, out=out)


@arctan2.gradient(saves="lhs rhs")
def _(g, lhs, rhs, *, needs=ALL):
    g = g / (lhs * lhs + rhs * rhs)
    g_lhs = g * rhs if needs[0] else None
    g_rhs = -(g * lhs) if needs[1] else None
    return unbroadcast(g_lhs, g_rhs, lhs.shape, rhs.shape)

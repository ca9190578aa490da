"""Families: one row declares a function of two operands, and with it all ops that compute it.

A family has up to four ops, which differ in their operands. `binary.py` has the rows:

>>> from d2lmini.ops.binary import sub
>>> sub.broadcast                    # two arrays, NumPy's broadcasting: what x - y means
<op broadcast_sub(lhs, rhs)>
>>> sub.equal                        # two arrays of one shape: a graph can infer one from the other
<op elemwise_sub(lhs, rhs)>
>>> sub.scalar, sub.reflected        # x - 2 and 2 - x
(<op _minus_scalar(data, scalar)>, <op _rminus_scalar(data, scalar)>)

Each op knows its family (`op.family`), so that compiler passes, ONNX export and MXNet's file format
read the row and keep no tables of their own.

**Two arrays** share one dtype, which the result has too: int32 / int32 is int32, truncated towards
zero. Arithmetic refuses `bool` arrays, as in MXNet; the user first chooses a dtype with `astype`.

**A number takes the array's dtype.** As in MXNet, an integer array truncates the number towards
zero and wraps it around (uint8 + 300 adds 44); next to a bool array a number counts as int64.
NumPy's own rules differ, so every number is first looked up in a table of `scalar_cache.py`.

**Gradients** are two functions, for the left and the right operand. Each takes `g` and the ones it
needs of `y`, `lhs` and `rhs`, by these names and without a gap; backward keeps nothing else. The
same functions serve an array and a number, where the number replaces one operand. The gradient of
a broadcast is a sum: where an input was repeated, the gradients of its copies add up
(`unbroadcast`).
"""

from __future__ import annotations

import math
import operator as operators
import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from d2lmini.base import MXNetError
from d2lmini.base.dtypes import is_float
from d2lmini.ops import scalar_cache
from d2lmini.ops.checks import check_float, check_numbers, check_one_dtype, check_one_shape
from d2lmini.ops.core import ALL, Number, Op, Shape, Spec, op
from d2lmini.ops.reduce import sum_to

# -- shape and dtype rules -------------------------------------------------------------------------

Check = Callable[[Spec], None]


@lru_cache(maxsize=4096)
def broadcast_shape(a: Shape, b: Shape) -> Shape | None:
    """NumPy's broadcasting of two shapes; None if the shapes do not broadcast."""
    if len(a) < len(b):
        a, b = b, a
    lead = len(a) - len(b)
    tail = [m if n == 1 else n if m in (1, n) else -1 for m, n in zip(a[lead:], b, strict=True)]
    return None if -1 in tail else a[:lead] + tuple(tail)


def broadcast_any(lhs: Spec, rhs: Spec) -> Spec:
    """Same dtype, shapes broadcast."""
    if lhs.dtype is not rhs.dtype:
        check_one_dtype(lhs, rhs)
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
    """Same dtype, same shape."""
    check_one_dtype(lhs, rhs)
    check_one_shape(lhs=lhs, rhs=rhs)
    return lhs


def infer_with_scalar(data: Spec, *, scalar: Any) -> Spec:
    """The array's shape and dtype; int64 for bool. Refuses numbers that no dtype can hold, and next
    to integers nan and inf."""
    floating = is_float(data.dtype)
    if floating and type(scalar) is float:
        return data
    if not math.isfinite(float(scalar)) and not floating:
        raise MXNetError(
            f"{scalar} is not a number of {data.dtype.name}; convert with .astype('float32')"
        )
    return Spec(data.shape, "int64") if data.dtype.kind == "b" else data


def beside_any_number(data: Spec, *, scalar: Any) -> Spec:
    """Like `infer_with_scalar`, but nan and inf are allowed next to integers."""
    if not is_float(data.dtype) and isinstance(scalar, (float, np.floating)):
        scalar = 0
    return infer_with_scalar(data, scalar=scalar)


def _checked(check: Check | None, rule: Callable[..., Spec]) -> Callable[..., Spec]:
    """Check the dtype of the first input, then apply the rule."""
    if check is None:
        return rule

    def infer(data: Spec, *others: Spec, **attrs: Any) -> Spec:
        check(data)
        return rule(data, *others, **attrs)

    return infer


def unbroadcast(g_lhs: Any, g_rhs: Any, lhs_shape: Shape, rhs_shape: Shape) -> tuple[Any, Any]:
    """Sum the gradients (or None), which have the result's shape, to the shapes of the inputs."""
    if lhs_shape == rhs_shape:
        return g_lhs, g_rhs
    return _summed(g_lhs, lhs_shape), _summed(g_rhs, rhs_shape)


def _summed(g: Any, shape: Shape) -> Any:
    return g if g is None or g.shape == shape else sum_to(g, shape=shape)


# -- gradient rules --------------------------------------------------------------------------------

#: A gradient: a function of `g` and of those of `y`, `lhs` and `rhs` that it names.
Gradient = Callable[..., Any]


def names_of(gradient: Gradient) -> tuple[str, ...]:
    """The values a gradient reads in addition to `g`."""
    return gradient.__code__.co_varnames[1 : gradient.__code__.co_argcount]


def _rule_of_arrays(of_lhs: Gradient, of_rhs: Gradient) -> tuple[str, Callable]:
    """(saves, rule) of an op on two arrays, see `Op.gradient`. Inputs that neither gradient reads
    are kept as shapes only."""
    reads = {*names_of(of_lhs), *names_of(of_rhs)}
    order = ("y", "lhs", "rhs") if "y" in reads else ("lhs", "rhs")
    lhs_part, rhs_part = (_slice_of(names_of(of), order) for of in (of_lhs, of_rhs))
    lhs_kept, rhs_kept = "lhs" in reads, "rhs" in reads

    def rule(g: Any, *saved: Any, needs: Any = ALL) -> Any:
        g_lhs = of_lhs(g, *saved[lhs_part]) if needs[0] else None
        g_rhs = of_rhs(g, *saved[rhs_part]) if needs[1] else None
        lhs, rhs = saved[-2:]
        lhs_shape, rhs_shape = lhs.shape if lhs_kept else lhs, rhs.shape if rhs_kept else rhs
        return unbroadcast(g_lhs, g_rhs, lhs_shape, rhs_shape)

    saves = [name if name in reads else f"{name}.shape" for name in order]
    return " ".join(saves), rule


def _slice_of(names: tuple[str, ...], order: tuple[str, ...]) -> slice:
    """The slice of `order` that holds these names, which are consecutive."""
    start = order.index(names[0]) if names else 0
    return slice(start, start + len(names))


def _rule_beside_number(gradient: Gradient, number: str) -> tuple[str, Callable]:
    """(saves, rule) of an op on an array and a number, which replaces the operand `number`."""
    reads = names_of(gradient)
    saves = " ".join("y" if name == "y" else "data" for name in reads if name != number)
    if number not in reads:
        return saves, gradient
    at = reads.index(number)
    return saves, lambda g, *saved, scalar: gradient(g, *saved[:at], scalar, *saved[at:])


# -- one row ---------------------------------------------------------------------------------------

#: Families by name, as `binary.py` declares them.
FAMILIES: dict[str, Family] = {}


class Family:
    """One function of two operands, and the ops that compute it. The fields of a row:

    name          of the family
    ufunc         NumPy's ufunc that computes it, by name; "" if there is no single one
    means         the result in terms of lhs and rhs; `details` end the sentence
    broadcast     names of the op on two arrays whose shapes broadcast; they become the op
    equal         names of the op on two arrays of equal shape
    scalar        names of the op on an array and a number
    reflected     names of the op on a number and an array; "" if it is another family's `scalar`
                  In names, {0} is the family's, as in less_equal, {1} is Less_Equal, {2} LessEqual.
    mirror        for comparisons: the family with swapped operands, if not this family
    operator      Python's operator and the name of its method: "+ add"
    functions     names of `nd.NAME`, a function of arrays and numbers
    of_numbers    the function of two Python numbers; by default that of the operator
    commutative   f(x, y) is f(y, x), bitwise; a comparison without a mirror is so
    identity      the number for which f(x, number) is x, bitwise
    truth         the result is true or false, as 1 or 0 in the dtype of the inputs
    flops         per element
    onnx          ONNX's operator; None if there is no single one
    mxnet         MXNet has these ops
    check         raises for a dtype that is refused; None accepts every dtype
    numbers       the table of `scalar_cache` for numbers: "scalars" or "clamped_scalars"
    integers      (xp, lhs, rhs, out): computes integers, where the ufunc does not
    compute       (xp, lhs, rhs, *, out=None): replaces the ufunc
    beside        (xp, data, *, scalar, out=None): a quicker way for an array and a number
    gradients     of lhs and of rhs; None: no gradients, or they are declared below the row
    """

    def __init__(
        self, name: str, ufunc: str, means: str, details: str = ".", *,
        broadcast: str = "broadcast_{0}", equal: str = "_{0} _{1}",
        scalar: str = "_{0}_scalar _{2}Scalar", reflected: str = "", mirror: str = "",
        operator: str = "", functions: str = "", of_numbers: Callable[..., Any] | None = None,
        commutative: bool = False, identity: float | None = None, truth: bool = False,
        flops: float = 1, onnx: str | None = None, mxnet: bool = True,
        check: Check | None = check_numbers, numbers: str = "scalars",
        integers: Callable[..., Any] | None = None, compute: Callable[..., Any] | None = None,
        beside: Callable[..., Any] | None = None,
        gradients: tuple[Gradient, Gradient] | None = None,
    ):  # fmt: skip
        FAMILIES[name] = self
        self.name, self.ufunc, self.means, self.details = name, ufunc, means, details
        self.mirror, self.operator, self.truth = mirror, operator, truth
        self.functions = (functions or name).split()
        self.commutative, self.identity = commutative or (truth and not mirror), identity
        self.of_numbers: Callable[..., Any] = of_numbers or getattr(operators, operator.split()[1])
        self.flops, self.onnx, self.mxnet = flops, onnx, mxnet
        self.check, self.numbers = check, numbers
        self.compute = compute or _on_arrays(ufunc, integers, truth)
        self.ops: list[Op] = []  # the family's own ops

        self.broadcast = self._op(broadcast, _checked(check, broadcast_any), self.compute)
        self.broadcast.__doc__ += "\n\n    Shapes broadcast; both inputs have one dtype."
        self.equal = self._op(equal, _checked(check, equal_any), self.compute)
        self.equal.__doc__ += "\n\n    Both inputs have one shape and one dtype."
        rule = beside_any_number if truth else infer_with_scalar
        if check is check_float:  # bools are accepted: next to a number they count as int64
            rule = _checked(check, rule)
        self.scalar = self._op(scalar, rule, beside or self._on_number(), "data", "scalar")
        self._reflected = None
        if reflected:
            self._reflected = self._op(reflected, rule, self._on_number(True), "scalar", "data")
        if flops == 1 and not truth:
            self.broadcast.ufunc = self.equal.ufunc = getattr(np, ufunc)
            self.scalar.ufunc = None if beside else self.equal.ufunc
        if gradients is not None:
            of_lhs, of_rhs = gradients
            saves, of_both = _rule_of_arrays(of_lhs, of_rhs)
            self.equal.gradient(saves)(self.broadcast.gradient(saves)(of_both))
            saves, of_data = _rule_beside_number(of_lhs, "rhs")
            self.scalar.gradient(saves)(of_data)
            if self._reflected:
                saves, of_data = _rule_beside_number(of_rhs, "lhs")
                self._reflected.gradient(saves)(of_data)

    @property
    def reflected(self) -> Op:
        """The op on a number and an array: for x and 2 the op gives f(2, x)."""
        return self._reflected or FAMILIES[self.mirror or self.name].scalar

    # -- making the ops ----------------------------------------------------------------------------

    def _op(
        self, names: str, infer: Callable, compute: Callable, lhs: str = "lhs", rhs: str = "rhs"
    ) -> Any:
        capitals = "_".join(word.capitalize() for word in self.name.split("_"))
        names = names.format(self.name, capitals, capitals.replace("_", ""))
        name, *aliases = names.split()
        none = {"grad": None} if self.truth else {}
        declared: Op = op(
            name, aliases=aliases, infer=infer, flops=self.flops, elementwise=True,
            in_mxnet=self.mxnet, **none,
        )(compute)  # fmt: skip
        operands = {"lhs": lhs, "rhs": rhs}
        means = self.means + self.details
        declared.__doc__ = re.sub(r"\b[lr]hs\b", lambda word: operands[word[0]], means)
        declared.family = self
        self.ops.append(declared)
        return declared

    def _on_number(self, at_left: bool = False) -> Callable:
        """The compute function for an array and a number, which may be the left operand."""
        table = getattr(scalar_cache, self.numbers)
        on_arrays = self.compute

        def compute(xp, data, *, scalar: Number, out=None):
            number = table[xp][data.dtype][scalar]
            if at_left:
                return on_arrays(xp, number, data, out=out)
            return on_arrays(xp, data, number, out=out)

        return compute


def _on_arrays(ufunc: str, integers: Callable | None, truth: bool) -> Callable:
    """The compute function for two arrays."""

    def by_ufunc(xp, lhs, rhs, *, out=None):
        return getattr(xp, ufunc)(lhs, rhs, out=out)

    def by_dtype(xp, lhs, rhs, *, out=None):
        if lhs.dtype.kind == "f":
            return getattr(xp, ufunc)(lhs, rhs, out=out)
        return integers(xp, lhs, rhs, out)  # type: ignore[misc]

    def as_truth(xp, lhs, rhs, *, out=None):
        y = getattr(xp, ufunc)(lhs, rhs, out=out)
        return y.astype(rhs.dtype, copy=False) if out is None else y  # a number beside bool: int64

    return as_truth if truth else by_dtype if integers else by_ufunc

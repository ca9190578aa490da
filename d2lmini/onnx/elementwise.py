"""Converters of operations element by element, with and without broadcasting."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from math import log, pi
from typing import Any

import numpy as np

from d2lmini.graph.ir import Node
from d2lmini.onnx.writer import Varying, Writer, converts
from d2lmini.ops.elementwise import FAMILIES, Family
from d2lmini.ops.scalar_cache import fit


@converts("_identity_with_attr_like_rhs")
def _left(w: Writer, node: Node, x: str, like: str) -> str:
    return w.add("Identity", x)


@converts("Dropout")
def _dropout(w: Writer, node: Node, x: str) -> str:
    if node.attrs["mode"] == "always":
        raise w.problem("mode='always' draws numbers, and has no converter")
    return w.add("Identity", x)


#: Ours -> its value in ONNX's operators, of x and of `c`, which makes a constant of x's dtype.
_COMPOSITIONS: dict[str, Callable[[Writer, str, Callable[[float], str]], str]] = {
    "degrees": lambda w, x, c: w.add("Mul", x, c(180 / pi)),
    "radians": lambda w, x, c: w.add("Mul", x, c(pi / 180)),
    "square": lambda w, x, c: w.add("Pow", x, c(2)),
    "rsqrt": lambda w, x, c: w.add("Reciprocal", w.add("Sqrt", x)),
    "expm1": lambda w, x, c: w.add("Sub", w.add("Exp", x), c(1)),
    "log1p": lambda w, x, c: w.add("Log", w.add("Add", x, c(1))),
    "log2": lambda w, x, c: _settle(w, w.add("Div", w.add("Log", x), c(log(2)))),
    "log10": lambda w, x, c: _settle(w, w.add("Div", w.add("Log", x), c(log(10)))),
    "cbrt": lambda w, x, c: _settle(w, _cube_root(w, x)),
    "rcbrt": lambda w, x, c: _settle(w, w.add("Reciprocal", _cube_root(w, x))),
    "trunc": lambda w, x, c: _by_size(w, x, w.add("Floor", w.add("Abs", x))),
    "fix": lambda w, x, c: _by_size(w, x, w.add("Floor", w.add("Abs", x))),
    "round": lambda w, x, c: _by_size(w, x, w.add("Floor", w.add("Add", w.add("Abs", x), c(0.5)))),
    "rint": lambda w, x, c: w.add("Ceil", w.add("Sub", x, c(0.5))),
}


@converts(*_COMPOSITIONS)
def _composed(w: Writer, node: Node, x: str) -> str:
    return _COMPOSITIONS[w.op_name](w, x, lambda value: w.number(value, w.x.dtype))


def _by_size(w: Writer, x: str, size: str) -> str:
    """The number with the sign of x and this absolute value."""
    return w.add("Mul", w.add("Sign", x), size)


def _cube_root(w: Writer, x: str) -> str:
    return _by_size(w, x, w.add("Pow", w.add("Abs", x), w.number(1 / 3, w.x.dtype)))


def _settle(w: Writer, y: str) -> str:
    """Of whole numbers: what is just below 3, by an error of rounding, is 3 and is cut to 3."""
    if w.wide != np.float64:
        return y
    steps = w.number(2**34, w.wide)
    return w.add("Div", w.add("Round", w.add("Mul", y, steps)), steps)


@converts("relu")
def _relu(w: Writer, node: Node, x: str) -> str:
    dtype = w.x.dtype
    return w.add("Relu", x) if dtype.kind == "f" else w.add("Max", x, w.number(0, dtype))


@converts("add_n")
def _add_n(w: Writer, node: Node, *xs: str) -> str:
    return reduce(lambda a, b: w.add("Add", a, b), xs)


@converts("clip")
def _clip(w: Writer, node: Node, x: str) -> str:
    dtype = w.x.dtype
    low, high = node.attrs["a_min"], node.attrs["a_max"]
    if dtype.kind in "iu":  # bounds beyond what the dtype holds say nothing
        ends = np.iinfo(w.y.dtype)
        low, high = (min(max(bound, ends.min), ends.max) for bound in (low, high))
    bottom, top = w.number(low, dtype), w.number(high, dtype)
    if low > high:
        return w.add("Where", w.add("Greater", x, top), top, w.add("Max", x, bottom))
    return w.add("Min", w.add("Max", x, bottom), top)


@converts("smooth_l1")
def _smooth_l1(w: Writer, node: Node, x: str) -> str:
    dtype, s2 = _floating(w), node.attrs["scalar"] ** 2
    turn = 1 / s2 if s2 else np.inf
    size = w.add("Abs", x)
    near = w.add("Mul", w.add("Mul", x, x), w.number(s2 / 2, dtype))
    far = w.add("Sub", size, w.number(turn / 2, dtype))
    return w.add("Where", w.add("Less", size, w.number(turn, dtype)), near, far)


@converts("cast")
def _cast(w: Writer, node: Node, x: str) -> str:
    return w.cast(x, w.y.dtype, of=w.x.dtype)


@converts("amp_cast")
def _amp_cast(w: Writer, node: Node, x: str) -> str:
    dtype, target = w.x.dtype, w.y.dtype
    if dtype == np.float32 and target.kind in "iu" and target.itemsize < 8:
        ends = np.iinfo(target)
        most = np.nextafter(np.float32(ends.max), 0) if target.itemsize == 4 else ends.max
        least, most = w.number(ends.min, dtype), w.number(most, dtype)
        x = w.add("Min", w.add("Max", w.add("Round", x), least), most)
    return w.cast(x, target)


@converts("logical_not")
def _not(w: Writer, node: Node, x: str) -> str:
    zero = w.number(0, w.x.dtype)
    return w.cast(w.add("Equal", x, zero), w.y.dtype)


@converts("zeros_like", "ones_like")
def _like(w: Writer, node: Node, x: str) -> str:
    value = w.number(w.op_name == "ones_like", w.x.dtype)
    return w.add("Expand", value, w.add("Shape", x))


@converts("where")
def _where(w: Writer, node: Node, condition: str, x: str, y: str) -> str:
    chosen, other = node.inputs[:2]
    mask = w.cast(condition, bool)
    missing = len(w.spec(other).shape) - len(w.spec(chosen).shape)
    if missing:  # a vector chooses among rows
        mask = w.unsqueeze(mask, *range(1, 1 + missing))
    return w.add("Where", mask, x, y)


# -- two operands ----------------------------------------------------------------------------------


def _hypot(w: Writer, a: str, b: str, dtype: np.dtype) -> str:
    squares = w.add("Add", w.add("Mul", a, a), w.add("Mul", b, b))
    if dtype.kind == "f":
        return w.add("Sqrt", squares)
    return w.cast(w.add("Sqrt", w.cast(squares, "float64")), dtype)


def _divide(w: Writer, a: str, b: str, dtype: np.dtype) -> str:
    return w.add("Div", a, b) if dtype.kind == "f" else _unless_zero(w, "Div", a, b, dtype)


def _unless_zero(w: Writer, operator: str, a: str, b: str, dtype: np.dtype) -> str:
    """Of whole numbers: 0 where b is 0, at which ONNX may stop."""
    zero = w.number(0, dtype)
    broken = w.add("Equal", b, zero)
    y = w.add(operator, a, w.add("Where", broken, w.number(1, dtype), b))
    return w.add("Where", broken, zero, y)


def _power(w: Writer, a: str, b: str, dtype: np.dtype) -> str:
    """Of whole numbers: what a negative power leaves of them, which ONNX does not say."""
    if dtype.kind != "i":
        return w.add("Pow", a, b)
    zero, one = w.number(0, dtype), w.number(1, dtype)
    odd = w.add("Pow", a, w.add("Mod", b, w.number(2, dtype)))
    inverse = w.add("Where", w.add("Equal", w.add("Abs", a), one), odd, zero)
    y = w.add("Pow", a, w.add("Max", b, zero))
    return w.add("Where", w.add("Less", b, zero), inverse, y)


def _not_equal(w: Writer, a: str, b: str, dtype: np.dtype) -> str:
    return w.add("Not", w.add("Equal", a, b))


def _remainder(w: Writer, a: str, b: str, dtype: np.dtype) -> str:
    """What is left of a, with the sign of b; of floats 0 where b is 0."""
    if dtype.kind in "iu":
        return _unless_zero(w, "Mod", a, b, dtype)
    zero = w.number(0, dtype)
    rest = w.add("Mod", a, b, fmod=1)
    other_side = w.add("Less", w.add("Mul", w.add("Sign", rest), w.add("Sign", b)), zero)
    rest = w.add("Where", other_side, w.add("Add", rest, b), rest)
    return w.add("Where", w.add("Equal", b, zero), zero, rest)


#: Families that no operator of ONNX says alone, or not of whole numbers.
_WRITTEN = {"hypot": _hypot, "not_equal": _not_equal, "mod": _remainder, "div": _divide,
            "power": _power}  # fmt: skip

_FAMILIES = [f for f in FAMILIES.values() if f.onnx or f.name in _WRITTEN]


def _binary(w: Writer, family: Family, a: str, b: str, dtype: np.dtype) -> str:
    """A family's function of two values of a dtype, which the result keeps."""
    if family.onnx in ("And", "Or", "Xor"):
        a, b = w.cast(a, bool), w.cast(b, bool)
    if family.name in _WRITTEN:
        y = _WRITTEN[family.name](w, a, b, dtype)
    else:
        assert family.onnx is not None
        y = w.add(family.onnx, a, b)
    return w.cast(y, dtype) if family.truth else y


@converts(*(op.name for f in _FAMILIES for op in (f.broadcast, f.equal)))
def _two(w: Writer, node: Node, a: str, b: str) -> str:
    assert node.op is not None
    return _binary(w, node.op.family, a, b, w.x.dtype)


@converts(*(op.name for f in _FAMILIES for op in f.ops if op not in (f.broadcast, f.equal)))
def _scalar(w: Writer, node: Node, x: str) -> str:
    assert node.op is not None
    family = node.op.family
    dtype, value, wide = w.y.dtype, node.attrs["scalar"], w.x.dtype
    if family.name == "power" and dtype.kind == "u" and value < 0:
        raise w.problem("a negative power of unsigned numbers wraps around, which ONNX's does not")
    if dtype.kind in "iu" and family.numbers == "fit":
        value = fit[np][dtype][value].item()
    elif dtype.kind in "iu":
        limits = np.iinfo(dtype)
        if value != value or value % 1 or not limits.min <= value <= limits.max:
            wide = np.dtype("float64")  # a number that the dtype does not hold
            x = w.cast(x, wide)
    c = w.cast(w.size(value), wide) if isinstance(value, Varying) else w.number(value, wide)
    a, b = (x, c) if node.op is family.scalar else (c, x)
    y = _binary(w, family, a, b, wide)
    return y if wide == w.x.dtype else w.cast(y, w.x.dtype)


def _floating(w: Writer) -> Any:
    """The dtype of the first input, which must be a floating one."""
    dtype = w.x.dtype
    if dtype.kind != "f":
        raise w.problem(f"has a converter for floating numbers only, got {dtype}: cast it before")
    return dtype

"""Converters of operations element by element, with and without broadcasting."""

from __future__ import annotations

from math import log, pi
from typing import Any

import numpy as np

from d2lmini.graph.ir import Node
from d2lmini.onnx.writer import Writer, converts

#: Ours -> the one operator of ONNX that it is.
_SAME = {
    "abs": "Abs", "arccos": "Acos", "arccosh": "Acosh", "arcsin": "Asin", "arcsinh": "Asinh",
    "arctan": "Atan", "arctanh": "Atanh", "ceil": "Ceil", "cos": "Cos", "cosh": "Cosh",
    "erf": "Erf", "exp": "Exp", "floor": "Floor", "log": "Log", "negative": "Neg",
    "reciprocal": "Reciprocal", "relu": "Relu", "sigmoid": "Sigmoid", "sign": "Sign", "sin": "Sin",
    "sinh": "Sinh", "softsign": "Softsign", "sqrt": "Sqrt", "tan": "Tan", "tanh": "Tanh",
    "add_n": "Sum",
    # What does nothing when a net predicts.
    "_copy": "Identity", "BlockGrad": "Identity", "make_loss": "Identity", "MakeLoss": "Identity",
}  # fmt: skip


@converts(*_SAME)
def _same(w: Writer, node: Node, *xs: str) -> str:
    assert node.op is not None
    return w.add(_SAME[node.op.name], *xs)


@converts("_identity_with_attr_like_rhs")
def _left(w: Writer, node: Node, x: str, like: str) -> str:
    return w.add("Identity", x)


@converts("Dropout")
def _dropout(w: Writer, node: Node, x: str) -> str:
    if node.attrs["mode"] == "always":
        raise w.problem("mode='always' draws numbers, and has no converter")
    return w.add("Identity", x)


#: Ours -> (operator of ONNX, constant on its right).
_WITH_CONSTANT = {
    "degrees": ("Mul", 180 / pi),
    "radians": ("Mul", pi / 180),
    "square": ("Pow", 2),
}


@converts(*_WITH_CONSTANT)
def _with_constant(w: Writer, node: Node, x: str) -> str:
    assert node.op is not None
    operator, value = _WITH_CONSTANT[node.op.name]
    return w.add(operator, x, w.number(value, _floating(w, node) if value % 1 else _dtype(w, node)))


@converts("rsqrt")
def _rsqrt(w: Writer, node: Node, x: str) -> str:
    return w.add("Reciprocal", w.add("Sqrt", x))


@converts("cbrt", "rcbrt")
def _cbrt(w: Writer, node: Node, x: str) -> str:
    size = w.add("Pow", w.add("Abs", x), w.number(1 / 3, _dtype(w, node)))
    y = w.add("Mul", w.add("Sign", x), size)
    assert node.op is not None
    return y if node.op.name == "cbrt" else w.add("Reciprocal", y)


@converts("expm1")
def _expm1(w: Writer, node: Node, x: str) -> str:
    return w.add("Sub", w.add("Exp", x), w.number(1, _dtype(w, node)))


@converts("log1p")
def _log1p(w: Writer, node: Node, x: str) -> str:
    return w.add("Log", w.add("Add", x, w.number(1, _dtype(w, node))))


@converts("log2", "log10")
def _log_to_base(w: Writer, node: Node, x: str) -> str:
    assert node.op is not None
    base = 2 if node.op.name == "log2" else 10
    return w.add("Div", w.add("Log", x), w.number(log(base), _dtype(w, node)))


@converts("trunc", "fix")
def _trunc(w: Writer, node: Node, x: str) -> str:
    return w.add("Mul", w.add("Sign", x), w.add("Floor", w.add("Abs", x)))


@converts("round")
def _round(w: Writer, node: Node, x: str) -> str:
    half = w.number(0.5, _dtype(w, node))
    return w.add("Mul", w.add("Sign", x), w.add("Floor", w.add("Add", w.add("Abs", x), half)))


@converts("rint")
def _rint(w: Writer, node: Node, x: str) -> str:
    return w.add("Ceil", w.add("Sub", x, w.number(0.5, _dtype(w, node))))


@converts("hard_sigmoid")
def _hard_sigmoid(w: Writer, node: Node, x: str) -> str:
    return w.add("HardSigmoid", x, alpha=node.attrs["alpha"], beta=node.attrs["beta"])


@converts("clip")
def _clip(w: Writer, node: Node, x: str) -> str:
    dtype = _dtype(w, node)
    low, high = node.attrs["a_min"], node.attrs["a_max"]
    if dtype.kind in "iu":  # bounds beyond what the dtype holds say nothing
        least, most = np.iinfo(dtype).min, np.iinfo(dtype).max
        low, high = np.clip([low, high], least, most)
    return w.add("Min", w.add("Max", x, w.number(low, dtype)), w.number(high, dtype))


@converts("smooth_l1")
def _smooth_l1(w: Writer, node: Node, x: str) -> str:
    dtype, s2 = _floating(w, node), node.attrs["scalar"] ** 2
    turn = 1 / s2 if s2 else np.inf
    size = w.add("Abs", x)
    near = w.add("Mul", w.add("Mul", x, x), w.number(s2 / 2, dtype))
    far = w.add("Sub", size, w.number(turn / 2, dtype))
    return w.add("Where", w.add("Less", size, w.number(turn, dtype)), near, far)


@converts("cast", "amp_cast")
def _cast(w: Writer, node: Node, x: str) -> str:
    return w.cast(x, w.spec((node, 0)).dtype)


@converts("logical_not")
def _not(w: Writer, node: Node, x: str) -> str:
    zero = w.number(0, _dtype(w, node))
    return w.cast(w.add("Equal", x, zero), w.spec((node, 0)).dtype)


@converts("zeros_like", "ones_like")
def _like(w: Writer, node: Node, x: str) -> str:
    assert node.op is not None and node.inputs[0] is not None
    value = w.number(node.op.name == "ones_like", _dtype(w, node))
    return w.add("Expand", value, w.add("Shape", x))


@converts("where")
def _where(w: Writer, node: Node, condition: str, x: str, y: str) -> str:
    chosen, other = node.inputs[:2]
    assert chosen is not None and other is not None
    mask = w.cast(condition, bool)
    missing = len(w.spec(other).shape) - len(w.spec(chosen).shape)
    if missing:  # a vector chooses among rows
        mask = w.unsqueezed(mask, *range(1, 1 + missing))
    return w.add("Where", mask, x, y)


# -- two operands ----------------------------------------------------------------------------------

#: Kind of operation -> its operator, and whether that gives true or false.
_KINDS = {
    "add": ("Add", False), "plus": ("Add", False), "sub": ("Sub", False), "minus": ("Sub", False),
    "mul": ("Mul", False), "div": ("Div", False), "power": ("Pow", False),
    "maximum": ("Max", False), "minimum": ("Min", False), "equal": ("Equal", True),
    "greater": ("Greater", True), "greater_equal": ("GreaterOrEqual", True),
    "lesser": ("Less", True), "lesser_equal": ("LessOrEqual", True),
}  # fmt: skip


def _kind(name: str) -> tuple[str, bool]:
    """'_rminus_scalar' -> ('minus', True): what is done, and is the scalar on the left?"""
    kind = (
        name.removeprefix("broadcast").removeprefix("elemwise").removesuffix("_scalar").strip("_")
    )
    reverse = kind in ("rminus", "rdiv", "rpower", "rmod")
    return (kind[1:] if reverse else kind), reverse


def binary(w: Writer, kind: str, a: str, b: str, dtype: np.dtype) -> str:
    """One operation on two values of a dtype, which the result keeps."""
    if kind in _KINDS:
        operator, truth = _KINDS[kind]
        y = w.add(operator, a, b)
        return w.cast(y, dtype) if truth else y
    if kind == "not_equal":
        return w.cast(w.add("Not", w.add("Equal", a, b)), dtype)
    if kind == "hypot":
        return w.add("Sqrt", w.add("Add", w.add("Mul", a, a), w.add("Mul", b, b)))
    if kind == "mod":
        if dtype.kind in "iu":
            return w.add("Mod", a, b)
        return _remainder(w, a, b, dtype)
    operator = {"logical_and": "And", "logical_or": "Or", "logical_xor": "Xor"}[kind]
    return w.cast(w.add(operator, w.cast(a, bool), w.cast(b, bool)), dtype)


#: What asks how a number and a scalar compare, which then may be any number.
_TOLD_APART = (
    "maximum", "minimum", "not_equal", "logical_and", "logical_or", "logical_xor",
    *(k for k, (_, truth) in _KINDS.items() if truth),
)  # fmt: skip


def _remainder(w: Writer, a: str, b: str, dtype: np.dtype) -> str:
    """What is left of a, with the sign of b; 0 where b is 0."""
    zero = w.number(0, dtype)
    rest = w.add("Mod", a, b, fmod=1)
    other_side = w.add("Less", w.add("Mul", w.add("Sign", rest), w.add("Sign", b)), zero)
    rest = w.add("Where", other_side, w.add("Add", rest, b), rest)
    return w.add("Where", w.add("Equal", b, zero), zero, rest)


_ALL = (*_KINDS, "not_equal", "hypot", "mod", "logical_and", "logical_or", "logical_xor")
_PLAIN = ("add", "sub", "mul", "div")
_NAMED = {k for k in _ALL if k not in (*_PLAIN, "plus", "minus")}


@converts(
    *(f"elemwise_{k}" for k in _PLAIN),
    *(f"broadcast_{k}" for k in _PLAIN),
    *(f"broadcast_{k}" for k in _NAMED),
    *(f"_{k}" for k in _NAMED),
)
def _two(w: Writer, node: Node, a: str, b: str) -> str:
    assert node.op is not None
    return binary(w, _kind(node.op.name)[0], a, b, _dtype(w, node))


@converts(
    *(f"_{k}_scalar" for k in ("plus", "minus", "mul", "div", *_NAMED)),
    *(f"_{k}_scalar" for k in ("rminus", "rdiv", "rpower", "rmod")),
)
def _scalar(w: Writer, node: Node, x: str) -> str:
    assert node.op is not None
    kind, reverse = _kind(node.op.name)
    dtype, value = _dtype(w, node), node.attrs["scalar"]
    wide = dtype
    if dtype.kind in "iu" and kind in _TOLD_APART:
        limits = np.iinfo(dtype)
        if value != value or value % 1 or not limits.min <= value <= limits.max:
            wide = np.dtype("float64")  # a number that the dtype does not hold
            x = w.cast(x, wide)
    c = w.number(value, wide)
    y = binary(w, kind, c, x, wide) if reverse else binary(w, kind, x, c, wide)
    return y if wide == dtype else w.cast(y, dtype)


def _dtype(w: Writer, node: Node) -> Any:
    """The dtype of the first input."""
    assert node.inputs[0] is not None
    return w.spec(node.inputs[0]).dtype


def _floating(w: Writer, node: Node) -> Any:
    """The same, which must be a floating one."""
    dtype = _dtype(w, node)
    if dtype.kind != "f":
        raise w.problem(f"has a converter for floating numbers only, got {dtype}: cast it before")
    return dtype

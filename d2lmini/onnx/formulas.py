"""Formulas of ops that ONNX does not have: `expm1(x)` is written as `exp(x) - 1`.

A composed op has a formula of its own (`ops/composed.py`). The primitives below have a kernel here,
and a formula only for ONNX. A formula's ops are converted one by one, as those of any other graph.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import cache, reduce
from math import inf, log, pi
from typing import Any

from d2lmini.graph.ir import Entry, Inputs, Node, topological, transform
from d2lmini.graph.lower import expand
from d2lmini.onnx.writer import takes, takes_dtype
from d2lmini.ops.composed import Composed
from d2lmini.ops.core import Op, registry
from d2lmini.ops.elementwise import FAMILIES


def _towards_zero(x: Any) -> Any:
    return x.sign() * abs(x).floor()


def _cube_root(x: Any) -> Any:
    return x.sign() * abs(x) ** (1 / 3)


def _smooth_l1(x: Any, *, scalar: float) -> Any:
    square = scalar * scalar
    end_of_parabola = 1 / square if square else inf
    size = abs(x)
    is_near = size < end_of_parabola
    return registry["where"](is_near, x * x * (square / 2), size - end_of_parabola / 2)


def _swapaxes(data: Any, *, dim1: int, dim2: int) -> Any:
    order = [*range(data.ndim)]
    order[dim1], order[dim2] = order[dim2], order[dim1]
    return data.transpose(axes=tuple(order))


#: Functions of arrays, and of an array and a number on either side.
_OF_FAMILIES: dict[str, Callable[[Any, Any], Any]] = {
    "hypot": lambda lhs, rhs: (lhs * lhs + rhs * rhs).sqrt(),
    "not_equal": lambda lhs, rhs: (lhs == rhs) == 0,
}


def _formulas_of(name: str, function: Callable[[Any, Any], Any]) -> dict[str, Callable[..., Any]]:
    """The formulas of the ops of a family."""
    family = FAMILIES[name]
    return {
        family.broadcast.name: function,
        family.equal.name: function,
        family.reflected.name: lambda data, *, scalar: function(scalar, data),
        family.scalar.name: lambda data, *, scalar: function(data, scalar),
    }


#: Primitive -> its formula for ONNX.
FORMULAS: dict[str, Callable[..., Any]] = {
    "degrees": lambda x: x * (180 / pi),
    "radians": lambda x: x * (pi / 180),
    "square": lambda x: x * x,
    "rsqrt": lambda x: x.sqrt().reciprocal(),
    "cbrt": _cube_root,
    "rcbrt": lambda x: _cube_root(x).reciprocal(),
    "expm1": lambda x: x.exp() - 1,
    "log1p": lambda x: (x + 1).log(),
    "log2": lambda x: x.log() / log(2),
    "log10": lambda x: x.log() / log(10),
    "trunc": _towards_zero,
    "fix": _towards_zero,
    "round": lambda x: x.sign() * (abs(x) + 0.5).floor(),
    "rint": lambda x: (x - 0.5).ceil(),
    "logical_not": lambda x: x == 0,
    "smooth_l1": _smooth_l1,
    "Embedding": lambda data, weight, **_attrs: registry["take"](weight, data),
    "swapaxes": _swapaxes,
    "add_n": lambda *xs: reduce(operator.add, xs),
    "stack": lambda *xs, axis: registry["concat"](*[x.expand_dims(axis) for x in xs], dim=axis),
    "_identity_with_attr_like_rhs": lambda lhs, rhs: lhs,
    **{op: f for name, function in _OF_FAMILIES.items()
       for op, f in _formulas_of(name, function).items()},
}  # fmt: skip


@cache
def _composed(op: Op) -> Composed:
    """A primitive as a composed op."""
    return Composed(FORMULAS[op.name], op.name)


def write_formulas(entries: list[Entry]) -> list[Entry]:
    """The graph with the formulas of those calls that have no converter."""

    def formula_of(node: Node) -> Composed | None:
        if isinstance(node.op, Composed):
            return None if takes(node) else node.op
        is_written = node.op is not None and node.op.name in FORMULAS and takes_dtype(node)
        return _composed(node.op) if is_written else None

    def rule(node: Node, inputs: Inputs) -> list[Entry] | None:
        op = formula_of(node)
        return None if op is None else expand(node.replace(op=op), inputs)

    while any(map(formula_of, topological(entries))):  # formulas call composed ops
        entries = transform(entries, rule)
    return entries

"""Formulas of ops that ONNX does not have: `expm1(x)` is written as `exp(x) - 1`.

A composed op has a formula of its own (`ops/composed.py`). The primitives below have a kernel here,
and a formula only for ONNX. A formula's ops are converted one by one, as those of any other graph.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import cache, reduce
from math import log
from typing import Any

from d2lmini.graph.ir import Entry, Inputs, Node, topological, transform
from d2lmini.graph.lower import expand
from d2lmini.onnx.writer import takes, takes_dtype
from d2lmini.ops.composed import Composed
from d2lmini.ops.core import Op, registry


def _swapaxes(data: Any, *, dim1: int, dim2: int) -> Any:
    order = [*range(data.ndim)]
    order[dim1], order[dim2] = order[dim2], order[dim1]
    return data.transpose(axes=tuple(order))


def _not_equal(lhs: Any, rhs: Any) -> Any:
    return (lhs == rhs) == 0


#: Primitive -> its formula for ONNX.
FORMULAS: dict[str, Callable[..., Any]] = {
    "square": lambda x: x * x,
    "rsqrt": lambda x: x.sqrt().reciprocal(),
    "expm1": lambda x: x.exp() - 1,
    "log1p": lambda x: (x + 1).log(),
    "log2": lambda x: x.log() / log(2),
    "log10": lambda x: x.log() / log(10),
    "round": lambda x: x.sign() * (abs(x) + 0.5).floor(),
    "rint": lambda x: (x - 0.5).ceil(),
    "logical_not": lambda x: x == 0,
    "Embedding": lambda data, weight, **_attrs: registry["take"](weight, data),
    "swapaxes": _swapaxes,
    "add_n": lambda *xs: reduce(operator.add, xs),
    "stack": lambda *xs, axis: registry["concat"](*[x.expand_dims(axis) for x in xs], dim=axis),
    "broadcast_not_equal": _not_equal,
    "_not_equal": _not_equal,
    "_not_equal_scalar": lambda data, *, scalar: _not_equal(data, scalar),
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

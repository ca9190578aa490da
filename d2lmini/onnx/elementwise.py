"""Converters of operations element by element, with and without broadcasting."""

from __future__ import annotations

from typing import Any

import numpy as np

from d2lmini.graph.ir import Node
from d2lmini.onnx.writer import Writer, converts
from d2lmini.ops import scalar_cache
from d2lmini.ops.elementwise import FAMILIES


@converts("Dropout")
def _dropout(w: Writer, node: Node, x: str) -> str:
    if node.attrs["mode"] == "always":
        raise w.problem("mode='always' draws numbers, and has no converter")
    return w.add("Identity", x)


@converts("relu")
def _relu(w: Writer, node: Node, x: str) -> str:
    dtype = w.x.dtype
    return w.add("Relu", x) if dtype.kind == "f" else w.add("Max", x, w.number(0, dtype))


@converts("clip")
def _clip(w: Writer, node: Node, x: str) -> str:
    low, high = node.attrs["a_min"], node.attrs["a_max"]
    if low > high:
        raise w.problem(f"a_min={low} above a_max={high} has no converter")
    return w.add("Clip", x, _beside(w, low, "limit"), _beside(w, high, "limit"))


@converts("cast", "amp_cast")
def _cast(w: Writer, node: Node, x: str) -> str:
    if w.op_name == "amp_cast" and w.y.dtype.kind in "iu" and w.x.dtype.kind == "f":
        raise w.problem("to integers has no converter")  # it rounds, and limits
    return w.cast(x, w.y.dtype)


@converts("where")
def _where(w: Writer, node: Node, condition: str, x: str, y: str) -> str:
    mask = w.cast(condition, bool)
    missing = len(w.y.shape) - len(w.x.shape)
    if missing:  # a vector chooses among rows
        mask = w.unsqueeze(mask, *range(1, 1 + missing))
    return w.add("Where", mask, x, y)


# -- two operands ----------------------------------------------------------------------------------

_FAMILIES = [f for f in FAMILIES.values() if f.onnx]


@converts(*(op.name for f in _FAMILIES for op in f.ops))
def _family(w: Writer, node: Node, x: str, y: str = "") -> str:
    family = node.op.family
    if not y:
        y = _beside(w, node.attrs["scalar"], family.numbers)
        x, y = (x, y) if node.op is family.scalar else (y, x)
    if family.onnx in ("And", "Or", "Xor"):
        x, y = w.cast(x, bool), w.cast(y, bool)
    z = w.add(family.onnx, x, y)
    return w.cast(z, w.y.dtype) if family.truth else z


def _beside(w: Writer, value: Any, table: str) -> str:
    """A number beside the first input, in its dtype."""
    dtype = w.x.dtype
    if dtype.kind in "iu":
        value = getattr(scalar_cache, table)[np][dtype][value]
    return w.number(value, dtype)

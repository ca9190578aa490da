"""A typed graph as text: a line for each node, in the order in which they run.

>>> from d2lmini import sym
>>> with sym.NameManager():
...     y = sym.relu(sym.var("x") * 2 + 1, name="y")
>>> print(listing(graph_of(y, x=(2, 3))))
x                                            # (2, 3) float32
_mulscalar0 = _mul_scalar(x, scalar=2)       # (2, 3) float32
_plusscalar0 = _plus_scalar(_mulscalar0, scalar=1)  # (2, 3) float32
y = relu(_plusscalar0)                       # (2, 3) float32
return y
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from d2lmini.graph.constant import CONSTANT
from d2lmini.graph.ir import Entry, Node, topological
from d2lmini.graph.typed import infer_types
from d2lmini.ops.core import Shape, Spec
from d2lmini.symbol.symbol import Symbol


def graph_of(symbol: Symbol, training: bool = False, **shapes: Shape) -> list[Entry]:
    """The outputs of the typed graph of a Symbol for float32 inputs of these shapes, before any
    pass: for looking at. MXNetError if the shape of a variable is missing or does not fit."""
    specs = {
        node: Spec(shapes[node.name], "float32")
        for node in topological(symbol._entries)
        if node.op is None and node.name in shapes
    }
    return infer_types(symbol._entries, specs, training)[1]


def listing(outputs: Sequence[Entry]) -> str:
    """The graph behind `outputs`: variables, calls with their inputs and those attributes that are
    not the usual ones, shapes and dtypes; last what comes out. Nodes of one name are numbered."""
    names: dict[Node, str] = {}
    used: set[str] = set()
    lines = []
    for node in topological(outputs):
        name, count = node.name, 1
        while name in used:
            count += 1
            name = f"{node.name}_{count}"
        used.add(name)
        names[node] = name
        line = name if node.op is None else f"{name} = {_call(node, names)}"
        specs = ", ".join(f"{spec.shape} {spec.dtype.name}" for spec in node.specs or ())
        lines.append(f"{line:<42}  # {specs}" if specs else line)
    lines.append("return " + ", ".join(_value(entry, names) for entry in outputs))
    return "\n".join(lines)


def _call(node: Node, names: dict[Node, str]) -> str:
    assert node.op is not None
    if node.op is CONSTANT:
        return repr(node.attrs["value"])
    inputs = ["None" if e is None else _value(e, names) for e in node.inputs]
    defaults = {k: _format_value(v) for k, v in node.op.defaults.items()}
    values = {k: _format_value(node.attrs[k]) for k in (*node.op.attr_names, *node.op.injects)}
    attrs = [f"{k}={text}" for k, text in values.items() if defaults.get(k) != text]
    return f"{node.op.name}({', '.join(inputs + attrs)})"


def _format_value(value: Any) -> str:
    return repr(value.name if isinstance(value, np.dtype) else value)


def _value(entry: Entry, names: dict[Node, str]) -> str:
    node, i = entry
    several = node.op is not None and len(node.specs or ()) > 1
    return f"{names[node]}[{i}]" if several else names[node]

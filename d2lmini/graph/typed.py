"""Typed graphs: the same graph with shapes and dtypes known, for one mode of the net.

>>> from d2lmini import sym
>>> from d2lmini.ops.spec import Spec
>>> x = sym.var("x")
>>> y = sym.dot(x, x, transpose_b=True)
>>> specs = {x._entry[0]: Spec((2, 3), "float32")}
>>> variables, (output,) = infer_types(y._entries, specs, training=False)
>>> output[0].specs
(Spec((2, 2), float32),)

As text, a line for each node, in the order in which they run:

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

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from d2lmini.base import MXNetError
from d2lmini.graph.constant import CONSTANT
from d2lmini.graph.ir import Draw, Entry, Inputs, Node, spec_of, topological, transform
from d2lmini.ndarray.plan import plan_of
from d2lmini.ops.core import Shape
from d2lmini.ops.spec import Spec
from d2lmini.symbol.infer import complete_shapes
from d2lmini.symbol.symbol import Symbol

Variables = dict[Node, Node]


def infer_types(
    entries: Sequence[Entry], specs: Mapping[Node, Spec], training: bool
) -> tuple[Variables, list[Entry]]:
    """The graph behind `entries`, made anew with the specs of its variables given: (new variable of
    each old one, new entries). Ops that ask are told `training`, and which key they draw with.

    MXNetError for a variable without a spec, and where shapes or dtypes don't fit, with the name of
    the node and the line that made it.
    """
    variables: Variables = {}
    entries = complete_shapes(entries, {node: spec.shape for node, spec in specs.items()})
    numbers = draw_numbers(entries)

    def rule(node: Node, inputs: Inputs) -> Node:
        if node.op is None:
            if node not in specs:
                raise MXNetError(f"nothing is known of variable {node.name!r}: give its shape")
            variables[node] = node.replace(specs=(specs[node],))
            return variables[node]
        attrs = node.attrs
        if node.op.injects:
            attrs = dict(attrs)
            if "training" in node.op.injects:
                attrs["training"] = training
            if node.op.random:
                attrs["rng"] = Draw(numbers[node]) if node.op.draws(**attrs) else None
        outputs = outputs_of(node, inputs, attrs)
        return node.replace(inputs=inputs, attrs=attrs, specs=outputs)

    return variables, transform(entries, rule)


def draw_numbers(entries: Sequence[Entry]) -> dict[Node, int]:
    """The number of each node that may draw: that of the trace, which counts in the order of the
    program, so that a compiled net drops what the eager one does; else in the order of the graph.
    """
    drawing = [node for node in topological(entries) if node.op is not None and node.op.random]
    return {
        node: node.attrs["rng"].number if "rng" in node.attrs else i
        for i, node in enumerate(drawing)
    }


def outputs_of(node: Node, inputs: Inputs, attrs: dict) -> tuple[Spec, ...]:
    """Specs of all outputs of a node, from those of its inputs."""
    assert node.op is not None
    known = [spec_of(e) for e in inputs if e is not None]
    try:
        return plan_of(node.op, known, attrs).outputs
    except (MXNetError, ValueError) as problem:
        raise MXNetError(node.locate(problem)) from None


# -- a graph as text -------------------------------------------------------------------------------


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

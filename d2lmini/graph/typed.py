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

**What a typed graph is**, as a program that checks it (`verify`):

>>> from d2lmini import sym
>>> from d2lmini.graph.typed import infer_types
>>> from d2lmini.ops.spec import Spec
>>> from d2lmini.graph.ir import Node
>>> x = sym.var("x")
>>> variables, (y,) = infer_types((x * 2)._entries, {x._entry[0]: Spec((3,), "float32")}, False)
>>> verify(variables.values(), [y])
>>> wrong = Node(y[0].op, "wrong", y[0].inputs, y[0].attrs, (Spec((4,), "float32"),))
>>> verify(variables.values(), [(wrong, 0)])
Traceback (most recent call last):
    ...
d2lmini.graph.typed.GraphError: wrong: _mul_scalar gives (3,) float32, its node says (4,) float32

Passes are checked by it in the tests, and wherever `D2LMINI_VERIFY=1` is set in the environment.

**Order.** A graph runs in the order of `topological`. Values don't care in which order they come,
but a node that changes a variable (BatchNorm its moving statistics) must keep its place among the
others that read or change the same one. No edge of the graph says so: the order itself does, and a
pass has to keep it. `effects` writes it down, and `verify(..., like=before)` compares.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from d2lmini.base import MXNetError, environment
from d2lmini.graph.ir import (
    CONSTANT,
    Draw,
    Entry,
    Inputs,
    Node,
    mutated_by,
    spec_of,
    topological,
    transform,
)
from d2lmini.ndarray.plan import infer, plan_of
from d2lmini.ops.core import Shape, as_specs
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


# -- what a typed graph is -------------------------------------------------------------------------


#: Are graphs checked after each pass?
checking = environment.read("D2LMINI_VERIFY")


class GraphError(AssertionError):
    """This is no typed graph. That is a fault of the library, not of its user."""


def verify(
    inputs: Iterable[Node], outputs: Sequence[Entry], like: Sequence[Entry] | None = None
) -> None:
    """GraphError, with the name of the node, unless this is a typed graph over these variables:

    - every input of a node is an output of one that runs before it, so there are no circles;
    - every node has the attributes of its op, all of them bound, and the specs that `op.infer`
      gives for those of its inputs;
    - every variable is among `inputs`, and no two inputs have one name;
    - what a node changes besides is a variable;
    - every node that draws has a key of its own.

    `like`: another graph with the same meaning. Then outputs must agree in their specs, and
    variables must be changed by the same nodes in the same order, and be read no earlier or later.
    """
    known = list(inputs)
    names = [node.name for node in known]
    for name in names:
        _check(names.count(name) == 1, name, "two variables have this name")
    order = topological(outputs)
    place = {node: i for i, node in enumerate(order)}
    drawn: dict[int, Node] = {}
    for i, node in enumerate(order):
        _check(node.specs is not None, node.name, "its specs are not known")
        if node.op is None:
            _check(node in known, node.name, "the variable is not among the inputs")
            _check(len(node.specs or ()) == 1, node.name, "a variable is one value")
            continue
        for entry in node.inputs:
            if entry is not None:
                _check(place[entry[0]] < i, node.name, f"a circle with {entry[0].name}")
                _check(
                    entry[1] < len(entry[0].specs or ()),
                    node.name,
                    f"{entry[0].name} has no output {entry[1]}",
                )
        _check_attributes(node)
        _check_specs(node)
        for entry in node.mutated:
            _check(entry[0].op is None, node.name, f"changes {entry[0].name}, no variable")
        if draw := node.attrs.get("rng"):
            other = drawn.setdefault(draw.number, node)
            _check(other is node, node.name, f"draws with the key of {other.name}")
    for node, i in outputs:
        _check(i < len(node.specs or ()), node.name, f"has no output {i}")
    if like is not None:
        _check_like(outputs, like)


def effects(outputs: Sequence[Entry]) -> dict[str, list[tuple[str, bool]]]:
    """For each variable that some node changes: who reads or changes it, in order, as (name of the
    node, does it change it)."""
    order = topological(outputs)
    changed = mutated_by(order)
    found: dict[str, list[tuple[str, bool]]] = {node.name: [] for node in changed}
    for node in order:
        writes = {entry[0] for entry in node.mutated}
        for variable in dict.fromkeys(e[0] for e in node.inputs if e and e[0] in changed):
            found[variable.name].append((node.name, variable in writes))
    return found


def _check(fine: bool, name: str, problem: str) -> None:
    if not fine:
        raise GraphError(f"{name}: {problem}")


def _check_attributes(node: Node) -> None:
    op = node.op
    for attr in (*op.attr_names, *op.injects):
        _check(attr in node.attrs, node.name, f"attribute {attr!r} of {op.name} is not bound")
    for attr, value in node.attrs.items():
        known = attr in op.attr_names or attr in op.injects
        _check(known, node.name, f"{op.name} has no attribute {attr!r}")
        if type(value) is Draw:
            _check(value.number >= 0, node.name, f"{attr}={value} is no key that a call has")


def _check_specs(node: Node) -> None:
    op = node.op
    known = [spec_of(e) for e in node.sources]
    try:
        given = as_specs(infer(op, known, node.attrs))
    except (MXNetError, TypeError, ValueError, AssertionError) as problem:
        raise GraphError(f"{node.name}: {problem}") from None
    _check(
        list(node.specs) == given,
        node.name,
        f"{op.name} gives {_format_specs(given)}, its node says {_format_specs(node.specs)}",
    )


def _check_like(outputs: Sequence[Entry], like: Sequence[Entry]) -> None:
    _check(len(outputs) == len(like), "outputs", f"{len(outputs)} instead of {len(like)}")
    for (node, i), (before, j) in zip(outputs, like):
        now, then = node.specs[i], before.specs[j]  # type: ignore[index]
        _check(
            now == then,
            node.name,
            f"is {_format_specs([now])}, and {before.name} was {_format_specs([then])}",
        )
    now_touched, then_touched = effects(outputs), effects(like)
    for name, then_steps in then_touched.items():
        steps = now_touched.get(name, [])
        # A reader may be gone, or be one with another; who is left stands where it stood.
        rest = iter(then_steps)
        _check(all(step in rest for step in steps), name, f"is used in another order: {steps}")
        writers = [step for step in then_steps if step[1]]
        _check([s for s in steps if s[1]] == writers, name, f"is not changed by {writers} any more")


def _format_specs(specs: Iterable[Spec]) -> str:
    return ", ".join(f"{spec.shape} {spec.dtype.name}" for spec in specs)

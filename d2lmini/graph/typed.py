"""Typed graphs: the same graph with shapes and dtypes known, for one mode of the net.

>>> from d2lmini import sym
>>> from d2lmini.ops.spec import Spec
>>> x = sym.var("x")
>>> y = sym.dot(x, x, transpose_b=True)
>>> specs = {x._entry[0]: Spec((2, 3), "float32")}
>>> variables, (output,) = infer_types(y._entries, specs, training=False)
>>> output[0].specs
(Spec((2, 2), float32),)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from d2lmini.base import MXNetError
from d2lmini.graph.ir import Draw, Entry, Inputs, Node, spec_of, topological, transform
from d2lmini.ndarray.plan import plan_of
from d2lmini.ops.spec import Spec
from d2lmini.symbol.infer import complete_shapes

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

"""From a Symbol to an ONNX model: what is known is computed, the rest is said in ONNX's operators.

The steps, each a function below:

    typed         the graph with the shapes for which it is written, and formulas for composed ops;
                  a loss at the end becomes what it shows when a net predicts, without its label
    infer_sizes   which of the shapes may vary
    write_nodes   what depends on parameters alone is computed here, by our own ops; a converter
                  for each other node
    model_of      the protocol buffers

That a batch may have any size is found out by looking: the graph is made and sized for several
batches, and what differs varies. Nothing else may differ.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from d2lmini.base import MXNetError
from d2lmini.device.errstate import run_quietly
from d2lmini.graph.ir import Entry, Node, compute, interpret, topological
from d2lmini.graph.typed import infer_types
from d2lmini.onnx import elementwise, layers, recurrent, shapes
from d2lmini.onnx.formulas import write_formulas
from d2lmini.onnx.shapes import first
from d2lmini.onnx.writer import (
    BATCHES,
    Sizes,
    Varying,
    Writer,
    converter_of,
    package,
    tensor_type,
)
from d2lmini.ops.spec import Spec
from d2lmini.symbol.infer import shapes_of
from d2lmini.symbol.mxnet_ops import in_mxnet_words
from d2lmini.symbol.symbol import Symbol

#: The modules with the converters.
FAMILIES = (elementwise, shapes, layers, recurrent)

#: Version of the operators -> version of the file format that came with it.
IR_VERSIONS = {13: 7, 14: 7, 15: 8, 16: 8, 17: 8, 18: 8}

#: Ops that look at nothing but a shape.
_OF_SHAPE = ("zeros_like", "ones_like", "shape_array", "size_array", "_contrib_arange_like")

_FIXED = "export it without dynamic_batch"

Arrays = Mapping[str, np.ndarray]

#: The graph of a net and the arrays that it uses, for a size of the batch.
At = Callable[[int], tuple[Symbol, Arrays]]


def export(at: At, inputs: Mapping[str, tuple[Sizes, Any]], opset: int = 17) -> Any:
    """The ONNX model of a net, whose graph, with the values of its parameters and auxiliary states
    by name, is `at(batch)`.

    inputs: (shape, dtype) of its other variables; a size of None may be any. MXNetError, naming
    node and op, for what cannot be said in ONNX; ImportError without the package `onnx`.
    """
    package()
    if opset not in IR_VERSIONS:
        raise MXNetError(f"opset {opset} is not one of {', '.join(map(str, IR_VERSIONS))}")
    w = Writer(opset)
    w.batch = next(((n, s.index(None)) for n, (s, _) in inputs.items() if None in s), None)
    symbol, params, outputs = infer_sizes(w, at, inputs)
    names = write_nodes(w, outputs, params)
    shown = _rename_outputs(w, [names[entry] for entry in outputs], symbol.list_outputs())
    return model_of(w, outputs, shown, inputs)


def labels_of(entries: Sequence[Entry]) -> set[Node]:
    """The variables that only training asks for: what losses compare their data with."""
    losses = [node for node in topological(entries) if node.op is not None and node.op.is_loss]
    return {e[0] for node in losses for e in node.inputs[1:] if e is not None and e[0].op is None}


def typed(
    symbol: Symbol, params: Mapping[str, np.ndarray], inputs: Mapping[str, tuple[Sizes, Any]],
    batch: int, opset: int,
) -> list[Entry]:  # fmt: skip
    """The graph with its shapes, for a size of the batch."""
    entries = in_mxnet_words(symbol._entries, others=True)
    labels = labels_of(entries)
    specs = {}
    for node in topological(entries):
        if node.op is not None:
            continue
        if node.name in params:
            specs[node] = Spec(params[node.name].shape, params[node.name].dtype)
        elif node.name in inputs:
            shape, dtype = inputs[node.name]
            specs[node] = Spec(tuple(batch if n is None else n for n in shape), dtype)
        elif node not in labels:
            raise MXNetError(
                f"export to ONNX: variable {node.name!r} is neither a parameter nor an input: "
                "give its value or its shape"
            )
    shapes = shapes_of(entries, {node: spec.shape for node, spec in specs.items()})
    specs |= {n: Spec(shapes[n, 0] or (), "float32") for n in labels if n not in specs}
    return write_formulas(infer_types(entries, specs, training=False)[1], opset)


def infer_sizes(
    w: Writer, at: At, inputs: Mapping[str, tuple[Sizes, Any]]
) -> tuple[Symbol, Arrays, list[Entry]]:
    """The net for the first of `BATCHES`: its Symbol, arrays and typed graph; `w` learns which
    sizes vary. MXNetError where the graphs for the others differ in more than sizes."""
    if w.batch is None:
        symbol, params = at(0)
        return symbol, params, typed(symbol, params, inputs, 0, w.opset)
    found: list[tuple[Symbol, Arrays, list[Entry]]] = []
    for batch in BATCHES:
        try:
            symbol, params = at(batch)
            found.append((symbol, params, typed(symbol, params, inputs, batch, w.opset)))
        except Exception as problem:  # the net's own, which sees this batch for the first time
            raise MXNetError(
                f"export to ONNX: this net does not take a batch of any size, as {batch}: "
                f"{problem}; {_FIXED}"
            ) from problem
        _compare(found[0], found[-1], batch)
    for column in zip(*(topological(outputs) for _, _, outputs in found), strict=True):
        node = column[0]
        each = zip(*(n.attrs.values() for n in column), strict=True)
        node.attrs = dict(zip(node.attrs, (_vary(w, values) for values in each)))
        for i in range(len(node.specs or ())):
            shape = _vary(w, [n.specs[i].shape for n in column if n.specs])
            if shape != node.specs[i].shape:  # type: ignore[index]
                w.varying[node, i] = shape
    return found[0]


def _vary(w: Writer, values: Sequence[Any]) -> Any:
    """Values for several batches as one."""
    if all(isinstance(v, tuple) and len(v) == len(values[0]) for v in values):
        return tuple(_vary(w, column) for column in zip(*values))
    return values[0] if all(v == values[0] for v in values) else Varying(w, tuple(values))


def _compare(one: tuple, other: tuple, batch: int) -> None:
    """MXNetError if the graphs for two batches differ in more than sizes."""
    ones, others = topological(one[2]), topological(other[2])
    places = {node: i for nodes in (ones, others) for i, node in enumerate(nodes)}

    def form(node: Node) -> tuple:
        inputs = [e and (places[e[0]], e[1]) for e in node.inputs]
        return node.op, inputs, [*node.attrs], [spec.dtype for spec in node.specs or ()]

    for mine, theirs in zip(ones, others):
        name = "variable" if mine.op is None else mine.op.name
        differs = ""
        if form(mine) != form(theirs) or len(ones) != len(others):
            differs = "what is computed from here on"
        elif mine.name in one[1]:
            arrays = one[1][mine.name], other[1][theirs.name]
            if not np.array_equal(*arrays) and len({*arrays[0].flat, *arrays[1].flat}) != 1:
                differs = "the array"
        if differs:
            raise MXNetError(
                f"export to ONNX: node {mine.name!r}: {name}: {differs} would be different for a "
                f"batch of {batch}; {_FIXED}"
            )


def fold(node: Node, given: Sequence[np.ndarray | None]) -> list[np.ndarray]:
    """What a node gives for arrays."""
    return [np.asarray(y) for y in run_quietly(lambda: compute(np, node, given))]


def write_nodes(
    w: Writer, outputs: Sequence[Entry], params: Mapping[str, np.ndarray]
) -> dict[Entry, str]:
    """Convert every node; the name of every value that somebody needs."""
    names: dict[Entry, str] = {}

    def name_of(entry: Entry) -> str:
        if entry not in names:  # a constant that nobody needed until now
            name = entry[0].name if entry[0].op is None else f"{entry[0].name}_known{entry[1]}"
            names[entry] = w.array(w.values[entry], w.values[entry].dtype, name)
        return names[entry]

    def convert(node: Node, inputs: Sequence[np.ndarray | None]) -> Sequence[np.ndarray | None]:
        """The values of a node's outputs that are known; the others have names from now on."""
        w.here = node
        if node.op is None:
            if w.varies(node) and node.name in params:  # filled with one number
                value, (shape, dtype) = params[node.name].flat[0], w.y
                names[node, 0] = w.add("Expand", w.number(value, dtype), w.shape(shape))
                return [None]
            if node.name in params:
                return [w.values.setdefault((node, 0), params[node.name])]
            names[node, 0] = node.name
            return [None]
        known = all(e is None or e in w.values for e in node.inputs)
        if node.op.name in _OF_SHAPE and not w.varies(node):
            e = first(node)
            assert e[0].specs is not None
            inputs = [np.zeros(*e[0].specs[e[1]])]
            known = e not in w.varying or node.op.name == "_contrib_arange_like"
        if known and not node.op.random and not w.varies(node):
            values = fold(node, inputs)
            w.values.update({(node, i): y for i, y in enumerate(values)})
            return values
        converter = converter_of(w, node)
        xs = ["" if e is None else name_of(e) for e in node.inputs]
        made = converter(w, node, *xs)
        made = made if isinstance(made, list) else [made]
        names.update({(node, i): name for i, name in enumerate(made)})
        return [None] * len(made)

    interpret(outputs, convert)
    for entry in outputs:
        name_of(entry)
    return names


def _rename_outputs(w: Writer, values: list[str], wanted: list[str]) -> list[str]:
    """Outputs under the names that the Symbol has for them."""
    made = {name for _, _, outputs, _, _ in w.nodes for name in outputs}
    new: dict[str, str] = {}
    for value, name in zip(values, wanted):
        if value in made and value not in new and name not in new.values():
            new[value] = name
            continue
        # An input or a constant, or an output that is shown twice.
        taken = {*new.values(), value}
        name = name if name not in taken else f"{name}_again{len(new)}"
        new[w.add("Identity", value)] = name
        values[values.index(value)] = w.nodes[-1][2][0]
    for _, inputs, outputs, _, _ in w.nodes:
        inputs[:] = [new.get(x, x) for x in inputs]
        outputs[:] = [new.get(y, y) for y in outputs]
    return [new[value] for value in values]


def model_of(
    w: Writer, outputs: Sequence[Entry], shown: Sequence[str],
    inputs: Mapping[str, tuple[Sizes, Any]],
) -> Any:  # fmt: skip
    """The model, checked by onnx's own checker."""
    onnx = package()
    helper = onnx.helper
    nodes = [
        helper.make_node(operator, given, results, name=f"{name}_{i}", **attrs)
        for i, (operator, given, results, attrs, name) in enumerate(w.nodes)
    ]
    used = {name for node in nodes for name in node.input}
    ins = [
        helper.make_tensor_value_info(
            name, tensor_type(dtype), ["batch" if n is None else n for n in shape]
        )
        for name, (shape, dtype) in inputs.items()
    ]
    outs = [
        helper.make_tensor_value_info(
            name, tensor_type(dtype), [None if isinstance(n, Varying) else n for n in shape]
        )
        for name, (shape, dtype) in zip(shown, map(w.spec, outputs), strict=True)
    ]
    constants = [onnx.numpy_helper.from_array(a, n) for n, a in w.arrays.items() if n in used]
    graph = helper.make_graph(nodes, "net", ins, outs, constants)
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", w.opset)], producer_name="d2lmini",
        ir_version=IR_VERSIONS[w.opset],
    )  # fmt: skip
    try:
        onnx.checker.check_model(model, full_check=True)
    except Exception as problem:  # its errors share no class of their own
        raise MXNetError(f"export to ONNX: the model would not be valid: {problem}") from problem
    return model

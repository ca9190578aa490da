"""From a Symbol to an ONNX model: what is known is computed, the rest is said in ONNX's operators.

The steps, each a function below:

    predicting    losses at the end become what they show when a net predicts; labels are not asked
    sized         the graph with the shapes for which it is written, and which of them may vary
    folded        what depends on parameters alone is computed here, by our own ops
    written       a converter for each other node
    model_of      the protocol buffers

That a batch may have any size is found out by looking: the graph is sized twice, for two batches,
and what differs varies.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from d2lmini.base import MXNetError
from d2lmini.device.errstate import run_quietly
from d2lmini.graph.ir import Entry, Inputs, Node, compute, interpret, topological, transform
from d2lmini.graph.typed import infer_types
from d2lmini.onnx import elementwise, layers, recurrent, shapes
from d2lmini.onnx.shapes import first
from d2lmini.onnx.writer import Sizes, Writer, converter_of, package, tensor_type
from d2lmini.ops.core import registry
from d2lmini.ops.spec import Spec
from d2lmini.symbol.mxnet_ops import in_mxnet_words
from d2lmini.symbol.symbol import Symbol

#: The modules with the converters.
FAMILIES = (elementwise, shapes, layers, recurrent)

#: Version of the operators -> version of the file format that came with it.
IR_VERSIONS = {13: 7, 14: 7, 15: 8, 16: 8, 17: 8, 18: 8}

#: Ops that look at nothing but a shape.
_OF_SHAPE = ("zeros_like", "ones_like", "shape_array", "size_array")

#: Training's last op -> what it shows.
_SHOWN: dict[str, tuple[str, dict[str, Any]]] = {
    "LinearRegressionOutput": ("_copy", {}),
    "MAERegressionOutput": ("_copy", {}),
    "LogisticRegressionOutput": ("sigmoid", {}),
}


def export(
    symbol: Symbol, params: Mapping[str, np.ndarray], inputs: Mapping[str, tuple[Sizes, Any]],
    opset: int = 17, producer: str = "d2lmini",
) -> Any:  # fmt: skip
    """The ONNX model of a Symbol.

    params: values of its parameters and auxiliary states by name. inputs: (shape, dtype) of its
    other variables; a size of None may be any. MXNetError, naming node and op, for what cannot be
    said in ONNX; ImportError without the package `onnx`.
    """
    package()
    if opset not in IR_VERSIONS:
        raise MXNetError(f"opset {opset} is not one of {', '.join(map(str, IR_VERSIONS))}")
    entries = predicting(in_mxnet_words(symbol._entries, others=True))
    w = Writer(opset)
    outputs = infer_sizes(w, entries, params, inputs)
    names = write_nodes(w, outputs, params)
    shown = _rename_outputs(w, [names[entry] for entry in outputs], symbol.list_outputs())
    return model_of(w, outputs, shown, inputs, producer)


def predicting(entries: Sequence[Entry]) -> list[Entry]:
    """The graph without the losses that Symbols of training end in."""

    def rule(node: Node, inputs: Inputs) -> Node | None:
        if node.op is None:
            return None
        if node.op.name == "SoftmaxOutput":
            name, words = "softmax", {"axis": -1 if node.attrs["preserve_shape"] else 1}
        elif node.op.name in _SHOWN:
            name, words = _SHOWN[node.op.name]
        else:
            return None
        op = registry[name]
        attrs = op.bind_attributes((), dict(words), 0)
        return node.replace(op=op, inputs=inputs[:1], attrs=attrs, specs=None)

    return transform(entries, rule)


def infer_sizes(
    w: Writer, entries: Sequence[Entry], params: Mapping[str, np.ndarray],
    inputs: Mapping[str, tuple[Sizes, Any]],
) -> list[Entry]:  # fmt: skip
    """The typed graph; `w` learns which sizes vary."""

    def at(batch: int) -> list[Entry]:
        specs = {}
        for node in topological(entries):
            if node.op is not None:
                continue
            if node.name in params:
                specs[node] = Spec(params[node.name].shape, params[node.name].dtype)
            elif node.name in inputs:
                shape, dtype = inputs[node.name]
                specs[node] = Spec(tuple(batch if n is None else n for n in shape), dtype)
            else:
                raise MXNetError(
                    f"export to ONNX: variable {node.name!r} is neither a parameter nor an input: "
                    "give its value or its shape"
                )
        return infer_types(entries, specs, training=False)[1]

    if not any(None in shape for shape, _ in inputs.values()):
        return at(0)
    try:
        outputs, others = at(2), at(3)
    except MXNetError as problem:
        raise MXNetError(
            f"export to ONNX: this net does not take a batch of any size: {problem}"
        ) from None
    for one, other in zip(topological(outputs), topological(others), strict=True):
        for i, (a, b) in enumerate(zip(one.specs or (), other.specs or ())):
            if a.shape != b.shape:
                sizes = zip(a.shape, b.shape, strict=True)
                w.varying[one, i] = tuple(n if n == m else None for n, m in sizes)
    return outputs


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
            if node.name in params:
                return [w.values.setdefault((node, 0), params[node.name])]
            names[node, 0] = node.name
            return [None]
        known = all(e is None or e in w.values for e in node.inputs)
        if node.op.name in _OF_SHAPE and not w.varies(node):
            e = first(node)
            inputs = [np.zeros(w.spec(e).shape, w.spec(e).dtype)]
            known = e not in w.varying
        if known and not node.op.random and not w.varies(node):
            values = fold(node, inputs)
            w.values.update({(node, i): y for i, y in enumerate(values)})
            return values
        converter = converter_of(node.op)
        if converter is None:
            raise w.problem("this op has no converter to ONNX")
        made = converter(w, node, *("" if e is None else name_of(e) for e in node.inputs))
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
    inputs: Mapping[str, tuple[Sizes, Any]], producer: str,
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
        helper.make_tensor_value_info(name, tensor_type(w.spec(entry).dtype), w.sizes(entry))
        for name, entry in zip(shown, outputs, strict=True)
    ]
    constants = [onnx.numpy_helper.from_array(a, n) for n, a in w.arrays.items() if n in used]
    graph = helper.make_graph(nodes, "net", ins, outs, constants)
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", w.opset)], producer_name=producer,
        ir_version=IR_VERSIONS[w.opset],
    )  # fmt: skip
    try:
        onnx.checker.check_model(model, full_check=True)
    except Exception as problem:  # its errors share no class of their own
        raise MXNetError(f"export to ONNX: the model would not be valid: {problem}") from problem
    return model

"""From a Symbol to an ONNX model: what is known is computed, the rest is said in ONNX's operators.

The steps, each a function below:

    typed         the graph with the shapes for which it is written, and formulas for composed ops;
                  a loss at the end becomes what it shows when a net predicts, without its label
    write_nodes   what depends on parameters and shapes alone is computed here, by our own ops; a
                  converter for each other node
    model_of      the protocol buffers
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from d2lmini.base import MXNetError
from d2lmini.device.errstate import run_quietly
from d2lmini.graph.ir import Entry, Node, compute, interpret, spec_of, topological
from d2lmini.graph.typed import infer_types
from d2lmini.onnx import converters  # noqa: F401  (it registers them)
from d2lmini.onnx.formulas import write_formulas
from d2lmini.onnx.writer import Writer, converter_of, package, tensor_type
from d2lmini.ops.spec import Spec
from d2lmini.symbol.infer import shapes_of
from d2lmini.symbol.json_format import in_mxnet_words
from d2lmini.symbol.symbol import Symbol

#: The version of ONNX's operators, and of the file format that came with it.
OPSET, IR_VERSION = 17, 8

#: Ops that look at nothing but a shape.
OF_SHAPE = ("zeros_like", "ones_like", "shape_array", "size_array")

Arrays = Mapping[str, np.ndarray]

#: Shape and dtype of each input by name.
Inputs = Mapping[str, Spec]


def export(symbol: Symbol, params: Arrays, inputs: Inputs) -> Any:
    """The ONNX model of a net, with the values of its parameters and auxiliary states by name.

    inputs: the specs of its other variables. MXNetError, naming node and op, for what cannot be
    said in ONNX; ImportError without the package `onnx`.
    """
    package()
    return model_of(
        write_nodes(typed(symbol, params, inputs), params, symbol.list_outputs()), inputs
    )


def labels_of(entries: Sequence[Entry]) -> set[Node]:
    """The variables that only training asks for: what losses compare their data with."""
    losses = [node for node in topological(entries) if node.op is not None and node.op.is_loss]
    return {e[0] for node in losses for e in node.inputs[1:] if e is not None and e[0].op is None}


def typed(symbol: Symbol, params: Arrays, inputs: Inputs) -> list[Entry]:
    """The graph with its shapes."""
    entries = in_mxnet_words(symbol._entries, others=True)
    labels = labels_of(entries)
    specs = {}
    for node in topological(entries):
        if node.op is not None:
            continue
        if node.name in params:
            specs[node] = Spec(params[node.name].shape, params[node.name].dtype)
        elif node.name in inputs:
            specs[node] = inputs[node.name]
        elif node not in labels:
            raise MXNetError(
                f"export to ONNX: variable {node.name!r} is neither a parameter nor an input: "
                "give its value or its shape"
            )
    shapes = shapes_of(entries, {node: spec.shape for node, spec in specs.items()})
    specs |= {n: Spec(shapes[n, 0] or (), "float32") for n in labels if n not in specs}
    return write_formulas(infer_types(entries, specs, training=False)[1])


def write_nodes(outputs: Sequence[Entry], params: Arrays, wanted: Sequence[str]) -> Writer:
    """Convert every node. wanted: the names of the outputs."""
    w = Writer()
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
        if node.op.name in OF_SHAPE:
            inputs, known = [np.zeros(*w.x)], True
        if known and not node.op.random:
            values = [np.asarray(y) for y in run_quietly(lambda: compute(np, node, inputs))]
            w.values.update({(node, i): y for i, y in enumerate(values)})
            return values
        converter = converter_of(w, node)
        xs = ["" if e is None else name_of(e) for e in node.inputs]
        made = converter(w, node, *xs)
        made = made if isinstance(made, list) else [made]
        names.update({(node, i): name for i, name in enumerate(made)})
        return [None] * len(made)

    interpret(outputs, convert)
    # Outputs have the names that the Symbol has for them.
    taken = set(names.values())
    for i, (entry, name) in enumerate(zip(outputs, wanted)):
        name = f"{name}_again{i}" if name in taken else name
        w.nodes.append(("Identity", [name_of(entry)], [name], {}, name))
        w.outputs.append((name, spec_of(entry)))
        taken.add(name)
    return w


def model_of(w: Writer, inputs: Inputs) -> Any:
    """The model, checked by onnx's own checker."""
    onnx = package()
    helper = onnx.helper
    nodes = [
        helper.make_node(operator, given, results, name=f"{name}_{i}", **attrs)
        for i, (operator, given, results, attrs, name) in enumerate(w.nodes)
    ]
    used = {name for node in nodes for name in node.input}
    ins, outs = [
        [
            helper.make_tensor_value_info(name, tensor_type(spec.dtype), spec.shape)
            for name, spec in values
        ]
        for values in (inputs.items(), w.outputs)
    ]
    constants = [onnx.numpy_helper.from_array(a, n) for n, a in w.arrays.items() if n in used]
    graph = helper.make_graph(nodes, "net", ins, outs, constants)
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", OPSET)], producer_name="d2lmini",
        ir_version=IR_VERSION,
    )  # fmt: skip
    try:
        onnx.checker.check_model(model, full_check=True)
    except Exception as problem:  # its errors share no class of their own
        raise MXNetError(f"export to ONNX: the model would not be valid: {problem}") from problem
    return model

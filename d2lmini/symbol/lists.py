"""Parts of a graph by name: its arguments, auxiliary states, outputs, labels.

Variables are *arguments*, except for *auxiliary states*, which ops mutate, such as the moving mean
and variance of BatchNorm. All lists are in depth-first order, left inputs first, as in MXNet.

>>> from d2lmini import sym
>>> net = sym.BatchNorm(sym.FullyConnected(sym.var("x"), num_hidden=2, name="fc"), name="bn")
>>> arguments, states = variables(net._entries)
>>> [node.name for node in arguments], [node.name for node in states]
(['x', 'fc_weight', 'fc_bias', 'bn_gamma', 'bn_beta'], ['bn_moving_mean', 'bn_moving_var'])
>>> output_name(net._entry)
'bn_output'
"""

from __future__ import annotations

from collections.abc import Sequence

from d2lmini.graph.ir import Entry, Inputs, Node, topological, transform
from d2lmini.symbol.naming import HIDDEN, text_of


def output_name(entry: Entry) -> str:
    """The name of an output: the variable's, else 'NODE_output', or 'NODE_output1' of several."""
    node, i = entry
    if node.op is None:
        return node.name
    names = node.op.output_names
    if i < len(names):
        return f"{node.name}_{names[i]}"
    return f"{node.name}_output" if node.n_outputs == 1 else f"{node.name}_output{i}"


def monitored_inputs(node: Node) -> list[str]:
    """The names under which monitors report the inputs of a node, as in MXNet: 'fc_data', 'c_arg0'
    for any number of inputs, 'relu0_input0' for the only input of an elementwise op."""
    names: Sequence[str] = node.op.input_names
    if node.op.variadic:
        names = [f"arg{i}" for i in range(len(node.inputs))]
    elif node.op.elementwise and len(names) == 1:
        names = ["input0"]
    return [f"{node.name}_{name}" for name in names]


# -- variables -------------------------------------------------------------------------------------


def variables(entries: Sequence[Entry]) -> tuple[list[Node], list[Node]]:
    """The arguments and the auxiliary states of a graph."""
    nodes = topological(entries)
    changed: set[Node] = set()
    for node in nodes:
        names = None if node.op is None else node.op.auxiliary
        if names is None:
            changed.update(entry[0] for entry in node.mutated)
        else:
            given = zip(node.op.input_names, node.inputs)  # type: ignore[union-attr]
            changed.update(entry[0] for name, entry in given if entry and name in names)
    found = [node for node in nodes if node.op is None]
    return [node for node in found if node not in changed], [n for n in found if n in changed]


def substitute(
    entries: Sequence[Entry], given: dict[Node, Entry], name: str | None = None
) -> tuple[Entry, ...]:
    """The same graph with other entries in place of some variables, or of other nodes with one
    output. Nodes that do not depend on these are shared. name: the new name of the node of the
    first output."""
    head = entries[0][0] if name else None

    def rule(node: Node, inputs: Inputs) -> Node | None:
        if node is head and node.op is not None:
            return node.replace(name=name, inputs=inputs, specs=None)
        return None if inputs is node.inputs else node.replace(inputs=inputs, specs=None)

    values = {(node, 0): entry for node, entry in given.items()}
    return tuple(transform(entries, rule, values))


# -- labels and attributes -------------------------------------------------------------------------


def attribute_texts(node: Node, always: Sequence[str] = ()) -> dict[str, str]:
    """Attributes of a node as strings: those that the user gave, those that differ from their
    defaults, and those in `always`."""
    op = node.op
    if op is None:
        return {}
    if op.mxnet_attributes is not None:
        return {k: text_of(v) for k, v in op.mxnet_attributes[0](node.attrs).items()}
    # Compare texts: NumPy considers float64 equal to None.
    texts = {k: text_of(node.attrs[k]) for k in op.attr_names}
    shown = {*always, *op.required, *node.given}
    found = {k: v for k, v in texts.items() if k in shown or v != text_of(op.defaults[k])}
    found |= node.given
    if op.counted:
        found["num_args"] = str(len(node.inputs))
    return found


def attributes(node: Node) -> dict[str, str]:
    """Attributes and labels of a node as strings. A label with a meaning in MXNet appears under
    both names: 'lr_mult' and '__lr_mult__'."""
    hidden = {f"__{key}__": value for key, value in node.labels.items() if key in HIDDEN}
    return {**attribute_texts(node), **node.labels, **hidden}

"""Symbols as text and files, in MXNet 1.x's own format, readable and writable by both libraries.

>>> from d2lmini import sym
>>> fc = sym.FullyConnected(sym.var("data"), num_hidden=2, no_bias=True, name="fc")
>>> text = tojson(fc)
>>> import json
>>> json.loads(text)["nodes"][2] == {
...     "op": "FullyConnected", "name": "fc", "attrs": {"num_hidden": "2", "no_bias": "True"},
...     "inputs": [[0, 0, 0], [1, 0, 0]]}
True
>>> load_json(text)
<Symbol fc>

A file is a table of nodes, each after its inputs. 'op' is 'null' for a variable; 'attrs' holds
attributes and labels, all as strings, without those that equal MXNet's defaults; an input is the
number of a node, of its output, and of the writes to it before (BatchNorm changes its moving mean).
'arg_nodes' are the variables, 'heads' the outputs, and 'node_row_ptr' counts outputs, including
hidden ones. Parameters have a file of their own, see `nd.save` and `HybridBlock.export`.

A file is untrusted: nothing in it is executed, and any error is an MXNetError that names the file
and the node.

Convert a graph to ops that MXNet has.

Most ops are the same in MXNet, some under another name (`op.mxnet_name`). Some of ours fuse what
takes several ops in MXNet (a loss from logits, `x[1, ::2]` of a traced `forward`): these declare an
equivalent (`op.written_in_mxnet`), which replaces them. An op without an equivalent, such as the
ops of our gradients, is an error.

>>> from d2lmini import sym
>>> from d2lmini.graph.ir import topological
>>> gap = sym._contrib_isnan(sym.var("x"), name="gap")
>>> [node.op.name for node in topological(in_mxnet_words(gap._entries)) if node.op]
['_not_equal']
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import accumulate
from os import PathLike, fspath
from typing import Any

from d2lmini.base import MXNetError
from d2lmini.device import files
from d2lmini.graph.ir import Entry, Inputs, Node, Replacement, topological, transform
from d2lmini.ops.core import Op, registry
from d2lmini.ops.facts import MISFITS
from d2lmini.symbol import naming
from d2lmini.symbol.naming import Prefix, check_labels, decode_label, text_of
from d2lmini.symbol.symbol import Symbol

#: The version of MXNet with this format: 1.9.1.
VERSION = 10901


def save(symbol: Symbol, fname: str | PathLike[str], remove_amp_cast: bool = True) -> None:
    """Write `symbol` to a file that MXNet and `load` can read; see `tojson` for errors."""
    files.write(fname, tojson(symbol, remove_amp_cast))


def load(fname: str | PathLike[str]) -> Symbol:
    """The Symbol in a file; OSError if the file cannot be read, else errors as for `load_json`."""
    path = fspath(fname)  # open(3) would read a file descriptor
    with open(path, encoding="utf-8", errors="replace") as file:
        return _read(file.read(), f"load: {path!r}")


# -- writing ---------------------------------------------------------------------------------------


def tojson(symbol: Symbol, remove_amp_cast: bool = True) -> str:
    """`symbol` as text. remove_amp_cast: drop the casts that mixed precision inserted.

    MXNetError, with the node's name, for an op that MXNet does not have.
    """
    entries = in_mxnet_words(symbol._entries, remove_amp_cast)
    nodes = topological(entries)
    number = {node: i for i, node in enumerate(nodes)}
    changes: dict[Entry, int] = {}
    written = []
    for node in nodes:
        for entry in node.mutated:
            changes[entry] = changes.get(entry, 0) + 1
        op = node.op
        attrs = {} if op is None else naming.attribute_texts(node, op.always_written)
        for label, text in sorted(node.labels.items()):
            attrs[naming.encode_label(label, op is not None)] = text_of(text)
        record = {"op": op.mxnet_name if op else "null", "name": node.name, "attrs": attrs}
        record["inputs"] = [[number[n], i, changes.get((n, i), 0)] for n, i in node.sources]
        written.append({key: value for key, value in record.items() if value or key != "attrs"})
    rest = {
        "arg_nodes": [i for i, node in enumerate(nodes) if node.op is None],
        "node_row_ptr": [0, *accumulate(_outputs_in_mxnet(node) for node in nodes)],
        "heads": [[number[n], i, changes.get((n, i), 0)] for n, i in entries],
        "attrs": {"mxnet_version": ["int", VERSION]},
    }
    # One line per node.
    lines = ['"nodes": [\n    ' + ",\n    ".join(map(json.dumps, written)) + "\n  ]"]
    lines += [f"{json.dumps(key)}: {json.dumps(value)}" for key, value in rest.items()]
    return "{\n  " + ",\n  ".join(lines) + "\n}"


def _outputs_in_mxnet(node: Node) -> int:
    """Number of outputs of the node in MXNet, hidden ones included."""
    count = node.op and node.op.mxnet_outputs
    return count(node.attrs) if callable(count) else count or node.n_outputs


# -- reading ---------------------------------------------------------------------------------------


#: More outputs than any op has; a file that claims more is damaged.
_MOST_OUTPUTS = 1 << 16

#: MXNet's attributes that we do not need: counted inputs, number types, outdated attributes.
_UNSAID = frozenset({"num_args", "is_int", "ctx", "keep_highest", "target_shape"})


def load_json(text: str) -> Symbol:
    """The Symbol that `tojson` or MXNet wrote.

    MXNetError for text in another format, for an op that d2lmini or MXNet does not have, and for
    attributes and inputs that do not fit, each with the node's name.
    """
    return _read(text, "load_json")


def _read(text: str, where: str) -> Symbol:
    """The Symbol in a text; `where` begins the messages of errors."""
    try:
        table = json.loads(text)
    except (ValueError, RecursionError) as problem:
        raise MXNetError(f"{where}: this is not JSON: {problem}") from None
    if not isinstance(table, dict) or "nodes" not in table or "heads" not in table:
        raise MXNetError(f"{where}: this JSON is not a Symbol: it has no 'nodes' or no 'heads'")
    nodes: list[Node] = []
    row: Any = None
    try:
        for row in table["nodes"]:
            nodes.append(_node(row, nodes))
        row = {"name": "heads"}
        heads = _entries(table["heads"], nodes)
        if not heads:
            raise ValueError("the Symbol has no outputs")
    except MISFITS as problem:
        name = row.get("name") if isinstance(row, dict) else row
        raise MXNetError(
            f"{where}: node {name!r:.300}, number {len(nodes)}, is not as MXNet writes it: "
            f"{problem!s:.300}"
        ) from None
    return Symbol(tuple(heads))


def _entries(inputs: Any, nodes: Sequence[Node]) -> list[Entry]:
    """[node, output] or [node, output, version] as entries of these nodes."""
    found = []
    for number, output, *_ in inputs:
        is_known = type(number) is type(output) is int and 0 <= number < len(nodes)
        if not is_known or not 0 <= output < nodes[number].n_outputs:
            raise ValueError(
                f"[{number!r}, {output!r}] is no [node, output] of the {len(nodes)} nodes before it"
            )
        found.append((nodes[number], output))
    return found


def _node(row: Any, nodes: Sequence[Node]) -> Node:
    """One row of the table."""
    kind, name = row["op"], row["name"]
    if not isinstance(name, str):
        raise TypeError(f"its name is {name!r}")
    inputs = _entries(row["inputs"], nodes)
    said: dict[str, str] = {**(row.get("attr") or {}), **(row.get("attrs") or {})}
    check_labels(said)
    if kind == "null":
        return Node(None, name, labels={decode_label(k): v for k, v in said.items()})
    op = registry.get(kind)
    if op is None or not op.in_mxnet:
        raise MXNetError(f"the op {kind!r} is none that d2lmini and MXNet have")
    labels = {decode_label(k): v for k, v in said.items() if _is_label(k)}
    words = {k: v for k, v in said.items() if not _is_label(k)}
    attrs = op.bind_attributes((), _in_our_words(op, words), 0)
    given = {k: v for k, v in words.items() if k in op.attr_set}
    node = Node(op, name, _in_places(op, inputs, attrs), attrs, labels=labels, given=given)
    if not 0 <= node.n_outputs <= _MOST_OUTPUTS:
        raise MXNetError(f"its attributes ask for {node.n_outputs} outputs")
    node.mutated  # noqa: B018
    return node


def _is_label(key: str) -> bool:
    return key.startswith("__") or key.endswith(naming.HIDDEN)


def _in_our_words(op: Op, words: dict[str, str]) -> dict[str, Any]:
    if op.mxnet_attributes is not None:
        return op.mxnet_attributes[1](words)
    return {
        k: v
        for k, v in words.items()
        if (k in op.attr_set or k not in _UNSAID)
        and not (v == "None" and op.defaults.get(k, v) is None)
    }


def _in_places(op: Op, inputs: list[Entry], attrs: dict[str, Any]) -> tuple[Entry | None, ...]:
    """The inputs in the positions that the op expects: MXNet lists only inputs in use."""
    names = op.input_names
    if op.variadic and inputs:
        return tuple(inputs)
    optional = op.optional(attrs)
    used = [n for i, n in enumerate(names) if i < op.n_required or n in optional]
    if op.variadic or not len(used) <= len(inputs) <= len(names):
        raise MXNetError(f"{op.name} takes {len(used) or 'one or more'} inputs, got {len(inputs)}")
    if len(inputs) > len(used):
        return tuple(inputs)
    given = dict(zip(used, inputs))
    return tuple([given.get(n) for n in names[: names.index(used[-1]) + 1]]) if used else ()


def _reduce(self: Symbol) -> tuple[Any, ...]:
    """For pickles: the text form, as in files."""
    return load_json, (tojson(self, remove_amp_cast=False),)


Symbol.tojson = tojson  # type: ignore[attr-defined]
Symbol.save = save  # type: ignore[attr-defined]
Symbol.__reduce__ = _reduce  # type: ignore[method-assign,assignment]


# -- a graph in MXNet's ops ------------------------------------------------------------------------


def in_mxnet_words(
    entries: Sequence[Entry], remove_amp_cast: bool = False, others: bool = False
) -> list[Entry]:
    """The graph behind `entries` in ops that MXNet has.

    remove_amp_cast: drop casts that mixed precision inserted. For an op without an equivalent in
    MXNet, MXNetError naming the op and the node; with `others` the op stays.
    """

    def rule(node: Node, inputs: Inputs) -> Replacement | None:
        if node.op is None:
            return None
        if node.op.name in ("amp_cast", "amp_multicast") and remove_amp_cast:
            return inputs
        if node.op.mxnet_rule is not None:
            return [_written_out(node, inputs)]
        if not node.op.in_mxnet and not others:
            raise MXNetError(
                f"node {node.name!r}: MXNet has no op {node.op.name!r}, which is d2lmini's own, so "
                "this graph cannot be written to its file format; use ops of MXNet's instead"
            )
        return None if inputs is node.inputs else node.replace(inputs=inputs, specs=None)

    return transform(entries, rule)


def _written_out(node: Node, inputs: Sequence[Entry | None]) -> Entry:
    """The nodes that replace one of our nodes; the last of them gets its name."""
    values = [None if entry is None else Symbol((entry,)) for entry in inputs]
    try:
        with Prefix(f"{node.name}_"):
            last = node.op.mxnet_rule(*values, **node.attrs)._entry[0]
    except MXNetError as problem:
        raise MXNetError(f"node {node.name!r}: {problem}") from None
    return Node(last.op, node.name, last.inputs, last.attrs, None, node.labels), 0

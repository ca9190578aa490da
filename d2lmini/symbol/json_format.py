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

Reading also accepts the form of older versions: attributes under 'param' and labels under 'attr',
inputs without a version, and omitted parameters that every op of the kind has.

A file is untrusted: each row is checked before it becomes a node, nothing in the file is executed,
and any error is an MXNetError that names the file and the node.

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
from collections.abc import Iterator, Sequence
from itertools import accumulate, count
from os import PathLike, fspath
from typing import Any, NoReturn

from d2lmini.base import MXNetError
from d2lmini.device import files
from d2lmini.graph.ir import Entry, Inputs, Node, Replacement, topological, transform
from d2lmini.ops.core import Op, registry
from d2lmini.ops.fluent import Fluent
from d2lmini.symbol.compose import initial_label
from d2lmini.symbol.lists import attribute_texts
from d2lmini.symbol.naming import HIDDEN, decode_label, encode_label, text_of
from d2lmini.symbol.symbol import Symbol

#: The version of MXNet with this format: 1.9.1.
VERSION = 10901


def save(symbol: Symbol, fname: str | PathLike[str], remove_amp_cast: bool = True) -> None:
    """Write `symbol` to a file that MXNet and `load` can read; see `tojson` for errors."""
    files.write(fname, tojson(symbol, remove_amp_cast))


def load(fname: str | PathLike[str]) -> Symbol:
    """The Symbol in a file; OSError if the file cannot be read, MXNetError if it is not text, other
    errors as for `load_json`."""
    with open(fspath(fname), encoding="utf-8") as file:  # open(3) would read a file descriptor
        try:
            text = file.read()
        except UnicodeDecodeError as problem:
            raise MXNetError(f"load: {fspath(fname)!r} is not JSON but bytes: {problem}") from None
    return _Reading(f"load: {fspath(fname)!r}").symbol(text)


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
        given = node.sources
        always = () if node.op is None else node.op.always_written
        record: dict[str, Any] = {
            "op": "null" if node.op is None else node.op.mxnet_name,
            "name": node.name,
            "attrs": {**attribute_texts(node, always), **_labels(node)},
            "inputs": [[number[n], i, changes.get((n, i), 0)] for n, i in given],
        }
        if not record["attrs"]:
            del record["attrs"]
        written.append(record)
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


def _labels(node: Node) -> dict[str, str]:
    on_op = node.op is not None
    return {encode_label(k, on_op): text_of(v) for k, v in sorted(node.labels.items())}


def _outputs_in_mxnet(node: Node) -> int:
    """Number of outputs of the node in MXNet, hidden ones included."""
    count = None if node.op is None else node.op.mxnet_outputs
    if count is None:
        return node.n_outputs
    return count(node.attrs) if callable(count) else count


# -- reading ---------------------------------------------------------------------------------------


#: More outputs than any op has; a file that claims more is damaged.
_MOST_OUTPUTS = 1 << 16


def load_json(text: str) -> Symbol:
    """The Symbol that `tojson` or MXNet wrote.

    MXNetError for text in another format, for an op that d2lmini or MXNet does not have, and for
    attributes and inputs that do not fit, each with the node's name.
    """
    if not isinstance(text, str):
        raise TypeError(f"load_json: expected the text of a Symbol, got {type(text).__name__}")
    return _Reading("load_json").symbol(text)


class _Reading:
    """Converts one table to nodes. label: the caller and the file, for error messages."""

    def __init__(self, label: str):
        self.label = label
        self.nodes: list[Node] = []

    def fail(self, text: str) -> NoReturn:
        raise MXNetError(f"{self.label}: {text}")

    def fail_here(self, text: str) -> NoReturn:
        self.fail(f"node number {len(self.nodes)} is not as MXNet writes it: {text}")

    def expect(self, kind: type, value: Any, what: str) -> Any:
        """`value`, after a check of its type."""
        if not isinstance(value, kind):
            self.fail_here(f"{what} is {_brief(value)}, expected {_KINDS[kind]}")
        return value

    def symbol(self, text: str) -> Symbol:
        try:
            table = json.loads(text)
        except (ValueError, RecursionError) as problem:
            self.fail(f"this is not JSON: {problem}")
        if not isinstance(table, dict) or "nodes" not in table or "heads" not in table:
            self.fail("this JSON is not a Symbol: it has no 'nodes' or no 'heads'")
        for record in self.expect(list, table["nodes"], "the table 'nodes'"):
            self.nodes.append(self.node(self.expect(dict, record, "it")))
        heads = self.entries(table["heads"], "'heads'")
        if not heads:
            self.fail("this Symbol has no outputs: 'heads' is empty")
        return Symbol(tuple(heads))

    def entries(self, inputs: Any, what: str) -> list[Entry]:
        """[node, output] or [node, output, version] as entries of existing nodes."""
        found = []
        for input_ in self.expect(list, inputs, what):
            numbers = self.expect(list, input_, f"an entry of {what}")
            if not 2 <= len(numbers) <= 3 or any(type(n) is not int or n < 0 for n in numbers):
                self.fail_here(
                    f"an entry of {what} is {_brief(numbers)}, expected [node, output, version]"
                )
            number, output = numbers[:2]
            if number >= len(self.nodes):
                self.fail_here(
                    f"{what} names node {_brief(number)}, of which only {len(self.nodes)} come "
                    "before it"
                )
            node = self.nodes[number]
            if output >= node.n_outputs:
                self.fail(
                    f"{what} of node number {len(self.nodes)} asks for output {_brief(output)} of "
                    f"{_brief(node.name)}, which has {node.n_outputs}"
                )
            found.append((node, output))
        return found

    def node(self, record: dict[str, Any]) -> Node:
        """One row of the table."""
        name = self.expect(str, record.get("name"), "its 'name'")
        kind = self.expect(str, record.get("op"), f"'op' of {_brief(name)}")
        inputs = self.entries(record.get("inputs"), f"'inputs' of {_brief(name)}")
        said: dict[str, str] = {}
        for key in ("attr", "attrs", "param"):
            said |= self.expect(dict, record.get(key) or {}, f"{key!r} of {_brief(name)}")
        for key, value in said.items():
            self.expect(str, value, f"attribute {_brief(key)} of {_brief(name)}")
        if kind == "null":
            return Node(None, name, labels={decode_label(k): v for k, v in said.items()})
        op = registry.get(kind)
        if op is None or not op.in_mxnet:
            self.fail(
                f"node {_brief(name)} is of the op {_brief(kind)}, which d2lmini does not have"
            )
        labels = {decode_label(k): v for k, v in said.items() if _is_label(k)}
        words = {k: v for k, v in said.items() if not _is_label(k)}
        try:
            attrs = op.bind_attributes((), _in_our_words(op, words), 0)
            given = {k: v for k, v in words.items() if k in op.attr_set}
            places = _in_places(op, name, inputs, attrs)
            node = Node(op, name, places, attrs, labels=labels, given=given)
            count = node.n_outputs
            node.mutated  # noqa: B018
        except (TypeError, ValueError, LookupError, ArithmeticError, MXNetError) as problem:
            self.fail(f"node {_brief(name)}: {_brief(str(problem), plain=True)}")
        if not 0 <= count <= _MOST_OUTPUTS:
            self.fail(f"node {_brief(name)}: its attributes ask for {_brief(count)} outputs")
        return node


_KINDS: dict[type, str] = {list: "a list", dict: "an object", str: "a text"}


def _brief(value: Any, plain: bool = False) -> str:
    """A value from a file, shortened for a message."""
    text = value if plain else repr(value)
    return text if len(text) <= 300 else f"{text[:200]}... ({len(text)} characters)"


def _is_label(key: str) -> bool:
    return key.startswith("__") or key.endswith(HIDDEN)


#: MXNet's attributes that we do not need: counted inputs, number types, outdated attributes.
_UNSAID = frozenset({"num_args", "is_int", "ctx", "keep_highest", "target_shape"})


def _in_our_words(op: Op, words: dict[str, str]) -> dict[str, Any]:
    if op.mxnet_attributes is not None:
        return op.mxnet_attributes[1](words)
    return {
        k: v
        for k, v in words.items()
        if (k in op.attr_set or k not in _UNSAID)
        and not (v == "None" and op.defaults.get(k, v) is None)
    }


def _in_places(
    op: Op, name: str, inputs: list[Entry], attrs: dict[str, Any]
) -> tuple[Entry | None, ...]:
    """The inputs in the positions that the op expects. MXNet lists only inputs in use; an old file
    also omits parameters, which become variables."""
    if op.variadic:
        if not inputs:
            raise MXNetError(f"{op.name} takes one input or more, got none")
        return tuple(inputs)
    names = op.input_names
    if len(inputs) > len(names):
        raise MXNetError(f"{op.name} takes {len(names)} inputs, got {len(inputs)}")
    optional = op.optional(attrs)
    used = [n for i, n in enumerate(names) if i < op.n_required or n in optional]
    if len(inputs) > len(used):
        return tuple(inputs)
    new = [
        (Node(None, f"{name}_{arg}", labels=initial_label(op, arg)), 0)
        for arg in used[len(inputs) :]
    ]
    placed: list[Entry | None] = [None] * len(names)
    for arg, entry in zip(used, [*inputs, *new], strict=True):
        placed[names.index(arg)] = entry
    while placed and placed[-1] is None:
        placed.pop()
    return tuple(placed)


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
    op = node.op
    assert op is not None and op.mxnet_rule is not None
    numbers = count()
    values = [None if entry is None else _Value(entry, node, numbers) for entry in inputs]
    try:
        last = op.mxnet_rule(*values, **node.attrs).entry[0]
    except MXNetError as problem:
        raise MXNetError(f"node {node.name!r}: {problem}") from None
    return Node(last.op, node.name, last.inputs, last.attrs, None, node.labels), 0


class _Value(Fluent):
    """The value type on which a `written_in_mxnet` rule computes: an entry of the nodes that
    replace `node`, which are named after it and numbered."""

    __slots__ = ("entry", "node", "numbers")

    def __init__(self, entry: Entry, node: Node, numbers: Iterator[int]):
        self.entry = entry
        self.node = node
        self.numbers = numbers

    @staticmethod
    def _apply(op: Op, inputs: tuple, attrs: dict[str, Any], out: Any = None) -> _Value:
        node, numbers = inputs[0].node, inputs[0].numbers
        name = f"{node.name}_{op.name.strip('_')}{next(numbers)}"
        entries = tuple([None if x is None else x.entry for x in inputs])
        return _Value((Node(op, name, entries, attrs, None, node.labels), 0), node, numbers)

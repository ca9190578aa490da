"""Names of nodes: 'dot0', 'dot1', ... and, in a Block's scope, with its prefix.

>>> from d2lmini import sym
>>> from d2lmini.symbol.naming import NameManager, Prefix
>>> with NameManager():
...     sym.dot(sym.var("a"), sym.var("b")).name
'dot0'
>>> with Prefix("net_"):
...     sym.dot(sym.var("a"), sym.var("b"), name="product").name
'net_product'

After `mxnet.name`. `NameManager.current` is the innermost manager of this thread; outside all
scopes each thread has a manager of its own.

Attributes and labels of nodes: the scope of labels, and the texts that MXNet's files hold.

`AttrScope` gives labels to all variables and nodes made in it, such as their device group.
`AttrScope.current` is the innermost scope of this thread. After `mxnet.attribute`.

>>> from d2lmini import sym
>>> from d2lmini.symbol import AttrScope
>>> with AttrScope(ctx_group="first", lr_mult="0.1"):
...     w = sym.var("w")
>>> w.attr("lr_mult"), w.attr("ctx_group")
('0.1', 'first')

In a file every value is a string. Each op converts the strings back: `Op.bind_attributes` converts
strings as it does a user's words.

>>> import numpy as np
>>> [text_of(v) for v in (True, None, 3, 1e-05, (5, 5), (2,), (None, 1), np.dtype("float32"))]
['True', 'None', '3', '1e-05', '(5, 5)', '(2,)', '(None, 1)', 'float32']

Labels, which users attach to nodes, share one table with the attributes there. Labels with a
meaning in MXNet are written between double underscores. On a node with an op all other labels are,
too, since an op accepts no unknown attribute:

>>> encode_label("lr_mult", False), encode_label("note", False), encode_label("note", True)
('__lr_mult__', 'note', '__note__')
>>> decode_label("__lr_mult__"), decode_label("__shape__")
('lr_mult', '__shape__')

Variables are *arguments*, except for *auxiliary states*, which ops mutate, such as the moving mean
and variance of BatchNorm. All lists are in depth-first order, left inputs first, as in MXNet.

>>> net = sym.BatchNorm(sym.FullyConnected(sym.var("x"), num_hidden=2, name="fc"), name="bn")
>>> arguments, states = variables(net._entries)
>>> [node.name for node in arguments], [node.name for node in states]
(['x', 'fc_weight', 'fc_bias', 'bn_gamma', 'bn_beta'], ['bn_moving_mean', 'bn_moving_var'])
>>> output_name(net._entry)
'bn_output'
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from d2lmini.base.scopes import Scope, Undo, swap
from d2lmini.graph.ir import Entry, Inputs, Node, mutated_by, topological, transform
from d2lmini.ops.elementwise import FAMILIES


class Current(threading.local):
    """The attribute `current` of a class of scopes: the scope of this thread, at first one of its
    own. Subclasses share it."""

    def __init__(self, kind: type):
        self.scope = kind()

    def __get__(self, scope: Any, kind: type) -> Any:
        return self.scope


class NameManager(Scope):
    """Names by kind and number. A new scope starts its own count."""

    current: Any

    def __init__(self) -> None:
        self._counter: dict[str, int] = {}

    def get(self, name: str | None, hint: str) -> str:
        """`name` itself, or if None the next name of the kind `hint`."""
        return name or next_name(self._counter, hint)

    def _begin(self, undo: Undo) -> NameManager:
        swap(undo, vars(NameManager)["current"], "scope", self)
        return self


NameManager.current = Current(NameManager)


def next_name(counter: dict[str, int], hint: str) -> str:
    """The next name of the kind `hint`."""
    number = counter.get(hint, 0)
    counter[hint] = number + 1
    return f"{hint}{number}"


class Prefix(NameManager):
    """Puts `prefix` before every name, including given names."""

    def __init__(self, prefix: str):
        super().__init__()
        self._prefix = prefix

    def get(self, name: str | None, hint: str) -> str:
        """The name, or the next one of the kind `hint`, after the prefix."""
        return self._prefix + super().get(name, hint)


# -- names of nodes made by operators ----------------------------------------------------------

#: Op -> name of nodes that operators make, where it differs from the op's own name: `a + b` is
#: '_plus0', `a + 1` is '_plusscalar0'; but `a == 1` is '_equal_scalar0' and `2 ** a` is
#: '_rpower_scalar0'.
OPERATOR_HINTS = {
    **{f.broadcast.name: f.scalar.name.removesuffix("_scalar") for f in FAMILIES.values()},
    **{
        op.name: op.name.replace("_scalar", "scalar")
        for f in FAMILIES.values()
        if f.mxnet and not f.truth
        for op in (f.scalar, f.reflected)
        if op.name != "_rpower_scalar"
    },
}


def operator_hint(name: str) -> str:
    """The name, without its number, of a node of the op `name` that an operator made."""
    return OPERATOR_HINTS.get(name) or name.lower()


# -- labels and attributes -------------------------------------------------------------------------


#: Labels that MXNet stores as '__lr_mult__', ... while users write and read 'lr_mult', ...
HIDDEN = ("ctx_group", "lr_mult", "wd_mult", "force_mirroring", "mirror_stage")


def text_of(value: Any) -> str:
    """An attribute's value as a string."""
    if isinstance(value, (tuple, list)):
        parts = [text_of(v) for v in value]
        return f"({parts[0]},)" if len(parts) == 1 else f"({', '.join(parts)})"
    if isinstance(value, (np.dtype, type)):
        return np.dtype(value).name
    return str(value.item() if isinstance(value, np.generic) else value)


def encode_label(name: str, on_op: bool) -> str:
    """The key of a label in a file."""
    if name.startswith("__") or not (on_op or name in HIDDEN):
        return name
    return f"__{name}__"


def decode_label(key: str) -> str:
    """The name of a label, from its key in a file."""
    plain = key[2:-2] if is_label(key) else ""
    return plain if plain in HIDDEN else key


def is_label(key: str) -> bool:
    """True for '__shape__': a label, not an attribute of an op."""
    return key.startswith("__") and key.endswith("__")


def check_labels(given: Mapping[str, Any]) -> None:
    """ValueError for values that are not strings."""
    for name, value in given.items():
        if not isinstance(value, str):
            raise ValueError(f"attributes are strings, got {name}={value!r}")


class AttrScope(Scope):
    """Labels, as strings by name (ValueError for others). Scopes nest; the inner value wins."""

    current: Any

    def __init__(self, **labels: str):
        check_labels(labels)
        self._attr = labels

    def get(self, labels: Mapping[str, str] | None) -> dict[str, str]:
        """The labels of this scope, updated with `labels`."""
        return {**self._attr, **(labels or {})}

    def _begin(self, undo: Undo) -> AttrScope:
        swap(undo, self, "_attr", {**AttrScope.current._attr, **self._attr})
        swap(undo, vars(AttrScope)["current"], "scope", self)
        return self


AttrScope.current = Current(AttrScope)


def labels_of(given: Mapping[str, Any]) -> dict[str, str]:
    """Convert a user's labels to the form that nodes keep: labels with a meaning in MXNet under
    their plain names. ValueError for values that are not strings."""
    check_labels(given)
    return {decode_label(name): value for name, value in given.items()}


# -- names of outputs ------------------------------------------------------------------------------


def output_name(entry: Entry) -> str:
    """The name of an output: the variable's, else 'NODE_output', or 'NODE_output1' of several."""
    node, i = entry
    if node.op is None:
        return node.name
    names = node.op.output_names
    if i < len(names):
        return f"{node.name}_{names[i]}"
    return f"{node.name}_output" if node.n_outputs == 1 else f"{node.name}_output{i}"


# -- parts of a graph ------------------------------------------------------------------------------


def variables(entries: Sequence[Entry]) -> tuple[list[Node], list[Node]]:
    """The arguments and the auxiliary states of a graph."""
    nodes = topological(entries)
    changed = mutated_by(nodes)
    for node in nodes:
        if node.op is not None and node.op.auxiliary:
            given = zip(node.op.input_names, node.inputs)
            changed.update(entry[0] for n, entry in given if entry and n in node.op.auxiliary)
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
    if op.writes_num_args:
        found["num_args"] = str(len(node.inputs))
    return found


def attributes(node: Node) -> dict[str, str]:
    """Attributes and labels of a node as strings. A label with a meaning in MXNet appears under
    both names: 'lr_mult' and '__lr_mult__'."""
    hidden = {f"__{key}__": value for key, value in node.labels.items() if key in HIDDEN}
    return {**attribute_texts(node), **node.labels, **hidden}

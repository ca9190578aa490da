"""Graphs of calls of ops: `Node`, and the functions that transform and interpret a graph.

A `Node` describes a call of an op: the op, its attributes, and the sources of its inputs. A node
without an op is a variable. A graph is given by its outputs, a list of *entries*; an entry is a
node and the index of one of its outputs. A Symbol is a list of entries. Tracing, compilation, lazy
evaluation and files all use graphs of these nodes.

>>> from d2lmini import sym
>>> with sym.NameManager():
...     y = sym.exp(sym.var("x") * 2)
>>> [node.name for node in topological(y._entries)]
['x', '_mulscalar0', 'exp0']

Nodes are never changed, so graphs share nodes. `transform` makes a new graph by a rule, which
returns the replacement of one node from the node and its new inputs:

>>> def drop_products(node, inputs):
...     return list(inputs) if node.op and node.op.name == "_mul_scalar" else None
>>> [node.name for node in topological(transform(y._entries, drop_products))]
['x', 'exp0']

`interpret` computes a value for each output of a graph; `apply` returns the values of one node:

>>> def depth(node, inputs):
...     return [1 + max(inputs, default=0)]
>>> interpret(y._entries, depth)
[3]

In a *typed* graph, such as `hybridize` records, every node has the shapes and dtypes of its outputs
(`specs`). Passes and the code generator work on typed graphs. No function here recurses, because a
graph may be deep.

**Constants** are values that are known when a graph is compiled. A constant is a node without
inputs; its one attribute holds the array. The op is no user's: it has no name in `nd` or `sym`, and
no file has it.

>>> import numpy as np
>>> two = constant(np.full((2, 3), 2, "float32"), "two")
>>> two[0].attrs, two[0].specs
({'value': 2.0 everywhere}, (Spec((2, 3), float32),))
>>> uniform(two)
2.0
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from d2lmini.base import callsite
from d2lmini.device.errstate import run_quietly
from d2lmini.ops.core import Op
from d2lmini.ops.create import full
from d2lmini.ops.kernels import kernel_for
from d2lmini.ops.spec import Spec

#: One value of a graph: a node, and the index of one of its outputs.
Entry = tuple["Node", int]
#: The sources of a node's inputs: an Entry each, None for an optional input without a source.
Inputs = tuple[Any, ...]

_NOTHING: Mapping[str, str] = {}


class Node:
    """A variable, or an op to be applied.

    op      None for a variable
    name    of the variable, or of this call of the op
    inputs  the source of each input of the op; None for an optional input without a source
    attrs   attributes of the op, checked and converted; in typed graphs also the attributes that
            are set at run time: `training` as True or False, `rng` as a `Draw`, or None for a call
            that draws nothing
    specs   shape and dtype of each output, hidden outputs included; None while unknown
    labels  the user's attributes: {"lr_mult": "2.0", "__shape__": "(2, 3)", ...}
    site    the user's line that made the node
    given   the attributes that the user gave, as text: files contain these, defaults or not
    stays   a bit for each rule of a pass that has no replacement for the node (`passes.py`)
    steps   what `steps_of` (`lower.py`) has found, () for none; None before it is asked
    """

    __slots__ = (
        "attrs", "given", "inputs", "labels", "name", "op", "site", "specs", "stays", "steps",
        "__weakref__",
    )  # fmt: skip

    op: Any  # None or an Op; types do not tell variables from calls, typed graphs from others
    specs: Any

    def __init__(
        self, op: Op | None, name: str, inputs: Inputs = (), attrs: dict[str, Any] | None = None,
        specs: tuple[Spec, ...] | None = None, labels: Mapping[str, str] = _NOTHING,
        site: Any = None, given: Mapping[str, str] = _NOTHING,
    ):  # fmt: skip
        self.op = op
        self.name = name
        self.inputs = inputs
        self.attrs = attrs or {}
        self.specs = specs
        self.labels = labels
        self.site = site
        self.given = given
        self.stays = 0
        self.steps: tuple[Any, ...] | None = None

    def replace(self, **changes: Any) -> Node:
        """A copy of this node with `changes`: fields by name."""
        given = _NOTHING if "attrs" in changes else self.given
        new = Node(
            self.op, self.name, self.inputs, self.attrs, self.specs, self.labels, self.site, given
        )
        for field, value in changes.items():
            setattr(new, field, value)
        return new

    @property
    def n_outputs(self) -> int:
        """The number of visible outputs; outputs that only backward uses are not counted."""
        if self.op is None:
            return 1
        outputs = self.op.outputs
        return outputs(**self.attrs) if callable(outputs) else outputs

    @property
    def mutated(self) -> tuple[Entry, ...]:
        """The inputs that the op also changes, such as BatchNorm's moving mean and variance."""
        if self.op is None or not self.op.mutates:
            return ()
        changed = (self.inputs[i] for i in self.op.mutated(len(self.inputs), self.attrs))
        return tuple(entry for entry in changed if entry is not None)

    @property
    def sources(self) -> tuple[Entry, ...]:
        """The sources of the inputs, without None."""
        given: Any = self.inputs
        return tuple(filter(None, given)) if None in given else given

    @property
    def outputs(self) -> list[Entry]:
        """All outputs in a typed graph, including those that only backward uses."""
        n = len(self.specs or ())
        return [(self, 0)] if n == 1 else [(self, i) for i in range(n)]

    @property
    def own_attrs(self) -> dict[str, Any]:
        """The attributes without those that are set at run time."""
        if self.op is None or not self.op.injects:
            return self.attrs
        return {k: v for k, v in self.attrs.items() if k not in self.op.injects}

    def locate(self, problem: object) -> str:
        """The text of an error, with the node in which it occurred and the user's line."""
        made = f"\n  made at     {callsite.describe(self.site)}" if self.site else ""
        return f"node {self.name!r}: {problem}{made}"

    def __repr__(self) -> str:
        if self.op is None:
            return f"<variable {self.name}>"
        return f"<{self.op.name} {self.name}>"


class Draw:
    """A placeholder: the random key that a call of the graph draws for one of its nodes."""

    __slots__ = ("number",)

    def __init__(self, number: int):
        self.number = number

    def __repr__(self) -> str:
        return f"keys[{self.number}]"


# -- looking at a graph ----------------------------------------------------------------------------


class Outputs(list[Entry]):
    """Outputs of a graph that is looked at again and again: its nodes in their order, and the
    variables that one of them changes, are found once."""

    @cached_property
    def order(self) -> list[Node]:
        return topological(iter(self))

    @cached_property
    def changed(self) -> set[Node]:
        return mutated_by(self.order)


def with_order(entries: Sequence[Entry]) -> Outputs:
    """These outputs with their order."""
    return entries if type(entries) is Outputs else Outputs(entries)


def topological(entries: Iterable[Entry]) -> list[Node]:
    """The nodes behind `entries`, inputs before the nodes that use them; left inputs come first, as
    in MXNet. This order determines the order of arguments."""
    if type(entries) is Outputs:
        return entries.order
    found: list[Node] = []
    seen: set[Node] = set()
    for head, _ in entries:
        if head in seen:
            continue
        seen.add(head)
        path: list[tuple[Node, Iterator[Entry | None]]] = [(head, iter(head.inputs))]
        while path:
            node, inputs = path[-1]
            for entry in inputs:
                if entry is not None and entry[0] not in seen:
                    seen.add(entry[0])
                    path.append((entry[0], iter(entry[0].inputs)))
                    break
            else:
                found.append(node)
                path.pop()
    return found


def variables_of(entries: Iterable[Entry]) -> list[Node]:
    """All variables behind `entries`, in the order of `topological`."""
    return [node for node in topological(entries) if node.op is None]


def mutated_by(nodes: Iterable[Node]) -> set[Node]:
    """The variables that one of `nodes` changes."""
    return {entry[0] for node in nodes if node.op and node.op.mutates for entry in node.mutated}


def spec_of(entry: Entry) -> Spec:
    """Shape and dtype of a value of a typed graph."""
    specs = entry[0].specs
    return specs[entry[1]]


# -- making a graph, running a graph ---------------------------------------------------------------

#: The replacement of a node: another node, or an entry for each output (None if it is unused).
Replacement = Node | Sequence[Entry | None]
Rule = Callable[[Node, Inputs], "Replacement | None"]


def transform(
    entries: Sequence[Entry], rule: Rule | None = None, given: Mapping[Entry, Entry] | None = None,
    order: Sequence[Node] | None = None,
) -> list[Entry]:  # fmt: skip
    """The graph behind `entries` with every node replaced by `rule(node, inputs)`.

    rule    called once with each node, variables included, and its new inputs (the same tuple if
            no input has changed); if it returns None, the node keeps all but its inputs
    given   entries that are replaced whatever the rule returns
    order   the result of `topological(entries)`, if it is already known, or the end of it from the
            first node that is replaced
    """
    made: dict[Node, Replacement] = {}  # without the nodes that stay the same objects

    def renew(entry: Entry) -> Entry:
        if given and entry in given:
            return given[entry]
        node, i = entry
        new = made.get(node)
        if new is None:
            return entry
        if isinstance(new, Node):
            return new, i
        value = new[i]
        assert value is not None, f"{node}: output {i} was used after all"
        return value

    for node in topological(entries) if order is None else order:
        inputs = node.inputs
        if given or (made and any([entry and entry[0] in made for entry in inputs])):
            renewed = tuple([entry and renew(entry) for entry in inputs])
            inputs = inputs if renewed == inputs else renewed
        new = None if rule is None else rule(node, inputs)
        if new is None and inputs is not node.inputs:
            new = node.replace(inputs=inputs)
        if new is not None and new is not node:
            made[node] = new
    return [renew(entry) for entry in entries]


def forget_call(node: Node, inputs: Inputs) -> Node:
    """A rule for `transform`: remove what belongs to one call of the graph, that is specs, training
    mode and random keys."""
    return node.replace(inputs=inputs, attrs=node.own_attrs, specs=None, given=node.given)


def compute(xp: Any, node: Node, inputs: Sequence[Any], keys: Sequence[Any] = ()) -> list[Any]:
    """The outputs that the op of a node computes from these arrays; `keys`: the random keys that
    each `Draw` refers to."""
    attrs = {k: keys[v.number] if type(v) is Draw else v for k, v in node.attrs.items()}
    kernel = node.op.compute
    if node.specs is not None:
        kernel = kernel_for(node.op, "cpu", [spec_of(e) for e in node.sources], node.specs)
    result = kernel(xp, *inputs, **attrs)
    return list(result) if isinstance(result, (tuple, list)) else [result]


def interpret(
    entries: Sequence[Entry],
    apply: Callable[[Node, list[Any]], Sequence[Any]],
) -> list[Any]:
    """The values of `entries`. `apply(node, inputs)` returns the values of a node's outputs from
    the values of its inputs (None for an optional input without a source); it is also called for
    variables."""
    known: dict[Node, Sequence[Any]] = {}
    for node in topological(entries):
        inputs = [None if entry is None else known[entry[0]][entry[1]] for entry in node.inputs]
        known[node] = apply(node, inputs)
    return [known[node][i] for node, i in entries]


class Constant:
    """An array that nobody writes into.

    array  the values; 'read-only' is set
    fill   the number that all elements are, to the bit; None if they differ or there are none
    key    equal for constants that may stand for one another
    """

    __slots__ = ("array", "fill", "key")

    def __init__(self, array: np.ndarray):
        self.array = np.array(array, order="C")
        self.array.flags.writeable = False
        self.fill: Any = None
        if self.array.size:
            # As bits: 0.0 and -0.0 are equal and differ, nan is what it is.
            bits = self.array.reshape(-1).view(f"V{self.array.itemsize}")
            if (bits == bits[0]).all():
                self.fill = self.array.reshape(-1)[0].item()
        small = self.array.nbytes <= 4096
        content = self.array.tobytes() if small else id(self)
        self.key = (self.array.shape, self.array.dtype.str, content)

    def __repr__(self) -> str:
        if self.array.size == 1:
            return repr(self.fill)
        if self.fill is not None:
            return f"{self.fill!r} everywhere"
        if self.array.size <= 8:
            return repr(self.array.tolist())
        return f"<{self.array.size} numbers>"


def _spec(*, value: Constant) -> Spec:
    return Spec(value.array.shape, value.array.dtype)


def _value(xp, *, value):
    """The array itself: who gives it to somebody else makes a copy."""
    return value.array


CONSTANT = Op(_value, "_graph_constant", infer=_spec, flops=0, grad=None)


def constant(array: np.ndarray, name: str) -> Entry:
    """A node that is this array."""
    value = Constant(array)
    return Node(CONSTANT, name, (), {"value": value}, (_spec(value=value),)), 0


def is_constant(entry: Entry | None) -> bool:
    """True if this value is known."""
    return entry is not None and entry[0].op is CONSTANT


def array_of(entry: Entry) -> np.ndarray:
    """The array of a constant; not to be written into."""
    return entry[0].attrs["value"].array


def uniform(entry: Entry | None) -> Any:
    """The number that all elements of this value are known to be, as its dtype holds the number,
    else None."""
    if entry is None or entry[0].op is None:
        return None
    op, attrs = entry[0].op, entry[0].attrs
    if op is CONSTANT:
        return attrs["value"].fill
    value = attrs["value"] if op.name == "_full" else _FILLS.get(op.name)
    if value is None:
        return None
    dtype = spec_of(entry).dtype
    return run_quietly(lambda: full.compute(np, shape=(), value=value, dtype=dtype)).item()


_FILLS = {"_zeros": 0, "_ones": 1, "zeros_like": 0, "ones_like": 1}

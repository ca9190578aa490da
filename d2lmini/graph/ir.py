"""The one representation of a call of an op, and the kit for graphs of them.

A `Node` is a call of an op that has not happened: the op, its attributes, where its inputs come
from. A node without an op is a variable. A graph is given by its outputs, a list of *entries*: a
node, and which of its outputs. A Symbol is a handle on such entries; what is traced, compiled,
recorded lazily or written to a file is a graph of these nodes.

>>> from d2lmini import sym
>>> with sym.NameManager():
...     y = sym.exp(sym.var("x") * 2)
>>> [node.name for node in topological(y._entries)]
['x', '_mulscalar0', 'exp0']

Nodes are never changed, so graphs share them. `transform` makes a new graph; its rule says what
becomes of one node, whose inputs have been dealt with:

>>> def drop_products(node, inputs):
...     return list(inputs) if node.op and node.op.name == "_mul_scalar" else None
>>> [node.name for node in topological(transform(y._entries, drop_products))]
['x', 'exp0']

`interpret` walks over a graph with a value for each output; `apply` says what a node gives:

>>> def depth(node, inputs):
...     return [1 + max(inputs, default=0)]
>>> interpret(y._entries, depth)
[3]

A node may know what its outputs will be like (`specs`): always when its variables do, as in the
graphs that `hybridize` records. Such a *typed* graph is what passes and the code generator work on.
No walk here recurses: a graph may be deep.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from d2lmini.ops.core import Cost, Op
from d2lmini.ops.spec import Spec

#: One value of a graph: a node, and which of its outputs.
Entry = tuple["Node", int]
#: Where the inputs of a node come from; None for one that was left out.
Inputs = tuple["Entry | None", ...]

_NOTHING: Mapping[str, str] = {}


class Node:
    """A variable, or an op to be applied.

    op      None for a variable
    name    of the variable, or of this call of the op
    inputs  where each input of the op comes from; None for one that was left out
    attrs   attributes of the op, checked and converted; those that the op is given at run time are
            here in typed graphs: `training` as True or False, `rng` as a `Draw`
    specs   shape and dtype of each output, hidden ones included; None while unknown
    labels  what users hung on it: {"lr_mult": "2.0", "__shape__": "(2, 3)", ...}
    site    the user's line that made it
    given   names of the attributes that the user gave: files contain these, defaults or not
    """

    __slots__ = ("attrs", "given", "inputs", "labels", "name", "op", "site", "specs", "__weakref__")

    def __init__(
        self,
        op: Op | None,
        name: str,
        inputs: Inputs = (),
        attrs: dict[str, Any] | None = None,
        specs: tuple[Spec, ...] | None = None,
        labels: Mapping[str, str] = _NOTHING,
        site: Any = None,
        given: tuple[str, ...] = (),
    ):
        self.op = op
        self.name = name
        self.inputs = inputs
        self.attrs = attrs or {}
        self.specs = specs
        self.labels = labels
        self.site = site
        self.given = given

    def replace(self, **changes: Any) -> Node:
        """A new node like this one, but for `changes`: fields by name."""
        given = () if "attrs" in changes else self.given
        new = Node(
            self.op, self.name, self.inputs, self.attrs, self.specs, self.labels, self.site, given
        )
        for field, value in changes.items():
            setattr(new, field, value)
        return new

    @property
    def n_outputs(self) -> int:
        """How many outputs it shows: those that only backward uses are not counted."""
        if self.op is None:
            return 1
        outputs = self.op.outputs
        return outputs(**self.attrs) if callable(outputs) else outputs

    @property
    def mutated(self) -> tuple[Entry, ...]:
        """The inputs that it changes besides: BatchNorm's moving mean and variance."""
        if self.op is None or not self.op.mutates:
            return ()
        positions = self.op.mutates
        if callable(positions):
            positions = positions(len(self.inputs), self.attrs)
        changed = (self.inputs[i] for i in positions)
        return tuple(entry for entry in changed if entry is not None)

    @property
    def sources(self) -> list[Entry]:
        """Where its inputs come from, without those that were left out."""
        return list(filter(None, self.inputs))

    @property
    def outputs(self) -> list[Entry]:
        """All its outputs in a typed graph, also those that only backward uses."""
        return [(self, i) for i in range(len(self.specs or ()))]

    @property
    def cost(self) -> Cost:
        """Predicted FLOPs and bytes of this call in a typed graph."""
        assert self.op is not None and self.specs is not None
        return self.op.cost(list(map(spec_of, self.sources)), self.specs, **self.own_attrs)

    @property
    def own_attrs(self) -> dict[str, Any]:
        """The attributes without those that the op is given at run time."""
        if self.op is None or not self.op.injects:
            return self.attrs
        return {k: v for k, v in self.attrs.items() if k not in self.op.injects}

    def __repr__(self) -> str:
        if self.op is None:
            return f"<variable {self.name}>"
        return f"<{self.op.name} {self.name}>"


class Draw:
    """Stands for the random key that a call of the graph will draw for one of its nodes."""

    __slots__ = ("number",)

    def __init__(self, number: int):
        self.number = number

    def __repr__(self) -> str:
        return f"keys[{self.number}]"


# -- looking at a graph ----------------------------------------------------------------------------


def topological(entries: Iterable[Entry]) -> list[Node]:
    """The nodes behind `entries`, inputs before the nodes that use them; left inputs come first, as
    in MXNet, whose order of arguments this fixes."""
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
    """The variables that some of `nodes` change."""
    return {entry[0] for node in nodes if node.op and node.op.mutates for entry in node.mutated}


def spec_of(entry: Entry) -> Spec:
    """Shape and dtype of a value of a typed graph."""
    specs = entry[0].specs
    assert specs is not None
    return specs[entry[1]]


# -- making a graph, running a graph ---------------------------------------------------------------

#: What becomes of a node: another one, or a value for each output (None: no node uses it).
Replacement = Node | Sequence[Entry | None]
Rule = Callable[[Node, Inputs], "Replacement | None"]


def transform(
    entries: Sequence[Entry],
    rule: Rule | None = None,
    given: Mapping[Entry, Entry] | None = None,
    order: Sequence[Node] | None = None,
) -> list[Entry]:
    """The graph behind `entries` with every node replaced by what `rule(node, inputs)` says.

    rule    called once with each node, variables too, and what its inputs have become (the same
            tuple where nothing has changed); None leaves the node as it is, but for its inputs
    given   values that are replaced whatever the rule says
    order   what `topological(entries)` gives, if it is known already
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
        if made or given:
            renewed = tuple([entry and renew(entry) for entry in inputs])
            inputs = inputs if renewed == inputs else renewed
        new = None if rule is None else rule(node, inputs)
        if new is None and inputs is not node.inputs:
            new = node.replace(inputs=inputs)
        if new is not None and new is not node:
            made[node] = new
    return [renew(entry) for entry in entries]


def forget_call(node: Node, inputs: Inputs) -> Node:
    """A rule for `transform`: every node without what belongs to one call of the graph, that is
    specs, mode and random keys."""
    return node.replace(inputs=inputs, attrs=node.own_attrs, specs=None, given=node.given)


def compute(xp: Any, node: Node, inputs: Sequence[Any], keys: Sequence[Any] = ()) -> list[Any]:
    """The outputs that the op of a node computes from these arrays; `keys` are those of `Draw`."""
    assert node.op is not None
    attrs = node.attrs
    if node.op.random:
        attrs = {**attrs, "rng": keys[attrs["rng"].number]}
    result = node.op.compute(xp, *inputs, **attrs)
    return list(result) if isinstance(result, (tuple, list)) else [result]


Watch = Callable[[Node, list[Any], list[Any]], Any]


def interpret(
    entries: Sequence[Entry],
    apply: Callable[[Node, list[Any]], Sequence[Any]],
    watch: Watch | None = None,
) -> list[Any]:
    """The values of `entries`, where `apply(node, inputs)` gives the values of a node's outputs for
    those of its inputs (None for one that was left out). It is asked for variables too.

    watch: called with each call of an op, its inputs and its outputs.
    """
    known: dict[Node, Sequence[Any]] = {}
    for node in topological(entries):
        inputs = [None if entry is None else known[entry[0]][entry[1]] for entry in node.inputs]
        outputs = known[node] = apply(node, inputs)
        if watch is not None and node.op is not None:
            watch(node, inputs, list(outputs))
    return [known[node][i] for node, i in entries]

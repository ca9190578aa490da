"""The walk that all passes share: node by node, each kept or replaced by other values.

A pass says what becomes of one node whose inputs have been dealt with; `rewritten` does the rest.

>>> from d2lmini import sym
>>> from d2lmini.graph.typed import graph_of, listing
>>> before = graph_of(sym.exp(sym.identity(sym.var("x")), name="y"), x=(3,))
>>> no_copies = lambda node: node.inputs[0] if node.op.name == "_copy" else None
>>> print(listing(rewritten(before, no_copies)))
x                                           # (3,) float32
y = exp(x)                                  # (3,) float32
return y

What no output needs any more is gone by itself: a graph is what its outputs reach. Only a node that
changes a variable is wanted for more than its outputs. Therefore

- a node that reads or changes such a variable is never replaced: it runs, and at its own place;
- a rewriting that would lose such a node, or run two of them in another order, is not done.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from d2lmini.graph import ir
from d2lmini.graph.ir import Entry, Inputs, Node, spec_of, topological, transform, with_order
from d2lmini.ndarray.plan import plan_of
from d2lmini.ops.core import Op, registry

#: What stands in the place of a node: a value, or one for each output (None: no node uses it).
Replacement = Entry | list[Entry | None] | None
Rule = Callable[[Node], Replacement]


#: The bit in `Node.stays` of each rule whose answer depends on the node and its inputs alone: such
#: a rule is asked once about a node, however often the passes run.
_bits: dict[Rule, int] = {}


def rewritten(
    outputs: Sequence[Entry], rule: Rule, meet: Callable[[Node, Node], None] | None = None,
    is_local: bool = False,
) -> list[Entry]:  # fmt: skip
    """The graph with every node replaced by what `rule` says, None for those that stay. Before,
    `meet` is told of each node, also of those that are never replaced: as it was, and as it is with
    its inputs replaced. is_local: the answer depends on the node and its inputs alone.

    Most passes find nothing in most graphs. So nodes are only looked at, in their order, up to the
    first that is replaced; from there on the graph is made anew."""
    bit = _bits.setdefault(rule, 1 << len(_bits)) if is_local else 0
    graph = with_order(outputs)
    order, changed = graph.order, graph.changed
    known = set(order) if changed else set()
    placed: dict[Node, Node] = {}  # what has become of the nodes that read or change such variables

    def answer(node: Node, new: Node) -> Sequence[Entry | None] | None:
        """The values in the place of `node`, which is `new` with its inputs replaced."""
        if meet is not None:
            meet(node, new)
        if changed:
            known.add(new)
            if any([e is not None and e[0] in changed for e in node.inputs]):
                placed[node] = new
                return None
        if new.stays & bit:
            return None
        found = rule(new)
        if found is None:
            new.stays |= bit
            return None
        values = found if isinstance(found, list) else [found]
        if changed and any([e is not None and _reads(e, changed, known) for e in values]):
            return None
        for value, spec in zip(values, node.specs or (), strict=True):
            assert value is None or spec_of(value) == spec, (node, value, spec)
        return values

    def visit(node: Node, inputs: Inputs) -> ir.Replacement | None:
        if node is first:
            return values
        if node.op is None:
            return None
        new = node if inputs is node.inputs else node.replace(inputs=inputs)
        found = answer(node, new)
        return new if found is None else found

    for i, first in enumerate(order):
        if first.op is None or (first.stays & bit and not changed):
            continue
        values = answer(first, first)
        if values is not None:
            results = transform(outputs, visit, order=order[i:])
            return results if _in_order(placed, changed, results) else list(outputs)
    return list(outputs)


def _reads(entry: Entry, changed: set[Node], known: set[Node]) -> bool:
    """Would this value, made by a rule, be read from a variable that some node changes? Where the
    node that it replaces stands, that may hold something else already."""
    node = entry[0]
    if node in changed:
        return True
    if node in known:
        return False
    known.add(node)
    return any(e is not None and _reads(e, changed, known) for e in node.inputs)


def _in_order(placed: dict[Node, Node], changed: set[Node], results: Sequence[Entry]) -> bool:
    """True if the nodes that change variables, and those that read these, run as they did."""
    if not placed:
        return True
    place = {node: i for i, node in enumerate(topological(results))}
    last: dict[Node, int] = {}
    for node, new in placed.items():
        at = place.get(new)
        if at is None:
            if node.mutated:
                return False
            continue
        for variable in {e[0] for e in node.sources if e[0] in changed}:
            if at < last.get(variable, -1):
                return False
            last[variable] = at
    return True


# -- what rules are written with -------------------------------------------------------------------


def calls(entry: Entry | None, names: Iterable[str]) -> Node | None:
    """The node of a value, if it is a call of one of these ops."""
    if entry is None or entry[0].op is None or entry[0].op.name not in names:
        return None
    return entry[0]


def call(op: str | Op, inputs: Sequence[Entry | None], like: Node, **attrs: Any) -> Entry:
    """A call of an op in the place of `like`, whose name and line it keeps."""
    op = registry[op] if isinstance(op, str) else op
    attrs = {**op.defaults, **attrs} if attrs else op.defaults
    specs = plan_of(op, [spec_of(e) for e in inputs if e is not None], attrs).outputs
    return Node(op, like.name, tuple(inputs), attrs, specs, like.labels, like.site), 0


def same(node: Node, entry: Entry | None) -> Entry | None:
    """The value `entry` for the node, if it has its shape and dtype."""
    return entry if entry is not None and [spec_of(entry)] == list(node.specs or ()) else None


class Rules(dict[str, Rule]):
    """A pass that consists of rules by the name of the op that they are for.

    `@a_pass.rule("negative abs")` declares the rule for these ops. Ops may have several rules: the
    first that finds a replacement has it.
    """

    def __init__(self, name: str, means: str):
        self.__name__, self.__doc__ = name, means

    def __call__(self, outputs: Sequence[Entry]) -> list[Entry]:
        """The graph after the pass."""
        return rewritten(outputs, self.of, is_local=True)

    def rule(self, names: str) -> Callable[[Rule], Rule]:
        """Declare the rule for ops with these names."""

        def declare(rule: Rule) -> Rule:
            for name in names.split():
                op = registry[name].name
                self[op] = _either(self[op], rule) if op in self else rule
            return rule

        return declare

    def of(self, node: Node) -> Replacement:
        """What the rules say of a node."""
        assert node.op is not None
        rule = self.get(node.op.name)
        return None if rule is None else rule(node)


def _either(first: Rule, second: Rule) -> Rule:
    def rule(node: Node) -> Replacement:
        found = first(node)
        return second(node) if found is None else found

    return rule

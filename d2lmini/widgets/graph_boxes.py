"""A typed graph as boxes and arrows, with facts and cost of each box.

>>> from d2lmini import sym
>>> from d2lmini.graph.typed import graph_of
>>> with sym.NameManager():
...     y = sym.exp(sym.var("x")) + 1
>>> stage = of_nodes("as written", "", graph_of(y, x=(2, 3)), None)
>>> print(stage)
as written: 2 operations, 96 B moved, 66 FLOPs
>>> for box in stage.boxes:
...     print(box.lines, box.facts[-2:])
['x', '2 × 3'] [('name', 'x')]
['exp', '→ 2 × 3'] [('computes', '60 FLOPs'), ('moves', '48 B')]
['+ 1', '→ 2 × 3'] [('computes', '6 FLOPs'), ('moves', '48 B')]

A parameter goes into the box of the layer that its name refers to, as in a Symbol's picture. A
fused group is one box with its ops as parts: it reads only values from outside and writes only
values that other boxes read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from d2lmini import callsite
from d2lmini.draw.layers import Edge
from d2lmini.draw.svg import shorten
from d2lmini.graph.constant import CONSTANT
from d2lmini.graph.fusion import Statement
from d2lmini.graph.ir import Entry, Node, topological
from d2lmini.graph.layout import Layout, Placement, lay_out
from d2lmini.graph.lower import lower
from d2lmini.graph.partitions import cost_of
from d2lmini.graph.plan import MemoryPlan
from d2lmini.ops.spec import Cost, Spec
from d2lmini.profiler.summary import in_time
from d2lmini.symbol.infer import is_known
from d2lmini.symbol.picture import fold_variables, kind_of, words_of

#: At most this many ops of a group are listed.
MOST_PARTS = 12


class Box(NamedTuple):
    """One box of the drawing.

    lines   the text in the box, the first line in bold
    kind    of work, as in `picture.KINDS`
    parts   of a fused group: a line for each op
    output  is it a result of the graph?
    new     did this stage make it?
    facts   further facts: (what, value)
    """

    lines: list[str]
    kind: str
    parts: list[str]
    output: bool
    new: bool
    facts: list[tuple[str, str]]


class Stage(NamedTuple):
    """The graph at one stage; printed, its name and its cost.

    words   what the stage has done
    boxes   in an order in which they can run
    edges   (from, to) by number -> does it carry a value? (else it only makes room)
    calls   how many of the boxes compute
    cost    of all boxes together; None where shapes are unknown
    plan    the memory plan of intermediate results; None before there is one
    """

    name: str
    words: str
    boxes: list[Box]
    edges: dict[Edge, bool]
    calls: int
    cost: Cost | None
    plan: MemoryPlan | None = None

    def __str__(self) -> str:
        unit = "operation" if self.plan is None else "statement"
        said = f"{self.name}: {self.calls} {unit}{'' if self.calls == 1 else 's'}"
        if self.cost is None:
            return said
        flops, nbytes = self.cost
        return f"{said}, {amount(nbytes, 'B')} moved, {amount(flops, 'FLOPs')}"


# -- graphs of nodes -------------------------------------------------------------------------------


def of_nodes(
    name: str, words: str, outputs: Sequence[Entry], before: set[Node] | None,
    shapes: dict[Entry, Any] | None = None,
) -> Stage:  # fmt: skip
    """A stage where every op is a box of its own; a box is new if it is not among `before`."""
    nodes = topological(outputs)
    heads = {node for node, _ in outputs}
    folded = fold_variables(nodes, heads)
    seen = [node for node in nodes if node not in folded]
    shape_of = _make_describer(shapes)
    known = None if before is None or shapes is not None else {_key(node) for node in before}
    boxes, costs = [], []
    for node in seen:
        cost = _cost(node) if shapes is None else None
        costs.append(cost)
        lines = _lines(node, folded, shape_of)
        facts = _facts(node, shape_of) + costs_of(cost)
        new = known is not None and node.op is not None and _key(node) not in known
        boxes.append(Box(lines, _kind(node), [], node in heads, new, facts))
    calls = [cost for node, cost in zip(seen, costs) if node.op not in (None, CONSTANT)]
    whole = None
    if shapes is None:
        told = [cost for cost in calls if cost is not None]
        whole = Cost(sum(c.flops for c in told), sum(c.nbytes for c in told))
    number = {node: i for i, node in enumerate(seen)}
    return Stage(name, words, boxes, _edges(seen, number), len(calls), whole)


def fused_stage(
    inputs: Sequence[Node], outputs: Sequence[Entry], on_gpu: bool, before: set[Node]
) -> Stage:
    """The last stage: statements in the order in which they run, each an op or a group."""
    outputs = lower(outputs)
    layout = lay_out(inputs, outputs, False, on_gpu)
    nodes = topological(outputs)
    heads = {node for node, _ in outputs}
    folded = fold_variables(nodes, heads)
    shape_of = _make_describer(None)
    boxes: list[Box] = []
    number: dict[Node, int] = {}
    for node in nodes:
        if node.op is None and node not in folded:
            number[node] = len(boxes)
            lines = _lines(node, folded, shape_of)
            facts = _facts(node, shape_of)
            boxes.append(Box(lines, "variable", [], node in heads, False, facts))
    costs = []
    for statement in layout.statements:
        cost = cost_of(layout, statement)
        costs.append(cost)
        for node in statement.nodes:
            number[node] = len(boxes)
        boxes.append(_of_statement(statement, layout, folded, heads, before))
    whole = Cost(sum(c.flops for c in costs), sum(c.nbytes for c in costs))
    words = "in groups that run block by block"
    plan = layout.plan
    if plan.lives:
        words += f"; {amount(plan.nbytes, 'B')} of memory for what lies between"
        if plan.separately > plan.nbytes:
            words += f", not {amount(plan.separately, 'B')}, for places are used again"
    real = [s for s in layout.statements if s.nodes[0].op is not CONSTANT]
    edges = _edges([n for n in nodes if n in number], number)
    return Stage("fused", words, boxes, edges, len(real), whole, layout.plan)


def _of_statement(
    statement: Statement, layout: Layout, folded: set[Node], heads: set[Node], before: set[Node]
) -> Box:
    shape_of = _make_describer(None)
    nodes = statement.nodes
    last = nodes[-1]
    cost = cost_of(layout, statement)
    costs = costs_of(Cost(cost.flops, cost.nbytes))
    costs.append(("predicted", in_time(cost.us / 1e6)))
    is_output = any(node in heads for node in nodes)
    if statement.shape is None and len(nodes) == 1:
        facts = _facts(last, shape_of) + [("lies in", _place(layout, (last, 0)))] + costs
        new = _key(last) not in {_key(node) for node in before}
        return Box(_lines(last, folded, shape_of), _kind(last), [], is_output, new, facts)
    parts = [": ".join(filter(None, words_of(node, folded, shape_of)[:2])) for node in nodes]
    if len(parts) > MOST_PARTS:
        parts[MOST_PARTS - 1 :] = [f"and {len(parts) - MOST_PARTS + 1} more"]
    if statement.shape is None:
        title = f"{len(nodes)} ops side by side"
        facts = [("side by side", f"{len(nodes)} operations that do not need each other")]
    else:
        title = f"{len(nodes)} ops in one pass" if len(nodes) > 1 else "in blocks"
        facts = [("group of", f"{len(nodes)} operations, one pass over memory")]
        alone = sum(c.nbytes for node in nodes if (c := _cost(node)) is not None)
        costs.append(("one by one", f"{amount(alone, 'B')} would be moved"))
    kept = [(node, 0) for node in nodes if layout.kinds[node, 0] is not Placement.BLOCK]
    facts += [("result", f"{e[0].name} {shape_of(e)}, {_place(layout, e)}") for e in kept]
    facts += costs
    sites = dict.fromkeys(callsite.describe(node.site) for node in nodes if node.site)
    facts += [("line", line) for line in list(sites)[:4]]
    shapes = ", ".join(dict.fromkeys(shape_of(e) for e in kept))
    kinds = {_kind(node) for node in nodes}
    kind = "many" if "many" in kinds else "each"
    return Box(
        [title, f"→ {shapes}"], kind, [shorten(p, 34) for p in parts], is_output, True, facts
    )


def _key(node: Node) -> tuple[Any, ...]:
    """The identity of a node for the reader: its op, name and attributes."""
    return node.op, node.name, str(sorted(node.attrs.items(), key=str))


def _place(layout: Layout, entry: Entry) -> str:
    """Where a value lies, in words."""
    kind = layout.kinds[entry]
    if kind is Placement.BUFFER:
        buffer = layout.buffers[entry]
        if buffer.output is not None:
            return "the result that is returned"
        end = buffer.offset + buffer.spec.nbytes
        return f"the arena, bytes {buffer.offset} to {end}"
    return {
        Placement.VIEW: "its input: it is a view",
        Placement.CONSTANT: "the program: it is a constant",
        Placement.INPUT: "what is given",
    }.get(kind, "new memory")


def _edges(nodes: Sequence[Node], number: dict[Node, int]) -> dict[Edge, bool]:
    found: dict[Edge, bool] = {}
    for node in nodes:
        for entry in node.inputs:
            if entry is not None and entry[0] in number and number[entry[0]] != number[node]:
                found[number[entry[0]], number[node]] = True
    return found


# -- words and numbers -----------------------------------------------------------------------------


def _lines(node: Node, folded: set[Node], shape_of: Callable[[Entry], str]) -> list[str]:
    if node.op is CONSTANT:
        return [shorten(repr(node.attrs["value"]), 24), shape_of((node, 0))]
    words = words_of(node, folded, shape_of)
    if node.op is not None:
        shapes = dict.fromkeys(shape_of((node, i)) for i in range(node.n_outputs))
        told = ", ".join(filter(None, shapes))
        words.append(f"→ {told}" if told else "")
    return [shorten(line, 36) for line in words if line]


def _kind(node: Node) -> str:
    return "variable" if node.op is CONSTANT else kind_of(node)


def _make_describer(shapes: dict[Entry, Any] | None) -> Callable[[Entry], str]:
    """What knows the shape of a value, for words: the node itself, or `shapes`."""

    def shape_of(entry: Entry) -> str:
        if shapes is None:
            specs = entry[0].specs
            return shape_in_words(specs[entry[1]]) if specs else ""
        shape = shapes.get(entry)
        return " × ".join(map(str, shape)) if shape and is_known(shape) else ""

    return shape_of


def shape_in_words(spec: Spec) -> str:
    """ "2 × 10", with the dtype unless it is float32."""
    text = " × ".join(map(str, spec.shape)) or "a number"
    return text if spec.dtype.name == "float32" else f"{text} {spec.dtype.name}"


def _cost(node: Node) -> Cost | None:
    """The cost of a single op; None where it is unknown."""
    if node.op is None or node.op is CONSTANT or node.specs is None:
        return None
    return node.cost


def costs_of(cost: Cost | None) -> list[tuple[str, str]]:
    """The cost as facts of a box."""
    if cost is None:
        return []
    return [("computes", amount(cost.flops, "FLOPs")), ("moves", amount(cost.nbytes, "B"))]


def _facts(node: Node, shape_of: Callable[[Entry], str]) -> list[tuple[str, str]]:
    """Name, inputs and output with shapes, attributes, the line."""
    facts = [("name", node.name)]
    if node.op is not None:
        facts.append(("op", node.op.name))
        for name, entry in zip([*node.op.input_names, *[""] * len(node.inputs)], node.inputs):
            if entry is not None:
                facts.append(("reads", f"{name or 'input'}: {entry[0].name} {shape_of(entry)}"))
        facts.append(("gives", shape_of((node, 0)) or "a shape that is not known"))
        for key in node.op.attr_names:
            if key in node.attrs and node.attrs[key] != node.op.defaults.get(key):
                facts.append((key, shorten(str(node.attrs[key]), 60)))
    if node.site:
        facts.append(("line", callsite.describe(node.site)))
    return facts


def amount(number: float, unit: str) -> str:
    """ "12.3 kB", "4 MFLOPs": three digits."""
    for factor, prefix in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= factor:
            return f"{number / factor:.3g} {prefix}{unit}"
    return f"{number:.3g} {unit}"

"""A graph stage by stage: as written, after each pass, in fused groups.

>>> from d2lmini import sym
>>> x = sym.var("x")
>>> with sym.NameManager():
...     y = sym.exp(x * 2 * 1) + 1
>>> (view,) = views_of(y, x=(1000, 1000))
>>> for stage in view.stages:
...     print(stage)
as written: 4 operations, 32 MB moved, 13 MFLOPs
remove_identities: 3 operations, 24 MB moved, 12 MFLOPs
fused: 1 statement, 8 MB moved, 12 MFLOPs
>>> first, *_, fused = view.stages
>>> first.boxes[1].lines, first.boxes[1].facts[-2:]
(['* 2', '→ 1000 × 1000'], [('computes', '1 MFLOPs'), ('moves', '8 MB')])
>>> fused.boxes[-1].parts
['* 2', 'exp', '+ 1']

A stage is boxes and arrows. A parameter goes into the box of the layer that its name refers to, as
in a Symbol's picture. A fused group is one box with its ops as parts. Where shapes are known, every
box shows its cost, from `op.cost`; a single op reads its inputs and writes its results, a fused
group reads and writes only the values that cross its boundary. Nodes that a pass has made are
marked; the others are the same nodes.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from d2lmini import callsite
from d2lmini.base import MXNetError
from d2lmini.draw.layers import Edge
from d2lmini.draw.svg import shorten
from d2lmini.gluon.block import Block
from d2lmini.gluon.hybrid_block import HybridBlock
from d2lmini.graph.cached_op import Compiled
from d2lmini.graph.constant import CONSTANT
from d2lmini.graph.fusion import Statement
from d2lmini.graph.ir import Entry, Node, topological
from d2lmini.graph.layout import Layout, Placement, cost_of, lay_out
from d2lmini.graph.lower import lower
from d2lmini.graph.passes import Pass, simplify
from d2lmini.graph.program import Program
from d2lmini.graph.typed import infer_types
from d2lmini.ops.spec import Cost, Spec
from d2lmini.profiler.summary import in_time
from d2lmini.symbol.infer import is_known, shapes_of
from d2lmini.symbol.picture import fold_variables, kind_of, words_of
from d2lmini.symbol.symbol import Symbol

#: Most boxes of a readable picture, and most ops of a group that are listed.
MOST, MOST_PARTS = 150, 12

#: The shape of a value, in words.
ShapeOf = Callable[[Entry], str]


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
    unit    what computes: "operation" or "statement"; `calls`: how many do
    boxes   in an order in which they can run
    edges   (from, to) by number -> True: every arrow carries a value
    cost    of all boxes together; None where shapes are unknown
    """

    name: str
    words: str
    unit: str
    calls: int
    boxes: list[Box]
    edges: dict[Edge, bool]
    cost: Cost | None

    def __str__(self) -> str:
        said = f"{self.name}: {self.calls} {self.unit}{'' if self.calls == 1 else 's'}"
        if self.cost is None:
            return said
        flops, nbytes = self.cost
        return f"{said}, {amount(nbytes, 'B')} moved, {amount(flops, 'FLOPs')}"


class View(NamedTuple):
    """One graph and its stages."""

    title: str
    stages: list[Stage]


# -- what there is to be seen ----------------------------------------------------------------------


def views_of(x: Any, /, **shapes: tuple[int, ...]) -> list[View]:
    """The graphs of a Symbol, a hybridized Block or a Program, stage by stage; `shapes` are those
    of a Symbol's variables. Among several graphs, those that are too large are left out. TypeError
    for anything else; MXNetError for a Block that has not been hybridized and called, for shapes
    that do not fit, and if every graph has more than MOST boxes."""
    if isinstance(x, Symbol):
        found = [_of_symbol(x, shapes)]
    elif shapes:
        raise TypeError("graph_view: only a Symbol takes shapes; other graphs have their own")
    elif isinstance(x, Program):
        found = [View(x.name, _of_program(x))]
    elif isinstance(x, Block):
        found = _of_block(x)
    else:
        raise TypeError(
            f"graph_view shows a Symbol, a hybridized net or a Program, got {type(x).__name__}"
        )
    most = [max(len(stage.boxes) for stage in view.stages) for view in found]
    if min(most) > MOST:
        raise MXNetError(
            f"graph_view: {found[0].title} has {most[0]} boxes, more than {MOST}, "
            "which are too many to read; show a part: a layer of the net, get_internals() of a "
            "Symbol"
        )
    return [view for view, n in zip(found, most) if n <= MOST]


def _of_symbol(symbol: Symbol, shapes: dict[str, tuple[int, ...]]) -> View:
    """With all shapes known, all stages of the compiler for prediction; else the graph as
    written."""
    nodes = topological(symbol._entries)
    variables = [node for node in nodes if node.op is None]
    known = {n: shapes[n.name] for n in variables if n.name in shapes}
    stray = set(shapes) - {node.name for node in known}
    if stray:
        raise MXNetError(f"graph_view: the Symbol has no variable {', '.join(sorted(stray))}")
    found = shapes_of(symbol._entries, known)
    title = symbol.name or "symbol"
    if all((shape := found.get((node, 0))) and is_known(shape) for node in variables):
        specs = {
            n: n.specs[0] if n.specs else Spec(found[n, 0] or (), "float32") for n in variables
        }
        inputs, outputs = infer_types(symbol._entries, specs, False)
        return View(title, _make_stages(outputs, list(inputs.values()), "as written"))
    words = "as the program wrote it; some shapes are not known (give them: graph_view(s, x=...))"

    def shape_of(entry: Entry) -> str:
        shape = found.get(entry)
        return " × ".join(map(str, shape)) if shape and is_known(shape) else ""

    return View(title, [_stage("as written", words, symbol._entries, shape_of=shape_of)])


def _of_block(block: Block) -> list[View]:
    """A net: for each kind of input, the forward graph, then the backward graph."""
    compiled = block._compiled() if isinstance(block, HybridBlock) and block._active else None
    kinds = [
        kind
        for placed in (compiled.placed.values() if compiled is not None else ())
        for kind in placed.op._compiled.values()
    ]
    if not kinds:
        raise MXNetError(
            f"graph_view: {block.name} has no graph yet: net.hybridize(), then call it once"
        )
    found = []
    for kind in kinds:
        mode = ", training" if kind.training else ""
        variable = kind.variables[0]
        title = f"{kind.name}{mode}, for {variable.name} {_spec_of((variable, 0))}"
        found.append(View(f"{title}: forward", _of_forward(kind)))
        for backward in kind._backward.values():
            found.append(View(f"{title}: backward", _of_program(backward.program)))
    return found


def _of_forward(compiled: Compiled) -> list[Stage]:
    if not compiled.wanted:
        return _make_stages(compiled.typed, compiled.variables, "traced", compiled.forward)
    first = _stage("traced", "what one call of the net recorded", compiled.typed)
    return [first, *_of_program(compiled.forward, topological(compiled.typed))]


def _make_stages(
    outputs: Sequence[Entry], inputs: Sequence[Node], first: str, program: Program | None = None
) -> list[Stage]:
    """A typed graph, after each pass that changes it, and in groups."""
    words = "what one call of the net recorded" if program else "as the program wrote it"
    stages = [_stage(first, words, outputs)]

    def add_stage(done: Pass, before: Sequence[Entry], after: Sequence[Entry]) -> None:
        about = (sys.modules[done.__module__].__doc__ or "").split("\n\n")[0]
        words = " ".join(about.split())
        stages.append(_stage(done.__name__, words, after, topological(before)))

    final = simplify(outputs, watch=add_stage)
    return [*stages, _fused(inputs, final, program is not None and _is_on_gpu(program))]


def _of_program(program: Program, before: Iterable[Node] | None = None) -> list[Stage]:
    """A compiled program: the simplified graph, and the graph in groups."""
    words = "after all passes" if before is None else "after all passes, with what backward needs"
    simplified = _stage("simplified", words, program.outputs, before)
    return [simplified, _fused(program.inputs, program.outputs, _is_on_gpu(program))]


def _is_on_gpu(program: Program) -> bool:
    """True if a group is one kernel. (Not on virtual devices, which compute as the CPU does.)"""
    return program.xp is not np


# -- one stage -------------------------------------------------------------------------------------


def _fused(inputs: Sequence[Node], outputs: Sequence[Entry], on_gpu: bool) -> Stage:
    """The last stage: statements in the order in which they run, each an op or a group."""
    lowered = lower(outputs)
    layout = lay_out(inputs, lowered, False, on_gpu)
    words = "in groups that run block by block"
    plan = layout.plan
    if plan.lives:
        words += f"; {amount(plan.nbytes, 'B')} of memory for what lies between"
        if plan.separately > plan.nbytes:
            words += f", not {amount(plan.separately, 'B')}, for places are used again"
    return _stage("fused", words, lowered, topological(outputs), layout=layout)


def _stage(
    name: str, words: str, outputs: Sequence[Entry], before: Iterable[Node] | None = None,
    layout: Layout | None = None, shape_of: ShapeOf | None = None,
) -> Stage:  # fmt: skip
    """A box for each op, or for each statement of `layout`; a box is new if it is not among
    `before`."""
    nodes = topological(outputs)
    heads = {node for node, _ in outputs}
    folded = fold_variables(nodes, heads)
    groups: list[tuple[list[Node], Statement | None]] = [
        ([node], None)
        for node in nodes if node not in folded and (layout is None or node.op is None)
    ]  # fmt: skip
    groups += [(s.nodes, s) for s in (layout.statements if layout is not None else ())]
    number = {node: n for n, (group, _) in enumerate(groups) for node in group}
    known = None if before is None else {_key(node) for node in before}
    words_for = shape_of or _spec_of
    boxes: list[Box] = []
    costs: list[Any] = []
    for group, statement in groups:
        node = group[-1]
        cost: Any = None
        computes = node.op not in (None, CONSTANT)
        if layout is not None and statement is not None:
            cost = cost_of(layout, statement)
        elif computes and node.specs is not None:
            cost = node.cost
        costs += [cost] if computes else []
        is_output = any(node in heads for node in group)
        if (
            layout is not None
            and statement is not None
            and (statement.shape is not None or len(group) > 1)
        ):
            kept = [(x, 0) for x in group if layout.kinds[x, 0] is not Placement.BLOCK]
            box = _box_of_group(group, kept, statement.shape is None, folded, is_output)
        else:
            new = known is not None and node.op is not None and _key(node) not in known
            lines, facts = _lines(node, folded, words_for), _facts(node, words_for)
            box = Box(lines, _kind(node), [], is_output, new, facts)
        box.facts.extend(_costs(cost))
        boxes.append(box)
    edges = {
        (number[entry[0]], number[node]): True
        for node in number
        for entry in node.inputs
        if entry is not None and number.get(entry[0], number[node]) != number[node]
    }
    sums = [cost for cost in costs if cost is not None]
    whole = Cost(sum(c.flops for c in sums), sum(c.nbytes for c in sums))
    unit = "operation" if layout is None else "statement"
    return Stage(name, words, unit, len(costs), boxes, edges, None if shape_of else whole)


def _box_of_group(
    nodes: list[Node], kept: list[Entry], apart: bool, folded: set[Node], is_output: bool
) -> Box:
    """A group: one pass over memory, or, if `apart`, ops that do not need each other."""
    parts = [": ".join(filter(None, words_of(node, folded, _spec_of)[:2])) for node in nodes]
    if len(parts) > MOST_PARTS:
        parts[MOST_PARTS - 1 :] = [f"and {len(parts) - MOST_PARTS + 1} more"]
    n = len(nodes)
    title = f"{n} ops side by side" if apart else f"{n} ops in one pass" if n > 1 else "in blocks"
    how = " that do not need each other" if apart else ", one pass over memory"
    facts = [("group of", f"{n} operations{how}")]
    facts += [("result", f"{entry[0].name} {_spec_of(entry)}") for entry in kept]
    alone = sum(node.cost.nbytes for node in nodes if node.op is not CONSTANT)
    facts.append(("one by one", f"{amount(alone, 'B')} would be moved"))
    sites = dict.fromkeys(callsite.describe(node.site) for node in nodes if node.site)
    facts += [("line", line) for line in list(sites)[:4]]
    shapes = ", ".join(dict.fromkeys(map(_spec_of, kept)))
    kind = "many" if "many" in map(_kind, nodes) else "each"
    shorter = [shorten(part, 34) for part in parts]
    return Box([title, f"→ {shapes}"], kind, shorter, is_output, True, facts)


def _key(node: Node) -> tuple[Any, ...]:
    """The identity of a node for the reader: its op, name and attributes."""
    return node.op, node.name, str(sorted(node.attrs.items(), key=str))


# -- words and numbers -----------------------------------------------------------------------------


def _lines(node: Node, folded: set[Node], shape_of: ShapeOf) -> list[str]:
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


def _spec_of(entry: Entry) -> str:
    """The shape of a value: "2 × 10", with the dtype unless it is float32."""
    specs = entry[0].specs
    if not specs:
        return ""
    spec = specs[entry[1]]
    text = " × ".join(map(str, spec.shape)) or "a number"
    return text if spec.dtype.name == "float32" else f"{text} {spec.dtype.name}"


def _facts(node: Node, shape_of: ShapeOf) -> list[tuple[str, str]]:
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


def _costs(cost: Any) -> list[tuple[str, str]]:
    """The cost as facts of a box; of a statement also the predicted time."""
    if cost is None:
        return []
    facts = [("computes", amount(cost.flops, "FLOPs")), ("moves", amount(cost.nbytes, "B"))]
    return facts + [("predicted", in_time(us / 1e6)) for us in cost[2:]]


def amount(number: float, unit: str) -> str:
    """ "12.3 kB", "4 MFLOPs": three digits."""
    for factor, prefix in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= factor:
            return f"{number / factor:.3g} {prefix}{unit}"
    return f"{number:.3g} {unit}"

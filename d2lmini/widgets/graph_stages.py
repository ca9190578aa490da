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
>>> [part for box in view.stages[-1].boxes for part in box.parts]
['* 2', 'exp', '+ 1']

A stage is boxes and arrows. Where shapes are known, every box shows its cost, from `op.cost`; a
single op reads its inputs and writes its results, a fused group reads and writes only the values
that cross its boundary. Nodes that a pass has made are marked; the others are the same nodes.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from d2lmini.base import MXNetError
from d2lmini.draw.svg import shorten
from d2lmini.engine.order import drop_implied, edges_of
from d2lmini.gluon.block import Block
from d2lmini.gluon.hybrid_block import HybridBlock
from d2lmini.graph.cached_op import Compiled
from d2lmini.graph.ir import Entry, Node, topological
from d2lmini.graph.passes import Pass, simplify
from d2lmini.graph.program import Program
from d2lmini.graph.typed import infer_types
from d2lmini.ops.shown import shown_name
from d2lmini.ops.spec import Cost, Spec
from d2lmini.profiler.summary import in_time
from d2lmini.profiler.tracing import Trace
from d2lmini.symbol.infer import is_known, shapes_of
from d2lmini.symbol.symbol import Symbol
from d2lmini.widgets.graph_boxes import Box, Stage, costs_of, fused_stage, of_nodes, shape_in_words

#: Most boxes of a readable picture.
MOST = 150


class View(NamedTuple):
    """One graph and its stages."""

    title: str
    stages: list[Stage]


def views_of(x: Any, /, **shapes: tuple[int, ...]) -> list[View]:
    """The graphs of a Symbol, a hybridized Block, a Program or a Trace, stage by stage; `shapes`
    are those of a Symbol's variables. Among several graphs, those that are too large are left out.
    TypeError for anything else; MXNetError for a Block that has not been hybridized and called, for
    shapes that do not fit, and if every graph has more than MOST boxes."""
    if isinstance(x, Symbol):
        found = [_of_symbol(x, shapes)]
    elif shapes:
        raise TypeError("graph_view: only a Symbol takes shapes; other graphs have their own")
    elif isinstance(x, Program):
        found = [View(x.name, _of_program(x))]
    elif isinstance(x, Trace):
        found = [View("what ran", [_of_trace(x)])]
    elif isinstance(x, Block):
        found = _of_block(x)
    elif isinstance(x, (list, tuple)) and x and all(isinstance(program, Program) for program in x):
        found = [View(program.name, _of_program(program)) for program in x]
    else:
        raise TypeError(
            f"graph_view shows a Symbol, a hybridized net, a Program or a Trace, "
            f"got {type(x).__name__}"
        )
    fit = [view for view in found if _boxes(view) <= MOST]
    if not fit:
        raise MXNetError(
            f"graph_view: {found[0].title} has {_boxes(found[0])} boxes, more than {MOST}, "
            "which are too many to read; show a part: a layer of the net, get_internals() of a "
            "Symbol, a shorter trace"
        )
    return fit


def _boxes(view: View) -> int:
    return max(len(stage.boxes) for stage in view.stages)


# -- what there is to be seen ----------------------------------------------------------------------


def _of_symbol(symbol: Symbol, shapes: dict[str, tuple[int, ...]]) -> View:
    """With all shapes known, all stages of the compiler for prediction; else the graph as
    written."""
    nodes = topological(symbol._entries)
    known = {n: shapes[n.name] for n in nodes if n.op is None and n.name in shapes}
    stray = set(shapes) - {node.name for node in known}
    if stray:
        raise MXNetError(f"graph_view: the Symbol has no variable {', '.join(sorted(stray))}")
    found = shapes_of(symbol._entries, known)
    variables = [node for node in nodes if node.op is None]
    title = symbol.name or "symbol"
    if all((shape := found.get((node, 0))) and is_known(shape) for node in variables):
        specs = {
            n: n.specs[0] if n.specs else Spec(found[n, 0] or (), "float32") for n in variables
        }
        inputs, outputs = infer_types(symbol._entries, specs, False)
        return View(title, _make_stages(outputs, list(inputs.values()), "as written"))
    words = "as the program wrote it; some shapes are not known (give them: graph_view(s, x=...))"
    return View(title, [of_nodes("as written", words, symbol._entries, set(), found)])


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
        shape = shape_in_words(kind.variables[0].specs[0]) if kind.variables else ""  # type: ignore[index]
        mode = ", training" if kind.training else ""
        title = f"{kind.name}{mode}, for {kind.variables[0].name} {shape}"
        found.append(View(f"{title}: forward", _of_forward(kind)))
        for backward in kind._backward.values():
            stages = _of_program(backward.program)
            found.append(View(f"{title}: backward", stages))
    return found


def _of_forward(compiled: Compiled) -> list[Stage]:
    if not compiled.wanted:
        return _make_stages(compiled.typed, compiled.variables, "traced", compiled.forward)
    first = of_nodes("traced", "what one call of the net recorded", compiled.typed, None)
    return [first, *_of_program(compiled.forward, set(topological(compiled.typed)))]


def _make_stages(
    outputs: Sequence[Entry], inputs: Sequence[Node], first: str, program: Program | None = None
) -> list[Stage]:
    """A typed graph, after each pass that changes it, and in groups."""
    words = "what one call of the net recorded" if program else "as the program wrote it"
    stages = [of_nodes(first, words, outputs, None)]

    def add_stage(done: Pass, before: Sequence[Entry], after: Sequence[Entry]) -> None:
        about, known = _about(done), set(topological(before))
        stages.append(of_nodes(done.__name__, about, after, known))

    final = simplify(outputs, watch=add_stage)
    on_gpu = program is not None and _is_on_gpu(program)
    return [*stages, fused_stage(inputs, final, on_gpu, set(topological(final)))]


def _about(function: Callable[..., Any]) -> str:
    """The first paragraph of a pass's module."""
    text = (sys.modules[function.__module__].__doc__ or "").split("\n\n")[0]
    return " ".join(text.split())


def _of_program(program: Program, before: set[Node] | None = None) -> list[Stage]:
    """A compiled program: the simplified graph, and the graph in groups."""
    words = "after all passes" if before is None else "after all passes, with what backward needs"
    simplified = of_nodes("simplified", words, program.outputs, before)
    known = set(topological(program.outputs))
    return [simplified, fused_stage(program.inputs, program.outputs, _is_on_gpu(program), known)]


def _is_on_gpu(program: Program) -> bool:
    """True if a group is one kernel. (Not on virtual devices, which compute as the CPU does.)"""
    return program.xp is not np


# -- what ran --------------------------------------------------------------------------------------


def _of_trace(trace: Trace) -> Stage:
    """The operations of a trace, and their dependencies."""
    operations = trace.operations
    if not operations:
        raise MXNetError("graph_view: nothing ran while the trace was made")
    edges = edges_of(drop_implied(trace.order))
    boxes = []
    for operation in operations:
        took = [("took", in_time(operation.run_ns / 1e9))] if operation.ran else []
        facts = [("ran on", operation.worker or "nothing"), *took, *costs_of(operation.cost)]
        facts += [("line", operation.where)] if operation.site else []
        lines = [f"{operation.number} {shown_name(operation.name)}", shorten(operation.line, 36)]
        kind = "copy" if operation.is_copy else "compute"
        boxes.append(Box([line for line in lines if line], kind, [], False, False, facts))
    costs = [operation.cost for operation in operations]
    whole = Cost(sum(c.flops for c in costs), sum(c.nbytes for c in costs))
    words = "every operation, above what came after it; dashed: it only makes room"
    return Stage("what ran", words, boxes, edges, len(boxes), whole)

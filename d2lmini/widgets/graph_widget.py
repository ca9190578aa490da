"""A view of graphs: what a net computes, the cost of each op, before and after fusion.

    net.hybridize()
    net(x)
    d2lmini.widgets.graph_view(net)

shows the traced graph; a button for each stage shows the compiler's result up to the groups that
run in one pass. Point at a box for its shapes, FLOPs, bytes and the line that made it. A Symbol and
a Program are shown the same way. Outside a notebook the view prints the cost of the stages:

>>> from d2lmini import sym
>>> with sym.NameManager():
...     y = sym.relu(sym.var("x") * 2 + 1, name="y")
>>> graph_view(y, x=(1000, 1000))
graph of y
  as written: 3 operations, 24 MB moved, 3 MFLOPs
  fused: 1 statement, 8 MB moved, 3 MFLOPs
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

from d2lmini.draw import svg
from d2lmini.draw.picture import Drawing
from d2lmini.draw.svg import MARGIN, break_lines, draw_legend, draw_text
from d2lmini.symbol.picture import KINDS
from d2lmini.widgets.base import Message, Widget
from d2lmini.widgets.graph_stages import Stage, View, views_of

#: Two stages stand side by side up to this width, in pixels; beyond this many boxes only the last
#: stage is drawn, which has fewer.
WIDE, MOST_DRAWN = 1100.0, 80


def graph_view(x: Any, /, **shapes: tuple[int, ...]) -> GraphView:
    """A view of a graph: of a Symbol (with `shapes` of its variables, as for `infer_shape`), of a
    HybridBlock that was hybridized and called, or of a Program. TypeError for anything else;
    MXNetError for a net without a graph, shapes that do not fit, and more than 150 boxes."""
    return GraphView(views_of(x, **shapes))


class GraphView(Widget):
    """Graphs and their stages; `views` has them as plain data."""

    script = "graph_view"
    words = "graph view"

    def __init__(self, views: Sequence[View]):
        super().__init__()
        self.views = list(views)

    def whole(self) -> Message:
        """All stages: the view itself chooses which stage it shows."""
        kinds = {name: kind.means for name, kind in KINDS.items()}
        views = [
            {"title": view.title, "stages": [_describe(stage) for stage in view.stages]}
            for view in self.views
        ]
        return {"views": views, "kinds": kinds}, []

    def picture(self) -> Drawing:
        """The first and the last stage of the first graph."""
        return self._drawing

    @cached_property
    def _drawing(self) -> Drawing:
        return _draw(self.views[0])

    def __repr__(self) -> str:
        lines = []
        for view in self.views:
            lines += [f"graph of {view.title}", *(f"  {stage}" for stage in view.stages)]
        return "\n".join(lines)


def _arrange(stage: Stage) -> tuple[list[svg.Box], svg.Scene]:
    """The boxes of a stage as they are drawn, and their places."""
    boxes = [
        svg.Box(box.lines, KINDS[box.kind], box.kind == "variable", box.output, parts=box.parts)
        for box in stage.boxes
    ]
    sizes = []
    for box, drawn in zip(stage.boxes, boxes):
        mark = " " * 5 if box.new else ""  # room for "new" in the first line
        width, height = svg.size_of(drawn._replace(lines=[box.lines[0] + mark, *box.lines[1:]]))
        sizes.append((max(width, 70.0), height))
    return boxes, svg.arrange(sizes, stage.edges)


def _describe(stage: Stage) -> dict[str, Any]:
    """A stage for JSON."""
    scene = _arrange(stage)[1].describe()
    for box, placed in zip(stage.boxes, scene["boxes"]):
        placed |= box._asdict()
    return {"name": stage.name, "words": stage.words, "total": str(stage), **scene}


def _draw(view: View) -> Drawing:
    stages = [view.stages[0], view.stages[-1]] if len(view.stages) > 1 else view.stages
    if sum(len(stage.boxes) for stage in stages) > MOST_DRAWN:
        stages = stages[-1:]
    arranged = [_arrange(stage) for stage in stages]
    beside = sum(scene.width for _, scene in arranged) <= WIDE
    parts: list[str] = []
    left = right = top = bottom = 0.0

    def write(text: str, bold: bool, width: float, y: float) -> float:
        for line in break_lines(text, width - 2 * MARGIN):
            y += 14
            parts.append(draw_text(left + MARGIN, y, line, 11, bold=bold))
        return y

    top = write(f"graph of {view.title}", False, 480, 6)
    for stage, (boxes, scene) in zip(stages, arranged):
        width = max(scene.width, 300.0)
        low = write(str(stage), True, width, top + 2) + 4
        parts += scene.draw(boxes, left, low)
        right, bottom = max(right, left + width), max(bottom, low + scene.height)
        left, top = (left + width + 20, top) if beside else (left, bottom + 10)
    seen = [box for stage in stages for box in stage.boxes]
    x, y = MARGIN, bottom + 8
    for kind, look in KINDS.items():
        if any(box.kind == kind for box in seen):
            wide = 30 + 5.4 * len(look.means)
            if x + wide > right:
                x, y = MARGIN, y + 16
            parts.append(draw_legend(x, y, look, kind == "variable"))
            x += wide
    said = ["thick frame: a result"] * any(box.output for box in seen)
    said += ["boxes in a box: done in one pass"] * any(box.parts for box in seen)
    parts.append(draw_text(MARGIN, y + 28, "; ".join(said), 9))
    return Drawing(svg.page(max(right, 480.0), y + 36, parts), f"graph of {view.title}")

"""A view of graphs: what a net computes, the cost of each op, before and after fusion.

    net.hybridize()
    net(x)
    d2lmini.widgets.graph_view(net)

shows the traced graph; a button for each stage shows the compiler's result up to the groups that
run in one pass and the memory between them. Point at a box for its shapes, FLOPs, bytes and the
line that made it. A Symbol, a Program and a Trace are shown the same way. Outside a notebook the
view prints the cost of the stages:

>>> from d2lmini import sym
>>> with sym.NameManager():
...     y = sym.relu(sym.var("x") * 2 + 1, name="y")
>>> graph_view(y, x=(1000, 1000))
graph of y
  as written: 3 operations, 24 MB moved, 3 MFLOPs
  fused: 1 statement, 8 MB moved, 3 MFLOPs
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import cycle
from typing import Any

from d2lmini.draw import svg
from d2lmini.draw.picture import Drawing
from d2lmini.draw.svg import (
    FILLED,
    INK,
    LINE,
    MARGIN,
    Look,
    arrange,
    break_lines,
    draw_arrow,
    draw_frame,
    draw_legend,
    draw_text,
    page,
)
from d2lmini.symbol.picture import KINDS
from d2lmini.widgets.base import Message, Widget
from d2lmini.widgets.graph_boxes import Box, Stage
from d2lmini.widgets.graph_stages import View, views_of

#: Pixels: a part of a fused group.
PART = 17.0
#: Two stages stand side by side up to this width; details that are slow to draw are left out
#: beyond this many boxes.
WIDE, MOST_DRAWN = 1100.0, 80

#: The style of each kind of box: those of a Symbol's picture, and those of a trace.
LOOKS = {
    **KINDS,
    "compute": Look("an operation", "#a9c7ea", "#111111"),
    "copy": Look("a copy between devices", "#5f9bd1", "#111111", "4 2"),
}


def graph_view(x: Any, /, **shapes: tuple[int, ...]) -> GraphView:
    """A view of a graph: of a Symbol (with `shapes` of its variables, as for `infer_shape`), of a
    HybridBlock that was hybridized and called, of a Program or a list of them (`net.program()`), or
    of a Trace. TypeError for anything else; MXNetError for a net without a graph, shapes that do
    not fit, and more than 150 boxes."""
    return GraphView(views_of(x, **shapes))


class GraphView(Widget):
    """Graphs and their stages; `views` has them as plain data."""

    script = "graph_view"
    words = "graph view"

    def __init__(self, views: Sequence[View]):
        super().__init__()
        self.views = list(views)
        self._drawing: Drawing | None = None

    def whole(self) -> Message:
        """All stages: the view itself chooses which stage it shows."""
        kinds = {name: kind.means for name, kind in LOOKS.items()}
        views = [
            {"title": view.title, "stages": [_scene(stage) for stage in view.stages]}
            for view in self.views
        ]
        return {"views": views, "kinds": kinds}, []

    def picture(self) -> Drawing:
        """The first and the last stage of the first graph."""
        if self._drawing is None:
            self._drawing = _drawing(self.views[0])
        return self._drawing

    def __repr__(self) -> str:
        lines = []
        for view in self.views:
            lines += [f"graph of {view.title}", *(f"  {stage}" for stage in view.stages)]
        return "\n".join(lines)


# -- where everything stands -----------------------------------------------------------------------


def _scene(stage: Stage) -> dict[str, Any]:
    """A stage for JSON: boxes with the middle of their upper edge, arrows as SVG paths, the arena
    as rectangles of (name, first statement, last, offset, bytes)."""
    sizes = [_size(box) for box in stage.boxes]
    places = arrange(sizes, list(stage.edges))
    boxes = []
    for box, x, y, (width, height) in zip(stage.boxes, places.x, places.y, sizes):
        where = {"x": round(MARGIN + x, 1), "y": y, "width": round(width, 1), "height": height}
        boxes.append({**where, **box._asdict()})
    edges = [
        {"from": a, "to": b, "value": stage.edges[a, b], "path": path, "head": head}
        for (a, b), (path, head) in places.arrows.items()
    ]
    found: dict[str, Any] = {
        "name": stage.name,
        "words": stage.words,
        "total": str(stage),
        "size": [places.width, places.height],
        "boxes": boxes,
        "edges": edges,
        "arena": None,
    }
    if stage.plan is not None and stage.plan.lives:
        found["arena"] = {
            "nbytes": stage.plan.nbytes,
            "separately": stage.plan.separately,
            "lives": [
                [life.name, life.begin, life.end, offset, life.nbytes]
                for life, offset in zip(stage.plan.lives, stage.plan.offsets)
            ],
        }
    return found


def _size(box: Box) -> tuple[float, float]:
    widths = [(7.0 if i == 0 else 5.6) * len(line) + 20 for i, line in enumerate(box.lines)]
    widths += [5.6 * len(part) + 34 for part in box.parts]
    mark = 34 if box.new else 0  # beside the first line
    widths[0] += mark
    return max([*widths, 70.0]), 10 + LINE * len(box.lines) + PART * len(box.parts)


# -- the picture -----------------------------------------------------------------------------------


def _drawing(view: View) -> Drawing:
    stages = [view.stages[0], view.stages[-1]] if len(view.stages) > 1 else view.stages
    if sum(len(stage.boxes) for stage in stages) > MOST_DRAWN:
        stages = stages[-1:]
    scenes = [_scene(stage) for stage in stages]
    beside = sum(scene["size"][0] for scene in scenes) <= WIDE
    parts: list[str] = []
    head = break_lines(f"graph of {view.title}", 480 - 2 * MARGIN)
    parts += [draw_text(MARGIN, 20 + 14 * i, line, 11) for i, line in enumerate(head)]
    left = right = 0.0
    top = bottom = 14.0 * len(head)
    for scene in scenes:
        width = max(scene["size"][0], 300.0)
        title, high = _title(scene, left, top, width)
        parts += title + _draw_scene(scene, left, top + high)
        right = max(right, left + width)
        bottom = max(bottom, top + high + scene["size"][1])
        if beside:
            left += width + 20
        else:
            top = bottom + 10
    used = [k for k in LOOKS if any(b["kind"] == k for scene in scenes for b in scene["boxes"])]
    x, y = MARGIN, bottom + 8
    for kind in used:
        wide = 30 + 5.4 * len(LOOKS[kind].means)
        if x + wide > right:
            x, y = MARGIN, y + 16
        parts.append(draw_legend(x, y, LOOKS[kind], kind == "variable"))
        x += wide
    boxes = [box for scene in scenes for box in scene["boxes"]]
    said = ["thick frame: a result"] * any(box["output"] for box in boxes)
    said += ["boxes in a box: done in one pass"] * any(box["parts"] for box in boxes)
    if not all(edge["value"] for scene in scenes for edge in scene["edges"]):
        said.append("dashed arrow: overwrites what that one reads or wrote")
    parts.append(draw_text(MARGIN, y + 28, "; ".join(said), 9))
    return Drawing(page(max(right, 480.0), y + 36, parts), f"graph of {view.title}")


def _title(scene: dict[str, Any], left: float, top: float, width: float) -> tuple[list[str], float]:
    lines = break_lines(scene["total"], width - 2 * MARGIN)
    y = top + 8
    parts = []
    for line in lines:
        y += 14
        parts.append(draw_text(left + MARGIN, y, line, 11, bold=True))
    return parts, y - top + 4


def _draw_scene(scene: dict[str, Any], left: float, top: float) -> list[str]:
    """The boxes and arrows of a scene, moved to its position."""
    parts = []
    for edge in scene["edges"]:
        path, head = (_move_path(edge[name], left, top) for name in ("path", "head"))
        parts.append(draw_arrow(path, head, dashed=not edge["value"]))
    for box in scene["boxes"]:
        parts.append(_box(box, left + box["x"], top + box["y"]))
    return parts


def _box(box: dict[str, Any], x: float, y: float) -> str:
    height, width = box["height"], box["width"]
    shown = svg.Box(box["lines"], LOOKS[box["kind"]], box["kind"] == "variable", box["output"])
    drawn = svg.draw_box(shown, x, y, width, height)
    y += 2 + LINE * len(box["lines"])
    for part in box["parts"]:
        drawn += draw_frame(x, y + 5, box["width"] - 16, PART - 3, "#ffffff", INK, 3)
        y += PART
        drawn += draw_text(x, y - 2, part, 9, FILLED, middle=True)
    return drawn


def _move_path(path: str, right: float, down: float) -> str:
    """A translated SVG path, whose numbers are x and y by turns."""
    by = cycle((right, down))
    return re.sub(r"[-+.\de]+", lambda number: f"{float(number[0]) + next(by):g}", path)

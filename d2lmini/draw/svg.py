"""Boxes and arrows from top to bottom, as SVG: for all drawings of programs, graphs and classes.

>>> scene = arrange([(40, 20), (40, 20), (60, 30)], {(0, 2): True, (1, 2): False})
>>> scene.x, scene.y, scene.width
([30.0, 94.0, 62.0], [10.0, 10.0, 60.0], 124.0)
>>> scene.describe()["edges"][0]["path"]
'M30 30C30 44.5 62 44.5 62 59'

`layers` finds the positions. A notebook stores the picture that `draw` makes; the live views draw
what `describe` says themselves, in the browser (`js/shared.js`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from html import escape
from typing import Any, NamedTuple

from d2lmini.draw.layers import Edge, place

#: Pixels: between rows, around the drawing, and per line of text in a box.
BETWEEN, MARGIN, LINE = 30.0, 10.0, 13.0

#: A picture has no ground of its own: it lies on a light page or a dark one. INK, for letters and
#: lines on the page, is legible on both (4.6:1 on white, 4.1:1 on JupyterLab's #111111); FILLED is
#: for letters in a box.
INK, FILLED, ACCENT = "#757575", "#111111", "#d9661f"


class Look(NamedTuple):
    """The look of one kind of box, and its text in the legend."""

    means: str
    fill: str
    text: str = FILLED
    dashes: str = ""


class Box(NamedTuple):
    """A box of a diagram.

    lines    the text, the first line in bold
    look     colours and frame
    rounded  half-circle ends: a variable
    accent   a bold frame: a result
    title    the browser's tooltip
    label    small text below the box
    """

    lines: Sequence[str]
    look: Look
    rounded: bool = False
    accent: bool = False
    title: str = ""
    label: str = ""


class Scene(NamedTuple):
    """Boxes at their places, and the arrows between them.

    sizes         width and height of each box
    x, y          the middle of the upper edge of each box
    edges         (from, to) -> does the arrow carry a value? (else it is dashed)
    points        of each edge: from the box, through the bends, to the box
    width, height of the whole drawing
    """

    sizes: Sequence[tuple[float, float]]
    x: list[float]
    y: list[float]
    edges: Mapping[Edge, bool]
    points: dict[Edge, list[tuple[float, float]]]
    width: float
    height: float

    def describe(self) -> dict[str, Any]:
        """The places for a live view, as JSON."""
        boxes = [
            {"x": round(x, 1), "y": y, "width": round(width, 1), "height": height}
            for x, y, (width, height) in zip(self.x, self.y, self.sizes)
        ]
        edges = [
            {"from": a, "to": b, "value": self.edges[a, b], "path": smooth_path(points),
             "head": _head(*points[-1])}
            for (a, b), points in self.points.items()
        ]  # fmt: skip
        return {"boxes": boxes, "edges": edges, "size": [self.width, self.height]}

    def draw(self, boxes: Sequence[Box], left: float = 0, top: float = 0) -> list[str]:
        """The SVG elements, moved to the right and down."""
        parts = []
        for edge, points in self.points.items():
            moved = [(x + left, y + top) for x, y in points]
            dashes = "" if self.edges[edge] else ' stroke-dasharray="4 3"'
            parts.append(f'<path d="{smooth_path(moved)}" fill="none" stroke="{INK}"{dashes}/>')
            parts.append(f'<path d="{_head(*moved[-1])}" fill="{INK}"/>')
        for box, x, y, size in zip(boxes, self.x, self.y, self.sizes):
            parts.append(draw_box(box, x + left, y + top, *size))
        return parts


def arrange(sizes: Sequence[tuple[float, float]], edges: Mapping[Edge, bool]) -> Scene:
    """Find places for boxes of these widths and heights; every edge leads to a higher number."""
    places = place([width for width, _ in sizes], list(edges))
    row_height = [0.0] * (max(places.row, default=-1) + 1)
    for row, (_, height) in zip(places.row, sizes):
        row_height[row] = max(row_height[row], height)
    tops = [MARGIN]
    for height in row_height:
        tops.append(tops[-1] + height + BETWEEN)
    x = [MARGIN + middle for middle in places.x]
    # Centre a box that is lower than its row.
    y = [tops[row] + (row_height[row] - height) / 2 for row, (_, height) in zip(places.row, sizes)]
    points: dict[Edge, list[tuple[float, float]]] = {}
    for a, b in edges:
        points[a, b] = [(x[a], y[a] + sizes[a][1])]
        for row, bend in enumerate(places.bends.get((a, b), ()), places.row[a] + 1):
            points[a, b].append((MARGIN + bend, tops[row]))
            points[a, b].append((MARGIN + bend, tops[row] + row_height[row]))
        points[a, b].append((x[b], y[b] - 1))
    right = max([middle + width / 2 for middle, (width, _) in zip(x, sizes)], default=MARGIN)
    return Scene(sizes, x, y, edges, points, right + MARGIN, tops[-1] - BETWEEN + MARGIN)


def smooth_path(points: Sequence[tuple[float, float]]) -> str:
    """The path of a smooth line through the points, vertical at each point."""
    (x, y), *others = points
    path = f"M{x:g} {y:g}"
    for u, v in others:
        half = (y + v) / 2
        path += f"L{u:g} {v:g}" if x == u else f"C{x:g} {half:g} {u:g} {half:g} {u:g} {v:g}"
        x, y = u, v
    return path


def _head(x: float, y: float) -> str:
    return f"M{x - 4:g} {y - 7:g}L{x:g} {y:g}L{x + 4:g} {y - 7:g}z"


# -- diagrams --------------------------------------------------------------------------------------


def diagram(
    boxes: Sequence[Box], edges: Sequence[Edge], dashed: Collection[Edge] = ()
) -> tuple[list[str], float, float]:
    """Draw boxes with arrows between them: the SVG elements, the width, the height."""
    scene = arrange([size_of(box) for box in boxes], {e: e not in dashed for e in edges})
    return scene.draw(boxes), scene.width, scene.height


def size_of(box: Box) -> tuple[float, float]:
    """Approximate width and height of a box; the first line is bold and larger."""
    widths = [(5.4 if i else 7.0) * len(line) + 20 for i, line in enumerate(box.lines)]
    return max(widths, default=0.0), 10 + LINE * len(box.lines)


def draw_box(box: Box, x: float, y: float, width: float, height: float) -> str:
    """A box with its text, centred at `x`, below `y`."""
    look = box.look
    corner = height / 2 if box.rounded else 4.0
    edge, wide = (ACCENT, 2.5) if box.accent else (INK, 1.0)
    drawn = draw_frame(x, y, width, height, look.fill, edge, corner, wide, look.dashes)
    for i, line in enumerate(box.lines):
        size = 9 if i else 11
        drawn += draw_text(x, y + 15 + LINE * i, line, size, look.text, i == 0, middle=True)
    if box.label:
        drawn += draw_text(x + 5, y + height + 10, box.label, 9)
    return f"<g><title>{escape(box.title)}</title>{drawn}</g>" if box.title else drawn


# -- shapes ----------------------------------------------------------------------------------------


def page(width: float, height: float, parts: Sequence[str]) -> str:
    """The text of an SVG with this size."""
    inside = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}" font-family="Helvetica, Arial, sans-serif">\n'
        f"{inside}\n</svg>"
    )


def draw_text(
    x: float, y: float, text: str, size: int, color: str = INK, bold: bool = False,
    middle: bool = False,
) -> str:  # fmt: skip
    """A line of text."""
    how = ' font-weight="bold"' if bold else ""
    how += ' text-anchor="middle"' if middle else ""
    return f'<text x="{x:g}" y="{y:g}" font-size="{size}" fill="{color}"{how}>{escape(text)}</text>'


def draw_frame(
    x: float, y: float, width: float, height: float, face: str, edge: str, corner: float = 4,
    wide: float = 1, dashes: str = "",
) -> str:  # fmt: skip
    """A rectangle with round corners, centred at `x`, below `y`."""
    how = f' stroke-dasharray="{dashes}"' if dashes else ""
    return (
        f'<rect x="{x - width / 2:g}" y="{y:g}" width="{width:g}" height="{height:g}" '
        f'rx="{corner:g}" fill="{face}" stroke="{edge}" stroke-width="{wide:g}"{how}/>'
    )


def shorten(text: str, most: int = 40) -> str:
    """The text, shortened with a sign of omission if necessary."""
    return text if len(text) <= most else text[: most - 1].rstrip(", ") + "…"

"""Boxes and arrows from top to bottom, as SVG: for all drawings of programs, graphs and classes.

>>> scene = arrange([(40, 20), (40, 20), (60, 30)], {(0, 2): True, (1, 2): False})
>>> scene.x, scene.y, scene.width
([30.0, 94.0, 62.0], [10.0, 10.0, 60.0], 124.0)
>>> scene.describe()["edges"][0]["path"]
'M30 30C30 44.5 62 44.5 62 59'

`layers` finds the positions. A notebook stores the picture that `draw` makes; the live views draw
what `describe` says themselves, in the browser (`js/shared.js`). Pages that show no SVG, such as a
notebook that is not trusted yet, get a `png`: the same rectangles, lines and texts, drawn by
matplotlib.
"""

from __future__ import annotations

import io
import re
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any, NamedTuple
from xml.etree import ElementTree

from d2lmini.draw.layers import Edge, place

#: Pixels: between rows, around the drawing, and per line of text in a box.
BETWEEN, MARGIN, LINE = 30.0, 10.0, 13.0

#: A picture has no ground of its own: it lies on a light page or a dark one. INK, for letters and
#: lines on the page, is legible on both (4.6:1 on white, 4.1:1 on JupyterLab's #111111); FILLED is
#: for letters in a box.
INK, FILLED, ACCENT = "#757575", "#111111", "#d9661f"


class Box(NamedTuple):
    """A box of a diagram.

    lines    the text, the first line in bold
    fill     its colour
    rounded  half-circle ends: a variable
    accent   a bold frame: a result
    title    the browser's tooltip
    label    small text below the box
    """

    lines: Sequence[str]
    fill: str = ""
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

    def draw(self, boxes: Sequence[Box]) -> list[str]:
        """The SVG elements."""
        parts = []
        for edge, points in self.points.items():
            dashes = "" if self.edges[edge] else ' stroke-dasharray="4 3"'
            parts.append(f'<path d="{smooth_path(points)}" fill="none" stroke="{INK}"{dashes}/>')
            parts.append(f'<path d="{_head(*points[-1])}" fill="{INK}"/>')
        return parts + [
            draw_box(box, x, y, *size) for box, x, y, size in zip(boxes, self.x, self.y, self.sizes)
        ]


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


def diagram(boxes: Sequence[Box], edges: Mapping[Edge, bool], right: int = 0, low: int = 0) -> str:
    """The SVG of boxes with arrows between them; there is more room on the right, and below."""
    scene = arrange([size_of(box) for box in boxes], edges)
    return page(scene.width + right, scene.height + low, scene.draw(boxes))


def size_of(box: Box) -> tuple[float, float]:
    """Approximate width and height of a box; the first line is bold and larger."""
    widths = [(5.4 if i else 7.0) * len(line) + 20 for i, line in enumerate(box.lines)]
    return max(widths, default=0.0), 10 + LINE * len(box.lines)


def draw_box(box: Box, x: float, y: float, width: float, height: float) -> str:
    """A box with its text, centred at `x`, below `y`."""
    corner = height / 2 if box.rounded else 4.0
    edge, wide = (ACCENT, 2.5) if box.accent else (INK, 1.0)
    drawn = (
        f'<rect x="{x - width / 2:g}" y="{y:g}" width="{width:g}" height="{height:g}" '
        f'rx="{corner:g}" fill="{box.fill}" stroke="{edge}" stroke-width="{wide:g}"/>'
    )
    for i, line in enumerate(box.lines):
        how = ' text-anchor="middle"' if i else ' font-weight="bold" text-anchor="middle"'
        drawn += draw_text(x, y + 15 + LINE * i, line, 9 if i else 11, FILLED, how)
    if box.label:
        drawn += draw_text(x + 5, y + height + 10, box.label)
    return f"<g><title>{escape(box.title)}</title>{drawn}</g>" if box.title else drawn


def page(width: float, height: float, parts: Sequence[str]) -> str:
    """The text of an SVG with this size."""
    inside = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}" font-family="Helvetica, Arial, sans-serif">\n'
        f"{inside}\n</svg>"
    )


def draw_text(
    x: float, y: float, text: str, size: int = 9, color: str = INK, how: str = ""
) -> str:  # fmt: skip
    """A line of text."""
    return f'<text x="{x:g}" y="{y:g}" font-size="{size}" fill="{color}"{how}>{escape(text)}</text>'


def shorten(text: str, most: int = 40) -> str:
    """The text, shortened with a sign of omission if necessary."""
    return text if len(text) <= most else text[: most - 1].rstrip(", ") + "…"


# -- PNG -------------------------------------------------------------------------------------------

_SVG = "{http://www.w3.org/2000/svg}"
_POINTS_PER_PIXEL = 72 / 96


def png(svg: str, dots_per_pixel: float = 2.0) -> bytes:
    """The PNG of an SVG of this module, with `dots_per_pixel` dots for each pixel of the SVG."""
    from matplotlib.figure import Figure

    root = ElementTree.fromstring(svg)
    width, height = float(root.attrib["width"]), float(root.attrib["height"])
    figure = Figure(figsize=(width / 96, height / 96))
    axes = figure.add_axes((0, 0, 1, 1), xlim=(0, width), ylim=(height, 0))
    axes.set_axis_off()
    for order, part in enumerate(root.iter()):
        given: dict[str, Any] = dict(part.attrib)
        x, y = float(given.get("x", 0)), float(given.get("y", 0))
        tag = part.tag.removeprefix(_SVG)
        if tag == "text":
            axes.text(
                x, y, part.text or "", zorder=order, color=given["fill"], parse_math=False,
                fontsize=float(given["font-size"]) * _POINTS_PER_PIXEL * 0.92,
                fontweight=given.get("font-weight", "normal"), va="baseline",
                ha="center" if "text-anchor" in given else "left",
            )  # fmt: skip
        elif tag in ("rect", "path"):
            dashes = [float(n) for n in given.get("stroke-dasharray", "").split()]
            patch = _box_of(x, y, given) if tag == "rect" else _path_of(given["d"])
            patch.set(
                zorder=order, facecolor=given["fill"], edgecolor=given.get("stroke", "none"),
                linewidth=float(given.get("stroke-width", 1)) * _POINTS_PER_PIXEL,
                linestyle=(0, dashes) if dashes else "-",
            )  # fmt: skip
            axes.add_patch(patch)
    file = io.BytesIO()
    figure.savefig(
        file, format="png", dpi=96 * dots_per_pixel, transparent=True, metadata={"Software": None}
    )
    return file.getvalue()


def _box_of(x: float, y: float, given: dict[str, Any]) -> Any:
    from matplotlib.patches import FancyBboxPatch

    width, height = float(given["width"]), float(given["height"])
    corner = min(float(given["rx"]), height / 2)
    return FancyBboxPatch(
        (x, y), width, height, boxstyle=f"round,pad=0,rounding_size={corner}"
    )  # fmt: skip


def _path_of(text: str) -> Any:
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path

    kinds = {"M": Path.MOVETO, "L": Path.LINETO, "C": Path.CURVE4, "z": Path.CLOSEPOLY}
    points: list[tuple[float, float]] = []
    codes: list[Any] = []
    for letter, numbers in re.findall(r"([MLCz])([^MLCz]*)", text):
        values = [float(n) for n in numbers.split()] or [0.0, 0.0]
        points += zip(values[::2], values[1::2])
        codes += [kinds[letter]] * (len(values) // 2)
    return PathPatch(Path(points, codes))

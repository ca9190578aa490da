"""Boxes and arrows from top to bottom, as SVG: for all drawings of programs, graphs and classes.

>>> found = arrange([(40, 20), (40, 20), (60, 30)], [(0, 2), (1, 2)])
>>> found.x, found.y, found.width
([20.0, 84.0, 52.0], [10.0, 10.0, 60.0], 124.0)
>>> found.arrows[0, 2]
('M30 30C30 44.5 62 44.5 62 59', 'M58 52L62 59L66 52z')

`layers` finds the positions. The live views draw these shapes themselves, in the browser; `Drawing`
is the picture that a notebook stores.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from html import escape
from typing import NamedTuple

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


class Arrangement(NamedTuple):
    """Positions of boxes: `x` of the centres (without the margin), `y` of the upper edges; for each
    edge the paths of its line and its head; the total size."""

    x: list[float]
    y: list[float]
    arrows: dict[Edge, tuple[str, str]]
    width: float
    height: float


def arrange(sizes: Sequence[tuple[float, float]], edges: Sequence[Edge]) -> Arrangement:
    """Find positions for boxes of these widths and heights; every edge leads to a higher number."""
    places = place([width for width, _ in sizes], edges)
    row_height = [0.0] * (max(places.row, default=-1) + 1)
    for row, (_, height) in zip(places.row, sizes):
        row_height[row] = max(row_height[row], height)
    tops = [MARGIN]
    for height in row_height:
        tops.append(tops[-1] + height + BETWEEN)
    # Centre a box that is lower than its row.
    y = [tops[row] + (row_height[row] - height) / 2 for row, (_, height) in zip(places.row, sizes)]
    arrows = {}
    for a, b in dict.fromkeys(edges):
        points = [(MARGIN + places.x[a], y[a] + sizes[a][1])]
        for i, bend in enumerate(places.bends.get((a, b), ())):
            row = places.row[a] + 1 + i
            points += [(MARGIN + bend, tops[row]), (MARGIN + bend, tops[row] + row_height[row])]
        points.append((MARGIN + places.x[b], y[b] - 1))
        arrows[a, b] = smooth_path(points), _head(*points[-1])
    right = max([x + width / 2 for x, (width, _) in zip(places.x, sizes)], default=0.0)
    return Arrangement(places.x, y, arrows, right + 2 * MARGIN, tops[-1] - BETWEEN + MARGIN)


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
    sizes = [size_of(box.lines) for box in boxes]
    places = arrange(sizes, edges)
    parts = [draw_arrow(path, head, edge in dashed) for edge, (path, head) in places.arrows.items()]
    for box, x, y, (width, height) in zip(boxes, places.x, places.y, sizes):
        parts.append(draw_box(box, MARGIN + x, y, width, height))
        if box.label:
            parts.append(draw_text(MARGIN + x + 5, y + height + 10, box.label, 9))
    return parts, places.width, places.height


def size_of(lines: Sequence[str]) -> tuple[float, float]:
    """Approximate width and height of a box with this text; the first line is bold and larger."""
    widths = [(5.4 if i else 7.0) * len(line) + 20 for i, line in enumerate(lines)]
    return max(widths, default=0.0), 10 + LINE * len(lines)


def draw_box(box: Box, x: float, y: float, width: float, height: float) -> str:
    """A box with its text, centred at `x`, below `y`."""
    look = box.look
    corner = height / 2 if box.rounded else 4.0
    edge, wide = (ACCENT, 2.5) if box.accent else (INK, 1.0)
    drawn = draw_frame(x, y, width, height, look.fill, edge, corner, wide, look.dashes)
    for i, line in enumerate(box.lines):
        size = 9 if i else 11
        drawn += draw_text(x, y + 15 + LINE * i, line, size, look.text, i == 0, middle=True)
    return with_title(box.title, drawn) if box.title else drawn


def draw_legend(x: float, y: float, look: Look, rounded: bool = False) -> str:
    """A legend entry: a small box of this look, and its meaning."""
    frame = draw_frame(x + 8, y, 16, 10, look.fill, INK, 5 if rounded else 2, 1, look.dashes)
    return frame + draw_text(x + 22, y + 9, look.means, 9)


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


def with_title(title: str, drawn: str) -> str:
    """Shapes with a tooltip."""
    return f"<g><title>{escape(title)}</title>{drawn}</g>"


def draw_arrow(path: str, head: str, dashed: bool = False) -> str:
    """A line with an arrow head."""
    dashes = ' stroke-dasharray="4 3"' if dashed else ""
    line = f'<path d="{path}" fill="none" stroke="{INK}"{dashes}/>'
    return line + f'<path d="{head}" fill="{INK}"/>'


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


def break_lines(text: str, width: float, letter: float = 6.2) -> list[str]:
    """Split the text between words into lines that fit the width."""
    lines = [""]
    for word in text.split(" "):
        if letter * (len(lines[-1]) + len(word)) > width:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".strip()
    return [line for line in lines if line]

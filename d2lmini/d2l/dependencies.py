"""A picture of what must come after what: the graph that the engine reads off a program.

    with d2l.recording() as run:
        c = a * b + 2
    d2l.dependency_graph(run)

A box is an operation, with its number and the line that asked for it. A solid arrow carries a
value: what it leads to needs the result. A dashed one carries none: the later operation writes
where the earlier one reads or wrote. Between boxes that no way of arrows joins there is no order.
"""

from __future__ import annotations

from typing import Any

from d2lmini.d2l.plot import STYLES, Picture
from d2lmini.d2l.recorder import Operation, Recording
from d2lmini.symbol.layered import Edge, place

#: Points: a line of text, what is around the lines of a box, and what is between rows.
_LINE, _ROOM, _BETWEEN, _MARGIN = 12.0, 8.0, 22.0, 6.0
#: Beyond this many boxes a picture helps nobody.
MOST = 60


def dependency_graph(run: Recording, lines: bool = True) -> Picture:
    """Draw the operations of a recording, earlier ones above, with arrows to what comes after.

    lines: write the line of the program into each box. ValueError for an empty recording, and for
    one of more than MOST operations.
    """
    n = len(run.operations)
    if not 0 < n <= MOST:
        raise ValueError(f"dependency_graph: it draws 1 to {MOST} operations, there are {n}")
    several = len({each.place for each in run.operations}) > 1
    words = [_words(each, several, lines) for each in run.operations]
    widths = [max(_width(text, i) for i, text in enumerate(each)) + 2 * _ROOM for each in words]
    edges: list[Edge] = []
    for each in run.operations:
        edges += [(k - 1, each.number - 1) for k in sorted(each.needs | each.makes_room)]
    places = place(widths, edges)
    tall = _ROOM + _LINE * max(map(len, words))
    step = tall + _BETWEEN
    height = step * max(places.row) + tall
    middle = [height - tall / 2 - step * row for row in places.row]
    width = max(x + w / 2 for x, w in zip(places.x, widths))

    figure, axes = _page(width, height)
    for a, b in edges:
        # A long arrow passes the rows between, each at its own place.
        points = [(places.x[a], middle[a] - tall / 2)]
        for i, x in enumerate(places.bends.get((a, b), ())):
            top = height - step * (places.row[a] + 1 + i)
            points += [(x, top), (x, top - tall)]
        points.append((places.x[b], middle[b] + tall / 2))
        _arrow(axes, points, dashed=a + 1 in run[b + 1].makes_room)
    for each, lines_, x, y, w in zip(run.operations, words, places.x, middle, widths):
        _box(axes, each, lines_, x, y, w, tall)
    return Picture(figure, f"dependencies of {n} operations: {'; '.join(map(str, run.operations))}")


def _words(operation: Operation, several: bool, lines: bool) -> list[str]:
    where = f"  {operation.place}" if several else ""
    line = operation.line if len(operation.line) <= 44 else operation.line[:43] + "…"
    title = f"{operation.number}  {operation.name}{where}"
    return [title, line] if lines and line else [title]


def _width(text: str, line: int) -> float:
    """About how wide a line of a box is, in points: the first is larger, the second monospaced."""
    return (4.6 if line else 6.0) * len(text)


def _page(width: float, height: float) -> tuple[Any, Any]:
    from matplotlib.figure import Figure

    size = ((width + 2 * _MARGIN) / 72, (height + 2 * _MARGIN) / 72)
    figure = Figure(figsize=size)
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(-_MARGIN, width + _MARGIN), ylim=(-_MARGIN, height + _MARGIN))
    axes.set_axis_off()
    return figure, axes


def _arrow(axes: Any, points: list[tuple[float, float]], dashed: bool) -> None:
    """A smooth line through the points, upright at each, with a head at its end."""
    from matplotlib.patches import PathPatch, Polygon
    from matplotlib.path import Path

    (x, y), *others = points
    corners, codes = [(x, y)], [Path.MOVETO]
    for u, v in others:
        half = (y + v) / 2
        corners += [(x, half), (u, half), (u, v)]
        codes += [Path.CURVE4] * 3
        x, y = u, v
    color = "#8a8a8a" if dashed else STYLES["compute"][1]
    style = (0, (3, 2)) if dashed else "-"
    axes.add_patch(PathPatch(Path(corners, codes), fill=False, edgecolor=color, linestyle=style))
    axes.add_patch(Polygon([(x - 3, y + 6), (x, y), (x + 3, y + 6)], color=color, linewidth=0))


def _box(
    axes: Any, operation: Operation, words: list[str], x: float, y: float, wide: float, tall: float
) -> None:
    from matplotlib.patches import FancyBboxPatch

    face, edge, _ = STYLES["copy" if operation.is_copy else "compute"]
    axes.add_patch(
        FancyBboxPatch(
            (x - wide / 2, y - tall / 2), wide, tall, boxstyle="round,pad=0,rounding_size=4",
            facecolor=face, edgecolor=edge,
        )
    )  # fmt: skip
    for i, text in enumerate(words):
        axes.text(
            x, y + _LINE * ((len(words) - 1) / 2 - i), text, ha="center", va="center",
            fontsize=7.5 if i else 9, weight="normal" if i else "bold",
            family="monospace" if i else None, color="#222222",
        )  # fmt: skip

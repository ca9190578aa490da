"""A picture of what must come after what: the graph that the engine reads off a program.

    with d2lmini.profile() as trace:
        c = a * b + 2
    trace.graph()

A box is an operation, with its number and the line that asked for it. A solid arrow carries a
value: what it leads to needs the result. A dashed one carries none: the later operation writes
where the earlier one reads or wrote. Between boxes that no way of arrows joins there is no order.

>>> from d2lmini import nd, profile
>>> with profile() as trace:
...     a = nd.ones((1, 2))
...     b = a * 2
...     a += 1
...     c = a + b
>>> print(text_of(trace))
1 _ones
2 _mul_scalar, after 1
3 _plus_scalar, after 1, 2*
4 broadcast_add, after 2, 3
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from d2lmini.profiler.order import implied_left_out
from d2lmini.profiler.plot import STYLES, Picture
from d2lmini.profiler.records import Operation
from d2lmini.symbol.layered import Edge, place

if TYPE_CHECKING:
    from d2lmini.profiler.trace import Trace

#: Points: a line of text, what is around the lines of a box, and what is between rows.
_LINE, _ROOM, _BETWEEN, _MARGIN = 12.0, 8.0, 22.0, 6.0
#: Beyond this many boxes a picture helps nobody.
MOST = 60


class Graph(Picture):
    """The picture; printed it is a line for each operation."""

    def __str__(self) -> str:
        return self.text.partition(": ")[2].replace("; ", "\n")


def described(operation: Operation, needs: set[int], room: set[int]) -> str:
    """ "3 _plus_scalar, after 1, 2*": a star stands behind what it only makes room for."""
    after = sorted([(n, "") for n in needs] + [(n, "*") for n in room])
    words = ", ".join(f"{n}{star}" for n, star in after)
    return f"{operation.number} {operation.name}" + (f", after {words}" if words else "")


def text_of(trace: Trace, first: int = 1, last: int | None = None) -> str:
    """A line for each operation of a trace: what it comes after, the implied left out."""
    last = last or len(trace.operations)
    after = implied_left_out(trace.order[:last])
    return "\n".join(
        described(each, *after[each.number - 1]) for each in trace.operations[first - 1 : last]
    )


def graph_of(trace: Trace, first: int = 1, last: int | None = None, lines: bool = True) -> Graph:
    """Draw operations `first` to `last` of a trace, earlier ones above, with arrows to what comes
    after.

    lines: write the line of the program into each box. ValueError for none, and for more than MOST.
    """
    last = last or len(trace.operations)
    operations = trace.operations[first - 1 : last]
    n = len(operations)
    if not 0 < n <= MOST:
        raise ValueError(
            f"dependency_graph: it draws 1 to {MOST} operations, there are {n}"
            + (f"; name some, as in graph(first=1, last={MOST})" if n else "")
        )
    after = implied_left_out(trace.order[:last])[first - 1 :]
    several = len({each.place for each in operations}) > 1
    words = [_words(each, several, lines) for each in operations]
    widths = [max(_width(text, i) for i, text in enumerate(each)) + 2 * _ROOM for each in words]
    edges: list[Edge] = []
    dashed: set[Edge] = set()
    for b, (needs, room) in enumerate(after):
        # A meeting needs what has a higher number; it stands above it all the same.
        here = [(k - first, b) for k in sorted(needs | room) if first <= k < first + b]
        edges += here
        dashed.update((a, b) for a, b in here if a + first in room)
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
        _arrow(axes, points, dashed=(a, b) in dashed)
    for each, lines_, x, y, w in zip(operations, words, places.x, middle, widths):
        _box(axes, each, lines_, x, y, w, tall)
    text = text_of(trace, first, last).replace("\n", "; ")
    return Graph(figure, f"dependencies of {n} operations: {text}")


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

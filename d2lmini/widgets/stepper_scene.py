"""A recorded program as a drawing: boxes and arrows from top to bottom, and who ran what when.

The places are the same in the live view, which draws them itself and says in each box how it
stands, and in the picture (SVG) of a whole run, which says who ran it and from when to when. A
solid arrow carries a value, a dashed one only makes room: the later operation overwrites what the
earlier one reads or wrote.
"""

from __future__ import annotations

import os
from html import escape
from pathlib import Path
from typing import Any

from d2lmini.profiler.order import implied_left_out, order_of
from d2lmini.profiler.plot import STYLES, Picture
from d2lmini.symbol import raster
from d2lmini.symbol.layered import Edge, place
from d2lmini.widgets.stepper_play import Play
from d2lmini.widgets.stepper_program import Program
from d2lmini.widgets.stepper_words import title

#: Pixels: a box, what is between rows, what is around all; a lane, and what stands left of it.
HIGH, BETWEEN, MARGIN, LANE, LEFT = 50.0, 30.0, 10.0, 22.0, 64.0
_INK, _QUIET = "#222222", "#666666"


def after(program: Program) -> dict[int, tuple[set[int], set[int]]]:
    """Of each operation, those whose values it needs, and those for which it makes room; what
    follows from others left out."""
    order = implied_left_out(order_of(list(program.operations.values())))  # type: ignore[arg-type]
    return dict(zip(program.operations, order, strict=True))


def scene(play: Play) -> dict[str, Any]:
    """Where everything stands, for JSON: "nodes" with the middle of their upper edge, "edges" as
    SVG paths, "size"."""
    program = play.program
    titles = {n: title(play, n) for n in program.operations}
    widths = [
        max(6.7 * len(titles[n]) + 16, 5.4 * len(each.name) + 24, 140.0)
        for n, each in program.operations.items()
    ]
    edges: list[Edge] = []
    dashed: set[Edge] = set()
    for n, (needs, room) in after(program).items():
        edges += [(k - 1, n - 1) for k in sorted(needs | room) if k < n]
        dashed.update((k - 1, n - 1) for k in room)
    places = place(widths, edges)
    top = [MARGIN + row * (HIGH + BETWEEN) for row in places.row]
    nodes = []
    for (n, each), x, y, width in zip(program.operations.items(), places.x, top, widths):
        box = {"number": n, "title": titles[n], "name": each.name, "where": each.where}
        nodes.append({**box, "x": MARGIN + x, "y": y, "width": round(width, 1), "us": each.us})
    drawn = []
    for a, b in edges:
        points = [(MARGIN + places.x[a], top[a] + HIGH)]
        for i, x in enumerate(places.bends.get((a, b), ())):
            y = MARGIN + (places.row[a] + 1 + i) * (HIGH + BETWEEN)
            points += [(MARGIN + x, y), (MARGIN + x, y + HIGH)]
        points.append((MARGIN + places.x[b], top[b] - 1))
        line = {"from": a + 1, "to": b + 1, "value": (a, b) not in dashed}
        drawn.append({**line, "path": _path(points), "head": _head(*points[-1])})
    right = max(MARGIN + x + w / 2 for x, w in zip(places.x, widths))
    size = [right + MARGIN, max(top) + HIGH + MARGIN]
    return {"nodes": nodes, "edges": drawn, "size": size, "high": HIGH}


def _path(points: list[tuple[float, float]]) -> str:
    """A smooth line through the points, upright at each."""
    (x, y), *others = points
    path = f"M{x:g} {y:g}"
    for u, v in others:
        half = (y + v) / 2
        path += f"L{u:g} {v:g}" if x == u else f"C{x:g} {half:g} {u:g} {half:g} {u:g} {v:g}"
        x, y = u, v
    return path


def _head(x: float, y: float) -> str:
    return f"M{x - 4:g} {y - 7:g}L{x:g} {y:g}L{x + 4:g} {y - 7:g}z"


class Drawing(Picture):
    """A picture that was written as SVG; a notebook shows it as PNG, twice as dense."""

    def __init__(self, svg: str, text: str):
        super().__init__(None, text)
        self.svg = svg
        self._png: tuple[bytes, dict[str, int]] | None = None

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write it to a file: SVG where the name ends in .svg, else PNG."""
        as_svg = os.fspath(path).endswith(".svg")
        Path(path).write_bytes(self.svg.encode() if as_svg else self._repr_png_()[0])

    def _repr_png_(self) -> tuple[bytes, dict[str, int]]:
        if self._png is None:
            data = raster.png(self.svg)
            # A PNG begins with its size, two dots for each pixel of ours.
            width, height = (int.from_bytes(data[at : at + 4], "big") // 2 for at in (16, 20))
            self._png = data, {"width": width, "height": height}
        return self._png


def drawing(play: Play) -> Drawing:
    """The picture of a whole run: the graph, the order, the lanes of the workers, a legend."""
    found = scene(play)
    parts = [_edge(each) for each in found["edges"]]
    parts += [_box(play, each) for each in found["nodes"]]
    width, y = found["size"]
    width = max(width, 440.0)
    order = "They began in the order " + ", ".join(map(str, play.order))
    for line in _broken(order, int((width - 2 * MARGIN) / 6.2)):
        y += 15
        parts.append(_text(MARGIN, y, line, 11, bold=True))
    lanes, y = _lanes(play, width, y + 12)
    words = "an arrow: it needs the value; dashed: it overwrites what was read or written before"
    parts += [*lanes, _text(MARGIN, y + 16, words, 9, _QUIET)]
    width = max(width, 4.9 * len(words) + 2 * MARGIN)
    y += 26
    inside = "\n".join(parts)
    return Drawing(
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{y:.0f}" '
        f'viewBox="0 0 {width:.0f} {y:.0f}" font-family="Helvetica, Arial, sans-serif">\n'
        f'<rect width="100%" height="100%" fill="#ffffff"/>\n{inside}\n</svg>',
        f"steps of {len(play.order)} operations",
    )


def _edge(edge: dict[str, Any]) -> str:
    color = STYLES["compute"][1] if edge["value"] else "#8a8a8a"
    dashes = "" if edge["value"] else ' stroke-dasharray="4 3"'
    line = f'<path d="{edge["path"]}" fill="none" stroke="{color}"{dashes}/>'
    return line + f'<path d="{edge["head"]}" fill="{color}"/>'


def _box(play: Play, node: dict[str, Any]) -> str:
    number, x, y, width = node["number"], node["x"], node["y"], node["width"]
    face, edge, _ = STYLES["compute" if play.status[number] == "done" else "wait"]
    when = f"{play.began_us[number]:g} to {play.ended_us[number]:g} us"
    how = "" if play.status[number] == "done" else f", {play.status[number]}"
    lines = [(node["title"], 11, True), (node["name"], 9, False)]
    lines.append((f"{play.worker[number]}, {when}{how}", 9, False))
    text = "".join(
        _text(x, y + 15 + 14 * i, line, size, bold=bold, middle=True)
        for i, (line, size, bold) in enumerate(lines)
    )
    return (
        f'<rect x="{x - width / 2:g}" y="{y:g}" width="{width:g}" height="{HIGH:g}" rx="4" '
        f'fill="{face}" stroke="{edge}"/>{text}'
    )


def _lanes(play: Play, width: float, y: float) -> tuple[list[str], float]:
    """A row for each worker that ran something, a bar for each operation, an axis of time."""
    face, edge, _ = STYLES["compute"]
    end = max([*play.ended_us.values(), 1e-9])
    scale = (width - LEFT - 2 * MARGIN) / end
    parts = []
    for worker in workers(play.program):
        parts.append(_text(MARGIN, y + 15, worker, 10))
        for n, its in play.worker.items():
            if its == worker:
                x, long = LEFT + scale * play.began_us[n], scale * play.program.operations[n].us
                parts.append(
                    f'<rect x="{x:g}" y="{y + 2:g}" width="{max(long, 1):g}" height="{LANE - 4:g}" '
                    f'fill="{face}" stroke="{edge}"/>'
                )
                if long > 14:
                    parts.append(_text(x + long / 2, y + 15, str(n), 10, bold=True, middle=True))
        y += LANE
    parts.append(f'<path d="M{LEFT:g} {y:g}L{LEFT + scale * end:g} {y:g}" stroke="{_QUIET}"/>')
    for i in range(5):
        x = LEFT + scale * end * i / 4
        parts.append(f'<path d="M{x:g} {y:g}L{x:g} {y + 4:g}" stroke="{_QUIET}"/>')
        parts.append(_text(x, y + 14, f"{end * i / 4:.3g}", 9, _QUIET, middle=True))
    parts.append(_text(MARGIN, y + 14, "time in us", 9, _QUIET))
    return parts, y + 18


def workers(program: Program) -> list[str]:
    """The names of all workers that serve its operations."""
    serve = {each.place: each.workers for each in program.operations.values()}
    return [f"{place} {i + 1}" if n > 1 else place for place, n in serve.items() for i in range(n)]


def _text(
    x: float, y: float, text: str, size: int, color: str = _INK, bold: bool = False,
    middle: bool = False,
) -> str:  # fmt: skip
    how = ' font-weight="bold"' if bold else ""
    how += ' text-anchor="middle"' if middle else ""
    return f'<text x="{x:g}" y="{y:g}" font-size="{size}" fill="{color}"{how}>{escape(text)}</text>'


def _broken(text: str, most: int) -> list[str]:
    """The text in lines of at most so many letters, broken between words."""
    lines = [""]
    for word in text.split(" "):
        if len(lines[-1]) + len(word) > most:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".strip()
    return lines

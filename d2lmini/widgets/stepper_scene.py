"""A recorded program as a drawing: boxes and arrows from top to bottom, and the workers' lanes.

The layout is the same in the live view, which draws itself and shows in each box the state of the
operation, and in the picture (SVG) of a whole run, which shows the worker and the times. A solid
arrow carries a value, a dashed one only makes room: the later operation overwrites what the
earlier one reads or wrote.
"""

from __future__ import annotations

from typing import Any

from d2lmini.draw.picture import Drawing
from d2lmini.draw.svg import (
    FILLED,
    INK,
    MARGIN,
    arrange,
    break_lines,
    draw_arrow,
    draw_frame,
    draw_text,
    page,
    shorten,
)
from d2lmini.draw.timeline import STYLES
from d2lmini.engine.order import drop_implied, edges_of, order_of
from d2lmini.engine.schedule import worker_names
from d2lmini.ops.shown import shown_name
from d2lmini.widgets.stepper_play import Playback
from d2lmini.widgets.stepper_program import Program
from d2lmini.widgets.stepper_words import code_of, title

#: Pixels: a box; a lane, and the space left of the lane.
HIGH, LANE, LEFT = 50.0, 22.0, 64.0

#: From this many operations on the picture has only the lanes: the graph would be too long.
MOST_DRAWN = 50


def after(program: Program) -> dict[int, tuple[set[int], set[int]]]:
    """For each operation, those whose values it needs, and those for which it makes room; implied
    dependencies are left out."""
    order = drop_implied(order_of(list(program.operations.values())))  # type: ignore[arg-type]
    return dict(zip(program.operations, order, strict=True))


def scene(play: Playback) -> dict[str, Any]:
    """The layout for JSON: "nodes" with the middle of their upper edge, "edges" as SVG paths,
    "size"."""
    program = play.program
    titles = {n: title(play, n) for n in program.operations}
    below = {  # the line, where the title is the name
        n: shorten(code_of(operation), 34)
        if titles[n] == f"{n} {shown_name(operation.name)}"
        else shown_name(operation.name)
        for n, operation in program.operations.items()
    }
    widths = [max(6.7 * len(titles[n]) + 16, 5.4 * len(below[n]) + 24, 148.0) for n in titles]
    edges = edges_of(after(program).values())
    places = arrange([(width, HIGH) for width in widths], list(edges))
    nodes = []
    for (n, operation), x, y, width in zip(program.operations.items(), places.x, places.y, widths):
        node = {"number": n, "title": titles[n], "name": operation.name, "where": operation.where}
        node |= {"line": operation.line, "below": below[n]}
        nodes.append(
            {**node, "x": MARGIN + x, "y": y, "width": round(width, 1), "us": operation.us}
        )
    drawn = [
        {"from": a + 1, "to": b + 1, "value": edges[a, b], "path": path, "head": head}
        for (a, b), (path, head) in places.arrows.items()
    ]
    size = [places.width, places.height]
    return {"nodes": nodes, "edges": drawn, "size": size, "high": HIGH}


def drawing(play: Playback) -> Drawing:
    """The picture of a whole run: the graph, the order, the lanes of the workers, a legend."""
    parts = []
    width, y = 720.0, 0.0
    if len(play.order) < MOST_DRAWN:
        found = scene(play)
        parts = [_arrow(edge) for edge in found["edges"]]
        parts += [_box(play, node) for node in found["nodes"]]
        width, y = found["size"]
    width = max(width, 460.0)
    order = "They began in the order " + ", ".join(map(str, play.order))
    for line in break_lines(order, width - 2 * MARGIN):
        y += 15
        parts.append(draw_text(MARGIN, y, line, 11, bold=True))
    lanes, y = _lanes(play, width, y + 12)
    words = "an arrow: it needs the value; dashed: it overwrites what was read or written before"
    if len(play.order) >= MOST_DRAWN:
        words = "the live view has the graph"
    parts += [*lanes, draw_text(MARGIN, y + 16, words, 9)]
    return Drawing(page(width, y + 26, parts), f"steps of {len(play.order)} operations")


def _arrow(edge: dict[str, Any]) -> str:
    return draw_arrow(edge["path"], edge["head"], dashed=not edge["value"])


def _box(play: Playback, node: dict[str, Any]) -> str:
    number, x, y, width = node["number"], node["x"], node["y"], node["width"]
    face, edge, _ = STYLES["compute" if play.status[number] == "done" else "wait"]
    when = f"{play.began_us[number]:.4g} to {play.ended_us[number]:.4g} us"
    how = "" if play.status[number] == "done" else f", {play.status[number]}"
    lines = [(node["title"], 11, True), (node["below"], 9, False)]
    lines.append((f"{play.worker[number]}, {when}{how}", 9, False))
    text = "".join(
        draw_text(x, y + 15 + 14 * i, line, size, FILLED, bold, middle=True)
        for i, (line, size, bold) in enumerate(lines)
    )
    return draw_frame(x, y, width, HIGH, face, edge) + text


def _lanes(play: Playback, width: float, y: float) -> tuple[list[str], float]:
    """A row for each worker that ran something, a bar for each operation, a time axis."""
    face, edge, _ = STYLES["compute"]
    end = max([*play.ended_us.values(), 1e-9])
    scale = (width - LEFT - 2 * MARGIN) / end
    parts = []
    for worker in workers(play.program):
        parts.append(draw_text(MARGIN, y + 15, worker, 10))
        for n, its in play.worker.items():
            if its == worker:
                x, long = LEFT + scale * play.began_us[n], scale * play.program.operations[n].us
                parts.append(
                    draw_frame(x + long / 2, y + 2, max(long, 1.0), LANE - 4, face, edge, 0)
                )
                if long > 14:
                    parts.append(
                        draw_text(x + long / 2, y + 15, str(n), 10, FILLED, True, middle=True)
                    )
        y += LANE
    parts.append(f'<path d="M{LEFT:g} {y:g}L{LEFT + scale * end:g} {y:g}" stroke="{INK}"/>')
    for i in range(5):
        x = LEFT + scale * end * i / 4
        parts.append(f'<path d="M{x:g} {y:g}L{x:g} {y + 4:g}" stroke="{INK}"/>')
        parts.append(draw_text(x, y + 14, f"{end * i / 4:.3g}", 9, middle=True))
    parts.append(draw_text(MARGIN, y + 14, "time in us", 9))
    return parts, y + 18


def workers(program: Program) -> list[str]:
    """The names of all workers that run its operations."""
    serve = {operation.place: operation.workers for operation in program.operations.values()}
    return [name for place, n in serve.items() for name in worker_names(place, n)]

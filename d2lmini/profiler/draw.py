"""A trace as a picture: a timeline, or the graph of dependencies.

    trace.timeline(label=lambda operation: operation.name)

A timeline has a row for each worker of each place, with the program's waits on top. A notebook
shows a trace this way. The text next to the image names the places and is the same in every run.
100,000 operations take about a second: bars narrower than a pixel of the page are drawn together
(see `plot`).

    trace.graph()

In the graph a box is an operation, with its number and the line that issued it. A solid arrow is a
read of a result. A dashed arrow carries no value: the later operation writes where the earlier one
reads or wrote. Boxes without a path of arrows between them are unordered.

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

from collections import Counter
from collections.abc import Callable, Iterable
from textwrap import wrap
from typing import TYPE_CHECKING, Any

from d2lmini.draw.picture import Drawing, Picture
from d2lmini.draw.svg import FILLED, Box, diagram, shorten
from d2lmini.draw.timeline import STYLES, Span, timeline
from d2lmini.engine.order import drop_implied, edges_of
from d2lmini.ops.fluent import shown_name
from d2lmini.profiler.records import BEGAN, Operation, Wait

if TYPE_CHECKING:
    from d2lmini.profiler.tracing import Trace

#: Graphs with more boxes are refused: they would be unreadable.
MOST = 60

#: The operations of each (place, worker), in the order of their begins.
Rows = dict[tuple[str, str], list[Any]]


def rows_of(operations: Iterable[Operation]) -> Rows:
    """The operations that ran, by (place, worker): the CPU, then each GPU followed by its link."""
    found: Rows = {}
    for operation in operations:
        if operation.ran:
            found.setdefault((operation.place, operation.worker), []).append(operation)
    for row in found.values():
        row.sort(key=BEGAN)
    return in_order(found)


def in_order(rows: Rows) -> Rows:
    """The rows in drawing order."""

    def order(key: tuple[str, str]) -> tuple[bool, int, str, int]:
        first = rows[key][0]
        cpu = first.ctx.is_cpu
        return not cpu, 0 if cpu else first.ctx.device_id, first.lane, first.began_ns

    return {key: rows[key] for key in sorted(rows, key=order)}


def names_of(rows: Rows) -> list[str]:
    """Names of rows: the place; with several workers also the worker's number, or "caller" for
    inline operations."""
    names = []
    served: dict[str, int] = {}
    several = Counter(place for place, _ in rows)
    for place, worker in rows:
        if several[place] == 1:
            names.append(place)
        elif worker == "caller":
            names.append(f"{place}, caller")
        else:
            served[place] = served.get(place, 0) + 1
            names.append(f"{place}, worker {served[place]}")
    return names


def lanes_of(
    rows: Rows,
    waits: Iterable[Wait],
    accent: Callable[[Operation], bool] = lambda operation: False,
) -> list[tuple[str, list[Span]]]:
    """The lanes of a timeline: the program's waits, if there are any, and the rows."""
    lanes = [("front end", [span_of(wait) for wait in waits])]
    for name, row in zip(names_of(rows), rows.values()):
        spans = [("accent", *span_of(x)[1:]) if accent(x) else span_of(x) for x in row]
        lanes.append((name, spans))
    return lanes if lanes[0][1] else lanes[1:]


def timeline_of(
    trace: Trace,
    title: str = "",
    length_s: float | None = None,
    label: Callable[[Operation], str] = lambda operation: str(operation.number),
    accent: Callable[[Operation], bool] = lambda operation: False,
) -> Picture:
    """The timeline: a row for each worker of each place, with the waits of the program on top.
    `label` gives the text of a bar, where it fits, `accent` selects bars in another colour,
    `length_s` is the length of the axis. ValueError if nothing ran."""
    rows = rows_of(trace.operations)
    if not rows:
        raise ValueError("timeline: no operation ran while it was recorded")
    lanes = lanes_of(rows, trace.waits, accent)
    figure = timeline(lanes, title, length_s, unit="ms").figure
    axes = figure.axes[0]
    axes.set_xlabel("\n".join([axes.get_xlabel(), *wrap(str(trace.bounds()), 100)]), fontsize=8)
    zero_s = min(begin for _, spans in lanes for _, begin, _ in spans)
    room_s = axes.get_xlim()[1] / 1e3 / 60  # width of a letter
    for n, row in enumerate(rows.values(), start=len(lanes) - len(rows)):
        for operation in row:
            seconds = operation.run_ns / 1e9
            if seconds > room_s and seconds > room_s * len(word := label(operation)):
                middle_ms = 1e3 * ((operation.began_s + operation.ended_s) / 2 - zero_s)
                axes.text(middle_ms, n, word, ha="center", va="center", fontsize=7.5, color=FILLED)
    places = dict.fromkeys(place for place, _ in rows)  # however many workers there are
    return Picture(figure, f"timeline of {', '.join(places)}")


def span_of(record: Operation | Wait) -> Span:
    """An operation that ran, or a wait, as a bar of a timeline: (kind, begin, end) in seconds."""
    if isinstance(record, Wait):
        return "wait", record.begin_ns / 1e9, record.end_ns / 1e9
    return "copy" if record.is_copy else "compute", record.began_s, record.ended_s


def bundle(trace: Trace) -> Any:
    """The notebook's output for a trace: an image, and a text without figures."""
    if not any(operation.ran for operation in trace.operations):
        return {"text/plain": "<trace of no operation>"}
    picture = trace.timeline()
    return picture.bundle(repr(picture))


# -- the graph -------------------------------------------------------------------------------------


class Graph(Drawing):
    """The picture; prints as one line per operation."""

    def __str__(self) -> str:
        return self.text.partition(": ")[2].replace("; ", "\n")


def text_of(trace: Trace) -> str:
    """A line for each operation of a trace with its dependencies, without the implied ones; a star
    marks a dependency without a value."""
    lines = []
    for operation, (needs, room) in zip(trace.operations, drop_implied(trace.order)):
        after = ", ".join(f"{n}{'*' * (n in room)}" for n in sorted(needs | room))
        lines.append(f"{operation}, after {after}" if after else str(operation))
    return "\n".join(lines)


def graph_of(trace: Trace, lines: bool = True) -> Graph:
    """Draw the operations of a trace, earlier ones on top, with arrows to dependent operations.

    lines: write the line of the program into each box. ValueError for none, and for more than MOST.
    """
    n = len(trace.operations)
    if not 0 < n <= MOST:
        raise ValueError(f"graph: it draws 1 to {MOST} operations, there are {n}: profile fewer")
    several = len({operation.place for operation in trace.operations}) > 1
    boxes = []
    for operation in trace.operations:
        words = [f"{operation.number}  {shown_name(operation.name)}"]
        words[0] += f"  {operation.place}" if several else ""
        if lines and operation.line:
            words.append(shorten(operation.line, 44))
        face, _, _ = STYLES[span_of(operation)[0]]
        boxes.append(Box(words, face))
    drawn = diagram(boxes, edges_of(drop_implied(trace.order)))
    text = text_of(trace).replace("\n", "; ")
    return Graph(drawn, f"dependencies of {n} operations: {text}")

"""A trace as a timeline: a row for each worker of each place, with the program's waits on top.

    trace.timeline(label=lambda operation: operation.name)

A notebook shows a trace this way. The text next to the image names the places and is the same in
every run. 100,000 operations take about a second: bars narrower than a pixel of the page are drawn
together (see `plot`).
"""

from __future__ import annotations

from base64 import b64encode
from collections import Counter
from collections.abc import Callable, Iterable
from textwrap import wrap
from typing import TYPE_CHECKING, Any, TypeVar

from d2lmini.draw.picture import Picture
from d2lmini.draw.svg import FILLED
from d2lmini.draw.timeline import Span, timeline
from d2lmini.profiler.records import Operation, Wait

if TYPE_CHECKING:
    from d2lmini.profiler.tracing import Trace

AnyOperation = TypeVar("AnyOperation", bound=Operation)
Rows = dict[tuple[str, str], list[AnyOperation]]


def rows_of(operations: Iterable[AnyOperation]) -> Rows[AnyOperation]:
    """The operations that ran, by (place, worker): the CPU, then each GPU followed by its link."""
    found: Rows[AnyOperation] = {}
    for operation in operations:
        if operation.ran:
            found.setdefault((operation.place, operation.worker), []).append(operation)
    for row in found.values():
        row.sort(key=lambda operation: operation.began_ns)
    return in_order(found)


def in_order(rows: Rows[AnyOperation]) -> Rows[AnyOperation]:
    """The rows in drawing order."""

    def order(key: tuple[str, str]) -> tuple[bool, int, str, int]:
        first = rows[key][0]
        cpu = first.ctx.is_cpu
        return not cpu, 0 if cpu else first.ctx.device_id, first.lane, first.began_ns

    return {key: rows[key] for key in sorted(rows, key=order)}


def names_of(rows: Rows[AnyOperation]) -> list[str]:
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


def timeline_of(
    trace: Trace,
    title: str,
    length_s: float | None,
    label: Callable[[Operation], str],
    accent: Callable[[Operation], bool],
) -> Picture:
    """See `Trace.timeline`."""
    rows = rows_of(trace.operations)
    if not rows:
        raise ValueError("timeline: no operation ran while it was recorded")
    lanes: list[tuple[str, list[Span]]] = []
    if trace.waits:
        lanes.append(("front end", [span_of(wait) for wait in trace.waits]))
    for name, row in zip(names_of(rows), rows.values()):
        spans = [
            ("accent" if accent(operation) else kind, begin, end)
            for operation, (kind, begin, end) in zip(row, map(span_of, row))
        ]
        lanes.append((name, spans))
    picture = timeline(lanes, title, length_s, unit="ms")
    zero_s = min(begin for _, spans in lanes for _, begin, _ in spans)
    axes = picture.figure.axes[0]
    axes.set_xlabel("\n".join([axes.get_xlabel(), *wrap(str(trace.bounds()), 100)]), fontsize=8)
    for n, row in enumerate(rows.values(), start=len(lanes) - len(rows)):
        write_into_bars(axes, n, row, zero_s, label)
    return Picture(picture.figure, _text_of(rows))


def _text_of(rows: Rows[AnyOperation]) -> str:
    """The text form, independent of the number of workers."""
    return f"timeline of {', '.join(dict.fromkeys(place for place, _ in rows))}"


def span_of(record: Operation | Wait) -> Span:
    """An operation that ran, or a wait, as a bar of a timeline: (kind, begin, end) in seconds."""
    if isinstance(record, Wait):
        return "wait", record.begin_ns / 1e9, record.end_ns / 1e9
    return "copy" if record.is_copy else "compute", record.began_s, record.ended_s


def write_into_bars(
    axes: Any, n: int, row: Iterable[Operation], zero_s: float, label: Callable[[Operation], str]
) -> None:
    """Write the labels into bars that are wide enough."""
    room_s = axes.get_xlim()[1] / 1e3 / 60  # width of a letter
    for operation in row:
        seconds = operation.run_ns / 1e9
        if seconds > room_s and seconds > room_s * len(word := label(operation)):
            middle = (operation.began_s + operation.ended_s) / 2 - zero_s
            axes.text(1e3 * middle, n, word, ha="center", va="center", fontsize=7.5, color=FILLED)


def bundle(trace: Trace) -> Any:
    """The notebook's output for a trace: an image, and a text without figures."""
    rows = rows_of(trace.operations)
    if not rows:
        return {"text/plain": "<trace of no operation>"}
    image, size = trace.timeline()._repr_png_()
    data = {"image/png": b64encode(image).decode("ascii"), "text/plain": f"<{_text_of(rows)}>"}
    return data, {"image/png": size}

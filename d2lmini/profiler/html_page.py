"""A trace as a self-contained HTML page, readable without scripts.

    Path("trace.html").write_text(trace.to_html())

Timeline (drawn by the browser, with a tooltip on each bar), summary, waits by line. 10,000
operations fit into 200 kB: the longest operations have their own bars, the others are drawn
together by columns, as in the picture (see `plot`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from typing import TYPE_CHECKING

import numpy as np

from d2lmini.draw.timeline import STYLES, columns
from d2lmini.profiler.draw import names_of, rows_of, span_of
from d2lmini.profiler.records import Operation, Wait
from d2lmini.profiler.summary import in_time, summary_of

if TYPE_CHECKING:
    from d2lmini.profiler.tracing import Trace

#: Number of operations with their own bars; columns in all, and at most in a row.
MOST, COLUMNS, IN_ROW = 300, 4000, 800
#: Pixels: left margin, width of the bars, height of a row.
LEFT, WIDE, HIGH = 150, 850, 24

Bar = Operation | Wait

_STYLE = """body{font:14px sans-serif;margin:2em;max-width:1040px;color:#222}
table{border-collapse:collapse}td,th{padding:2px 9px;text-align:right;white-space:nowrap}
td:first-child,th:first-child{text-align:left}tr:nth-child(even){background:#f2f6fb}
svg{display:block;margin:1em 0;font-size:12px}code{white-space:pre}"""


def page(trace: Trace, title: str) -> str:
    """See `Trace.to_html`."""
    seconds = (trace.end_ns - trace.begin_ns) / 1e9
    served = ", ".join(f"{place}: {n}" for place, n in trace.workers.items())
    facts = (
        f"{len(trace.operations)} operations in {in_time(seconds)}; threads: {served}; "
        f"BLAS threads: {trace.blas_threads}"
    )
    return "\n".join(
        [
            "<!DOCTYPE html>",
            f'<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>',
            f"<style>{_STYLE}</style></head><body>",
            f"<h1>{escape(title)}</h1><p>{escape(facts)}</p>",
            _drawing(trace),
            "<h2>What ran</h2>",
            summary_of(trace).to_html(),
            "<h2>Where the program waited</h2>",
            _waits(trace.waits),
            "</body></html>",
        ]
    )


def _drawing(trace: Trace) -> str:
    """The timeline: a row of bars for each worker."""
    rows = rows_of(trace.operations)
    lanes: list[tuple[str, Sequence[Bar]]] = [*zip(names_of(rows), rows.values())]
    if trace.waits:
        lanes.insert(0, ("front end", trace.waits))
    if not lanes:
        return "<p>No operation ran.</p>"
    whole = max(1, trace.end_ns - trace.begin_ns)
    width = whole / min(IN_ROW, max(1, COLUMNS // len(lanes)))
    spans = [
        np.array([_span(operation) for operation in row], float) - trace.begin_ns
        for _, row in lanes
    ]
    least = _least(np.concatenate(spans), 3 * whole / WIDE)
    drawn = []
    for n, (name, row) in enumerate(lanes):
        top = n * HIGH
        drawn.append(f'<text x="{LEFT - 8}" y="{top + 16}" text-anchor="end">{escape(name)}</text>')
        drawn += _row(row, spans[n], top, WIDE / whole, width, least)
    high = len(lanes) * HIGH
    drawn.append(
        f'<path d="M{LEFT} {high + 3}h{WIDE}" stroke="#222"/><text x="{LEFT}" y="{high + 18}">0'
        f'</text><text x="{LEFT + WIDE}" y="{high + 18}" text-anchor="end">'
        f"{in_time(whole / 1e9)}</text>"
    )
    size = f'width="{LEFT + WIDE + 4}" height="{high + 22}"'
    return f'<svg {size} role="img" aria-label="timeline">' + "\n".join(drawn) + "</svg>"


def _span(bar: Bar) -> tuple[int, int]:
    if isinstance(bar, Wait):
        return bar.begin_ns, bar.end_ns
    return bar.began_ns, bar.ended_ns


def _least(spans: np.ndarray, least: float) -> float:
    """The minimal length for an own bar: a few pixels, and among the longest."""
    lengths = spans[:, 1] - spans[:, 0]
    if len(lengths) > MOST:
        least = max(least, float(np.partition(lengths, -MOST)[-MOST]))
    return least


def _row(
    row: Sequence[Bar], spans: np.ndarray, top: int, scale: float, width: float, least: float
) -> Iterator[str]:
    """The bars of a row, all of one kind: long ones with tooltips, the others by columns."""
    face, edge, _ = STYLES[span_of(row[0])[0]]
    found = columns(spans[:, 0], spans[:, 1], width, least)
    for i in found.wide:
        begin, end = scale * spans[i]
        yield (
            f'<rect x="{LEFT + begin:.1f}" y="{top + 3}" width="{end - begin:.1f}" '
            f'height="18" fill="{face}" stroke="{edge}"><title>{escape(_words(row[i]))}</title>'
            "</rect>"
        )
    lines = [
        f"M{LEFT + scale * (x + width / 2):.1f} {top + 21}v-{np.ceil(18 * share):.0f}"
        for x, share in zip(found.begin, found.share)
    ]
    if lines:
        wide = max(1.0, scale * width)
        yield f'<path d="{"".join(lines)}" stroke="{edge}" stroke-width="{wide:.2f}"/>'


def _words(what: Bar) -> str:
    if isinstance(what, Wait):
        return f"{what.kind}, {in_time(what.seconds)}, at {what.where}"[:160]
    return f"{what.number} {what.name}, {in_time(what.run_ns / 1e9)}, issued at {what.where}"[:160]


def _waits(waits: Sequence[Wait]) -> str:
    """A table of the lines with the longest waits."""
    by_line: dict[tuple[str, str], list[float]] = {}
    for wait in waits:
        by_line.setdefault((wait.where, wait.kind), []).append(wait.seconds)
    rows = sorted(by_line.items(), key=lambda row: -sum(row[1]))[:40]
    if not rows:
        return "<p>It did not.</p>"
    cells = [
        f"<tr><td><code>{escape(where[:120])}</code></td><td>{escape(kind)}</td>"
        f"<td>{len(times)}</td><td>{in_time(sum(times))}</td></tr>"
        for (where, kind), times in rows
    ]
    head = "<tr><th>line</th><th>by</th><th>times</th><th>in all</th></tr>"
    return f"<table>{head}{''.join(cells)}</table>"

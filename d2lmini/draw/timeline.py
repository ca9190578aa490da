"""Timelines in d2l's blues: activities of lanes over time.

    d2l.timeline([
        ("front end", [("push", 0.0, 12e-6), ("wait", 12e-6, 95e-6)]),
        ("worker", [("compute", 30e-6, 80e-6)]),
    ])

Each lane is a row, each span (kind, begin, end) a bar, in seconds of any clock. A kind has the same
colour in every picture of the book; waiting is hatched, so that a picture is readable in grey.
Spans that are narrower than a pixel of the page are combined into columns of the width of a pixel;
the height of a column is the fraction of its time that the spans fill (`columns`).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any

import numpy as np

from d2lmini.draw.picture import Picture

#: kind of span -> (face, edge, hatch)
STYLES: dict[str, tuple[str, str, str]] = {
    "push": ("#2f6db5", "#ffffff", ""),
    "compute": ("#a9c7ea", "#2f6db5", ""),
    "copy": ("#5f9bd1", "#2f6db5", ""),
    "wait": ("#ececec", "#8a8a8a", "////"),
    "accent": ("#f0a04b", "#a35a0b", ""),
}

Span = tuple[str, float, float]

#: The rows of a timeline: a name, and for each kind of span an array of (begin, end), in seconds.
Lanes = list[tuple[str, dict[str, np.ndarray]]]

#: Columns of a row: pixels of the page, drawn at twice that resolution.
COLUMNS = 600


def columns(
    begin: np.ndarray, end: np.ndarray, width: float, least: float
) -> tuple[np.ndarray, ...]:
    """Combine spans shorter than `least` by columns of this `width`. Returns the indices of the
    other spans, which are drawn individually, and the begin and filled share of each column.

    >>> columns(np.array([0.0, 1.0, 1.25, 2.0]), np.array([0.5, 1.125, 1.5, 5.0]), 1.0, 1.0)
    (array([3]), array([0., 1.]), array([0.5  , 0.375]))
    """
    short = end - begin < least
    if not short.any():
        return np.flatnonzero(~short), np.empty(0), np.empty(0)
    # The number of active spans after each begin and end gives the time spent until then.
    times = np.concatenate([begin[short], end[short]])
    order = np.argsort(times, kind="stable")
    times = times[order]
    going_on = np.cumsum(np.repeat([1, -1], len(times) // 2)[order])
    spent = np.concatenate([[0.0], np.cumsum(np.diff(times) * going_on[:-1])])
    edges = width * np.arange(times[0] // width, times[-1] // width + 2)
    share = np.diff(np.interp(edges, times, spent)) / width
    filled = share > 1e-9
    return np.flatnonzero(~short), edges[:-1][filled], np.minimum(share[filled], 1.0)


#: Units of a time axis: name, number per second.
UNITS = {"us": ("microseconds", 1e6), "ms": ("milliseconds", 1e3)}


def timeline(
    lanes: Iterable[tuple[str, Iterable[Span]]],
    title: str = "",
    length_s: float | None = None,
    unit: str = "us",
) -> Picture:
    """Draw lanes (name, [(kind, begin_s, end_s), ...]) over the time since the first begin.

    length_s: length of the axis, so that two pictures can share a scale; None: until the last end.
    unit: unit of the axis, "us" or "ms".
    ValueError for a kind without a style, or if no lane has a span.
    """
    from matplotlib.patches import Patch

    rows = [(name, by_kind(spans)) for name, spans in lanes]
    kinds = {kind for _, lane in rows for kind in lane}
    if not kinds:
        raise ValueError("timeline: no lane has a span to draw")
    unknown = sorted(kinds - STYLES.keys())
    if unknown:
        raise ValueError(f"timeline: kinds {unknown} have no style; there are {sorted(STYLES)}")

    begin = min(spans[:, 0].min() for _, lane in rows for spans in lane.values())
    end = max(spans[:, 1].max() for _, lane in rows for spans in lane.values())
    length_s = length_s or end - begin
    name, per_s = UNITS[unit]
    figure = figure_of(0.75 + 0.4 * len(rows))
    axes = figure.add_subplot(title=title, xlabel=name)
    for row, (_, lane) in enumerate(rows):
        for kind, spans in lane.items():
            _draw(axes, row, kind, per_s * (spans - begin), per_s * length_s / COLUMNS)
    axes.set(xlim=(0, per_s * length_s), ylim=(len(rows) - 0.5, -0.5))
    axes.set_yticks(range(len(rows)), [name for name, _ in rows])
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(axis="y", length=0)
    # What the accent stands for, the text beside the picture says.
    patches = [
        Patch(facecolor=face, edgecolor=edge, hatch=hatch, label=kind)
        for kind, (face, edge, hatch) in STYLES.items() if kind in kinds - {"accent"}
    ]  # fmt: skip
    axes.legend(handles=patches, loc="center left", bbox_to_anchor=(1, 0.5), frameon=False)
    return Picture(figure, f"timeline of {', '.join(name for name, _ in rows)}")


def figure_of(height: float) -> Any:
    """A matplotlib Figure as wide as a page's text and `height` inches high."""
    # Hide the message about building matplotlib's font cache, once per machine.
    logging.getLogger("matplotlib.font_manager").setLevel(logging.ERROR)
    from matplotlib.figure import Figure

    return Figure(figsize=(6.6, height), layout="constrained")


def plot_of(height: float, **labels: str) -> tuple[Any, Any]:
    """A Figure with a plot, without a frame on top and on the right; `labels` of its axes."""
    figure = figure_of(height)
    axes = figure.add_subplot(**labels)
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes


def by_kind(spans: Iterable[Span]) -> dict[str, np.ndarray]:
    """The spans of a row: for each kind an array of (begin, end)."""
    found: dict[str, list[tuple[float, float]]] = {}
    for kind, start, stop in spans:
        found.setdefault(kind, []).append((start, stop))
    return {kind: np.array(pairs) for kind, pairs in found.items()}


def _draw(axes: Any, row: int, kind: str, spans: np.ndarray, width: float) -> None:
    """Draw the bars of one kind in a row. `width`: the width of a column, in units of the axis."""
    face, edge, hatch = STYLES[kind]
    begin, end = spans.T
    single, starts, share = columns(begin, end, width, width)
    wide = [(begin[i], end[i] - begin[i]) for i in single]
    if wide:
        axes.broken_barh(
            wide, (row - 0.3, 0.6), facecolor=face, edgecolor=edge, hatch=hatch, linewidth=0.6
        )
    # Columns have the colour of the edges, because only the edges of narrow bars are visible.
    levels = np.ceil(8 * share).astype(int)
    for level in np.unique(levels):
        height = 0.6 * level / 8
        some = [(x, width) for x in starts[levels == level]]
        axes.broken_barh(some, (row + 0.3 - height, height), facecolor=edge, linewidth=0)

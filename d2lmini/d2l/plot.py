"""Pictures for the chapters, in d2l's blues: so far, who was busy with what, and when.

    d2l.timeline([
        ("front end", [("push", 0.0, 12e-6), ("wait", 12e-6, 95e-6)]),
        ("worker", [("compute", 30e-6, 80e-6)]),
    ])

Each lane is a row, each span (kind, begin, end) a bar, in seconds of any clock. A kind has the same
colour in every picture of the book; waiting is hatched, so that a picture reads in grey too.
"""

from __future__ import annotations

import io
import logging
import os
from collections.abc import Iterable
from typing import Any

#: kind of span -> (face, edge, hatch)
STYLES: dict[str, tuple[str, str, str]] = {
    "push": ("#1f4e8c", "#ffffff", ""),
    "compute": ("#a9c7ea", "#1f4e8c", ""),
    "copy": ("#5f9bd1", "#1f4e8c", ""),
    "wait": ("#f4f4f4", "#9a9a9a", "////"),
    "accent": ("#f0a04b", "#a35a0b", ""),
}

Span = tuple[str, float, float]


class Picture:
    """A matplotlib Figure that a notebook shows, made without pyplot and its global state.

    The Figure is `figure`. The text beside the image is the same in every run.
    """

    def __init__(self, figure: Any, text: str):
        self.figure = figure
        self.text = text

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write it to a file; the ending (.png, .svg, .pdf) chooses the format."""
        self.figure.savefig(path)

    def _repr_png_(self) -> tuple[bytes, dict[str, int]]:
        # Two dots for each point of the page: sharp on dense screens, the same size everywhere.
        file = io.BytesIO()
        self.figure.savefig(file, format="png", dpi=200, metadata={"Software": None})
        width, height = self.figure.get_size_inches() * 100
        return file.getvalue(), {"width": int(width), "height": int(height)}

    def __repr__(self) -> str:
        return f"<{self.text}>"


#: What an axis of time counts in: its name, how many there are in a second
UNITS = {"us": ("microseconds", 1e6), "ms": ("milliseconds", 1e3)}


def timeline(
    lanes: Iterable[tuple[str, Iterable[Span]]],
    title: str = "",
    length_s: float | None = None,
    unit: str = "us",
) -> Picture:
    """Draw lanes (name, [(kind, begin_s, end_s), ...]) over the time since the first begin.

    length_s: how long the axis is, so that two pictures can share a scale; None: to the last end.
    unit: of the axis, "us" or "ms".
    ValueError for a kind without a style, or when there is nothing to draw.
    """
    # Building matplotlib's font cache, once per machine, is no news for the reader of a chapter.
    logging.getLogger("matplotlib.font_manager").setLevel(logging.ERROR)
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch

    rows = [(name, list(spans)) for name, spans in lanes]
    spans = [span for _, lane in rows for span in lane]
    if not spans:
        raise ValueError("timeline: no lane has a span to draw")
    unknown = sorted({kind for kind, _, _ in spans} - STYLES.keys())
    if unknown:
        raise ValueError(f"timeline: kinds {unknown} have no style; there are {sorted(STYLES)}")

    begin = min(start for _, start, _ in spans)
    length_s = length_s or max(stop for _, _, stop in spans) - begin
    words, per_s = UNITS[unit]
    figure = Figure(figsize=(6.6, 0.75 + 0.4 * len(rows)), layout="constrained")
    axes = figure.add_subplot(title=title, xlabel=words, xlim=(0, per_s * length_s))
    for row, (_, lane) in enumerate(rows):
        for kind, start, stop in lane:
            face, edge, hatch = STYLES[kind]
            axes.barh(
                row, per_s * (stop - start), left=per_s * (start - begin), height=0.6,
                color=face, edgecolor=edge, hatch=hatch, linewidth=0.6,
            )  # fmt: skip
    axes.set_yticks(range(len(rows)), [name for name, _ in rows])
    axes.invert_yaxis()
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(axis="y", length=0)
    kinds = [kind for kind in STYLES if any(kind == k for k, _, _ in spans)]
    patches = []
    for kind in kinds:
        face, edge, hatch = STYLES[kind]
        patches.append(Patch(facecolor=face, edgecolor=edge, hatch=hatch, label=kind))
    axes.legend(handles=patches, loc="center left", bbox_to_anchor=(1, 0.5), frameon=False)
    return Picture(figure, f"timeline of {', '.join(name for name, _ in rows)}")

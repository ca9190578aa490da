"""The picture of a live view: timeline, queue and memory, one above the other on one time axis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from d2lmini.draw.picture import Picture
from d2lmini.draw.svg import INK
from d2lmini.draw.timeline import STYLES, by_kind, draw_lanes, figure_of, legend_beside
from d2lmini.ops.shown import shown_name
from d2lmini.profiler.draw import names_of, rows_of, span_of, write_into_bars
from d2lmini.profiler.records import Operation
from d2lmini.widgets.base import need
from d2lmini.widgets.watch_records import RecentRecords, Sample

#: Most devices named in the picture of memory: it has room for few names.
MOST_DEVICES = 4
#: Of the devices' lines.
COLOURS = ["#2f6db5", "#a35a0b", "#5f9bd1", "#f0a04b", INK]


def picture_of(recent: RecentRecords) -> Picture | None:
    """The picture of a `Watch`; see `Watch.picture`."""
    rows = rows_of(recent.operations)
    if not rows:
        return None
    need("matplotlib")
    begin_ns = min(row[0].began_ns for row in rows.values())
    waits = [wait for wait in recent.waits if wait.end_ns > begin_ns]
    lanes = [("front end", by_kind(map(span_of, waits)))] if waits else []
    lanes += [(n, by_kind(map(span_of, row))) for n, row in zip(names_of(rows), rows.values())]
    spans = np.concatenate([spans for _, lane in lanes for spans in lane.values()])
    begin_s, end_s = spans[:, 0].min(), spans[:, 1].max()

    heights = [0.35 + 0.32 * len(lanes), 0.7, 0.9]
    figure = figure_of(sum(heights) + 0.5)
    grid = figure.add_gridspec(3, 1, height_ratios=heights)
    top = figure.add_subplot(grid[0])
    queue, memory = (figure.add_subplot(grid[i], sharex=top) for i in (1, 2))
    draw_lanes(top, lanes, begin_s, end_s - begin_s, "ms")
    for n, row in enumerate(rows.values(), start=len(lanes) - len(rows)):
        write_into_bars(top, n, row, begin_s, _label)
    samples = [s for s in recent.samples if begin_s <= s.when_ns / 1e9 <= end_s]
    times = [1e3 * (sample.when_ns / 1e9 - begin_s) for sample in samples]
    queue.fill_between(
        times, [sample.queued for sample in samples], step="post", linewidth=0.8,
        facecolor=STYLES["compute"][0], edgecolor=STYLES["compute"][1],
    )  # fmt: skip
    _draw_memory(memory, times, samples)
    for axes, words in ((queue, "queued\noperations"), (memory, "memory\nMB")):
        axes.set_ylabel(words, rotation=0, ha="right", va="center")
        axes.set_ylim(bottom=0)
        axes.spines[["top", "right"]].set_visible(False)
    for axes in (top, queue):
        axes.tick_params(axis="x", labelbottom=False)
    memory.set_xlabel("milliseconds")
    return Picture(figure, "live view of the engine")


def _label(operation: Operation) -> str:
    return f"{operation.number} {shown_name(operation.name)}"


def _draw_memory(axes: Any, times: Sequence[float], samples: Sequence[Sample]) -> None:
    """A colour for each device, a dash for each kind of memory; only for the devices that hold
    most."""
    contexts = dict.fromkeys(ctx for sample in samples for ctx in sample.held)
    held_mb = {
        ctx: np.array([sample.held.get(ctx, (0, 0, 0)) for sample in samples]) / 1e6
        for ctx in contexts
    }
    most = sorted(held_mb, key=lambda ctx: held_mb[ctx].max(), reverse=True)[:MOST_DEVICES]
    for colour, ctx in zip(COLOURS, [ctx for ctx in contexts if ctx in most]):
        for column, (kind, dash) in enumerate((("live", "-"), ("cached", "--"), ("pending", ":"))):
            if held_mb[ctx][:, column].any():
                axes.plot(
                    times, held_mb[ctx][:, column], dash, color=colour, linewidth=1.2,
                    drawstyle="steps-post", label=f"{kind} {ctx}",
                )  # fmt: skip
    if axes.get_legend_handles_labels()[0]:
        legend_beside(axes, fontsize=8)

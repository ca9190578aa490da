"""The picture of a live view: timeline, queue and memory, one above the other on one time axis.

Words, colours and order of rows are those of the live view. Up to some dozens of operations, a line
leads to each operation from the one that it waited for last.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from d2lmini import callsite
from d2lmini.draw.picture import Picture
from d2lmini.draw.svg import FILLED, INK
from d2lmini.draw.timeline import STYLES, by_kind, draw_lanes, figure_of, legend_beside
from d2lmini.ops.shown import shown_name
from d2lmini.profiler.draw import names_of, rows_of, span_of, write_into_bars
from d2lmini.profiler.records import Wait
from d2lmini.widgets.base import need
from d2lmini.widgets.watch_records import RecentRecords, Sample, WatchedOperation

#: Beyond this many operations there are no arrows.
MOST_ARROWS = 40
#: Most devices named in the picture of memory.
MOST_DEVICES = 4
#: Most waiting lines named below the picture, and the most characters of each.
MOST_WAITS, LETTERS = 3, 90


def picture_of(recent: RecentRecords) -> Picture | None:
    """The picture of a `Watch`; see `Watch.picture`."""
    operations = [operation for operation in recent.operations if operation.ran]
    if not operations:
        return None
    need("matplotlib")
    begin_ns = min(operation.began_ns for operation in operations)
    waits = [wait for wait in recent.waits if wait.end_ns > begin_ns]
    begin_ns = min([begin_ns, *(wait.begin_ns for wait in waits)])
    end_ns = max(operation.ended_ns for operation in operations)
    end_ns = max([end_ns, *(wait.end_ns for wait in waits)])
    threads = list(dict.fromkeys(wait.thread for wait in waits))
    rows = rows_of(operations)
    lanes = [
        (front_end(thread), by_kind(span_of(w) for w in waits if w.thread == thread))
        for thread in threads
    ]
    lanes += [(n, by_kind(map(span_of, row))) for n, row in zip(names_of(rows), rows.values())]
    place = {key: len(threads) + n for n, key in enumerate(rows)}

    begin_s, length_s = begin_ns / 1e9, (end_ns - begin_ns) / 1e9
    notes = _longest(waits)
    heights = [0.35 + 0.32 * len(lanes), 0.7, 0.9, 0.4, 0.01 + 0.15 * len(notes)]
    figure = figure_of(sum(heights) + 0.6)
    grid = figure.add_gridspec(5, 1, height_ratios=heights)
    top = figure.add_subplot(grid[0])
    queue, memory, process = (figure.add_subplot(grid[i], sharex=top) for i in (1, 2, 3))
    draw_lanes(top, lanes, begin_s, length_s, "ms")
    for n, thread in enumerate(threads):
        _name_waits(top, n, [wait for wait in waits if wait.thread == thread], begin_s)
    for key, row in rows.items():
        write_into_bars(top, place[key], row, begin_s, partial(_label, length_s / 60))
    if len(operations) <= MOST_ARROWS:
        _draw_arrows(top, operations, place, begin_s)
    samples = [sample for sample in recent.samples if begin_ns <= sample.when_ns <= end_ns]
    _draw_queue(queue, samples, begin_ns)
    _draw_memory(memory, samples, begin_ns)
    _draw_process(process, samples, begin_ns)
    for axes in (top, queue, memory):
        axes.tick_params(axis="x", labelbottom=False)
    process.set_xlabel("milliseconds")
    words = figure.add_subplot(grid[4])
    words.axis("off")
    words.text(0, 1, "\n".join(notes), va="top", fontsize=7.5, transform=words.transAxes)
    return Picture(figure, "live view of the engine")


def _label(letter_s: float, operation: WatchedOperation) -> str:
    """Number and name of an operation, or the number alone where there is no room for both."""
    words = f"{operation.number} {shown_name(operation.name)}"
    return words if operation.run_ns / 1e9 > letter_s * len(words) else str(operation.number)


def front_end(thread: str) -> str:
    """The name of the lane of one of the program's threads."""
    return "front end" if thread == "MainThread" else f"front end, {thread}"


def _name_waits(axes: Any, n: int, waits: Sequence[Wait], begin_s: float) -> None:
    """Write the waiting line into bars that have room for it."""
    room_ms = axes.get_xlim()[1] / 60  # for a character
    for wait in waits:
        word = callsite.without_folder(wait.where).partition(": ")[0]
        if 1e3 * wait.seconds > room_ms * (len(word) + 1):
            middle_ms = 1e3 * ((wait.begin_ns + wait.end_ns) / 2e9 - begin_s)
            box = {"facecolor": STYLES["wait"][0], "edgecolor": "none", "pad": 1.0}
            axes.text(
                middle_ms, n, word, ha="center", va="center", fontsize=7.5, color=FILLED, bbox=box
            )


def _draw_arrows(
    axes: Any, operations: Sequence[WatchedOperation], place: dict[Any, int], begin_s: float
) -> None:
    """Draw an arrow to each operation from the last operation that it waited for."""
    from matplotlib.lines import Line2D

    by_number = {operation.number: operation for operation in operations}
    drawn = False
    for operation in operations:
        last = waited_for(operation, by_number)
        if last is None:
            continue
        drawn = True
        here, there = place[operation.place, operation.worker], place[last.place, last.worker]
        curve = "arc3,rad=-0.35" if here == there else "arc3,rad=0"
        axes.annotate(
            "",
            xy=(1e3 * (operation.began_s - begin_s), here),
            xytext=(1e3 * (last.ended_s - begin_s), there),
            arrowprops={
                "arrowstyle": "->", "color": "#a35a0b", "lw": 0.8, "shrinkA": 0, "shrinkB": 0,
                "connectionstyle": curve, "mutation_scale": 7,
            },
        )  # fmt: skip
    if drawn:
        arrow = Line2D(
            [], [], color="#a35a0b", lw=0.8, marker=">", markersize=4, label="waited for"
        )
        legend_beside(axes, handles=[*axes.get_legend().legend_handles, arrow])


def waited_for(
    operation: WatchedOperation, known: dict[int, WatchedOperation]
) -> WatchedOperation | None:
    """The last predecessor of `operation`, if it was still running when `operation` was issued."""
    needs, room = operation.after
    before = [known[k] for k in (*needs, *room) if k in known and known[k].ran]
    last = max(before, key=lambda other: other.ended_ns, default=None)
    return last if last is not None and last.ended_ns > operation.pushed_ns else None


def _label_plot(axes: Any, words: str) -> None:
    """The name of a plot beside its axis, which begins at 0."""
    axes.set_ylabel(words, rotation=0, ha="right", va="center")
    axes.set_ylim(bottom=0)
    axes.spines[["top", "right"]].set_visible(False)


def _draw_queue(axes: Any, samples: Sequence[Sample], begin_ns: int) -> None:
    times = [(sample.when_ns - begin_ns) / 1e6 for sample in samples]
    axes.fill_between(
        times, [sample.queued for sample in samples], step="post", linewidth=0.8,
        facecolor=STYLES["compute"][0], edgecolor=STYLES["compute"][1],
    )  # fmt: skip
    _label_plot(axes, "queued\noperations")


def _draw_memory(axes: Any, samples: Sequence[Sample], begin_ns: int) -> None:
    """A colour for each device, a dash for each kind of memory; only for the devices that hold
    most, because a picture has room for few names."""
    contexts = dict.fromkeys(ctx for sample in samples for ctx, *_ in sample.held)
    held_mb = {
        ctx: np.array([_bytes_held(sample, ctx) for sample in samples]) / 1e6 for ctx in contexts
    }
    most = sorted(held_mb, key=lambda ctx: held_mb[ctx].max(), reverse=True)[:MOST_DEVICES]
    for n, ctx in enumerate(ctx for ctx in contexts if ctx in most):
        times = [(sample.when_ns - begin_ns) / 1e6 for sample in samples]
        held = held_mb[ctx]
        for column, (kind, dash) in enumerate((("live", "-"), ("cached", "--"), ("pending", ":"))):
            if held[:, column].any():
                axes.plot(
                    times, held[:, column], dash, color=COLOURS[n % len(COLOURS)], linewidth=1.2,
                    drawstyle="steps-post", label=f"{kind} {ctx}",
                )  # fmt: skip
    _label_plot(axes, "memory\nMB")
    if axes.get_legend_handles_labels()[0]:
        legend_beside(axes, fontsize=8)


def _draw_process(axes: Any, samples: Sequence[Sample], begin_ns: int) -> None:
    """Memory of the process, on its own scale: often ten times the memory of the arrays."""
    asked = [sample for sample in samples if sample.process]
    times = [(sample.when_ns - begin_ns) / 1e6 for sample in asked]
    axes.plot(times, [sample.process / 1e6 for sample in asked], "-.", color=INK, linewidth=1.0)
    _label_plot(axes, "process\nMB")


#: Of the devices' lines.
COLOURS = ["#2f6db5", "#a35a0b", "#5f9bd1", "#f0a04b", INK]


def _bytes_held(sample: Sample, ctx: Any) -> tuple[int, int, int]:
    for other, live, cached, pending in sample.held:
        if other == ctx:
            return live, cached, pending
    return 0, 0, 0


def _longest(waits: Sequence[Wait]) -> list[str]:
    """The lines that waited longest, in words."""
    by_line: dict[str, tuple[float, int]] = {}
    for wait in waits:
        seconds, n = by_line.get(wait.where, (0.0, 0))
        by_line[wait.where] = (seconds + wait.seconds, n + 1)
    longest = sorted(by_line.items(), key=lambda entry: -entry[1][0])[:MOST_WAITS]
    found = []
    for where, (seconds, n) in longest:
        where = callsite.without_folder(where)
        where = where if len(where) <= LETTERS else where[: LETTERS - 1] + "…"
        found.append(
            f"waited {1e3 * seconds:.1f} ms" + (f" ({n} times)" if n > 1 else "") + f" at {where}"
        )
    return found

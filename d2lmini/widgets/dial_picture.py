"""The runs of a memory dial as a picture: pending bytes, and the limit, over time.

The last run is orange and filled, earlier runs are blue; each run has its own dashes, and a marker
at its peak.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from d2lmini.draw.picture import Picture
from d2lmini.draw.svg import INK
from d2lmini.draw.timeline import STYLES, plot_of

if TYPE_CHECKING:
    from d2lmini.widgets.dial import DialRun

#: This many runs are drawn, the last ones.
MOST = 4

BLUES = tuple(STYLES[kind][0] for kind in ("push", "copy", "compute"))
DASHES, MARKERS = ("-", "--", "-."), "sD^"


def picture_of(runs: Sequence[DialRun], words: str) -> Picture:
    """Pending MB of each run over its seconds; for the last run also array memory and the limit."""
    figure, axes = plot_of(3.1, xlabel="seconds", ylabel="MB")
    *earlier, last = runs[-MOST:]
    for at, run in enumerate(earlier):
        seconds, pending, _, _ = _columns(run)
        axes.plot(
            seconds, pending, color=BLUES[at], linestyle=DASHES[at], marker=MARKERS[at],
            markevery=[int(np.argmax(pending))], label=f"pending, {_name(run)}",
        )  # fmt: skip
    seconds, pending, live, limit = _columns(last)
    face, edge, _ = STYLES["accent"]
    axes.fill_between(
        seconds,
        pending,
        facecolor=face,
        edgecolor=edge,
        alpha=0.75,
        label=f"pending, {_name(last)}",
    )
    axes.plot(seconds, live, color=INK, linewidth=1, label=f"in arrays, {_short(last)}")
    top = 1.12 * max(max(_columns(run)[1].max() for run in runs[-MOST:]), live.max(), 1.0)
    if limit.min() <= top:
        axes.plot(
            seconds,
            limit,
            color=edge,
            linestyle=":",
            linewidth=1.8,
            label=f"limit of {_short(last)}",
        )
    axes.set_ylim(0, top)
    axes.set_xlim(left=min(0.0, float(seconds[0])))
    figure.legend(loc="outside lower center", frameon=False, fontsize=8, ncols=2)
    return Picture(figure, words)


def _short(run: DialRun) -> str:
    return f"run {run.number}" if run.number else "this minute"


def _name(run: DialRun) -> str:
    if not run.number:
        return _short(run)
    turned = " at first" if run.turned else ""
    return f"{_short(run)} (limit {run.limit / 1e6:,.4g} MB{turned})"


def _columns(run: DialRun) -> Any:
    """Seconds, and MB: pending, in arrays, limit."""
    columns = np.array(run.points, float).reshape(-1, 4).T.copy()
    columns[1:] /= 1e6
    return columns

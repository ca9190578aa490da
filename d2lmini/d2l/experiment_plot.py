"""The runs of an experiment as a picture: the last in orange, the earlier ones in blue.

    curves, if the last run has some            over their steps, a line for each run
    else, if one number differs between runs    over that parameter
    else                                        bars, named by the parameters that differ

Results with different units get separate axes. Markers, dashes and labels distinguish what colours
distinguish, so that the picture also reads in grey.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from d2lmini.d2l.experiment_results import amount
from d2lmini.draw.picture import Picture
from d2lmini.draw.svg import INK
from d2lmini.draw.timeline import STYLES, figure_of
from d2lmini.widgets.controls import word

if TYPE_CHECKING:
    from d2lmini.d2l.experiment import Experiment, Run

#: This many runs are drawn, the last ones.
MOST = 12

ACCENT, EDGE = STYLES["accent"][0], STYLES["accent"][1]
DARK, MIDDLE, LIGHT = (STYLES[kind][0] for kind in ("push", "copy", "compute"))
BLUES = (DARK, MIDDLE, INK, LIGHT)
MARKERS, DASHES = "osD^v<>P", ("-", "--", "-.", ":")

#: Seconds on an axis: (name, how many in a second), the first in which the largest is 1 or more.
SECONDS = (("s", 1.0), ("ms", 1e3), ("us", 1e6))


def picture_of(experiment: Experiment) -> Picture:
    """All runs, the last at most `MOST`."""
    runs = experiment.runs[-MOST:]
    names_of = _names_by_unit(experiment, runs)
    varying = _varying(runs)
    high, draw = 2.9, _draw_bars
    if runs[-1].result.curves:
        draw = _draw_curves
    elif len(varying) == 1 and all(_is_number(run.parameters.get(varying[0])) for run in runs):
        draw = _draw_over
    else:
        high = 1.1 + len(runs) * max(0.3, 0.22 * max(map(len, names_of.values())))
    figure = figure_of(high)
    all_axes = figure.subplots(1, len(names_of), squeeze=False, sharey=draw is _draw_bars)[0]
    for ax, (unit, names) in zip(all_axes, names_of.items(), strict=True):
        ax.spines[["top", "right"]].set_visible(False)
        ax.tick_params(labelsize=8)
        shown, per_unit = _scale(unit, runs, names)
        label = names[0] if len(names) == 1 and names[0] else experiment.title
        label = label or ("time" if unit == "s" else "result")
        label = _plain(f"{label} ({shown})" if shown else label)
        draw(ax, runs, names, varying, unit, per_unit, label)
    _draw_legend(figure, all_axes)
    return Picture(figure, experiment.words)


# -- the kinds of pictures -------------------------------------------------------------------------


def _draw_curves(
    ax: Any, runs: list[Run], names: list[str], varying: list[str], unit: str, per_unit: float,
    label: str,
) -> None:  # fmt: skip
    shown = [(run, name) for run in runs for name in names if name in run.result.curves]
    for at, (run, name) in enumerate(shown):
        curve, last = run.result.curves[name], run is runs[-1]
        ax.plot(
            range(1, len(curve) + 1), [per_unit * value for value in curve],
            color=ACCENT if last else BLUES[at % len(BLUES)],
            label=_plain(f"{_label(run, varying)} {name}".rstrip()),
            linestyle=DASHES[at % len(DASHES)], marker=MARKERS[at % len(MARKERS)],
            linewidth=2 if last else 1.2, zorder=3 if last else 2, markersize=4,
            markevery=max(1, len(curve) // 12),
        )  # fmt: skip
    ax.set(xlabel="step", ylabel=label)
    _set_x_scale(ax, [1])


def _draw_over(
    ax: Any, runs: list[Run], names: list[str], varying: list[str], unit: str, per_unit: float,
    label: str,
) -> None:  # fmt: skip
    [over] = varying
    for at, name in enumerate(names):
        some = [run for run in runs if name in run.result.values]
        some.sort(key=lambda run: (run.parameters[over], run.number))
        xs = [run.parameters[over] for run in some]
        ys = [per_unit * run.result.values[name] for run in some]
        # The range of the middle half of the times, where there are several.
        ends = [run.result.spread.get(name, (run.result.values[name],) * 2) for run in some]
        low = [max(0.0, y - per_unit * end[0]) for y, end in zip(ys, ends)]
        high = [max(0.0, per_unit * end[1] - y) for y, end in zip(ys, ends)]
        marker = MARKERS[at % len(MARKERS)]
        ax.errorbar(
            xs, ys, [low, high], color=BLUES[at % len(BLUES)], capsize=3 if any(high) else 0,
            linestyle=DASHES[at % len(DASHES)], marker=marker, label=_plain(name) or None,
        )  # fmt: skip
        if runs[-1] in some:
            here = some.index(runs[-1])
            ax.plot(
                xs[here], ys[here], marker=marker, color=ACCENT, markeredgecolor=EDGE,
                markersize=9, linestyle="none", zorder=4,
                label="the last run" if name == names[-1] else None,
            )  # fmt: skip
    ax.set(xlabel=_plain(over), ylabel=label)
    _set_x_scale(ax, [run.parameters[over] for run in runs])
    if min(_values(runs, names)) >= 0:
        ax.set_ylim(0, 1.08 * ax.get_ylim()[1])


def _draw_bars(
    ax: Any, runs: list[Run], names: list[str], varying: list[str], unit: str, per_unit: float,
    label: str,
) -> None:  # fmt: skip
    height = 0.8 / len(names)
    for at, name in enumerate(names):
        some = [(row, run) for row, run in enumerate(runs) if name in run.result.values]
        bars = ax.barh(
            [row + height * (at - (len(names) - 1) / 2) for row, _ in some],
            [per_unit * run.result.values[name] for _, run in some], height * 0.92,
            color=[ACCENT if run is runs[-1] else LIGHT for _, run in some], edgecolor=DARK,
        )  # fmt: skip
        told = [amount(run.result.values[name], unit) for _, run in some]
        suffix = f" {name}" if len(names) > 1 else ""
        ax.bar_label(bars, [_plain(text + suffix) for text in told], padding=3, fontsize=8)
    ax.set_xlabel(label)
    ax.margins(x=0.35 if len(names) > 1 else 0.18)
    ax.axvline(0, color=INK, linewidth=0.8)
    ax.set_yticks(range(len(runs)), [_plain(_label(run, varying)) for run in runs])
    ax.set_ylim(len(runs) - 0.4, -0.6)


# -- axes, words -----------------------------------------------------------------------------------


def _draw_legend(figure: Any, all_axes: Any) -> None:
    """One legend for all axes, if there is anything to distinguish."""
    found: dict[str, Any] = {}
    for ax in all_axes:
        for handle, label in zip(*ax.get_legend_handles_labels(), strict=True):
            found.setdefault(label, handle)
    if found:
        figure.legend(
            found.values(), found.keys(), loc="outside lower center", frameon=False, fontsize=8,
            ncols=min(len(found), 3 if max(map(len, found)) < 24 else 2),
        )  # fmt: skip


def _names_by_unit(experiment: Experiment, runs: list[Run]) -> dict[str, list[str]]:
    """unit -> the names of the results in that unit."""
    found: dict[str, dict[str, None]] = {}
    for run in runs:
        for name in run.result.values:
            found.setdefault(experiment.unit_of(run, name), {})[name] = None
    return {unit: list(names) for unit, names in found.items()}


def _varying(runs: list[Run]) -> list[str]:
    """The parameters that differ between runs."""
    names = list(runs[-1].parameters)
    return [name for name in names if len({word(run.parameters.get(name)) for run in runs}) > 1]


def _label(run: Run, varying: list[str]) -> str:
    """A run's number, and the parameters that differ between runs; all, if none differs."""
    names = varying or [name for name, value in run.parameters.items() if word(value)[0] != "<"]
    told = ", ".join(f"{name}={word(run.parameters.get(name))}" for name in names[:4])
    return f"{run.number}: {told}" if told else f"run {run.number}"


def _values(runs: list[Run], names: list[str]) -> list[float]:
    """All results of these names, curves too."""
    results = [run.result for run in runs]
    found = [result.values[name] for result in results for name in names if name in result.values]
    return [*found, *(x for r in results for name in names for x in r.curves.get(name, ()))]


def _scale(unit: str, runs: list[Run], names: list[str]) -> tuple[str, float]:
    """The unit of an axis, and how many of it make one of `unit`."""
    if unit != "s":
        return unit, 1.0
    most = max(map(abs, _values(runs, names)))
    return next(((name, per_s) for name, per_s in SECONDS if most * per_s >= 1), SECONDS[-1])


def _set_x_scale(ax: Any, xs: list[Any]) -> None:
    """The horizontal axis: logarithmic if values are far apart, whole numbers if they are."""
    from matplotlib.ticker import MaxNLocator, StrMethodFormatter

    if min(xs) > 0 and max(xs) >= 50 * min(xs):
        ax.set_xscale("log")
        ax.set_xticks(sorted(set(xs)), minor=False)
        ax.set_xticks([], minor=True)
        ax.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    elif all(isinstance(x, int) for x in xs):
        ax.xaxis.set_major_locator(MaxNLocator(integer=True))


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _plain(text: str) -> str:
    """Escape dollars, between which matplotlib expects a formula."""
    return text.replace("$", r"\$")

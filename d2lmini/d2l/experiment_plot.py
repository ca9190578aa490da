"""The runs of an experiment as a picture: the last in orange, the earlier ones in blue.

    curves, if the last run has some            over their steps, a line for each run
    else, if one number differs between runs    over that parameter
    else                                        bars, named by the parameters that differ

Results with different units get separate axes. Markers, dashes and hatches distinguish what colours
distinguish, so that the picture also reads in grey.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from d2lmini.d2l.experiment_results import amount
from d2lmini.draw.picture import Picture
from d2lmini.draw.svg import INK
from d2lmini.draw.timeline import STYLES
from d2lmini.widgets.controls import word

if TYPE_CHECKING:
    from d2lmini.d2l.experiment import Experiment, Run

#: This many runs are drawn, the last ones.
MOST = 12

ACCENT, EDGE = STYLES["accent"][0], STYLES["accent"][1]
DARK, MIDDLE, LIGHT = (STYLES[kind][0] for kind in ("push", "copy", "compute"))
BLUES = (DARK, MIDDLE, INK, LIGHT)
MARKERS, DASHES = "osD^v<>P", ("-", "--", "-.", ":")
HATCHES = ("", "////", "....", "\\\\\\\\", "xxxx")

#: Seconds on an axis: (name, how many in a second), the first in which the largest is 1 or more.
SECONDS = (("s", 1.0), ("ms", 1e3), ("us", 1e6))


def picture_of(experiment: Experiment) -> Picture:
    """All runs, the last at most `MOST`."""
    # Hide matplotlib's notice that it builds its font cache, once per machine.
    logging.getLogger("matplotlib.font_manager").setLevel(logging.ERROR)
    runs = experiment.runs[-MOST:]
    groups = _groups(experiment, runs)
    last = runs[-1].result
    varying = _varying(runs)
    if last.curves:
        figure = _curves(experiment, runs, groups, varying)
    elif len(varying) == 1 and all(_is_number(run.parameters.get(varying[0])) for run in runs):
        figure = _over(experiment, runs, groups, varying[0])
    else:
        figure = _bars(experiment, runs, groups, varying)
    return Picture(figure, experiment.words)


# -- what is drawn ---------------------------------------------------------------------------------


def _curves(
    experiment: Experiment, runs: list[Run], groups: dict[str, list[str]], varying: list[str]
) -> Any:
    figure, axes = _figure(experiment, groups, 2.9)
    for ax, (unit, names) in zip(axes, groups.items(), strict=True):
        shown = [(run, name) for run in runs for name in names if name in run.result.curves]
        most = max((max(run.result.curves[name]) for run, name in shown), default=0.0)
        words, factor = _scale(unit, most)
        for at, (run, name) in enumerate(shown):
            curve = run.result.curves[name]
            last = run is runs[-1]
            label = " ".join(filter(None, (_label(run, varying), name)))
            ax.plot(
                range(1, len(curve) + 1), [factor * value for value in curve],
                color=ACCENT if last else BLUES[at % len(BLUES)], label=_plain(label),
                linestyle=DASHES[names.index(name) if last else at % len(DASHES)],
                linewidth=2 if last else 1.2, marker=MARKERS[at % len(MARKERS)],
                markersize=4, markevery=max(1, len(curve) // 12), zorder=3 if last else 2,
            )  # fmt: skip
        ax.set_xlabel("step")
        _places(ax, [1])
        ax.set_ylabel(_axis(experiment, names, words))
    _legend(figure, axes)
    return figure


def _over(experiment: Experiment, runs: list[Run], groups: dict[str, list[str]], over: str) -> Any:
    figure, axes = _figure(experiment, groups, 2.9)
    for ax, (unit, names) in zip(axes, groups.items(), strict=True):
        words, factor = _scale(unit, _most(runs, names))
        for at, name in enumerate(names):
            some = [run for run in runs if name in run.result.values]
            some.sort(key=lambda run: (run.parameters[over], run.number))
            xs = [run.parameters[over] for run in some]
            ys = [factor * run.result.values[name] for run in some]
            ax.plot(
                xs, ys, color=BLUES[at % len(BLUES)], linestyle=DASHES[at % len(DASHES)],
                marker=MARKERS[at % len(MARKERS)], label=_plain(name) if name else None,
            )  # fmt: skip
            _draw_spread(ax, xs, ys, [run.result.spread.get(name) for run in some], factor, at)
            if runs[-1] in some:
                here = some.index(runs[-1])
                ax.plot(
                    xs[here], ys[here], marker=MARKERS[at % len(MARKERS)], color=ACCENT,
                    markeredgecolor=EDGE, markersize=9, linestyle="none", zorder=4,
                    label="the last run" if at == len(names) - 1 else None,
                )  # fmt: skip
        ax.set_xlabel(_plain(over))
        ax.set_ylabel(_axis(experiment, names, words))
        _places(ax, [run.parameters[over] for run in runs])
        if _least(runs, names) >= 0:
            ax.set_ylim(0, 1.08 * ax.get_ylim()[1])
    _legend(figure, axes)
    return figure


def _draw_spread(ax: Any, xs: Any, ys: Any, spreads: Any, factor: float, at: int) -> None:
    """The range of the middle half of the times."""
    for x, y, spread in zip(xs, ys, spreads, strict=True):
        if spread is not None:
            low, high = (factor * end for end in spread)
            errors = [[max(0.0, y - low)], [max(0.0, high - y)]]
            ax.errorbar([x], [y], errors, color=BLUES[at % len(BLUES)], capsize=3)


def _bars(
    experiment: Experiment, runs: list[Run], groups: dict[str, list[str]], varying: list[str]
) -> Any:
    most_names = max(map(len, groups.values()))
    height = 0.8 / most_names
    high = 0.9 + len(runs) * max(0.3, 0.22 * most_names) + 0.2 * (most_names > 1)
    figure, axes = _figure(experiment, groups, high, sharey=True)
    for ax, (unit, names) in zip(axes, groups.items(), strict=True):
        words, factor = _scale(unit, _most(runs, names))
        for at, name in enumerate(names):
            some = [(row, run) for row, run in enumerate(runs) if name in run.result.values]
            faces = [_face(run is runs[-1], at) for _, run in some]
            bars = ax.barh(
                [row + height * (at - (len(names) - 1) / 2) for row, _ in some],
                [factor * run.result.values[name] for _, run in some],
                height * 0.92, color=faces, edgecolor=DARK, linewidth=0.6,
                hatch=HATCHES[at % len(HATCHES)],
            )  # fmt: skip
            told = [amount(run.result.values[name], unit) for _, run in some]
            if len(names) > 1:
                told = [f"{words_} {name}" for words_ in told]
            ax.bar_label(bars, [_plain(text) for text in told], padding=3, fontsize=8)
        ax.set_xlabel(_axis(experiment, names, words))
        ax.margins(x=0.35 if most_names > 1 else 0.18)
        ax.axvline(0, color=INK, linewidth=0.8)
    axes[0].set_yticks(range(len(runs)), [_plain(_label(run, varying)) for run in runs])
    axes[0].set_ylim(len(runs) - 0.4, -0.6)
    return figure


def _face(last: bool, at: int) -> str:
    faces = (ACCENT, "#f7cf9f", "#fbe7cf") if last else (LIGHT, "#dce8f6", "#eef4fb")
    return faces[min(at, 2)]


# -- axes, words -----------------------------------------------------------------------------------


def _figure(
    experiment: Experiment, groups: dict[str, list[str]], high: float, **options: Any
) -> Any:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.6, high), layout="constrained")
    axes = figure.subplots(1, len(groups), squeeze=False, **options)[0]
    for ax in axes:
        ax.spines[["top", "right"]].set_visible(False)
        ax.tick_params(labelsize=8)
    return figure, list(axes)


def _legend(figure: Any, axes: list[Any]) -> None:
    """One legend for all axes, if there is anything to distinguish."""
    found: dict[str, Any] = {}
    for ax in axes:
        for handle, label in zip(*ax.get_legend_handles_labels(), strict=True):
            found.setdefault(label, handle)
    if found:
        figure.legend(
            found.values(), found.keys(), loc="outside lower center", frameon=False, fontsize=8,
            ncols=min(len(found), 3 if max(map(len, found)) < 24 else 2),
        )  # fmt: skip


def _groups(experiment: Experiment, runs: list[Run]) -> dict[str, list[str]]:
    """unit -> the names of the results in that unit."""
    groups: dict[str, list[str]] = {}
    for run in runs:
        for name in run.result.values:
            names = groups.setdefault(experiment.unit_of(run, name), [])
            if name not in names:
                names.append(name)
    return groups


def _varying(runs: list[Run]) -> list[str]:
    """The parameters that differ between runs."""
    names = list(runs[-1].parameters)
    return [name for name in names if len({word(run.parameters.get(name)) for run in runs}) > 1]


def _label(run: Run, varying: list[str]) -> str:
    """A run's number, and the parameters that differ between runs; all, if none differs."""
    names = varying or [name for name, value in run.parameters.items() if word(value)[0] != "<"]
    told = ", ".join(f"{name}={word(run.parameters.get(name))}" for name in names[:4])
    return f"{run.number}: {told}" if told else f"run {run.number}"


def _axis(experiment: Experiment, names: list[str], unit: str) -> str:
    label = experiment.title or ("time" if unit in dict(SECONDS) else "result")
    if len(names) == 1 and names[0]:
        label = names[0]
    return _plain(f"{label} ({unit})" if unit else label)


def _scale(unit: str, most: float) -> tuple[str, float]:
    """The unit of an axis, and how many of it make one of `unit`."""
    if unit != "s":
        return unit, 1.0
    return next(((name, per_s) for name, per_s in SECONDS if most * per_s >= 1), SECONDS[-1])


def _most(runs: list[Run], names: list[str]) -> float:
    return max(abs(run.result.values[n]) for run in runs for n in names if n in run.result.values)


def _least(runs: list[Run], names: list[str]) -> float:
    return min(run.result.values[n] for run in runs for n in names if n in run.result.values)


def _places(ax: Any, xs: list[Any]) -> None:
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

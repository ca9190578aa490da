"""Figures by the second edition's names; matplotlib is imported when one is drawn.

Curves that grow (ProgressBoard, Animator) are drawn in a notebook only: elsewhere their values are
kept, and nothing is shown.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from d2lmini.compat.books import figures
from d2lmini.compat.books.figures import as_numpy, pyplot, set_figsize, use_svg_display


def set_axes(
    axes: Any, xlabel: Any, ylabel: Any, xlim: Any, ylim: Any, xscale: str, yscale: str,
    legend: Any, grid: bool = True,
) -> None:  # fmt: skip
    """Labels, limits, scales and legend of a diagram."""
    axes.set(xlabel=xlabel, ylabel=ylabel, xscale=xscale, yscale=yscale)
    if xlim is not None:
        axes.set_xlim(xlim)
    if ylim is not None:
        axes.set_ylim(ylim)
    if legend:
        axes.legend(legend)
    axes.grid(grid)


def plot(
    X: Any, Y: Any = None, xlabel: str | None = None, ylabel: str | None = None,
    legend: Sequence[str] = (), xlim: Any = None, ylim: Any = None, xscale: str = "linear",
    yscale: str = "linear", fmts: Sequence[str] = ("-", "m--", "g-.", "r:"),
    figsize: tuple[float, float] = (3.5, 2.5), axes: Any = None,
) -> None:  # fmt: skip
    """Curves: Y over X, or X over its indices. Each is one curve or a list of curves; a single X
    serves all."""
    set_figsize(figsize)
    axes = axes or pyplot().gca()
    curves = [_curves(values) for values in (X, Y) if values is not None]
    count = max(map(len, curves))
    axes.cla()
    columns = [one * count if len(one) == 1 else one for one in curves]
    for *curve, fmt in zip(*columns, list(fmts) * count):
        axes.plot(*curve, fmt)
    set_axes(axes, xlabel, ylabel, xlim, ylim, xscale, yscale, legend)


def _curves(values: Any) -> list[Any]:
    """A curve or several, as a list of NumPy arrays or lists."""
    if hasattr(values, "ndim"):
        return [as_numpy(values)] if values.ndim == 1 else list(as_numpy(values))
    values = [as_numpy(value) for value in values]
    alone = not values or getattr(values[0], "ndim", 1) == 0 or not hasattr(values[0], "__len__")
    return [values] if alone else [list(map(as_numpy, curve)) for curve in values]


def show_images(
    imgs: Any, num_rows: int, num_cols: int, titles: Any = None, scale: float = 1.5
) -> Any:
    """Draw pictures in a grid."""
    return figures.show_images(imgs, num_rows, num_cols, scale, titles).flatten()


# -- curves that grow ------------------------------------------------------------------------------


def _in_notebook() -> bool:
    try:
        from IPython import get_ipython
    except ImportError:
        return False
    return getattr(get_ipython(), "kernel", None) is not None


def redraw(board: Any, curves: Iterable[Any], legend: Any, grid: bool) -> None:
    """In a notebook, draw the curves of a ProgressBoard or an Animator anew: tuples of arguments
    for `axes.plot`, the last of them its keywords."""
    if not _in_notebook():
        return
    from IPython import display

    use_svg_display()
    if board.fig is None:
        board.fig = pyplot().figure(figsize=board.figsize)
    axes = board.axes or board.fig.gca()
    axes.cla()
    for *arguments, style in curves:
        axes.plot(*arguments, **style)
    limits = board.xlim, board.ylim, board.xscale, board.yscale
    set_axes(axes, board.xlabel, board.ylabel, *limits, legend, grid)
    display.display(board.fig)
    display.clear_output(wait=True)

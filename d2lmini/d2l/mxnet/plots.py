"""Figures by the second edition's names; matplotlib is imported when one is drawn.

Curves that grow (ProgressBoard, Animator) are drawn in a notebook only: elsewhere their values are
kept, and nothing is shown.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from d2lmini.d2l.figures import as_numpy, pyplot
from d2lmini.d2l.figures import bbox_to_rect as bbox_to_rect
from d2lmini.d2l.figures import set_figsize as set_figsize
from d2lmini.d2l.figures import use_svg_display as use_svg_display


def set_axes(
    axes: Any, xlabel: Any, ylabel: Any, xlim: Any, ylim: Any, xscale: str, yscale: str,
    legend: Any,
) -> None:  # fmt: skip
    """Labels, limits, scales and legend of a diagram."""
    axes.set(xlabel=xlabel, ylabel=ylabel, xscale=xscale, yscale=yscale)
    if xlim is not None:
        axes.set_xlim(xlim)
    if ylim is not None:
        axes.set_ylim(ylim)
    if legend:
        axes.legend(legend)
    axes.grid()


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
    if Y is None:
        curves = [(None, y) for y in _curves(X)]
    else:
        ys, xs = _curves(Y), _curves(X)
        curves = list(zip(xs * len(ys) if len(xs) == 1 else xs, ys))
    axes.cla()
    for (x, y), fmt in zip(curves, list(fmts) * len(curves)):
        axes.plot(y, fmt) if x is None else axes.plot(x, y, fmt)
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
    _, axes = pyplot().subplots(
        num_rows, num_cols, figsize=(num_cols * scale, num_rows * scale), squeeze=False
    )
    flat = axes.flatten()
    for i, (place, img) in enumerate(zip(flat, imgs)):
        place.imshow(as_numpy(img))
        place.axis("off")
        if titles:
            place.set_title(titles[i])
    return flat


def show_heatmaps(
    matrices: Any, xlabel: str, ylabel: str, titles: Any = None,
    figsize: tuple[float, float] = (2.5, 2.5), cmap: str = "Reds",
) -> None:  # fmt: skip
    """Draw matrices, (rows, columns, H, W), as colours."""
    use_svg_display()
    values = as_numpy(matrices)
    rows, columns = values.shape[:2]
    figure, axes = pyplot().subplots(
        rows, columns, figsize=figsize, sharex=True, sharey=True, squeeze=False
    )
    for i in range(rows):
        for j in range(columns):
            picture = axes[i][j].imshow(values[i, j], cmap=cmap)
            if i == rows - 1:
                axes[i][j].set_xlabel(xlabel)
            if j == 0:
                axes[i][j].set_ylabel(ylabel)
            if titles:
                axes[i][j].set_title(titles[j])
    figure.colorbar(picture, ax=axes, shrink=0.6)


def show_list_len_pair_hist(
    legend: Sequence[str], xlabel: str, ylabel: str, xlist: Any, ylist: Any
) -> None:
    """A histogram of the lengths of the lists in two lists."""
    set_figsize()
    pyplot().hist([[len(item) for item in xlist], [len(item) for item in ylist]])
    pyplot().xlabel(xlabel)
    pyplot().ylabel(ylabel)
    pyplot().legend(legend)


# -- curves that grow ------------------------------------------------------------------------------


def _in_notebook() -> bool:
    try:
        from IPython import get_ipython
    except ImportError:
        return False
    return getattr(get_ipython(), "kernel", None) is not None


def show_curves(board: Any) -> None:
    """Draw a ProgressBoard anew."""
    if not _in_notebook():
        return
    from IPython import display

    use_svg_display()
    if board.fig is None:
        board.fig = pyplot().figure(figsize=board.figsize)
    axes = board.axes or pyplot().gca()
    axes.cla()
    for (_, curve), style, color in zip(board.data.items(), board.ls, board.colors):
        axes.plot([p.x for p in curve], [p.y for p in curve], linestyle=style, color=color)
    if board.xlim:
        axes.set_xlim(board.xlim)
    if board.ylim:
        axes.set_ylim(board.ylim)
    axes.set(xlabel=board.xlabel, ylabel=board.ylabel, xscale=board.xscale, yscale=board.yscale)
    axes.legend(list(board.data))
    display.display(board.fig)
    display.clear_output(wait=True)


def show_animation(animator: Any) -> None:
    """Draw an Animator anew."""
    if not _in_notebook():
        return
    from IPython import display

    use_svg_display()
    if not hasattr(animator, "fig"):
        animator.fig, axes = pyplot().subplots(
            animator.nrows, animator.ncols, figsize=animator.figsize, squeeze=False
        )
        animator.axes = list(axes.flatten())
    axes = animator.axes[0]
    axes.cla()
    for x, y, fmt in zip(animator.X, animator.Y, animator.fmts):
        axes.plot(x, y, fmt)
    set_axes(axes, **animator.axes_options, legend=animator.legend)
    display.display(animator.fig)
    display.clear_output(wait=True)

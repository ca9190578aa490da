"""Figures of both editions: curves, paths of optimizers, images, boxes.

    d2l.semilogy(range(1, 101), train_losses, "epochs", "loss")

They are drawn with `matplotlib.pyplot`, as the books' programs expect (`d2l.plt` is it), which is
imported when one is drawn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np


def pyplot() -> Any:
    """Matplotlib, imported when a figure is drawn."""
    import matplotlib.pyplot

    return matplotlib.pyplot


def as_numpy(x: Any) -> Any:
    """An array as NumPy has it; waits."""
    return x.asnumpy() if hasattr(x, "asnumpy") else x


def use_svg_display() -> None:
    """Show figures as SVG in a notebook; elsewhere nothing changes."""
    try:
        from IPython import get_ipython
        from matplotlib_inline.backend_inline import set_matplotlib_formats
    except ImportError:
        return
    if get_ipython() is not None:
        set_matplotlib_formats("svg")


def set_figsize(figsize: tuple[float, float] = (3.5, 2.5)) -> None:
    """The size of the figures to come, in inches."""
    use_svg_display()
    pyplot().rcParams["figure.figsize"] = figsize


def semilogy(
    x_vals: Sequence[float], y_vals: Sequence[float], x_label: str, y_label: str,
    x2_vals: Sequence[float] | None = None, y2_vals: Sequence[float] | None = None,
    legend: Sequence[str] | None = None, figsize: tuple[float, float] = (3.5, 2.5),
) -> None:  # fmt: skip
    """One or two curves over a logarithmic y axis; the second is dotted."""
    set_figsize(figsize)
    plt = pyplot()
    plt.xlabel(x_label)
    plt.ylabel(y_label)
    plt.semilogy(x_vals, y_vals)
    if x2_vals is not None and y2_vals is not None:
        plt.semilogy(x2_vals, y2_vals, linestyle=":")
    if legend:
        plt.legend(legend)


def plot_losses(losses: Sequence[float], num_epochs: float) -> None:
    """Losses taken at equal distances over the epochs."""
    set_figsize()
    pyplot().plot(np.linspace(0, num_epochs, len(losses)), losses)
    pyplot().xlabel("epoch")
    pyplot().ylabel("loss")


def show_trace_2d(f: Callable[..., Any], results: Iterable[tuple[Any, Any]]) -> None:
    """The path of an optimizer over the contours of f(x1, x2), as `train_2d` returns it."""
    set_figsize()
    plt = pyplot()
    plt.plot(*zip(*[(float(x1), float(x2)) for x1, x2 in results]), "-o", color="#ff7f0e")
    x1, x2 = np.meshgrid(np.arange(-5.5, 1.0, 0.1), np.arange(-3.0, 1.0, 0.1))
    plt.contour(x1, x2, as_numpy(f(x1, x2)), colors="#1f77b4")
    plt.xlabel("x1")
    plt.ylabel("x2")


def show_images(
    imgs: Iterable[Any], num_rows: int, num_cols: int, scale: float = 2, titles: Any = None
) -> Any:
    """Images in a grid, row by row, under their titles; returns its axes."""
    size = (num_cols * scale, num_rows * scale)
    _, axes = pyplot().subplots(num_rows, num_cols, figsize=size, squeeze=False)
    for i, (ax, image) in enumerate(zip(axes.flat, imgs)):
        ax.imshow(as_numpy(image))
        ax.set_axis_off()
        if titles:
            ax.set_title(titles[i])
    return axes


def bbox_to_rect(bbox: Sequence[float], color: str) -> Any:
    """(left, top, right, bottom) as a rectangle of matplotlib."""
    left, top, right, bottom = (float(v) for v in bbox)
    return pyplot().Rectangle(
        (left, top), right - left, bottom - top, fill=False, edgecolor=color, linewidth=2
    )


def show_bboxes(
    axes: Any, bboxes: Sequence[Any], labels: str | Sequence[str] | None = None,
    colors: str | Sequence[str] | None = None,
) -> None:  # fmt: skip
    """Draw boxes over an image, each with its label; colours repeat."""
    palette = [colors] if isinstance(colors, str) else list(colors or "bgrmc")
    words = [labels] if isinstance(labels, str) else list(labels or [])
    for i, bbox in enumerate(bboxes):
        color = palette[i % len(palette)]
        box = bbox_to_rect(as_numpy(bbox), color)
        axes.add_patch(box)
        if i < len(words):
            axes.text(
                *box.get_xy(), words[i], va="center", ha="center", fontsize=9,
                color="k" if color == "w" else "w", bbox={"facecolor": color, "lw": 0},
            )  # fmt: skip

"""What the programs of both editions use: loops, small models, files and figures.

    loss, accuracy, n = train_epoch(net, train_iter, loss, trainer.step, [cpu(0), cpu(1)])

>>> from d2lmini import d2l, nd
>>> net = d2l.resnet18(10)
>>> net.initialize()
>>> net(nd.ones((2, 1, 28, 28))).shape
(2, 10)

Losses and hits are summed on the CPU and read once per epoch: the loops never wait for a batch, so
the next batch begins while the last gradients are still being computed. The engine's bound on
pending bytes keeps memory low. (The books' own loops read each batch's loss, which waits.)

Loops and models take arrays of `nd` or of `np`. Figures are drawn with `matplotlib.pyplot`, as the
books' programs expect (`d2l.plt` is it), which is imported when a figure is drawn. Curves that grow
(ProgressBoard, Animator) are drawn in a notebook only: elsewhere their values are kept, and nothing
is shown.
"""

from __future__ import annotations

import hashlib
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from d2lmini import autograd, gluon
from d2lmini import ndarray as nd
from d2lmini.context import Context, cpu
from d2lmini.d2l.helpers import Parts, Split, count_hits, evaluate_accuracy, split_batch
from d2lmini.gluon import nn

Net = Callable[..., Any]
Batches = Iterable[Any]


# -- classifiers -----------------------------------------------------------------------------------


def keep_whole(X: Any, y: Any, devices: list[Context]) -> Parts:
    """A batch as its only part, on the device where it is."""
    return [X], [y]


def devices_of(net: Any) -> list[Context]:
    """The devices on which a net was initialized."""
    return next(iter(net.collect_params().values())).list_ctx()


def evaluate_accuracy_gpus(net: Any, data_iter: Batches, split_f: Split = split_batch) -> float:
    """The fraction of examples whose largest score is the right class, computed on all devices
    that the net was initialized on; waits once, at the end."""
    return evaluate_accuracy(data_iter, net, devices_of(net), split_f)


def train_batch(
    net: Net, X: Any, y: Any, loss: Net, step: Callable[[int], Any], devices: list[Context],
    split_f: Split = split_batch,
) -> tuple[Any, Any]:  # fmt: skip
    """One step on a batch, split over the devices: (the sum of the losses, how many were right),
    arrays of one number on the CPU; does not wait."""
    Xs, ys = split_f(X, y, devices)
    with autograd.record():
        scores = [net(part) for part in Xs]
        losses = [loss(score, part).sum() for score, part in zip(scores, ys)]
    autograd.backward(losses)
    step(y.shape[0])
    first, *rest = (l.as_in_context(cpu()) for l in losses)
    return sum(rest, first), count_hits(scores, ys)


def train_epoch(
    net: Net, train_iter: Batches, loss: Net, step: Callable[[int], Any], devices: list[Context],
    split_f: Split = split_batch,
) -> tuple[float, float, int]:  # fmt: skip
    """One pass: (the mean loss, the share of right predictions, how many examples)."""
    loss_sum, hits, n = 0, 0, 0
    for X, y in train_iter:
        l, right = train_batch(net, X, y, loss, step, devices, split_f)
        loss_sum += l
        hits += right
        n += y.shape[0]
    return float(loss_sum) / n, float(hits) / n, n


class Epoch(NamedTuple):
    """What one epoch gave: the mean loss, shares of right predictions, how many examples, and the
    seconds of training and of all."""

    loss: float
    acc: float
    test_acc: float
    n: int
    train_s: float
    seconds: float


def train_epochs(
    net: Net, train_iter: Batches, test_iter: Batches, loss: Net, step: Callable[[int], Any],
    num_epochs: int, devices: list[Context], split_f: Split = split_batch,
) -> Iterator[Epoch]:  # fmt: skip
    """The loop of all functions that train a classifier."""
    for _ in range(num_epochs):
        start = time.time()
        mean_loss, acc, n = train_epoch(net, train_iter, loss, step, devices, split_f)
        train_s = time.time() - start
        test_acc = evaluate_accuracy(test_iter, net, devices, split_f)
        yield Epoch(mean_loss, acc, test_acc, n, train_s, time.time() - start)


# -- optimizers ------------------------------------------------------------------------------------


def sgd(params: Iterable[Any], lr: float, batch_size: int) -> None:
    """One step of minibatch stochastic gradient descent, in place."""
    for param in params:
        param[:] = param - lr * param.grad / batch_size


def grad_clipping(params: Sequence[Any], theta: float, ctx: Context | None = None) -> None:
    """Scale all gradients so that their joint norm is at most `theta`. Does not wait."""
    ctx = ctx or params[0].context
    norm = nd.sqrt(nd.add_n(*[(p.grad**2).sum().as_in_context(ctx) for p in params]))
    factor = nd.minimum(theta / nd.maximum(norm, 1e-30), 1.0)
    for param in params:
        param.grad[:] *= factor.as_in_context(param.context)


def load_array(data_arrays: Iterable[Any], batch_size: int, is_train: bool = True) -> Any:
    """Batches of arrays, shuffled for training."""
    dataset = gluon.data.ArrayDataset(*data_arrays)
    return gluon.data.DataLoader(dataset, batch_size, shuffle=is_train)


# -- models ----------------------------------------------------------------------------------------


def linreg(X: Any, w: Any, b: Any) -> Any:
    """Linear regression: X w + b."""
    return nd.dot(X, w) + b


def squared_loss(y_hat: Any, y: Any) -> Any:
    """(y_hat - y)**2 / 2, with y in the shape of y_hat."""
    return (y_hat - y.reshape(y_hat.shape)) ** 2 / 2


def corr2d(X: Any, K: Any) -> Any:
    """Cross-correlation of the matrix X with the kernel K, element by element."""
    h, w = K.shape
    Y = nd.zeros_like(X[: X.shape[0] - h + 1, : X.shape[1] - w + 1])
    for i in range(Y.shape[0]):
        for j in range(Y.shape[1]):
            Y[i, j] = (X[i : i + h, j : j + w] * K).sum()
    return Y


class Residual(nn.Block):
    """Two 3 x 3 convolutions with batch normalization, around which the input passes too.

    (N, C, H, W) -> (N, num_channels, H / strides, W / strides). use_1x1conv: the input passes
    through a 1 x 1 convolution, needed when channels or size change. After He et al., "Deep
    residual learning for image recognition" (2016).
    """

    def __init__(
        self, num_channels: int, use_1x1conv: bool = False, strides: int = 1, **kwargs: Any
    ):
        super().__init__(**kwargs)
        self.conv1 = nn.Conv2D(num_channels, kernel_size=3, padding=1, strides=strides)
        self.conv2 = nn.Conv2D(num_channels, kernel_size=3, padding=1)
        self.conv3 = (
            nn.Conv2D(num_channels, kernel_size=1, strides=strides) if use_1x1conv else None
        )
        self.bn1 = nn.BatchNorm()
        self.bn2 = nn.BatchNorm()

    def forward(self, X: Any) -> Any:
        Y = nd.relu(self.bn1(self.conv1(X)))
        Y = self.bn2(self.conv2(Y))
        return nd.relu(Y + (X if self.conv3 is None else self.conv3(X)))


def resnet18(num_classes: int) -> Any:
    """ResNet-18 for small images: four stages of two Residuals with 64 to 512 channels, each stage
    but the first halving height and width."""
    net = nn.Sequential()
    net.add(nn.Conv2D(64, kernel_size=3, strides=1, padding=1), nn.BatchNorm())
    net.add(nn.Activation("relu"))
    for strides, num_channels in [(1, 64), (2, 128), (2, 256), (2, 512)]:
        stage = nn.Sequential()
        stage.add(Residual(num_channels, strides > 1, strides), Residual(num_channels))
        net.add(stage)
    net.add(nn.GlobalAvgPool2D(), nn.Dense(num_classes))
    return net


# -- files: found on this machine, never fetched --------------------------------------------------

DATA_URL = "http://d2l-data.s3-accelerate.amazonaws.com/"
#: name -> (address, SHA-1 of the file).
DATA_HUB: dict[str, tuple[str, str]] = {}


def find_file(name: str, source: str, folder: str = "../data") -> Path:
    """The file of that name in the folder, in `../data` or `data`, as the books' programs expect,
    or where the environment variable D2L_DATA says. FileNotFoundError tells the source, which is
    a sentence: "Fetch ADDRESS"."""
    folders = dict.fromkeys([folder, "../data", "data", os.environ.get("D2L_DATA") or "data"])
    for place in folders:
        path = Path(place) / name
        if path.is_file():
            return path
    looked = ", ".join(str(Path(place).resolve()) for place in folders)
    raise FileNotFoundError(
        f"{name} is not here, and d2lmini fetches nothing by itself. {source} and put the file "
        f"into one of {looked}, or let D2L_DATA name its folder"
    )


def download(url: str, folder: str = "../data", sha1_hash: str | None = None) -> str:
    """The path of the file of an address, or of a name in DATA_HUB. FileNotFoundError if the file
    is in none of the places; ValueError if its SHA-1 is another."""
    if not url.startswith("http"):
        if url not in DATA_HUB:
            raise ValueError(f"download: {url!r} is no address and no name in DATA_HUB")
        url, sha1_hash = DATA_HUB[url]
    path = find_file(url.rsplit("/", 1)[-1], f"Fetch {url}", folder)
    if sha1_hash and hashlib.sha1(path.read_bytes()).hexdigest() != sha1_hash:
        raise ValueError(f"{path} has another SHA-1 than {sha1_hash}: fetch it from {url}")
    return str(path)


# -- figures ---------------------------------------------------------------------------------------


def pyplot() -> Any:
    """Matplotlib, imported when a figure is drawn."""
    import matplotlib.pyplot

    return matplotlib.pyplot


def as_numpy(x: Any) -> Any:
    """An array as NumPy has it; waits."""
    return x.asnumpy() if hasattr(x, "asnumpy") else x


def _in_notebook() -> bool:
    ipython: Any = sys.modules.get("IPython")
    return ipython is not None and hasattr(ipython.get_ipython(), "kernel")


def use_svg_display() -> None:
    """Show figures as SVG in a notebook; elsewhere nothing changes."""
    if _in_notebook():
        from matplotlib_inline.backend_inline import set_matplotlib_formats

        set_matplotlib_formats("svg")


def set_figsize(figsize: tuple[float, float] = (3.5, 2.5)) -> None:
    """The size of the figures to come, in inches."""
    use_svg_display()
    pyplot().rcParams["figure.figsize"] = figsize


def _begin(x_label: str, y_label: str, figsize: tuple[float, float] = (3.5, 2.5)) -> Any:
    """Pyplot, with the size and the labels of a diagram."""
    set_figsize(figsize)
    pyplot().gca().set(xlabel=x_label, ylabel=y_label)
    return pyplot()


def semilogy(
    x_vals: Sequence[float], y_vals: Sequence[float], x_label: str, y_label: str,
    x2_vals: Sequence[float] | None = None, y2_vals: Sequence[float] | None = None,
    legend: Sequence[str] | None = None, figsize: tuple[float, float] = (3.5, 2.5),
) -> None:  # fmt: skip
    """One or two curves over a logarithmic y axis; the second is dotted."""
    plt = _begin(x_label, y_label, figsize)
    plt.semilogy(x_vals, y_vals)
    if x2_vals is not None and y2_vals is not None:
        plt.semilogy(x2_vals, y2_vals, linestyle=":")
    if legend:
        plt.legend(legend)


def plot_losses(losses: Sequence[float], num_epochs: float) -> None:
    """Losses taken at equal distances over the epochs."""
    _begin("epoch", "loss").plot(np.linspace(0, num_epochs, len(losses)), losses)


def show_trace_2d(f: Callable[..., Any], results: Iterable[tuple[Any, Any]]) -> None:
    """The path of an optimizer over the contours of f(x1, x2), as `train_2d` returns it."""
    plt = _begin("x1", "x2")
    plt.plot(*zip(*[(float(x1), float(x2)) for x1, x2 in results]), "-o", color="#ff7f0e")
    x1, x2 = np.meshgrid(np.arange(-5.5, 1.0, 0.1), np.arange(-3.0, 1.0, 0.1))
    plt.contour(x1, x2, as_numpy(f(x1, x2)), colors="#1f77b4")


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

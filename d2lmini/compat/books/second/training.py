"""Training loops and their instruments, by the second edition's names.

>>> from d2lmini.compat.books.second.training import Accumulator
>>> total = Accumulator(2)
>>> total.add(1, 2), total.add(3, 4)
(None, None)
>>> total[0], total[1]
(4.0, 6.0)
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from typing import Any

from d2lmini import gluon, init, npx
from d2lmini.compat.books import shared
from d2lmini.compat.books.second.classes import HyperParameters
from d2lmini.compat.books.shared import Batches, Net
from d2lmini.context import Context
from d2lmini.d2l import benchmark
from d2lmini.d2l import helpers as core
from d2lmini.d2l.helpers import Split, split_batch, try_all_gpus, try_gpu
from d2lmini.gluon import nn

cpu, gpu, num_gpus = npx.cpu, npx.gpu, npx.num_gpus


class Timer:
    """A stopwatch that keeps all its times, in seconds."""

    def __init__(self) -> None:
        self.times: list[float] = []
        self.start()

    def start(self) -> None:
        """Begin anew."""
        self.tik = time.time()

    def stop(self) -> float:
        """Keep the time since `start`, and return it."""
        self.times.append(time.time() - self.tik)
        return self.times[-1]

    def avg(self) -> float:
        """The mean of the times."""
        return sum(self.times) / len(self.times)

    def sum(self) -> float:
        """The sum of the times."""
        return sum(self.times)

    def cumsum(self) -> list[float]:
        """The running sums of the times."""
        return [sum(self.times[: i + 1]) for i in range(len(self.times))]


class Benchmark(benchmark.Benchmark):
    """`d2lmini.Benchmark`, which prints `description: 0.1234 sec`."""

    def __init__(self, description: str | None = "Done", **options: Any):
        super().__init__(description, **options)
        self.description = self.prefix

    def _print(self) -> None:
        if not self.quiet:
            print(f"{self.description}: {self.elapsed:.4f} sec")


class Accumulator:
    """Sums over n variables."""

    def __init__(self, n: int):
        self.data = [0.0] * n

    def add(self, *args: Any) -> None:
        """Add a number to each; waits for those that are arrays."""
        self.data = [total + float(x) for total, x in zip(self.data, args)]

    def reset(self) -> None:
        """Set all to zero."""
        self.data = [0.0] * len(self.data)

    def __getitem__(self, idx: int) -> float:
        return self.data[idx]


class Animator(HyperParameters):
    """Curves that grow; drawn in a notebook, kept in `X` and `Y` everywhere."""

    def __init__(
        self, xlabel: str | None = None, ylabel: str | None = None,
        legend: Sequence[str] | None = None, xlim: Any = None, ylim: Any = None,
        xscale: str = "linear", yscale: str = "linear",
        fmts: Sequence[str] = ("-", "m--", "g-.", "r:"), nrows: int = 1, ncols: int = 1,
        figsize: tuple[float, float] = (3.5, 2.5),
    ):  # fmt: skip
        self.save_hyperparameters()
        self.fig = self.axes = None
        self.X: list[list[Any]] = []
        self.Y: list[list[Any]] = []

    def add(self, x: Any, y: Any) -> None:
        """Add a point to each curve, none where the value is None; waits for arrays."""
        ys = list(y) if hasattr(y, "__len__") else [y]
        xs = list(x) if hasattr(x, "__len__") else [x] * len(ys)
        while len(self.X) < len(ys):
            self.X.append([])
            self.Y.append([])
        for i, (a, b) in enumerate(zip(xs, ys)):
            if a is not None and b is not None:
                self.X[i].append(float(a))
                self.Y[i].append(float(b))
        curves = zip(self.X, self.Y, self.fmts)
        shared.redraw(self, ((*curve, {}) for curve in curves), self.legend, grid=True)


def grad_clipping(net: Any, theta: float) -> None:
    """Scale the gradients so that their common norm is at most `theta`."""
    is_block = isinstance(net, nn.Block)
    params = [p.data() for p in net.collect_params().values()] if is_block else net.params
    shared.grad_clipping(params, theta)


# -- classifiers -----------------------------------------------------------------------------------


def accuracy(y_hat: Any, y: Any) -> float:
    """The number of right predictions: scores, one row for each label, or classes."""
    if len(y_hat.shape) > 1 and y_hat.shape[1] > 1:
        return float(core.count_hits([y_hat], [y]))
    return float((y_hat.astype(y.dtype) == y).sum())


def evaluate_accuracy(net: Net, data_iter: Batches) -> float:
    """The share of right predictions."""
    return core.evaluate_accuracy(data_iter, net, split=shared.keep_whole)


def evaluate_accuracy_gpu(net: Any, data_iter: Batches, device: Context | None = None) -> float:
    """The share of right predictions, computed on `device` (None: where the net is)."""
    return core.evaluate_accuracy(data_iter, net, device or shared.devices_of(net)[0])


def train_epoch_ch3(net: Net, train_iter: Batches, loss: Net, updater: Any) -> tuple[float, float]:
    """One pass: (mean loss, share of right predictions). updater: a Gluon Trainer, or a function
    of the batch size."""
    step = updater.step if isinstance(updater, gluon.Trainer) else updater
    return shared.train_epoch(net, train_iter, loss, step, [cpu()], shared.keep_whole)[:2]


def train_ch3(
    net: Net, train_iter: Batches, test_iter: Batches, loss: Net, num_epochs: int, updater: Any
) -> None:
    """Train a classifier, and draw its progress."""
    step = updater.step if isinstance(updater, gluon.Trainer) else updater
    _train(net, train_iter, test_iter, loss, step, num_epochs, [cpu()], shared.keep_whole)


def train_ch6(
    net: Any, train_iter: Any, test_iter: Batches, num_epochs: int, lr: float,
    device: Context | None = None,
) -> None:  # fmt: skip
    """Train a classifier on one device (None: the first GPU, if there is one) with SGD; draws and
    prints its progress."""
    device = device or try_gpu()
    net.initialize(force_reinit=True, ctx=device, init=init.Xavier())
    loss = gluon.loss.SoftmaxCrossEntropyLoss()
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": lr})
    _tell(device, _train(net, train_iter, test_iter, loss, trainer.step, num_epochs, [device]))


def train_batch_ch13(
    net: Any, features: Any, labels: Any, loss: Net, trainer: Any, devices: list[Context],
    split_f: Split = split_batch,
) -> tuple[float, float]:  # fmt: skip
    """One step: (the sum of the losses, the number of right predictions)."""
    step = partial(trainer.step, ignore_stale_grad=True)
    l, hits = shared.train_batch(net, features, labels, loss, step, devices, split_f)
    return float(l), float(hits)


def train_ch13(
    net: Any, train_iter: Any, test_iter: Batches, loss: Net, trainer: Any, num_epochs: int,
    devices: list[Context] | None = None, split_f: Split = split_batch,
) -> None:  # fmt: skip
    """Train a classifier on all `devices` (None: all GPUs); draws and prints its progress."""
    devices = devices or try_all_gpus()
    step = partial(trainer.step, ignore_stale_grad=True)
    _tell(devices, _train(net, train_iter, test_iter, loss, step, num_epochs, devices, split_f))


def _train(
    net: Any, train_iter: Any, test_iter: Batches, loss: Net, step: Net, num_epochs: int,
    devices: list[Context], split_f: Split = split_batch,
) -> list[shared.Epoch]:  # fmt: skip
    """The loop of all three functions, whose curves have a point for each epoch."""
    legend = ["train loss", "train acc", "test acc"]
    animator = Animator(xlabel="epoch", xlim=[1, num_epochs], ylim=[0, 1], legend=legend)
    epochs = []
    for epoch in shared.train_epochs(
        net, train_iter, test_iter, loss, step, num_epochs, devices, split_f
    ):
        epochs.append(epoch)
        animator.add(len(epochs), epoch[:3])
    return epochs


def _tell(ctx: Context | list[Context], epochs: list[shared.Epoch]) -> None:
    """Print how the last epoch ended, and the speed of all."""
    last, n = epochs[-1], sum(epoch.n for epoch in epochs)
    print(f"loss {last.loss:.3f}, train acc {last.acc:.3f}, test acc {last.test_acc:.3f}")
    print(f"{n / sum(epoch.train_s for epoch in epochs):.1f} examples/sec on {ctx!s}")

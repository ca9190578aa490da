"""Training loops and their instruments, by the second edition's names.

>>> from d2lmini.d2l.mxnet.training import Accumulator
>>> total = Accumulator(2)
>>> total.add(1, 2), total.add(3, 4)
(None, None)
>>> total[0], total[1]
(4.0, 6.0)
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from d2lmini import autograd, gluon, init, np, npx
from d2lmini.context import Context
from d2lmini.d2l import benchmark
from d2lmini.d2l.models import squared_loss
from d2lmini.d2l.mxnet.hyperparameters import HyperParameters
from d2lmini.d2l.training import sgd as sgd
from d2lmini.gluon import nn


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

    def _print(self, note: str = "") -> None:
        if not self.quiet:
            print(f"{self.description}: {self.elapsed:.4f} sec{note}")


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


class Animator:
    """Curves that grow; drawn in a notebook, kept in `X` and `Y` everywhere."""

    def __init__(
        self, xlabel: str | None = None, ylabel: str | None = None,
        legend: Sequence[str] | None = None, xlim: Any = None, ylim: Any = None,
        xscale: str = "linear", yscale: str = "linear",
        fmts: Sequence[str] = ("-", "m--", "g-.", "r:"), nrows: int = 1, ncols: int = 1,
        figsize: tuple[float, float] = (3.5, 2.5),
    ):  # fmt: skip
        self.legend = list(legend or [])
        self.axes_options = {
            "xlabel": xlabel, "ylabel": ylabel, "xlim": xlim, "ylim": ylim, "xscale": xscale,
            "yscale": yscale,
        }  # fmt: skip
        self.fmts, self.nrows, self.ncols, self.figsize = fmts, nrows, ncols, figsize
        self.X: list[list[Any]] = []
        self.Y: list[list[Any]] = []

    def add(self, x: Any, y: Any) -> None:
        """Add a point to each curve, none where the value is None; waits for arrays."""
        y = list(y) if hasattr(y, "__len__") else [y]
        xs = list(x) if hasattr(x, "__len__") else [x] * len(y)
        while len(self.X) < len(y):
            self.X.append([])
            self.Y.append([])
        for i, (a, b) in enumerate(zip(xs, y)):
            if a is not None and b is not None:
                self.X[i].append(float(a))
                self.Y[i].append(float(b))
        from d2lmini.d2l.mxnet.plots import show_animation

        show_animation(self)


# -- from scratch ----------------------------------------------------------------------------------


def linreg(X: Any, w: Any, b: Any) -> Any:
    """Linear regression: X w + b."""
    return np.dot(X, w) + b


class SGD(HyperParameters):
    """Stochastic gradient descent on a list of arrays."""

    def __init__(self, params: Any, lr: float):
        self.save_hyperparameters()

    def step(self, _: int = 1) -> None:
        """One step, in place."""
        for param in self.params:  # type: ignore[attr-defined]
            param -= self.lr * param.grad  # type: ignore[attr-defined]


def grad_clipping(net: Any, theta: float) -> None:
    """Scale the gradients so that their common norm is at most `theta`."""
    params: list[Any]
    if isinstance(net, nn.Block):
        params = [p.data() for p in net.collect_params().values()]
    else:
        params = net.params
    norm = float(np.sqrt(sum((p.grad**2).sum() for p in params)))
    if norm > theta:
        for param in params:
            param.grad[:] *= theta / norm


# -- evaluating ------------------------------------------------------------------------------------


def accuracy(y_hat: Any, y: Any) -> float:
    """The number of right predictions: scores, one row for each label, or classes."""
    if len(y_hat.shape) > 1 and y_hat.shape[1] > 1:
        y_hat = y_hat.argmax(axis=1)
    return float((y_hat.astype(y.dtype) == y).sum())


def evaluate_accuracy(net: Callable[..., Any], data_iter: Iterable[Any]) -> float:
    """The share of right predictions."""
    metric = Accumulator(2)
    for X, y in data_iter:
        metric.add(accuracy(net(X), y), y.size)
    return metric[0] / metric[1]


def evaluate_accuracy_gpu(
    net: Any, data_iter: Iterable[Any], device: Context | None = None
) -> float:
    """The share of right predictions, computed on `device` (None: where the net is)."""
    device = device or next(iter(net.collect_params().values())).list_ctx()[0]
    metric = Accumulator(2)
    for X, y in data_iter:
        X, y = X.as_in_ctx(device), y.as_in_ctx(device)
        metric.add(accuracy(net(X), y), y.size)
    return metric[0] / metric[1]


def evaluate_loss(net: Callable[..., Any], data_iter: Iterable[Any], loss: Any) -> float:
    """The mean loss."""
    metric = Accumulator(2)
    for X, y in data_iter:
        l = loss(net(X), y)
        metric.add(l.sum(), l.size)
    return metric[0] / metric[1]


# -- loops -----------------------------------------------------------------------------------------


def train_epoch_ch3(
    net: Callable[..., Any], train_iter: Iterable[Any], loss: Any, updater: Any
) -> tuple[float, float]:
    """One pass: (mean loss, share of right predictions). updater: a Gluon Trainer, or a function
    of the batch size."""
    update = updater.step if isinstance(updater, gluon.Trainer) else updater
    metric = Accumulator(3)
    for X, y in train_iter:
        with autograd.record():
            y_hat = net(X)
            l = loss(y_hat, y)
        l.backward()
        update(X.shape[0])
        metric.add(l.sum(), accuracy(y_hat, y), y.size)
    return metric[0] / metric[2], metric[1] / metric[2]


def train_ch3(
    net: Callable[..., Any], train_iter: Any, test_iter: Any, loss: Any, num_epochs: int,
    updater: Any,
) -> None:  # fmt: skip
    """Train a classifier, and draw its progress."""
    animator = Animator(
        xlabel="epoch", xlim=[1, num_epochs], ylim=[0.3, 0.9],
        legend=["train loss", "train acc", "test acc"],
    )  # fmt: skip
    for epoch in range(num_epochs):
        train_metrics = train_epoch_ch3(net, train_iter, loss, updater)
        animator.add(epoch + 1, (*train_metrics, evaluate_accuracy(net, test_iter)))


def train_ch6(
    net: Any, train_iter: Any, test_iter: Any, num_epochs: int, lr: float,
    device: Context | None = None,
) -> None:  # fmt: skip
    """Train a classifier on one device (None: the first GPU, if there is one) with SGD; draws and
    prints its progress."""
    device = device or (npx.gpu() if npx.num_gpus() else npx.cpu())
    net.initialize(force_reinit=True, ctx=device, init=init.Xavier())
    loss = gluon.loss.SoftmaxCrossEntropyLoss()
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": lr})
    animator = Animator(
        xlabel="epoch", xlim=[1, num_epochs], legend=["train loss", "train acc", "test acc"]
    )
    timer, num_batches = Timer(), len(train_iter)
    for epoch in range(num_epochs):
        metric = Accumulator(3)
        for i, (X, y) in enumerate(train_iter):
            timer.start()
            X, y = X.as_in_ctx(device), y.as_in_ctx(device)
            with autograd.record():
                y_hat = net(X)
                l = loss(y_hat, y)
            l.backward()
            trainer.step(X.shape[0])
            metric.add(l.sum(), accuracy(y_hat, y), X.shape[0])
            timer.stop()
            train_l, train_acc = metric[0] / metric[2], metric[1] / metric[2]
            if (i + 1) % max(1, num_batches // 5) == 0 or i == num_batches - 1:
                animator.add(epoch + (i + 1) / num_batches, (train_l, train_acc, None))
        test_acc = evaluate_accuracy_gpu(net, test_iter)
        animator.add(epoch + 1, (None, None, test_acc))
    print(f"loss {train_l:.3f}, train acc {train_acc:.3f}, test acc {test_acc:.3f}")
    print(f"{metric[2] * num_epochs / timer.sum():.1f} examples/sec on {device!s}")


def train_ch11(
    trainer_fn: Callable[..., None], states: Any, hyperparams: dict[str, Any], data_iter: Any,
    feature_dim: int, num_epochs: int = 2,
) -> tuple[list[float], list[float]]:  # fmt: skip
    """Linear regression by an optimizer written from scratch: `trainer_fn(params, states,
    hyperparams)` makes a step. Returns the times and the losses."""
    w = np.random.normal(scale=0.01, size=(feature_dim, 1))
    b = np.zeros(1)
    w.attach_grad()
    b.attach_grad()
    return _optimize(
        lambda X: linreg(X, w, b), squared_loss, data_iter, num_epochs,
        lambda _: trainer_fn([w, b], states, hyperparams), mean=True,
    )  # fmt: skip


def train_concise_ch11(
    tr_name: str, hyperparams: dict[str, Any], data_iter: Any, num_epochs: int = 2
) -> None:
    """Linear regression by one of Gluon's optimizers."""
    net = nn.Sequential()
    net.add(nn.Dense(1))
    net.initialize(init.Normal(sigma=0.01))
    trainer = gluon.Trainer(net.collect_params(), tr_name, hyperparams)
    _optimize(net, gluon.loss.L2Loss(), data_iter, num_epochs, trainer.step, mean=False)


def _optimize(
    net: Callable[..., Any], loss: Any, data_iter: Any, num_epochs: int,
    step: Callable[[int], None], mean: bool,
) -> tuple[list[float], list[float]]:  # fmt: skip
    """Steps over the batches; draws the loss after each 200 examples."""
    animator = Animator(xlabel="epoch", ylabel="loss", xlim=[0, num_epochs], ylim=[0.22, 0.35])
    n, timer = 0, Timer()
    for _ in range(num_epochs):
        for X, y in data_iter:
            with autograd.record():
                l = loss(net(X), y)
                l = l.mean() if mean else l
            l.backward()
            step(X.shape[0])
            n += X.shape[0]
            if n % 200 == 0:
                timer.stop()
                epoch = n / X.shape[0] / len(data_iter)
                animator.add(epoch, (evaluate_loss(net, data_iter, loss),))
                timer.start()
    print(f"loss: {animator.Y[0][-1]:.3f}, {timer.sum() / num_epochs:.3f} sec/epoch")
    return timer.cumsum(), animator.Y[0]


def train_2d(
    trainer: Callable[..., Any], steps: int = 20, f_grad: Callable[..., Any] | None = None
) -> list[tuple[Any, Any]]:
    """Minimize a function of two variables from (-5, -2): `trainer(x1, x2, s1, s2[, f_grad])`
    makes a step. Returns the path."""
    x1, x2, s1, s2 = -5.0, -2.0, 0.0, 0.0
    results: list[tuple[Any, Any]] = [(x1, x2)]
    for _ in range(steps):
        extra = (f_grad,) if f_grad else ()
        x1, x2, s1, s2 = trainer(x1, x2, s1, s2, *extra)
        results.append((x1, x2))
    print(f"epoch {steps}, x1: {float(x1):f}, x2: {float(x2):f}")
    return results


def show_trace_2d(f: Callable[..., Any], results: Sequence[tuple[Any, Any]]) -> None:
    """Draw the path of `train_2d` over the contours of f."""
    from matplotlib import pyplot

    from d2lmini.d2l.mxnet.plots import set_figsize

    set_figsize()
    path = [(float(a), float(b)) for a, b in results]
    pyplot.plot(*zip(*path), "-o", color="#ff7f0e")
    x1, x2 = np.meshgrid(np.arange(-5.5, 1.0, 0.1), np.arange(-3.0, 1.0, 0.1), indexing="ij")
    pyplot.contour(x1.asnumpy(), x2.asnumpy(), f(x1, x2).asnumpy(), colors="#1f77b4")
    pyplot.xlabel("x1")
    pyplot.ylabel("x2")

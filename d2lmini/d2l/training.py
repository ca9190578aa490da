"""The book's training loops. Each prints a line per epoch: loss, accuracy, time.

    train_iter, test_iter = d2l.load_data_fashion_mnist(256)
    d2l.train_ch3(net, train_iter, test_iter, loss, num_epochs, batch_size, trainer=trainer)
    epoch 1, loss 0.7882, train acc 0.749, test acc 0.800

Losses and hits are summed on their devices and read once per epoch: the loops never wait for a
batch, and the engine's bound on pending bytes keeps memory low (the book's own loops read each
batch's loss, which has both effects).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any

from d2lmini import autograd, gluon
from d2lmini import initializer as init
from d2lmini import ndarray as nd
from d2lmini.context import Context, cpu
from d2lmini.d2l.figures import plot_losses
from d2lmini.d2l.models import linreg, squared_loss
from d2lmini.ndarray import NDArray


def sgd(params: Iterable[Any], lr: float, batch_size: int) -> None:
    """One step of minibatch stochastic gradient descent, in place."""
    for param in params:
        param[:] = param - lr * param.grad / batch_size


def evaluate_accuracy(
    data_iter: Iterable[Any], net: Callable[..., Any], ctx: Context | list[Context] | None = None
) -> float:
    """The fraction of examples whose largest score is the right class; batches are split over
    the contexts."""
    contexts = [ctx] if isinstance(ctx, Context) else ctx or [cpu()]
    hits, n = nd.zeros(1), 0
    for X, y in data_iter:
        for one, label in zip(_split(X, contexts), _split(y, contexts)):
            hits += _hits(net(one), label).as_in_context(cpu())
        n += y.size
    return float(hits.asscalar()) / n


def _hits(y_hat: Any, y: Any) -> Any:
    """How many rows of scores are largest at their label, an NDArray of one number."""
    return (y_hat.argmax(axis=1) == y.astype("float32")).sum()


def _split(data: Any, contexts: list[Context]) -> list[Any]:
    """A batch as one part for each context."""
    return gluon.utils.split_and_load(data, contexts, even_split=False)


def train_ch3(
    net: Callable[..., Any],
    train_iter: Iterable[Any],
    test_iter: Iterable[Any],
    loss: Callable[..., Any],
    num_epochs: int,
    batch_size: int,
    params: list[Any] | None = None,
    lr: float | None = None,
    trainer: Any = None,
) -> None:
    """Train a classifier on the CPU, with `sgd` on `params` at rate `lr`, or with a Trainer."""
    for epoch in range(1, num_epochs + 1):
        loss_sum, hits, n = nd.zeros(1), nd.zeros(1), 0
        for X, y in train_iter:
            with autograd.record():
                y_hat = net(X)
                l = loss(y_hat, y).sum()
            l.backward()
            if trainer is None:
                assert params is not None and lr is not None, "train_ch3: give params and lr"
                sgd(params, lr, batch_size)
            else:
                trainer.step(batch_size)
            loss_sum += l
            hits += _hits(y_hat, y)
            n += y.size
        test_acc = evaluate_accuracy(test_iter, net)
        print(
            f"epoch {epoch}, loss {loss_sum.asscalar() / n:.4f}, "
            f"train acc {hits.asscalar() / n:.3f}, test acc {test_acc:.3f}"
        )


def train(
    train_iter: Iterable[Any],
    test_iter: Iterable[Any],
    net: Callable[..., Any],
    loss: Callable[..., Any],
    trainer: Any,
    ctx: Context | list[Context],
    num_epochs: int,
) -> None:
    """Train a classifier on one or several contexts; the loss is the mean over examples."""
    print("training on", ctx)
    contexts = [ctx] if isinstance(ctx, Context) else ctx
    for epoch in range(1, num_epochs + 1):
        start = time.time()
        loss_sum, hits, n = nd.zeros(1), nd.zeros(1), 0
        for X, y in train_iter:
            parts = list(zip(_split(X, contexts), _split(y, contexts)))
            with autograd.record():
                scores = [net(one) for one, _ in parts]
                losses = [loss(y_hat, label).sum() for y_hat, (_, label) in zip(scores, parts)]
            autograd.backward(losses)
            trainer.step(y.shape[0])
            for l, y_hat, (_, label) in zip(losses, scores, parts):
                loss_sum += l.as_in_context(cpu())
                hits += _hits(y_hat, label).as_in_context(cpu())
            n += y.size
        test_acc = evaluate_accuracy(test_iter, net, contexts)
        print(
            f"epoch {epoch}, loss {loss_sum.asscalar() / n:.4f}, "
            f"train acc {hits.asscalar() / n:.3f}, test acc {test_acc:.3f}, "
            f"time {time.time() - start:.1f} sec"
        )


def train_ch5(
    net: Callable[..., Any],
    train_iter: Iterable[Any],
    test_iter: Iterable[Any],
    batch_size: int,
    trainer: Any,
    ctx: Context,
    num_epochs: int,
) -> None:
    """Train a classifier with softmax cross-entropy on one context."""
    loss = gluon.loss.SoftmaxCrossEntropyLoss()
    train(train_iter, test_iter, net, loss, trainer, ctx, num_epochs)


def train_2d(trainer: Callable[..., tuple[Any, Any, Any, Any]]) -> list[tuple[Any, Any]]:
    """20 steps of an optimizer on two numbers, from (-5, -2); returns all visited points.

    trainer(x1, x2, s1, s2) returns the next values of all four; the states s1 and s2 are 0 at
    first.
    """
    x1, x2, s1, s2 = -5, -2, 0, 0
    results = [(x1, x2)]
    for _ in range(20):
        x1, x2, s1, s2 = trainer(x1, x2, s1, s2)
        results.append((x1, x2))
    print(f"epoch {len(results) - 1}, x1 {float(x1):f}, x2 {float(x2):f}")
    return results


def train_ch7(
    trainer_fn: Callable[..., Any],
    states: Any,
    hyperparams: dict[str, Any],
    features: NDArray,
    labels: NDArray,
    batch_size: int = 10,
    num_epochs: int = 2,
) -> None:
    """Linear regression by an optimizer written by hand, `trainer_fn(params, states, hyperparams)`;
    draws the loss over the epochs. Each gradient is that of the batch's mean loss."""
    w = nd.random.normal(scale=0.01, shape=(features.shape[1], 1))
    b = nd.zeros(1)
    for param in (w, b):
        param.attach_grad()
    _train_linear(
        lambda X: linreg(X, w, b),
        squared_loss,
        lambda n: trainer_fn([w, b], states, hyperparams),
        lambda l: l.mean(),
        gluon.data.DataLoader(gluon.data.ArrayDataset(features, labels), batch_size, shuffle=True),
        (features, labels, batch_size, num_epochs),
    )


def train_gluon_ch7(
    trainer_name: str,
    trainer_hyperparams: dict[str, Any],
    features: NDArray,
    labels: NDArray,
    batch_size: int = 10,
    num_epochs: int = 2,
) -> None:
    """Linear regression by one of Gluon's optimizers, given by name; draws the loss as above."""
    net = gluon.nn.Sequential()
    net.add(gluon.nn.Dense(1))
    net.initialize(init.Normal(sigma=0.01))
    trainer = gluon.Trainer(net.collect_params(), trainer_name, trainer_hyperparams)
    _train_linear(
        net,
        gluon.loss.L2Loss(),
        trainer.step,
        lambda l: l,
        gluon.data.DataLoader(gluon.data.ArrayDataset(features, labels), batch_size, shuffle=True),
        (features, labels, batch_size, num_epochs),
    )


def _train_linear(
    net: Callable[..., Any],
    loss: Callable[..., Any],
    step: Callable[[int], Any],
    reduce: Callable[[Any], Any],
    batches: Iterable[Any],
    task: tuple[NDArray, NDArray, int, int],
) -> None:
    """The loop of both functions. The loss over all examples is taken every 100 examples."""
    features, labels, batch_size, num_epochs = task

    def whole_loss() -> Any:
        return loss(net(features), labels).mean()

    losses = [whole_loss()]
    start = time.time()
    for _ in range(num_epochs):
        for i, (X, y) in enumerate(batches, start=1):
            with autograd.record():
                l = reduce(loss(net(X), y))
            l.backward()
            step(X.shape[0])
            if i * batch_size % 100 == 0:
                losses.append(whole_loss())
    values = [float(l.asscalar()) for l in losses]
    seconds = (time.time() - start) / num_epochs
    print(f"loss: {values[-1]:f}, {seconds:f} sec per epoch")
    plot_losses(values, num_epochs)

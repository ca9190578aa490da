"""The loops of both editions: a step of a classifier, an epoch, a linear regression.

    loss, accuracy, n = train_epoch(net, train_iter, loss, trainer.step, [cpu(0), cpu(1)])

>>> descend_2d(lambda x1, x2, s1, s2: (x1 / 2, x2 / 2, 0, 0), steps=1)
[(-5, -2), (-2.5, -1.0)]

Losses and hits are summed on the CPU and read once per epoch: the loops never wait for a batch, so
the next batch begins while the last gradients are still being computed. The engine's bound on
pending bytes keeps memory low. (The books' own loops read each batch's loss, which waits.)

The arrays may be those of `nd` or of `np`: nothing here makes one from numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from d2lmini import autograd, gluon, init
from d2lmini import ndarray as nd
from d2lmini.compat.books.models import linreg, squared_loss
from d2lmini.context import Context, cpu
from d2lmini.d2l.accuracy import Parts, Split, count_hits, evaluate_accuracy, split_batch

Net = Callable[..., Any]
Batches = Iterable[Any]
#: A net, its loss, and what makes a step after `backward`.
Regression = tuple[Net, Net, Callable[[], Any]]


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


def regress_by_hand(w: Any, b: Any, trainer_fn: Net, states: Any, hyperparams: Any) -> Regression:
    """Linear regression on arrays; `trainer_fn(params, states, hyperparams)` makes a step."""
    for param in (w, b):
        param.attach_grad()
    step = lambda: trainer_fn([w, b], states, hyperparams)  # noqa: E731
    return lambda X: linreg(X, w, b), squared_loss, step


def regress_by_name(trainer_name: str, hyperparams: dict[str, Any]) -> Regression:
    """Linear regression by one of Gluon's optimizers."""
    net = gluon.nn.Sequential()
    net.add(gluon.nn.Dense(1))
    net.initialize(init.Normal(sigma=0.01))
    trainer = gluon.Trainer(net.collect_params(), trainer_name, hyperparams)
    return net, gluon.loss.L2Loss(), lambda: trainer.step(1)


def optimize(
    regression: Regression, batches: Batches, num_epochs: int
) -> Iterator[tuple[int, int, int]]:
    """Make a step on the mean loss of each batch, then yield the epoch, the number of the batch in
    it (from 1), and the number of examples so far, in all epochs."""
    net, loss, step = regression
    n = 0
    for epoch in range(num_epochs):
        for i, (X, y) in enumerate(batches, start=1):
            with autograd.record():
                l = loss(net(X), y).mean()
            l.backward()
            step()
            n += X.shape[0]
            yield epoch, i, n


def descend_2d(trainer: Net, steps: int = 20, *more: Any) -> list[tuple[Any, Any]]:
    """Steps of an optimizer on two numbers, from (-5, -2); returns all visited points.

    trainer(x1, x2, s1, s2, *more) returns the next values of all four; the states s1 and s2 are 0
    at first.
    """
    x1, x2, s1, s2 = -5, -2, 0, 0
    results = [(x1, x2)]
    for _ in range(steps):
        x1, x2, s1, s2 = trainer(x1, x2, s1, s2, *more)
        results.append((x1, x2))
    return results


def load_array(data_arrays: Iterable[Any], batch_size: int, is_train: bool = True) -> Any:
    """Batches of arrays, shuffled for training."""
    dataset = gluon.data.ArrayDataset(*data_arrays)
    return gluon.data.DataLoader(dataset, batch_size, shuffle=is_train)

"""The loops of both editions: a step of a classifier, an epoch, a linear regression.

    loss, accuracy, n = train_epoch(net, train_iter, loss, trainer.step, [cpu(0), cpu(1)])

Losses and hits are summed on the CPU and read once per epoch: the loops never wait for a batch, so
the next batch begins while the last gradients are still being computed. The engine's bound on
pending bytes keeps memory low. (The books' own loops read each batch's loss, which waits.)

The arrays may be those of `nd` or of `np`: nothing here makes one from numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from d2lmini import autograd, gluon
from d2lmini import ndarray as nd
from d2lmini.context import Context, cpu
from d2lmini.d2l.helpers import Parts, Split, count_hits, evaluate_accuracy, split_batch

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

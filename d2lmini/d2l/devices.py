"""Training on several devices, by the names of the book's English edition.

>>> from d2lmini import cpu, d2l, nd
>>> Xs, ys = d2l.split_batch(nd.ones((5, 2)), nd.arange(5), [cpu(0), cpu(1)])
>>> [X.shape for X in Xs], [y.context for y in ys]
([(3, 2), (2, 2)], [cpu(0), cpu(1)])

A step: every device computes the losses of its part, backward runs through all parts, the Trainer
sums the gradients. No step waits, so the parts are computed at the same time, and the next batch
begins while the last sums are still being computed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any

from d2lmini import autograd, gluon
from d2lmini import ndarray as nd
from d2lmini.context import Context, cpu
from d2lmini.d2l.context import try_all_gpus
from d2lmini.ndarray import NDArray

Parts = tuple[list[NDArray], list[NDArray]]
Split = Callable[[Any, Any, list[Context]], Parts]


def split_batch(X: Any, y: Any, devices: list[Context]) -> Parts:
    """Split features and labels into a part for each device, the first parts longer by one if need
    be. ValueError unless there are as many labels as features."""
    if X.shape[0] != y.shape[0]:
        raise ValueError(f"split_batch: {X.shape[0]} features and {y.shape[0]} labels")
    load = gluon.utils.split_and_load
    return load(X, devices, even_split=False), load(y, devices, even_split=False)


def evaluate_accuracy_gpus(
    net: gluon.Block, data_iter: Iterable[Any], split_f: Split = split_batch
) -> float:
    """The fraction of examples whose largest score is the right class, computed on all devices
    that the net was initialized on; waits once, at the end."""
    devices = next(iter(net.collect_params().values())).list_ctx()
    hits, n = nd.zeros(1), 0
    for X, y in data_iter:
        Xs, ys = split_f(X, y, devices)
        hits += _hits([net(part) for part in Xs], ys)
        n += sum(part.size for part in ys)
    return float(hits.asscalar()) / n


def _hits(scores: list[Any], labels: list[Any]) -> Any:
    """The number of scores, over all devices, that are largest at their label; a number on the
    CPU."""
    right = [
        (s.argmax(axis=1) == y.astype("float32")).sum().as_in_context(cpu())
        for s, y in zip(scores, labels)
    ]
    return nd.add_n(*right)


def train_batch_ch13(
    net: gluon.Block,
    features: Any,
    labels: Any,
    loss: Callable[..., Any],
    trainer: gluon.Trainer,
    devices: list[Context],
    split_f: Split = split_batch,
) -> tuple[Any, Any]:
    """One step on a batch, split over the devices: (the sum of the losses, how many were right),
    NDArrays of one number on the CPU; does not wait."""
    Xs, ys = split_f(features, labels, devices)
    with autograd.record():
        scores = [net(part) for part in Xs]
        losses = [loss(score, part).sum() for score, part in zip(scores, ys)]
    autograd.backward(losses)
    trainer.step(labels.shape[0])
    total = nd.add_n(*[l.as_in_context(cpu()) for l in losses])
    return total, _hits(scores, ys)


def train_ch13(
    net: gluon.Block,
    train_iter: Iterable[Any],
    test_iter: Iterable[Any],
    loss: Callable[..., Any],
    trainer: gluon.Trainer,
    num_epochs: int,
    devices: list[Context] | None = None,
    split_f: Split = split_batch,
) -> None:
    """Train a classifier on all `devices` (None: all GPUs); prints a line per epoch."""
    devices = devices or try_all_gpus()
    for epoch in range(1, num_epochs + 1):
        start = time.time()
        loss_sum, hits, n = nd.zeros(1), nd.zeros(1), 0
        for features, labels in train_iter:
            l, right = train_batch_ch13(net, features, labels, loss, trainer, devices, split_f)
            loss_sum += l
            hits += right
            n += labels.shape[0]
        test_acc = evaluate_accuracy_gpus(net, test_iter, split_f)
        print(
            f"epoch {epoch}, loss {loss_sum.asscalar() / n:.3f}, train acc "
            f"{hits.asscalar() / n:.3f}, test acc {test_acc:.3f}, "
            f"{n / (time.time() - start):.1f} examples/sec on {devices}"
        )

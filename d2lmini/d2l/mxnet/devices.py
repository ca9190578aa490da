"""Devices, and training on several of them, by the second edition's names.

>>> from d2lmini import np, npx
>>> from d2lmini.d2l.mxnet.devices import split_batch
>>> Xs, ys = split_batch(np.ones((4, 2)), np.arange(4), [npx.cpu(0), npx.cpu(1)])
>>> [X.shape for X in Xs], [y.ctx for y in ys]
([(2, 2), (2, 2)], [cpu(0), cpu(1)])
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from d2lmini import autograd, npx
from d2lmini.context import Context
from d2lmini.d2l.context import try_all_gpus
from d2lmini.d2l.devices import split_batch
from d2lmini.d2l.mxnet.training import Accumulator, Animator, Timer, accuracy

cpu, gpu = npx.cpu, npx.gpu


def num_gpus() -> int:
    """The number of GPUs."""
    return npx.num_gpus()


def try_gpu(i: int = 0) -> Context:
    """gpu(i) if there is one, else cpu()."""
    return gpu(i) if num_gpus() >= i + 1 else cpu()


def evaluate_accuracy_gpus(
    net: Any, data_iter: Iterable[Any], split_f: Callable[..., Any] = split_batch
) -> float:
    """The share of examples whose largest score is the right class, on all devices of the net."""
    devices = next(iter(net.collect_params().values())).list_ctx()
    metric = Accumulator(2)
    for features, labels in data_iter:
        X_shards, y_shards = split_f(features, labels, devices)
        scores = [net(shard) for shard in X_shards]
        metric.add(sum(float(accuracy(s, y)) for s, y in zip(scores, y_shards)), labels.size)
    return metric[0] / metric[1]


def train_batch_ch13(
    net: Any, features: Any, labels: Any, loss: Any, trainer: Any, devices: list[Context],
    split_f: Callable[..., Any] = split_batch,
) -> tuple[Any, Any]:  # fmt: skip
    """One step: (the sum of the losses, the number of right predictions)."""
    X_shards, y_shards = split_f(features, labels, devices)
    with autograd.record():
        scores = [net(shard) for shard in X_shards]
        losses = [loss(s, y) for s, y in zip(scores, y_shards)]
    autograd.backward(losses)
    trainer.step(labels.shape[0], ignore_stale_grad=True)
    train_loss_sum = sum(float(l.sum()) for l in losses)
    train_acc_sum = sum(accuracy(s, y) for s, y in zip(scores, y_shards))
    return train_loss_sum, train_acc_sum


def train_ch13(
    net: Any, train_iter: Any, test_iter: Any, loss: Any, trainer: Any, num_epochs: int,
    devices: list[Context] | None = None, split_f: Callable[..., Any] = split_batch,
) -> None:  # fmt: skip
    """Train a classifier on all `devices` (None: all GPUs); draws and prints its progress."""
    devices = devices or try_all_gpus()
    timer, num_batches = Timer(), len(train_iter)
    animator = Animator(
        xlabel="epoch", xlim=[1, num_epochs], ylim=[0, 1],
        legend=["train loss", "train acc", "test acc"],
    )  # fmt: skip
    metric = Accumulator(4)
    for epoch in range(num_epochs):
        metric.reset()
        for i, (features, labels) in enumerate(train_iter):
            timer.start()
            l, acc = train_batch_ch13(net, features, labels, loss, trainer, devices, split_f)
            metric.add(l, acc, labels.shape[0], labels.size)
            timer.stop()
            if (i + 1) % max(1, num_batches // 5) == 0 or i == num_batches - 1:
                animator.add(
                    epoch + (i + 1) / num_batches,
                    (metric[0] / metric[2], metric[1] / metric[3], None),
                )
        test_acc = evaluate_accuracy_gpus(net, test_iter, split_f)
        animator.add(epoch + 1, (None, None, test_acc))
    print(
        f"loss {metric[0] / metric[2]:.3f}, train acc {metric[1] / metric[3]:.3f}, "
        f"test acc {test_acc:.3f}"
    )
    print(f"{metric[2] * num_epochs / timer.sum():.1f} examples/sec on {devices!s}")

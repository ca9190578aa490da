"""The workloads of `d2lmini bench`: the same work in the usual way for NumPy, and for d2lmini.

>>> from d2lmini.cli.workloads import WORKLOADS
>>> numpy, ours = WORKLOADS[0].make()
>>> bool((numpy() == ours().asnumpy()).all())
True
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import numpy as np

import d2lmini
from d2lmini import autograd, engine, gluon, nd

Function = Callable[[], Any]


class Workload(NamedTuple):
    """`make()` returns the two functions: NumPy's, d2lmini's. `setting`: the scope in which they
    run."""

    name: str
    what: str
    make: Callable[[], tuple[Function, Function]]
    setting: Callable[[], AbstractContextManager[Any]] = nullcontext


def _numbers(*shape: int) -> np.ndarray:
    return np.random.default_rng(len(shape)).normal(size=shape).astype("float32")


def _sum(n: int) -> tuple[Function, Function]:
    a = _numbers(n)
    x = nd.array(a)
    return lambda: a + a, lambda: x + x


def _queue_ops() -> AbstractContextManager[Any]:
    return engine.use("threaded", inline_below=0)


def _product() -> tuple[Function, Function]:
    a = _numbers(1000, 1000)
    x = nd.array(a)
    return lambda: a @ a, lambda: nd.dot(x, x)


def _chain(scope: Callable[[], AbstractContextManager[Any]]) -> tuple[Function, Function]:
    a = _numbers(4_000_000)
    x = nd.array(a)

    def numpy() -> np.ndarray:
        return np.maximum((a * 0.5 + 1) * a - 2, 0) * 3 + a

    def ours() -> nd.NDArray:
        with scope():
            return nd.relu((x * 0.5 + 1) * x - 2) * 3 + x

    return numpy, ours


def _step(hybrid: bool) -> tuple[Function, Function]:
    """One step of SGD on a net of two layers, and the loss after the step."""
    X, W1, W2 = _numbers(256, 784), _numbers(128, 784) * 0.05, _numbers(10, 128) * 0.1
    y = np.arange(256) % 10
    w1, w2, onehot, lr = W1.copy(), W2.copy(), np.eye(10, dtype="float32")[y], 0.05

    def numpy() -> np.ndarray:
        nonlocal w1, w2
        h = np.maximum(X @ w1.T, 0)
        o = h @ w2.T
        o -= o.max(1, keepdims=True)
        p = np.exp(o)
        p /= p.sum(1, keepdims=True)
        loss = -np.log(p[np.arange(256), y])
        g = (p - onehot) / 256
        g1 = (g @ w2) * (h > 0)
        w2 = w2 - lr * (g.T @ h)
        w1 = w1 - lr * (g1.T @ X)
        return loss

    net = gluon.nn.HybridSequential()
    net.add(
        gluon.nn.Dense(128, activation="relu", use_bias=False, in_units=784),
        gluon.nn.Dense(10, use_bias=False, in_units=128),
    )
    net.initialize()
    net[0].weight.set_data(nd.array(W1))
    net[1].weight.set_data(nd.array(W2))
    if hybrid:
        net.hybridize(static_alloc=True)
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": lr})
    loss, x, labels = gluon.loss.SoftmaxCrossEntropyLoss(), nd.array(X), nd.array(y)

    def ours() -> nd.NDArray:
        with autograd.record():
            l = loss(net(x), labels)
        l.backward()
        trainer.step(256)
        return l

    return numpy, ours


def _pipeline() -> tuple[Function, Function]:
    """Batches are made while others are computed on; in NumPy, line by line."""
    a = _numbers(700, 700)
    x = nd.array(a)

    def prepare() -> np.ndarray:
        return np.sqrt(np.abs(a[::-1]))

    def numpy() -> list[float]:
        return [float((prepare() @ a).sum()) for _ in range(4)]

    def ours() -> nd.NDArray:
        return nd.concat(*[nd.dot(nd.array(prepare()), x).sum() for _ in range(4)], dim=0)

    return numpy, ours


WORKLOADS = [
    Workload("a small sum", "4 numbers, computed where it is called", lambda: _sum(4)),
    Workload("a small sum, queued", "4 numbers, handed to a worker", lambda: _sum(4), _queue_ops),
    Workload("a large sum", "4 million numbers", lambda: _sum(4_000_000)),
    Workload("a product", "matrices of 1000 x 1000", _product),
    Workload("a chain", "7 operations on 4 million numbers", lambda: _chain(nullcontext)),
    Workload("a chain, lazy", "the same, compiled as one", lambda: _chain(d2lmini.lazy)),
    Workload("a training step", "two layers, batch of 256", lambda: _step(False)),
    Workload("a training step, hybrid", "the same net, hybridized", lambda: _step(True)),
    Workload("a pipeline", "4 batches prepared and computed", _pipeline),
]

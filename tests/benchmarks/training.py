"""Training steps as workloads: the numbers every library starts from, and the loss it must find.

A turn sets the weights back, trains for so many steps and returns two losses, the first and the
last. The first must be the one NumPy finds here with the same numbers; the last must be lower.

>>> x, y, *weights = mlp(4)
>>> [w.shape for w in weights]
[(2048, 512), (512, 2048), (1, 512)]
>>> losses = np.array([mlp_loss(x, y, *weights), 0.0], np.float32)
>>> learns(mlp, mlp_loss)(losses, 4) is None
True

Like `workloads.py` this runs in every library's own environment and imports NumPy alone.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from math import prod

import numpy as np

Arrays = list[np.ndarray]


def pattern(*shape: int, scale: float = 1.0) -> np.ndarray:
    """Uneven numbers in [-scale, scale), the same everywhere."""
    i = np.arange(prod(shape), dtype=np.int64)
    return ((i * 7919 % 1000 / 500 - 1) * scale).astype(np.float32).reshape(shape)


def weight(*shape: int) -> np.ndarray:
    """A weight whose outputs are about as large as its inputs."""
    return pattern(*shape, scale=(3 / prod(shape[1:])) ** 0.5)


def learns(make: Callable[[int], Arrays], loss: Callable[..., float]) -> Callable:
    """A check of [first, last] loss, for `Workload.check`."""
    first_loss = lru_cache(lambda n: loss(*make(n)))  # each row of a library asks

    def check(losses: np.ndarray, n: int) -> str | None:
        if losses.shape != (2,):
            return f"shape is {losses.shape}, expected (2,)"
        expected = first_loss(n)
        first, last = losses.tolist()
        if not abs(first - expected) <= 1e-3 * abs(expected):
            return f"the first loss is {first:g}, expected {expected:g}"
        return None if last < first else f"the loss does not fall: {first:g}, then {last:g}"

    # An answer that is right, for tests of the check.
    check.right = lambda n: np.float32([first_loss(n), 0])  # type: ignore[attr-defined]
    return check


# -- the net of the chapter on asynchronous computation: 512 -> 2048 -> 512 -> 1 -------------------


def mlp(n: int) -> Arrays:
    """X (n, 512), y (n,), three weights; biases are 0."""
    return [
        pattern(n, 512), np.ones(n, np.float32),
        weight(2048, 512), weight(512, 2048), weight(1, 512),
    ]  # fmt: skip


def mlp_loss(x: np.ndarray, y: np.ndarray, *weights: np.ndarray) -> float:
    for w in weights[:-1]:
        x = np.maximum(x @ w.T, 0)
    return float((((x @ weights[-1].T).ravel() - y) ** 2 / 2).mean())


# -- LeNet with sigmoids on 28 x 28, 10 classes ----------------------------------------------------


def lenet(n: int) -> Arrays:
    """X (n, 1, 28, 28), labels (n,), two kernels and three weights; biases are 0."""
    return [
        pattern(n, 1, 28, 28), (np.arange(n) % 10).astype(np.float32),
        weight(6, 1, 5, 5), weight(16, 6, 5, 5),
        weight(120, 256), weight(84, 120), weight(10, 84),
    ]  # fmt: skip


def lenet_loss(x: np.ndarray, y: np.ndarray, *weights: np.ndarray) -> float:
    for w in weights[:2]:
        x = _sigmoid(convolve(x, w))
        n, c, h, _ = x.shape
        x = x.reshape(n, c, h // 2, 2, h // 2, 2).max(axis=(3, 5))
    x = x.reshape(len(x), -1)
    for w in weights[2:4]:
        x = _sigmoid(x @ w.T)
    return cross_entropy(x @ weights[4].T, y)


def convolve(x: np.ndarray, w: np.ndarray, stride: int = 1, pad: int = 0) -> np.ndarray:
    """(N, C, H, W) with kernels (F, C, k, k) -> (N, F, OH, OW), as one product of matrices.

    >>> convolve(np.ones((1, 2, 4, 4)), np.ones((3, 2, 3, 3)), stride=2, pad=1)[0, 0].tolist()
    [[8.0, 12.0], [12.0, 18.0]]
    """
    f, c, k, _ = w.shape
    x = np.pad(x, ((0, 0), (0, 0), (pad, pad), (pad, pad)))
    windows = np.lib.stride_tricks.sliding_window_view(x, (k, k), axis=(2, 3))
    windows = windows[:, :, ::stride, ::stride].transpose(0, 2, 3, 1, 4, 5)
    n, oh, ow = windows.shape[:3]
    y = windows.reshape(n * oh * ow, c * k * k) @ w.reshape(f, -1).T
    return y.reshape(n, oh, ow, f).transpose(0, 3, 1, 2)


def cross_entropy(scores: np.ndarray, y: np.ndarray) -> float:
    """Of softmax(scores) and the labels y, the mean over the batch, in float64."""
    x = scores.astype(np.float64)
    x -= x.max(axis=1, keepdims=True)
    log_p = x - np.log(np.exp(x).sum(axis=1, keepdims=True))
    return float(-log_p[np.arange(len(y)), y.astype(int)].mean())


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))

"""Training steps of the MLP and of LeNet in bare NumPy, on one thread or on two.

The steps are what virtual devices are compared with: half a batch for each thread, the two
gradients added, one update.

>>> import training
>>> x, y, *weights = training.lenet(6)
>>> step = Steps(lenet_gradients, 0.05, x, y, weights)
>>> first = step()
>>> bool(abs(first - training.lenet_loss(x, y, *weights)) < 1e-4), bool(step() < first)
(True, True)

Like `workloads.py` this runs in every library's own environment and imports NumPy alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from training import Arrays

#: (x, y, parameters) -> the sum of the losses, and the gradient of each parameter.
Gradients = Callable[[np.ndarray, np.ndarray, Arrays], tuple[float, Arrays]]


class Steps:
    """SGD on one batch: each call is a step and returns the mean loss before it.

    A part of the batch for each of `threads` threads; the parameters are each weight and, after it,
    its bias.
    """

    def __init__(
        self, gradients: Gradients, lr: float, x: np.ndarray, y: np.ndarray,
        weights: Sequence[np.ndarray], threads: int = 1,
    ):  # fmt: skip
        self.gradients, self.lr, self.n = gradients, lr, len(x)
        self.parts = list(zip(np.array_split(x, threads), np.array_split(y, threads)))
        self.weights = weights
        self.pool = ThreadPoolExecutor(threads) if threads > 1 else None
        self.reset()

    def reset(self) -> None:
        self.parameters = []
        for w in self.weights:
            self.parameters += [w.copy(), np.zeros(len(w), np.float32)]

    def part(self, xy: tuple[np.ndarray, np.ndarray]) -> tuple[float, Arrays]:
        return self.gradients(*xy, self.parameters)

    def __call__(self) -> float:
        results = list(self.pool.map(self.part, self.parts)) if self.pool else []
        losses, gradients = zip(*(results or map(self.part, self.parts)))
        for p, *parts in zip(self.parameters, *gradients):
            g = parts[0]
            for other in parts[1:]:
                g += other
            p -= g * (self.lr / self.n)
        return sum(losses) / self.n


def mlp_gradients(x: np.ndarray, y: np.ndarray, parameters: Arrays) -> tuple[float, Arrays]:
    loss, gradients, _ = dense(x, parameters, relu, relu_slope, lambda z: squares(z, y))
    return loss, gradients


def lenet_gradients(x: np.ndarray, y: np.ndarray, parameters: Arrays) -> tuple[float, Arrays]:
    """Inside, channels come last."""
    x = x.transpose(0, 2, 3, 1)
    first, x = convolution(x, *parameters[:2])
    second, x = convolution(x, *parameters[2:4])
    flat = x.transpose(0, 3, 1, 2).reshape(len(x), -1)
    loss, gradients, g = dense(
        flat, parameters[4:], sigmoid, sigmoid_slope, lambda z: entropy(z, y), input_too=True
    )
    g = g.reshape(len(x), x.shape[3], *x.shape[1:3]).transpose(0, 2, 3, 1)
    of_second, g = second(g)
    of_first, _ = first(g, input_too=False)
    return loss, [*of_first, *of_second, *gradients]


def dense(x, parameters, activation, slope, loss, input_too=False):
    """Dense layers with an activation between; (loss, gradients, that of x)."""
    layers = list(zip(parameters[::2], parameters[1::2]))
    inputs = [x]
    for w, b in layers[:-1]:
        inputs.append(activation(inputs[-1] @ w.T + b))
    w, b = layers[-1]
    value, g = loss(inputs[-1] @ w.T + b)
    gradients: Arrays = []
    for i in reversed(range(len(layers))):
        gradients = [g.T @ inputs[i], g.sum(axis=0), *gradients]
        if i:
            g = (g @ layers[i][0]) * slope(inputs[i])
    return value, gradients, g @ layers[0][0] if input_too else None


def convolution(x, w, b):
    """Sigmoids of a convolution of (N, H, W, C), pooled: (backward, the output)."""
    f, c, k, _ = w.shape
    windows = np.lib.stride_tricks.sliding_window_view(x, (k, k), axis=(1, 2))
    n, oh, ow = windows.shape[:3]
    columns = windows.reshape(n * oh * ow, c * k * k)
    a = sigmoid(columns @ w.reshape(f, -1).T + b)
    pieces = a.reshape(n, oh // 2, 2, ow // 2, 2, f)
    largest = pieces.max(axis=(2, 4), keepdims=True)

    def backward(g, input_too=True):
        g = (pieces == largest) * g.reshape(largest.shape)
        g = g.reshape(a.shape) * sigmoid_slope(a)
        gradients = [(g.T @ columns).reshape(w.shape), g.sum(axis=0)]
        if not input_too:
            return gradients, None
        each = (g @ w.reshape(f, -1)).reshape(n, oh, ow, c, k, k)
        of_x = np.zeros(x.shape, x.dtype)
        for i in range(k):
            for j in range(k):
                of_x[:, i : i + oh, j : j + ow] += each[..., i, j]
        return gradients, of_x

    return backward, largest.reshape(n, oh // 2, ow // 2, f)


def relu(z):
    return np.maximum(z, 0)


def relu_slope(a):
    return a > 0


def sigmoid(z):
    return 1 / (1 + np.exp(-z))


def sigmoid_slope(a):
    return a * (1 - a)


def squares(z, y):
    """Half the squared distances: their sum, and its gradient."""
    g = z - y.reshape(z.shape)
    return float((g * g).sum() / 2), g


def entropy(z, y):
    """Cross-entropy of softmax(z): the sum over the batch, and its gradient."""
    rows = np.arange(len(y)), y.astype(int)
    p = np.exp(z - z.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    loss = -float(np.log(p[rows]).sum())
    p[rows] -= 1
    return loss, p

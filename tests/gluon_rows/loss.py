"""Rows of `gluon.loss`, and what NumPy says to each: (row, formula of its inputs)."""

from __future__ import annotations

from collections.abc import Callable
from math import pi
from typing import Any

import numpy as np

from gluon_rows import peer
from gluon_rows.runner import Row


def numbers(shape: tuple, low: float, high: float, seed: int = 7) -> np.ndarray:
    return peer.draw(shape, seed, low, high).astype("float32")


def classes(shape: tuple, n: int, dtype: str = "int32") -> np.ndarray:
    return np.floor(peer.draw(shape, 3, 0, n)).astype(dtype)


def signs(shape: tuple) -> np.ndarray:
    return np.where(peer.draw(shape, 5) < 0, -1, 1).astype("float32")


def shares(shape: tuple) -> np.ndarray:
    p = peer.draw(shape, 11, 0.1, 1)
    return (p / p.sum(-1, keepdims=True)).astype("float32")


def mean(x: np.ndarray, batch_axis: int = 0) -> np.ndarray:
    return x.mean(tuple(a for a in range(x.ndim) if a != batch_axis))


def log_softmax(x: np.ndarray, axis: int = -1) -> np.ndarray:
    x = x - x.max(axis, keepdims=True)
    return x - np.log(np.exp(x).sum(axis, keepdims=True))


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def picked(log_p: np.ndarray, label: np.ndarray, axis: int = -1) -> np.ndarray:
    return -np.take_along_axis(log_p, np.expand_dims(label.astype(int), axis), axis)


def huber(pred: np.ndarray, label: np.ndarray, rho: float) -> np.ndarray:
    d = abs(label - pred)
    return np.where(d > rho, d - rho / 2, d * d / (2 * rho))


def cosine(a: np.ndarray, b: np.ndarray, label: np.ndarray, margin: float = 0) -> np.ndarray:
    cos = (a * b).sum(-1) / np.sqrt((a * a).sum(-1) * (b * b).sum(-1))
    return np.where(label.ravel() == 1, 1 - cos, np.maximum(cos - margin, 0))[:, None]


def sdml(a: np.ndarray, b: np.ndarray, smoothing: float) -> np.ndarray:
    N = len(a)
    log_p = log_softmax(-((a[:, None] - b[None]) ** 2).sum(-1))
    q = np.where(np.eye(N) == 1, 1 - smoothing, smoothing / (N - 1))
    return (q * (np.log(q) - log_p)).sum(1)


def stirling(t: np.ndarray) -> np.ndarray:
    return np.where(t > 1, t * np.log(t) - t + 0.5 * np.log(2 * pi * t), 0)


x = (4, 3)  # stands for drawn numbers
per_example = np.array([[1], [0.5], [2], [0]], "float32")
per_element = numbers((4, 3), 0, 2, seed=8)
deep = (2, 3, 2)

TABLE: list[tuple[Row, Callable[..., Any]]] = []


def add(
    build: str, inputs: tuple, formula: Callable[..., Any] | None, call: str = "net(*x)",
    **options: Any,
) -> None:  # fmt: skip
    row = Row(f"loss.{build}", inputs, call, **{"modes": ("train", "infer"), **options})
    TABLE.append((row, formula or (lambda *_: None)))


def weighted(name: str, options: str, pred: Any, label: Any, formula: Callable[..., Any]) -> None:
    """Rows that every loss of (pred, label) has: plain, and with each kind of weight."""
    inside = f"{options}, " if options else ""
    add(f"{name}({options})", (pred, label), lambda p, y: mean(formula(p, y)))
    add(f"{name}({inside}weight=3)", (pred, label), lambda p, y: 3 * mean(formula(p, y)))
    add(
        f"{name}({inside}weight=0.5)",
        (pred, label, per_example),
        lambda p, y, w: mean(formula(p, y) * w) / 2,
    )
    add(
        f"{name}({inside}batch_axis=1)",
        (pred, label, per_element),
        lambda p, y, w: mean(formula(p, y) * w, 1),
    )


half_square = lambda p, y: (y - p) ** 2 / 2  # noqa: E731
absolute = lambda p, y: abs(y - p)  # noqa: E731
weighted("L1Loss", "", x, x, absolute)
add("L2Loss()", (x, x), lambda p, y: mean(half_square(p, y)))
add("L2Loss(weight=3)", (x, x, per_example), lambda p, y, w: 3 * mean(half_square(p, y) * w))
add("L2Loss()", ((4, 1), (4,)), lambda p, y: half_square(p[:, 0], y))
add("L2Loss(batch_axis=1)", (deep, deep), lambda p, y: mean(half_square(p, y), 1))
weighted("HuberLoss", "rho=0.3", x, x, lambda p, y: huber(p, y, 0.3))

counts = classes((4, 3), 6, "float32")
poisson = lambda p, y: np.exp(p) - y * p  # noqa: E731
rates = numbers((4, 3), 0.2, 3)
fixed = {"constant": (1,)}
add("PoissonNLLLoss(weight=2)", (x, counts, per_example),
    lambda p, y, w: [2 * (poisson(p, y) * w).mean()], **fixed)  # fmt: skip
add("PoissonNLLLoss(from_logits=False)", (rates, counts),
    lambda p, y: [(p - y * np.log(p)).mean()], **fixed)  # fmt: skip
# (MXNet's writes in place, so that it cannot be recorded.)
add(
    "PoissonNLLLoss(compute_full=True)",
    (x, counts + 1),
    lambda p, y: [(poisson(p, y) + stirling(y)).mean()],
    modes=("infer",),
    grad=False,
)

name = "SoftmaxCrossEntropyLoss"
label = classes((4,), 3)
cross = lambda p, y: picked(log_softmax(p), y)  # noqa: E731
add(f"{name}()", (x, label.astype("float32")), lambda p, y: mean(cross(p, y)), **fixed)
add(f"{name}(weight=3)", (x, label, per_example), lambda p, y, w: 3 * mean(cross(p, y) * w))
add(f"{name}(axis=1)", ((2, 3, 2, 2), classes((2, 2, 2), 3)),
    lambda p, y: mean(picked(log_softmax(p, 1), y, 1)))  # fmt: skip
add(f"{name}(batch_axis=1)", (deep, classes((2, 3), 2)), lambda p, y: mean(cross(p, y), 1))
add(f"{name}(sparse_label=False)", (x, shares((4, 3))), lambda p, y: -(y * log_softmax(p)).sum(1))
add(f"{name}(sparse_label=False, from_logits=True)", (x, shares((4, 3)), per_example),
    lambda p, y, w: -(y * p).sum(1) * w[:, 0])  # fmt: skip
add("SoftmaxCELoss(axis=0, batch_axis=1)", ((3, 4), label),
    lambda p, y: mean(picked(log_softmax(p, 0), y, 0), 1))  # fmt: skip

name = "SigmoidBinaryCrossEntropyLoss"
yes = classes((4, 3), 2, "float32")
q = numbers((4, 3), 0.05, 0.95)
pos = numbers((3,), 0.5, 3, seed=9)
binary = lambda p, y, w=1: -w * y * np.log(p) - (1 - y) * np.log(1 - p)  # noqa: E731
weighted(name, "", x, yes, lambda p, y: binary(sigmoid(p), y))
weighted(name, "from_sigmoid=True", q, yes, binary)
with_pos = "net(x[0], x[1], None, x[2])"
add(f"{name}()", (x, yes, pos), lambda p, y, w: mean(binary(sigmoid(p), y, w)), with_pos)
add("SigmoidBCELoss(weight=2)", (x, yes, per_example, pos),
    lambda p, y, v, w: 2 * mean(binary(sigmoid(p), y, w) * v))  # fmt: skip
add(f"{name}()", (np.array([90, -90, 0], "float32"), np.array([0, 1, 1], "float32")),
    lambda p, y: [90, 90, np.log(2)], grad=False)  # fmt: skip

target = shares((4, 3))
log_q = np.log(shares((4, 3))[::-1])


def divergence(log_p: np.ndarray, y: np.ndarray, w: Any = 1, batch_axis: int = 0) -> np.ndarray:
    spec = w * y * (np.log(y) - log_p)
    return spec.sum(tuple(a for a in range(spec.ndim) if a != batch_axis))


add("KLDivLoss(batch_axis=1)", (log_q, target, per_element),
    lambda p, y, w: divergence(p, y, w, 1))  # fmt: skip
add("KLDivLoss(from_logits=False)", (x, target, per_example),
    lambda p, y, w: divergence(log_softmax(p), y, w))  # fmt: skip
add("KLDivLoss(from_logits=False, axis=1)", (deep, shares(deep)),
    lambda p, y: divergence(log_softmax(p, 1), y))  # fmt: skip

sign = signs((4, 3))
weighted("HingeLoss", "margin=0.3", x, sign, lambda p, y: np.maximum(0.3 - p * y, 0))
weighted("SquaredHingeLoss", "margin=2", x, sign, lambda p, y: np.maximum(2 - p * y, 0) ** 2)
weighted("LogisticLoss", "", x, sign, lambda p, y: np.log1p(np.exp(-p * y)))
weighted("LogisticLoss", "label_format='binary'", x, yes, lambda p, y: binary(sigmoid(p), y))


def triplet(a: np.ndarray, b: np.ndarray, c: np.ndarray, margin: float = 1) -> np.ndarray:
    rows = tuple(range(1, a.ndim))
    return np.maximum(((a - b) ** 2 - (a - c) ** 2).sum(rows) + margin, 0)


add("TripletLoss(margin=3, weight=2)", (x, x, x), lambda a, b, c: 2 * triplet(a, b, c, 3))
alike = np.array([1, -1, 1, -1], "float32")
add("CosineEmbeddingLoss(margin=0.3, weight=2)", (x, x, alike, per_example),
    lambda a, b, y, w: 2 * cosine(a, b, y, 0.3) * w, constant=(2,))  # fmt: skip
near = numbers((4, 3), -1, 1, seed=1)
add("SDMLLoss()", (near, near + numbers((4, 3), -0.2, 0.2)), lambda a, b: sdml(a, b, 0.3))

# What CTCLoss gives is tested with its op; here are layouts, lengths and weights.
letters = np.array([[0, 1], [1, -1]], "int32")
steps, sizes = np.array([3, 4], "float32"), np.array([2, 1], "int32")
ctc = {"constant": (2,)}
add("CTCLoss()", ((2, 4, 3), letters), None)
add("CTCLoss('TNC')", ((4, 2, 3), letters), None)
add("CTCLoss('NTC', 'TN', weight=2)", ((2, 4, 3), letters.T), None)
add("CTCLoss()", ((2, 4, 3), letters, steps), None, **ctc)
add("CTCLoss()", ((2, 4, 3), letters, sizes), None, "net(x[0], x[1], None, x[2])")
add("CTCLoss()", ((2, 4, 3), letters, steps, sizes), None, **ctc)
add("CTCLoss(weight=3)", ((2, 4, 3), letters, steps, sizes, np.array([2, 5], "float32")), None,
    **ctc)  # fmt: skip

ROWS = [row for row, _ in TABLE]

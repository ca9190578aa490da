"""Metrics for predicted classes.

>>> from d2lmini import metric, nd
>>> probabilities = nd.array([[0.1, 0.6, 0.3], [0.5, 0.4, 0.1]])
>>> best_of_two = metric.TopKAccuracy(top_k=2)
>>> best_of_two.update(nd.array([2, 2]), probabilities)
>>> best_of_two.get()
('top_k_accuracy_2', 0.5)
"""

from __future__ import annotations

from math import exp
from typing import Any

import numpy

from d2lmini import ndarray as nd
from d2lmini.families import REQUIRED
from d2lmini.metric.base import (
    Measured,
    alias,
    as_arrays,
    as_scores,
    batches,
    check_label_shapes,
    register,
)


@alias("acc")
class Accuracy(Measured):
    """Share of correct classes. pred holds classes in label's shape, or scores, whose largest entry
    along `axis` is the class. `update` does not wait."""

    axis: int = 1
    name: str = "accuracy"

    def measure(self, label: Any, pred: Any) -> tuple[Any, Any]:
        label, pred = as_arrays(label, pred)
        if pred.shape != label.shape:
            pred = pred.argmax(axis=self.axis)
        label, pred = (x.reshape((-1,)) if x.ndim != 1 else x for x in (label, pred))
        check_label_shapes(label, pred)
        matches: Any = pred.astype("int32") == label.astype("int32")
        return matches.sum(), label.size


@alias("top_k_accuracy", "top_k_acc")
class TopKAccuracy(Measured):
    """Share of labels (N,) that are among the top_k largest scores (N, C). Waits.

    ValueError for a top_k below 2, and in `update` for scores with another number of axes.
    """

    top_k: int = 1
    name: str = "top_k_accuracy"

    def _check(self) -> None:
        if self.top_k <= 1:
            raise ValueError(f"top_k must be at least 2, got {self.top_k}; for 1 there is Accuracy")
        self.name += f"_{self.top_k}"

    def measure(self, label: Any, pred: Any) -> tuple[Any, Any]:
        label, pred = as_scores(label, pred)
        if pred.ndim != 2:
            raise ValueError(f"scores must be (N, C), got {pred.shape}")
        k = min(self.top_k, pred.shape[1])
        best = numpy.argpartition(pred.astype("float32"), -k)[:, -k:]
        return int((best == label[:, None]).sum()), len(label)


@alias("ce")
class CrossEntropy(Measured):
    """Mean of -log(pred[label] + eps) over the examples: probabilities (N, C), N labels. Waits.

    IndexError for a label outside the classes.
    """

    eps: float = 1e-12
    name: str = "cross-entropy"

    def measure(self, label: Any, pred: Any) -> tuple[Any, Any]:
        label, pred = as_scores(label, pred)
        probability = pred[numpy.arange(len(label)), label]
        return float((-numpy.log(probability + self.eps)).sum()), len(label)


@alias("nll_loss")
class NegativeLogLikelihood(CrossEntropy):
    """CrossEntropy under another name."""

    name: str = "nll-loss"


@register
class Perplexity(Measured):
    """exp of the mean of -log pred[label]: the effective number of classes of an unsure model.

    pred (..., C) with probabilities along `axis`, label with as many elements as pred has
    distributions. Labels equal to ignore_label do not count (None: all labels count). Probabilities
    below 1e-10 count as 1e-10. `update` does not wait. ValueError when the numbers of elements do
    not match.
    """

    _omitted = ("axis",)

    ignore_label: int | None = REQUIRED  # type: ignore[assignment]
    axis: int = -1
    name: str = "perplexity"

    def update(self, labels: Any, preds: Any) -> None:
        total: Any = 0.0
        count: Any = 0
        for label, pred in batches(labels, preds):
            bare = pred is preds
            label, pred = as_arrays(label, pred)
            if pred.ndim == 1 and bare:  # MXNet goes through the rows of a bare array
                pred = pred.expand_dims(1)
            axis = -1 if self.axis == pred.ndim - 1 else self.axis
            if axis == -1:
                pred = pred.reshape((-1, pred.shape[-1]))
            if label.size * pred.shape[axis] != pred.size:
                raise ValueError(
                    f"predictions {pred.shape} need {pred.size // pred.shape[axis]} labels, "
                    f"got {label.shape}"
                )
            label = label.astype(pred.dtype).reshape((-1,))
            loss = -nd.log(nd.maximum(nd.pick(pred, label, axis=axis), 1e-10))
            if self.ignore_label is None:
                count = count + loss.size
            else:
                counts = nd.not_equal(label, self.ignore_label)
                count, loss = counts.sum() + count, loss * counts
            total = loss.sum() + total
        self._add(total, count)

    def _value(self, total: float, count: float) -> float:
        return exp(total / count) if count else float("nan")

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
from d2lmini.metric.base import (
    EvalMetric,
    Names,
    alias,
    as_array,
    as_numpy,
    batches,
    check_label_shapes,
    register,
)
from d2lmini.signatures import with_defaults


@alias("acc")
class Accuracy(EvalMetric):
    """Share of correct classes. pred holds classes in label's shape, or scores, whose largest entry
    along `axis` is the class. `update` does not wait."""

    def __init__(
        self, axis: int = 1, name: str = "accuracy", output_names: Names = None,
        label_names: Names = None,
    ):  # fmt: skip
        super().__init__(name, output_names, label_names, axis=axis, has_global_stats=True)
        self.axis = axis

    def update(self, labels: Any, preds: Any) -> None:
        for label, pred in batches(labels, preds):
            label, pred = as_array(label), as_array(pred)
            if pred.shape != label.shape:
                pred = pred.argmax(axis=self.axis)
            label, pred = (x.reshape((-1,)) if x.ndim != 1 else x for x in (label, pred))
            check_label_shapes(label, pred)
            label = label.as_in_context(pred.context).astype("int32")
            pred = pred.astype("int32")
            matches: Any = pred == label
            self._add(matches.sum(), label.size)


@alias("top_k_accuracy", "top_k_acc")
class TopKAccuracy(EvalMetric):
    """Share of labels (N,) that are among the top_k largest scores (N, C). Waits.

    ValueError for a top_k below 2, and in `update` for scores with another number of axes.
    """

    def __init__(
        self, top_k: int = 1, name: str = "top_k_accuracy", output_names: Names = None,
        label_names: Names = None,
    ):  # fmt: skip
        if top_k <= 1:
            raise ValueError(f"top_k must be at least 2, got {top_k}; for 1 there is Accuracy")
        super().__init__(
            f"{name}_{top_k}", output_names, label_names, top_k=top_k, has_global_stats=True
        )
        self.top_k = top_k

    def update(self, labels: Any, preds: Any) -> None:
        for label, pred in batches(labels, preds):
            label, pred = as_numpy(label).astype("int32").ravel(), as_numpy(pred)
            if pred.ndim != 2:
                raise ValueError(f"scores must be (N, C), got {pred.shape}")
            check_label_shapes(label, pred)
            k = min(self.top_k, pred.shape[1])
            best = numpy.argpartition(pred.astype("float32"), -k)[:, -k:]
            self._add(int((best == label[:, None]).sum()), len(label))


@alias("ce")
class CrossEntropy(EvalMetric):
    """Mean of -log(pred[label] + eps) over the examples: probabilities (N, C), N labels. Waits.

    IndexError for a label outside the classes.
    """

    def __init__(
        self, eps: float = 1e-12, name: str = "cross-entropy", output_names: Names = None,
        label_names: Names = None,
    ):  # fmt: skip
        super().__init__(name, output_names, label_names, eps=eps, has_global_stats=True)
        self.eps = eps

    def update(self, labels: Any, preds: Any) -> None:
        for label, pred in batches(labels, preds):
            label, pred = as_numpy(label).astype("int64").ravel(), as_numpy(pred)
            check_label_shapes(label, pred)
            probability = pred[numpy.arange(len(label)), label]
            self._add(float((-numpy.log(probability + self.eps)).sum()), len(label))


@alias("nll_loss")
class NegativeLogLikelihood(CrossEntropy):
    """CrossEntropy under another name."""

    __init__ = with_defaults(CrossEntropy.__init__, name="nll-loss")


@register
class Perplexity(EvalMetric):
    """exp of the mean of -log pred[label]: the effective number of classes of an unsure model.

    pred (..., C) with probabilities along `axis`, label with as many elements as pred has
    distributions. Labels equal to ignore_label do not count (None: all labels count). Probabilities
    below 1e-10 count as 1e-10. `update` does not wait. ValueError when the numbers of elements do
    not match.
    """

    def __init__(
        self, ignore_label: int | None, axis: int = -1, name: str = "perplexity",
        output_names: Names = None, label_names: Names = None,
    ):  # fmt: skip
        super().__init__(
            name, output_names, label_names, ignore_label=ignore_label, has_global_stats=True
        )
        self.ignore_label = ignore_label
        self.axis = axis

    def update(self, labels: Any, preds: Any) -> None:
        total: Any = 0.0
        count: Any = 0
        for label, pred in batches(labels, preds):
            label, pred = as_array(label), as_array(pred)
            if pred.ndim == 1 and pred is preds:  # MXNet goes through the rows of a bare array
                pred = pred.expand_dims(1)
            axis = -1 if self.axis == pred.ndim - 1 else self.axis
            if axis == -1:
                pred = pred.reshape((-1, pred.shape[-1]))
            if label.size * pred.shape[axis] != pred.size:
                raise ValueError(
                    f"predictions {pred.shape} need {pred.size // pred.shape[axis]} labels, "
                    f"got {label.shape}"
                )
            label = label.as_in_context(pred.context).astype(pred.dtype).reshape((-1,))
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

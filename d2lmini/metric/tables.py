"""Metrics from the confusion table, which counts each kind of mistake.

The confusion table counts how many examples of class i were predicted as class j. Accuracy uses
only the diagonal. If a class is rare, a model that always predicts the other class is accurate but
useless; the metrics below give such a model 0.

>>> from d2lmini import metric, nd
>>> label, pred = nd.array([0, 0, 0, 1]), nd.array([[1, 0], [1, 0], [1, 0], [1, 0]])
>>> for m in metric.Accuracy(), metric.F1(), metric.MCC():
...     m.update(label, pred)
...     print(m.get())
('accuracy', 0.75)
('f1', 0.0)
('mcc', 0.0)
"""

from __future__ import annotations

from math import sqrt
from typing import Any

import numpy

from d2lmini.metric.base import (
    Averaged,
    Measured,
    as_numpy,
    batches,
    check_label_shapes,
    register,
)


class _Tables(Measured):
    """Base class of metrics with a local and a global table."""

    _score: Any  #: the score of a table

    _table: numpy.ndarray
    _global_table: numpy.ndarray

    def reset(self) -> None:
        super().reset()
        self._table = numpy.zeros((2, 2), int)
        self._global_table = numpy.zeros((2, 2), int)

    def reset_local(self) -> None:
        super().reset_local()
        self._table = numpy.zeros_like(self._global_table)

    def _include(self, table: numpy.ndarray) -> None:
        """Add a table, which has no fewer classes, to both tables."""
        wider = len(table) - len(self._table)
        self._table = numpy.pad(self._table, (0, wider)) + table
        self._global_table = numpy.pad(self._global_table, (0, wider)) + table

    def _use_tables(self, count: int) -> None:
        """Set the sums so that the value is the score of the tables, after `count` more."""
        self.num_inst += count
        self.global_num_inst += count
        self.sum_metric = self._score(self._table) * self.num_inst
        self.global_sum_metric = self._score(self._global_table) * self.global_num_inst


class _Binary(_Tables, Averaged):
    """Base class: a score of the four counts of two classes, averaged or over all updates."""

    def update(self, labels: Any, preds: Any) -> None:
        table = numpy.zeros((2, 2), int)
        for label, pred in batches(labels, preds):
            label, pred = as_numpy(label).astype("int64").ravel(), as_numpy(pred)
            if pred.ndim < 2:
                raise ValueError(
                    f"{type(self).__name__}: predictions must be scores (N, classes), got "
                    f"{pred.shape}; of predicted classes y make scores with nd.one_hot(y, 2)"
                )
            pred = pred.argmax(axis=1).ravel()
            check_label_shapes(label, pred)
            found = numpy.unique(label)
            if len(found) > 2:
                raise ValueError(
                    f"{type(self).__name__} is for two classes, got labels {found.tolist()}; "
                    "PCC takes any number"
                )
            table += numpy.bincount(2 * (label == 1) + (pred == 1), minlength=4).reshape(2, 2)
        if self.average == "macro":
            self._add(self._score(table), 1)
        else:
            self._include(table)
            self._use_tables(int(table.sum()))


@register
class F1(_Binary):
    """2 p r / (p + r) for class 1, with precision p and recall r.

    p is the share of correct predictions among predictions of class 1, r the share of examples of
    class 1 that are predicted as 1. Other classes count as 0. ValueError in `update` for labels of
    three classes, and for predictions that are not scores (N, classes). average: "macro", the mean
    over updates, or "micro", from all counts together. Waits.
    """

    name: str = "f1"

    @staticmethod
    def _score(table: numpy.ndarray) -> float:
        (_, false_positives), (false_negatives, true_positives) = table.tolist()
        # 2 p r / (p + r), simplified.
        wrong = false_positives + false_negatives
        return 2 * true_positives / (2 * true_positives + wrong) if true_positives else 0.0


@register
class MCC(_Binary):
    """Matthews' correlation of label and prediction, from -1 to 1.

    (tp tn - fp fn) / sqrt((tp + fp) (tp + fn) (tn + fp) (tn + fn)), without factors that are 0.
    Arguments and ValueError as for F1. Waits.
    """

    name: str = "mcc"

    @staticmethod
    def _score(table: numpy.ndarray) -> float:
        (tn, fp), (fn, tp) = table.tolist()
        below = 1.0
        for factor in (tp + fp, tp + fn, tn + fp, tn + fn):
            below *= factor or 1
        return (tp * tn - fp * fn) / sqrt(below)


@register
class PCC(_Tables):
    """Matthews' correlation for any number of classes, from all counts together. Waits.

    pred is (N, classes) or classes. As in MXNet, class -1 is the last class, and of labels with
    several axes each pair of classes counts once in a row.

    With the table's row sums t, column sums p, diagonal c and total n: (n sum(c) - sum(t p)) /
    sqrt((n^2 - sum(t^2)) (n^2 - sum(p^2))); nan if label or pred has only one class. Source: J.
    Gorodkin, "Comparing two K-category assignments by a K-category correlation coefficient" (2004).
    """

    name: str = "pcc"
    has_global_stats: bool = True

    def update(self, labels: Any, preds: Any) -> None:
        for label, pred in batches(labels, preds):
            label, pred = as_numpy(label), as_numpy(pred)
            pred = pred if pred.shape == label.shape else pred.argmax(axis=1)
            label, pred = label.astype("int64"), pred.astype("int64")
            check_label_shapes(label, pred)
            n = max(len(self._table), 1 + label.max(), 1 + pred.max())
            table = numpy.zeros((n, n), int)
            for row, column in zip(label, pred, strict=True):
                table[row, column] += 1
            self._include(table)
        self._use_tables(1)

    @staticmethod
    def _score(table: numpy.ndarray) -> float:
        table = table.astype("float64")
        t, p, n = table.sum(axis=1), table.sum(axis=0), table.sum()
        below = (n * n - t @ t) * (n * n - p @ p)
        return float((n * table.trace() - t @ p) / sqrt(below)) if below > 0 else float("nan")

"""Metrics for predicted numbers.

>>> from d2lmini import metric, nd
>>> rmse = metric.RMSE()
>>> rmse.update(nd.array([0, 0]), nd.array([3, 3]))
>>> rmse.get()
('rmse', 3.0)
"""

from __future__ import annotations

from math import sqrt
from typing import Any

import numpy

from d2lmini import ndarray as nd
from d2lmini.metric.base import (
    Averaged,
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


class _Difference(EvalMetric):
    """Base class: one number per update from label - pred, averaged over updates."""

    #: The methods that compute the number from the differences, in order.
    _methods: tuple[str, ...]

    def __init__(self, name: str, output_names: Names = None, label_names: Names = None) -> None:
        super().__init__(name, output_names, label_names, has_global_stats=True)

    def update(self, labels: Any, preds: Any) -> None:
        for label, pred in batches(labels, preds):
            pred = as_array(pred)
            # Differences and means of integers are float64, as in NumPy.
            dtype = numpy.result_type(as_array(label).dtype, pred.dtype)
            dtype = dtype if dtype.kind == "f" else numpy.dtype("float64")
            label = as_array(label).as_in_context(pred.context)
            label, pred = (x.astype(dtype, copy=False) for x in (label, pred))
            # (N,) and (N, 1) are equivalent.
            label, pred = (x.expand_dims(1) if x.ndim == 1 else x for x in (label, pred))
            number = nd.broadcast_sub(label, pred)
            for method in self._methods:
                number = getattr(number, method)()
            self._add(number, 1)


@register
class MAE(_Difference):
    """Mean of |label - pred| of each update, averaged over updates. Does not wait."""

    _methods = ("abs", "mean")

    __init__ = with_defaults(_Difference.__init__, name="mae")


@register
class MSE(_Difference):
    """Mean of (label - pred)^2 of each update, averaged over updates. Does not wait."""

    _methods = ("square", "mean")

    __init__ = with_defaults(_Difference.__init__, name="mse")


@register
class RMSE(_Difference):
    """Root of the mean of (label - pred)^2 of each update, averaged over updates."""

    _methods = ("square", "mean", "sqrt")

    __init__ = with_defaults(_Difference.__init__, name="rmse")


@alias("pearsonr")
class PearsonCorrelation(Averaged):
    """Correlation of all elements of label and pred, which have equal shapes.

    average: "macro", the mean of the updates' correlations, or "micro", the correlation of all
    elements since `reset` (as in MXNet `reset_local` keeps them, and the global value is 0);
    ValueError for another word. Waits.
    """

    __init__ = with_defaults(Averaged.__init__, name="pearsonr")

    def reset(self) -> None:
        super().reset()
        self._elements = 0
        self._mean = numpy.zeros(2)
        self._spread = numpy.zeros((2, 2))  # sums of products of deviations from the means

    def update(self, labels: Any, preds: Any) -> None:
        for label, pred in batches(labels, preds):
            check_label_shapes(label, pred, shape=True)
            both = numpy.stack([as_numpy(label).ravel(), as_numpy(pred).ravel()]).astype("float64")
            if self.average == "macro":
                with numpy.errstate(invalid="ignore", divide="ignore"):
                    self._add(float(numpy.corrcoef(both)[0, 1]), 1)
            else:
                self._take_in(both)
                self._add(0, 1)

    def _take_in(self, both: numpy.ndarray) -> None:
        """Merge means and sums of two sets (T. Chan et al., "Updating formulae", 1979)."""
        n, m = self._elements, both.shape[1]
        mean = both.mean(axis=1)
        gap = mean - self._mean
        rest = both - mean[:, None]
        self._spread += rest @ rest.T + numpy.outer(gap, gap) * (n * m / (n + m))
        self._mean += gap * (m / (n + m))
        self._elements = n + m

    def get(self) -> tuple[str, float]:
        if self.average == "macro" or not self.num_inst:
            return super().get()
        (xx, xy), (_, yy) = self._spread.tolist()
        return self.name, xy / sqrt(xx * yy) if xx and yy else float("nan")


@register
class Loss(EvalMetric):
    """Mean of the elements of the predictions, which are losses; labels are ignored."""

    def __init__(
        self, name: str = "loss", output_names: Names = None, label_names: Names = None
    ) -> None:
        super().__init__(name, output_names, label_names, has_global_stats=True)

    def update(self, labels: Any, preds: Any) -> None:
        for pred in preds if isinstance(preds, (list, tuple)) else [preds]:
            pred = as_array(pred)
            self._add(pred.sum(), pred.size)

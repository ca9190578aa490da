"""Metrics for predicted numbers.

>>> from d2lmini import metric, nd
>>> rmse = metric.RMSE()
>>> rmse.update(nd.array([0, 0]), nd.array([3, 3]))
>>> rmse.get()
('rmse', 3.0)
"""

from __future__ import annotations

from math import sqrt
from typing import Any, ClassVar

import numpy

from d2lmini import ndarray as nd
from d2lmini.metric.base import (
    Averaged,
    Measured,
    alias,
    as_arrays,
    as_numpy,
    check_label_shapes,
    register,
)


class _Difference(Measured):
    """Base class: one number per update from label - pred, averaged over updates."""

    #: The methods that compute the number from the differences, in order.
    _methods: ClassVar[tuple[str, ...]] = ()

    def measure(self, label: Any, pred: Any) -> tuple[Any, Any]:
        label, pred = as_arrays(label, pred)
        # Differences and means of integers are float64, as in NumPy.
        dtype = numpy.result_type(label.dtype, pred.dtype)
        dtype = dtype if dtype.kind == "f" else numpy.dtype("float64")
        label, pred = (x.astype(dtype, copy=False) for x in (label, pred))
        # (N,) and (N, 1) are equivalent.
        label, pred = (x.expand_dims(1) if x.ndim == 1 else x for x in (label, pred))
        number = nd.broadcast_sub(label, pred)
        for method in self._methods:
            number = getattr(number, method)()
        return number, 1


@register
class MAE(_Difference):
    """Mean of |label - pred| of each update, averaged over updates. Does not wait."""

    _methods = ("abs", "mean")

    name: str = "mae"


@register
class MSE(_Difference):
    """Mean of (label - pred)^2 of each update, averaged over updates. Does not wait."""

    _methods = ("square", "mean")

    name: str = "mse"


@register
class RMSE(_Difference):
    """Root of the mean of (label - pred)^2 of each update, averaged over updates."""

    _methods = ("square", "mean", "sqrt")

    name: str = "rmse"


@alias("pearsonr")
class PearsonCorrelation(Averaged):
    """Correlation of all elements of label and pred, which have equal shapes.

    average: "macro", the mean of the updates' correlations, or "micro", the correlation of all
    elements since `reset` (as in MXNet `reset_local` keeps them, and the global value is 0);
    ValueError for another word. Waits.
    """

    name: str = "pearsonr"

    def reset(self) -> None:
        super().reset()
        self._elements = 0
        self._mean = numpy.zeros(2)
        self._spread = numpy.zeros((2, 2))  # sums of products of deviations from the means

    def measure(self, label: Any, pred: Any) -> tuple[Any, Any]:
        check_label_shapes(label, pred, shape=True)
        both = numpy.stack([as_numpy(label).ravel(), as_numpy(pred).ravel()]).astype("float64")
        if self.average == "macro":
            with numpy.errstate(invalid="ignore", divide="ignore"):
                return float(numpy.corrcoef(both)[0, 1]), 1
        self._take_in(both)
        return 0, 1

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
class Loss(Measured):
    """Mean of the elements of the predictions, which are losses; labels are ignored."""

    name: str = "loss"

    def update(self, labels: Any, preds: Any) -> None:
        for pred in preds if isinstance(preds, (list, tuple)) else [preds]:
            _, pred = as_arrays(pred, pred)
            self._add(pred.sum(), pred.size)

"""Losses for predicted numbers.

>>> from d2lmini import nd
>>> from d2lmini.gluon import loss as gloss
>>> pred, label = nd.array([0.5, 4]), nd.array([0, 0])
>>> gloss.L1Loss()(pred, label).asnumpy(), gloss.HuberLoss(rho=1)(pred, label).asnumpy()
(array([0.5, 4. ], dtype=float32), array([0.125, 3.5  ], dtype=float32))

pred and label have the same shape, or the label has as many elements as pred.
"""

from __future__ import annotations

from math import pi
from typing import Any

from d2lmini.gluon.loss.base import DeclaredLoss, _apply_weighting, _number, _reshape_like


class L2Loss(DeclaredLoss):
    """Half the squared difference: (label - pred)^2 / 2 * weight. Its minimum is at the mean."""

    weight: float | None = 1.0
    batch_axis: int = 0

    def hybrid_forward(self, F: Any, pred: Any, label: Any, sample_weight: Any = None) -> Any:
        half = 0.5 if self._weight is None else _number(self._weight) / 2
        if sample_weight is None:  # one op computes the whole loss: ops/squared_error.py
            return F._internal._squared_error(pred, label, scale=half, batch_axis=self.batch_axis)
        label = _reshape_like(F, label, pred)
        loss = F.square(label - pred)
        return self._mean(F, loss, half, sample_weight)


class L1Loss(DeclaredLoss):
    """The absolute difference: |label - pred|. Its minimum is at the median."""

    weight: float | None = None
    batch_axis: int = 0

    def hybrid_forward(self, F: Any, pred: Any, label: Any, sample_weight: Any = None) -> Any:
        label = _reshape_like(F, label, pred)
        loss = F.abs(label - pred)
        return self._mean(F, loss, self._weight, sample_weight)


class HuberLoss(DeclaredLoss):
    """Squared near 0, absolute beyond rho, so that the gradient of an outlier is at most 1.

    With d = |label - pred|: d^2 / (2 rho) for d <= rho, otherwise d - rho / 2.
    Source: P. Huber, "Robust estimation of a location parameter" (1964).
    """

    rho: float = 1
    weight: float | None = None
    batch_axis: int = 0

    def hybrid_forward(self, F: Any, pred: Any, label: Any, sample_weight: Any = None) -> Any:
        label = _reshape_like(F, label, pred)
        d = F.abs(label - pred)
        loss = F.where(d > self.rho, d - 0.5 * self.rho, (0.5 / self.rho) * F.square(d))
        return self._mean(F, loss, self._weight, sample_weight)


class PoissonNLLLoss(DeclaredLoss):
    """-log of the Poisson probability of counts; one mean over all elements, (1,).

    from_logits: pred is the log of the rate, and the loss is exp(pred) - target pred. Otherwise
    pred is the rate, and the loss is pred - target log(pred + epsilon). The term log(target!) is
    omitted, because pred does not affect it; compute_full adds Stirling's approximation of this
    term where target > 1.
    """

    weight: float | None = None
    from_logits: bool = True
    batch_axis: int = 0
    compute_full: bool = False

    def hybrid_forward(
        self, F: Any, pred: Any, target: Any, sample_weight: Any = None, epsilon: float = 1e-08
    ) -> Any:
        target = _reshape_like(F, target, pred)
        if self.from_logits:
            loss = F.exp(pred) - target * pred
        else:
            loss = pred - target * F.log(pred + epsilon)
        if self.compute_full:
            # Stirling: target! is about sqrt(2 pi target) (target / e)^target.
            stirling = target * F.log(target) - target + 0.5 * F.log(2 * pi * target)
            loss = loss + F.where(target > 1, stirling, F.zeros_like(stirling))
        loss = _apply_weighting(F, loss, self._weight, sample_weight)
        return F.mean(loss).reshape(()) if loss.is_np else F.mean(loss)

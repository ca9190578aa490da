"""Losses for predicted numbers.

>>> from d2lmini import nd
>>> from d2lmini.gluon import loss as gloss
>>> pred, label = nd.array([0.5, 4]), nd.array([0, 0])
>>> gloss.L1Loss()(pred, label).asnumpy(), gloss.HuberLoss(rho=1)(pred, label).asnumpy()
(array([0.5, 4. ], dtype=float32), array([0.125, 3.5  ], dtype=float32))

pred and label have the same shape, or the label has as many elements as pred.

Losses for embeddings: vectors of similar things should be close, of different things far apart.

>>> anchor, same, other = nd.array([[0, 0]]), nd.array([[0, 1]]), nd.array([[3, 0]])
>>> triplet = gloss.TripletLoss(margin=1)
>>> triplet(anchor, same, other).asscalar(), triplet(anchor, other, same).asscalar()
(np.float32(0.0), np.float32(9.0))
"""

from __future__ import annotations

from math import pi
from typing import Any

from d2lmini.gluon.loss.base import DeclaredLoss, _apply_weighting, _number, _reshape_like
from d2lmini.gluon.loss.classes import KLDivLoss


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


class TripletLoss(DeclaredLoss):
    """max(0, |pred - positive|^2 - |pred - negative|^2 + margin), (N, ...) each -> (N,).

    Makes the positive nearer than the negative by the margin. Source: F. Schroff et al., "FaceNet"
    (2015).
    """

    margin: float = 1
    weight: float | None = None
    batch_axis: int = 0

    def hybrid_forward(self, F: Any, pred: Any, positive: Any, negative: Any) -> Any:
        positive = _reshape_like(F, positive, pred)
        negative = _reshape_like(F, negative, pred)
        gap = F.square(positive - pred) - F.square(negative - pred)
        loss = F.relu(F.sum(gap, axis=self.batch_axis, exclude=True) + self.margin)
        return _apply_weighting(F, loss, self._weight, None)


class CosineEmbeddingLoss(DeclaredLoss):
    """1 - cos of the angle where label is 1; max(0, cos - margin) where label is -1; else 0.

    input1 and input2 (N, D), label with N elements -> (N, 1). sample_weight (N, 1).
    """

    weight: float | None = None
    batch_axis: int = 0
    margin: float = 0

    def hybrid_forward(
        self, F: Any, input1: Any, input2: Any, label: Any, sample_weight: Any = None
    ) -> Any:
        input1 = _reshape_like(F, input1, input2)
        label = F.reshape(label, (-1, 1))
        cosine = self._cosine_similarity(F, input1, input2)
        apart = F.clip(cosine - self.margin, 0, 1 - self.margin)
        one = F.ones_like(label)  # comparisons by ops, since == of an np.ndarray gives bool
        near = F.broadcast_mul(F.broadcast_equal(label, one), 1 - cosine)
        loss = near + F.broadcast_mul(F.broadcast_equal(label, -one), apart)
        return _apply_weighting(F, loss, self._weight, sample_weight)

    @staticmethod
    def _cosine_similarity(F: Any, x: Any, y: Any, axis: int = -1) -> Any:
        """x . y / (|x| |y|), as (N, 1); 0 for zero vectors."""
        lengths = F.norm(x, axis=axis) * F.norm(y, axis=axis)
        cosine = F.sum(x * y, axis=axis) / F.maximum(lengths, 1e-12)
        return F.reshape(cosine, (-1, 1))


class SDMLLoss(DeclaredLoss):
    """Row i of x1 should be nearer to row i of x2 than to all other rows of x2.

    x1 and x2 (N, D), aligned. KLDivLoss compares the softmax of -|x1_i - x2_j|^2 over j with a
    distribution that gives 1 - smoothing_parameter to j = i and the rest in equal parts to the
    others. Source: A. Bonadiman et al., "Smoothed Deep Metric Learning" (2019).
    """

    smoothing_parameter: float = 0.3
    weight: float | None = 1.0
    batch_axis: int = 0

    def _build(self) -> None:
        self.kl_loss = KLDivLoss(from_logits=True)

    def hybrid_forward(self, F: Any, x1: Any, x2: Any) -> Any:
        distances = self._compute_distances(F, x1, x2)
        labels = self._compute_labels(F, distances)
        return self.kl_loss(F.log_softmax(-distances, axis=1), labels)

    @staticmethod
    def _compute_distances(F: Any, x1: Any, x2: Any) -> Any:
        """Squared distances between all rows, (N, N)."""
        gaps = F.broadcast_sub(F.expand_dims(x1, 1), F.expand_dims(x2, 0))  # (N, N, D)
        return F.sum(F.square(gaps), axis=2)

    def _compute_labels(self, F: Any, distances: Any) -> Any:
        """1 - smoothing_parameter on the diagonal, the rest of each row in equal parts."""
        # Row and column indices give the diagonal of (N, N) without a known N.
        rows = F.expand_dims(F.contrib.arange_like(distances, axis=0), 1)
        columns = F.expand_dims(F.contrib.arange_like(distances, axis=1), 0)
        same = F.broadcast_equal(rows, columns)
        others = F.broadcast_div(1 - same, F.sum(1 - same, axis=1, keepdims=True))
        return same * (1 - self.smoothing_parameter) + others * self.smoothing_parameter

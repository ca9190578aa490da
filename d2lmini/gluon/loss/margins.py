"""Losses for a predicted sign: pred label is positive if the signs agree, and should be large.

>>> from d2lmini import nd
>>> from d2lmini.gluon import loss as gloss
>>> pred, label = nd.array([2, 0.5, -1]), nd.ones(3)
>>> gloss.HingeLoss()(pred, label)             # beyond the margin, within the margin, wrong sign
<BLANKLINE>
[0.  0.5 2. ]
<NDArray 3 @cpu(0)>
"""

from __future__ import annotations

from typing import Any

from d2lmini.gluon.loss.base import Loss, _reshape_like, _softplus


class _Hinge(Loss):
    """Base class: a penalty for the amount by which pred label falls short of the margin."""

    def __init__(
        self, margin: float = 1, weight: float | None = None, batch_axis: int = 0, **kwargs: Any
    ):
        super().__init__(weight, batch_axis, **kwargs)
        self._margin = margin

    def hybrid_forward(self, F: Any, pred: Any, label: Any, sample_weight: Any = None) -> Any:
        label = _reshape_like(F, label, pred)
        loss = self._penalty(F, F.relu(self._margin - pred * label))
        return self._mean(F, loss, self._weight, sample_weight)

    def _penalty(self, F: Any, lack: Any) -> Any:
        raise NotImplementedError


class HingeLoss(_Hinge):
    """max(0, margin - pred label), with labels -1 and 1: the loss of support vector machines."""

    def _penalty(self, F: Any, lack: Any) -> Any:
        return lack


class SquaredHingeLoss(_Hinge):
    """max(0, margin - pred label)^2, with labels -1 and 1: differentiable at the margin."""

    def _penalty(self, F: Any, lack: Any) -> Any:
        return F.square(lack)


class LogisticLoss(Loss):
    """log(1 + exp(-pred label)): -log of the probability sigmoid(pred label).

    label_format: "signed" for labels -1 and 1, or "binary" for labels 0 and 1; otherwise
    ValueError.
    """

    def __init__(
        self, weight: float | None = None, batch_axis: int = 0, label_format: str = "signed",
        **kwargs: Any,
    ):  # fmt: skip
        super().__init__(weight, batch_axis, **kwargs)
        if label_format not in ("signed", "binary"):
            raise ValueError(f"label_format is 'signed' or 'binary', got {label_format!r}")
        self._label_format = label_format

    def hybrid_forward(self, F: Any, pred: Any, label: Any, sample_weight: Any = None) -> Any:
        label = _reshape_like(F, label, pred)
        if self._label_format == "signed":
            label = (label + 1.0) / 2.0
        loss = F.relu(pred) - pred * label + _softplus(F, -F.abs(pred))
        return self._mean(F, loss, self._weight, sample_weight)

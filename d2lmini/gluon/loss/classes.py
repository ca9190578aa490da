"""Losses of predicted probabilities, and of a predicted sign.

Most are -log of the probability that the prediction gives to the truth. By default the losses
take scores, not probabilities: log(softmax(x)) as one formula neither overflows nor rounds to
log(0).

>>> from d2lmini import nd
>>> from d2lmini.gluon import loss as gloss
>>> scores = nd.array([[1000, 0]])
>>> gloss.SoftmaxCrossEntropyLoss()(scores, nd.array([1])).asscalar()
np.float32(1000.0)
"""

from __future__ import annotations

from typing import Any

from d2lmini.gluon.loss.base import (
    DeclaredLoss,
    _apply_weighting,
    _number,
    _reshape_like,
    _softplus,
)


class SoftmaxCrossEntropyLoss(DeclaredLoss):
    """-log softmax(pred)[label] along `axis`.

    pred (N, C, ...) with classes on `axis`; label (N, ...) with class numbers of any dtype, clipped
    to [0, C). With sparse_label=False label holds probabilities in the shape of pred, and the loss
    is -sum(label log softmax(pred)). from_logits: pred is already log softmax. sample_weight (N,
    1).

    The whole loss is one op (`ops/cross_entropy.py`), except with from_logits or sample_weight.
    """

    axis: int = -1
    sparse_label: bool = True
    from_logits: bool = False
    weight: float | None = None
    batch_axis: int = 0

    def hybrid_forward(self, F: Any, pred: Any, label: Any, sample_weight: Any = None) -> Any:
        if sample_weight is None and not self.from_logits:
            return F._internal._softmax_cross_entropy(
                pred, label, axis=self.axis, sparse_label=self.sparse_label,
                batch_axis=self.batch_axis,
                scale=1.0 if self._weight is None else _number(self._weight),
            )  # fmt: skip
        if not self.from_logits:
            pred = F.log_softmax(pred, axis=self.axis)
        if self.sparse_label:
            loss = -F.pick(pred, label, axis=self.axis, keepdims=True)
        else:
            label = _reshape_like(F, label, pred)
            loss = -F.sum(pred * label, axis=self.axis, keepdims=True)
        return self._mean(F, loss, self._weight, sample_weight)


class SigmoidBinaryCrossEntropyLoss(DeclaredLoss):
    """-label log p - (1 - label) log(1 - p) with p = sigmoid(pred), for each element.

    label has as many elements as pred, with values in [0, 1]. from_sigmoid: pred is already p;
    1e-12 is added inside each logarithm. pos_weight, which broadcasts to pred, multiplies the first
    term; a pos_weight above 1 favours recall. The formula relu(x) - x label + log(1 + exp(-|x|))
    does not overflow.
    """

    from_sigmoid: bool = False
    weight: float | None = None
    batch_axis: int = 0

    def hybrid_forward(
        self, F: Any, pred: Any, label: Any, sample_weight: Any = None, pos_weight: Any = None
    ) -> Any:
        label = _reshape_like(F, label, pred)
        if self.from_sigmoid:
            yes = F.log(pred + 1e-12) * label
            if pos_weight is not None:
                yes = F.broadcast_mul(yes, pos_weight)
            loss = -(yes + F.log(1.0 - pred + 1e-12) * (1.0 - label))
        elif pos_weight is None:
            loss = F.relu(pred) - pred * label + _softplus(F, -F.abs(pred))
        else:
            factor = 1 + F.broadcast_mul(label, pos_weight - 1)
            loss = pred - pred * label + factor * (_softplus(F, -F.abs(pred)) + F.relu(-pred))
        return self._mean(F, loss, self._weight, sample_weight)


class KLDivLoss(DeclaredLoss):
    """The Kullback-Leibler divergence of pred from label: sum of label (log label - log pred).

    label holds probabilities. pred holds log-probabilities (from_logits, the default) or scores, to
    which log_softmax along `axis` is applied. The loss is the sum, not the mean, over all axes but
    the batch's.
    """

    from_logits: bool = True
    axis: int = -1
    weight: float | None = None
    batch_axis: int = 0

    def hybrid_forward(self, F: Any, pred: Any, label: Any, sample_weight: Any = None) -> Any:
        if not self.from_logits:
            pred = F.log_softmax(pred, axis=self.axis)
        loss = label * (F.log(label + 1e-12) - pred)
        loss = _apply_weighting(F, loss, self._weight, sample_weight)
        return F.sum(loss, axis=self.batch_axis, exclude=True)


class CTCLoss(DeclaredLoss):
    """-log of the probability that the predictions spell the label, summed over all alignments.

    pred: scores, (N, T, C) with layout "NTC" or (T, N, C) with "TNC"; the last class is the blank.
    label: (N, L) with label_layout "NT", or (L, N) with "TN", padded with -1. pred_lengths and
    label_lengths (N,): the valid lengths; None: all steps, and all labels before the padding.
    sample_weight (N,). Raises ValueError for another layout. See `nd.CTCLoss`.
    """

    layout: str = "NTC"
    label_layout: str = "NT"
    weight: float | None = None

    @property
    def batch_axis(self) -> int:  # type: ignore[override]
        """The axis of the examples in the labels."""
        return self.label_layout.find("N")

    def _build(self) -> None:
        if self.layout not in ("NTC", "TNC"):
            raise ValueError(f"layout of pred is 'NTC' or 'TNC', got {self.layout!r}")
        if self.label_layout not in ("NT", "TN"):
            raise ValueError(f"label_layout is 'NT' or 'TN', got {self.label_layout!r}")

    def hybrid_forward(
        self, F: Any, pred: Any, label: Any, pred_lengths: Any = None, label_lengths: Any = None,
        sample_weight: Any = None,
    ) -> Any:  # fmt: skip
        if self.layout == "NTC":
            pred = F.swapaxes(pred, 0, 1)
        if self.label_layout == "TN":
            label = F.swapaxes(label, 0, 1)
        lengths = [length for length in (pred_lengths, label_lengths) if length is not None]
        loss = F.CTCLoss(
            pred, label, *lengths, use_data_lengths=pred_lengths is not None,
            use_label_lengths=label_lengths is not None, blank_label="last",
        )  # fmt: skip
        return _apply_weighting(F, loss, self._weight, sample_weight)


# -- a predicted sign ---------------------------------------------------------------------------


class _Hinge(DeclaredLoss):
    """Base class: a penalty for the amount by which pred label falls short of the margin."""

    _squared = False

    margin: float = 1
    weight: float | None = None
    batch_axis: int = 0

    def hybrid_forward(self, F: Any, pred: Any, label: Any, sample_weight: Any = None) -> Any:
        label = _reshape_like(F, label, pred)
        loss = F.relu(self.margin - pred * label)
        if self._squared:
            loss = F.square(loss)
        return self._mean(F, loss, self._weight, sample_weight)


class HingeLoss(_Hinge):
    """max(0, margin - pred label), with labels -1 and 1: the loss of support vector machines."""


class SquaredHingeLoss(_Hinge):
    """max(0, margin - pred label)^2, with labels -1 and 1: differentiable at the margin."""

    _squared = True


class LogisticLoss(DeclaredLoss):
    """log(1 + exp(-pred label)): -log of the probability sigmoid(pred label).

    label_format: "signed" for labels -1 and 1, or "binary" for labels 0 and 1; otherwise
    ValueError.
    """

    weight: float | None = None
    batch_axis: int = 0
    label_format: str = "signed"

    def _build(self) -> None:
        if self.label_format not in ("signed", "binary"):
            raise ValueError(f"label_format is 'signed' or 'binary', got {self.label_format!r}")

    def hybrid_forward(self, F: Any, pred: Any, label: Any, sample_weight: Any = None) -> Any:
        label = _reshape_like(F, label, pred)
        if self.label_format == "signed":
            label = (label + 1.0) / 2.0
        loss = F.relu(pred) - pred * label + _softplus(F, -F.abs(pred))
        return self._mean(F, loss, self._weight, sample_weight)


#: MXNet's short names.
SoftmaxCELoss = SoftmaxCrossEntropyLoss
SigmoidBCELoss = SigmoidBinaryCrossEntropyLoss

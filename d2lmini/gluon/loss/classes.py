"""Losses of predicted probabilities.

Each loss is -log of the probability that the prediction gives to the truth. By default the losses
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

from d2lmini.gluon.loss.base import Loss, _apply_weighting, _number, _reshape_like, _softplus


class SoftmaxCrossEntropyLoss(Loss):
    """-log softmax(pred)[label] along `axis`.

    pred (N, C, ...) with classes on `axis`; label (N, ...) with class numbers of any dtype, clipped
    to [0, C). With sparse_label=False label holds probabilities in the shape of pred, and the loss
    is -sum(label log softmax(pred)). from_logits: pred is already log softmax. sample_weight (N,
    1).

    The whole loss is one op (`ops/cross_entropy.py`), except with from_logits or sample_weight.
    """

    def __init__(
        self, axis: int = -1, sparse_label: bool = True, from_logits: bool = False,
        weight: float | None = None, batch_axis: int = 0, **kwargs: Any,
    ):  # fmt: skip
        super().__init__(weight, batch_axis, **kwargs)
        self._axis = axis
        self._sparse_label = sparse_label
        self._from_logits = from_logits

    def hybrid_forward(self, F: Any, pred: Any, label: Any, sample_weight: Any = None) -> Any:
        if sample_weight is None and not self._from_logits:
            return F._internal._softmax_cross_entropy(
                pred, label, axis=self._axis, sparse_label=self._sparse_label,
                batch_axis=self._batch_axis,
                scale=1.0 if self._weight is None else _number(self._weight),
            )  # fmt: skip
        if not self._from_logits:
            pred = F.log_softmax(pred, axis=self._axis)
        if self._sparse_label:
            loss = -F.pick(pred, label, axis=self._axis, keepdims=True)
        else:
            label = _reshape_like(F, label, pred)
            loss = -F.sum(pred * label, axis=self._axis, keepdims=True)
        return self._mean(F, loss, self._weight, sample_weight)


class SigmoidBinaryCrossEntropyLoss(Loss):
    """-label log p - (1 - label) log(1 - p) with p = sigmoid(pred), for each element.

    label has as many elements as pred, with values in [0, 1]. from_sigmoid: pred is already p;
    1e-12 is added inside each logarithm. pos_weight, which broadcasts to pred, multiplies the first
    term; a pos_weight above 1 favours recall. The formula relu(x) - x label + log(1 + exp(-|x|))
    does not overflow.
    """

    def __init__(
        self, from_sigmoid: bool = False, weight: float | None = None, batch_axis: int = 0,
        **kwargs: Any,
    ):  # fmt: skip
        super().__init__(weight, batch_axis, **kwargs)
        self._from_sigmoid = from_sigmoid

    def hybrid_forward(
        self, F: Any, pred: Any, label: Any, sample_weight: Any = None, pos_weight: Any = None
    ) -> Any:
        label = _reshape_like(F, label, pred)
        if self._from_sigmoid:
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


class KLDivLoss(Loss):
    """The Kullback-Leibler divergence of pred from label: sum of label (log label - log pred).

    label holds probabilities. pred holds log-probabilities (from_logits, the default) or scores, to
    which log_softmax along `axis` is applied. The loss is the sum, not the mean, over all axes but
    the batch's.
    """

    def __init__(
        self, from_logits: bool = True, axis: int = -1, weight: float | None = None,
        batch_axis: int = 0, **kwargs: Any,
    ):  # fmt: skip
        super().__init__(weight, batch_axis, **kwargs)
        self._from_logits = from_logits
        self._axis = axis

    def hybrid_forward(self, F: Any, pred: Any, label: Any, sample_weight: Any = None) -> Any:
        if not self._from_logits:
            pred = F.log_softmax(pred, axis=self._axis)
        loss = label * (F.log(label + 1e-12) - pred)
        loss = _apply_weighting(F, loss, self._weight, sample_weight)
        return F.sum(loss, axis=self._batch_axis, exclude=True)


class CTCLoss(Loss):
    """-log of the probability that the predictions spell the label, summed over all alignments.

    pred: scores, (N, T, C) with layout "NTC" or (T, N, C) with "TNC"; the last class is the blank.
    label: (N, L) with label_layout "NT", or (L, N) with "TN", padded with -1. pred_lengths and
    label_lengths (N,): the valid lengths; None: all steps, and all labels before the padding.
    sample_weight (N,). Raises ValueError for another layout. See `nd.CTCLoss`.
    """

    def __init__(
        self, layout: str = "NTC", label_layout: str = "NT", weight: float | None = None,
        **kwargs: Any,
    ):  # fmt: skip
        if layout not in ("NTC", "TNC"):
            raise ValueError(f"layout of pred is 'NTC' or 'TNC', got {layout!r}")
        if label_layout not in ("NT", "TN"):
            raise ValueError(f"label_layout is 'NT' or 'TN', got {label_layout!r}")
        super().__init__(weight, label_layout.find("N"), **kwargs)
        self._layout = layout
        self._label_layout = label_layout

    def hybrid_forward(
        self, F: Any, pred: Any, label: Any, pred_lengths: Any = None, label_lengths: Any = None,
        sample_weight: Any = None,
    ) -> Any:  # fmt: skip
        if self._layout == "NTC":
            pred = F.swapaxes(pred, 0, 1)
        if self._label_layout == "TN":
            label = F.swapaxes(label, 0, 1)
        lengths = [length for length in (pred_lengths, label_lengths) if length is not None]
        loss = F.CTCLoss(
            pred, label, *lengths, use_data_lengths=pred_lengths is not None,
            use_label_lengths=label_lengths is not None, blank_label="last",
        )  # fmt: skip
        return _apply_weighting(F, loss, self._weight, sample_weight)


#: MXNet's short names.
SoftmaxCELoss = SoftmaxCrossEntropyLoss
SigmoidBCELoss = SigmoidBinaryCrossEntropyLoss

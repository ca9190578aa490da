"""Losses: one number for each example of a batch, to be minimized.

A loss is computed for each element of a prediction, multiplied by weights, and averaged over all
axes but `batch_axis`: (N, ...) becomes (N,). Backward of this vector gives the gradient of its sum,
and `trainer.step(N)` divides by N.

>>> from d2lmini import nd
>>> from d2lmini.gluon import loss as gloss
>>> pred, label = nd.array([[1, 3], [0, 0]]), nd.zeros((2, 2))
>>> gloss.L2Loss()(pred, label)                           # (1/2 + 9/2) / 2 and 0
<BLANKLINE>
[2.5 0. ]
<NDArray 2 @cpu(0)>
>>> gloss.L2Loss()(pred, label, nd.array([[2], [1]]))     # the first example has weight 2
<BLANKLINE>
[5. 0.]
<NDArray 2 @cpu(0)>

Losses for classes take scores by default, not probabilities: log(softmax(x)) as one formula neither
overflows nor rounds to log(0).

>>> scores = nd.array([[1000, 0]])
>>> gloss.SoftmaxCrossEntropyLoss()(scores, nd.array([1])).asscalar()
np.float32(1000.0)

Losses for embeddings: vectors of similar things should be close, of different things far apart.

>>> anchor, same, other = nd.array([[0, 0]]), nd.array([[0, 1]]), nd.array([[3, 0]])
>>> triplet = gloss.TripletLoss(margin=1)
>>> triplet(anchor, same, other).asscalar(), triplet(anchor, other, same).asscalar()
(np.float32(0.0), np.float32(9.0))
"""

from __future__ import annotations

from collections.abc import Callable
from math import pi
from typing import Any, ClassVar

from d2lmini.base import numeric_types
from d2lmini.gluon.hybrid_block import Layer

__all__ = [
    "CTCLoss", "CosineEmbeddingLoss", "HingeLoss", "HuberLoss", "KLDivLoss", "L1Loss", "L2Loss",
    "LogisticLoss", "Loss", "PoissonNLLLoss", "SDMLLoss", "SigmoidBCELoss",
    "SigmoidBinaryCrossEntropyLoss", "SoftmaxCELoss", "SoftmaxCrossEntropyLoss",
    "SquaredHingeLoss", "TripletLoss",
]  # fmt: skip


class Loss(Layer):
    """The base class of losses.

    weight: a number that multiplies all losses, or None. batch_axis: the axis of the examples. Most
    calls take sample_weight, an array of weights that broadcasts to the prediction; (N, 1, ...)
    gives one weight for each example.
    """

    _places: ClassVar[dict[str, int]] = {"weight": -1, "batch_axis": -1}

    weight: float | None = None
    batch_axis: int = 0

    def __repr__(self) -> str:
        return f"{type(self).__name__}(batch_axis={self.batch_axis}, w={self.weight})"

    def _mean(self, F: Any, loss: Any, weight: float | None, sample_weight: Any) -> Any:
        """Mean of the weighted losses over all axes but the batch's: (N, ...) -> (N,)."""
        loss = _apply_weighting(F, loss, weight, sample_weight)
        return F.mean(loss, axis=self.batch_axis, exclude=True)


class _DeclaredLoss(Loss):
    """Base class of the losses below: weight and batch_axis come after all other arguments."""

    _places = {"weight": 1, "batch_axis": 1}


class _Elementwise(_DeclaredLoss):
    """Base class of losses that compare each element of pred with one of label, in its shape."""

    #: The loss of each element: (F, pred, label) -> loss.
    _of_elements: Callable[..., Any]

    def hybrid_forward(self, F: Any, pred: Any, label: Any, sample_weight: Any = None) -> Any:
        loss = self._of_elements(F, pred, _reshape_like(F, label, pred))
        return self._mean(F, loss, self.weight, sample_weight)


def _apply_weighting(F: Any, loss: Any, weight: Any = None, sample_weight: Any = None) -> Any:
    """loss * sample_weight (an array, broadcast) * weight (a number); None omits a factor."""
    if sample_weight is not None:
        loss = F.broadcast_mul(loss, sample_weight)
    if weight is not None:
        loss = loss * _number(weight)
    return loss


def _number(weight: Any) -> Any:
    """`weight`; AssertionError unless it is a number."""
    assert isinstance(weight, numeric_types), (
        f"weight must be a number, got {type(weight).__name__}; weights of examples go into the "
        "call, as sample_weight"
    )
    return weight


def _reshape_like(F: Any, x: Any, y: Any) -> Any:
    """x in the shape of y. (Losses of one's own import it from here, as `_apply_weighting`.)"""
    return F.reshape_like(x, y)


def _softplus(F: Any, x: Any) -> Any:
    """log(1 + exp(x))."""
    return F.Activation(x, act_type="softrelu")


# -- predicted numbers -----------------------------------------------------------------------------


class L2Loss(_DeclaredLoss):
    """Half the squared difference: (label - pred)^2 / 2 * weight. Its minimum is at the mean."""

    weight: float | None = 1.0

    def hybrid_forward(self, F: Any, pred: Any, label: Any, sample_weight: Any = None) -> Any:
        half = 0.5 if self.weight is None else _number(self.weight) / 2
        if sample_weight is None:  # one op computes the whole loss: ops/softmax.py
            return F._internal._squared_error(pred, label, scale=half, batch_axis=self.batch_axis)
        label = _reshape_like(F, label, pred)
        loss = F.square(label - pred)
        return self._mean(F, loss, half, sample_weight)


class L1Loss(_Elementwise):
    """The absolute difference: |label - pred|. Its minimum is at the median."""

    def _of_elements(self, F: Any, pred: Any, label: Any) -> Any:
        return F.abs(label - pred)


class HuberLoss(_Elementwise):
    """Squared near 0, absolute beyond rho, so that the gradient of an outlier is at most 1.

    With d = |label - pred|: d^2 / (2 rho) for d <= rho, otherwise d - rho / 2.
    Source: P. Huber, "Robust estimation of a location parameter" (1964).
    """

    rho: float = 1

    def _of_elements(self, F: Any, pred: Any, label: Any) -> Any:
        d = F.abs(label - pred)
        return F.where(d > self.rho, d - 0.5 * self.rho, (0.5 / self.rho) * F.square(d))


class PoissonNLLLoss(_DeclaredLoss):
    """-log of the Poisson probability of counts; one mean over all elements, (1,).

    from_logits: pred is the log of the rate, and the loss is exp(pred) - target pred. Otherwise
    pred is the rate, and the loss is pred - target log(pred + epsilon). The term log(target!) is
    omitted, because pred does not affect it; compute_full adds Stirling's approximation of this
    term where target > 1.
    """

    _places = {"weight": -1, "batch_axis": 1, "compute_full": 2}

    from_logits: bool = True
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
        loss = _apply_weighting(F, loss, self.weight, sample_weight)
        return F.mean(loss).reshape(()) if loss.is_np else F.mean(loss)


# -- classes ---------------------------------------------------------------------------------------


class SoftmaxCrossEntropyLoss(_DeclaredLoss):
    """-log softmax(pred)[label] along `axis`.

    pred (N, C, ...) with classes on `axis`; label (N, ...) with class numbers of any dtype, clipped
    to [0, C). With sparse_label=False label holds probabilities in the shape of pred, and the loss
    is -sum(label log softmax(pred)). from_logits: pred is already log softmax. sample_weight (N,
    1).

    The whole loss is one op (`ops/softmax.py`), except with from_logits or sample_weight.
    """

    axis: int = -1
    sparse_label: bool = True
    from_logits: bool = False

    def hybrid_forward(self, F: Any, pred: Any, label: Any, sample_weight: Any = None) -> Any:
        if sample_weight is None and not self.from_logits:
            return F._internal._softmax_cross_entropy(
                pred, label, axis=self.axis, sparse_label=self.sparse_label,
                batch_axis=self.batch_axis,
                scale=1.0 if self.weight is None else _number(self.weight),
            )  # fmt: skip
        if not self.from_logits:
            pred = F.log_softmax(pred, axis=self.axis)
        if self.sparse_label:
            loss = -F.pick(pred, label, axis=self.axis, keepdims=True)
        else:
            label = _reshape_like(F, label, pred)
            loss = -F.sum(pred * label, axis=self.axis, keepdims=True)
        return self._mean(F, loss, self.weight, sample_weight)


class SigmoidBinaryCrossEntropyLoss(_DeclaredLoss):
    """-label log p - (1 - label) log(1 - p) with p = sigmoid(pred), for each element.

    label has as many elements as pred, with values in [0, 1]. from_sigmoid: pred is already p;
    1e-12 is added inside each logarithm. pos_weight, which broadcasts to pred, multiplies the first
    term; a pos_weight above 1 favours recall. The formula relu(x) - x label + log(1 + exp(-|x|))
    does not overflow.
    """

    from_sigmoid: bool = False

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
        return self._mean(F, loss, self.weight, sample_weight)


class KLDivLoss(_DeclaredLoss):
    """The Kullback-Leibler divergence of pred from label: sum of label (log label - log pred).

    label holds probabilities. pred holds log-probabilities (from_logits, the default) or scores, to
    which log_softmax along `axis` is applied. The loss is the sum, not the mean, over all axes but
    the batch's.
    """

    from_logits: bool = True
    axis: int = -1

    def hybrid_forward(self, F: Any, pred: Any, label: Any, sample_weight: Any = None) -> Any:
        if not self.from_logits:
            pred = F.log_softmax(pred, axis=self.axis)
        loss = label * (F.log(label + 1e-12) - pred)
        loss = _apply_weighting(F, loss, self.weight, sample_weight)
        return F.sum(loss, axis=self.batch_axis, exclude=True)


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
        if layout not in ("NTC", "TNC") or label_layout not in ("NT", "TN"):
            raise ValueError(
                "CTCLoss: layout is 'NTC' or 'TNC', and label_layout is 'NT' or 'TN'; got "
                f"{layout!r} and {label_layout!r}"
            )
        super().__init__(weight, label_layout.find("N"), **kwargs)
        self._layout, self._label_layout = layout, label_layout

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
        return _apply_weighting(F, loss, self.weight, sample_weight)


# -- a predicted sign ---------------------------------------------------------------------------


class _Hinge(_Elementwise):
    """Base class: a penalty for the amount by which pred label falls short of the margin."""

    _squared = False

    margin: float = 1

    def _of_elements(self, F: Any, pred: Any, label: Any) -> Any:
        loss = F.relu(self.margin - pred * label)
        return F.square(loss) if self._squared else loss


class HingeLoss(_Hinge):
    """max(0, margin - pred label), with labels -1 and 1: the loss of support vector machines."""


class SquaredHingeLoss(_Hinge):
    """max(0, margin - pred label)^2, with labels -1 and 1: differentiable at the margin."""

    _squared = True


class LogisticLoss(_Elementwise):
    """log(1 + exp(-pred label)): -log of the probability sigmoid(pred label).

    label_format: "signed" for labels -1 and 1, or "binary" for labels 0 and 1; otherwise
    ValueError.
    """

    _places = {"label_format": 1}

    label_format: str = "signed"

    def _build(self) -> None:
        if self.label_format not in ("signed", "binary"):
            raise ValueError(f"label_format is 'signed' or 'binary', got {self.label_format!r}")

    def _of_elements(self, F: Any, pred: Any, label: Any) -> Any:
        if self.label_format == "signed":
            label = (label + 1.0) / 2.0
        return F.relu(pred) - pred * label + _softplus(F, -F.abs(pred))


#: MXNet's short names.
SoftmaxCELoss = SoftmaxCrossEntropyLoss
SigmoidBCELoss = SigmoidBinaryCrossEntropyLoss


# -- embeddings ------------------------------------------------------------------------------------


class TripletLoss(_DeclaredLoss):
    """max(0, |pred - positive|^2 - |pred - negative|^2 + margin), (N, ...) each -> (N,).

    Makes the positive nearer than the negative by the margin. Source: F. Schroff et al., "FaceNet"
    (2015).
    """

    margin: float = 1

    def hybrid_forward(self, F: Any, pred: Any, positive: Any, negative: Any) -> Any:
        positive = _reshape_like(F, positive, pred)
        negative = _reshape_like(F, negative, pred)
        gap = F.square(positive - pred) - F.square(negative - pred)
        loss = F.relu(F.sum(gap, axis=self.batch_axis, exclude=True) + self.margin)
        return _apply_weighting(F, loss, self.weight, None)


class CosineEmbeddingLoss(_DeclaredLoss):
    """1 - cos of the angle where label is 1; max(0, cos - margin) where label is -1; else 0.

    input1 and input2 (N, D), label with N elements -> (N, 1). sample_weight (N, 1).
    """

    _places = {"margin": 1}

    margin: float = 0

    def hybrid_forward(
        self, F: Any, input1: Any, input2: Any, label: Any, sample_weight: Any = None
    ) -> Any:
        input1 = F.reshape_like(input1, input2)
        label = F.reshape(label, (-1, 1))
        lengths = F.norm(input1, axis=-1) * F.norm(input2, axis=-1)
        # x . y / (|x| |y|), as (N, 1); 0 for zero vectors.
        cosine = F.sum(input1 * input2, axis=-1) / F.maximum(lengths, 1e-12)
        cosine = F.reshape(cosine, (-1, 1))
        apart = F.clip(cosine - self.margin, 0, 1 - self.margin)
        one = F.ones_like(label)  # comparisons by ops, since == of an np.ndarray gives bool
        near = F.broadcast_mul(F.broadcast_equal(label, one), 1 - cosine)
        loss = near + F.broadcast_mul(F.broadcast_equal(label, -one), apart)
        return _apply_weighting(F, loss, self.weight, sample_weight)


class SDMLLoss(_DeclaredLoss):
    """Row i of x1 should be nearer to row i of x2 than to all other rows of x2.

    x1 and x2 (N, D), aligned. KLDivLoss compares the softmax of -|x1_i - x2_j|^2 over j with a
    distribution that gives 1 - smoothing_parameter to j = i and the rest in equal parts to the
    others. Source: A. Bonadiman et al., "Smoothed Deep Metric Learning" (2019).
    """

    smoothing_parameter: float = 0.3
    weight: float | None = 1.0

    def _build(self) -> None:
        self.kl_loss = KLDivLoss(from_logits=True)

    def hybrid_forward(self, F: Any, x1: Any, x2: Any) -> Any:
        # Squared distances between all rows, (N, N).
        gaps = F.broadcast_sub(F.expand_dims(x1, 1), F.expand_dims(x2, 0))  # (N, N, D)
        distances = F.sum(F.square(gaps), axis=2)
        # The numbers of the rows, 1 ... N, give the diagonal of (N, N) without a known N.
        rows = F.cumsum(F.ones_like(F.sum(distances, axis=1, keepdims=True)), axis=0)
        same = F.broadcast_equal(rows, F.transpose(rows))
        others = F.broadcast_div(1 - same, F.sum(1 - same, axis=1, keepdims=True))
        labels = same * (1 - self.smoothing_parameter) + others * self.smoothing_parameter
        return self.kl_loss(F.log_softmax(-distances, axis=1), labels)

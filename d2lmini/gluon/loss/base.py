"""Base class of losses: weights, and the mean over all axes but the batch's.

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
"""

from __future__ import annotations

from typing import Any

from d2lmini.base import numeric_types
from d2lmini.gluon.hybrid_block import HybridBlock, Layer


class Loss(HybridBlock):
    """The base class of losses.

    weight: a number that multiplies all losses, or None. batch_axis: the axis of the examples. Most
    calls take sample_weight, an array of weights that broadcasts to the prediction; (N, 1, ...)
    gives one weight for each example.
    """

    def __init__(self, weight: float | None, batch_axis: int, **kwargs: Any):
        super().__init__(**kwargs)
        self._weight = weight
        self._batch_axis = batch_axis

    def __repr__(self) -> str:
        return f"{type(self).__name__}(batch_axis={self._batch_axis}, w={self._weight})"

    def _mean(self, F: Any, loss: Any, weight: float | None, sample_weight: Any) -> Any:
        """Mean of the weighted losses over all axes but the batch's: (N, ...) -> (N,)."""
        loss = _apply_weighting(F, loss, weight, sample_weight)
        return F.mean(loss, axis=self._batch_axis, exclude=True)


class DeclaredLoss(Layer, Loss):
    """Base class of losses with declared arguments."""

    weight: float | None
    batch_axis: int

    def __init__(self, *args: Any, **kwargs: Any):
        _, more = self._take(args, kwargs)
        Loss.__init__(self, self.weight, self.batch_axis, **more)
        self._build()


def _apply_weighting(
    F: Any, loss: Any, weight: float | None = None, sample_weight: Any = None
) -> Any:
    """loss * sample_weight (an array, broadcast) * weight (a number); None omits a factor."""
    if sample_weight is not None:
        loss = F.broadcast_mul(loss, sample_weight)
    if weight is not None:
        loss = loss * _number(weight)
    return loss


def _number(weight: Any) -> Any:
    """`weight` if it is a number; otherwise TypeError."""
    if not isinstance(weight, numeric_types):
        raise TypeError(
            f"weight must be a number, got {type(weight).__name__}; "
            "weights of examples go into the call, as sample_weight"
        )
    return weight


def _reshape_like(F: Any, x: Any, y: Any) -> Any:
    """x in the shape of y: a label (N,) for a prediction (N, 1)."""
    return F.reshape_like(x, y)


def _softplus(F: Any, x: Any) -> Any:
    """log(1 + exp(x))."""
    return F.Activation(x, act_type="softrelu")

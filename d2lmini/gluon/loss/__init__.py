"""Losses: one number for each example of a batch, to be minimized.

base      `Loss`: the base class, with weights and the mean
values    L2Loss, L1Loss, HuberLoss, PoissonNLLLoss: for predicted numbers;
          TripletLoss, CosineEmbeddingLoss, SDMLLoss: for distances between embeddings
classes   SoftmaxCrossEntropyLoss, SigmoidBinaryCrossEntropyLoss, KLDivLoss, CTCLoss: for classes;
          HingeLoss, SquaredHingeLoss, LogisticLoss: for a predicted sign

>>> from d2lmini import nd
>>> from d2lmini.gluon import loss as gloss
>>> loss = gloss.SoftmaxCrossEntropyLoss()
>>> loss(nd.array([[0, 0], [9, -9]]), nd.array([0, 0])).round()      # log 2 and almost 0
<BLANKLINE>
[1. 0.]
<NDArray 2 @cpu(0)>
"""

# isort: off
from d2lmini.gluon.loss.base import Loss

# Losses of one's own import these from MXNet, although their names begin with _.
from d2lmini.gluon.loss.base import _apply_weighting as _apply_weighting
from d2lmini.gluon.loss.base import _reshape_like as _reshape_like
from d2lmini.gluon.loss.values import (
    CosineEmbeddingLoss, HuberLoss, L1Loss, L2Loss, PoissonNLLLoss, SDMLLoss, TripletLoss,
)  # fmt: skip
from d2lmini.gluon.loss.classes import (
    CTCLoss, HingeLoss, KLDivLoss, LogisticLoss, SigmoidBCELoss, SigmoidBinaryCrossEntropyLoss,
    SoftmaxCELoss, SoftmaxCrossEntropyLoss, SquaredHingeLoss,
)  # fmt: skip

__all__ = [
    "CTCLoss", "CosineEmbeddingLoss", "HingeLoss", "HuberLoss", "KLDivLoss", "L1Loss", "L2Loss",
    "LogisticLoss", "Loss", "PoissonNLLLoss", "SDMLLoss", "SigmoidBCELoss",
    "SigmoidBinaryCrossEntropyLoss", "SoftmaxCELoss", "SoftmaxCrossEntropyLoss",
    "SquaredHingeLoss", "TripletLoss",
]  # fmt: skip

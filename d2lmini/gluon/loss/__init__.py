"""Losses: one number for each example of a batch, to be made small.

base      `Loss`: what they share, weights and the mean
values    L2Loss, L1Loss, HuberLoss, PoissonNLLLoss: a prediction of numbers
classes   SoftmaxCrossEntropyLoss, SigmoidBinaryCrossEntropyLoss, KLDivLoss, CTCLoss: of classes
margins   HingeLoss, SquaredHingeLoss, LogisticLoss: of a sign
pairs     TripletLoss, CosineEmbeddingLoss, SDMLLoss: what should lie near, and what far

>>> from d2lmini import nd
>>> from d2lmini.gluon import loss as gloss
>>> loss = gloss.SoftmaxCrossEntropyLoss()
>>> loss(nd.array([[0, 0], [9, -9]]), nd.array([0, 0])).round()      # log 2 and nearly 0
<BLANKLINE>
[1. 0.]
<NDArray 2 @cpu(0)>
"""

# isort: off
from d2lmini.gluon.loss.base import Loss
from d2lmini.gluon.loss.values import HuberLoss, L1Loss, L2Loss, PoissonNLLLoss
from d2lmini.gluon.loss.classes import (
    CTCLoss,
    KLDivLoss,
    SigmoidBCELoss,
    SigmoidBinaryCrossEntropyLoss,
    SoftmaxCELoss,
    SoftmaxCrossEntropyLoss,
)
from d2lmini.gluon.loss.margins import HingeLoss, LogisticLoss, SquaredHingeLoss
from d2lmini.gluon.loss.pairs import CosineEmbeddingLoss, SDMLLoss, TripletLoss

__all__ = [
    "CTCLoss", "CosineEmbeddingLoss", "HingeLoss", "HuberLoss", "KLDivLoss", "L1Loss", "L2Loss",
    "LogisticLoss", "Loss", "PoissonNLLLoss", "SDMLLoss", "SigmoidBCELoss",
    "SigmoidBinaryCrossEntropyLoss", "SoftmaxCELoss", "SoftmaxCrossEntropyLoss",
    "SquaredHingeLoss", "TripletLoss",
]  # fmt: skip

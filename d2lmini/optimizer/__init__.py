"""Optimizers: rules that update weights by their gradients.

>>> from d2lmini import nd, optimizer
>>> sgd = optimizer.create("sgd", learning_rate=0.5, momentum=0.9)
>>> weight, grad = nd.ones(2), nd.array([1, 2])
>>> state = sgd.create_state(0, weight)
>>> sgd.update(0, weight, grad, state)
>>> weight
<BLANKLINE>
[0.5 0. ]
<NDArray 2 @cpu(0)>

optimizer    the base class: names, learning rates, weight decay, counts of updates; with one
             engine task for all parameters: SGD, NAG, Signum; AdaGrad, RMSProp, AdaDelta, Adam,
             Adamax, FTML, Ftrl; LAMB
updater      Updater: an optimizer with the states of its weights, and their files
"""

from __future__ import annotations

from typing import NoReturn

from d2lmini.base import missing_attribute
from d2lmini.optimizer.updater import Updater, get_updater

from d2lmini.optimizer.optimizer import (  # isort: skip
    FTML, LAMB, NAG, SGD, AdaDelta, AdaGrad, Adam, Adamax, Ftrl, Fused, Optimizer, RMSProp, Signum,
    create, register,
)  # fmt: skip

__all__ = [
    "FTML", "LAMB", "NAG", "SGD", "AdaDelta", "AdaGrad", "Adam", "Adamax", "Ftrl", "Fused",
    "Optimizer", "RMSProp", "Signum", "Updater", "create", "get_updater", "register",
]  # fmt: skip


def __getattr__(name: str) -> NoReturn:
    raise missing_attribute("optimizer", name, __all__)

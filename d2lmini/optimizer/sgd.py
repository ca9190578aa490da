"""Gradient descent with and without momentum. The formulas are in `ops/update.py`.

>>> from d2lmini import optimizer
>>> optimizer.create("nag", learning_rate=0.1, momentum=0.9).momentum
0.9
"""

from __future__ import annotations

from typing import Any

from d2lmini.ndarray import NDArray
from d2lmini.ops.core import Op
from d2lmini.ops.update import (
    nag_mom_update,
    sgd_mom_update,
    sgd_update,
    signsgd_update,
    signum_update,
)
from d2lmini.optimizer.fused import Fused
from d2lmini.optimizer.optimizer import register


class Momentum(Fused):
    """Base class: the state is the momentum, if used; in mixed precision (momentum, copy)."""

    master_last = True
    rules = (sgd_update, sgd_mom_update)

    momentum: float = 0.0

    @property
    def rule(self) -> Op:  # type: ignore[override]
        """The op without momentum, or the op with momentum."""
        return self.rules[bool(self.momentum)]

    def _inputs(self, state: Any) -> tuple[NDArray, ...]:
        # A momentum that the user has set to 0 leaves the states unused.
        return super()._inputs(state) if self.momentum else ()


@register
class SGD(Momentum):
    """Stochastic gradient descent with momentum: `sgd_update`, `sgd_mom_update`.

    `lazy_update` is for MXNet's sparse gradients; accepted and unused. `aggregate_num`, the number
    of weights that MXNet updates at once, is unused too: d2lmini updates all weights at once."""

    aggregates = True

    lazy_update: bool = True


@register
class ccSGD(SGD):
    """Another name for SGD."""


@register
class NAG(Momentum):
    """Nesterov's accelerated gradient: `nag_mom_update`."""

    rules = (sgd_update, nag_mom_update)


@register
class Signum(Momentum):
    """Steps of fixed size along the momentum's sign: `signum_update`, `signsgd_update`.

    `wd_lh` is Loshchilov and Hutter's weight decay, which bypasses the momentum."""

    master_last = False
    rules = (signsgd_update, signum_update)

    lr: float = 0.01
    momentum: float = 0.9
    wd_lh: float = 0.0

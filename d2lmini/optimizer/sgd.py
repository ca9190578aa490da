"""Gradient descent with and without momentum. The formulas are in `ops/update.py`.

>>> from d2lmini import optimizer
>>> optimizer.create("nag", learning_rate=0.1, momentum=0.9).momentum
0.9
"""

from __future__ import annotations

from typing import Any

import numpy as np

from d2lmini import environment
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
from d2lmini.optimizer.optimizer import register, zeros_like


class Momentum(Fused):
    """Base class: the state is the momentum, if used; in mixed precision (momentum, copy)."""

    with_momentum: Op
    without: Op = sgd_update

    def __init__(self, momentum: float = 0.0, **kwargs: Any):
        super().__init__(**kwargs)
        self.momentum = momentum

    def create_state(self, index: Any, weight: NDArray) -> Any:
        return zeros_like(weight) if self.momentum else None

    def step(self, index: Any, lr: float, wd: float) -> tuple[Op, dict[str, Any]]:
        if self.momentum:
            return self.with_momentum, {"lr": lr, "momentum": self.momentum}
        return self.without, {"lr": lr}

    def _inputs(self, state: Any) -> tuple[NDArray, ...]:
        # A momentum that the user has set to 0 leaves the states unused.
        return super()._inputs(state) if self.momentum else ()


class _StateWithMasterLast(Momentum):
    """Mixed-precision states in the order of SGD and NAG, which other optimizers do not share."""

    def create_state_multi_precision(self, index: Any, weight: NDArray) -> Any:
        if self._is_mixed(weight):
            master = weight.astype(np.float32)
            return self.create_state(index, master), master
        return super().create_state_multi_precision(index, weight)

    def _split(self, state: Any) -> tuple[NDArray, Any]:
        return state[1], state[0]


@register
class SGD(_StateWithMasterLast):
    """Stochastic gradient descent with momentum: `sgd_update`, `sgd_mom_update`.

    `lazy_update` is for MXNet's sparse gradients; accepted and unused. `aggregate_num`, the number
    of weights that MXNet updates at once, is unused too: d2lmini updates all weights at once."""

    with_momentum = sgd_mom_update

    def __init__(self, momentum: float = 0.0, lazy_update: bool = True, **kwargs: Any):
        super().__init__(momentum, **kwargs)
        self.lazy_update = lazy_update
        self.aggregate_num = environment.read("MXNET_OPTIMIZER_AGGREGATION_SIZE")


@register
class ccSGD(SGD):
    """Another name for SGD."""


@register
class NAG(_StateWithMasterLast):
    """Nesterov's accelerated gradient: `nag_mom_update`."""

    with_momentum = nag_mom_update


@register
class Signum(Momentum):
    """Steps of fixed size along the momentum's sign: `signum_update`, `signsgd_update`.

    `wd_lh` is Loshchilov and Hutter's weight decay, which bypasses the momentum."""

    with_momentum = signum_update
    without = signsgd_update

    def __init__(
        self, learning_rate: float = 0.01, momentum: float = 0.9, wd_lh: float = 0.0, **kwargs: Any
    ):
        super().__init__(momentum, learning_rate=learning_rate, **kwargs)
        self.wd_lh = wd_lh

    def step(self, index: Any, lr: float, wd: float) -> tuple[Op, dict[str, Any]]:
        op, attrs = super().step(index, lr, wd)
        if self.momentum and self.wd_lh:
            attrs["wd_lh"] = self.wd_lh
        return op, attrs

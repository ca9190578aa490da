"""Elementwise optimizers: the parameters of each and the op of its formula.

The formulas are in `ops/update.py` and `ops/update_adaptive.py`. This module computes what changes
from step to step: corrections for the bias of running means that start at zero.

>>> from d2lmini import optimizer
>>> optimizer.create("nag", learning_rate=0.1, momentum=0.9).momentum
0.9
>>> optimizer.create("rmsprop", gamma1=0.9).learning_rate
0.001
"""

from __future__ import annotations

import math
from typing import Any

from d2lmini.ndarray import NDArray
from d2lmini.ops import update, update_adaptive
from d2lmini.ops.core import Op
from d2lmini.optimizer.fused import Fused
from d2lmini.optimizer.optimizer import Declared, register

Update = tuple[Op, dict[str, Any]]

# -- gradient descent with and without momentum ----------------------------------------------------


class Momentum(Fused):
    """Base class: the state is the momentum, if used; in mixed precision (momentum, copy)."""

    master_last = True
    rules = (update.sgd_update, update.sgd_mom_update)

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

    rules = (update.sgd_update, update.nag_mom_update)


@register
class Signum(Momentum):
    """Steps of fixed size along the momentum's sign: `signum_update`, `signsgd_update`.

    `wd_lh` is Loshchilov and Hutter's weight decay, which bypasses the momentum."""

    master_last = False
    rules = (update.signsgd_update, update.signum_update)

    lr: float = 0.01
    momentum: float = 0.9
    wd_lh: float = 0.0


# -- a learning rate for every element ------------------------------------------------------------


class Means(Declared):
    """Base class: running means of gradients and of squared gradients, which start at zero."""

    lr: float = 0.001
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8

    def _unbiased(self, index: Any) -> float:
        """The factor that corrects Adam's next step for the bias of the means."""
        t = self._index_update_count[index]
        return math.sqrt(1.0 - self.beta2**t) / (1.0 - self.beta1**t)


@register
class AdaGrad(Fused):
    """Divides by the root of the sum of all squared gradients so far; the state is this sum."""

    rule = update_adaptive._adagrad_update

    _aliases = Declared._aliases | {"float_stable_eps": "eps"}

    float_stable_eps: float = 1e-7

    def step(self, index: Any, lr: float, wd: float) -> Update:
        return self.rule, {"lr": lr, "epsilon": self.float_stable_eps}


@register
class RMSProp(Fused):
    """Divides by the root of a running mean (gamma1) of squared gradients. `centered`: divides by
    the gradients' standard deviation, with momentum gamma2. State: (n,), or (n, g, delta) if
    centered."""

    lr: float = 0.001
    gamma1: float = 0.9
    gamma2: float = 0.9
    epsilon: float = 1e-8
    centered: bool = False
    clip_weights: float | None = None

    @property
    def rule(self) -> Op:  # type: ignore[override]
        """The op of the variant."""
        variants = update_adaptive.rmsprop_update, update_adaptive.rmspropalex_update
        return variants[bool(self.centered)]

    def create_state(self, index: Any, weight: NDArray) -> tuple[NDArray, ...]:
        return self._inputs(super().create_state(index, weight))

    def step(self, index: Any, lr: float, wd: float) -> Update:
        rule, attrs = super().step(index, lr, wd)
        return rule, {**attrs, "clip_weights": self.clip_weights or -1.0}


@register
class AdaDelta(Fused):
    """Steps scaled by the ratio of past step sizes to past gradient sizes; no learning rate. State:
    the running means (rho) of squared gradients and squared steps."""

    rule = update_adaptive._adadelta_update

    rho: float = 0.9
    epsilon: float = 1e-5


@register
class Adam(Means, Fused):
    """Divides the mean gradient by the root of the mean square: `adam_update`."""

    rule = update_adaptive.adam_update

    lazy_update: bool = True

    def rate(self, index: Any, lr: float) -> float:
        return lr * self._unbiased(index)


@register
class AdamW(Means, Fused):
    """Adam with decoupled weight decay, applied to the weight instead of the means.

    w - lr * (mean / (sqrt(var) + epsilon) + wd * w). correct_bias: scale the step as Adam does.
    (MXNet 1.9 has only the op, `adamw_update`.)"""

    rule = update_adaptive._decoupled_adam_update

    epsilon: float = 1e-6
    correct_bias: bool = True

    def step(self, index: Any, lr: float, wd: float) -> Update:
        scale = self._unbiased(index) if self.correct_bias else 1.0
        rule, attrs = super().step(index, lr * scale, wd)
        return rule, {**attrs, "rate": lr}


@register
class Adamax(Fused):
    """Adam with a decaying maximum of gradients in place of the mean square: `_adamax_update`."""

    rule = update_adaptive._adamax_update

    lr: float = 0.002
    beta1: float = 0.9
    beta2: float = 0.999

    def rate(self, index: Any, lr: float) -> float:
        return lr / (1.0 - self.beta1 ** self._index_update_count[index])


@register
class Nadam(Means, Fused):
    """Adam with Nesterov momentum, which grows by a schedule: `_nadam_update`.

    As in MXNet all parameters share one product of past momenta, which changes with each
    parameter's update. So the order of the parameters affects the result; and over several devices
    without a KVStore that updates, copies drift apart, because each copy's update counts."""

    rule = update_adaptive._nadam_update
    m_schedule = 1.0

    schedule_decay: float = 0.004

    def step(self, index: Any, lr: float, wd: float) -> Update:
        t = self._index_update_count[index]
        now, later = (
            self.beta1 * (1.0 - 0.5 * 0.96 ** (k * self.schedule_decay)) for k in (t, t + 1)
        )
        self.m_schedule *= now
        rule, attrs = super().step(index, lr, wd)
        return rule, {
            **attrs,
            "ahead": (1.0 - now) / (1.0 - self.m_schedule),
            "along": later / (1.0 - self.m_schedule * later),
            "correction": 1.0 - self.beta2**t,
        }


@register
class FTML(Fused):
    """Follow the moving leader: `ftml_update`. State: (d, v, z). A learning rate of 0 leaves weight
    and state unchanged (MXNet sets both to nan)."""

    rule = update_adaptive.ftml_update
    clip_name = "clip_grad"
    divides_by_rate = True

    beta1: float = 0.6
    beta2: float = 0.999
    epsilon: float = 1e-8

    def step(self, index: Any, lr: float, wd: float) -> Update:
        rule, attrs = super().step(index, lr, wd)
        return rule, {**attrs, "t": self._index_update_count[index]}


@register
class Ftrl(Fused):
    """Follow the regularized leader, which sets small weights to exactly zero: `ftrl_update`.
    State: (z, n). A learning rate of 0 leaves weight and state unchanged (MXNet sets both to
    nan). A scheduler keeps its own base_lr, whatever learning_rate is."""

    rule = update_adaptive.ftrl_update
    divides_by_rate = True

    def __init__(
        self, lamda1: float = 0.01, learning_rate: float = 0.1, beta: float = 1, **kwargs: Any
    ):
        super().__init__(**kwargs)
        self.lr, self.lamda1, self.beta = learning_rate, lamda1, beta

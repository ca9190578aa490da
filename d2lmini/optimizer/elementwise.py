"""The optimizers: the parameters of each and the op of its formula.

The formulas are in `ops/update.py` and `ops/update.py`. This module computes what changes
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
from d2lmini.ops import update
from d2lmini.ops.core import Op, invoke, registry
from d2lmini.optimizer.fused import Fused
from d2lmini.optimizer.optimizer import Declared, register, zeros_like

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

    `lazy_update` is for MXNet's sparse gradients; accepted and unused."""

    lazy_update: bool = True


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

    rule = update._adagrad_update

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
        variants = update.rmsprop_update, update.rmspropalex_update
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

    rule = update._adadelta_update

    rho: float = 0.9
    epsilon: float = 1e-5


@register
class Adam(Means, Fused):
    """Divides the mean gradient by the root of the mean square: `adam_update`."""

    rule = update.adam_update

    lazy_update: bool = True

    def rate(self, index: Any, lr: float) -> float:
        return lr * self._unbiased(index)


@register
class Adamax(Fused):
    """Adam with a decaying maximum of gradients in place of the mean square: `_adamax_update`."""

    rule = update._adamax_update

    lr: float = 0.002
    beta1: float = 0.9
    beta2: float = 0.999

    def rate(self, index: Any, lr: float) -> float:
        return lr / (1.0 - self.beta1 ** self._index_update_count[index])


@register
class FTML(Fused):
    """Follow the moving leader: `ftml_update`. State: (d, v, z). A learning rate of 0 leaves weight
    and state unchanged (MXNet sets both to nan)."""

    rule = update.ftml_update
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

    rule = update.ftrl_update
    divides_by_rate = True

    def __init__(
        self, lamda1: float = 0.01, learning_rate: float = 0.1, beta: float = 1, **kwargs: Any
    ):
        super().__init__(**kwargs)
        self.lr, self.lamda1, self.beta = learning_rate, lamda1, beta


# -- steps scaled by the norms of whole parameters, for very large batches -------------------------


def _call(name: str, *inputs: NDArray, out: Any = None, **attrs: Any) -> Any:
    op = registry[name]
    return invoke(op, inputs, {**op.defaults, **attrs}, out)


@register
class LAMB(Means):
    """Adam's direction, scaled to the norm of the weight times lr: `lamb_update_phase1`, norms,
    `lamb_update_phase2`. lower_bound, upper_bound: clip the norm of the weight. The norms stay on
    the device, so no update waits."""

    epsilon: float = 1e-6
    lower_bound: float | None = None
    upper_bound: float | None = None
    bias_correction: bool = True

    def create_state(self, index: Any, weight: NDArray) -> tuple[NDArray, NDArray]:
        return zeros_like(weight), zeros_like(weight)

    def update(self, index: Any, weight: NDArray, grad: NDArray, state: Any) -> None:
        self._update_count(index)
        direction = _call(
            "lamb_update_phase1", weight, grad, *state, t=self._index_update_count[index],
            beta1=self.beta1, beta2=self.beta2, epsilon=self.epsilon,
            bias_correction=self.bias_correction, wd=self._get_wd(index),
            **self._shared(),
        )  # fmt: skip
        _call(
            "lamb_update_phase2", weight, direction, weight.norm(), direction.norm(),
            lr=self._get_lr(index), lower_bound=float(self.lower_bound or -1.0),
            upper_bound=float(self.upper_bound or -1.0), out=weight,
        )  # fmt: skip

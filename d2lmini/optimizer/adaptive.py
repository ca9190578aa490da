"""Optimizers with a learning rate for every element.

The formulas are in `ops/update_adaptive.py`. This module computes what changes from step to step:
corrections for the bias of running means that start at zero.

>>> from d2lmini import optimizer
>>> optimizer.create("rmsprop", gamma1=0.9).learning_rate
0.001
"""

from __future__ import annotations

import math
from typing import Any

from d2lmini.ndarray import NDArray
from d2lmini.ops.core import Op
from d2lmini.ops.update_adaptive import (
    _adadelta_update,
    _adagrad_update,
    _adamax_update,
    _decoupled_adam_update,
    _nadam_update,
    adam_update,
    ftml_update,
    ftrl_update,
    rmsprop_update,
    rmspropalex_update,
)
from d2lmini.optimizer.fused import Fused
from d2lmini.optimizer.optimizer import Optimizer, register, zeros_like
from d2lmini.signatures import with_parameters_of

Update = tuple[Op, dict[str, Any]]


@register
class AdaGrad(Fused):
    """Divides by the root of the sum of all squared gradients so far; the state is this sum."""

    n_states = 1

    def __init__(self, eps: float = 1e-7, **kwargs: Any):
        super().__init__(**kwargs)
        self.float_stable_eps = eps

    def step(self, index: Any, lr: float, wd: float) -> Update:
        return _adagrad_update, {"lr": lr, "epsilon": self.float_stable_eps}


@register
class RMSProp(Fused):
    """Divides by the root of a running mean (gamma1) of squared gradients. `centered`: divides by
    the gradients' standard deviation, with momentum gamma2. State: (n,), or (n, g, delta) if
    centered."""

    def __init__(
        self,
        learning_rate: float = 0.001,
        gamma1: float = 0.9,
        gamma2: float = 0.9,
        epsilon: float = 1e-8,
        centered: bool = False,
        clip_weights: float | None = None,
        **kwargs: Any,
    ):
        super().__init__(learning_rate=learning_rate, **kwargs)
        self.gamma1 = gamma1
        self.gamma2 = gamma2
        self.centered = centered
        self.epsilon = epsilon
        self.clip_weights = clip_weights

    def create_state(self, index: Any, weight: NDArray) -> tuple[NDArray, ...]:
        return tuple(zeros_like(weight) for _ in range(3 if self.centered else 1))

    def step(self, index: Any, lr: float, wd: float) -> Update:
        attrs = {"lr": lr, "gamma1": self.gamma1, "epsilon": self.epsilon}
        if self.clip_weights:
            attrs["clip_weights"] = self.clip_weights
        if self.centered:
            attrs["gamma2"] = self.gamma2
            return rmspropalex_update, attrs
        return rmsprop_update, attrs


@register
class AdaDelta(Fused):
    """Steps scaled by the ratio of past step sizes to past gradient sizes; no learning rate. State:
    the running means (rho) of squared gradients and squared steps."""

    n_states = 2

    def __init__(self, rho: float = 0.9, epsilon: float = 1e-5, **kwargs: Any):
        super().__init__(**kwargs)
        self.rho = rho
        self.epsilon = epsilon

    def step(self, index: Any, lr: float, wd: float) -> Update:
        return _adadelta_update, {"rho": self.rho, "epsilon": self.epsilon}


class Means(Optimizer):
    """Base class: running means of gradients and of squared gradients, which start at zero."""

    def __init__(
        self,
        learning_rate: float = 0.001,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-8,
        **kwargs: Any,
    ):
        super().__init__(learning_rate=learning_rate, **kwargs)
        self.beta1 = beta1
        self.beta2 = beta2
        self.epsilon = epsilon


class _Means(Means, Fused):
    """Base class: `Means`, updated by one op."""

    n_states = 2

    def _attrs(self, lr: float) -> dict[str, Any]:
        return {"lr": lr, "beta1": self.beta1, "beta2": self.beta2, "epsilon": self.epsilon}

    def _unbiased(self, index: Any) -> float:
        """The factor that corrects the step for the bias of the means."""
        t = self._index_update_count[index]
        return math.sqrt(1.0 - self.beta2**t) / (1.0 - self.beta1**t)


@register
class Adam(_Means):
    """Divides the mean gradient by the root of the mean square: `adam_update`."""

    @with_parameters_of(Means.__init__)
    def __init__(self, *, lazy_update: bool = True, **kwargs: Any):
        super().__init__(**kwargs)
        self.lazy_update = lazy_update

    def step(self, index: Any, lr: float, wd: float) -> Update:
        return adam_update, self._attrs(lr * self._unbiased(index))


@register
class AdamW(_Means):
    """Adam with decoupled weight decay, applied to the weight instead of the means.

    w - lr * (mean / (sqrt(var) + epsilon) + wd * w). correct_bias: scale the step as Adam does.
    (MXNet 1.9 has only the op, `adamw_update`.)"""

    @with_parameters_of(Means.__init__)
    def __init__(self, *, epsilon: float = 1e-6, correct_bias: bool = True, **kwargs: Any):
        super().__init__(epsilon=epsilon, **kwargs)
        self.correct_bias = correct_bias

    def step(self, index: Any, lr: float, wd: float) -> Update:
        scale = self._unbiased(index) if self.correct_bias else 1.0
        return _decoupled_adam_update, {**self._attrs(lr * scale), "rate": lr}


@register
class Adamax(Fused):
    """Adam with a decaying maximum of gradients in place of the mean square: `_adamax_update`."""

    n_states = 2

    def __init__(
        self, learning_rate: float = 0.002, beta1: float = 0.9, beta2: float = 0.999, **kwargs: Any
    ):
        super().__init__(learning_rate=learning_rate, **kwargs)
        self.beta1 = beta1
        self.beta2 = beta2

    def step(self, index: Any, lr: float, wd: float) -> Update:
        lr /= 1.0 - self.beta1 ** self._index_update_count[index]
        return _adamax_update, {"lr": lr, "beta1": self.beta1, "beta2": self.beta2}


@register
class Nadam(_Means):
    """Adam with Nesterov momentum, which grows by a schedule: `_nadam_update`.

    As in MXNet all parameters share one product of past momenta, which changes with each
    parameter's update. So the order of the parameters affects the result."""

    @with_parameters_of(Means.__init__)
    def __init__(self, *, schedule_decay: float = 0.004, **kwargs: Any):
        super().__init__(**kwargs)
        self.schedule_decay = schedule_decay
        self.m_schedule = 1.0

    def step(self, index: Any, lr: float, wd: float) -> Update:
        t = self._index_update_count[index]
        now, later = (
            self.beta1 * (1.0 - 0.5 * 0.96 ** (k * self.schedule_decay)) for k in (t, t + 1)
        )
        self.m_schedule *= now
        return _nadam_update, {
            **self._attrs(lr),
            "ahead": (1.0 - now) / (1.0 - self.m_schedule),
            "along": later / (1.0 - self.m_schedule * later),
            "correction": 1.0 - self.beta2**t,
        }


@register
class FTML(Fused):
    """Follow the moving leader: `ftml_update`. State: (d, v, z). A learning rate of 0 leaves weight
    and state unchanged (MXNet sets both to nan)."""

    n_states = 3
    clip_name = "clip_grad"
    divides_by_rate = True

    def __init__(
        self, beta1: float = 0.6, beta2: float = 0.999, epsilon: float = 1e-8, **kwargs: Any
    ):
        super().__init__(**kwargs)
        self.beta1 = beta1
        self.beta2 = beta2
        self.epsilon = epsilon

    def step(self, index: Any, lr: float, wd: float) -> Update:
        t = self._index_update_count[index]
        return ftml_update, {
            "lr": lr, "t": t, "beta1": self.beta1, "beta2": self.beta2, "epsilon": self.epsilon,
        }  # fmt: skip


@register
class Ftrl(Fused):
    """Follow the regularized leader, which sets small weights to exactly zero: `ftrl_update`.
    State: (z, n). A learning rate of 0 leaves weight and state unchanged (MXNet sets both to
    nan). A scheduler keeps its own base_lr, whatever learning_rate is."""

    n_states = 2
    divides_by_rate = True

    def __init__(
        self, lamda1: float = 0.01, learning_rate: float = 0.1, beta: float = 1, **kwargs: Any
    ):
        super().__init__(**kwargs)
        self.lr = learning_rate
        self.lamda1 = lamda1
        self.beta = beta

    def step(self, index: Any, lr: float, wd: float) -> Update:
        return ftrl_update, {"lr": lr, "lamda1": self.lamda1, "beta": self.beta}

"""Elementwise optimizers: one engine task updates all parameters.

A subclass names the op that updates a parameter, or defines `step`; the state holds the op's other
inputs. `update` takes one parameter, as MXNet's optimizers do, or lists of parameters. A list
becomes a single `_fused_update`, which splits the work into pieces for all cores, and into blocks
that fit in the cache.

Mixed precision needs no other code: the same op runs on the float32 copy.

>>> from d2lmini import nd, optimizer
>>> adam = optimizer.Adam(learning_rate=0.1)
>>> weights = [nd.ones(2), nd.ones(3)]
>>> grads = [nd.array([1, -1]), nd.array([2, 0, -2])]
>>> states = [adam.create_state(i, w) for i, w in enumerate(weights)]
>>> adam.update([0, 1], weights, grads, states)
>>> weights[1].asnumpy().round(3).tolist()
[0.8999999761581421, 1.0, 1.100000023841858]

The optimizers follow: the parameters of each and the op of its formula, which is in
`ops/update.py`, and what changes from step to step: corrections for the bias of running means that
start at zero.

>>> optimizer.create("nag", learning_rate=0.1, momentum=0.9).momentum
0.9
>>> optimizer.create("rmsprop", gamma1=0.9).learning_rate
0.001
"""

from __future__ import annotations

import math
from typing import Any, ClassVar

from d2lmini import ndarray as nd
from d2lmini.ndarray import NDArray
from d2lmini.ops import update
from d2lmini.ops.core import Op, invoke, registry
from d2lmini.ops.update import mixed_form
from d2lmini.ops.update_multi import UpdateStep
from d2lmini.optimizer.optimizer import Declared, register, zeros_like

_UPDATE = registry["_fused_update"]


class Fused(Declared):
    """Base class: updates each parameter by one op, all parameters in one task."""

    #: The op. Its hyper-parameters are the optimizer's attributes of the same names.
    rule: ClassVar[Any] = None
    #: The op's name for the bound of gradients.
    clip_name = "clip_gradient"
    #: True if the formula divides by the learning rate; a rate of 0 then skips the step.
    divides_by_rate = False

    def step(self, index: Any, lr: float, wd: float) -> tuple[Op, dict[str, Any]]:
        """The op and its attributes for this parameter's next update, without those common to all
        ops: wd, rescale_grad, clip_gradient."""
        if self.rule is None:
            raise NotImplementedError(f"{type(self).__name__} has no step(index, lr, wd)")
        own = vars(self)
        attrs = {name: own[name] for name in self.rule.attr_names if own.get(name) is not None}
        if "lr" in self.rule.attr_set:
            attrs["lr"] = float(self.rate(index, lr))
        return self.rule, attrs

    def rate(self, index: Any, lr: float) -> float:
        """The op's learning rate for this parameter's next update."""
        return lr

    @property
    def n_states(self) -> int:
        """Number of zero arrays in the initial state; 0 means None, 1 means an NDArray."""
        return 0 if self.rule is None else len(self.rule.input_names) - 2

    @property
    def takes_lists(self) -> bool:
        """True if `update` accepts lists of parameters; False if a subclass overrides `update`."""
        kind = type(self)
        return (
            kind.update is Fused.update
            and kind.update_multi_precision is Fused.update_multi_precision
        )

    def create_state(self, index: Any, weight: NDArray) -> Any:
        zeros = tuple(zeros_like(weight) for _ in range(self.n_states))
        return zeros if len(zeros) > 1 else zeros[0] if zeros else None

    def update(self, index: Any, weight: Any, grad: Any, state: Any) -> None:
        """Update one weight, or a list of weights with lists of the other arguments."""
        self._push(index, weight, grad, state, False)

    def update_multi_precision(self, index: Any, weight: Any, grad: Any, state: Any) -> None:
        """`update` that updates float16 weights through their float32 copies."""
        if type(self).update is not Fused.update:
            super().update_multi_precision(index, weight, grad, state)
        else:
            self._push(index, weight, grad, state, self.multi_precision)

    def _push(self, index: Any, weight: Any, grad: Any, state: Any, mixed: bool) -> None:
        if not isinstance(index, (list, tuple)):
            index, weight, grad, state = [index], [weight], [grad], [state]
        self._update_count(index)
        lrs, wds = self._get_lrs(index), self._get_wds(index)
        self._update_rows(list(zip(index, weight, grad, state, lrs, wds, strict=True)), mixed)

    def _update_rows(self, rows: list[tuple], mixed: bool) -> None:
        """Update weights. rows: (index, weight, gradient, state, rate, decay)."""
        shared = self._shared(self.clip_name)
        steps: list[UpdateStep] = []
        data: list[NDArray] = []
        for i, w, g, s, lr, wd in rows:
            if not lr and self.divides_by_rate:
                continue
            op, attrs = self.step(i, lr, wd)
            data += (w, g)
            if mixed and self._is_mixed(w):
                op, (master, inner) = mixed_form(op), self._split(s)
                data += (*self._inputs(inner), master)
            else:
                data += self._inputs(s)
            steps.append(UpdateStep(op, {**attrs, "wd": float(wd), **shared}))
        if data:
            invoke(_UPDATE, tuple(data), {"steps": steps}, None)

    def _inputs(self, state: Any) -> tuple[NDArray, ...]:
        """The inputs of the op after weight and gradient."""
        if state is None:
            return ()
        return tuple(state) if isinstance(state, (tuple, list)) else (state,)


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


@register
class LAMB(Means):
    """Adam's direction, `lamb_update_phase1`, scaled to the norm of the weight times lr: w -=
    lr * |w| / |direction| * direction, or lr * direction where a norm is 0. lower_bound,
    upper_bound: clip |w|. The norms stay on the device, so no update waits."""

    epsilon: float = 1e-6
    lower_bound: float | None = None
    upper_bound: float | None = None
    bias_correction: bool = True

    def create_state(self, index: Any, weight: NDArray) -> tuple[NDArray, NDArray]:
        return zeros_like(weight), zeros_like(weight)

    def update(self, index: Any, weight: NDArray, grad: NDArray, state: Any) -> None:
        self._update_count(index)
        direction = update.lamb_update_phase1(
            weight, grad, *state, t=self._index_update_count[index],
            beta1=self.beta1, beta2=self.beta2, epsilon=self.epsilon,
            bias_correction=self.bias_correction, wd=self._get_wd(index),
            **dict[str, Any](self._shared()),
        )  # fmt: skip
        length, of_direction = weight.norm(), direction.norm()
        length = nd.maximum(length, self.lower_bound) if self.lower_bound else length
        length = nd.minimum(length, self.upper_bound) if self.upper_bound else length
        ratio = length / of_direction
        ratio = nd.where((length == 0) + (of_direction == 0), ratio.ones_like(), ratio)
        weight -= direction * (ratio * self._get_lr(index))

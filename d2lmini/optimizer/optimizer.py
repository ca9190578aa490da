"""Base class of all optimizers: the rate and the decay of each parameter's next update.

    rate    lr (or lr_scheduler(num_update)) times lr_mult of the parameter
    decay   wd times wd_mult of the parameter

A parameter is identified by its index. The multipliers come from the Parameter itself if there is
one (`param_dict`, read at every update), otherwise from the tables that `set_lr_mult` and
`set_wd_mult` fill, by index. `num_update` is the largest number of updates of any parameter.

A new optimizer is a subclass that defines `create_state` and `update` with ops on NDArrays:

>>> from d2lmini import nd, optimizer
>>> @optimizer.register
... class Halving(optimizer.Optimizer):
...     def create_state(self, index, weight):
...         return None
...     def update(self, index, weight, grad, state):
...         self._update_count(index)
...         weight[:] = weight / 2
>>> halving = optimizer.create("halving")
>>> weight = nd.ones(1)
>>> halving.update(0, weight, weight, None)
>>> weight.asscalar(), halving.num_update
(np.float32(0.5), 1)
>>> del optimizer.Optimizer.opt_registry["halving"]

**The optimizers** update elementwise, all parameters in one engine task. A subclass names the op
that updates a parameter, or defines `step`; the state holds the op's other inputs. `update` takes
one parameter, as MXNet's optimizers do, or lists of parameters. A list
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
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np

from d2lmini import ndarray as nd
from d2lmini.base import MXNetError, callsite, families
from d2lmini.base.dtypes import is_half
from d2lmini.base.families import Family
from d2lmini.ndarray import NDArray, zeros
from d2lmini.ops import update
from d2lmini.ops.core import invoke, registry
from d2lmini.ops.update import UpdateStep
from d2lmini.ops.update_program import Update, mixed_form


class Optimizer:
    """Base class: learning rates, weight decays, counts of updates; see this module.

    rescale_grad: a factor applied first to every gradient. clip_gradient: the bound of gradient
    elements, or None. learning_rate: 0.01 if neither a rate nor a scheduler is given; if both are
    given, the rate becomes the scheduler's base_lr. multi_precision: update weights of 16 bits
    through a float32 copy. param_dict: Parameters by index. sym and param_idx2name, of which
    MXNet's modules made multipliers, are left out: MXNetError.
    """

    #: Optimizer classes by lower-case name.
    opt_registry: ClassVar[Family]
    #: In mixed precision, states are (state, float32 copy), as of SGD and NAG; else the reverse.
    master_last = False

    def __init__(
        self, rescale_grad: float = 1.0, param_idx2name: dict[Any, str] | None = None,
        wd: float = 0.0, clip_gradient: float | None = None, learning_rate: float | None = None,
        lr_scheduler: Callable[[int], float] | None = None, sym: None = None,
        begin_num_update: int = 0, multi_precision: bool = False,
        param_dict: dict[Any, Any] | None = None,
    ):  # fmt: skip
        if sym is not None or param_idx2name:
            raise MXNetError(
                "sym and param_idx2name are left out; say the multipliers by index, with "
                "set_lr_mult and set_wd_mult"
            )
        self.rescale_grad = rescale_grad
        self.lr_scheduler: Any = lr_scheduler
        if lr_scheduler is None:
            self.lr: Any = 0.01 if learning_rate is None else learning_rate
        else:
            if learning_rate is not None:
                lr_scheduler.base_lr = learning_rate  # type: ignore[attr-defined]
            self.lr = learning_rate
        self.wd = wd
        self.lr_mult: dict[Any, float] = {}
        self.wd_mult: dict[Any, float] = {}
        self.begin_num_update = begin_num_update
        self.num_update = begin_num_update
        # Counts by index, separate for each device: several devices share one optimizer.
        self._all_index_update_counts: dict[int, dict[Any, int]] = {0: {}}
        self._index_update_count = self._all_index_update_counts[0]
        self.clip_gradient = clip_gradient
        self.multi_precision = multi_precision
        self.param_dict: dict[Any, Any] = dict(param_dict or {})
        self.allow_np_array = False

    # -- names -------------------------------------------------------------------------------------

    @staticmethod
    def register(klass: type[Optimizer]) -> type[Optimizer]:
        """Register a class under its lower-case name for `create`; a decorator."""
        return Optimizer.opt_registry.register(klass)

    @staticmethod
    def create_optimizer(name: str, **kwargs: Any) -> Optimizer:
        """Make an optimizer by name with the class's keywords. ValueError for an unknown name."""
        return Optimizer.opt_registry.create(name, **kwargs)

    # -- what subclasses fill in -------------------------------------------------------------------

    def create_state(self, index: Any, weight: NDArray) -> Any:
        """Make the state for updates of this weight: None, an NDArray, or a tuple."""
        return None

    def update(self, index: Any, weight: NDArray, grad: NDArray, state: Any) -> None:
        """Update `weight` and `state` in place with the gradient."""
        raise NotImplementedError(
            f"{type(self).__name__} has no update(index, weight, grad, state)"
        )

    def create_state_multi_precision(self, index: Any, weight: NDArray) -> Any:
        """`create_state`; in mixed precision (float32 copy of the weight, state of that copy). A
        float16 weight without multi_precision gives a UserWarning."""
        if self._is_mixed(weight):
            master = weight.astype(np.float32)
            inner = self.create_state(index, master)
            return (inner, master) if self.master_last else (master, inner)
        if is_half(weight.dtype):
            callsite.warn(
                f"Accumulating with {np.dtype(weight.dtype).name} in optimizer can lead to poor "
                "accuracy or slow convergence. Consider using multi_precision=True option of the "
                "optimizer"
            )
        return self.create_state(index, weight)

    def update_multi_precision(
        self, index: Any, weight: NDArray, grad: NDArray, state: Any
    ) -> None:
        """`update`; in mixed precision updates the float32 copy, then casts it to the weight."""
        if self._is_mixed(weight):
            master, inner = self._split(state)
            self.update(index, master, grad.astype(np.float32), inner)
            master.astype(weight.dtype).copyto(weight)
        else:
            self.update(index, weight, grad, state)

    def _split(self, state: Any) -> tuple[NDArray, Any]:
        """Split a mixed-precision state into (float32 copy, state of that copy)."""
        return state[::-1] if self.master_last else state

    def _is_mixed(self, weight: NDArray) -> bool:
        return self.multi_precision and is_half(weight.dtype)

    # -- rates and decays --------------------------------------------------------------------------

    @property
    def learning_rate(self) -> float:
        """The current rate, before multipliers."""
        return self.lr if self.lr_scheduler is None else self.lr_scheduler(self.num_update)

    def set_learning_rate(self, lr: float) -> None:
        """Change the rate; raises UserWarning if a scheduler sets the rate."""
        if self.lr_scheduler is not None:
            raise UserWarning(
                "LRScheduler of the optimizer has already been defined. Note that "
                "set_learning_rate can mutate the value of the learning rate of the optimizer "
                "only when the LRScheduler of the optimizer is undefined."
            )
        self.lr = lr

    def set_lr_mult(self, args_lr_mult: dict[Any, float]) -> None:
        """Set multipliers of the rate, by index."""
        self.lr_mult = dict(args_lr_mult)

    def set_wd_mult(self, args_wd_mult: dict[Any, float]) -> None:
        """Set multipliers of the decay, by index."""
        self.wd_mult = dict(args_wd_mult)

    def _set_current_context(self, device_id: int) -> None:
        """Count the following updates as updates on this device."""
        self._index_update_count = self._all_index_update_counts.setdefault(device_id, {})

    def _update_count(self, index: Any) -> None:
        """Count one more update of each index."""
        counts = self._index_update_count
        for i in index if isinstance(index, (list, tuple)) else (index,):
            counts[i] = count = counts.get(i, self.begin_num_update) + 1
            if count > self.num_update:
                self.num_update = count

    def _get_lrs(self, indices: Sequence[Any]) -> list[float]:
        """The current rates of these parameters."""
        return self._multiply(self.learning_rate, indices, "lr_mult", self.lr_mult)

    def _get_wds(self, indices: Sequence[Any]) -> list[float]:
        """The current weight decays of these parameters."""
        return self._multiply(self.wd, indices, "wd_mult", self.wd_mult)

    def _get_lr(self, index: Any) -> float:
        """The current rate of one parameter."""
        return self._get_lrs([index])[0]

    def _get_wd(self, index: Any) -> float:
        """The current weight decay of one parameter."""
        return self._get_wds([index])[0]

    def _multiply(
        self, value: float, indices: Sequence[Any], of_parameter: str, table: dict[Any, float]
    ) -> list[float]:
        """`value` times the multiplier of each parameter."""
        products = []
        for index in indices:
            param = self.param_dict.get(index)
            factor = table.get(index, 1.0) if param is None else getattr(param, of_parameter)
            products.append(value * factor + 0.0)  # -0.0 is 0.0, which is equal
        return products

    # -- pickling ----------------------------------------------------------------------------------

    def __getstate__(self) -> dict[str, Any]:
        """The state without the Parameters, which belong to a net."""
        return {k: v for k, v in self.__dict__.items() if k != "param_dict"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, param_dict={})
        # The current device's table is one of all tables, and it is set before each use.
        self._index_update_count = self._all_index_update_counts.setdefault(0, {})


class Declared(families.Declared, Optimizer):
    """Base class: class attributes with a type and a value are the parameters of the constructor,
    and become attributes of the optimizer. Their order is MXNet's: `lr`, as `learning_rate`, those
    of base classes, those of the class; then the keywords of `Optimizer`.

    >>> class Scaled(Declared):
    ...     factor: float = 2.0
    ...     lr: float = 0.5
    >>> Scaled(wd=0.1).learning_rate, Scaled(0.25, 3.0).factor
    (0.5, 3.0)
    """

    _places = {"lr": -1}
    _aliases = {"lr": "learning_rate"}
    _passes_on = ("kwargs",)

    def __init__(self, *args: Any, **kwargs: Any):
        own, rest = self._take(args, kwargs)
        if "learning_rate" in own:
            rest["learning_rate"] = own["learning_rate"]
        Optimizer.__init__(self, **rest)

    def _shared(self, clip_name: str = "clip_gradient") -> dict[str, float]:
        """The hyper-parameters of all ops, but for rate and decay."""
        clip = float(self.clip_gradient or -1.0)
        return {"rescale_grad": float(self.rescale_grad), clip_name: clip}


Optimizer.opt_registry = Family(Optimizer, "optimizer")
register = Optimizer.register
create = Optimizer.create_optimizer


def zeros_like(weight: NDArray) -> NDArray:
    """An initial state: zeros with the weight's shape, dtype and context."""
    return zeros(weight.shape, ctx=weight.context, dtype=weight.dtype)


_UPDATE = registry["_fused_update"]


class Fused(Declared):
    """Base class: updates each parameter by one op, all parameters in one task."""

    #: The op. Its hyper-parameters are the optimizer's attributes of the same names.
    rule: ClassVar[Any] = None
    #: The op's name for the bound of gradients.
    clip_name = "clip_gradient"
    #: True if the formula divides by the learning rate; a rate of 0 then skips the step.
    divides_by_rate = False

    def step(self, index: Any, lr: float, wd: float) -> Choice:
        """The op and its attributes for this parameter's next update, without those common to all
        ops: wd, rescale_grad, clip_gradient."""
        if self.rule is None:
            raise NotImplementedError(f"{type(self).__name__} has no step(index, lr, wd)")
        own = vars(self)
        attrs = {name: own[name] for name in self.rule.attr_names if own.get(name) is not None}
        if "lr" in self.rule.attr_set:
            attrs["lr"] = float(self.rate(index, lr))
        if "t" in self.rule.attr_set:
            attrs["t"] = self._index_update_count[index]
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
        """Push the updates of all these weights as one task."""
        if not isinstance(index, (list, tuple)):
            index, weight, grad, state = [index], [weight], [grad], [state]
        self._update_count(index)
        lrs, wds = self._get_lrs(index), self._get_wds(index)
        shared = self._shared(self.clip_name)
        steps: list[UpdateStep] = []
        data: list[NDArray] = []
        for i, w, g, s, lr, wd in zip(index, weight, grad, state, lrs, wds, strict=True):
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


#: What `Fused.step` returns: the op of an update, and its attributes.
Choice = tuple[Update, dict[str, Any]]

# -- gradient descent with and without momentum ----------------------------------------------------


class Momentum(Fused):
    """Base class: the state is the momentum, if used; in mixed precision (momentum, copy)."""

    master_last = True
    rules = (update.sgd_update, update.sgd_mom_update)

    momentum: float = 0.0

    @property
    def rule(self) -> Update:  # type: ignore[override]
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


@register
class AdaGrad(Fused):
    """Divides by the root of the sum of all squared gradients so far; the state is this sum."""

    rule = update._adagrad_update

    _aliases = Declared._aliases | {"float_stable_eps": "eps"}

    float_stable_eps: float = 1e-7


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
    def rule(self) -> Update:  # type: ignore[override]
        """The op of the variant."""
        variants = update.rmsprop_update, update.rmspropalex_update
        return variants[bool(self.centered)]

    def create_state(self, index: Any, weight: NDArray) -> tuple[NDArray, ...]:
        return self._inputs(super().create_state(index, weight))

    def step(self, index: Any, lr: float, wd: float) -> Choice:
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
        t = self._index_update_count[index]  # the means start at zero: correct the bias
        return lr * (math.sqrt(1.0 - self.beta2**t) / (1.0 - self.beta1**t))


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

"""Base class of all optimizers: the rate and the decay of each parameter's next update.

    rate    lr (or lr_scheduler(num_update)) times lr_mult of the parameter
    decay   wd times wd_mult of the parameter

A parameter is identified by its index. The multipliers come from the Parameter itself if there is
one (`param_dict`, read at every update), otherwise from the tables that `set_lr_mult` and
`set_wd_mult` fill, by index or by name. `num_update` is the largest number of updates of any
parameter.

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
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np

from d2lmini.base import MXNetError, callsite, families
from d2lmini.base.dtypes import is_half
from d2lmini.base.families import Family
from d2lmini.ndarray import NDArray, zeros


class Optimizer:
    """Base class: learning rates, weight decays, counts of updates; see this module.

    rescale_grad: a factor applied first to every gradient. clip_gradient: the bound of gradient
    elements, or None. learning_rate: 0.01 if neither a rate nor a scheduler is given; if both are
    given, the rate becomes the scheduler's base_lr. multi_precision: update weights of 16 bits
    through a float32 copy. param_idx2name: names of the indices, a dict (otherwise AssertionError);
    weight decay is then 0 for names that do not end in `_weight` or `_gamma`. param_dict:
    Parameters by index. sym, of which MXNet reads multipliers, is left out: MXNetError.
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
        if sym is not None:
            raise MXNetError(
                "sym is left out; say its multipliers with set_lr_mult and set_wd_mult"
            )
        if param_idx2name is not None and not isinstance(param_idx2name, dict):
            raise AssertionError("param_idx2name should be a dict of param indexes to names.")
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
        self.idx2name = dict(param_idx2name or {})
        self.param_dict: dict[Any, Any] = dict(param_dict or {})
        self.allow_np_array = False
        self.set_lr_mult({})
        self.set_wd_mult({})

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
        """Set multipliers of the rate, by index or name."""
        self.lr_mult = dict(args_lr_mult)

    def set_wd_mult(self, args_wd_mult: dict[Any, float]) -> None:
        """Set multipliers of the decay, by index or name. Names that are neither weight nor gamma
        have multiplier 0 by default."""
        self.wd_mult = {
            name: 0.0 for name in self.idx2name.values() if not name.endswith(("_weight", "_gamma"))
        }
        self.wd_mult.update(args_wd_mult)

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
            if param is not None:
                products.append(value * getattr(param, of_parameter))
            elif table:
                name = self.idx2name.get(index, index)
                products.append(value * table.get(index, table.get(name, 1.0)))
            else:
                products.append(value)
        return [product + 0.0 for product in products]  # -0.0 is 0.0, which is equal

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

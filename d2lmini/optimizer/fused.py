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
"""

from __future__ import annotations

from typing import Any, ClassVar

from d2lmini.ndarray import NDArray
from d2lmini.ops.core import Op, invoke, registry
from d2lmini.ops.update import mixed_form
from d2lmini.ops.update_multi import UpdateStep
from d2lmini.optimizer.optimizer import Declared, zeros_like

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

"""Optimizers that scale rates by the norms of whole parameters, for very large batches.

The norms stay on the device, so no update waits. See `ops/update_norms.py`.

>>> from d2lmini import nd, optimizer
>>> lars = optimizer.create("lars", learning_rate=1.0, eta=0.5)
>>> weight = nd.array([3, 4])
>>> lars.update(0, weight, nd.array([30, 40]), None)
>>> weight.asnumpy().round(3).tolist()                # half of |weight|, for any |grad|
[1.5, 2.0]
"""

from __future__ import annotations

from typing import Any, cast

import numpy as np

from d2lmini.ndarray import NDArray, array
from d2lmini.ops.core import invoke, registry
from d2lmini.optimizer.elementwise import Means, Momentum
from d2lmini.optimizer.optimizer import register, zeros_like


def _call(name: str, *inputs: NDArray, out: Any = None, **attrs: Any) -> Any:
    op = registry[name]
    return invoke(op, inputs, {**op.defaults, **attrs}, out)


@register
class LAMB(Means):
    """Adam's direction, scaled to the norm of the weight times lr: `lamb_update_phase1`, norms,
    `lamb_update_phase2`. lower_bound, upper_bound: clip the norm of the weight."""

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


@register
class LARS(Momentum):
    """SGD with the rate lr * eta * |weight| / (|grad| + wd * |weight| + eps).

    Parameters whose names end in gamma, beta or bias use the rate lr. momentum_correction: scale
    the momentum when lr changes. Updates lists at once, as SGD does: sums of squares, rates,
    step."""

    last_lr = cur_lr = cast("float | None", None)

    lazy_update: bool = True
    eta: float = 0.001
    eps: float = 0
    momentum_correction: bool = True

    def _get_lrs(self, indices: Any) -> list[float]:
        self.last_lr = self.cur_lr
        self.cur_lr = self.learning_rate
        if self.last_lr is None:
            self.last_lr = self.cur_lr
        return super()._get_lrs(indices)

    def _update_rows(self, rows: list[tuple], mixed: bool) -> None:
        for wide in (False, True):
            some = [row for row in rows if (mixed and self._is_mixed(row[1])) == wide]
            if some:
                self._update_alike(*zip(*some), mixed=wide)

    def _update_alike(
        self, index: tuple, weight: tuple, grad: tuple, state: tuple, lrs: tuple, wds: tuple, *,
        mixed: bool,
    ) -> None:  # fmt: skip
        """Update weights that are all in mixed precision, or none."""
        ctx = weight[0].context
        rates, decays = (array(v, ctx=ctx, dtype=np.float32) for v in (lrs, wds))
        squares = [
            _call("multi_sum_sq", *arrays, num_arrays=len(arrays)) for arrays in (weight, grad)
        ]
        scaled = _call(
            "multi_lars", rates, *squares, decays, eta=float(self.eta), eps=float(self.eps),
            rescale_grad=float(self.rescale_grad),
        )  # fmt: skip
        ends = ("gamma", "beta", "bias")
        plain = [float(self.idx2name.get(i, "").endswith(ends)) for i in index]
        if any(plain):
            scaled = _call("where", array(plain, ctx=ctx), rates, scaled)
        attrs: dict[str, Any] = {**self._shared(), "num_weights": len(weight)}
        name = "preloaded_multi_mp_sgd" if mixed else "preloaded_multi_sgd"
        if self.momentum:
            name += "_mom"
            attrs["momentum"] = float(self.momentum)
            if self.momentum_correction and self.last_lr and self.cur_lr is not None:
                attrs["momentum"] *= self.cur_lr / self.last_lr
        data: list[NDArray] = []
        for w, g, s in zip(weight, grad, state, strict=True):
            master, inner = self._split(s) if mixed else (None, s)
            data += (w, g, *self._inputs(inner), *((master,) if mixed else ()))
        _call(name + "_update", *data, scaled, decays, out=list(weight), **attrs)

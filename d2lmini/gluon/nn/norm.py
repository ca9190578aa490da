"""Normalization layers: over the batch, over an axis, over a channel, over groups of channels.

>>> from d2lmini import autograd, nd
>>> from d2lmini.gluon import nn
>>> net = nn.BatchNorm(momentum=0.5)
>>> net.initialize()
>>> x = nd.array([[1, 10], [3, 30]])
>>> with autograd.record():             # training: mean and variance of this batch
...     y = net(x)
>>> y.round()
<BLANKLINE>
[[-1. -1.]
 [ 1.  1.]]
<NDArray 2x2 @cpu(0)>
>>> net.running_mean.data()             # 0.5 * 0 + 0.5 * (2, 20): used when not training
<BLANKLINE>
[ 1. 10.]
<NDArray 2 @cpu(0)>

Each layer normalizes its data to mean 0 and variance 1, then multiplies by a learnt gamma and adds
a learnt beta. With `center=False` beta stays 0, and with `scale=False` gamma stays 1: the
parameters exist, but get no gradient. The formulas are in `ops/normalization.py`.
"""

from __future__ import annotations

from typing import Any

from d2lmini.base import MXNetError
from d2lmini.base.dtypes import is_half
from d2lmini.gluon.hybrid_block import Layer
from d2lmini.gluon.utils import shape_is_known
from d2lmini.ops.core import as_dtype


class _Normalization(Layer):
    """Base class: gamma and beta, with one number for each channel of `axis`."""

    epsilon: float = 1e-5
    center: bool = True
    scale: bool = True
    beta_initializer: Any = "zeros"
    gamma_initializer: Any = "ones"

    axis: int
    in_channels: int
    _kwargs: dict[str, Any]  # what `repr` shows

    def _build(self) -> None:
        self._kwargs = {
            "eps": self.epsilon, "axis": self.axis, "center": self.center, "scale": self.scale,
        }  # fmt: skip
        self._one_per_channel("gamma", self.gamma_initializer, self.scale)
        self._one_per_channel("beta", self.beta_initializer, self.center)

    def _one_per_channel(self, name: str, init: Any, learnt: bool) -> None:
        how = {"grad_req": "write" if learnt else "null", "differentiable": learnt}
        shape = (self.in_channels,)
        parameter = self.params.get(name, shape=shape, init=init, allow_deferred_init=True, **how)
        setattr(self, name, parameter)

    def infer_shape(self, x: Any) -> None:
        """Set the number of channels from `x`; MXNetError if `x` has no such axis."""
        if not -len(x.shape) <= self.axis < len(x.shape):
            raise MXNetError(
                f"{type(self).__name__}: axis={self.axis} is out of range for data {x.shape}"
            )
        for parameter in self._reg_params.values():
            if not shape_is_known(parameter.shape):  # quicker than by the graph of a call
                parameter.shape = (x.shape[self.axis],)

    def _shown(self) -> dict[str, Any]:
        return {**self._kwargs, "in_channels": self.gamma.shape[0]}

    def __repr__(self) -> str:
        how = ", ".join(f"{key}={value!r}" for key, value in self._shown().items())
        return f"{type(self).__name__}({how})"


class BatchNorm(_Normalization):
    """Normalize each channel (`axis`) over the batch; shape kept.

    Training uses the mean and variance of the batch, and updates running_* = momentum running_* +
    (1 - momentum) batch's. Otherwise, or with use_global_stats, the layer uses running_mean and
    running_var, which have no gradient. All four parameters have one number per channel, and stay
    float32 when the layer is cast to 16 bits. S. Ioffe and C. Szegedy, "Batch Normalization"
    (2015).
    """

    _places = {"axis": -2, "momentum": -2, "epsilon": -1, "center": -1, "scale": -1,
               "use_global_stats": -1}  # fmt: skip

    axis: int = 1
    momentum: float = 0.9
    use_global_stats: bool = False
    running_mean_initializer: Any = "zeros"
    running_variance_initializer: Any = "ones"
    in_channels: int = 0

    def _build(self) -> None:
        super()._build()
        self._one_per_channel("running_mean", self.running_mean_initializer, False)
        self._one_per_channel("running_var", self.running_variance_initializer, False)
        self._kwargs = {
            "axis": self.axis, "eps": self.epsilon, "momentum": self.momentum,
            "fix_gamma": not self.scale, "use_global_stats": self.use_global_stats,
        }  # fmt: skip

    def cast(self, dtype: Any) -> None:
        """Cast the layer; data of 16 bits is normalized with float32 parameters."""
        super().cast("float32" if is_half(as_dtype(dtype)) else dtype)

    def hybrid_forward(
        self, F: Any, x: Any, gamma: Any, beta: Any, running_mean: Any, running_var: Any
    ) -> Any:
        return F.BatchNorm(x, gamma, beta, running_mean, running_var, name="fwd", **self._kwargs)

    def _shown(self) -> dict[str, Any]:
        return {**self._kwargs, "in_channels": self.gamma.shape[0] or None}


class BatchNormReLU(BatchNorm):
    """BatchNorm, then max(y, 0)."""

    def hybrid_forward(self, F: Any, x: Any, *args: Any, **params: Any) -> Any:
        return F.relu(super().hybrid_forward(F, x, *args, **params))


class LayerNorm(_Normalization):
    """Normalize along one axis, by default the last; gamma and beta have its length; shape kept.

    J. Ba et al., "Layer Normalization" (2016).
    """

    _places = {"axis": -1}
    _passes_on = "prefix", "params"

    axis: int = -1
    in_channels: int = 0

    def hybrid_forward(self, F: Any, data: Any, gamma: Any, beta: Any) -> Any:
        return F.LayerNorm(data, gamma, beta, axis=self.axis, eps=self.epsilon)


class InstanceNorm(_Normalization):
    """Normalize each channel (`axis`) of each image; gamma and beta have one number per channel;
    shape kept. gamma is 1 unless scale=True. D. Ulyanov et al., "Instance Normalization" (2016).
    """

    _places = {"axis": -1}

    axis: int = 1
    scale: bool = False
    in_channels: int = 0

    def hybrid_forward(self, F: Any, x: Any, gamma: Any, beta: Any) -> Any:
        if self.axis == 1:
            return F.InstanceNorm(x, gamma, beta, eps=self.epsilon, name="fwd")
        x = x.swapaxes(1, self.axis)
        return F.InstanceNorm(x, gamma, beta, eps=self.epsilon, name="fwd").swapaxes(1, self.axis)


class GroupNorm(_Normalization):
    """Normalize each of `num_groups` groups of channels (axis 1) of each image; gamma and beta have
    one number per group, as in MXNet 1.9; shape kept. Y. Wu and K. He, "Group Normalization"
    (2018).
    """

    _places = {"num_groups": -1}
    _passes_on = "prefix", "params"

    num_groups: int = 1
    axis = 1

    def _build(self) -> None:
        self.in_channels = self.num_groups
        super()._build()

    def hybrid_forward(self, F: Any, data: Any, gamma: Any, beta: Any) -> Any:
        return F.GroupNorm(data, gamma, beta, num_groups=self.num_groups, eps=self.epsilon)

    def _shown(self) -> dict[str, Any]:
        how = {"eps": self.epsilon, "num_groups": self.num_groups}
        return {**how, "center": self.center, "scale": self.scale}

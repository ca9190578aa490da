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
from d2lmini.base.families import with_parameters_of
from d2lmini.gluon.hybrid_block import HybridBlock
from d2lmini.ops.core import as_dtype


class _Normalization(HybridBlock):
    """Base class: parameters with one number per channel."""

    gamma: Any
    beta: Any
    _kwargs: dict[str, Any]

    def _one_per_channel(self, name: str, n: int, init: Any, learnt: bool, **how: Any) -> Any:
        return self.params.get(
            name,
            grad_req="write" if learnt else "null",
            shape=(n,),
            init=init,
            allow_deferred_init=True,
            **how,
        )

    def _text(self, **more: Any) -> str:
        """The layer's repr with its arguments and `more` arguments."""
        how = ", ".join(f"{key}={value!r}" for key, value in (self._kwargs | more).items())
        return f"{type(self).__name__}({how})"

    def _size(self, x: Any, axis: int) -> int:
        """The length of the axis of gamma and beta."""
        if not -len(x.shape) <= axis < len(x.shape):
            raise MXNetError(
                f"{type(self).__name__}: axis={axis} is out of range for data {x.shape}"
            )
        return x.shape[axis]


class BatchNorm(_Normalization):
    """Normalize each channel (`axis`) over the batch; shape kept.

    Training uses the mean and variance of the batch, and updates running_* = momentum running_* +
    (1 - momentum) batch's. Otherwise, or with use_global_stats, the layer uses running_mean and
    running_var, which have no gradient. All four parameters have one number per channel, and stay
    float32 when the layer is cast to 16 bits. S. Ioffe and C. Szegedy, "Batch Normalization"
    (2015).
    """

    running_mean: Any
    running_var: Any

    def __init__(
        self,
        axis: int = 1,
        momentum: float = 0.9,
        epsilon: float = 1e-5,
        center: bool = True,
        scale: bool = True,
        use_global_stats: bool = False,
        beta_initializer: Any = "zeros",
        gamma_initializer: Any = "ones",
        running_mean_initializer: Any = "zeros",
        running_variance_initializer: Any = "ones",
        in_channels: int = 0,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self._axis = axis
        self._kwargs = {
            "axis": axis,
            "eps": epsilon,
            "momentum": momentum,
            "fix_gamma": not scale,
            "use_global_stats": use_global_stats,
        }
        with self.name_scope():
            for name, init, learnt in (
                ("gamma", gamma_initializer, scale),
                ("beta", beta_initializer, center),
                ("running_mean", running_mean_initializer, False),
                ("running_var", running_variance_initializer, False),
            ):
                parameter = self._one_per_channel(
                    name, in_channels, init, learnt, differentiable=learnt
                )
                setattr(self, name, parameter)

    def cast(self, dtype: Any) -> None:
        """Cast the layer; data of 16 bits is normalized with float32 parameters."""
        super().cast("float32" if is_half(as_dtype(dtype)) else dtype)

    def infer_shape(self, x: Any) -> None:
        n = self._size(x, self._axis)
        for parameter in (self.gamma, self.beta, self.running_mean, self.running_var):
            parameter.shape = (n,)

    def hybrid_forward(
        self, F: Any, x: Any, gamma: Any, beta: Any, running_mean: Any, running_var: Any
    ) -> Any:
        return F.BatchNorm(x, gamma, beta, running_mean, running_var, name="fwd", **self._kwargs)

    def __repr__(self) -> str:
        return self._text(in_channels=self.gamma.shape[0] or None)


class BatchNormReLU(BatchNorm):
    """BatchNorm, then max(y, 0)."""

    def hybrid_forward(
        self, F: Any, x: Any, gamma: Any, beta: Any, running_mean: Any, running_var: Any
    ) -> Any:
        return F.relu(super().hybrid_forward(F, x, gamma, beta, running_mean, running_var))


class _WithoutStatistics(_Normalization):
    """Base class of layers that keep only gamma and beta, n numbers each.

    own: the layer's own argument, for the repr.
    """

    def __init__(
        self,
        n: int,
        own: dict[str, Any],
        epsilon: float = 1e-5,
        center: bool = True,
        scale: bool = True,
        beta_initializer: Any = "zeros",
        gamma_initializer: Any = "ones",
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self._kwargs = {"eps": epsilon, **own, "center": center, "scale": scale}
        self._epsilon = epsilon
        with self.name_scope():
            self.gamma = self._one_per_channel("gamma", n, gamma_initializer, scale)
            self.beta = self._one_per_channel("beta", n, beta_initializer, center)


class _AlongAxis(_WithoutStatistics):
    """Base class of layers whose gamma and beta have the length of one axis."""

    _axis: int

    def infer_shape(self, x: Any) -> None:
        self.gamma.shape = self.beta.shape = (self._size(x, self._axis),)

    def __repr__(self) -> str:
        return self._text(in_channels=self.gamma.shape[0])


class LayerNorm(_AlongAxis):
    """Normalize along one axis, by default the last; gamma and beta have its length; shape kept.

    J. Ba et al., "Layer Normalization" (2016).
    """

    @with_parameters_of(_WithoutStatistics.__init__, without="n own kwargs")
    def __init__(
        self, axis: int = -1, *, in_channels: int = 0, prefix: str | None = None,
        params: Any = None, **kwargs: Any,
    ) -> None:  # fmt: skip
        super().__init__(in_channels, {"axis": axis}, prefix=prefix, params=params, **kwargs)
        self._axis = axis

    def hybrid_forward(self, F: Any, data: Any, gamma: Any, beta: Any) -> Any:
        return F.LayerNorm(data, gamma, beta, axis=self._axis, eps=self._epsilon)


class InstanceNorm(_AlongAxis):
    """Normalize each channel (`axis`) of each image; gamma and beta have one number per channel;
    shape kept. gamma is 1 unless scale=True. D. Ulyanov et al., "Instance Normalization" (2016).
    """

    @with_parameters_of(_WithoutStatistics.__init__, without="n own")
    def __init__(
        self, axis: int = 1, epsilon: float = 1e-5, center: bool = True, scale: bool = False, *,
        in_channels: int = 0, **kwargs: Any,
    ) -> None:  # fmt: skip
        super().__init__(in_channels, {"axis": axis}, epsilon, center, scale, **kwargs)
        self._axis = axis

    def hybrid_forward(self, F: Any, x: Any, gamma: Any, beta: Any) -> Any:
        if self._axis == 1:
            return F.InstanceNorm(x, gamma, beta, eps=self._epsilon, name="fwd")
        x = x.swapaxes(1, self._axis)
        return F.InstanceNorm(x, gamma, beta, eps=self._epsilon, name="fwd").swapaxes(1, self._axis)


class GroupNorm(_WithoutStatistics):
    """Normalize each of `num_groups` groups of channels (axis 1) of each image; gamma and beta have
    one number per group, as in MXNet 1.9; shape kept. Y. Wu and K. He, "Group Normalization"
    (2018).
    """

    @with_parameters_of(_WithoutStatistics.__init__, without="n own kwargs")
    def __init__(
        self, num_groups: int = 1, *, prefix: str | None = None, params: Any = None, **kwargs: Any
    ) -> None:
        super().__init__(
            num_groups, {"num_groups": num_groups}, prefix=prefix, params=params, **kwargs
        )
        self._num_groups = num_groups

    def hybrid_forward(self, F: Any, data: Any, gamma: Any, beta: Any) -> Any:
        return F.GroupNorm(data, gamma, beta, num_groups=self._num_groups, eps=self._epsilon)

    def __repr__(self) -> str:
        return self._text()

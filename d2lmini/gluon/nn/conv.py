"""Layers whose window moves over one, two or three spatial axes: convolutions, transposed
convolutions, and pooling: the maximum or the mean of each window, or of a whole image.

>>> from d2lmini import nd
>>> from d2lmini.gluon import nn
>>> net = nn.Conv2D(6, kernel_size=5, padding=2, activation="sigmoid")
>>> net.initialize()
>>> net(nd.ones((1, 3, 28, 28))).shape
(1, 6, 28, 28)
>>> net
Conv2D(3 -> 6, kernel_size=(5, 5), stride=(1, 1), padding=(2, 2), Activation(sigmoid))

>>> x = nd.arange(16).reshape((1, 1, 4, 4))
>>> nn.MaxPool2D(pool_size=2, strides=2)(x)
<BLANKLINE>
[[[[ 5.  7.]
   [13. 15.]]]]
<NDArray 1x1x2x2 @cpu(0)>
>>> nn.GlobalAvgPool2D()(x).shape
(1, 1, 1, 1)

Data is (N, C, *size). An int for kernel_size, strides, ... holds for every spatial axis.
`nd.Convolution`, `nd.Deconvolution` and `nd.Pooling` document the formulas of the sizes.

The strides of pooling default to the window's size. With `ceil_mode` the last window may extend
over the edge.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from d2lmini.base import MXNetError
from d2lmini.base.families import REQUIRED
from d2lmini.base.util import is_np_shape
from d2lmini.gluon.hybrid_block import Layer
from d2lmini.gluon.nn.basic import Affine
from d2lmini.ops.windows import LAYOUTS

Size = int | tuple[int, ...]


def each_axis(name: str, value: Any, ndim: int) -> Any:
    """One number for each spatial axis; AssertionError for another number of numbers."""
    size = value if isinstance(value, (tuple, list)) else (value,) * ndim
    assert len(size) == ndim and not isinstance(value, str), (
        f"{name} must be a number or a list of {ndim} ints, got {value!r}"
    )
    return size


def channels_first(layout: str | None, ndim: int) -> str:
    """The only layout, as on MXNet's CPU for convolutions; AssertionError for another one."""
    assert layout in (None, LAYOUTS[ndim]), (
        f"Only supports {LAYOUTS[ndim]!r} layout, got {layout!r}; move the axes with .transpose()"
    )
    return LAYOUTS[ndim]


class _Conv(Affine):
    """Base class of the convolutions: weight, bias, and the call of the op."""

    ndim: ClassVar[int]
    _op_name: ClassVar[str] = "Convolution"
    _sizes: ClassVar[dict[str, str]] = {"stride": "strides", "dilate": "dilation", "pad": "padding"}

    channels: int = REQUIRED
    kernel_size: Size = REQUIRED
    strides: Size = 1
    padding: Size = 0
    dilation: Size = 1
    groups: int = 1
    layout: str | None = None
    activation: str | None = None
    use_bias: bool = True
    weight_initializer: Any = None
    bias_initializer: Any = "zeros"
    in_channels: int = 0
    dtype = np.float32

    def _build(self) -> None:
        kernel = each_axis("kernel_size", self.kernel_size, self.ndim)
        if self.channels % self.groups or self.in_channels % self.groups:
            raise MXNetError(
                f"{type(self).__name__}: groups={self.groups} must divide channels={self.channels} "
                f"and in_channels={self.in_channels}"
            )
        self._kwargs: dict[str, Any] = {
            "kernel": kernel,
            **{key: each_axis(n, getattr(self, n), self.ndim) for key, n in self._sizes.items()},
            "num_filter": self.channels, "num_group": self.groups,
            "no_bias": not self.use_bias, "layout": channels_first(self.layout, self.ndim),
        }  # fmt: skip
        self._build_affine(self._weight_shape(self.in_channels), self.channels)

    def _weight_shape(self, in_channels: int) -> tuple[int, ...]:
        """One channel axis of the weight is whole, the other that of a group."""
        return (self.channels, in_channels // self.groups, *self._kwargs["kernel"])

    def infer_shape(self, x: Any) -> None:
        """Set the channels of the weight from `x`; the graph of a call says what does not fit."""
        how, size = self._kwargs, x.shape[2:]
        reach = zip(size, how["kernel"], how["dilate"], how["pad"])
        fits = len(size) == self.ndim and all([n + 2 * p > d * (k - 1) for n, k, d, p in reach])
        if fits and x.shape[1] and not x.shape[1] % self.groups:
            self.weight.shape = self._weight_shape(x.shape[1])
        else:
            super().infer_shape(x)

    def _alias(self) -> str:
        return "conv"

    def hybrid_forward(self, F: Any, x: Any, weight: Any, bias: Any = None) -> Any:
        y = getattr(F, self._op_name)(x, weight, bias, name="fwd", **self._kwargs)
        return y if self.act is None else self.act(y)

    def __repr__(self) -> str:
        how = self._kwargs
        least = -1 if is_np_shape() else 0  # what stands for a size that is not known
        come, go = (max(n, least) for n in self.weight.shape[1::-1])
        parts = [f"{come or None} -> {go}"]
        parts += [f"kernel_size={how['kernel']}", f"stride={how['stride']}"]
        for name, value, is_shown in (
            ("padding", how["pad"], any(how["pad"])),
            ("dilation", how["dilate"], set(how["dilate"]) != {1}),
            ("groups", how["num_group"], how["num_group"] != 1),
            ("bias", False, self.bias is None),
        ):
            parts += [f"{name}={value}"] if is_shown else []
        if self.act:
            parts.append(repr(self.act))
        return f"{type(self).__name__}({', '.join(parts)})"


class Conv1D(_Conv):
    """(N, C, W) -> (N, channels, OW); weight (channels, C / groups, *kernel_size)."""

    ndim = 1


class Conv2D(_Conv):
    """(N, C, H, W) -> (N, channels, OH, OW); weight (channels, C / groups, *kernel_size)."""

    ndim = 2


class Conv3D(_Conv):
    """(N, C, D, H, W) -> (N, channels, OD, OH, OW); weight (channels, C / groups, *kernel_size)."""

    ndim = 3


class _ConvTranspose(_Conv):
    """Base class of transposed convolutions: another op, a weight with swapped channel axes, and
    `output_padding`, which is added to the smallest output size that a convolution would map to the
    input size."""

    _op_name = "Deconvolution"
    _sizes = {**_Conv._sizes, "adj": "output_padding"}
    _places = {"channels": -2, "kernel_size": -2, "strides": -2, "padding": -2,
               "output_padding": -1}  # fmt: skip

    output_padding: Size = 0

    def _build(self) -> None:
        super()._build()
        how = self._kwargs
        if any(more >= s for more, s in zip(how["adj"], how["stride"])):
            raise MXNetError(
                f"{type(self).__name__}: output_padding={how['adj']} must be less than strides="
                f"{how['stride']}"
            )

    def _weight_shape(self, in_channels: int) -> tuple[int, ...]:
        return (in_channels, self.channels // self.groups, *self._kwargs["kernel"])


class Conv1DTranspose(_ConvTranspose):
    """(N, C, W) -> (N, channels, OW); weight (C, channels / groups, *kernel_size)."""

    ndim = 1


class Conv2DTranspose(_ConvTranspose):
    """(N, C, H, W) -> (N, channels, OH, OW); weight (C, channels / groups, *kernel_size)."""

    ndim = 2


class Conv3DTranspose(_ConvTranspose):
    """(N, C, D, H, W) -> (N, channels, OD, OH, OW); weight (C, channels / groups, *kernel_size)."""

    ndim = 3


# -- pooling ------------------------------------------------------------------------------------


class _Pooling(Layer):
    """Base class: one op, no parameters."""

    ndim: ClassVar[int]
    pool_type: ClassVar[str]
    global_pool: ClassVar[bool] = False

    def _build(self) -> None:
        kernel = each_axis("pool_size", self.pool_size, self.ndim)
        strides = kernel if self.strides is None else self.strides
        self._kwargs: dict[str, Any] = {
            "kernel": kernel,
            "stride": each_axis("strides", strides, self.ndim),
            "pad": each_axis("padding", self.padding, self.ndim),
            "global_pool": self.global_pool,
            "pool_type": self.pool_type,
            "layout": channels_first(self.layout, self.ndim),
            "pooling_convention": "full" if self.ceil_mode else "valid",
        }
        if self.pool_type == "avg" and not self.global_pool:
            self._kwargs["count_include_pad"] = self.count_include_pad

    def _alias(self) -> str:
        return "pool"

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return F.Pooling(x, name="fwd", **self._kwargs)

    def __repr__(self) -> str:
        how = self._kwargs
        return (
            f"{type(self).__name__}(size={how['kernel']}, stride={how['stride']}, "
            f"padding={how['pad']}, ceil_mode={how['pooling_convention'] == 'full'}, "
            f"global_pool={how['global_pool']}, pool_type={how['pool_type']}, "
            f"layout={how['layout']})"
        )


class _Window(_Pooling):
    """Base class of the layers whose window moves over the image."""

    pool_size: Size = 2
    strides: Size | None = None
    padding: Size = 0
    layout: str | None = None
    ceil_mode: bool = False


class MaxPool1D(_Window):
    """The maximum of each window: (N, C, W) -> (N, C, OW). Padding is ignored."""

    ndim, pool_type = 1, "max"


class MaxPool2D(MaxPool1D):
    """The maximum of each window: (N, C, H, W) -> (N, C, OH, OW). Padding is ignored."""

    ndim = 2


#: The order of the arguments where MXNet has `layout` last.
_LAYOUT_LAST = {"layout": 1, "count_include_pad": 2}


class MaxPool3D(_Window):
    """The maximum of each window: (N, C, D, H, W) -> (N, C, OD, OH, OW). Padding is ignored."""

    ndim, pool_type = 3, "max"
    _places = _LAYOUT_LAST


class AvgPool1D(_Window):
    """The mean of each window: (N, C, W) -> (N, C, OW).

    Padding counts as zeros; with count_include_pad=False padding does not count.
    """

    ndim, pool_type = 1, "avg"

    count_include_pad: bool = True


class AvgPool2D(AvgPool1D):
    """The mean of each window: (N, C, H, W) -> (N, C, OH, OW).

    Padding counts as zeros; with count_include_pad=False padding does not count.
    """

    ndim = 2
    _places = _LAYOUT_LAST


class AvgPool3D(AvgPool2D):
    """The mean of each window: (N, C, D, H, W) -> (N, C, OD, OH, OW).

    Padding counts as zeros; with count_include_pad=False padding does not count.
    """

    ndim = 3


class _Global(_Pooling):
    """The window is the whole image: every spatial axis becomes 1."""

    pool_size, strides, padding, ceil_mode = 1, None, 0, True

    global_pool = True

    layout: str | None = None


class GlobalMaxPool1D(_Global):
    """The maximum of each channel: (N, C, W) -> (N, C, 1)."""

    ndim, pool_type = 1, "max"


class GlobalMaxPool2D(_Global):
    """The maximum of each channel: (N, C, H, W) -> (N, C, 1, 1)."""

    ndim, pool_type = 2, "max"


class GlobalMaxPool3D(_Global):
    """The maximum of each channel: (N, C, D, H, W) -> (N, C, 1, 1, 1)."""

    ndim, pool_type = 3, "max"


class GlobalAvgPool1D(_Global):
    """The mean of each channel: (N, C, W) -> (N, C, 1)."""

    ndim, pool_type = 1, "avg"


class GlobalAvgPool2D(_Global):
    """The mean of each channel: (N, C, H, W) -> (N, C, 1, 1)."""

    ndim, pool_type = 2, "avg"


class GlobalAvgPool3D(_Global):
    """The mean of each channel: (N, C, D, H, W) -> (N, C, 1, 1, 1)."""

    ndim, pool_type = 3, "avg"

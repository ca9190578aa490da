"""Convolution layers over one, two or three spatial axes, and transposed convolution layers.

>>> from d2lmini import nd
>>> from d2lmini.gluon import nn
>>> net = nn.Conv2D(6, kernel_size=5, padding=2, activation="sigmoid")
>>> net.initialize()
>>> net(nd.ones((1, 3, 28, 28))).shape
(1, 6, 28, 28)
>>> net
Conv2D(3 -> 6, kernel_size=(5, 5), stride=(1, 1), padding=(2, 2), Activation(sigmoid))

Data is (N, C, *size). An int for kernel_size, strides, ... holds for every spatial axis.
`nd.Convolution` and `nd.Deconvolution` document the formulas of the sizes.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from d2lmini.base import MXNetError
from d2lmini.base.families import REQUIRED
from d2lmini.base.util import is_np_shape
from d2lmini.gluon.nn.basic import Affine

Size = int | tuple[int, ...]

#: The accepted layouts. The ops refuse channels-last layouts at the call, as MXNet does on a CPU.
LAYOUTS = {1: ("NCW",), 2: ("NCHW", "NHWC"), 3: ("NCDHW", "NDHWC")}


def each_axis(value: Any, ndim: int) -> Any:
    """One number for each spatial axis."""
    return value if isinstance(value, (tuple, list, str)) else (value,) * ndim


class _Conv(Affine):
    """Base class of the convolutions: weight, bias, and the call of the op."""

    ndim: ClassVar[int]
    _op_name: ClassVar[str] = "Convolution"

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
        ndim, kind = self.ndim, type(self).__name__
        layout = self.layout or LAYOUTS[ndim][0]
        known = " and ".join(map(repr, LAYOUTS[ndim]))
        assert layout in LAYOUTS[ndim], f"Only supports {known} layout for now, got {layout!r}"
        kernel = each_axis(self.kernel_size, ndim)
        assert len(kernel) == ndim and not isinstance(kernel, str), (
            f"kernel_size must be a number or a list of {ndim} ints, got {kernel!r}"
        )
        windows = {"stride": self.strides, "dilate": self.dilation, "pad": self.padding}
        sizes = {name: each_axis(value, ndim) for name, value in windows.items()}
        for name, size in sizes.items():
            if len(size) != ndim:
                raise MXNetError(
                    f"{kind}: {name} must be a number or a list of {ndim} ints, as the kernel "
                    f"{kernel} has axes; got {size}"
                )
        if self.channels % self.groups or self.in_channels % self.groups:
            raise MXNetError(
                f"{kind}: groups={self.groups} must divide channels={self.channels} and "
                f"in_channels={self.in_channels}"
            )
        self._kwargs: dict[str, Any] = {
            "kernel": kernel, **sizes, "num_filter": self.channels, "num_group": self.groups,
            "no_bias": not self.use_bias, "layout": layout,
        }  # fmt: skip
        self._build_affine(self._weight_shape(self.in_channels), self.channels)

    def _weight_shape(self, in_channels: int) -> tuple[int, ...]:
        how = self._kwargs
        return (self.channels, in_channels // how["num_group"], *how["kernel"])

    def _alias(self) -> str:
        return "conv"

    def infer_shape(self, x: Any) -> None:
        """Set the number of input channels from `x`; MXNetError unless the axes of `x` fit the
        layout."""
        if len(x.shape) != self.ndim + 2:
            raise MXNetError(
                f"{type(self).__name__}: needs data of {self.ndim + 2} axes "
                f"({LAYOUTS[self.ndim][0]}), got {x.shape}"
            )
        self.in_channels = x.shape[1]
        self.weight.shape = self._weight_shape(x.shape[1])

    def hybrid_forward(self, F: Any, x: Any, weight: Any, bias: Any = None) -> Any:
        y = getattr(F, self._op_name)(x, weight, bias, name="fwd", **self._kwargs)
        return y if self.act is None else self.act(y)

    def __repr__(self) -> str:
        how = self._kwargs
        least = -1 if is_np_shape() else 0  # what stands for a size that is not known
        come, go = (max(n, least) for n in self.weight.shape[1::-1])
        parts = [f"{come or None} -> {go}"]
        parts += [f"kernel_size={how['kernel']}", f"stride={how['stride']}"]
        if any(how["pad"]):
            parts.append(f"padding={how['pad']}")
        if any(n != 1 for n in how["dilate"]):
            parts.append(f"dilation={how['dilate']}")
        if how["num_group"] != 1:
            parts.append(f"groups={how['num_group']}")
        if self.bias is None:
            parts.append("bias=False")
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

    _places = {
        "channels": -5,
        "kernel_size": -4,
        "strides": -3,
        "padding": -2,
        "output_padding": -1,
    }

    output_padding: Size = 0

    def _build(self) -> None:
        super()._build()
        self.outpad = each_axis(self.output_padding, self.ndim)
        if any(more >= s for more, s in zip(self.outpad, self._kwargs["stride"])):
            raise MXNetError(
                f"{type(self).__name__}: output_padding={self.outpad} must be less than strides="
                f"{self._kwargs['stride']}"
            )
        self._kwargs["adj"] = self.outpad

    def _weight_shape(self, in_channels: int) -> tuple[int, ...]:
        how = self._kwargs
        return (in_channels, self.channels // how["num_group"], *how["kernel"])


class Conv1DTranspose(_ConvTranspose):
    """(N, C, W) -> (N, channels, OW); weight (C, channels / groups, *kernel_size)."""

    ndim = 1


class Conv2DTranspose(_ConvTranspose):
    """(N, C, H, W) -> (N, channels, OH, OW); weight (C, channels / groups, *kernel_size)."""

    ndim = 2


class Conv3DTranspose(_ConvTranspose):
    """(N, C, D, H, W) -> (N, channels, OD, OH, OW); weight (C, channels / groups, *kernel_size)."""

    ndim = 3

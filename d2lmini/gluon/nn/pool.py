"""Pooling layers: the maximum or the mean of each window, or of a whole image.

>>> from d2lmini import nd
>>> from d2lmini.gluon import nn
>>> x = nd.arange(16).reshape((1, 1, 4, 4))
>>> nn.MaxPool2D(pool_size=2, strides=2)(x)
<BLANKLINE>
[[[[ 5.  7.]
   [13. 15.]]]]
<NDArray 1x1x2x2 @cpu(0)>
>>> nn.GlobalAvgPool2D()(x).shape
(1, 1, 1, 1)

Data is (N, C, *size). In the layouts NWC, NHWC and NDHWC data is (N, *size, C), and its axes are
moved before and after. `strides` defaults to the window's size. With `ceil_mode` the last window
may extend over the edge; `nd.Pooling` documents the formulas of the sizes.
"""

from __future__ import annotations

from typing import Any, ClassVar

from d2lmini.gluon.hybrid_block import Layer
from d2lmini.gluon.nn.conv import Size, each_axis

#: The accepted layouts: with the channels first, and with the channels last.
LAYOUTS = {1: ("NCW", "NWC"), 2: ("NCHW", "NHWC"), 3: ("NCDHW", "NDHWC")}


class _Pooling(Layer):
    """Base class: one op, no parameters."""

    ndim: ClassVar[int]
    pool_type: ClassVar[str]
    pool_size: Size
    strides: Size | None
    padding: Size
    layout: str | None
    ceil_mode: bool

    def _build(self) -> None:
        ndim = self.ndim
        layout = self.layout or LAYOUTS[ndim][0]
        known = " and ".join(LAYOUTS[ndim])
        assert layout in LAYOUTS[ndim], (
            f"Only {known} layouts are valid for {ndim}D Pooling, got {layout!r}"
        )
        kernel = each_axis(self.pool_size, ndim)
        assert len(kernel) == ndim and not isinstance(kernel, str), (
            f"pool_size must be a number or a list of {ndim} ints, got {kernel!r}"
        )
        self._kwargs: dict[str, Any] = {
            "kernel": kernel,
            "stride": kernel if self.strides is None else each_axis(self.strides, ndim),
            "pad": each_axis(self.padding, ndim),
            "global_pool": False,
            "pool_type": self.pool_type,
            "layout": layout,
            "pooling_convention": "full" if self.ceil_mode else "valid",
        }

    def _alias(self) -> str:
        return "pool"

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        first, last = LAYOUTS[self.ndim]
        if self._kwargs["layout"] == first:
            return F.Pooling(x, name="fwd", **self._kwargs)
        y = F.transpose(x, axes=[last.index(axis) for axis in first])
        y = F.Pooling(y, name="fwd", **{**self._kwargs, "layout": first})
        return F.transpose(y, axes=[first.index(axis) for axis in last])

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

    def _build(self) -> None:
        super()._build()
        self._kwargs["count_include_pad"] = self.count_include_pad


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

    layout: str | None = None

    def _build(self) -> None:
        super()._build()
        self._kwargs["global_pool"] = True


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

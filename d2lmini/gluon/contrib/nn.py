"""Contributed layers: parallel layers and pixel shuffle.

>>> from d2lmini import nd
>>> from d2lmini.gluon import nn
>>> from d2lmini.gluon.contrib.nn import HybridConcurrent, Identity
>>> net = HybridConcurrent(axis=1)
>>> net.add(Identity(), nn.Activation("relu"))
>>> net(nd.array([[-1, 2]]))
<BLANKLINE>
[[-1.  2.  0.  2.]]
<NDArray 1x4 @cpu(0)>
"""

from __future__ import annotations

from math import prod
from typing import Any

from d2lmini import ndarray as nd
from d2lmini.gluon.hybrid_block import HybridBlock
from d2lmini.gluon.nn.sequential import HybridSequential, Sequential


class Identity(HybridBlock):
    """y = x: a placeholder for a layer."""

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return x


class Concurrent(Sequential):
    """Calls every child with the same input and concatenates the outputs along `axis`."""

    def __init__(self, axis: int = -1, prefix: str | None = None, params: Any = None):
        super().__init__(prefix=prefix, params=params)
        self.axis = axis

    def forward(self, x: Any) -> Any:
        return nd.concat(*[child(x) for child in self._children.values()], dim=self.axis)


class HybridConcurrent(HybridSequential):
    """Calls every child with the same input and concatenates the outputs along `axis`."""

    def __init__(self, axis: int = -1, prefix: str | None = None, params: Any = None):
        super().__init__(prefix=prefix, params=params)
        self.axis = axis

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return F.concat(*[child(x) for child in self._children.values()], dim=self.axis)


class _PixelShuffle(HybridBlock):
    """Base class: moves channels into blocks of `factor` pixels; divides the number of channels.

    (N, C f1 ... fn, d1, ..., dn) -> (N, C, d1 f1, ..., dn fn). W. Shi et al., "Real-Time Single
    Image and Video Super-Resolution" (2016).
    """

    ndim: int

    def __init__(self, factor: int | tuple[int, ...]):
        super().__init__()
        factors = (factor,) * self.ndim if isinstance(factor, int) else tuple(factor)
        assert len(factors) == self.ndim, (
            f"wrong length {len(factors)}: {type(self).__name__} needs {self.ndim} factors"
        )
        self._factors = factors

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        # Split the channels into (C, f1, ..., fn), move each f behind its d, and merge the two.
        ndim = self.ndim
        x = F.reshape(x, (0, -4, -1, prod(self._factors), *[0] * ndim))
        for i in range(ndim - 1):
            rest = prod(self._factors[i + 1 :])
            x = F.reshape(x, (*[0] * (2 + i), -4, self._factors[i], rest, *[0] * ndim))
        order = [axis for i in range(ndim) for axis in (2 + ndim + i, 2 + i)]
        x = F.transpose(x, (0, 1, *order))
        return F.reshape(x, (0, 0, *[-3] * ndim))

    def __repr__(self) -> str:
        factors = self._factors if self.ndim > 1 else self._factors[0]
        return f"{type(self).__name__}({factors})"


class PixelShuffle1D(_PixelShuffle):
    """(N, C f, W) -> (N, C, W f)."""

    ndim = 1


class PixelShuffle2D(_PixelShuffle):
    """(N, C f1 f2, H, W) -> (N, C, H f1, W f2)."""

    ndim = 2


class PixelShuffle3D(_PixelShuffle):
    """(N, C f1 f2 f3, D, H, W) -> (N, C, D f1, H f2, W f3)."""

    ndim = 3

"""Initializers with fixed values.

>>> from d2lmini import init, nd
>>> kernel = nd.zeros((1, 1, 4, 4))
>>> init.Bilinear()(init.InitDesc("upsampling_weight"), kernel)
>>> kernel[0, 0, 1]
<BLANKLINE>
[0.1875 0.5625 0.5625 0.1875]
<NDArray 4 @cpu(0)>
"""

from __future__ import annotations

from typing import Any

import numpy as np

from d2lmini.families import REQUIRED
from d2lmini.initializer.base import Declared, Initializer, alias, register
from d2lmini.ndarray import NDArray


@alias("zeros")
class Zero(Declared):
    """Weights of 0. (All units of a hidden layer then stay equal, which is seldom useful.)"""

    _init_weight = Initializer._init_zero


@alias("ones")
class One(Declared):
    """Weights of 1."""

    _init_weight = Initializer._init_one


@register
class Constant(Declared):
    """Weights equal to `value`: a number, or an array or list that broadcasts to the weight."""

    value: Any = REQUIRED

    def _init_weight(self, name: str, arr: NDArray) -> None:
        arr[:] = self.value

    def __eq__(self, other: object) -> bool:
        return type(other) is Constant and other.dumps() == self.dumps()

    def __hash__(self) -> int:
        return hash(type(self))


@register
class Bilinear(Declared):
    """The kernel (..., H, W) with which a transposed convolution of stride ceil(W/2) interpolates.

    w[y, x] = (1 - |x/f - c|) (1 - |y/f - c|) with f = ceil(W / 2), c = (2f - 1 - f mod 2) / (2f),
    equal on every channel. ValueError for a weight without two spatial axes. Source: J. Long et
    al., "Fully Convolutional Networks for Semantic Segmentation" (2015).
    """

    def _init_weight(self, name: str, arr: NDArray) -> None:
        if len(arr.shape) != 4:
            raise ValueError(
                f"Bilinear fills kernels (C, C, H, W), {name} is {arr.shape}; "
                "use it for the weight of a Conv2DTranspose"
            )
        H, W = arr.shape[2:]
        f = (W + 1) // 2
        c = (2 * f - 1 - f % 2) / (2 * f)
        along_x = 1 - abs(np.arange(W) / f - c)
        along_y = 1 - abs(np.arange(H) / f - c)
        arr[:] = np.outer(along_y, along_x).astype("float32")  # (H, W) -> (C, C, H, W)


@register
class LSTMBias(Declared):
    """A bias (4H,) of an LSTM: `forget_bias` for the forget gate (second quarter), otherwise 0.

    A positive bias opens the forget gate at the start, which lets gradients pass. Source: R.
    Jozefowicz et al., "An Empirical Exploration of Recurrent Network Architectures" (2015).
    """

    forget_bias: float = 1.0

    def _init_weight(self, name: str, arr: NDArray) -> None:
        num_hidden = arr.shape[0] // 4
        arr[:] = 0.0
        arr[num_hidden : 2 * num_hidden] = self.forget_bias

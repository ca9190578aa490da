"""Initializers with fixed values, and those that draw weights with `nd.random` and its seed.

The scale of the weights matters: with weights of variance v, a layer with n inputs multiplies the
variance of a signal by n v in forward, and by n_out v in backward. `Xavier` uses v near 1 / n, so
that the signal neither vanishes nor explodes in deep networks.

>>> from d2lmini import init, nd, random
>>> random.seed(1)
>>> weight = nd.zeros((256, 784))
>>> init.Xavier(magnitude=3)(init.InitDesc("w_weight"), weight)    # variance 2 / (784 + 256)
>>> print(f"{float((weight ** 2).mean().asscalar()) * (784 + 256) / 2:.2f}")
1.00
>>> kernel = nd.zeros((1, 1, 4, 4))
>>> init.Bilinear()(init.InitDesc("upsampling_weight"), kernel)
>>> kernel[0, 0, 1]
<BLANKLINE>
[0.1875 0.5625 0.5625 0.1875]
<NDArray 4 @cpu(0)>
"""

from __future__ import annotations

from math import prod, sqrt
from typing import Any

import numpy as np

from d2lmini import ndarray as nd
from d2lmini.base.families import REQUIRED
from d2lmini.initializer.base import Declared, Initializer, alias, register
from d2lmini.ndarray import NDArray

# -- fixed values ----------------------------------------------------------------------------------


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


# -- random values ---------------------------------------------------------------------------------


@register
class Uniform(Declared):
    """Weights uniform in [-scale, scale): variance scale^2 / 3. The default of `initialize`."""

    scale: float = 0.07

    def _init_weight(self, name: str, arr: NDArray) -> None:
        nd.random.uniform(-self.scale, self.scale, out=arr)


@register
class Normal(Declared):
    """Gaussian weights with mean 0 and standard deviation sigma."""

    sigma: float = 0.01

    def _init_weight(self, name: str, arr: NDArray) -> None:
        nd.random.normal(0, self.sigma, out=arr)


@register
class Xavier(Declared):
    """Weights (n_out, n_in, *kernel) with a scale that preserves the variance of signals.

    With k = prod(kernel), fan_in = n_in k, fan_out = n_out k, and n their mean ("avg"), fan_in
    ("in") or fan_out ("out"), the scale is sqrt(magnitude / n). Weights are uniform in [-scale,
    scale) ("uniform") or have standard deviation scale ("gaussian"). ValueError for a weight with
    fewer than two axes. Source: X. Glorot and Y. Bengio, "Understanding the difficulty of training
    deep feedforward neural networks" (2010).
    """

    rnd_type: str = "uniform"
    factor_type: str = "avg"
    magnitude: float = 3

    def _init_weight(self, name: str, arr: NDArray) -> None:
        shape = arr.shape
        if len(shape) < 2:
            raise ValueError(
                f"{type(self).__name__} cannot fill {name} of shape {shape}: it needs the numbers "
                "of inputs and outputs, so at least 2 axes; give a vector an init of its own"
            )
        kernel = prod(shape[2:])
        fan_in, fan_out = shape[1] * kernel, shape[0] * kernel
        sizes = {"avg": (fan_in + fan_out) / 2, "in": fan_in, "out": fan_out}
        if self.factor_type not in sizes:
            raise ValueError(
                f"Incorrect factor type {self.factor_type!r}: it is one of {', '.join(sizes)}"
            )
        scale = sqrt(float(self.magnitude) / sizes[self.factor_type])
        if self.rnd_type == "uniform":
            nd.random.uniform(-scale, scale, out=arr)
        elif self.rnd_type == "gaussian":
            nd.random.normal(0, scale, out=arr)
        else:
            raise ValueError(f"Unknown random type {self.rnd_type!r}: it is uniform or gaussian")


@register
class MSRAPrelu(Xavier):
    """Gaussian weights of variance 2 / ((1 + slope^2) n), for layers before a (leaky) ReLU.

    A ReLU halves the mean square of a signal; a leaky ReLU with `slope` multiplies it by (1 +
    slope^2) / 2. n as in `Xavier`. Source: K. He et al., "Delving Deep into Rectifiers" (2015).
    """

    def __init__(self, factor_type: str = "avg", slope: float = 0.25) -> None:
        super().__init__("gaussian", factor_type, 2.0 / (1 + slope**2))
        self._kwargs = {"factor_type": factor_type, "slope": slope}

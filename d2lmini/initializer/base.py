"""Initializers: callables that fill an NDArray by the parameter's name.

The end of the name tells the use of a parameter, and so its first values: initializers define the
values of a `..._weight`, a `..._bias` is 0, a `..._gamma` is 1. A parameter with its own
initializer has the initializer in the attributes of its name; the end of the name is then ignored:
`InitDesc("h0", {"__init__": "ones"})`.

>>> from d2lmini import init, nd
>>> bias = nd.full((2,), 7)
>>> init.Normal()(init.InitDesc("dense0_bias"), bias)
>>> bias
<BLANKLINE>
[0. 0.]
<NDArray 2 @cpu(0)>
>>> init.create("xavier", magnitude=2).dumps()
'["xavier", {"rnd_type": "uniform", "factor_type": "avg", "magnitude": 2}]'

After MXNet's `initializer` and `registry` modules.

The scale of the weights matters: with weights of variance v, a layer with n inputs multiplies the
variance of a signal by n v in forward, and by n_out v in backward. `Xavier` uses v near 1 / n, so
that the signal neither vanishes nor explodes in deep networks.

>>> from d2lmini import random
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

import json
from math import prod, sqrt
from typing import Any

import numpy as np

from d2lmini import ndarray as nd
from d2lmini.base import families
from d2lmini.base.families import REQUIRED, Family
from d2lmini.ndarray import NDArray

#: The end of a name, and the method that fills a parameter with this end.
_BY_END = {
    "weight": "_init_weight", "bias": "_init_bias", "gamma": "_init_gamma", "beta": "_init_beta",
    "min": "_init_zero", "max": "_init_one", "moving_mean": "_init_zero",
    "moving_var": "_init_one", "moving_inv_var": "_init_zero", "moving_avg": "_init_zero",
}  # fmt: skip


class InitDesc(str):
    """A parameter's name, with `attrs` (a dict) and `global_init`, the whole net's initializer.

    attrs["__init__"] is the parameter's own initializer: an object, a name, or JSON text of
    `dumps`.
    """

    attrs: dict[str, Any]
    global_init: Initializer | None

    def __new__(
        cls, name: str, attrs: dict[str, Any] | None = None, global_init: Any = None
    ) -> InitDesc:
        self = super().__new__(cls, name)
        self.attrs = attrs or {}
        self.global_init = global_init
        return self


class Initializer:
    """Base class. Keyword arguments are kept for `dumps`; subclasses define `_init_weight`."""

    def __init__(self, **kwargs: Any):
        self._kwargs = kwargs

    def dumps(self) -> str:
        """This initializer as JSON text for `create`: '["normal", {"sigma": 0.01}]'."""
        return json.dumps([type(self).__name__.lower(), self._kwargs], default=_plain)

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and other.dumps() == self.dumps()

    def __hash__(self) -> int:
        return hash(type(self))

    def __call__(self, desc: str, arr: NDArray) -> None:
        """Fill `arr`, the parameter named `desc`, in place; does not wait.

        Uses desc.attrs["__init__"] if present, otherwise the end of the name. ValueError if neither
        selects an initializer, TypeError unless desc is a string and arr an NDArray.
        """
        if not isinstance(desc, str):
            raise TypeError(
                f"an initializer is called with the parameter's name, got {type(desc).__name__}"
            )
        if not isinstance(arr, NDArray):
            raise TypeError(f"an initializer fills an NDArray, got {type(arr).__name__} for {desc}")
        if not isinstance(desc, InitDesc):
            desc = InitDesc(desc)
        if desc.global_init is None:
            desc.global_init = self
        own = desc.attrs.get("__init__")
        if own:
            create(own)._init_weight(desc, arr)
            return
        methods = [method for end, method in _BY_END.items() if desc.endswith(end)]
        getattr(self, methods[0] if methods else "_init_default")(desc, arr)

    def _init_weight(self, name: str, arr: NDArray) -> None:
        raise NotImplementedError(
            f"{type(self).__name__} does not say how to fill {name}: define _init_weight(name, arr)"
        )

    def _init_zero(self, name: str, arr: NDArray) -> None:
        arr[:] = 0.0

    def _init_one(self, name: str, arr: NDArray) -> None:
        arr[:] = 1.0

    _init_bias = _init_beta = _init_zero
    _init_gamma = _init_one

    def _init_default(self, name: str, arr: NDArray) -> None:
        raise ValueError(
            f"Unknown initialization pattern for {name}. Only names that end in "
            f"{', '.join(_BY_END)} say how they are filled. Give this parameter an initializer of "
            "its own (init=...), or rename it."
        )


def _plain(value: Any) -> Any:
    """An array as numbers in lists."""
    if not isinstance(value, (NDArray, np.ndarray, np.generic)):
        raise TypeError(f"{value!r} cannot be written as JSON text")
    return np.asarray(value.asnumpy() if isinstance(value, NDArray) else value).tolist()


family = Family(Initializer, "initializer")
register, alias = family.register, family.alias


class Declared(families.Declared, Initializer):
    """Base class of initializers with declared parameters, which `dumps` writes."""

    def __init__(self, *args: Any, **kwargs: Any):
        own, _ = self._take(args, kwargs)
        Initializer.__init__(self, **own)


def create(initializer: Any = None, *args: Any, **kwargs: Any) -> Any:
    """Make an initializer from a name or JSON text; an Initializer is returned unchanged.

    None gives `Uniform()`, the default of `initialize`. ValueError for an unknown name (the message
    lists the known names), for JSON text that `dumps` would not write, or for an object with
    further arguments.
    """
    if initializer is None:
        initializer = "uniform"
    if isinstance(initializer, str):
        return family.create(initializer, *args, **kwargs)
    if isinstance(initializer, type) or not callable(initializer):
        raise TypeError(
            "expected an initializer, its name or its JSON text, "
            f"got {initializer!r}; write init.Xavier() or 'xavier'"
        )
    if args or kwargs:
        raise ValueError(f"{initializer!r} is already an object; it takes no further arguments")
    return initializer


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

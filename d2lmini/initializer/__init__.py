"""Initializers: the first values of parameters.

base    `Initializer`: the meaning of parameter names; `register`, `create`; `Zero`, `One`,
        `Constant`, `Bilinear`, `LSTMBias`: fixed values; `Uniform`, `Normal`, `Xavier`,
        `MSRAPrelu`: drawn by `nd.random`

>>> from d2lmini import init, nd
>>> weight = nd.zeros((3, 4))
>>> init.Xavier()(init.InitDesc("dense0_weight"), weight)      # returns at once, like any op
>>> float(weight.abs().max().asscalar()) < (6 / (3 + 4)) ** 0.5
True

A user-defined initializer overrides `_init_weight` and inherits the rest from `Initializer`:

>>> @init.register
... class Ramp(init.Initializer):
...     def _init_weight(self, name, data):
...         print("Init", name, data.shape)
...         data[:] = nd.arange(data.size).reshape(data.shape)
>>> init.create("ramp")(init.InitDesc("dense0_weight"), weight)
Init dense0_weight (3, 4)
"""

# isort: off
from typing import NoReturn

from d2lmini.base import missing_attribute
from d2lmini.initializer.base import (
    Bilinear, Constant, InitDesc, Initializer, LSTMBias, MSRAPrelu, Normal, One, Uniform, Xavier,
    Zero, alias, create, register,
)  # fmt: skip

#: The names in later versions of MXNet.
Zeros, Ones = Zero, One

__all__ = [
    "Bilinear", "Constant", "InitDesc", "Initializer", "LSTMBias", "MSRAPrelu", "Normal", "One",
    "Ones", "Uniform", "Xavier", "Zero", "Zeros", "alias", "create", "register",
]  # fmt: skip


def __getattr__(name: str) -> NoReturn:
    raise missing_attribute("initializer", name, __all__)

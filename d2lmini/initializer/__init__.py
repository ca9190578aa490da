"""Initializers: how a parameter gets its first values.

base       `Initializer`: what a name says about a parameter; `register`, `create`
values     `Zero`, `One`, `Constant`, `Bilinear`, `LSTMBias`: the same numbers each time
draws      `Uniform`, `Normal`, `Xavier`, `MSRAPrelu`, `Orthogonal`: drawn by `nd.random`
choices    `Mixed`, `Load`, `FusedRNN`: which initializer, or which file, fills which part

>>> from d2lmini import init, nd
>>> weight = nd.zeros((3, 4))
>>> init.Xavier()(init.InitDesc("dense0_weight"), weight)      # returns at once, as any op
>>> float(weight.abs().max().asscalar()) < (6 / (3 + 4)) ** 0.5
True

An initializer of one's own overrides `_init_weight`; the others follow from `Initializer`:

>>> @init.register
... class Ramp(init.Initializer):
...     def _init_weight(self, name, data):
...         print("Init", name, data.shape)
...         data[:] = nd.arange(data.size).reshape(data.shape)
>>> init.create("ramp")(init.InitDesc("dense0_weight"), weight)
Init dense0_weight (3, 4)
"""

# isort: off
from d2lmini.initializer.base import InitDesc, Initializer, alias, create, register
from d2lmini.initializer.values import Bilinear, Constant, LSTMBias, One, Zero
from d2lmini.initializer.draws import MSRAPrelu, Normal, Orthogonal, Uniform, Xavier
from d2lmini.initializer.choices import FusedRNN, Load, Mixed

#: The names of later versions.
Zeros, Ones = Zero, One

__all__ = [
    "Bilinear", "Constant", "FusedRNN", "InitDesc", "Initializer", "LSTMBias", "Load", "MSRAPrelu",
    "Mixed", "Normal", "One", "Ones", "Orthogonal", "Uniform", "Xavier", "Zero", "Zeros", "alias",
    "create", "register",
]  # fmt: skip

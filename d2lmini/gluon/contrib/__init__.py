"""Contributed layers and samplers, which MXNet keeps apart from the main ones.

nn      parallel layers, pixel shuffle
data    a sampler

>>> from d2lmini import gluon
>>> gluon.contrib.nn.PixelShuffle2D((2, 3))
PixelShuffle2D((2, 3))
"""

from typing import NoReturn

from d2lmini.base import missing_attribute
from d2lmini.gluon.contrib import data, nn

_MODULES = ("data", "nn")


def __getattr__(name: str) -> NoReturn:
    raise missing_attribute("gluon.contrib", name, _MODULES, f"; it has {', '.join(_MODULES)}")

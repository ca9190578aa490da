"""Contributed samplers, which MXNet keeps apart from the main ones.

>>> from d2lmini import gluon
>>> list(gluon.contrib.data.IntervalSampler(7, 3))
[0, 3, 6, 1, 4, 2, 5]
"""

from d2lmini.gluon.data import sampler
from d2lmini.gluon.data.sampler import IntervalSampler

__all__ = ["IntervalSampler", "sampler"]

"""`mx.random`: the seed, and the functions of `nd.random`.

>>> from d2lmini import random
>>> random.seed(42)
>>> a = random.uniform(shape=3)
>>> random.seed(42)
>>> bool((a == random.uniform(shape=3)).min())
True
"""

from d2lmini.ndarray.random import (
    exponential,
    gamma,
    generalized_negative_binomial,
    multinomial,
    negative_binomial,
    normal,
    poisson,
    randint,
    randn,
    shuffle,
    uniform,
)
from d2lmini.random_state import seed

__all__ = [
    "exponential", "gamma", "generalized_negative_binomial", "multinomial", "negative_binomial",
    "normal", "poisson", "randint", "randn", "seed", "shuffle", "uniform",
]  # fmt: skip

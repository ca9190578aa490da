"""`mx.random`: the seed, and the functions of `nd.random`.

>>> from d2lmini import random
>>> random.seed(42)
>>> a = random.uniform(shape=3)
>>> random.seed(42)
>>> bool((a == random.uniform(shape=3)).min())
True
"""

from d2lmini.ndarray import random
from d2lmini.random_state import seed

FUNCTIONS = {name: getattr(random, name) for name in random.__all__}
globals().update(FUNCTIONS)

__all__ = ["seed", *FUNCTIONS]

"""`npx.random`: the seed of `np.random`."""

from __future__ import annotations

from typing import NoReturn

from d2lmini.base import missing_attribute
from d2lmini.random_state import seed as seed

_LEFT_OUT = {
    "bernoulli": "np.random.uniform(size=size) < prob does the same",
    "normal_n": "np.random.normal with size=(*batch_shape, *loc.shape) does the same",
    "uniform_n": "np.random.uniform with size=(*batch_shape, *low.shape) does the same",
}


def __getattr__(name: str) -> NoReturn:
    raise missing_attribute("npx.random", name, ("seed",), left_out=_LEFT_OUT)

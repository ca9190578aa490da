"""`nd.random` and `mx.random`: the seed, and random arrays.

>>> from d2lmini import nd
>>> nd.random.uniform(0, 1, shape=(2, 3)).shape
(2, 3)

`shape` may be a number; without `shape` one number is drawn. All results are float32 on the current
context unless `dtype` and `ctx` are given.
"""

from __future__ import annotations

from typing import Any

from d2lmini.base import missing_attribute
from d2lmini.ndarray.functions import without_inputs
from d2lmini.ndarray.ndarray import NDArray
from d2lmini.ops.core import registry
from d2lmini.ops.random_state import seed as seed

uniform, normal, randint = (
    without_inputs(registry[f"_random_{name}"], name, "ctx out", "float32", ".random")
    for name in ("uniform", "normal", "randint")
)


def randn(*shape, loc=0, scale=1, **kwargs) -> NDArray:
    """`normal` with the sizes as arguments: randn(2, 3)."""
    return normal(loc, scale, shape, **kwargs)


multinomial, shuffle = registry["_sample_multinomial"], registry["_shuffle"]
uniform_like = registry["_random_uniform_like"]
normal_like = registry["_random_normal_like"]

__all__ = [
    "multinomial", "normal", "normal_like", "randint", "randn", "shuffle", "uniform", "uniform_like"
]  # fmt: skip


def __getattr__(name: str) -> Any:
    raise missing_attribute("nd.random", name, __all__)

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
from d2lmini.context import Context
from d2lmini.ndarray.creation import _make
from d2lmini.ndarray.ndarray import NDArray
from d2lmini.ops.core import registry
from d2lmini.ops.random_state import seed as seed


def draw(
    name: str, parameters: dict[str, Any], /, shape: Any = None, dtype: Any = "float32",
    ctx: Context | None = None, out: Any = None,
) -> NDArray:  # fmt: skip
    """A draw of the distribution `name` with these parameters."""
    if out is not None:
        shape, dtype = out.shape, out.dtype
    shape = 1 if shape is None else shape
    return _make(f"_random_{name}", ctx, out, shape=shape, dtype=dtype, **parameters)


def uniform(low=0, high=1, shape=None, dtype="float32", ctx=None, out=None) -> NDArray:
    """Evenly from low (included) to high (excluded)."""
    return draw("uniform", {"low": low, "high": high}, shape, dtype, ctx, out)


def normal(loc=0, scale=1, shape=None, dtype="float32", ctx=None, out=None) -> NDArray:
    """Gaussian with mean loc and standard deviation scale."""
    return draw("normal", {"loc": loc, "scale": scale}, shape, dtype, ctx, out)


def randn(*shape, loc=0, scale=1, **kwargs) -> NDArray:
    """`normal` with the sizes as arguments: randn(2, 3)."""
    return normal(loc, scale, shape, **kwargs)


def randint(low, high, shape=None, dtype="int32", ctx=None, out=None) -> NDArray:
    """Integers from low (included) to high (excluded), int32 by default."""
    return draw("randint", {"low": low, "high": high}, shape, dtype, ctx, out)


def multinomial(
    data: NDArray, shape: Any = None, get_prob: bool = False, out: Any = None, dtype: Any = "int32"
) -> Any:
    """Indices drawn with the probabilities in the last axis of data; with get_prob also the log
    of each index's probability."""
    shape = () if shape is None else shape
    return registry["_sample_multinomial"](data, shape, get_prob, dtype, out=out)


def shuffle(data: NDArray, out: Any = None) -> NDArray:
    """The rows of data in random order."""
    return registry["_shuffle"](data, out=out)


uniform_like = registry["_random_uniform_like"]
normal_like = registry["_random_normal_like"]

__all__ = [
    "multinomial", "normal", "normal_like", "randint", "randn", "shuffle", "uniform", "uniform_like"
]  # fmt: skip


def __getattr__(name: str) -> Any:
    raise missing_attribute("nd.random", name, __all__)

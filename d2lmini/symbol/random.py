"""`sym.random`: nodes that draw new random numbers at each run of the graph.

>>> from d2lmini import sym
>>> noise = sym.random.normal(0, 0.1, shape=(2, 3))
>>> noise.infer_shape()
([], [(2, 3)], [])

The functions and their arguments are those of `nd.random`.
"""

from __future__ import annotations

from typing import Any

from d2lmini.ops.core import registry
from d2lmini.symbol.compose import compose
from d2lmini.symbol.namespaces import function_of
from d2lmini.symbol.symbol import Symbol, tracer


def draw(
    name: str, parameters: dict[str, Any], /, shape: Any = None, dtype: Any = ..., **kwargs: Any
) -> Symbol:
    """A draw of the distribution `name` with these parameters."""
    kwargs.pop("ctx", None)
    if shape is not None:
        kwargs["shape"] = shape
    elif tracer.capture is not None:
        kwargs["shape"] = 1  # a net that is traced draws one number, as nd.random does
    if dtype is not ...:
        kwargs["dtype"] = dtype
    return compose(registry[f"_random_{name}"], (), {**kwargs, **parameters})


def uniform(low=0, high=1, shape=None, dtype=..., **kwargs) -> Symbol:
    """Evenly from low (included) to high (excluded)."""
    return draw("uniform", {"low": low, "high": high}, shape, dtype, **kwargs)


def normal(loc=0, scale=1, shape=None, dtype=..., **kwargs) -> Symbol:
    """Gaussian with mean loc and standard deviation scale."""
    return draw("normal", {"loc": loc, "scale": scale}, shape, dtype, **kwargs)


def randn(*shape, loc=0, scale=1, **kwargs) -> Symbol:
    """`normal` with the sizes as arguments: randn(2, 3)."""
    return normal(loc, scale, shape, **kwargs)


def randint(low, high, shape=None, dtype="int32", **kwargs) -> Symbol:
    """Integers from low (included) to high (excluded), int32 by default."""
    return draw("randint", {"low": low, "high": high}, shape, dtype, **kwargs)


def multinomial(
    data: Symbol, shape: Any = None, get_prob: bool = True, dtype: Any = "int32", **kwargs: Any
) -> Symbol:
    """Indices drawn with the probabilities in the last axis of data; with get_prob (the default
    here, as in MXNet) also the log of each index's probability, as a second output."""
    attrs = {"shape": () if shape is None else shape, "get_prob": get_prob, "dtype": dtype}
    return compose(registry["_sample_multinomial"], (data,), {**attrs, **kwargs})


shuffle = function_of(registry["_shuffle"], "_shuffle", "random.")
shuffle.__qualname__ = "random.shuffle"
uniform_like = function_of(registry["_random_uniform_like"], "uniform_like", "random.")
normal_like = function_of(registry["_random_normal_like"], "normal_like", "random.")

__all__ = [
    "multinomial", "normal", "normal_like", "randint", "randn", "shuffle", "uniform", "uniform_like"
]  # fmt: skip

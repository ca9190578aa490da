"""`sym.random`: nodes that draw new random numbers at each run of the graph.

>>> from d2lmini import sym
>>> noise = sym.random.normal(0, 0.1, shape=(2, 3))
>>> noise.infer_shape()
([], [(2, 3)], [])
>>> sym.random.uniform(sym.var("low"), sym.var("high"), shape=4).list_arguments()  # 4 of each
['low', 'high']

The functions and their arguments are those of `nd.random`; parameters are numbers, or all Symbols.
"""

from __future__ import annotations

from typing import Any

from d2lmini.ops.core import registry
from d2lmini.symbol.compose import compose
from d2lmini.symbol.namespaces import function_of
from d2lmini.symbol.symbol import Symbol, tracer

__all__ = [
    "exponential", "exponential_like", "gamma", "gamma_like", "generalized_negative_binomial",
    "generalized_negative_binomial_like", "multinomial", "negative_binomial",
    "negative_binomial_like", "normal", "normal_like", "poisson", "poisson_like", "randint",
    "randn", "shuffle", "uniform", "uniform_like",
]  # fmt: skip


def _draw(
    name: str, parameters: dict[str, Any], shape: Any, dtype: Any, kwargs: dict[str, Any]
) -> Symbol:
    values = tuple(parameters.values())
    kwargs.pop("ctx", None)
    attrs = dict(kwargs)
    if shape is not None:
        attrs["shape"] = shape
    elif tracer.capture is not None and not isinstance(values[0], Symbol):
        attrs["shape"] = 1  # a net that is traced draws one number, as nd.random does
    if dtype is not ...:
        attrs["dtype"] = dtype
    if all(isinstance(v, Symbol) for v in values):
        return compose(registry[f"_sample_{name}"], values, attrs)
    if any(isinstance(v, Symbol) for v in values):
        raise TypeError(
            f"random.{name}: {' and '.join(parameters)} must both be numbers or both Symbols, "
            f"got {' and '.join(type(v).__name__ for v in values)}"
        )
    return compose(registry[f"_random_{name}"], (), {**attrs, **parameters})


def uniform(
    low: Any = 0, high: Any = 1, shape: Any = None, dtype: Any = ..., **kwargs: Any
) -> Symbol:
    """Evenly between low (included) and high (excluded)."""
    return _draw("uniform", {"low": low, "high": high}, shape, dtype, kwargs)


def normal(
    loc: Any = 0, scale: Any = 1, shape: Any = None, dtype: Any = ..., **kwargs: Any
) -> Symbol:
    """Gaussian with mean loc and standard deviation scale."""
    return _draw("normal", {"loc": loc, "scale": scale}, shape, dtype, kwargs)


def randn(*shape: int, loc: Any = 0, scale: Any = 1, **kwargs: Any) -> Symbol:
    """`normal` with the sizes as arguments: randn(2, 3)."""
    return normal(loc, scale, shape, **kwargs)


def gamma(
    alpha: Any = 1, beta: Any = 1, shape: Any = None, dtype: Any = ..., **kwargs: Any
) -> Symbol:
    """Gamma with shape alpha and scale beta: mean alpha * beta."""
    return _draw("gamma", {"alpha": alpha, "beta": beta}, shape, dtype, kwargs)


def exponential(scale: Any = 1, shape: Any = None, dtype: Any = ..., **kwargs: Any) -> Symbol:
    """Exponential with mean `scale`."""
    return _draw("exponential", {"lam": 1.0 / scale}, shape, dtype, kwargs)


def poisson(lam: Any = 1, shape: Any = None, dtype: Any = ..., **kwargs: Any) -> Symbol:
    """Poisson with mean lam."""
    return _draw("poisson", {"lam": lam}, shape, dtype, kwargs)


def negative_binomial(
    k: Any = 1, p: Any = 1, shape: Any = None, dtype: Any = ..., **kwargs: Any
) -> Symbol:
    """Failures before the k-th success of probability p."""
    return _draw("negative_binomial", {"k": k, "p": p}, shape, dtype, kwargs)


def generalized_negative_binomial(
    mu: Any = 1, alpha: Any = 1, shape: Any = None, dtype: Any = ..., **kwargs: Any
) -> Symbol:
    """Negative binomial with mean mu and dispersion alpha."""
    parameters = {"mu": mu, "alpha": alpha}
    return _draw("generalized_negative_binomial", parameters, shape, dtype, kwargs)


def randint(low: Any, high: Any, shape: Any = None, dtype: Any = "int32", **kwargs: Any) -> Symbol:
    """Integers from low (included) to high (excluded), int32 by default."""
    for bound in (low, high):
        if isinstance(bound, Symbol):
            raise TypeError(f"random.randint: low and high must be numbers, got {bound!r}")
    return _draw("randint", {"low": low, "high": high}, shape, dtype, kwargs)


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
gamma_like = function_of(registry["_random_gamma_like"], "gamma_like", "random.")
exponential_like = function_of(registry["_random_exponential_like"], "exponential_like", "random.")
poisson_like = function_of(registry["_random_poisson_like"], "poisson_like", "random.")
negative_binomial_like = function_of(
    registry["_random_negative_binomial_like"], "negative_binomial_like", "random."
)
generalized_negative_binomial_like = function_of(
    registry["_random_generalized_negative_binomial_like"],
    "generalized_negative_binomial_like",
    "random.",
)

"""`nd.random`: random arrays, with numbers or NDArrays as parameters.

>>> from d2lmini import nd
>>> nd.random.uniform(0, 1, shape=(2, 3)).shape
(2, 3)
>>> nd.random.normal(nd.array([0, 100]), nd.array([1, 1]), shape=4).shape     # 4 of each
(2, 4)

`shape` may be a number; without `shape` one number is drawn, or one for each element of the
parameters. All results are float32 on the current context unless `dtype` and `ctx` are given.
"""

from __future__ import annotations

from typing import Any

from d2lmini.context import Context
from d2lmini.ndarray.creation import _make
from d2lmini.ndarray.ndarray import NDArray
from d2lmini.ops.core import registry

__all__ = [
    "exponential", "exponential_like", "gamma", "gamma_like", "generalized_negative_binomial",
    "generalized_negative_binomial_like", "multinomial", "negative_binomial",
    "negative_binomial_like", "normal", "normal_like", "poisson", "poisson_like", "randint",
    "randn", "shuffle", "uniform", "uniform_like",
]  # fmt: skip


def _draw(
    name: str, parameters: dict[str, Any], shape: Any, dtype: Any, ctx: Context | None, out: Any
) -> Any:
    values = list(parameters.values())
    if all(isinstance(v, NDArray) for v in values):
        shape = () if shape is None else shape
        return registry[f"_sample_{name}"](*values, shape=shape, dtype=dtype, out=out)
    if any(isinstance(v, NDArray) for v in values):
        raise TypeError(
            f"random.{name}: {' and '.join(parameters)} must both be numbers or both NDArrays, "
            f"got {' and '.join(type(v).__name__ for v in values)}"
        )
    if out is not None:
        shape, dtype = out.shape, out.dtype
    shape = 1 if shape is None else shape
    return _make(f"_random_{name}", ctx, out, shape=shape, dtype=dtype, **parameters)


def uniform(
    low: Any = 0, high: Any = 1, shape: Any = None, dtype: Any = "float32",
    ctx: Context | None = None, out: Any = None,
) -> NDArray:  # fmt: skip
    """Evenly between low (included) and high (excluded)."""
    return _draw("uniform", {"low": low, "high": high}, shape, dtype, ctx, out)


def normal(
    loc: Any = 0, scale: Any = 1, shape: Any = None, dtype: Any = "float32",
    ctx: Context | None = None, out: Any = None,
) -> NDArray:  # fmt: skip
    """Gaussian with mean loc and standard deviation scale."""
    return _draw("normal", {"loc": loc, "scale": scale}, shape, dtype, ctx, out)


def randn(*shape: int, loc: Any = 0, scale: Any = 1, **kwargs: Any) -> NDArray:
    """`normal` with the sizes as arguments: randn(2, 3)."""
    return normal(loc, scale, shape, **kwargs)


def gamma(
    alpha: Any = 1, beta: Any = 1, shape: Any = None, dtype: Any = "float32",
    ctx: Context | None = None, out: Any = None,
) -> NDArray:  # fmt: skip
    """Gamma with shape alpha and scale beta: mean alpha * beta."""
    return _draw("gamma", {"alpha": alpha, "beta": beta}, shape, dtype, ctx, out)


def exponential(
    scale: Any = 1, shape: Any = None, dtype: Any = "float32", ctx: Context | None = None,
    out: Any = None,
) -> NDArray:  # fmt: skip
    """Exponential with mean `scale`."""
    return _draw("exponential", {"lam": 1.0 / scale}, shape, dtype, ctx, out)


def poisson(
    lam: Any = 1,
    shape: Any = None,
    dtype: Any = "float32",
    ctx: Context | None = None,
    out: Any = None,
) -> NDArray:
    """Poisson with mean lam."""
    return _draw("poisson", {"lam": lam}, shape, dtype, ctx, out)


def negative_binomial(
    k: Any = 1, p: Any = 1, shape: Any = None, dtype: Any = "float32", ctx: Context | None = None,
    out: Any = None,
) -> NDArray:  # fmt: skip
    """Failures before the k-th success of probability p."""
    return _draw("negative_binomial", {"k": k, "p": p}, shape, dtype, ctx, out)


def generalized_negative_binomial(
    mu: Any = 1, alpha: Any = 1, shape: Any = None, dtype: Any = "float32",
    ctx: Context | None = None, out: Any = None,
) -> NDArray:  # fmt: skip
    """Negative binomial with mean mu and dispersion alpha."""
    return _draw(
        "generalized_negative_binomial", {"mu": mu, "alpha": alpha}, shape, dtype, ctx, out
    )


def randint(
    low: int, high: int, shape: Any = None, dtype: Any = "int32", ctx: Context | None = None,
    out: Any = None,
) -> NDArray:  # fmt: skip
    """Integers from low (included) to high (excluded), int32 by default."""
    if out is not None:
        shape, dtype = out.shape, out.dtype
    return _make(
        "_random_randint", ctx, out, low=low, high=high, shape=1 if shape is None else shape,
        dtype=dtype,
    )  # fmt: skip


def multinomial(
    data: NDArray, shape: Any = None, get_prob: bool = False, out: Any = None, dtype: Any = "int32"
) -> Any:
    """Indices drawn with the probabilities in the last axis of data; with get_prob also the log
    of each index's probability."""
    return registry["_sample_multinomial"](
        data, shape=() if shape is None else shape, get_prob=get_prob, dtype=dtype, out=out
    )


def shuffle(data: NDArray, out: Any = None) -> NDArray:
    """The rows of data in random order."""
    return registry["_shuffle"](data, out=out)


uniform_like = registry["_random_uniform_like"]
normal_like = registry["_random_normal_like"]
gamma_like = registry["_random_gamma_like"]
exponential_like = registry["_random_exponential_like"]
poisson_like = registry["_random_poisson_like"]
negative_binomial_like = registry["_random_negative_binomial_like"]
generalized_negative_binomial_like = registry["_random_generalized_negative_binomial_like"]

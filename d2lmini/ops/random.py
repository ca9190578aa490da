"""Random numbers as ops: each distribution with number parameters, array parameters, or "like".

>>> from d2lmini import nd, random
>>> random.seed(3)
>>> a = nd.random.normal(shape=(2, 2))
>>> random.seed(3)
>>> bool((a == nd.random.normal(shape=(2, 2))).min())
True

`_random_NAME` gives numbers of `shape`; `_sample_NAME` for every element of its parameter arrays
an array of `shape`; `_random_NAME_like` numbers in the shape and dtype of its input. Parameters out
of range are found while drawing, as in MXNet: the error is kept on the result. Names and
parameters are MXNet 1.9's; the streams are not (a seed gives other numbers there, and others on a
GPU than on the CPU: see `device/cuda/kernels/random.py`).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from d2lmini.base import MXNetError
from d2lmini.ops.core import DType, Shape, Spec, op
from d2lmini.ops.distributions import draw, draw_each
from d2lmini.ops.kernels import kind_of, with_kernels

# Drawing takes about this many operations a number.
_FLOPS = 20.0


def _floating(dtype: Any) -> np.dtype:
    dtype = np.dtype(dtype)
    if dtype.kind != "f":
        raise MXNetError(f"dtype {dtype} is not floating; use float16, float32 or float64")
    return dtype


def _of_shape(*, shape: Shape, dtype: Any, **_attrs: Any) -> Spec:
    return Spec(tuple(shape) or (1,), _floating(dtype))


def _per_parameter(*inputs: Spec, shape: Shape, dtype: Any) -> Spec:
    if any(other.shape != inputs[0].shape for other in inputs[1:]):
        shapes = " and ".join(str(i.shape) for i in inputs)
        raise MXNetError(f"the parameters' shapes {shapes} differ; they must be equal")
    return Spec(inputs[0].shape + tuple(shape), _floating(dtype))


def _drawn(name: str, *aliases: str) -> Any:
    names = (f"random_{name}", *aliases)
    return op(f"_random_{name}", aliases=names, infer=_of_shape, flops=_FLOPS, grad=None)


def _sampled(name: str) -> Any:
    names = (f"sample_{name}",)
    return op(f"_sample_{name}", aliases=names, infer=_per_parameter, flops=_FLOPS, grad=None)


def _alike(name: str) -> Any:
    return op(f"_random_{name}_like", flops=_FLOPS, grad=None)


def _place(xp: Any, out: Any, shape: Shape, dtype: Any) -> Any:
    return xp.empty(shape, dtype) if out is None else out


@_drawn("uniform", "uniform")
def random_uniform(
    xp,
    *,
    low: float = 0.0,
    high: float = 1.0,
    shape: Shape = (),
    dtype: DType = "float32",
    rng,
    out=None,
):
    """Evenly between low (included) and high."""
    return draw(
        xp, "uniform", rng, _place(xp, out, shape or (1,), dtype), {"low": low, "high": high}
    )


@_sampled("uniform")
def sample_uniform(xp, low, high, *, shape: Shape = (), dtype: DType = "float32", rng, out=None):
    """`_random_uniform` for each element of the arrays; (low.shape + shape)."""
    place = _place(xp, out, low.shape + shape, dtype)
    return draw_each(xp, "uniform", rng, place, {"low": low, "high": high})


@_alike("uniform")
def random_uniform_like(xp, data, *, low: float = 0.0, high: float = 1.0, rng, out=None):
    """`_random_uniform` in the shape and dtype of data."""
    return draw(
        xp, "uniform", rng, _place(xp, out, data.shape, data.dtype), {"low": low, "high": high}
    )


@_drawn("normal", "normal")
def random_normal(
    xp,
    *,
    loc: float = 0.0,
    scale: float = 1.0,
    shape: Shape = (),
    dtype: DType = "float32",
    rng,
    out=None,
):
    """Gaussian with mean loc and standard deviation scale (0 is allowed here, not in MXNet)."""
    return draw(
        xp, "normal", rng, _place(xp, out, shape or (1,), dtype), {"loc": loc, "scale": scale}
    )


@_sampled("normal")
def sample_normal(xp, loc, scale, *, shape: Shape = (), dtype: DType = "float32", rng, out=None):
    """`_random_normal` for each element of the arrays; (loc.shape + shape)."""
    place = _place(xp, out, loc.shape + shape, dtype)
    return draw_each(xp, "normal", rng, place, {"loc": loc, "scale": scale})


@_alike("normal")
def random_normal_like(xp, data, *, loc: float = 0.0, scale: float = 1.0, rng, out=None):
    """`_random_normal` in the shape and dtype of data."""
    return draw(
        xp, "normal", rng, _place(xp, out, data.shape, data.dtype), {"loc": loc, "scale": scale}
    )


@_drawn("gamma")
def random_gamma(
    xp,
    *,
    alpha: float = 1.0,
    beta: float = 1.0,
    shape: Shape = (),
    dtype: DType = "float32",
    rng,
    out=None,
):
    """Gamma with shape alpha and scale beta: mean alpha * beta."""
    return draw(
        xp, "gamma", rng, _place(xp, out, shape or (1,), dtype), {"alpha": alpha, "beta": beta}
    )


@_sampled("gamma")
def sample_gamma(xp, alpha, beta, *, shape: Shape = (), dtype: DType = "float32", rng, out=None):
    """`_random_gamma` for each element of the arrays; (alpha.shape + shape)."""
    place = _place(xp, out, alpha.shape + shape, dtype)
    return draw_each(xp, "gamma", rng, place, {"alpha": alpha, "beta": beta})


@_alike("gamma")
def random_gamma_like(xp, data, *, alpha: float = 1.0, beta: float = 1.0, rng, out=None):
    """`_random_gamma` in the shape and dtype of data."""
    return draw(
        xp, "gamma", rng, _place(xp, out, data.shape, data.dtype), {"alpha": alpha, "beta": beta}
    )


@_drawn("exponential")
def random_exponential(
    xp, *, lam: float = 1.0, shape: Shape = (), dtype: DType = "float32", rng, out=None
):
    """Exponential with rate lam: mean 1 / lam."""
    return draw(xp, "exponential", rng, _place(xp, out, shape or (1,), dtype), {"lam": lam})


@_sampled("exponential")
def sample_exponential(xp, lam, *, shape: Shape = (), dtype: DType = "float32", rng, out=None):
    """`_random_exponential` for each element of the arrays; (lam.shape + shape)."""
    place = _place(xp, out, lam.shape + shape, dtype)
    return draw_each(xp, "exponential", rng, place, {"lam": lam})


@_alike("exponential")
def random_exponential_like(xp, data, *, lam: float = 1.0, rng, out=None):
    """`_random_exponential` in the shape and dtype of data."""
    return draw(xp, "exponential", rng, _place(xp, out, data.shape, data.dtype), {"lam": lam})


@_drawn("poisson")
def random_poisson(
    xp, *, lam: float = 1.0, shape: Shape = (), dtype: DType = "float32", rng, out=None
):
    """Poisson with mean lam."""
    return draw(xp, "poisson", rng, _place(xp, out, shape or (1,), dtype), {"lam": lam})


@_sampled("poisson")
def sample_poisson(xp, lam, *, shape: Shape = (), dtype: DType = "float32", rng, out=None):
    """`_random_poisson` for each element of the arrays; (lam.shape + shape)."""
    place = _place(xp, out, lam.shape + shape, dtype)
    return draw_each(xp, "poisson", rng, place, {"lam": lam})


@_alike("poisson")
def random_poisson_like(xp, data, *, lam: float = 1.0, rng, out=None):
    """`_random_poisson` in the shape and dtype of data."""
    return draw(xp, "poisson", rng, _place(xp, out, data.shape, data.dtype), {"lam": lam})


@_drawn("negative_binomial")
def random_negative_binomial(
    xp,
    *,
    k: float = 1.0,
    p: float = 1.0,
    shape: Shape = (),
    dtype: DType = "float32",
    rng,
    out=None,
):
    """Failures before the k-th success of probability p."""
    return draw(
        xp, "negative_binomial", rng, _place(xp, out, shape or (1,), dtype), {"k": k, "p": p}
    )


@_sampled("negative_binomial")
def sample_negative_binomial(
    xp, k, p, *, shape: Shape = (), dtype: DType = "float32", rng, out=None
):
    """`_random_negative_binomial` for each element of the arrays; (k.shape + shape)."""
    place = _place(xp, out, k.shape + shape, dtype)
    return draw_each(xp, "negative_binomial", rng, place, {"k": k, "p": p})


@_alike("negative_binomial")
def random_negative_binomial_like(xp, data, *, k: float = 1.0, p: float = 1.0, rng, out=None):
    """`_random_negative_binomial` in the shape and dtype of data."""
    return draw(
        xp, "negative_binomial", rng, _place(xp, out, data.shape, data.dtype), {"k": k, "p": p}
    )


@_drawn("generalized_negative_binomial")
def random_generalized_negative_binomial(
    xp,
    *,
    mu: float = 1.0,
    alpha: float = 1.0,
    shape: Shape = (),
    dtype: DType = "float32",
    rng,
    out=None,
):
    """Negative binomial with mean mu and dispersion alpha; alpha 0 is Poisson."""
    return draw(
        xp,
        "generalized_negative_binomial",
        rng,
        _place(xp, out, shape or (1,), dtype),
        {"mu": mu, "alpha": alpha},
    )


@_sampled("generalized_negative_binomial")
def sample_generalized_negative_binomial(
    xp, mu, alpha, *, shape: Shape = (), dtype: DType = "float32", rng, out=None
):
    """`_random_generalized_negative_binomial` for each element; (mu.shape + shape)."""
    place = _place(xp, out, mu.shape + shape, dtype)
    return draw_each(xp, "generalized_negative_binomial", rng, place, {"mu": mu, "alpha": alpha})


@_alike("generalized_negative_binomial")
def random_generalized_negative_binomial_like(
    xp, data, *, mu: float = 1.0, alpha: float = 1.0, rng, out=None
):
    """`_random_generalized_negative_binomial` in the shape and dtype of data."""
    return draw(
        xp,
        "generalized_negative_binomial",
        rng,
        _place(xp, out, data.shape, data.dtype),
        {"mu": mu, "alpha": alpha},
    )


def _integers(*, low: int, high: int, shape: Shape, dtype: Any) -> Spec:
    if low >= high:
        raise MXNetError(f"low must be less than high, got low={low}, high={high}")
    if np.dtype(dtype).name not in ("int32", "int64"):
        raise MXNetError(f"dtype {dtype} is not one of int32, int64")
    return Spec(tuple(shape) or (1,), dtype)


@op("_random_randint", aliases=("random_randint",), infer=_integers, flops=_FLOPS, grad=None)
def random_randint(xp, *, low: int, high: int, shape: Shape = (), dtype: DType = "int32", rng):
    """Integers from low (included) to high (excluded)."""
    return rng.generator(0).integers(low, high, shape or (1,), dtype=dtype)


def _categories(data: Spec, *, shape: Shape, get_prob: bool, dtype: Any) -> list[Spec]:
    if len(data.shape) not in (1, 2):
        raise MXNetError(f"data must be (K,) or (N, K) probabilities, got {data.shape}")
    result = (data.shape[:-1] + tuple(shape)) or (1,)
    indices = Spec(result, dtype)
    return [indices, Spec(result, data.dtype)] if get_prob else [indices]


@op("_sample_multinomial", aliases=("sample_multinomial",), infer=_categories, grad=None,
    flops=_FLOPS, outputs=lambda get_prob=False, **_: 2 if get_prob else 1,
    mxnet_outputs=2)  # fmt: skip
def sample_multinomial(
    xp, data, *, shape: Shape = (), get_prob: bool = False, dtype: DType = "int32", rng
):
    """Indices drawn with the probabilities in the last axis of data.

    (K,) gives `shape`, (N, K) gives (N,) + shape; with get_prob also the log of each one's
    probability. The gradient of that log is declared where sampling is differentiated.
    """
    probabilities = data.reshape(-1, data.shape[-1]).astype("float64")
    upper = probabilities.cumsum(1)
    count = int(np.prod(shape, dtype=int))
    picked = xp.minimum(pick(xp, upper, count, rng), data.shape[-1] - 1).astype(np.int64)
    result = picked.reshape((data.shape[:-1] + tuple(shape)) or (1,))
    if not get_prob:
        return result.astype(dtype)
    chosen = xp.take_along_axis(probabilities, picked, 1).reshape(result.shape)
    with np.errstate(divide="ignore"):
        return result.astype(dtype), xp.log(chosen).astype(data.dtype)


@with_kernels
def pick(xp: Any, upper: Any, count: int, rng: Any) -> Any:
    """(N, count) numbers of categories, whose probabilities add up to `upper` (N, K)."""
    if xp is not np:
        return pick.kernels[kind_of(xp)](xp, upper, count, rng)
    shape = len(upper), count
    uniform = rng.generator(0).random(shape) * upper[:, -1:]
    rows = [np.searchsorted(u, x, side="right") for u, x in zip(upper, uniform, strict=True)]
    return np.reshape(rows, shape)


@op("_shuffle", aliases=("shuffle",), flops=_FLOPS, grad=None, in_mxnet=True)
def shuffle(xp, data, *, rng, out=None):
    """The rows of data (its first axis) in random order."""
    order = rng.generator(0).permutation(data.shape[0]) if data.ndim else ...
    if out is None:
        return data[order]
    out[...] = data[order]
    return out

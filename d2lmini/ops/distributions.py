"""Sampling from each distribution, in fixed chunks with one random stream per chunk.

A random op gets a key when it is pushed (random_state.py). Its output is split into chunks of
`PIECE` numbers, each with its own stream, so several cores can draw the chunks and the numbers do
not depend on which thread draws them.

>>> import numpy as np
>>> from d2lmini import random_state
>>> out = draw(np, "uniform", random_state.Key(1, 0, 0), np.empty(3), {"low": 1.0, "high": 1.0})
>>> out.tolist()
[1.0, 1.0, 1.0]
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from d2lmini.base import ArgumentValueError, MXNetError
from d2lmini.device.parallel import parallel_for
from d2lmini.ops import box_muller
from d2lmini.ops.kernels import kind_of, with_kernels
from d2lmini.random_state import Key

#: Numbers drawn from one stream.
PIECE = 1 << 18

Draw = Callable[..., None]

# Each function fills a flat array: (generator, out, parameters as numbers or arrays of its size).


def _uniform(generator: np.random.Generator, out: np.ndarray, low: Any, high: Any) -> None:
    _fill_standard(generator.random, out)
    out *= np.subtract(high, low, dtype=out.dtype)
    out += np.asarray(low, out.dtype)


def _normal(generator: np.random.Generator, out: np.ndarray, loc: Any, scale: Any) -> None:
    if out.dtype == np.float32 and out.size >= box_muller.WORTH_IT:
        box_muller.fill(generator, out)
    else:
        _fill_standard(generator.standard_normal, out)
    if np.ndim(scale) or scale != 1:
        out *= np.asarray(scale, out.dtype)
    if np.ndim(loc) or loc != 0:
        out += np.asarray(loc, out.dtype)


def _exponential(generator: np.random.Generator, out: np.ndarray, lam: Any) -> None:
    _fill_standard(generator.standard_exponential, out)
    out /= np.asarray(lam, out.dtype)


def _gamma(generator: np.random.Generator, out: np.ndarray, alpha: Any, beta: Any) -> None:
    out[...] = generator.standard_gamma(alpha, out.shape) * beta


def _poisson(generator: np.random.Generator, out: np.ndarray, lam: Any) -> None:
    out[...] = generator.poisson(lam, out.shape)


def _negative_binomial(generator: np.random.Generator, out: np.ndarray, k: Any, p: Any) -> None:
    out[...] = generator.negative_binomial(k, p, out.shape)


def _draw_generalized(generator: np.random.Generator, out: np.ndarray, mu: Any, alpha: Any) -> None:
    # A Poisson variable whose rate is Gamma(1 / alpha) distributed with mean mu.
    alpha = np.maximum(alpha, 1e-12)
    rate = generator.standard_gamma(1.0 / alpha, out.shape) * alpha * mu
    out[...] = generator.poisson(rate)


def _fill_standard(draw: Any, out: np.ndarray) -> None:
    """Fill a flat array from a method that knows float32 and float64 only."""
    if out.dtype == np.float16:
        out[...] = draw(out.shape, dtype=np.float32)
    else:
        draw(out=out, dtype=out.dtype)


#: What a parameter must be -> the test of numbers or arrays. nan is none of it but "a number".
RANGES: dict[str, Callable[[Any], Any]] = {
    "above 0": lambda value: value > 0,
    "0 or more": lambda value: value >= 0,
    "above 0 and at most 1": lambda value: (value > 0) & (value <= 1),
    "from 0 to 1": lambda value: (value >= 0) & (value <= 1),
    "finite": lambda value: abs(value) < np.inf,
    "a number": lambda value: True,
}


class Distribution(NamedTuple):
    """What it is, how NumPy draws it, and its parameters."""

    about: str
    draw: Draw
    defaults: dict[str, float]
    ranges: dict[str, str]


DISTRIBUTIONS = {
    "uniform": Distribution(
        "Evenly between low (included) and high.",
        _uniform, {"low": 0.0, "high": 1.0}, {"low": "a number", "high": "a number"},
    ),
    "normal": Distribution(
        "Gaussian with mean loc and standard deviation scale (0 is allowed here, not in MXNet).",
        _normal, {"loc": 0.0, "scale": 1.0}, {"loc": "a number", "scale": "0 or more"},
    ),
    "gamma": Distribution(
        "Gamma with shape alpha and scale beta: mean alpha * beta.",
        _gamma, {"alpha": 1.0, "beta": 1.0}, {"alpha": "above 0", "beta": "above 0"},
    ),
    "exponential": Distribution(
        "Exponential with rate lam: mean 1 / lam.", _exponential, {"lam": 1.0}, {"lam": "above 0"},
    ),
    "poisson": Distribution(
        "Poisson with mean lam.", _poisson, {"lam": 1.0}, {"lam": "0 or more"},
    ),
    "negative_binomial": Distribution(
        "Failures before the k-th success of probability p.",
        _negative_binomial, {"k": 1.0, "p": 1.0}, {"k": "above 0", "p": "above 0 and at most 1"},
    ),
    "generalized_negative_binomial": Distribution(
        "Negative binomial with mean mu and dispersion alpha; alpha 0 is Poisson.",
        _draw_generalized, {"mu": 1.0, "alpha": 1.0}, {"mu": "0 or more", "alpha": "0 or more"},
    ),
}  # fmt: skip


def check(name: str, parameters: dict[str, Any]) -> None:
    """MXNetError when a parameter (a number or an array) is out of its range."""
    for parameter, needs in DISTRIBUTIONS[name].ranges.items():
        require(f"_random_{name}: {parameter}", needs, parameters[parameter])
    if name == "uniform":
        low, high = parameters["low"], parameters["high"]
        if not np.all(low <= high):
            raise MXNetError(f"_random_uniform: high must be at least low={low}, got {high}")


def require(what: str, needs: str, value: Any) -> None:
    """ArgumentValueError, a kind of MXNetError, unless `value` (a number or an array), which is the
    parameter `what`, is what it `needs` to be."""
    holds = RANGES[needs](value)
    if not (holds is True or np.all(holds)):
        raise ArgumentValueError(f"{what} must be {needs}, got {value}")


@with_kernels
def standard_uniform(xp: Any, key: Key, piece: int, shape: tuple[int, ...]) -> Any:
    """float32 from 0 (included) to 1 (excluded), from the stream of one piece of an operation."""
    if xp is not np:
        return standard_uniform.kernels[kind_of(xp)](xp, key, piece, shape)
    return key.generator(piece).random(shape, dtype="float32")


@with_kernels
def draw(xp: Any, name: str, rng: Key, out: Any, parameters: dict[str, Any]) -> Any:
    """Fill `out` from a distribution whose parameters are numbers."""
    check(name, parameters)
    if xp is not np:
        return draw.kernels[kind_of(xp)](xp, name, rng, out, parameters)
    one = DISTRIBUTIONS[name].draw
    flat = out.reshape(-1)

    def piece(i: int) -> None:
        one(rng.generator(i), flat[i * PIECE : (i + 1) * PIECE], **parameters)

    parallel_for(-(-flat.size // PIECE), piece)
    return out


@with_kernels
def draw_each(xp: Any, name: str, rng: Key, out: Any, parameters: dict[str, Any]) -> Any:
    """Fill `out` from a distribution whose parameters are arrays: row i of `out` (all its further
    axes) belongs to parameter i."""
    if xp is not np:
        return draw_each.kernels[kind_of(xp)](xp, name, rng, out, parameters)
    check(name, parameters)
    count = next(iter(parameters.values())).size
    rows = out.reshape(count, -1)
    flat = {p: np.repeat(v.reshape(-1), rows.shape[1]) for p, v in parameters.items()}
    DISTRIBUTIONS[name].draw(rng.generator(0), rows.reshape(-1), **flat)
    return out

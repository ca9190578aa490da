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

from d2lmini.base import MXNetError
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


_ABOVE_0 = (lambda value: np.greater(value, 0), "above 0")
_NOT_NEGATIVE = (lambda value: np.greater_equal(value, 0), "0 or more")
_PROBABILITY = (lambda value: np.logical_and(np.greater(value, 0), np.less_equal(value, 1)),
                "above 0 and at most 1")  # fmt: skip
_ANY = (lambda value: True, "a number")


class Distribution(NamedTuple):
    """What it is, how NumPy draws it, and its parameters."""

    about: str
    draw: Draw
    defaults: dict[str, float]
    ranges: dict[str, Any]


DISTRIBUTIONS = {
    "uniform": Distribution(
        "Evenly between low (included) and high.",
        _uniform, {"low": 0.0, "high": 1.0}, {"low": _ANY, "high": _ANY},
    ),
    "normal": Distribution(
        "Gaussian with mean loc and standard deviation scale (0 is allowed here, not in MXNet).",
        _normal, {"loc": 0.0, "scale": 1.0}, {"loc": _ANY, "scale": _NOT_NEGATIVE},
    ),
    "gamma": Distribution(
        "Gamma with shape alpha and scale beta: mean alpha * beta.",
        _gamma, {"alpha": 1.0, "beta": 1.0}, {"alpha": _ABOVE_0, "beta": _ABOVE_0},
    ),
    "exponential": Distribution(
        "Exponential with rate lam: mean 1 / lam.", _exponential, {"lam": 1.0}, {"lam": _ABOVE_0},
    ),
    "poisson": Distribution(
        "Poisson with mean lam.", _poisson, {"lam": 1.0}, {"lam": _NOT_NEGATIVE},
    ),
    "negative_binomial": Distribution(
        "Failures before the k-th success of probability p.",
        _negative_binomial, {"k": 1.0, "p": 1.0}, {"k": _ABOVE_0, "p": _PROBABILITY},
    ),
    "generalized_negative_binomial": Distribution(
        "Negative binomial with mean mu and dispersion alpha; alpha 0 is Poisson.",
        _draw_generalized, {"mu": 1.0, "alpha": 1.0}, {"mu": _NOT_NEGATIVE, "alpha": _NOT_NEGATIVE},
    ),
}  # fmt: skip


def check(name: str, parameters: dict[str, Any]) -> None:
    """MXNetError when a parameter (a number or an array) is out of its range."""
    for parameter, (holds, needs) in DISTRIBUTIONS[name].ranges.items():
        value = parameters[parameter]
        _require(name, parameter, holds(value), needs, value)
    if name == "uniform":
        low, high = parameters["low"], parameters["high"]
        _require(name, "high", np.less_equal(low, high), f"at least low={low}", high)


def _require(name: str, parameter: str, holds: Any, needs: str, value: Any) -> None:
    if not np.all(holds):
        raise MXNetError(f"_random_{name}: {parameter} must be {needs}, got {value}")


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

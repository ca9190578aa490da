"""Sampling from each distribution, in fixed chunks with one random stream per chunk.

A random op gets a key when it is pushed (random_state.py). Its output is split into chunks of
`PIECE` numbers, each with its own stream, so several cores can draw the chunks and the numbers do
not depend on which thread draws them.

>>> import numpy as np
>>> from d2lmini.ops import random_state
>>> out = draw(np, "uniform", random_state.Key(1, 0, 0), np.empty(3), {"low": 1.0, "high": 1.0})
>>> out.tolist()
[1.0, 1.0, 1.0]
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from d2lmini.base import ArgumentValueError
from d2lmini.device.parallel import parallel_for
from d2lmini.ops.kernels import kind_of, with_kernels
from d2lmini.ops.random_state import Key

#: Numbers drawn from one stream.
PIECE = 1 << 18

#: From this many numbers on, faster than the ziggurat: the NumPy calls take about 15 us.
_WORTH_IT = 4096

_INT64 = np.iinfo(np.int64)
# Signed 32-bit integers to [-1, 1]; a step of 2^-31 leaves the tail whole up to 6.6 deviations.
_UNIT = np.float32(2.0**-31)

#: What a parameter must be -> the test of numbers or arrays. nan is none of it.
RANGES: dict[str, Callable[[Any], Any]] = {
    "0 or more": lambda value: value >= 0,
    "finite": lambda value: abs(value) < np.inf,
}


def _fill_standard(draw: Any, out: np.ndarray) -> None:
    """Fill a flat array from a method that knows float32 and float64 only."""
    if out.dtype == np.float16:
        out[...] = draw(out.shape, dtype=np.float32)
    else:
        draw(out=out, dtype=out.dtype)


def fill_normal(generator: np.random.Generator, out: np.ndarray) -> None:
    """Standard normal numbers into a flat float32 array of any size, in a dozen NumPy calls.

    G. E. P. Box and M. E. Muller, "A note on the generation of random normal deviates", 1958: a
    point with two normal coordinates has a uniform angle and an exponential squared distance.
    NumPy's own method (the ziggurat) draws one number after the other; this method computes whole
    arrays with SIMD instructions and takes half the time."""
    half = (out.size + 1) // 2
    distance = out[:half]
    angle = out[half:] if out.size % 2 == 0 else np.empty(half, np.float32)
    bits = generator.integers(_INT64.min, _INT64.max, half, np.int64, endpoint=True).view(np.int32)

    np.copyto(distance, bits[:half], casting="unsafe")
    np.abs(distance, out=distance)
    distance += np.float32(0.5)  # log needs a positive argument
    distance *= _UNIT
    np.log(distance, out=distance)
    distance *= np.float32(-2)
    np.sqrt(distance, out=distance)

    np.copyto(angle, bits[half:], casting="unsafe")
    angle *= np.float32(np.pi) * _UNIT
    across = np.cos(angle)
    np.sin(angle, out=angle)
    angle *= distance
    distance *= across
    if out.size % 2:
        out[half:] = angle[:-1]


def _uniform(generator: Any, out: np.ndarray, low: float, high: float) -> None:
    """Evenly between low (included) and high (excluded)."""
    _fill_standard(generator.random, out)
    out *= np.subtract(high, low, dtype=out.dtype)
    out += np.asarray(low, out.dtype)


def _normal(generator: Any, out: np.ndarray, loc: float, scale: float) -> None:
    """Gaussian with mean loc and standard deviation scale (0 is allowed here, not in MXNet)."""
    if out.dtype == np.float32 and out.size >= _WORTH_IT:
        fill_normal(generator, out)
    else:
        _fill_standard(generator.standard_normal, out)
    if scale != 1:
        out *= np.asarray(scale, out.dtype)
    if loc != 0:
        out += np.asarray(loc, out.dtype)


_DISTRIBUTIONS: dict[str, Callable[..., None]] = {"uniform": _uniform, "normal": _normal}


def require(what: str, needs: str, value: Any) -> None:
    """ArgumentValueError, a kind of MXNetError, unless `value` (a number or an array), which is the
    parameter `what`, is what it `needs` to be."""
    if not np.all(RANGES[needs](value)):
        raise ArgumentValueError(f"{what} must be {needs}, got {value}")


@with_kernels
def standard_uniform(xp: Any, key: Key, piece: int, shape: tuple[int, ...]) -> Any:
    """float32 from 0 (included) to 1 (excluded), from the stream of one piece of an operation."""
    if xp is not np:
        return standard_uniform.kernels[kind_of(xp)](xp, key, piece, shape)
    return key.generator(piece).random(shape, dtype="float32")


@with_kernels
def draw(xp: Any, name: str, rng: Key, out: Any, parameters: dict[str, float]) -> Any:
    """Fill `out` from a distribution with these parameters."""
    if xp is not np:
        return draw.kernels[kind_of(xp)](xp, name, rng, out, parameters)
    flat = out.reshape(-1)

    def piece(i: int) -> None:
        fill = _DISTRIBUTIONS[name]
        fill(rng.generator(i), flat[i * PIECE : (i + 1) * PIECE], **parameters)

    parallel_for(-(-flat.size // PIECE), piece)
    return out

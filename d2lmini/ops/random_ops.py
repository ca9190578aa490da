"""Random ops: uniform, normal, randint, multinomial, shuffle, Dropout.

>>> from d2lmini import nd, random
>>> random.seed(3)
>>> a = nd.random.normal(shape=(2, 2))
>>> random.seed(3)
>>> bool((a == nd.random.normal(shape=(2, 2))).min())
True

Parameters are numbers. Those out of range fail at run time, as in MXNet: the error is kept on the
result. Names and parameters are MXNet 1.9's; the streams are not (a seed gives other numbers in
MXNet, and others on a GPU than on the CPU: see `cuda/kernels/random_numbers.py`).

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
from functools import partial
from typing import Any

import numpy as np

from d2lmini.base import MXNetError
from d2lmini.device.parallel import parallel_for
from d2lmini.ops.checks import check_axes, check_choice, check_float, refuse_gradient, require
from d2lmini.ops.chunking import place
from d2lmini.ops.core import DType, Shape, Spec, op
from d2lmini.ops.kernels import with_kernels
from d2lmini.ops.random_state import Key
from d2lmini.ops.reduce import kept_shape, reduced_axes

# Drawing takes about this many operations per number.
_FLOPS = 20.0


def _of_shape(*, shape: Shape, dtype: Any, **_attrs: Any) -> Spec:
    spec = Spec(_known(shape), dtype)
    check_float(spec)
    return spec


def _known(shape: Shape) -> Shape:
    if not shape:
        raise MXNetError("the shape () is unknown in MXNet; give shape=, or shape=1 for one number")
    return tuple(shape)


def _empty(xp: Any, out: Any, shape: Shape, dtype: Any) -> Any:
    return xp.empty(shape, dtype) if out is None else out


_random = partial(op, flops=_FLOPS, grad=None)


@_random("_random_uniform", aliases=("random_uniform", "uniform"), infer=_of_shape)
def random_uniform(
    xp, *, low: float = 0.0, high: float = 1.0, shape: Shape = (), dtype: DType = "float32", rng,
    out=None,
):  # fmt: skip
    """Evenly from low (included) to high (excluded)."""
    if not low <= high:
        raise MXNetError(f"_random_uniform: high must be at least low={low}, got {high}")
    return draw(xp, "uniform", rng, _empty(xp, out, shape, dtype), {"low": low, "high": high})


@_random("_random_normal", aliases=("random_normal", "normal"), infer=_of_shape)
def random_normal(
    xp, *, loc: float = 0.0, scale: float = 1.0, shape: Shape = (), dtype: DType = "float32", rng,
    out=None,
):  # fmt: skip
    """Gaussian with mean loc and standard deviation scale."""
    require("_random_normal: scale", "0 or more", scale)
    return draw(xp, "normal", rng, _empty(xp, out, shape, dtype), {"loc": loc, "scale": scale})


@op("_random_uniform_like", flops=_FLOPS, grad=None, same_shape=True)
def random_uniform_like(xp, data, *, low: float = 0.0, high: float = 1.0, rng, out=None):
    """Evenly from low (included) to high (excluded), in the shape and dtype of data."""
    place = _empty(xp, out, data.shape, data.dtype)
    return draw(xp, "uniform", rng, place, {"low": low, "high": high})


@op("_random_normal_like", flops=_FLOPS, grad=None, same_shape=True)
def random_normal_like(xp, data, *, loc: float = 0.0, scale: float = 1.0, rng, out=None):
    """Gaussian with mean loc and standard deviation scale, in the shape and dtype of data."""
    place = _empty(xp, out, data.shape, data.dtype)
    return draw(xp, "normal", rng, place, {"loc": loc, "scale": scale})


def _integers(*, low: int, high: int, shape: Shape, dtype: Any, **_: Any) -> Spec:
    if low >= high:
        raise MXNetError(f"low must be less than high, got low={low}, high={high}")
    check_choice("dtype", np.dtype(dtype).name, ("int32", "int64"))
    return Spec(_known(shape), dtype)


@_random("_random_randint", aliases=("random_randint",), infer=_integers)
def random_randint(xp, *, low: int, high: int, shape: Shape = (), dtype: DType = "int32", rng):
    """Integers from low (included) to high (excluded)."""
    return rng.generator(0).integers(low, high, shape, dtype=dtype)


def _categories(
    data: Spec, *, shape: Shape, get_prob: bool, dtype: Any, **_attrs: Any
) -> list[Spec]:
    check_axes(data, 1, "(..., K): probabilities")
    check_float(data)
    result = (data.shape[:-1] + tuple(shape)) or (1,)
    indices = Spec(result, dtype)
    return [indices, Spec(result, data.dtype)] if get_prob else [indices]


@_random("_sample_multinomial", aliases=("sample_multinomial",), infer=_categories,
    outputs=lambda get_prob=False, **_: 2 if get_prob else 1,
    mxnet_outputs=2)  # fmt: skip
def sample_multinomial(
    xp, data, *, shape: Shape = (), get_prob: bool = False, dtype: DType = "int32", rng
):
    """Indices drawn with the probabilities in the last axis of data.

    (K,) gives `shape`, (N, K) gives (N,) + shape, more axes alike; with get_prob also the log of
    each index's probability. The op has no gradient, as all random ops.
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
    """(N, count) indices of categories; row n of `upper` (N, K) has their cumulative weights."""
    shape = len(upper), count
    uniform = rng.generator(0).random(shape) * upper[:, -1:]
    rows = [np.searchsorted(u, x, side="right") for u, x in zip(upper, uniform, strict=True)]
    return np.reshape(rows, shape)


@refuse_gradient
@op("_shuffle", aliases=("shuffle",), flops=_FLOPS, in_mxnet=True)
def shuffle(xp, data, *, rng, out=None):
    """The rows of data (its first axis) in random order."""
    order = rng.generator(0).permutation(data.shape[0]) if data.ndim else ...
    return place(xp, data[order], data.dtype, out)


#: Numbers drawn from one stream.
PIECE = 1 << 18

#: From this many numbers on, faster than the ziggurat: the NumPy calls take about 15 us.
_WORTH_IT = 4096

_INT64 = np.iinfo(np.int64)
# Signed 32-bit integers to [-1, 1]; a step of 2^-31 leaves the tail whole up to 6.6 deviations.
_UNIT = np.float32(2.0**-31)


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


@with_kernels
def standard_uniform(xp: Any, key: Key, piece: int, shape: tuple[int, ...]) -> Any:
    """float32 from 0 (included) to 1 (excluded), from the stream of one piece of an operation."""
    return key.generator(piece).random(shape, dtype="float32")


@with_kernels
def draw(xp: Any, name: str, rng: Key, out: Any, parameters: dict[str, float]) -> Any:
    """Fill `out` from a distribution with these parameters."""
    flat = out.reshape(-1)

    def piece(i: int) -> None:
        fill = _DISTRIBUTIONS[name]
        fill(rng.generator(i), flat[i * PIECE : (i + 1) * PIECE], **parameters)

    parallel_for(-(-flat.size // PIECE), piece)
    return out


# -- Dropout --------------------------------------------------------------------------------------


def _infer_dropout(data: Spec, *, p: float, mode: str, axes: Shape, **_: Any) -> Spec:
    check_float(data)
    check_choice("mode", mode, ("training", "always"))
    require("p", "from 0 to 1", p)
    reduced_axes(axes, len(data.shape))
    return data


@op(
    infer=_infer_dropout, flops=4, same_shape=True, mxnet_outputs=2,
    draws=lambda *, p, mode, training, **_: p > 0 and (training or mode == "always"),
)  # fmt: skip
def Dropout(
    xp, data, *, p: float = 0.5, mode: str = "training", axes: Shape = (),
    cudnn_off: bool | None = False, rng, training, out=None,
):  # fmt: skip
    """Set elements to zero with probability p and divide the others by 1 - p, while training.

    Outside training data itself, unless mode is 'always'. Along `axes` the elements share one
    random decision. Shape and floating dtype are kept; p = 1 gives zeros. MXNetError at the call
    for p, mode, axes.

    Backward draws the mask again from the stream of this operation, which takes some time and no
    memory. After N. Srivastava et al. (2014) and MXNet's Dropout.
    """
    if rng is None:
        return xp.positive(data, out=out)
    return dropped.compute(xp, data, p=p, axes=axes, key=rng, out=out)


@Dropout.gradient()
def _(g, *, p, axes, rng):
    return g if rng is None else dropped(g, p=p, axes=axes, key=rng)


@op("_dropped", flops=4)
def dropped(xp, data, *, p: float, axes: Shape, key, out=None):
    """data times the mask that `key` draws: 0 with probability p, else 1 / (1 - p)."""
    y = xp.empty(data.shape, data.dtype) if out is None else out
    scale = data.dtype.type(0 if p == 1 else 1 / (1 - p))
    if axes or xp is not np:
        shared = reduced_axes(axes, data.ndim) if axes else ()
        drawn = standard_uniform(xp, key, 0, kept_shape(data.shape, shared))
        return xp.multiply(data, (drawn >= p) * scale, out=y)
    flat, place = data.reshape(-1), y.reshape(-1)

    def piece(i: int) -> None:
        part = slice(i * PIECE, min((i + 1) * PIECE, flat.size))
        drawn = key.generator(i).random(part.stop - part.start, dtype="float32")
        np.multiply(flat[part], (drawn >= p) * scale, out=place[part])

    parallel_for(-(-flat.size // PIECE), piece)
    return y


dropped.gradient()(lambda g, *, p, axes, key: dropped(g, p=p, axes=axes, key=key))

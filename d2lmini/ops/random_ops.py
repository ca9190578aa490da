"""Random ops: uniform, normal, randint, multinomial, shuffle.

>>> from d2lmini import nd, random
>>> random.seed(3)
>>> a = nd.random.normal(shape=(2, 2))
>>> random.seed(3)
>>> bool((a == nd.random.normal(shape=(2, 2))).min())
True

Parameters are numbers. Those out of range fail at run time, as in MXNet: the error is kept on the
result. Names and parameters are MXNet 1.9's; the streams are not (a seed gives other numbers in
MXNet, and others on a GPU than on the CPU: see `cuda/kernels/random_numbers.py`).
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from d2lmini.base import MXNetError
from d2lmini.base.dtypes import is_float
from d2lmini.ops.checks import refuse_gradient
from d2lmini.ops.chunking import place
from d2lmini.ops.core import DType, Shape, Spec, op
from d2lmini.ops.distributions import draw, require
from d2lmini.ops.kernels import kind_of, with_kernels

# Drawing takes about this many operations per number.
_FLOPS = 20.0


def _floating(dtype: Any) -> np.dtype:
    dtype = np.dtype(dtype)
    if not is_float(dtype):
        raise MXNetError(f"dtype {dtype} is not floating; use float16, float32 or float64")
    return dtype


def _of_shape(*, shape: Shape, dtype: Any, **_attrs: Any) -> Spec:
    return Spec(_known(shape), _floating(dtype))


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
    if np.dtype(dtype).name not in ("int32", "int64"):
        raise MXNetError(f"dtype {dtype} is not one of int32, int64")
    return Spec(_known(shape), dtype)


@_random("_random_randint", aliases=("random_randint",), infer=_integers)
def random_randint(xp, *, low: int, high: int, shape: Shape = (), dtype: DType = "int32", rng):
    """Integers from low (included) to high (excluded)."""
    return rng.generator(0).integers(low, high, shape, dtype=dtype)


def _categories(
    data: Spec, *, shape: Shape, get_prob: bool, dtype: Any, **_attrs: Any
) -> list[Spec]:
    if not data.shape:
        raise MXNetError("data must be (..., K) probabilities, got shape ()")
    _floating(data.dtype)
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
    if xp is not np:
        return pick.kernels[kind_of(xp)](xp, upper, count, rng)
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

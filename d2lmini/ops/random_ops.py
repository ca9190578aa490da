"""Random ops: each distribution with number parameters, array parameters, or "like".

>>> from d2lmini import nd, random
>>> random.seed(3)
>>> a = nd.random.normal(shape=(2, 2))
>>> random.seed(3)
>>> bool((a == nd.random.normal(shape=(2, 2))).min())
True

`_random_NAME` draws numbers of `shape`; `_sample_NAME` an array of `shape` for every element of its
parameter arrays; `_random_NAME_like` numbers in the shape and dtype of its input. Parameters out of
range fail at run time, as in MXNet: the error is kept on the result. Names and parameters are MXNet
1.9's; the streams are not (a seed gives other numbers in MXNet, and others on a GPU than on the
CPU: see `cuda/kernels/random_numbers.py`).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from d2lmini.base import MXNetError
from d2lmini.base.dtypes import is_float
from d2lmini.ops.checks import refuse_gradient
from d2lmini.ops.chunking import place
from d2lmini.ops.core import DType, Shape, Spec, op
from d2lmini.ops.distributions import DISTRIBUTIONS, Distribution, draw, require
from d2lmini.ops.identity import copy, copy_values
from d2lmini.ops.kernels import kind_of, with_kernels
from d2lmini.ops.signature import Signature, with_signature

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


def _per_parameter(*inputs: Spec, shape: Shape, dtype: Any, **_attrs: Any) -> Spec:
    if any(other.shape != inputs[0].shape for other in inputs[1:]):
        shapes = " and ".join(str(i.shape) for i in inputs)
        raise MXNetError(f"the parameters' shapes {shapes} differ; they must be equal")
    return Spec(inputs[0].shape + tuple(shape), _floating(dtype))


def _empty(xp: Any, out: Any, shape: Shape, dtype: Any) -> Any:
    return xp.empty(shape, dtype) if out is None else out


def _declare(name: str, row: Distribution) -> None:
    """The three ops of a distribution."""
    defaults = {parameter: float(default) for parameter, default in row.defaults.items()}
    parameters, numbers = tuple(defaults), dict.fromkeys(defaults, "float")
    arrays_are = ("mu", "sigma") if name == "normal" else parameters  # the arrays' names
    shaped, convert = {"shape": (), "dtype": "float32"}, {"shape": "Shape", "dtype": "DType"}
    short = (name,) if name in ("uniform", "normal") else ()

    @op(f"_random_{name}", aliases=(f"random_{name}", *short), infer=_of_shape, flops=_FLOPS,
        grad=None)  # fmt: skip
    @with_signature(
        Signature((), (*parameters, *shaped, "rng", "out"), defaults | shaped, numbers | convert),
        row.draw.__doc__,
    )
    def _(xp, *, shape=(), dtype="float32", rng, out=None, **given):
        return draw(xp, name, rng, _empty(xp, out, shape, dtype), defaults | given)

    @op(f"_sample_{name}", aliases=(f"sample_{name}",), infer=_per_parameter, flops=_FLOPS,
        grad=None)  # fmt: skip
    @with_signature(
        Signature(arrays_are, (*shaped, "rng", "out"), shaped, convert, len(parameters)),
        f"`_random_{name}` for each element of the arrays; ({arrays_are[0]}.shape + shape).",
    )
    def sample(xp, *arrays, shape=(), dtype="float32", rng, out=None):
        place = _empty(xp, out, arrays[0].shape + shape, dtype)
        return draw(xp, name, rng, place, dict(zip(parameters, arrays, strict=True)))

    @op(f"_random_{name}_like", flops=_FLOPS, grad=None, same_shape=True)
    @with_signature(
        Signature(("data",), (*parameters, "rng", "out"), defaults, numbers, 1),
        f"`_random_{name}` in the shape and dtype of data.",
    )
    def _(xp, data, *, rng, out=None, **given):
        place = _empty(xp, out, data.shape, data.dtype)
        return draw(xp, name, rng, place, defaults | given)


for _name, _row in DISTRIBUTIONS.items():
    _declare(_name, _row)


@op("_in_range", flops=0, same_shape=True, onnx="Identity")
def in_range(xp, data, *, what: str, needs: str, out=None):
    """A copy of data, the parameter `what` of a draw; MXNetError at run time unless all of it is
    what it `needs` to be. As of `_sample_NAME`, arrays on a GPU are not looked at."""
    if xp is np:
        require(what, needs, data)
    return copy_values(xp, data, out)


in_range.gradient()(lambda g: g)
in_range.written_in_mxnet(lambda data, **_: copy(data))


def _integers(*, low: int, high: int, shape: Shape, dtype: Any, **_: Any) -> Spec:
    if low >= high:
        raise MXNetError(f"low must be less than high, got low={low}, high={high}")
    if np.dtype(dtype).name not in ("int32", "int64"):
        raise MXNetError(f"dtype {dtype} is not one of int32, int64")
    return Spec(_known(shape), dtype)


@op("_random_randint", aliases=("random_randint",), infer=_integers, flops=_FLOPS, grad=None)
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


@op("_sample_multinomial", aliases=("sample_multinomial",), infer=_categories, grad=None,
    flops=_FLOPS, outputs=lambda get_prob=False, **_: 2 if get_prob else 1,
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

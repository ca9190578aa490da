"""Other layers: FullyConnected, Dropout, L2Normalization.

>>> from d2lmini import nd
>>> x, w, b = nd.ones((2, 3)), nd.ones((4, 3)), nd.arange(4)
>>> nd.FullyConnected(x, w, b, num_hidden=4)
<BLANKLINE>
[[3. 4. 5. 6.]
 [3. 4. 5. 6.]]
<NDArray 2x4 @cpu(0)>

Convolution, pooling, normalization and softmax have modules of their own.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from d2lmini.base import MXNetError
from d2lmini.device.parallel import parallel_for
from d2lmini.ops.checks import check_choice, check_float, check_optional, check_shape
from d2lmini.ops.composed import composed
from d2lmini.ops.core import ALL, NOWHERE, Shape, Spec, normalize_axes, op
from d2lmini.ops.linalg import dot
from d2lmini.ops.products import matmul
from d2lmini.ops.random_ops import PIECE, standard_uniform
from d2lmini.ops.reduce import sum_

# -- FullyConnected -------------------------------------------------------------------------------


def _infer_fully_connected(
    data: Spec, weight: Spec, bias: Spec | None = None, *, num_hidden: int, no_bias: bool,
    flatten: bool,
) -> Spec:  # fmt: skip
    check_float(data, weight, bias)
    check_optional("bias", bias, not no_bias, f"no_bias={no_bias}")
    if not data.shape:
        raise MXNetError("data needs at least one axis, got a scalar")
    inner = prod(data.shape[1:]) if flatten else data.shape[-1]
    check_shape(
        "weight", weight, (num_hidden, inner),
        why=f"num_hidden and the inputs of data {data.shape} with flatten={flatten}",
    )  # fmt: skip
    check_shape("bias", bias, (num_hidden,))
    outer = data.shape[:1] if flatten else data.shape[:-1]
    return Spec((*outer, num_hidden), data.dtype)


def _flops_fully_connected(
    data: Spec, weight: Spec, bias: Spec | None = None, *, out: Spec, **_: Any
) -> float:
    return 2.0 * out.size * weight.shape[1] + (0 if bias is None else out.size)


def _rows(shape: Shape, flatten: bool) -> Shape:
    """data as a matrix with one sample per row."""
    return (shape[0], prod(shape[1:])) if flatten else (prod(shape[:-1]), shape[-1])


@op(
    infer=_infer_fully_connected, flops=_flops_fully_connected,
    optional=lambda attrs: () if attrs["no_bias"] else ("bias",),
)  # fmt: skip
def FullyConnected(
    xp, data, weight, bias=None, *, num_hidden: int, no_bias: bool = False, flatten: bool = True,
    out=None,
):  # fmt: skip
    """y = data weight^T + bias, a layer of `num_hidden` units.

    data (N, ...), where the axes after the first are merged into one of size K -> (N, num_hidden);
    with flatten False data (..., K) -> (..., num_hidden). weight (num_hidden, K), bias
    (num_hidden,) unless no_bias. One floating dtype, kept. MXNetError at the call for shapes and
    dtypes.
    Cost: 2 N K num_hidden.

    >>> weight, bias = nd.ones((5, 12)), nd.zeros(5)
    >>> nd.FullyConnected(nd.ones((2, 3, 4)), weight, bias, num_hidden=5).shape
    (2, 5)
    """
    flat = data.ndim == 2  # reshaping would change nothing
    rows = data if flat else data.reshape(_rows(data.shape, flatten))
    place = out if flat or out is None else out.reshape(len(rows), num_hidden)
    y = matmul(xp, rows, weight.T, place)
    if bias is not None:
        # For one row NumPy adds arrays of equal shape in half the time.
        xp.add(y, bias[None] if len(y) == 1 else bias, y)
    if flat:
        return y
    return y.reshape((data.shape[:1] if flatten else data.shape[:-1]) + (num_hidden,))


@FullyConnected.gradient(saves="data data.shape weight")
def _(g, data, shape, weight, *, num_hidden, no_bias, flatten, needs=ALL, places=NOWHERE):
    flat = len(shape) == 2  # reshaping would change nothing
    rows = shape if flat else _rows(shape, flatten)
    g = g if flat else g.reshape((rows[0], num_hidden))
    dx = dw = None
    if needs[0]:
        dx = dot(g, weight)
        dx = dx if flat else dx.reshape(shape)
    if needs[1]:
        dw = dot(g, data if flat else data.reshape(rows), transpose_a=True, out=places[1])
    return (dx, dw) if no_bias else (dx, dw, sum_(g, axis=0, out=places[2]) if needs[2] else None)


@FullyConnected.infer_inputs
def _(given, out, attrs):
    data, weight, hidden = given["data"], given.get("weight"), attrs["num_hidden"]
    if not data:
        return {}
    inner = prod(data[1:]) if attrs["flatten"] else data[-1]
    found = {"weight": (hidden, inner), "bias": (hidden,)}
    if out and (len(data) == 2 or not attrs["flatten"]):
        found["data"] = (*out[:-1], weight[1] if weight else 0)
    return found


# -- Dropout --------------------------------------------------------------------------------------


def _infer_dropout(data: Spec, *, p: float, mode: str, axes: Shape, **_: Any) -> Spec:
    check_float(data)
    check_choice("mode", mode, ("training", "always"))
    if not 0 <= p <= 1:
        raise MXNetError(f"p={p} is not a probability, need a number from 0 to 1")
    if axes:
        normalize_axes(axes, len(data.shape))
    return data


def _drops(*, p: float, mode: str, training: bool, **_: Any) -> bool:
    return p > 0 and (training or mode == "always")


@op(infer=_infer_dropout, flops=4, same_shape=True, mxnet_outputs=2, draws=_drops)
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
        shared = normalize_axes(axes, data.ndim) if axes else ()
        shape = tuple(1 if i in shared else n for i, n in enumerate(data.shape))
        drawn = standard_uniform(xp, key, 0, shape)
        return xp.multiply(data, (drawn >= p) * scale, out=y)
    flat, place = data.reshape(-1), y.reshape(-1)

    def piece(i: int) -> None:
        part = slice(i * PIECE, min((i + 1) * PIECE, flat.size))
        drawn = key.generator(i).random(part.stop - part.start, dtype="float32")
        np.multiply(flat[part], (drawn >= p) * scale, out=place[part])

    parallel_for(-(-flat.size // PIECE), piece)
    return y


@dropped.gradient()
def _(g, *, p, axes, key):
    return dropped(g, p=p, axes=axes, key=key)


# -- L2Normalization ------------------------------------------------------------------------------


def _infer_l2(data: Spec, *, mode: str, **_: Any) -> Spec:
    check_float(data)
    check_choice("mode", mode, ("instance", "channel", "spatial"))
    if len(data.shape) < (1 if mode == "instance" else 3):
        raise MXNetError(f"mode={mode!r} needs more axes, got {data.shape}")
    return data


@composed(infer=_infer_l2, flops=4, same_shape=True, mxnet_outputs=2)
def L2Normalization(data, *, eps: float = 1e-10, mode: str = "instance"):
    """data / sqrt(sum of squares + eps): over each 'instance', 'channel' (axis 1), or 'spatial'
    (axes 2 on, for each channel). Shape and floating dtype are kept.

    Each element of a vector is an instance.
    """
    first, end = {"instance": (1, data.ndim), "channel": (1, 2), "spatial": (2, data.ndim)}[mode]
    squares = data * data
    if first < end:
        squares = squares.sum(axis=tuple(range(first, end)), keepdims=True)
    return data / (squares + eps).sqrt()

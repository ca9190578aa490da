"""Shape and order of elements: reshape, transpose and related ops.

>>> from d2lmini import nd
>>> x = nd.arange(6)
>>> nd.reshape(x, shape=(2, -1))
<BLANKLINE>
[[0. 1. 2.]
 [3. 4. 5.]]
<NDArray 2x3 @cpu(0)>
>>> nd.transpose(nd.reshape(x, shape=(2, -1))).shape
(3, 2)

These ops copy; `x.reshape(...)` of an NDArray is a view. `reshape_codes` explains target shapes
with codes. All ops keep the dtype.
"""

from __future__ import annotations

from functools import lru_cache, partial
from math import prod
from typing import Any

import numpy as np

from d2lmini.base import MXNetError
from d2lmini.ops import chunking
from d2lmini.ops.core import Axes, Shape, Spec, normalize_axis, op, op_of_view, registry
from d2lmini.ops.create import progression
from d2lmini.ops.reduce import distinct_axes, reshape_to, spread
from d2lmini.ops.reshape_codes import infer_reshape

# -- reshape ---------------------------------------------------------------------------------------


@op_of_view(mxnet_name="Reshape", left_out=("target_shape", "keep_highest"))
def reshape(
    xp, data, *, shape: Shape = (), reverse: bool = False, out=None
):  # fmt: skip
    """A copy in another shape, given by sizes and the codes 0, -1, -2, -3, -4 (`reshape_codes`).

    With `reverse` the codes name axes counted from the end. `target_shape` and `keep_highest` are
    the older form of `shape` (`infer_older`). MXNetError at the call if the sizes do not fit.

    >>> nd.reshape(nd.ones((2, 3, 4)), shape=(0, -1)).shape
    (2, 12)
    """
    return chunking.place_view(xp, data.reshape(infer_reshape(data.shape, shape, reverse)), out)


@op_of_view("_np_reshape", in_mxnet=True)
def np_reshape(xp, a, *, newshape: Shape, order: str = "C", out=None):
    """A copy in another shape of NumPy's kind, which may be () or have zeros: the name of `_spread`
    in MXNet's files."""
    if order != "C":
        raise MXNetError(f"reshapes in order 'C', not {order!r}")
    return chunking.place_view(xp, a.reshape(newshape), out)


@np_reshape.gradient(saves="a.shape")
def _(g, shape):
    return spread(g, kept=shape, shape=shape)


@spread.written_in_mxnet
def _(data, *, kept, shape):
    y = np_reshape(data, newshape=kept)
    if kept == shape:
        return y
    if 0 in shape:  # in `broadcast_to` a 0 keeps the size
        raise MXNetError(f"an array broadcast to {shape} has no counterpart in MXNet's files")
    return registry["broadcast_to"](y, shape=shape)


@op_of_view(free_dtypes=("rhs",), left_out=("lhs_begin", "lhs_end", "rhs_begin", "rhs_end"))
def reshape_like(xp, lhs, rhs, *, out=None):
    """lhs in the shape of rhs, of the dtype of lhs.

    MXNetError at the call if the numbers of elements differ.
    """
    if prod(rhs.shape) != lhs.size:
        raise MXNetError(
            f"lhs {lhs.shape} has {lhs.size} elements and cannot take the shape {rhs.shape} of rhs"
        )
    return chunking.place_view(xp, lhs.reshape(rhs.shape), out)


@op_of_view(mxnet_name="Flatten")
def flatten(xp, data, *, out=None):
    """Merge all axes but the first: (N, A, B, ...) -> (N, A*B*...); (N,) -> (N, 1).

    MXNetError at the call for an array without axes.
    """
    if not data.shape:
        raise MXNetError("data is (), need one axis or more: the first is kept")
    return chunking.place_view(xp, data.reshape(data.shape[0], prod(data.shape[1:])), out)


@op_of_view
def expand_dims(xp, data, *, axis: int, out=None):
    """Insert an axis of size 1 at position `axis` of the result; -1 is the last.

    >>> nd.expand_dims(nd.ones((2, 3)), axis=1).shape
    (2, 1, 3)
    """
    at = normalize_axis(axis, data.ndim + 1)
    shape = (*data.shape[:at], 1, *data.shape[at:])
    return chunking.place_view(xp, data.reshape(shape), out)


@op_of_view
def squeeze(xp, data, *, axis: Axes = None, out=None):
    """Drop axes of size 1: all of them, or those of `axis`. At least one axis stays, as in MXNet.

    MXNetError at the call for an axis of another size.
    """
    shape = data.shape
    if axis is None:
        axes = [a for a, n in enumerate(shape) if n == 1]
    else:
        axes = distinct_axes(axis, len(shape))
        for a in axes:
            if shape[a] != 1:
                raise MXNetError(f"axis {a} of {shape} has size {shape[a]}; only 1 can go")
    left = tuple(n for a, n in enumerate(shape) if a not in axes) or shape[:1]
    return chunking.place_view(xp, data.reshape(left), out)


@reshape.gradient(saves="data.shape")
@flatten.gradient(saves="data.shape")
@expand_dims.gradient(saves="data.shape")
@squeeze.gradient(saves="data.shape")
def _(g, shape):
    return reshape_to(g, shape)


@reshape_like.gradient(saves="lhs.shape")
def _(g, shape):
    return reshape_to(g, shape), None


# -- transpose -------------------------------------------------------------------------------------


def _order(axes: Shape | None, ndim: int) -> tuple[int, ...]:
    if not axes:
        return tuple(range(ndim))[::-1]
    order = tuple(a + ndim if a < 0 else a for a in axes)
    if sorted(order) != list(range(ndim)):
        raise MXNetError(f"axes={axes} is not a permutation of {ndim} axes: name each axis once")
    return order


@op_of_view
def transpose(xp, data, *, axes: Shape | None = (), out=None):
    """Axes in another order: axis i of the result is axis axes[i] of the data; () reverses them.

    >>> nd.transpose(nd.ones((2, 3, 4)), axes=(1, 0, 2)).shape
    (3, 2, 4)
    """
    return chunking.place_view(xp, data.transpose(_order(axes, data.ndim)), out)


@transpose.gradient(saves="data.shape")
def _(g, shape, *, axes):
    order = _order(axes, len(shape))
    return transpose(g, axes=tuple(sorted(range(len(order)), key=order.__getitem__)))


@op_of_view(mxnet_name="SwapAxis")
def swapaxes(xp, data, *, dim1: int = 0, dim2: int = 0, out=None):
    """Exchange two axes."""
    return chunking.place_view(xp, data.swapaxes(dim1, dim2), out)


@swapaxes.gradient()
def _(g, *, dim1, dim2):
    return swapaxes(g, dim1=dim1, dim2=dim2)


# -- between channels and space --------------------------------------------------------------------


@lru_cache(maxsize=1024)
def _check_blocks(shape: Shape, block_size: int, multiples: Shape) -> Shape:
    if block_size < 1:
        raise MXNetError(f"block_size={block_size}, need 1 or more")
    if len(shape) != 4 or any(n % m for n, m in zip(shape, multiples)):
        raise MXNetError(f"data is {shape}, need (N, C, H, W), multiples of {multiples}")
    return shape


@op_of_view(onnx="DepthToSpace(blocksize=block_size)")
def depth_to_space(xp, data, *, block_size: int):
    """Channels to b x b blocks of pixels: (N, b*b*C, H, W) -> (N, C, H*b, W*b).

    y[n, c, h*b + i, w*b + j] = x[n, (i*b + j)*C + c, h, w], as ONNX's DepthToSpace. MXNetError at
    the call if the channels do not divide.
    """
    b = block_size
    N, C, H, W = _check_blocks(data.shape, b, (1, b * b, 1, 1))
    blocks = data.reshape(N, b, b, C // b**2, H, W).transpose(0, 3, 4, 1, 5, 2)
    return blocks.reshape(N, C // b**2, H * b, W * b)


@op_of_view(onnx="SpaceToDepth(blocksize=block_size)")
def space_to_depth(xp, data, *, block_size: int):
    """Blocks of b x b pixels to channels: (N, C, H*b, W*b) -> (N, b*b*C, H, W)."""
    b = block_size
    N, C, H, W = _check_blocks(data.shape, b, (1, 1, b, b))
    blocks = data.reshape(N, C, H // b, b, W // b, b).transpose(0, 3, 5, 1, 2, 4)
    return blocks.reshape(N, C * b**2, H // b, W // b)


@depth_to_space.gradient()
def _(g, *, block_size):
    return space_to_depth(g, block_size=block_size)


@space_to_depth.gradient()
def _(g, *, block_size):
    return depth_to_space(g, block_size=block_size)


# -- results that do not depend on the elements ----------------------------------------------------


_of_shape = partial(
    op, flops=0, grad=None, free_dtypes=("data",),
    output_dtypes=lambda attrs, data, n: ["int64"] * n,
)  # fmt: skip


@_of_shape(infer=lambda data: Spec((len(data.shape),), "int64"), onnx="Shape")
def shape_array(xp, data):
    """The shape as an int64 array, (ndim,)."""
    return xp.asarray(data.shape, dtype=np.int64)


@_of_shape(infer=lambda data: Spec((1,), "int64"))
def size_array(xp, data):
    """The number of elements as an int64 array, (1,)."""
    return xp.asarray([data.size], dtype=np.int64)


def _infer_arange_like(data: Spec, *, axis: int | None = None, repeat: int = 1, **_: Any) -> Spec:
    if repeat < 1:
        raise MXNetError(f"repeat={repeat}, need 1 or more")
    if axis is None:
        return data
    return Spec((data.shape[normalize_axis(axis, len(data.shape))],), data.dtype)


@op("_contrib_arange_like", infer=_infer_arange_like, grad=None)
def arange_like(
    xp, data, *, start: float = 0.0, step: float = 1.0, repeat: int = 1, axis: int | None = None
):
    """start, start + step, ... in the shape of `data`, or (n,) for the length of one `axis`.

    Each number comes `repeat` times in a row; computed in the dtype of data.
    """
    shape = data.shape if axis is None else (data.shape[axis],)
    n = prod(shape)
    values = progression(xp, start, step, -(-n // repeat), data.dtype, repeat)
    return values[:n].reshape(shape)

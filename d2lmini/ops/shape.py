"""Shape and order of elements: reshape, broadcast, transpose, diag and related ops.

>>> from d2lmini import nd
>>> x = nd.arange(6)
>>> nd.reshape(x, shape=(2, -1))
<BLANKLINE>
[[0. 1. 2.]
 [3. 4. 5.]]
<NDArray 2x3 @cpu(0)>
>>> nd.transpose(nd.reshape(x, shape=(2, -1))).shape
(3, 2)
>>> nd.broadcast_to(nd.array([[1, 2]]), shape=(2, 0))     # 0 keeps the size
<BLANKLINE>
[[1. 2.]
 [1. 2.]]
<NDArray 2x2 @cpu(0)>

These ops copy; `x.reshape(...)` of an NDArray is a view. All keep the dtype. The gradient of an
element is the sum over its copies.

A target shape of `reshape` may hold codes. It is read from left to right while a cursor moves over
the axes of the input:

    n > 0       this size; the cursor steps over one axis, whatever its size
    0           keep the axis under the cursor
    -1          the remaining size (at most once); the cursor steps over one axis
    -2          keep all axes from the cursor on
    -3          join the axis under the cursor and the next one
    -4, a, b    split the axis under the cursor into sizes a and b, of which one may be -1

>>> infer_reshape((2, 3, 4), (0, -1))
(2, 12)
>>> infer_reshape((2, 3, 4), (-3, -2))
(6, 4)
>>> infer_reshape((6, 4), (-4, 2, -1, 0))
(2, 3, 4)

With `reverse` both are read from right to left, so that codes name axes counted from the end:

>>> infer_reshape((10, 5, 4), (-1, 0), reverse=True)
(50, 4)

After MXNet's `reshape`, where the two sizes of a split also precede its -4 when reversed. Unlike in
MXNet, a result whose size does not fit is always an error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from math import prod
from operator import mul
from typing import Any

import numpy as np

from d2lmini.base import ArgumentValueError, MXNetError
from d2lmini.ops import chunking
from d2lmini.ops.checks import check_choice, require
from d2lmini.ops.composed import composed
from d2lmini.ops.core import Axes, Op, Shape, Spec, normalize_axis, op, op_of_view, with_axis
from d2lmini.ops.elementwise import broadcast_shape
from d2lmini.ops.index import adjoint, scatter
from d2lmini.ops.reduce import distinct_axes, reshape_to, spread, sum_to
from d2lmini.ops.signature import signature_of, with_signature

# -- the codes of reshape --------------------------------------------------------------------------


def infer_reshape(shape: Shape, target: Shape, reverse: bool = False) -> Shape:
    """The shape that `target` means for an array of `shape`; ArgumentValueError if none fits."""
    step = -1 if reverse else 1
    try:
        return _follow(shape[::step], target[::step])[::step]
    except ValueError as problem:
        backwards = " with reverse=True" if reverse else ""
        raise ArgumentValueError(
            f"cannot reshape {shape} into {tuple(target)}{backwards}: {problem}"
        ) from None


def _follow(shape: Shape, target: Shape) -> Shape:
    """The result's sizes; ValueError with the reason why the target does not fit."""
    sizes: list[int] = []
    # -1 stands for the total size over the given size, both without the kept axes. So -1 has a
    # meaning next to a kept axis of size 0: (0, 4) into (0, -1) is (0, 4).
    given, cursor = 1, 0
    kept: set[int] = set()
    codes = iter(target)
    for code in codes:
        if code > 0 or code == -1:
            sizes.append(code)
            given *= abs(code)
            cursor += 1
            continue
        if code < -4:
            raise ValueError(f"{code} is neither a size nor one of the codes 0 to -4")
        used = {-2: max(len(shape) - cursor, 0), -3: 2}.get(code, 1)
        taken = shape[cursor : cursor + used]
        if len(taken) < used:
            raise ValueError(f"no axis is left for code {code}")
        if code == -4:
            taken = _split(taken[0], codes)
        sizes += [prod(taken)] if code == -3 else taken
        kept.update(range(cursor, cursor + used))
        cursor += used
    if sizes.count(-1) > 1:
        raise ValueError("at most one size may be -1")
    if -1 in sizes:
        rest = prod(n for axis, n in enumerate(shape) if axis not in kept)
        if rest % given:
            raise ValueError(f"{rest} elements do not divide by {given}, so no size fits for -1")
        sizes[sizes.index(-1)] = rest // given
    elif prod(sizes) != prod(shape):
        raise ValueError(
            f"it has {prod(shape)} elements, the target would have {prod(sizes)}; "
            "-1 stands for the size that follows from the others"
        )
    return tuple(sizes)


def _split(size: int, codes: Iterator[int]) -> Shape:
    """The two sizes after a -4, for an axis of `size`."""
    pair = [n for _, n in zip(range(2), codes)]
    if len(pair) < 2:
        raise ValueError("code -4 takes two sizes")
    known = -prod(pair) if -1 in pair else 0
    a, b = (size // known if n == -1 and known > 0 else n for n in pair)
    if a < 0 or b < 0 or a * b != size:
        raise ValueError(f"an axis of size {size} does not split into {pair[0]} and {pair[1]}")
    return a, b


# -- to another shape ------------------------------------------------------------------------------


def _to_shape(view: Callable, back: Callable, name: str = "", **facts: Any) -> Callable:
    """Declare an op by a function of the shapes of its inputs: the shape that the first takes.

    view: (xp, array, shape) -> view; back: (gradient, shape of the input) -> gradient."""

    def declare(shape_of: Callable[..., Shape]) -> Op:
        own = signature_of(shape_of, 0)

        @with_signature(own, shape_of.__doc__)
        def compute(xp: Any, *arrays: Any, out: Any = None, **attrs: Any) -> Any:
            shape = shape_of(*[a.shape for a in arrays], **attrs)
            return chunking.place_view(xp, view(xp, arrays[0], shape), out)

        declared: Op = op_of_view(name or shape_of.__name__, **facts)(compute)
        nothing = (None,) * (len(own.inputs) - 1)
        declared.gradient(f"{own.inputs[0]}.shape")(lambda g, shape: (back(g, shape), *nothing))
        return declared

    return declare


_reshaped = partial(_to_shape, lambda xp, data, shape: data.reshape(shape), reshape_to)
_broadcast = partial(
    _to_shape,
    lambda xp, data, shape: xp.broadcast_to(data, shape),
    lambda g, shape: sum_to(g, shape=shape),
)


@_reshaped(mxnet_name="Reshape", left_out=("target_shape", "keep_highest"))
def reshape(data, *, shape: Shape = (), reverse: bool = False):
    """A copy in another shape, given by sizes and the codes 0, -1, -2, -3, -4 (`ops/shape.py`).

    With `reverse` the codes name axes counted from the end. MXNetError at the call if the sizes do
    not fit.

    >>> nd.reshape(nd.ones((2, 3, 4)), shape=(0, -1)).shape
    (2, 12)
    """
    return infer_reshape(data, shape, reverse)


@_reshaped("_np_reshape", in_mxnet=True)
def np_reshape(a, *, newshape: Shape, order: str = "C"):
    """A copy in another shape of NumPy's kind, which may be () or have zeros: the name of `_spread`
    in MXNet's files."""
    check_choice("order", order, ("C",))
    return newshape


@spread.written_in_mxnet
def _(data, *, kept, shape):
    y = np_reshape(data, newshape=kept)
    if kept == shape:
        return y
    if 0 in shape:  # in `broadcast_to` a 0 keeps the size
        raise MXNetError(f"an array broadcast to {shape} has no counterpart in MXNet's files")
    return broadcast_to(y, shape=shape)


@_reshaped(free_dtypes=("rhs",), left_out=("lhs_begin", "lhs_end", "rhs_begin", "rhs_end"))
def reshape_like(lhs, rhs):
    """lhs in the shape of rhs, of the dtype of lhs.

    MXNetError at the call if the numbers of elements differ.
    """
    if prod(rhs) != prod(lhs):
        raise MXNetError(
            f"lhs {lhs} has {prod(lhs)} elements and cannot take the shape {rhs} of rhs"
        )
    return rhs


@_reshaped(mxnet_name="Flatten")
def flatten(data):
    """Merge all axes but the first: (N, A, B, ...) -> (N, A*B*...); (N,) -> (N, 1).

    MXNetError at the call for an array without axes.
    """
    if not data:
        raise MXNetError("data is (), need one axis or more: the first is kept")
    return data[0], prod(data[1:])


@_reshaped()
def expand_dims(data, *, axis: int):
    """Insert an axis of size 1 at position `axis` of the result; -1 is the last.

    >>> nd.expand_dims(nd.ones((2, 3)), axis=1).shape
    (2, 1, 3)
    """
    at = normalize_axis(axis, len(data) + 1)
    return (*data[:at], 1, *data[at:])


@_reshaped()
def squeeze(data, *, axis: Axes = None):
    """Drop axes of size 1: all of them, or those of `axis`. At least one axis stays, as in MXNet.

    MXNetError at the call for an axis of another size.
    """
    ones = [a for a, n in enumerate(data) if n == 1]
    axes = ones if axis is None else distinct_axes(axis, len(data))
    for a in axes:
        if a not in ones:
            raise MXNetError(f"axis {a} of {data} has size {data[a]}; only 1 can go")
    return tuple(n for a, n in enumerate(data) if a not in axes) or data[:1]


# -- broadcast -------------------------------------------------------------------------------------


def _broadcast_shape(shape: Shape, target: Shape) -> Shape:
    """`target` if `shape` broadcasts to it; `target` may have more axes in front."""
    if broadcast_shape(shape, target) != target:
        raise MXNetError(
            f"{shape} does not broadcast to {target}: sizes counted from the last axis must be "
            "equal, or 1 in the array"
        )
    return target


@_broadcast()
def broadcast_to(data, *, shape: Shape = ()):
    """Copies along every axis of size 1 up to `shape`, where 0 keeps the size of the data.

    New axes may come in front, as in NumPy (MXNet refuses them here, not in the NDArray method).
    MXNetError at the call if the shapes do not broadcast.

    >>> nd.broadcast_to(nd.array([[1], [2]]), shape=(2, 3)).asnumpy().tolist()
    [[1.0, 1.0, 1.0], [2.0, 2.0, 2.0]]
    """
    extra = max(len(shape) - len(data), 0)
    sizes = zip(shape[extra:], data)
    return _broadcast_shape(data, (*shape[:extra], *[n or size for n, size in sizes]))


@_broadcast(aliases=["broadcast_axes"])
def broadcast_axis(data, *, axis: Axes = (), size: Axes = ()):
    """Copies along `axis` (an int or a tuple), whose size is 1, until it has size `size`.

    MXNetError at the call for an axis of another size.
    """
    axes: Any = (axis,) if isinstance(axis, int) else axis
    sizes: Any = (size,) if isinstance(size, int) else size
    if len(axes) != len(sizes):
        raise MXNetError(f"axis={axis} and size={size} must have the same length")
    target = list(data)
    for a, n in zip(axes, sizes):
        a = normalize_axis(a, len(data))
        if data[a] != 1 or n < 0 or target[a] != 1:
            raise MXNetError(f"axis {a} of {data} cannot become {n}: need size 1, named once")
        target[a] = n
    return tuple(target)


@_broadcast(free_dtypes=("rhs",), left_out=("lhs_axes", "rhs_axes"))
def broadcast_like(lhs, rhs):
    """lhs broadcast to the shape of rhs, which has as many axes; MXNetError at the call if not, or
    if they do not broadcast."""
    if len(lhs) != len(rhs):
        raise MXNetError(f"lhs is {lhs}, rhs {rhs}: need as many axes")
    return _broadcast_shape(lhs, rhs)


# Of tile and repeat each axis becomes two, of which one is broadcast: its elements times its
# copies, which are merged.


def _copies(data: Any, kept: Shape, pairs: Shape) -> Any:
    """`data` in the shape `kept`, broadcast to `pairs`, of which each pair is merged."""
    return reshape_to(
        spread(data, kept=kept, shape=pairs), tuple(map(mul, pairs[::2], pairs[1::2]))
    )


@composed(flops=0)
def tile(data, *, reps: Shape):
    """The whole array reps[i] times along axis i; the shorter of shape and reps gets 1 in front.

    (2, 3) with reps (2, 2) -> (4, 6), with reps 2 -> (2, 6), with (2, 1, 1) -> (2, 2, 3).
    MXNetError for negative reps.

    >>> nd.tile(nd.array([1, 2]), reps=2).asnumpy().tolist()
    [1.0, 2.0, 1.0, 2.0]
    """
    require("each of reps", "0 or more", min(reps, default=0))
    ndim = max(data.ndim, len(reps))
    shape, reps = ((1,) * (ndim - len(s)) + s for s in (data.shape, reps))
    kept = tuple(s for n in shape for s in (1, n))
    return _copies(data, kept, tuple(s for pair in zip(reps, shape) for s in pair))


@composed(flops=0)
def repeat(data, *, repeats: int, axis: int | None = None):
    """Each element `repeats` times in a row along `axis`, or of the flattened array. MXNetError for
    a negative number.

    >>> nd.repeat(nd.array([1, 2]), repeats=2).asnumpy().tolist()
    [1.0, 1.0, 2.0, 2.0]
    """
    require("repeats", "0 or more", repeats)
    shape: Shape = (prod(data.shape),) if axis is None else data.shape
    axis = normalize_axis(axis or 0, len(shape))
    kept = tuple(s for n in shape for s in (n, 1))
    return _copies(data, kept, with_axis(kept, 2 * axis + 1, repeats))


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


swapaxes.gradient()(lambda g, *, dim1, dim2: swapaxes(g, dim1=dim1, dim2=dim2))


# -- between channels and space --------------------------------------------------------------------


def _check_blocks(shape: Shape, block_size: int, multiples: Shape) -> Shape:
    require("block_size", "1 or more", block_size)
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


depth_to_space.gradient()(lambda g, *, block_size: space_to_depth(g, block_size=block_size))
space_to_depth.gradient()(lambda g, *, block_size: depth_to_space(g, block_size=block_size))


# -- diagonals -------------------------------------------------------------------------------------


def _infer_diag(data: Spec, *, k: int) -> Spec:
    if len(data.shape) == 1:
        return Spec((data.shape[0] + abs(k),) * 2, data.dtype)
    rows, columns, *rest = data.shape or (0, 0)
    length = min(rows + min(k, 0), columns - max(k, 0))
    if length < 0 or not data.shape:
        raise MXNetError(f"k={k} is not a diagonal of data {data.shape}")
    return Spec((*rest, length), data.dtype)


@op(infer=_infer_diag, flops=0, left_out=("axis1", "axis2"))
def diag(xp, data, *, k: int = 0):
    """Diagonal number k: of zeros filled with a vector, or taken from matrices.

    (n,) -> (n + |k|, n + |k|). With two axes or more the first two hold the matrices; one last
    axis with the diagonals replaces both, as in numpy.diagonal. dtype kept.
    MXNetError at the call for a diagonal that does not exist.

    >>> nd.diag(nd.array([1, 2]), k=1)
    <BLANKLINE>
    [[0. 1. 0.]
     [0. 0. 2.]
     [0. 0. 0.]]
    <NDArray 3x3 @cpu(0)>
    """
    return xp.diag(data, k) if data.ndim == 1 else xp.diagonal(data, k)


@adjoint(diag, "_undiag", flops=0)
def undiag(xp, data, *, shape: Shape, k: int):
    """Zeros of `shape` with `data` at the diagonal that `diag` reads; for a vector, which `diag`
    writes into a matrix, the diagonal of this matrix."""
    if len(shape) == 1:
        return xp.diagonal(data, k)
    place = xp.arange(data.shape[-1])
    where = (place + max(0, -k), place + max(0, k))
    return scatter(xp, where, xp.moveaxis(data, -1, 0), shape, None)


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

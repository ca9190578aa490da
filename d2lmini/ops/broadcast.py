"""Repeated data: broadcast_to, broadcast_axis, broadcast_like, tile, repeat.

>>> from d2lmini import nd
>>> x = nd.array([[1, 2]])
>>> nd.broadcast_to(x, shape=(2, 0))                  # 0 keeps the size
<BLANKLINE>
[[1. 2.]
 [1. 2.]]
<NDArray 2x2 @cpu(0)>
>>> nd.tile(x, reps=(1, 2)), nd.repeat(x, repeats=2, axis=1)
(
[[1. 2. 1. 2.]]
<NDArray 1x4 @cpu(0)>,
[[1. 1. 2. 2.]]
<NDArray 1x4 @cpu(0)>)

All keep the dtype; the gradient of an element is the sum over its copies.
"""

from __future__ import annotations

from math import prod
from operator import mul
from typing import Any

from d2lmini.base import MXNetError
from d2lmini.ops import chunking
from d2lmini.ops.core import Axes, Shape, normalize_axis, op, op_of_view, shape_rule, with_axis
from d2lmini.ops.reduce import reshape_to, sum_to

# -- broadcast -------------------------------------------------------------------------------------


def _broadcast_shape(shape: Shape, target: Shape) -> Shape:
    """`target` if `shape` broadcasts to it; `target` may have more axes in front."""
    extra = len(target) - len(shape)
    if extra < 0 or any(n != t and n != 1 for n, t in zip(shape, target[max(extra, 0) :])):
        raise MXNetError(
            f"{shape} does not broadcast to {target}: sizes counted from the last axis must be "
            "equal, or 1 in the array"
        )
    return target


def _to(data: Shape, shape: Shape = ()) -> Shape:
    extra = len(shape) - len(data)
    if extra >= 0:  # 0 keeps the size
        sizes = (1,) * extra + data
        keeps = [n == 0 and a >= extra for a, n in enumerate(shape)]
        shape = tuple(s if keep else n for s, n, keep in zip(sizes, shape, keeps))
    return _broadcast_shape(data, shape)


@op_of_view
def broadcast_to(xp, data, *, shape: Shape = (), out=None):
    """Copies along every axis of size 1 up to `shape`, where 0 keeps the size of the data.

    New axes may come in front, as in NumPy (MXNet refuses them here, not in the NDArray method).
    MXNetError at the call if the shapes do not broadcast.

    >>> nd.broadcast_to(nd.array([[1], [2]]), shape=(2, 3)).asnumpy().tolist()
    [[1.0, 1.0, 1.0], [2.0, 2.0, 2.0]]
    """
    return chunking.place_view(xp, xp.broadcast_to(data, _to(data.shape, shape)), out)


def _axes_to(shape: Shape, axis: Any = (), size: Any = ()) -> Shape:
    axes, sizes = ((x,) if isinstance(x, int) else x for x in (axis, size))
    if len(axes) != len(sizes):
        raise MXNetError(f"axis={axis} and size={size} must have the same length")
    target = list(shape)
    for a, n in zip(axes, sizes):
        a = normalize_axis(a, len(shape))
        if shape[a] != 1 or n < 0 or target[a] != 1:
            raise MXNetError(f"axis {a} of {shape} cannot become {n}: need size 1, named once")
        target[a] = n
    return tuple(target)


@op_of_view(aliases=["broadcast_axes"])
def broadcast_axis(xp, data, *, axis: Axes = (), size: Axes = (), out=None):
    """Copies along `axis` (an int or a tuple), whose size is 1, until it has size `size`.

    MXNetError at the call for an axis of another size.
    """
    return chunking.place_view(xp, xp.broadcast_to(data, _axes_to(data.shape, axis, size)), out)


@op_of_view(free_dtypes=("rhs",), left_out=("lhs_axes", "rhs_axes"))
def broadcast_like(xp, lhs, rhs, *, out=None):
    """lhs broadcast to the shape of rhs, which has as many axes; MXNetError at the call if not, or
    if they do not broadcast."""
    if len(lhs.shape) != len(rhs.shape):
        raise MXNetError(f"lhs is {lhs.shape}, rhs {rhs.shape}: need as many axes")
    target = _broadcast_shape(lhs.shape, rhs.shape)
    return chunking.place_view(xp, xp.broadcast_to(lhs, target), out)


@broadcast_to.gradient(saves="data.shape")
@broadcast_axis.gradient(saves="data.shape")
def _(g, shape):
    return sum_to(g, shape=shape)


broadcast_like.gradient(saves="lhs.shape")(lambda g, shape: (sum_to(g, shape=shape), None))


# -- tile and repeat -------------------------------------------------------------------------------
#
# Each axis becomes two, of which one is broadcast: its elements times its copies, which are merged.


def _merged(sizes: Shape) -> Shape:
    """Each pair of axes as one."""
    return tuple(map(mul, sizes[::2], sizes[1::2]))


def _copies(xp: Any, data: Any, apart: tuple[Shape, Shape], out: Any) -> Any:
    """`data` in the first shape, broadcast to the second, whose pairs are merged."""
    out = xp.empty(_merged(apart[1]), data.dtype) if out is None else out
    chunking.copy(xp, data.reshape(apart[0]), out.reshape(apart[1]))
    return out


def _sum_of_copies(g: Any, apart: tuple[Shape, Shape], shape: Shape) -> Any:
    return reshape_to(sum_to(reshape_to(g, apart[1]), shape=apart[0]), shape)


def _tiles(shape: Shape, reps: Shape) -> tuple[Shape, Shape]:
    """For each axis (1, n), and (its copies, n)."""
    if any(r < 0 for r in reps):
        raise MXNetError(f"reps={reps}, need numbers >= 0")
    ndim = max(len(shape), len(reps))
    shape, reps = ((1,) * (ndim - len(sizes)) + sizes for sizes in (shape, reps))
    return tuple(s for n in shape for s in (1, n)), tuple(s for x in zip(reps, shape) for s in x)


@op(infer=shape_rule(lambda shape, **how: _merged(_tiles(shape, **how)[1])), flops=0)
def tile(xp, data, *, reps: Shape, out=None):
    """The whole array reps[i] times along axis i; the shorter of shape and reps gets 1 in front.

    (2, 3) with reps (2, 2) -> (4, 6), with reps 2 -> (2, 6), with (2, 1, 1) -> (2, 2, 3).

    >>> nd.tile(nd.array([1, 2]), reps=2).asnumpy().tolist()
    [1.0, 2.0, 1.0, 2.0]
    """
    return _copies(xp, data, _tiles(data.shape, reps), out)


@tile.gradient(saves="data.shape")
def _(g, shape, *, reps):
    return _sum_of_copies(g, _tiles(shape, reps), shape)


def _repeats(shape: Shape, repeats: int, axis: int | None) -> tuple[Shape, Shape]:
    """For each axis (n, 1), and (n, its copies)."""
    if repeats < 0:
        raise MXNetError(f"repeats={repeats}, need a number >= 0")
    shape, axis = ((prod(shape),), 0) if axis is None else (shape, axis)
    axis = normalize_axis(axis, len(shape))
    apart = tuple(s for n in shape for s in (n, 1))
    return apart, with_axis(apart, 2 * axis + 1, repeats)


@op(infer=shape_rule(lambda shape, **how: _merged(_repeats(shape, **how)[1])), flops=0)
def repeat(xp, data, *, repeats: int, axis: int | None = None, out=None):
    """Each element `repeats` times in a row along `axis`, or of the flattened array.

    >>> nd.repeat(nd.array([1, 2]), repeats=2).asnumpy().tolist()
    [1.0, 1.0, 2.0, 2.0]
    """
    return _copies(xp, data, _repeats(data.shape, repeats, axis), out)


@repeat.gradient(saves="data.shape")
def _(g, shape, *, repeats, axis):
    return _sum_of_copies(g, _repeats(shape, repeats, axis), shape)

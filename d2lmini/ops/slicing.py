"""Parts of arrays: slice, slice_axis, slice_like, and reverse.

>>> from d2lmini import nd
>>> x = nd.arange(12).reshape(3, 4)
>>> nd.slice(x, begin=(0, 1), end=(2, 4))
<BLANKLINE>
[[1. 2. 3.]
 [5. 6. 7.]]
<NDArray 2x3 @cpu(0)>
>>> nd.slice_axis(x, axis=1, begin=-1, end=None)
<BLANKLINE>
[[ 3.]
 [ 7.]
 [11.]]
<NDArray 3x1 @cpu(0)>

The ops copy; `x[1:3]` is a view where possible. The gradient of a part is g padded with zeros
(`_unslice`).
"""

from __future__ import annotations

import builtins
from functools import lru_cache

from d2lmini.base import MXNetError
from d2lmini.ops import chunking
from d2lmini.ops.core import Bounds, Shape, normalize_axis, op_of_view
from d2lmini.ops.places import adjoint

# -- slice -----------------------------------------------------------------------------------------


@lru_cache(maxsize=1024)
def _key(shape: Shape, begin: Bounds, end: Bounds, step: Bounds) -> tuple[builtins.slice, ...]:
    step = step or (None,) * len(begin)
    if not len(begin) == len(end) == len(step):
        raise MXNetError(f"begin={begin}, end={end} and step={step} must have the same length")
    if len(begin) > len(shape):
        raise MXNetError(f"begin={begin} names {len(begin)} axes, but data is {shape}")
    if 0 in step:
        raise MXNetError(f"step={step} contains 0; a step must not be 0")
    return tuple(map(builtins.slice, begin, end, step))


@op_of_view("slice", aliases=["crop"])
def slice_(xp, data, *, begin: Bounds, end: Bounds, step: Bounds = (), out=None):
    """data[b0:e0:s0, b1:e1:s1, ...] with Python's rules: None, negative numbers and steps.

    Bounds outside are clipped to the array. Axes without bounds are kept whole. dtype kept.
    MXNetError at the call for lengths that differ, too many axes, or a step of 0.
    """
    return chunking.place_view(xp, data[_key(data.shape, begin, end, step)], out)


@adjoint(slice_, "_unslice", flops=0)
def unslice(xp, data, *, shape: Shape, begin: Bounds, end: Bounds, step: Bounds = (), out=None):
    """Zeros of `shape` with `data` at the elements that `slice` reads."""
    if out is None:
        out = xp.zeros(shape, data.dtype)
    else:
        out.fill(0)
    chunking.copy(xp, data, out[_key(shape, begin, end, step)])
    return out


@lru_cache(maxsize=1024)
def _along_axis(shape: Shape, axis: int, begin: int, end: int | None) -> dict[str, Bounds]:
    """`slice_axis` in terms of `slice`."""
    axis = normalize_axis(axis, len(shape))
    size = shape[axis]
    first = begin + size if begin < 0 else begin
    last = size if end is None else end + size if end < 0 else end
    if not 0 <= first <= last <= size:
        raise MXNetError(
            f"begin={begin}, end={end} do not fit axis {axis} of {shape}, of size {size}"
        )
    return {"begin": (None,) * axis + (begin,), "end": (None,) * axis + (end,)}


@op_of_view(always_written=("end",))
def slice_axis(xp, data, *, axis: int, begin: int, end: int | None = None, out=None):
    """data[..., begin:end, ...] along one axis.

    Negative bounds count from the end; None is the end. dtype kept. MXNetError at the call for
    bounds outside (an empty part is allowed, unlike in MXNet).

    >>> nd.slice_axis(nd.array([1, 2, 3, 4]), axis=0, begin=1, end=-1).asnumpy().tolist()
    [2.0, 3.0]
    """
    return slice_.compute(xp, data, **_along_axis(data.shape, axis, begin, end), out=out)


@slice_axis.gradient(saves="data.shape")
def _(g, shape, *, axis, begin, end):
    return unslice(g, shape=shape, **_along_axis(shape, axis, begin, end))


# -- reverse ---------------------------------------------------------------------------------------


@op_of_view(aliases=["flip"], same_shape=True)
def reverse(xp, data, *, axis: Shape, out=None):
    """Reverse the elements along each axis of `axis` (an int or a tuple); shape and dtype kept."""
    return chunking.place_view(xp, xp.flip(data, axis), out)


@reverse.gradient()
def _(g, *, axis):
    return reverse(g, axis=axis)

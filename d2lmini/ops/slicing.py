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

from d2lmini.base import MXNetError
from d2lmini.ops import chunking
from d2lmini.ops.core import Bounds, Shape, Spec, normalize_axis, op
from d2lmini.ops.reduce import distinct_axes

# -- slice -----------------------------------------------------------------------------------------


def _key(begin: Bounds, end: Bounds, step: Bounds) -> tuple[builtins.slice, ...]:
    return tuple(
        builtins.slice(b, e, s)
        for b, e, s in zip(begin, end, step or (None,) * len(begin), strict=True)
    )


def _slice_shape(shape: Shape, key: tuple[builtins.slice, ...]) -> Shape:
    taken = tuple(len(range(*k.indices(n))) for k, n in zip(key, shape))
    return taken + shape[len(key) :]


def _infer_slice(data: Spec, *, begin: Bounds, end: Bounds, step: Bounds = ()) -> Spec:
    if not len(begin) == len(end) == len(step or begin):
        raise MXNetError(f"begin={begin}, end={end} and step={step} must have the same length")
    if len(begin) > len(data.shape):
        raise MXNetError(f"begin={begin} names {len(begin)} axes, but data is {data.shape}")
    if 0 in step:
        raise MXNetError(f"step={step} contains 0; a step must not be 0")
    return Spec(_slice_shape(data.shape, _key(begin, end, step)), data.dtype)


@op("slice", aliases=["crop"], infer=_infer_slice, flops=0)
def slice_(xp, data, *, begin: Bounds, end: Bounds, step: Bounds = (), out=None):
    """data[b0:e0:s0, b1:e1:s1, ...] with Python's rules: None, negative numbers and steps.

    Bounds outside are clipped to the array. Axes without bounds are kept whole. dtype kept.
    MXNetError at the call for lengths that differ, too many axes, or a step of 0.
    """
    return chunking.place_view(xp, data[_key(begin, end, step)], out)


@slice_.gradient(saves="data.shape")
def _(g, shape, *, begin, end, step):
    return unslice(g, shape=shape, begin=begin, end=end, step=step)


def _infer_unslice(
    data: Spec, *, shape: Shape, begin: Bounds, end: Bounds, step: Bounds = ()
) -> Spec:
    assert data.shape == _slice_shape(shape, _key(begin, end, step)), (
        data,
        shape,
        begin,
        end,
        step,
    )
    return Spec(shape, data.dtype)


@op("_unslice", infer=_infer_unslice, flops=0)
def unslice(xp, data, *, shape: Shape, begin: Bounds, end: Bounds, step: Bounds = (), out=None):
    """Zeros of `shape` with `data` at the elements that `slice` reads."""
    if out is None:
        out = xp.zeros(shape, data.dtype)
    else:
        out.fill(0)
    chunking.copy(xp, data, out[_key(begin, end, step)])
    return out


@unslice.gradient()
def _(g, *, begin, end, step):
    return slice_(g, begin=begin, end=end, step=step)


def _axis_bounds(axis: int, begin: int, end: int | None, shape: Shape) -> tuple[Bounds, Bounds]:
    """`slice_axis` in terms of `slice`."""
    whole = (None,) * normalize_axis(axis, len(shape))
    return (*whole, begin), (*whole, end)


def _infer_slice_axis(data: Spec, *, axis: int, begin: int, end: int | None = None) -> Spec:
    size = data.shape[normalize_axis(axis, len(data.shape))]
    first = begin + size if begin < 0 else begin
    last = size if end is None else end + size if end < 0 else end
    if not 0 <= first <= last <= size:
        raise MXNetError(
            f"begin={begin}, end={end} do not fit axis {axis} of {data.shape}, of size {size}"
        )
    begins, ends = _axis_bounds(axis, begin, end, data.shape)
    return _infer_slice(data, begin=begins, end=ends)


@op(infer=_infer_slice_axis, flops=0, always_written=("end",))
def slice_axis(xp, data, *, axis: int, begin: int, end: int | None = None, out=None):
    """data[..., begin:end, ...] along one axis.

    Negative bounds count from the end; None is the end. dtype kept. MXNetError at the call for
    bounds outside (an empty part is allowed, unlike in MXNet).

    >>> nd.slice_axis(nd.array([1, 2, 3, 4]), axis=0, begin=1, end=-1).asnumpy().tolist()
    [2.0, 3.0]
    """
    begins, ends = _axis_bounds(axis, begin, end, data.shape)
    return chunking.place_view(xp, data[_key(begins, ends, ())], out)


@slice_axis.gradient(saves="data.shape")
def _(g, shape, *, axis, begin, end):
    begins, ends = _axis_bounds(axis, begin, end, shape)
    return unslice(g, shape=shape, begin=begins, end=ends)


def _ends_like(shape: Shape, like: Shape, axes: Shape | None) -> Bounds:
    """The end of `slice_like` on each axis; MXNetError if `shape_like` is longer."""
    if not axes:
        if len(shape) != len(like):
            raise MXNetError(
                f"data is {shape}, shape_like {like}: with different numbers of axes name those "
                "to cut in axes="
            )
        axes = tuple(range(len(shape)))
    ends: list[int | None] = [None] * len(shape)
    for a in axes:
        here, there = normalize_axis(a, len(shape), "axes"), normalize_axis(a, len(like), "axes")
        ends[here] = like[there]
        if like[there] > shape[here]:
            raise MXNetError(
                f"axis {a} of shape_like {like} is longer than that of data {shape}: "
                "it can be cut, not stretched"
            )
    return tuple(ends)


def _infer_slice_like(data: Spec, shape_like: Spec, *, axes: Shape | None = ()) -> Spec:
    ends = _ends_like(data.shape, shape_like.shape, axes)
    return Spec(tuple(n if e is None else e for n, e in zip(data.shape, ends)), data.dtype)


@op(infer=_infer_slice_like, flops=0, free_dtypes=("shape_like",))
def slice_like(xp, data, shape_like, *, axes: Shape | None = (), out=None):
    """The first part of `data`, as long as `shape_like` on each axis, or on `axes` only.

    dtype of data. MXNetError at the call where `shape_like` is longer.
    """
    ends = _ends_like(data.shape, shape_like.shape, axes)
    return chunking.place_view(xp, data[tuple(builtins.slice(e) for e in ends)], out)


@slice_like.gradient(saves="data.shape shape_like.shape")
def _(g, shape, like, *, axes):
    ends = _ends_like(shape, like, axes)
    return unslice(g, shape=shape, begin=(None,) * len(shape), end=ends), None


# -- reverse ---------------------------------------------------------------------------------------


def _infer_reverse(data: Spec, *, axis: Shape) -> Spec:
    distinct_axes(axis, len(data.shape))
    return data


@op(aliases=["flip"], infer=_infer_reverse, flops=0, same_shape=True)
def reverse(xp, data, *, axis: Shape, out=None):
    """Reverse the elements along each axis of `axis` (an int or a tuple); shape and dtype kept."""
    return chunking.place_view(xp, xp.flip(data, axis), out)


@reverse.gradient()
def _(g, *, axis):
    return reverse(g, axis=axis)

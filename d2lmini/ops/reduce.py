"""Reductions: sum, mean, prod, max, min, nansum and norm.

All take the same attributes, as in MXNet: `axis` (an int, a tuple, or None or () for all axes),
`keepdims`, and `exclude` (reduce over the axes that are *not* named). A full reduction has shape
(1,), not (): MXNet's arrays had no scalars.

>>> from d2lmini import nd
>>> x = nd.array([[1, 2, 3], [4, 5, 6]])
>>> nd.sum(x)
<BLANKLINE>
[21.]
<NDArray 1 @cpu(0)>
>>> nd.max(x, axis=0, exclude=True)
<BLANKLINE>
[3. 6.]
<NDArray 2 @cpu(0)>

The dtype is kept: sums of small integers wrap around, a mean of integers is truncated towards zero.
Only bool, which MXNet keeps too (the sum would mean no more than "any"), is counted in int64.
float16 accumulates in float32. nan and inf propagate, except in `nansum`.

Large arrays are reduced in chunks that depend on the shape only (`chunking`), so the same numbers
give the same bits with any number of workers.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from math import prod
from typing import Any

import numpy as np

from d2lmini.base import MXNetError
from d2lmini.ops import chunking
from d2lmini.ops.checks import check_choice
from d2lmini.ops.core import Axes, Shape, Spec, normalize_axis, op

#: The reductions that compiled programs join to other ops -> the ufunc that adds up.
REDUCTIONS = {"sum": "add", "mean": "add", "_sum_to": "add", "max": "maximum", "min": "minimum"}

# -- which axes, which shape, which dtype ----------------------------------------------------------


@lru_cache(maxsize=4096)
def reduced_axes(axis: Any, ndim: int, exclude: bool = False) -> tuple[int, ...]:
    """The reduced axes, counted from the front; MXNetError if out of range or named twice."""
    if axis is None or axis == ():
        return tuple(range(ndim))
    axes = distinct_axes(axis, ndim)
    return tuple(a for a in range(ndim) if (a in axes) != exclude)


def distinct_axes(axis: Any, ndim: int) -> list[int]:
    """The axes (an int or several), counted from the front; MXNetError if one is named twice."""
    axes = [normalize_axis(a, ndim) for a in ((axis,) if isinstance(axis, int) else axis)]
    if len(set(axes)) < len(axes):
        raise MXNetError(f"axis={axis} names an axis twice")
    return axes


@lru_cache(maxsize=4096)
def kept_shape(shape: Shape, axes: tuple[int, ...]) -> Shape:
    """`shape` with 1 for every axis of `axes`."""
    return tuple(1 if a in axes else n for a, n in enumerate(shape))


@lru_cache(maxsize=4096)
def reduced_shape(shape: Shape, axes: tuple[int, ...], keepdims: bool) -> Shape:
    """The shape of a reduction over `axes`; (1,) when no axis is left."""
    if keepdims:
        return kept_shape(shape, axes)
    return tuple(n for a, n in enumerate(shape) if a not in axes) or (1,)


def reduction_rule(of_bool: str, of_nothing: bool = True) -> Callable[..., Spec]:
    """The shape rule of a reduction; keeps dtypes except bool. of_nothing: allow empty axes."""
    dtypes = {np.dtype(bool): np.dtype(of_bool)}

    def infer(data: Spec, *, axis: Any, keepdims: bool, exclude: bool) -> Spec:
        axes = reduced_axes(axis, len(data.shape), exclude)
        for a in () if of_nothing else axes:
            if data.shape[a] == 0:
                raise MXNetError(f"axis {a} of {data.shape} has no elements, so no extreme")
        return Spec(reduced_shape(data.shape, axes, keepdims), dtypes.get(data.dtype, data.dtype))

    return infer


def reads_all(data: Spec, *_: Spec, **_attrs: Any) -> float:
    """FLOPs of a reduction: one for each element read."""
    return data.size


# -- computation -----------------------------------------------------------------------------------


#: NumPy sums rows shorter than this slowly, element by element.
SHORT = 1024
#: This many numbers of a block stay in a cache between two passes.
FEW = 1 << 18


def _total(x: Any, axes: tuple[int, ...], place: Any, method: str) -> None:
    """place = x.method(axes), for a reduction `method` of arrays. The reduced axes stay with size
    1; `place` has the accumulation dtype.

    In a sum over the first axis and the last ones, of images for instance, the first axis is
    reduced first: whole images are added, then the short rows of a single image.

    CuPy gets `out=` only where that is safe. Its CUB kernels assume that the output has Fortran
    order if x has (CuPy issue 10300); and its `min` passes `out` on as the dtype (CuPy issue 9032).
    """
    how = {"dtype": place.dtype} if method in ("sum", "prod") else {}
    several = method == "sum" and x.size > SHORT and len(axes) > 1 and 0 in axes
    if several and isinstance(x, np.ndarray) and x.flags.c_contiguous and ends_short(x.shape, axes):
        x = x.sum(axis=0, dtype=place.dtype, keepdims=True)
    reduce = getattr(x, method)
    if isinstance(x, np.ndarray) or (x.flags.c_contiguous and method != "min"):
        reduce(axis=axes, out=place, keepdims=True, **how)
    else:
        place[...] = reduce(axis=axes, keepdims=True, **how)


def ends_short(shape: Shape, axes: tuple[int, ...]) -> bool:
    """True if the last of `axes` are short rows in memory, and the first axis is reduced first."""
    last = max((a for a in range(len(shape)) if a not in axes), default=len(shape))
    return 1 < prod(shape[last + 1 :]) < SHORT and prod(shape[1:]) <= FEW


def reduce_into(
    xp: Any, data: Any, axes: tuple[int, ...], out: Any, method: str, acc: Any = None,
    prepare: Callable[[Any], Any] | None = None, finish: Callable[[Any], Any] | None = None,
    keepdims: bool = False, of_bool: str = "int64",
) -> Any:  # fmt: skip
    """out = finish(prepare(data).method() over axes), in chunks where data is large; returns out.

    Without `out` the result is a new array of data's dtype, or `of_bool` for sums and products of
    bool. `acc` is the accumulation dtype (default: out's, but float32 for float16); `prepare` maps
    a block of the data; `finish` changes the total in place before the conversion to out's dtype.
    """
    if out is None:
        counts = data.dtype.kind == "b" and method in ("sum", "prod")
        shape = reduced_shape(data.shape, axes, keepdims)
        out = xp.empty(shape, of_bool if counts else data.dtype)
    if acc is None:
        is_half_total = out.dtype.char == "e" and method in ("sum", "prod")
        acc = np.float32 if is_half_total else out.dtype
    place = out if acc == out.dtype else xp.empty(out.shape, acc)
    total = partial(_total, method=method)
    body = total if prepare is None else lambda b, axes, place: total(prepare(b), axes, place)
    kept = place.reshape(kept_shape(data.shape, axes))
    chunks = chunking.plan(data.shape, axes) if xp is np and data.size >= chunking.LARGE else None
    if chunks is None:
        body(data, axes, kept)
    else:
        chunking.reduce(data, axes, kept, chunks, body, total)
    if finish is not None:
        finish(place)
    if place is not out:
        out[...] = place
    return out


# -- the ops ---------------------------------------------------------------------------------------


_reduction = partial(op, flops=reads_all)


@_reduction("sum", infer=reduction_rule("int64"), aliases=["sum_axis"])
def sum_(xp, data, *, axis: Axes = None, keepdims: bool = False, exclude: bool = False, out=None):
    """Sum over `axis`; an empty sum is 0.

    >>> nd.sum(nd.array([[1, 2], [3, 4]]), axis=0).asnumpy().tolist()
    [4.0, 6.0]
    """
    axes = reduced_axes(axis, data.ndim, exclude)
    return reduce_into(xp, data, axes, out, "sum", keepdims=keepdims)


@sum_.gradient(saves="data.shape")
def _(g, shape, *, axis, exclude):
    return spread(g, kept=kept_shape(shape, reduced_axes(axis, len(shape), exclude)), shape=shape)


@_reduction(infer=reduction_rule("float32"))
def mean(xp, data, *, axis: Axes = None, keepdims: bool = False, exclude: bool = False, out=None):
    """Mean over `axis`; nan if empty. Integers are truncated towards zero; bool gives float32.

    Integers are summed in float64 (MXNet sums in their own dtype, which may overflow).

    >>> nd.mean(nd.array([[1, 2], [3, 4]]), axis=1).asnumpy().tolist()
    [1.5, 3.5]
    """
    axes = reduced_axes(axis, data.ndim, exclude)
    count = prod(data.shape[a] for a in axes)
    if data.dtype.kind == "f":
        acc, n = None, count or np.nan
    else:
        acc, n = np.float64, max(count, 1)
    return reduce_into(
        xp, data, axes, out, "sum", acc, finish=lambda t: xp.divide(t, n, out=t),
        keepdims=keepdims, of_bool="float32",
    )  # fmt: skip


@mean.gradient(saves="data.shape")
def _(g, shape, *, axis, exclude):
    axes = reduced_axes(axis, len(shape), exclude)
    count = max(prod(shape[a] for a in axes), 1)
    # To float16 65520 is infinite; two steps, of which the first is exact.
    share = g / count if count < 65520 else g / 2**15 / (count / 2**15)
    return spread(share, kept=kept_shape(shape, axes), shape=shape)


@_reduction("prod", infer=reduction_rule("int64"))
def prod_(xp, data, *, axis: Axes = None, keepdims: bool = False, exclude: bool = False, out=None):
    """Product over `axis`; an empty product is 1."""
    axes = reduced_axes(axis, data.ndim, exclude)
    return reduce_into(xp, data, axes, out, "prod", keepdims=keepdims)


@prod_.gradient(saves="data data.shape")
def _(g, data, shape, *, axis, exclude):
    """g times the product of all *other* elements. (MXNet divides by the element: nan at 0.)"""
    axes = reduced_axes(axis, len(shape), exclude)
    if not axes:
        return reshape_to(g, shape)
    zero = data == 0
    without_zeros = data + zero
    product = prod_(without_zeros, axis=axes, keepdims=True)
    other_zeros = sum_(zero, axis=axes, keepdims=True) - zero
    others = product / without_zeros * (other_zeros == 0)
    return reshape_to(g, kept_shape(shape, axes)) * others


@_reduction("max", infer=reduction_rule("bool", of_nothing=False), aliases=["max_axis"])
def max_(xp, data, *, axis: Axes = None, keepdims: bool = False, exclude: bool = False, out=None):
    """Largest element over `axis`; nan if there is a nan. MXNetError at the call for an empty axis.

    The gradient goes in full to every element that equals the maximum, as in MXNet.
    """
    axes = reduced_axes(axis, data.ndim, exclude)
    return reduce_into(xp, data, axes, out, "max", keepdims=keepdims)


@_reduction("min", infer=reduction_rule("bool", of_nothing=False), aliases=["min_axis"])
def min_(xp, data, *, axis: Axes = None, keepdims: bool = False, exclude: bool = False, out=None):
    """Smallest element over `axis`; otherwise as `max`."""
    axes = reduced_axes(axis, data.ndim, exclude)
    return reduce_into(xp, data, axes, out, "min", keepdims=keepdims)


@max_.gradient(saves="y data data.shape")
@min_.gradient(saves="y data data.shape")
def _(g, y, data, shape, *, axis, exclude):
    kept = kept_shape(shape, reduced_axes(axis, len(shape), exclude))
    return reshape_to(g, kept) * (data == reshape_to(y, kept))


# -- the pair of ops that form gradients of reductions and broadcasts ------------------------------


@op("_spread", infer=lambda data, *, kept, shape: Spec(shape, data.dtype), flops=0)
def spread(xp, data, *, kept: Shape, shape: Shape, out=None):
    """Reshape to `kept`, then broadcast to `shape`; the codes of `reshape` have no meaning here."""
    view = xp.broadcast_to(data.reshape(kept), shape)
    return view if out is None else chunking.copy(xp, view, out)


spread.gradient("data.shape")(lambda g, of, *, kept: reshape_to(sum_to(g, shape=kept), of))


@op("_sum_to", infer=lambda data, *, shape: Spec(shape, data.dtype), flops=reads_all)
def sum_to(xp, data, *, shape: Shape, out=None):
    """Sum out a broadcast: every axis that was broadcast from size 1, or from no axis."""
    extra = data.ndim - len(shape)
    kept = (1,) * extra + shape
    axes = tuple(a for a, n in enumerate(kept) if n == 1 and data.shape[a] != 1)
    if not axes:
        return chunking.place_view(xp, data.reshape(shape), out)
    return reduce_into(xp, data, axes, xp.empty(shape, data.dtype) if out is None else out, "sum")


@sum_to.gradient(saves="data.shape")
def _(g, data_shape, *, shape):
    return spread(g, kept=(1,) * (len(data_shape) - len(shape)) + shape, shape=data_shape)


def reshape_to(value: Any, shape: Shape) -> Any:
    """`value` in exactly this shape, for gradient rules: a view unless a size is 0 (a code)."""
    return spread(value, kept=shape, shape=shape) if 0 in shape else value.reshape(shape)


# -- norm ------------------------------------------------------------------------------------------


def _infer_norm(data: Spec, *, ord: int, axis: Any, keepdims: bool) -> Spec:
    check_choice("ord", ord, (1, 2))
    axes = reduced_axes(axis, len(data.shape))
    return Spec(reduced_shape(data.shape, axes, keepdims), data.dtype)


@op(infer=_infer_norm, flops=lambda data, **_: 2 * data.size, left_out=("out_dtype",))
def norm(xp, data, *, ord: int = 2, axis: Axes = None, keepdims: bool = False, out=None):
    """Length of vectors along `axis`: (sum |x|^ord)^(1/ord), for ord 1 or 2.

    The dtype is kept. Over two axes this is the Frobenius norm. Where squares leave
    the range of float32 they are summed in float64, so that neither 1e30 nor 1e-30 is lost.
    The gradient at a vector of zeros is 0 (MXNet gives nan).

    >>> nd.norm(nd.array([3, 4])).asscalar()
    np.float32(5.0)
    """
    axes = reduced_axes(axis, data.ndim)
    total_of = partial(reduce_into, xp, data, axes, method="sum", keepdims=keepdims, of_bool="bool")
    acc = np.float32 if data.dtype == np.float16 else np.float64
    if ord == 1:
        return total_of(out, acc=acc, prepare=xp.abs)
    if data.dtype == np.float32 and xp is np:
        total = total_of(None, prepare=np.square)
        if total.size and total.min() > 1e-24 and total.max() < 1e36:
            return np.sqrt(total, out=out)
    return total_of(
        out, acc=acc, prepare=lambda block: xp.square(block.astype(acc)),
        finish=lambda total: xp.sqrt(total, out=total),
    )  # fmt: skip


@norm.gradient(saves="y data data.shape")
def _(g, y, data, shape, *, ord, axis):
    kept = kept_shape(shape, reduced_axes(axis, len(shape)))
    if ord == 1:
        return reshape_to(g, kept) * data.sign()
    return reshape_to(g / (y + (y == 0)), kept) * data


# -- without nan -----------------------------------------------------------------------------------


@_reduction(infer=reduction_rule("int64"))
def nansum(xp, data, *, axis: Axes = None, keepdims: bool = False, exclude: bool = False, out=None):
    """Sum over `axis` of the elements that are not nan. The gradient at a nan is 0."""
    axes = reduced_axes(axis, data.ndim, exclude)
    known = None if data.dtype.kind in "iub" else lambda x: xp.where(x == x, x, 0)
    return reduce_into(xp, data, axes, out, "sum", prepare=known, keepdims=keepdims)


@nansum.gradient(saves="data data.shape")
def _(g, data, shape, *, axis, exclude):
    kept = kept_shape(shape, reduced_axes(axis, len(shape), exclude))
    return reshape_to(g, kept) * (data == data)

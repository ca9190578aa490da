"""Norms, moments, and sums that skip nan: reductions of what is computed first.

>>> from d2lmini import nd
>>> x = nd.array([[3, 4], [0, 0]])
>>> nd.norm(x, axis=1)
<BLANKLINE>
[5. 0.]
<NDArray 2 @cpu(0)>
>>> mean, var = nd.moments(x, axes=1)
>>> mean
<BLANKLINE>
[3.5 0. ]
<NDArray 2 @cpu(0)>
"""

from __future__ import annotations

from typing import Any

import numpy as np

from d2lmini.base import MXNetError
from d2lmini.base.dtypes import is_float
from d2lmini.ops.checks import check_choice
from d2lmini.ops.composed import composed
from d2lmini.ops.core import Axes, DType, Spec, op
from d2lmini.ops.identity import where
from d2lmini.ops.reduce import (
    kept_shape,
    mean,
    reads_all,
    reduce_into,
    reduced_axes,
    reduced_shape,
    reshape_to,
    sum_,
)

# -- norm ------------------------------------------------------------------------------------------


def _infer_norm(
    data: Spec, *, ord: int = 2, axis: Any = None, out_dtype: Any = None, keepdims: bool = False
) -> Spec:
    check_choice("ord", ord, (1, 2))
    axes = reduced_axes(axis, len(data.shape))
    return Spec(reduced_shape(data.shape, axes, keepdims), out_dtype or data.dtype)


@op(
    infer=_infer_norm, flops=lambda data, **_: 2 * data.size,
    output_dtypes=lambda attrs, data, n: [attrs["out_dtype"] or data],
)  # fmt: skip
def norm(
    xp, data, *, ord: int = 2, axis: Axes = None, out_dtype: DType | None = None,
    keepdims: bool = False, out=None,
):  # fmt: skip
    """Length of vectors along `axis`: (sum |x|^ord)^(1/ord), for ord 1 or 2.

    The dtype is kept, or `out_dtype`. Over two axes this is the Frobenius norm. Where squares leave
    the range of float32 they are summed in float64, so that neither 1e30 nor 1e-30 is lost.
    The gradient at a vector of zeros is 0 (MXNet gives nan).

    >>> nd.norm(nd.array([3, 4])).asscalar()
    np.float32(5.0)
    """
    axes = reduced_axes(axis, data.ndim)
    if out is None:
        out = xp.empty(reduced_shape(data.shape, axes, keepdims), out_dtype or data.dtype)
    acc = np.float32 if data.dtype == np.float16 else np.float64
    if ord == 1:
        return reduce_into(xp, data, axes, out, "sum", acc, prepare=xp.abs)
    if data.dtype == np.float32 and xp is np:
        total = np.empty(out.shape, np.float32)
        reduce_into(xp, data, axes, total, "sum", prepare=np.square)
        if total.size and total.min() > 1e-24 and total.max() < 1e36:
            out[...] = np.sqrt(total)
            return out
    return reduce_into(
        xp, data, axes, out, "sum", acc,
        prepare=lambda block: xp.square(block.astype(acc)),
        finish=lambda total: xp.sqrt(total, out=total),
    )  # fmt: skip


@norm.gradient(saves="y data data.shape data.dtype")
def _(g, y, data, shape, dtype, *, ord, axis, out_dtype):
    kept = kept_shape(shape, reduced_axes(axis, len(shape)))
    if out_dtype is not None:
        g, y = g.astype(dtype), y.astype(dtype)
    if ord == 1:
        return reshape_to(g, kept) * data.sign()
    return reshape_to(g / (y + (y == 0)), kept) * data


# -- moments ---------------------------------------------------------------------------------------


@composed(flops=lambda data, **_: 4 * data.size, outputs=2)
def moments(data, *, axes: Axes = None, keepdims: bool = False):
    """Mean and variance (divided by n) over `axes`: two arrays of the reduced shape, dtype kept.

    Computed in two passes, sum((x - mean)^2) / n, in float32 for float16 and float64 for integers,
    whose results are truncated towards zero. MXNetError at the call without axes.
    """
    if axes == () or axes is None:
        raise MXNetError(f"axes is missing; for all of them say axes={tuple(range(data.ndim))}")
    x = data if is_float(data._spec.dtype) else data.astype("float64")
    center = mean(x, axis=axes, keepdims=True)
    apart = x - center
    found = center, mean(apart * apart, axis=axes, keepdims=True)
    shape = reduced_shape(data.shape, reduced_axes(axes, data.ndim), keepdims)
    return tuple([reshape_to(m, shape).astype(data.dtype, copy=False) for m in found])


# -- without nan -----------------------------------------------------------------------------------


def _known(data: Any, value: float) -> Any:
    """`value` for every nan, other elements unchanged."""
    if not is_float(data._spec.dtype):
        return data
    return where(data == data, data, data.zeros_like() + value)


@composed(flops=reads_all)
def nansum(data, *, axis: Axes = None, keepdims: bool = False, exclude: bool = False):
    """Sum over `axis` of the elements that are not nan. The gradient at a nan is 0."""
    return sum_(_known(data, 0.0), axis=axis, keepdims=keepdims, exclude=exclude)

"""Ops that make arrays from nothing: constant, range, identity.

>>> from d2lmini import nd
>>> nd.arange(1, 7, 2)
<BLANKLINE>
[1. 3. 5.]
<NDArray 3 @cpu(0)>
"""

from __future__ import annotations

from math import ceil, isfinite
from typing import Any

import numpy as np

from d2lmini.base import MXNetError
from d2lmini.ops.core import DType, Number, Op, Shape, Spec, op
from d2lmini.ops.scalar_cache import convert


def _of_shape(*, shape: Shape, dtype: Any, **_attrs: Any) -> Spec:
    if any(size < 0 for size in shape):
        raise MXNetError(f"shape {shape} has a negative size")
    return Spec(tuple(shape), dtype)


@op("_full", infer=_of_shape, flops=0, grad=None, in_mxnet=True, always_written=("value",))
def full(xp, *, shape: Shape, value: Number = 0.0, dtype: DType = "float32", out=None):
    """Every element is `value`, converted as C converts. Cost: the bytes written."""
    element = convert(value, np.dtype(dtype))[()]
    if out is None:
        return xp.full(shape, element, dtype)
    out.fill(element)
    return out


def _constant(name: str, value: int) -> Op:
    """Declare `_NAME` and `NAME_like`, arrays of one number; returns the latter."""

    def of_shape(xp, *, shape: Shape, dtype: DType = "float32", out=None):
        if out is None:
            return getattr(xp, name)(shape, dtype)
        out.fill(value)
        return out

    def like(xp, data, *, out=None):
        return of_shape(xp, shape=data.shape, dtype=data.dtype, out=out)

    of_shape.__doc__ = f"{name.capitalize()}."
    like.__doc__ = f"{name.capitalize()} in the shape and dtype of data."
    op(f"_{name}", infer=_of_shape, flops=0, grad=None, in_mxnet=True)(of_shape)
    declared: Op = op(f"{name}_like", flops=0, elementwise=True, grad=None)(like)
    return declared


zeros_like, ones_like = _constant("zeros", 0), _constant("ones", 1)


def _range(start: float, stop: float | None, step: float) -> tuple[float, int]:
    """Where a range begins, and how many numbers it has."""
    begin, end = (0.0, start) if stop is None else (start, stop)
    if step == 0:
        raise MXNetError(f"step must not be 0 (start={begin}, stop={end})")
    count = (end - begin) / step
    if not isfinite(count):
        raise MXNetError(f"no range from start={begin} to stop={end} by step={step}: not finite")
    return begin, max(0, ceil(count))


def _of_range(*, start: float, stop: float | None, step: float, repeat: int, dtype: Any, **_: Any):
    return Spec((_range(start, stop, step)[1] * repeat,), dtype)


@op("_arange", infer=_of_range, grad=None, in_mxnet=True)
def arange(
    xp, *, start: float, stop: float | None = None, step: float = 1.0, repeat: int = 1,
    infer_range: bool = False, dtype: DType = "float32",
):  # fmt: skip
    """start, start + step, ... below stop, each `repeat` times; arange(n) counts from 0.

    The number of elements is ceil((stop - start) / step), computed in float64, so arange(0, 3, .3)
    has 10. Element i is start + i * step in the arithmetic of `dtype`, as in MXNet: an integer
    dtype truncates start and step first.
    """
    begin, count = _range(start, stop, step)
    return progression(xp, begin, step, count, dtype, repeat)


def progression(
    xp: Any, start: float, step: float, count: int, dtype: DType, repeat: int = 1
) -> Any:
    """start + i * step for i = 0, 1, ..., count - 1, each `repeat` times, computed in `dtype`
    (float16 in float32, integers in int64)."""
    floating = xp.dtype(dtype).kind == "f"
    wide = xp.promote_types(dtype, "float32") if floating else xp.dtype("int64")
    values = xp.arange(count, dtype=wide)
    values *= wide.type(step)
    values += wide.type(start)
    values = values.astype(dtype, copy=False)
    return xp.repeat(values, repeat) if repeat != 1 else values


def _of_linspace(*, start: float, stop: float, num: int, endpoint: bool, dtype: Any) -> Spec:
    if num < 0:
        raise MXNetError(f"num must be 0 or more, got {num}")
    return Spec((num,), dtype)


@op("_linspace", infer=_of_linspace, grad=None, in_mxnet=True)
def linspace(
    xp, *, start: float, stop: float, num: int, endpoint: bool = True, dtype: DType = "float32"
):
    """`num` evenly spaced numbers from start to stop, including stop if `endpoint`."""
    return xp.linspace(start, stop, num, endpoint=endpoint).astype(dtype)


@op("_eye", infer=lambda *, N, M, k, dtype: Spec((N, M or N), dtype), flops=0, grad=None,
    in_mxnet=True)  # fmt: skip
def eye(xp, *, N: int, M: int = 0, k: int = 0, dtype: DType = "float32"):
    """(N, M or N) with ones on diagonal k."""
    return xp.eye(N, M or None, k, dtype=dtype)

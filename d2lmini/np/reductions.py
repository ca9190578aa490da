"""Functions of `np` that reduce axes: sums, extremes, positions, running sums.

>>> from d2lmini import np
>>> x = np.array([[1, 2], [3, 4]])
>>> x.sum(), np.mean(x, axis=0), np.argmax(x)
(array(10.), array([2., 3.]), array(3, dtype=int64))
>>> np.array([1, 2], dtype="int32").mean()
array(1.5)

A reduction over all axes has shape (). Integers keep their dtype in sums; `mean` of integers is
float32; positions are int64.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as onp

from d2lmini.bfloat16 import is_float
from d2lmini.np.elementwise import FUNCTIONS as ELEMENTWISE
from d2lmini.np.values import (
    FLOAT32,
    as_float,
    as_type,
    at_least_1d,
    check_array,
    drop_axes,
    dtype_of,
    fill,
    reshape_to,
)
from d2lmini.ops.core import normalize_axes, registry
from d2lmini.ops.signature import named

multiply, subtract, divide = (ELEMENTWISE[name] for name in ("multiply", "subtract", "divide"))


def normalized(axis: Any, ndim: int) -> tuple[int, ...]:
    """The reduced axes, counted from the front; MXNetError if one is out of range."""
    if axis is None:
        return tuple(range(ndim))
    return normalize_axes(tuple(axis) if isinstance(axis, list) else axis, ndim)


def reduce(op_name: str, a: Any, axis: Any, keepdims: bool, **attrs: Any) -> Any:
    """Apply a reduction op of `nd`; a full reduction gets NumPy's shape ()."""
    if axis == () or not a.shape:
        return registry["_copy"](a)
    axes = normalized(axis, len(a.shape))
    result = registry[op_name](a, axis=axes, keepdims=keepdims, **attrs)
    return drop_axes(result) if len(axes) == len(a.shape) and not keepdims else result


def _widened(a: Any, dtype: Any) -> Any:
    """`a` in `dtype`, but floats as they are if that would cut them: then only the result is
    converted, as in MXNet, so that fractions count and have gradients."""
    cuts = dtype is not None and is_float(dtype_of(a)) and not onp.can_cast(dtype_of(a), dtype)
    return a if cuts else as_type(a, dtype)


def _accumulate(name: str, a: Any, axis: Any, dtype: Any, keepdims: bool) -> Any:
    a = _widened(check_array(name, a), dtype)
    a = as_type(a, "int64") if dtype_of(a).kind == "b" else a
    return as_type(reduce(name, a, axis, keepdims), dtype)


def sum(
    a: Any, axis: Any = None, dtype: Any = None, keepdims: bool = False, initial: Any = None,
    out: Any = None,
) -> Any:  # fmt: skip
    """The sum over `axis` (an int, a tuple, None for all); bool counts in int64."""
    result = _accumulate("sum", a, axis, dtype, keepdims)
    return fill(out, result if initial is None else result + initial)


def prod(
    a: Any, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: bool = False,
    initial: Any = None,
) -> Any:  # fmt: skip
    """The product over `axis`; bool counts in int64."""
    result = _accumulate("prod", a, axis, dtype, keepdims)
    return fill(out, result if initial is None else result * initial)


def mean(
    a: Any, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: bool = False
) -> Any:
    """The mean over `axis`; float32 for integers."""
    a = check_array("mean", a)
    a = as_float(a) if dtype is None else _widened(a, dtype)
    return fill(out, as_type(reduce("mean", a, axis, keepdims), dtype))


def _extreme(name: str) -> Callable[..., Any]:
    def function(a: Any, axis: Any = None, keepdims: bool = False, out: Any = None) -> Any:
        check_array(name, a)
        if not all_sizes(a.shape, axis):
            raise ValueError(f"np.{name}: an axis without elements has no extreme")
        return fill(out, reduce(name, a, axis, keepdims))

    return named(
        function,
        "d2lmini.np",
        name,
        f"The {name}imum over `axis`. ValueError for an axis without elements.",
    )


def all_sizes(shape: tuple[int, ...], axis: Any) -> bool:
    """True if every reduced axis has an element."""
    return 0 not in [shape[i] for i in normalized(axis, len(shape))]


max, min = _extreme("max"), _extreme("min")


def var(
    a: Any, axis: Any = None, dtype: Any = None, out: Any = None, ddof: int = 0,
    keepdims: bool = False,
) -> Any:  # fmt: skip
    """The mean squared distance from the mean, over n - ddof; float32 for integers."""
    a = check_array("var", a)
    a = as_float(_widened(a, dtype))
    distance = subtract(a, mean(a, axis, keepdims=True)) if a.shape else subtract(a, a)
    count = 1
    for i in normalized(axis, len(a.shape)):
        count *= a.shape[i]
    result = mean(multiply(distance, distance), axis, keepdims=keepdims)
    if ddof:
        result = multiply(result, count / (count - ddof) if count > ddof else float("nan"))
    return fill(out, as_type(result, dtype))


def std(
    a: Any, axis: Any = None, dtype: Any = None, out: Any = None, ddof: int = 0,
    keepdims: bool = False,
) -> Any:  # fmt: skip
    """The square root of `var`."""
    a = _widened(check_array("std", a), dtype)
    return fill(out, as_type(registry["sqrt"](var(a, axis, None, None, ddof, keepdims)), dtype))


def average(
    a: Any, axis: Any = None, weights: Any = None, returned: bool = False, out: Any = None
) -> Any:
    """The mean weighted by `weights`, of the shape of `a` or, along one `axis`, a vector;
    `returned`: also the sum of the weights."""
    check_array("average", a)
    if weights is None:
        result = mean(a, axis)
        total = divide(sum(registry["ones_like"](as_float(a)), axis), 1)
    else:
        if weights.shape != a.shape:
            shape = [1] * len(a.shape)
            shape[normalized(axis, len(a.shape))[0]] = weights.shape[0]
            weights = reshape_to(weights, tuple(shape))
            weights = registry["broadcast_to"](weights, shape=a.shape)
        total = sum(weights, axis)
        result = divide(sum(multiply(a, weights), axis), total)
    result = fill(out, result)
    return (result, total) if returned else result


def _position(name: str) -> Callable[..., Any]:
    def function(a: Any, axis: int | None = None, out: Any = None, keepdims: bool = False) -> Any:
        a = check_array(name, a)
        a = as_type(a, "uint8") if dtype_of(a).kind == "b" else a
        whole = axis is None or len(a.shape) <= 1
        flat = reshape_to(a, (a.size,)) if axis is None else at_least_1d(a)
        if not flat.size:
            raise ValueError(f"np.{name}: an array without elements has no extreme")
        found = registry[name](flat, axis=0 if axis is None else axis, keepdims=False)
        found = as_type(found, "int64")
        if keepdims:
            kept = [
                1 if whole or i == (axis or 0) % len(a.shape) else n for i, n in enumerate(a.shape)
            ]
            found = reshape_to(found, tuple(kept))
        return fill(out, drop_axes(found) if whole and not keepdims else found)

    means = "The position of the extreme along `axis`, or in the flat array. ValueError for none."
    return named(function, "d2lmini.np", name, means)


argmax, argmin = _position("argmax"), _position("argmin")


def cumsum(a: Any, axis: int | None = None, dtype: Any = None, out: Any = None) -> Any:
    """Running sums along `axis`, or of the flat array."""
    a = at_least_1d(as_type(check_array("cumsum", a), dtype))
    return fill(out, registry["cumsum"](a, axis=axis))


def _of_truth(name: str, reduction: str) -> Callable[..., Any]:
    def function(a: Any, axis: Any = None, keepdims: bool = False, out: Any = None) -> Any:
        truth = as_type(ELEMENTWISE["not_equal"](check_array(name, a), 0), "uint8")
        if truth.size:
            return fill(out, as_type(reduce(reduction, truth, axis, keepdims), bool))
        total = reduce("sum" if name == "any" else "prod", truth, axis, keepdims)
        return fill(out, as_type(total, bool))

    means = f"True where {name} elements along `axis` are not zero."
    return named(function, "d2lmini.np", name, means)


any, all = _of_truth("any", "max"), _of_truth("all", "min")


def _of_nan(name: str, neutral: float) -> Callable[..., Any]:
    base: Callable[..., Any] = {"nansum": sum, "nanprod": prod}[name]

    def function(
        a: Any, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: bool = False
    ) -> Any:
        clean = ELEMENTWISE["nan_to_num"](
            check_array(name, a), nan=neutral, posinf=onp.inf, neginf=-onp.inf
        )
        return base(clean, axis, dtype, out=out, keepdims=keepdims)

    means = f"`{name[3:]}` of the elements that are not nan."
    return named(function, "d2lmini.np", name, means)


def nanmean(
    a: Any, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: bool = False
) -> Any:
    """`mean` of the elements that are not nan."""
    a = as_float(check_array("nanmean", a))
    a = _widened(a, dtype)
    known = as_type(ELEMENTWISE["logical_not"](ELEMENTWISE["isnan"](a)), FLOAT32)
    total = FUNCTIONS["nansum"](a, axis, None, None, keepdims)
    return fill(out, as_type(divide(total, sum(known, axis, keepdims=keepdims)), dtype))


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "sum": sum, "prod": prod, "product": prod, "mean": mean, "max": max, "min": min, "amax": max,
    "amin": min, "var": var, "std": std, "average": average, "argmax": argmax, "argmin": argmin,
    "cumsum": cumsum, "any": any, "all": all, "sometrue": any, "alltrue": all,
    "nansum": _of_nan("nansum", 0.0), "nanprod": _of_nan("nanprod", 1.0), "nanmean": nanmean,
}  # fmt: skip

"""Functions of `np` that make arrays from numbers.

>>> from d2lmini import np
>>> np.array([1, 2]), np.zeros((0, 3)).shape, np.arange(3), np.array(2.5).shape
(array([1., 2.]), (0, 3), array([0., 1., 2.]), ())

float32 unless a dtype is given; `np.array` keeps the dtype of a NumPy array.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as onp

from d2lmini.base import ArgumentTypeError
from d2lmini.context import Context, current_context
from d2lmini.ndarray import creation as nd
from d2lmini.ndarray import exchange
from d2lmini.np.shapes import broadcast_to, reshape, stack
from d2lmini.np.values import as_type, check_array, dtype_of, fill, full_shape, is_number
from d2lmini.ops.core import Value, as_dtype, registry
from d2lmini.ops.signature import named


def array(object: Any, dtype: Any = None, ctx: Context | None = None) -> Any:
    """A copy of numbers, nested lists or an array, on `ctx`. Without `dtype`: that of a NumPy
    array or of an `np.ndarray`, else float32."""
    ctx = ctx or current_context()
    if isinstance(object, Value):
        copy = as_type(check_array("array", object), dtype)
        copy = registry["_copy"](copy) if copy is object else copy
        return copy if copy.ctx == ctx else copy.copyto(ctx)
    if isinstance(object, (list, tuple)) and any(isinstance(x, Value) for x in object):
        return array(stack([x if isinstance(x, Value) else array(x) for x in object]), dtype, ctx)
    values = _numbers(object)
    if dtype is None:
        kept = isinstance(object, (onp.ndarray, onp.generic))
        dtype = values.dtype if kept else "float32"
    return exchange.from_array(
        onp.array(values, as_dtype(dtype), order="C"), ctx, adopt=True
    ).as_np_ndarray()


def _numbers(source: Any) -> onp.ndarray:
    """`source` as a NumPy array of numbers; TypeError for anything else."""
    if isinstance(source, (list, tuple)):
        source = [_plain(x) for x in source]
    try:
        values = onp.asarray(source)
    except ValueError as problem:
        raise TypeError(f"np.array: expected numbers in even nesting: {problem}") from None
    if values.dtype.kind not in "biuf":
        raise ArgumentTypeError(
            f"np.array: expected numbers of at most 64 bits, got {type(source).__name__} of "
            f"{values.dtype}"
        )
    return values


def _plain(x: Any) -> Any:
    """Nested lists with the arrays in them as NumPy's."""
    if isinstance(x, (list, tuple)):
        return [_plain(item) for item in x]
    return x.asnumpy() if isinstance(x, Value) else x  # type: ignore[attr-defined]


def _default(dtype: Any) -> Any:
    return "float32" if dtype is None else dtype


def _check_order(order: str) -> None:
    if order != "C":
        raise NotImplementedError(f"only order='C' is supported, got {order!r}")


def _of_shape(name: str, means: str) -> Callable[..., Any]:
    make = getattr(nd, name)

    def function(
        shape: Any, dtype: Any = None, order: str = "C", ctx: Context | None = None
    ) -> Any:
        _check_order(order)
        return make(full_shape(shape), ctx, _default(dtype)).as_np_ndarray()

    return named(function, __name__, name, f"An array {means}.")


zeros, ones = _of_shape("zeros", "of zeros"), _of_shape("ones", "of ones")
empty = _of_shape("empty", "with undefined contents")


def full(
    shape: Any, fill_value: Any, dtype: Any = None, order: str = "C", ctx: Context | None = None,
    out: Any = None,
) -> Any:  # fmt: skip
    """An array of one value; bool for True and False. An array as value is broadcast."""
    _check_order(order)
    if isinstance(fill_value, Value):
        value = as_type(check_array("full", fill_value), dtype)
        return fill(out, broadcast_to(value, shape))
    if dtype is None:
        dtype = "bool" if isinstance(fill_value, (bool, onp.bool_)) else "float32"
    return fill(out, nd.full(full_shape(shape), fill_value, ctx, dtype).as_np_ndarray())


def _like(make: Callable[..., Any]) -> Callable[..., Any]:
    def function(
        a: Any, dtype: Any = None, order: str = "C", ctx: Context | None = None, out: Any = None
    ) -> Any:
        check_array(f"{make.__name__}_like", a)
        return fill(out, make(a.shape, dtype or dtype_of(a), order, ctx or a.ctx))

    means = f"`{make.__name__}` in the shape, dtype and context of `a`."
    return named(function, __name__, f"{make.__name__}_like", means)


zeros_like, ones_like = _like(zeros), _like(ones)


def empty_like(
    prototype: Any, dtype: Any = None, order: str = "C", subok: bool = False, shape: Any = None
) -> Any:
    """`empty` in the shape, dtype and context of `prototype`."""
    check_array("empty_like", prototype)
    shape = prototype.shape if shape is None else shape
    return empty(shape, dtype or dtype_of(prototype), order, prototype.ctx)


def full_like(
    a: Any, fill_value: Any, dtype: Any = None, order: str = "C", ctx: Context | None = None,
    out: Any = None,
) -> Any:  # fmt: skip
    """`full` in the shape, dtype and context of `a`."""
    check_array("full_like", a)
    return full(a.shape, fill_value, dtype or dtype_of(a), order, ctx or a.ctx, out)


def arange(
    start: Any, stop: Any = None, step: Any = 1, dtype: Any = None, ctx: Context | None = None
) -> Any:
    """start, start + step, ... below stop; arange(n): 0, 1, ..., n - 1. ZeroDivisionError for a
    step of 0."""
    if not step:
        raise ZeroDivisionError("np.arange: step is 0")
    return nd.arange(start, stop, step, ctx=ctx, dtype=_default(dtype)).as_np_ndarray()


def linspace(
    start: Any, stop: Any, num: int = 50, endpoint: bool = True, retstep: bool = False,
    dtype: Any = None, axis: int = 0, ctx: Context | None = None,
) -> Any:  # fmt: skip
    """`num` evenly spaced numbers from start to stop; `retstep`: and their distance."""
    if axis != 0 or not is_number(start) or not is_number(stop):
        raise NotImplementedError("np.linspace: start and stop are numbers, axis is 0")
    step = (stop - start) / max(1, num - 1 if endpoint else num)
    result = nd.linspace(start, stop, num, endpoint, ctx, _default(dtype)).as_np_ndarray()
    return (result, step) if retstep else result


def logspace(
    start: Any, stop: Any, num: int = 50, endpoint: bool = True, base: float = 10.0,
    dtype: Any = None, axis: int = 0, ctx: Context | None = None,
) -> Any:  # fmt: skip
    """`base` to the powers of `linspace`."""
    powers = linspace(start, stop, num, endpoint, False, None, axis, ctx)
    return as_type(base**powers, dtype)


def eye(
    N: int, M: int | None = None, k: int = 0, dtype: Any = "float32", ctx: Context | None = None
) -> Any:
    """Ones on diagonal k of an (N, M or N) array."""
    return nd.eye(N, N if M is None else M, k, ctx, _default(dtype)).as_np_ndarray()


def identity(n: int, dtype: Any = None, ctx: Context | None = None) -> Any:
    """`eye` of a square array."""
    return eye(n, n, 0, _default(dtype), ctx)


def meshgrid(*xi: Any, indexing: str = "xy", sparse: bool = False, copy: bool = True) -> list[Any]:
    """Coordinates of a grid: for each vector an array that varies along its axis only. indexing
    is 'xy' or 'ij', ValueError for others."""
    ndim = len(xi)
    order = list(range(ndim))
    if indexing == "xy" and ndim > 1:
        order[:2] = [1, 0]
    elif indexing not in ("xy", "ij"):
        raise ValueError(f"np.meshgrid: indexing is 'xy' or 'ij', got {indexing!r}")
    sizes = [x.size for x in xi]
    whole = [0] * ndim
    for place, size in zip(order, sizes):
        whole[place] = size
    grids = []
    for place, x in zip(order, xi):
        alone = reshape(x, tuple(-1 if i == place else 1 for i in range(ndim)))
        grids.append(alone if sparse else broadcast_to(alone, whole))
    return grids


def broadcast_arrays(*args: Any) -> list[Any]:
    """The arrays, numbers or lists repeated to their common shape."""
    arrays: list[Any] = [x if isinstance(x, Value) else array(x) for x in args]
    shape = onp.broadcast_shapes(*[x.shape for x in arrays])
    return [broadcast_to(x, shape) for x in arrays]


def copy(a: Any, out: Any = None) -> Any:
    """A copy."""
    return fill(out, registry["_copy"](check_array("copy", a)))


def _window(name: str) -> Callable[..., Any]:
    def function(M: int, dtype: Any = None, ctx: Context | None = None) -> Any:
        return array(getattr(onp, name)(M), _default(dtype), ctx)

    return named(function, "d2lmini.np", name, f"The {name} window of M points.")


FUNCTIONS: dict[str, Callable[..., Any]] = {
    function.__name__: function
    for function in (
        array, zeros, ones, empty, full, zeros_like, ones_like, empty_like, full_like, arange,
        linspace, logspace, eye, identity, meshgrid, broadcast_arrays, copy,
    )
}  # fmt: skip
FUNCTIONS |= {name: _window(name) for name in ("blackman", "hamming", "hanning")}

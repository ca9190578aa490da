"""Functions of `np` that choose, sort and search elements.

>>> from d2lmini import np
>>> x = np.array([3, 1, 2])
>>> np.sort(x), np.argsort(x), np.where(x > 1, x, 0)
(array([1., 2., 3.]), array([1, 2, 0], dtype=int64), array([3., 0., 2.]))
>>> np.nonzero(x > 1)
(array([0, 2], dtype=int64),)

`nonzero`, `unique` and a mask as an index (`x[x > 1]`) give shapes that depend on values, so they
wait for them; all else here is queued.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as onp

from d2lmini.np.creation import array
from d2lmini.np.elementwise import FUNCTIONS as ELEMENTWISE
from d2lmini.np.shapes import broadcast_to, concatenate, ravel
from d2lmini.np.values import (
    as_type,
    at_least_1d,
    check_array,
    constant,
    drop_axes,
    dtype_of,
    fill,
    is_number,
    promote,
    reshape_to,
)
from d2lmini.ops.chunking import along
from d2lmini.ops.core import Value, normalize_axis, registry, with_axis
from d2lmini.ops.signature import named
from d2lmini.symbol.symbol import NotImplementedForSymbol, Symbol


def where(condition: Any, x: Any = None, y: Any = None) -> Any:
    """x where the condition is not zero, else y; all three broadcast. With the condition alone:
    `nonzero`."""
    if x is None and y is None:
        return nonzero(condition)
    if is_number(condition):
        if not isinstance(x, Value) and not isinstance(y, Value):
            return x if condition else y
        shaped: Any = x if isinstance(x, Value) else y
        condition = array(bool(condition), bool, shaped.ctx)
    condition = ELEMENTWISE["not_equal"](check_array("where", condition), 0)
    if not isinstance(x, Value) and not isinstance(y, Value):
        x = constant(x, as_type(condition, "float32"))
    x, y = (v if isinstance(v, Value) else constant(v, other) for v, other in ((x, y), (y, x)))
    x, y = promote("where", x, y)
    shape = onp.broadcast_shapes(condition.shape, x.shape, y.shape)
    parts = [v if v.shape == shape else broadcast_to(v, shape) for v in (condition, x, y)]
    chosen = registry["where"](
        as_type(at_least_1d(parts[0]), "uint8"), *map(at_least_1d, parts[1:])
    )
    return chosen if shape else drop_axes(chosen)


def take(
    a: Any, indices: Any, axis: int | None = None, mode: str = "raise", out: Any = None
) -> Any:
    """Elements at `indices` along `axis`, or of the flat array. mode: 'raise' (an index outside
    fails, at run time), 'clip' or 'wrap'."""
    check_array("take", a)
    if not isinstance(indices, Value):
        indices = array(indices, dtype="int64", ctx=a.ctx)
    if axis is None:
        a, axis = ravel(a), 0
    axis = normalize_axis(axis, len(a.shape))
    flat = at_least_1d(as_type(indices, "int64"))
    result = registry["take"](a, flat, axis=axis, mode=mode)
    if not indices.shape:
        result = reshape_to(result, with_axis(a.shape, axis))
    return fill(out, result)


def take_along_axis(arr: Any, indices: Any, axis: int | None) -> Any:
    """Elements of each line along `axis` at the positions in `indices`."""
    check_array("take_along_axis", arr)
    if axis is None:
        return take(ravel(arr), indices)
    axis = normalize_axis(axis, len(arr.shape))
    size = arr.shape[axis]
    positions = as_type(indices, "int64")
    positions = where(positions < 0, positions + size, positions)
    return registry["_take_along"](arr, positions, axis=axis)


def sort(a: Any, axis: int | None = -1, kind: Any = None, order: Any = None) -> Any:
    """The elements of each line in ascending order; None sorts the flat array."""
    _check_field_order("sort", order)
    a = check_array("sort", a)
    return registry["sort"](at_least_1d(a) if axis is None else a, axis=axis)


def argsort(a: Any, axis: int | None = -1, kind: Any = None, order: Any = None) -> Any:
    """The positions that sort each line, int64."""
    _check_field_order("argsort", order)
    return registry["argsort"](at_least_1d(check_array("argsort", a)), axis=axis, dtype="int64")


def _check_field_order(name: str, order: Any) -> None:
    if order is not None:
        raise NotImplementedError(f"np.{name}: order= names fields, which arrays here do not have")


def read(x: Any, name: str) -> onp.ndarray:
    """The values of an array; waits. NotImplementedForSymbol in a trace, where there are none."""
    if isinstance(check_array(name, x), Symbol):
        raise NotImplementedForSymbol(f"np.{name}")
    return x.asnumpy()


def nonzero(a: Any) -> tuple[Any, ...]:
    """The coordinates of the elements that are not zero, an int64 array for each axis; waits."""
    return tuple(array(part, ctx=a.ctx) for part in onp.nonzero(onp.atleast_1d(read(a, "nonzero"))))


def unique(
    ar: Any, return_index: bool = False, return_inverse: bool = False,
    return_counts: bool = False, axis: int | None = None,
) -> Any:  # fmt: skip
    """The distinct elements in ascending order, with their first positions, the positions in the
    result, and counts if asked for; waits."""
    of_numpy: Any = onp.unique
    found = of_numpy(read(ar, "unique"), return_index, return_inverse, return_counts, axis)
    wrapped = [array(part, ctx=ar.ctx) for part in (found if isinstance(found, tuple) else [found])]
    return tuple(wrapped) if isinstance(found, tuple) else wrapped[0]


def diag(v: Any, k: int = 0) -> Any:
    """A matrix with `v` on diagonal k; of a matrix that diagonal, empty outside of the matrix."""
    return diagonal(v, k) if len(check_array("diag", v).shape) > 1 else registry["diag"](v, k=k)


def diagonal(a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Any:
    """The diagonal of two axes, as the last axis; empty outside of the matrix."""
    ndim = len(check_array("diagonal", a).shape)
    rows, columns = (a.shape[normalize_axis(axis, ndim)] for axis in (axis1, axis2))
    k = min(max(int(offset), -rows), columns)  # `diag` refuses others
    return registry["diag"](a, k=k, axis1=axis1, axis2=axis2)


def diagflat(array_like: Any, k: int = 0) -> Any:
    """A matrix with the flat elements on diagonal k."""
    return diag(ravel(array_like), k)


def _triangle(name: str) -> Callable[..., Any]:
    def function(m: Any, k: int = 0) -> Any:
        check_array(name, m)
        rows, columns = (*m.shape, *m.shape)[-2:]
        mask = array(getattr(onp, name)(onp.ones((rows, columns), bool), k), ctx=m.ctx)
        return where(mask, m, 0)

    side = "lower" if name == "tril" else "upper"
    return named(function, __name__, name, f"The {side} triangle, from diagonal k.")


tril, triu = _triangle("tril"), _triangle("triu")


def tri(N: int, M: int | None = None, k: int = 0, dtype: Any = "float32", ctx: Any = None) -> Any:
    """Ones on and below diagonal k."""
    return array(onp.tri(N, M, k), dtype=dtype, ctx=ctx)


def delete(arr: Any, obj: Any, axis: int | None = None) -> Any:
    """Without the elements at `obj` (an int, a slice, a list) along `axis` or, flat, without."""
    check_array("delete", arr)
    if axis is None:
        arr, axis = ravel(arr), 0
    obj = read(obj, "delete").astype(int) if isinstance(obj, Value) else obj
    kept = onp.delete(onp.arange(arr.shape[axis]), obj)
    return arr[along(normalize_axis(axis, len(arr.shape)), kept)]


def diff(a: Any, n: int = 1, axis: int = -1, prepend: Any = None, append: Any = None) -> Any:
    """Differences of neighbours along `axis`, n times."""
    if prepend is not None or append is not None:
        raise NotImplementedError(
            "np.diff: prepend and append are not supported; concatenate first"
        )
    axis = normalize_axis(axis, len(check_array("diff", a).shape))
    for _ in range(n):
        later, earlier = (a[along(axis, part)] for part in (slice(1, None), slice(None, -1)))
        a = ELEMENTWISE["subtract"](later, earlier)
    return a


def ediff1d(ary: Any, to_end: Any = None, to_begin: Any = None) -> Any:
    """`diff` of the flat array, between `to_begin` and `to_end`."""
    parts = [diff(ravel(check_array("ediff1d", ary)))]
    for place, more in ((0, to_begin), (len(parts), to_end)):
        if more is not None:
            more = more if isinstance(more, Value) else array(more, dtype_of(ary), ary.ctx)
            parts.insert(place if not place else len(parts), ravel(more))
    return concatenate(parts) if len(parts) > 1 else parts[0]


def indices(dimensions: Any, dtype: Any = "int32", ctx: Any = None) -> Any:
    """The coordinates of each element of a grid: shape (number of axes, *dimensions)."""
    return array(onp.indices(tuple(dimensions)), dtype=dtype, ctx=ctx)


def genfromtxt(*args: Any, **kwargs: Any) -> Any:
    """`numpy.genfromtxt` as an array."""
    return array(onp.genfromtxt(*args, **kwargs))


def bincount(x: Any, weights: Any = None, minlength: int = 0) -> Any:
    """How often each number occurs, or the sum of its weights; waits."""
    places = read(x, "bincount")
    if weights is None:
        return array(onp.bincount(places, minlength=minlength), ctx=x.ctx)
    sums = onp.bincount(places, read(weights, "bincount"), minlength)
    return array(sums, dtype_of(weights), x.ctx)


def shape(a: Any) -> tuple[int, ...]:
    """The sizes of the axes."""
    return onp.shape(a) if is_number(a) or isinstance(a, (list, tuple)) else tuple(a.shape)


def may_share_memory(a: Any, b: Any, max_work: int | None = None) -> bool:
    """True if two arrays have the same memory, or one is a view of the other's."""
    return a._chunk is b._chunk


FUNCTIONS: dict[str, Callable[..., Any]] = {
    function.__name__: function
    for function in (
        where, take, take_along_axis, sort, argsort, nonzero, unique, diag, diagonal, diagflat,
        tril, triu, tri, delete, diff, ediff1d, indices, genfromtxt, bincount, shape,
        may_share_memory,
    )
}  # fmt: skip
FUNCTIONS["shares_memory"] = may_share_memory

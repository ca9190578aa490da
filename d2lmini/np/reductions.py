"""Functions of `np` that reduce axes, choose, sort and search: sums, products, where, sort.

>>> from d2lmini import np
>>> x = np.array([[1, 2], [3, 4]])
>>> x.sum(), np.mean(x, axis=0), np.argmax(x)
(array(10.), array([2., 3.]), array(3, dtype=int64))
>>> np.array([1, 2], dtype="int32").mean()
array(1.5)
>>> A = np.arange(6).reshape(2, 3)
>>> np.dot(A, np.ones(3)), np.matmul(np.ones((4, 2, 3)), A.T).shape, np.dot(np.ones(3), np.ones(3))
(array([ 3., 12.]), (4, 2, 2), array(3.))

A reduction over all axes has shape (). Integers keep their dtype in sums; `mean` of integers is
float32; positions are int64.

>>> x = np.array([3, 1, 2])
>>> np.sort(x), np.argsort(x), np.where(x > 1, x, 0)
(array([1., 2., 3.]), array([1, 2, 0], dtype=int64), array([3., 0., 2.]))
>>> np.nonzero(x > 1)
(array([0, 2], dtype=int64),)

`nonzero`, `unique` and a mask as an index (`x[x > 1]`) give shapes that depend on values, so they
wait for them; all else here is queued.
"""

from __future__ import annotations

from math import prod as product_of

import numpy as onp

from d2lmini.base.dtypes import is_float
from d2lmini.np.creation import array
from d2lmini.np.elementwise import FUNCTIONS as ELEMENTWISE
from d2lmini.np.shapes import broadcast_to, expand_dims, ravel, transpose
from d2lmini.np.values import (
    Array,
    as_float,
    as_type,
    at_least_1d,
    check_array,
    constant,
    drop_axes,
    fill,
    is_array,
    is_number,
    promote,
    read,
    reshape_to,
)
from d2lmini.ops.core import normalize_axis, registry, with_axis
from d2lmini.ops.reduce import reduced_axes


def _axes(a, axis):
    """The reduced axes, from the front; MXNetError for one out of range or named twice."""
    return reduced_axes(tuple(axis) if isinstance(axis, list) else axis, a.ndim)


def _reduce(op, a, axis, keepdims):
    """Apply a reduction op of `nd`; a full reduction gets NumPy's shape ()."""
    if axis == () or not a.shape:
        return registry["_copy"](a)
    axes = _axes(a, axis)
    result = registry[op](a, axis=axes, keepdims=keepdims)
    return drop_axes(result) if len(axes) == a.ndim and not keepdims else result


def _widened(a, dtype):
    """`a` in `dtype`, but floats as they are if that would cut them: then only the result is
    converted, as in MXNet, so that fractions count and have gradients."""
    cuts = dtype is not None and is_float(a.dtype) and not onp.can_cast(a.dtype, dtype)
    return a if cuts else as_type(a, dtype)


def _accumulate(op, a, axis, dtype, keepdims):
    a = _widened(a, dtype)
    a = as_type(a, "int64") if a.dtype.kind == "b" else a
    return as_type(_reduce(op, a, axis, keepdims), dtype)


def sum(a: Array, axis=None, dtype=None, keepdims=False, initial=None, out=None):
    """The sum over `axis` (an int, a tuple, None for all); bool counts in int64."""
    total = _accumulate("sum", a, axis, dtype, keepdims)
    return fill(out, total if initial is None else total + initial)


def prod(a: Array, axis=None, dtype=None, out=None, keepdims=False, initial=None):
    """The product over `axis`; bool counts in int64."""
    total = _accumulate("prod", a, axis, dtype, keepdims)
    return fill(out, total if initial is None else total * initial)


def mean(a: Array, axis=None, dtype=None, out=None, keepdims=False):
    """The mean over `axis`; float32 for integers."""
    a = as_float(a) if dtype is None else _widened(a, dtype)
    return fill(out, as_type(_reduce("mean", a, axis, keepdims), dtype))


def _extreme(name, a, axis, keepdims):
    if 0 in [a.shape[i] for i in _axes(a, axis)]:
        raise ValueError(f"np.{name}: an axis without elements has no extreme")
    return _reduce(name, a, axis, keepdims)


def max(a: Array, axis=None, keepdims=False, out=None):
    """The maximum over `axis`. ValueError for an axis without elements."""
    return fill(out, _extreme("max", a, axis, keepdims))


def min(a: Array, axis=None, keepdims=False, out=None):
    """The minimum over `axis`. ValueError for an axis without elements."""
    return fill(out, _extreme("min", a, axis, keepdims))


def var(a: Array, axis=None, dtype=None, out=None, ddof=0, keepdims=False):
    """The mean squared distance from the mean, over n - ddof; float32 for integers."""
    a = as_float(_widened(a, dtype))
    distance = a - (mean(a, axis, keepdims=True) if a.shape else a)
    result = mean(distance * distance, axis, keepdims=keepdims)
    if ddof:
        count = product_of(a.shape[i] for i in _axes(a, axis))
        result = result * (count / (count - ddof) if count > ddof else onp.nan)
    return fill(out, as_type(result, dtype))


def std(a: Array, axis=None, dtype=None, out=None, ddof=0, keepdims=False):
    """The square root of `var`."""
    variance = var(_widened(a, dtype), axis, None, None, ddof, keepdims)
    return fill(out, as_type(registry["sqrt"](variance), dtype))


def _position(name, a, axis, keepdims):
    """The position of the extreme along `axis`, or in the flat array."""
    if not a.size:
        raise ValueError(f"np.{name}: an array without elements has no extreme")
    values = as_type(a, "uint8") if a.dtype.kind == "b" else a
    values = reshape_to(values, (a.size,)) if axis is None else at_least_1d(values)
    along = 0 if axis is None else axis
    found = as_type(registry[name](values, axis=along, keepdims=False), "int64")
    whole = axis is None or a.ndim < 2
    if keepdims:
        return reshape_to(found, (1,) * a.ndim if whole else with_axis(a.shape, axis, 1))
    return drop_axes(found) if whole else found


def argmax(a: Array, axis=None, out=None, keepdims=False):
    """The position of the maximum along `axis`, or in the flat array. ValueError for none."""
    return fill(out, _position("argmax", a, axis, keepdims))


def argmin(a: Array, axis=None, out=None, keepdims=False):
    """The position of the minimum along `axis`, or in the flat array. ValueError for none."""
    return fill(out, _position("argmin", a, axis, keepdims))


def cumsum(a: Array, axis=None, dtype=None, out=None):
    """Running sums along `axis`, or of the flat array."""
    return fill(out, registry["cumsum"](at_least_1d(as_type(a, dtype)), axis=axis))


def _of_truth(op, op_of_none, a, axis, keepdims):
    """A reduction of the elements as 0 and 1; another op knows what it gives of no elements."""
    truth = as_type(a != 0, "uint8")
    return as_type(_reduce(op if truth.size else op_of_none, truth, axis, keepdims), bool)


def any(a: Array, axis=None, keepdims=False, out=None):
    """True where any elements along `axis` are not zero."""
    return fill(out, _of_truth("max", "sum", a, axis, keepdims))


def all(a: Array, axis=None, keepdims=False, out=None):
    """True where all elements along `axis` are not zero."""
    return fill(out, _of_truth("min", "prod", a, axis, keepdims))


amax, amin = max, min


# -- products --------------------------------------------------------------------------------------

_multiply = ELEMENTWISE["multiply"]


def _pair(name, a, b):
    """Both operands in one dtype; bool counts as int64, since BLAS has no products of bool."""
    a, b = promote(name, check_array(name, a), check_array(name, b))
    return [as_type(x, "int64") if x.dtype.kind == "b" else x for x in (a, b)]


def _check_aligned(a, b):
    """ValueError unless the last axis of `a` is as long as the last but one (the only) of `b`."""
    if a.shape[-1] != b.shape[-2:][0]:
        raise ValueError(
            f"shapes {a.shape} and {b.shape} not aligned: the last axis of the first has size "
            f"{a.shape[-1]}, axis {max(b.ndim - 2, 0)} of the second {b.shape[-2:][0]}"
        )


def dot(a, b, out=None):
    """The product over the last axis of `a` and the last but one of `b` (its only one)."""
    if is_number(a) or is_number(b):
        return _multiply(a, b, out)
    a, b = _pair("dot", a, b)
    if not a.shape or not b.shape:
        return _multiply(a, b, out)
    _check_aligned(a, b)
    order = sorted(range(b.ndim), key=lambda axis: axis != b.ndim - 2)
    result = registry["dot"](a, transpose(b, order) if b.ndim > 2 else b)
    shape = a.shape[:-1] + b.shape[:-2] + (b.shape[-1:] if b.ndim > 1 else ())
    return fill(out, result if result.shape == shape else reshape_to(result, shape))


def matmul(a, b, out=None):
    """Products of matrices in the last two axes; the others broadcast, vectors get an axis.
    ValueError for arrays without axes and for sizes that do not fit."""
    a, b = _pair("matmul", a, b)
    if not a.shape or not b.shape:
        raise ValueError("np.matmul: arrays without axes have no matrix product; use a * b")
    if a.ndim < 3 and b.ndim < 3:
        return dot(a, b, out)
    _check_aligned(a, b)
    shape = a.shape[-2:-1] + (b.shape[-1:] if b.ndim > 1 else ())
    a = a if a.ndim > 1 else expand_dims(a, 0)
    b = b if b.ndim > 1 else expand_dims(b, 1)
    lead = onp.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    left, right = (
        reshape_to(broadcast_to(x, lead + x.shape[-2:]), (product_of(lead), *x.shape[-2:]))
        for x in (a, b)
    )
    return fill(out, reshape_to(registry["batch_dot"](left, right), lead + shape))


def where(condition, x=None, y=None):
    """x where the condition is not zero, else y; all three broadcast. With the condition alone:
    `nonzero`."""
    if x is None and y is None:
        return nonzero(condition)
    numbers = not is_array(x) and not is_array(y)
    if is_number(condition):
        if numbers:
            return x if condition else y
        condition = array(bool(condition), bool, (x if is_array(x) else y).ctx)
    condition = check_array("where", condition) != 0
    if numbers:
        x = constant(x, as_type(condition, "float32"))
    x, y = (v if is_array(v) else constant(v, other) for v, other in ((x, y), (y, x)))
    x, y = promote("where", x, y)
    shape = onp.broadcast_shapes(condition.shape, x.shape, y.shape)
    parts = [v if v.shape == shape else broadcast_to(v, shape) for v in (condition, x, y)]
    mask, x, y = map(at_least_1d, parts)
    chosen = registry["where"](as_type(mask, "uint8"), x, y)
    return chosen if shape else drop_axes(chosen)


def take(a: Array, indices, axis=None, mode="raise", out=None):
    """Elements at `indices` along `axis`, or of the flat array. mode: 'raise' (an index outside
    fails, at run time), 'clip' or 'wrap'."""
    if not is_array(indices):
        indices = array(indices, "int64", a.ctx)
    if axis is None:
        a, axis = ravel(a), 0
    axis = normalize_axis(axis, a.ndim)
    flat = at_least_1d(as_type(indices, "int64"))
    result = registry["take"](a, flat, axis=axis, mode=mode)
    return fill(out, result if indices.shape else reshape_to(result, with_axis(a.shape, axis)))


def sort(a: Array, axis=-1):
    """The elements of each line in ascending order; None sorts the flat array. (The method gives a
    sorted copy, too, as in MXNet; in NumPy it sorts in place.)"""
    return registry["sort"](at_least_1d(a) if axis is None else a, axis=axis)


def argsort(a: Array, axis=-1):
    """The positions that sort each line, int64."""
    return registry["argsort"](at_least_1d(a), axis=axis, dtype="int64")


def nonzero(a):
    """The coordinates of the elements that are not zero, an int64 array for each axis; waits."""
    return tuple(array(part, ctx=a.ctx) for part in onp.nonzero(onp.atleast_1d(read(a, "nonzero"))))


def unique(ar, return_index=False, return_inverse=False, return_counts=False, axis=None):
    """The distinct elements in ascending order, with their first positions, the positions in the
    result, and counts if asked for; waits."""
    found = onp.unique(read(ar, "unique"), return_index, return_inverse, return_counts, axis)
    if isinstance(found, tuple):
        return tuple(array(part, ctx=ar.ctx) for part in found)
    return array(found, ctx=ar.ctx)


def genfromtxt(*args, **kwargs):
    """`numpy.genfromtxt` as an array."""
    return array(onp.genfromtxt(*args, **kwargs))

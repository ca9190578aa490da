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

import numpy as onp

from d2lmini.np.creation import array
from d2lmini.np.shapes import broadcast_to, ravel
from d2lmini.np.values import (
    Array,
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

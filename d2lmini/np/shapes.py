"""Functions of `np` that change shapes: reshape, transpose, join, split, repeat.

>>> from d2lmini import np
>>> x = np.arange(6).reshape(2, -1)
>>> x.T.shape, np.stack([x, x]).shape, np.concatenate([x, x], axis=1).shape
((3, 2), (2, 2, 3), (2, 6))
>>> [part.shape for part in np.split(x, 3, axis=1)]
[(2, 1), (2, 1), (2, 1)]

Results are new arrays, never views (only indexing gives views).
"""

from __future__ import annotations

from itertools import pairwise
from math import prod

import numpy as onp

from d2lmini.ndarray import functions as nd
from d2lmini.np.values import Array, check_array, fill, full_shape, is_number, promote, reshape_to
from d2lmini.ops.chunking import along
from d2lmini.ops.core import normalize_axis, registry


def reshape(a: Array, newshape, order="C", out=None):
    """A copy of shape `newshape`, in which one size may be -1. ValueError if the sizes do not
    fit, or for an order other than 'C'."""
    if order != "C":
        raise ValueError(f"np.reshape: only order='C' is supported, got {order!r}")
    wanted = full_shape(newshape)
    known = list(wanted)
    if known.count(-1) == 1:
        rest = -prod(known)
        known[known.index(-1)] = a.size // rest if rest else 0
    if prod(known) != a.size or any(n < 0 for n in known):
        raise ValueError(f"cannot reshape array of size {a.size} into shape {wanted}")
    return fill(out, reshape_to(a, tuple(known)))


def ravel(x: Array, order="C"):
    """The elements in one axis."""
    return reshape(x, x.size, order)


def _places(axes, ndim):
    """Axes counted from the front, in the given order; one may be a number."""
    return tuple([normalize_axis(axis, ndim) for axis in ([axes] if is_number(axes) else axes)])


def transpose(a: Array, axes=None):
    """The axes in another order, by default reversed. ValueError unless each is named once."""
    if a.ndim < 2:
        return registry["_copy"](a)
    order = tuple(range(a.ndim))[::-1] if axes is None else _places(axes, a.ndim)
    if sorted(order) != list(range(a.ndim)):
        raise ValueError(f"np.transpose: axes {axes} do not name each axis of {a.shape} once")
    return registry["transpose"](a, axes=order)


def swapaxes(a: Array, axis1, axis2):
    """Two axes exchanged."""
    dim1, dim2 = normalize_axis(axis1, a.ndim), normalize_axis(axis2, a.ndim)
    return registry["swapaxes"](a, dim1=dim1, dim2=dim2)


def expand_dims(a: Array, axis):
    """A new axis of size 1 at `axis` (of the result), or several."""
    ndim = a.ndim + (1 if is_number(axis) else len(axis))
    places = _places(axis, ndim)
    sizes = iter(a.shape)
    return reshape_to(a, tuple(1 if i in places else next(sizes) for i in range(ndim)))


def squeeze(a: Array, axis=None, out=None):
    """Without axes of size 1, all or those given; ValueError for an axis of another size."""
    ones = [i for i, size in enumerate(a.shape) if size == 1]
    gone = ones if axis is None else _places(axis, a.ndim)
    if not set(gone) <= set(ones):
        raise ValueError(f"np.squeeze: axis {axis} of {a.shape} has not size 1")
    return fill(out, reshape_to(a, tuple(n for i, n in enumerate(a.shape) if i not in gone)))


def broadcast_to(array, shape):
    """A copy repeated to `shape`, by NumPy's rules. ValueError if the sizes do not fit."""
    shape = full_shape(shape)
    if is_number(array):
        dtype = "bool" if isinstance(array, (bool, onp.bool_)) else "float32"
        return nd.full(shape, array, dtype=dtype).as_np_ndarray()
    check_array("broadcast_to", array)
    if onp.broadcast_shapes(array.shape, shape) != shape:
        raise ValueError(f"np.broadcast_to: {array.shape} does not broadcast to {shape}")
    kept = (1,) * (len(shape) - array.ndim) + tuple(array.shape)
    return registry["_spread"](array, kept=kept, shape=shape)


# -- join and split --------------------------------------------------------------------------------


def _arrays(name, arrays):
    """A sequence of arrays in one dtype; ValueError for an empty one."""
    found = [check_array(name, x) for x in arrays]
    if not found:
        raise ValueError(f"np.{name}: expected at least one array")
    return promote(name, *found)


def concatenate(seq, axis=0, out=None):
    """Arrays joined along an existing axis; None joins them flat."""
    arrays = _arrays("concatenate", seq)
    if axis is None:
        arrays, axis = [ravel(x) for x in arrays], 0
    return fill(out, registry["concat"](*arrays, dim=normalize_axis(axis, arrays[0].ndim)))


def stack(arrays, axis=0, out=None):
    """Arrays joined along a new axis. ValueError if their shapes differ."""
    found = _arrays("stack", arrays)
    if len({x.shape for x in found}) > 1:
        raise ValueError(f"np.stack: all shapes must be equal, got {[x.shape for x in found]}")
    return concatenate([expand_dims(x, axis) for x in found], axis, out)


def vstack(arrays, out=None):
    """Rows joined: along the first axis, vectors as rows."""
    found = _arrays("vstack", arrays)
    return concatenate([x if x.ndim > 1 else reshape(x, (1, -1)) for x in found], 0, out)


def split(ary: Array, indices_or_sections, axis=0):
    """Parts along `axis`: so many equal ones, or cut at these indices. ValueError if the axis
    cannot be cut into equal parts."""
    size = ary.shape[normalize_axis(axis, ary.ndim)]
    if is_number(indices_or_sections) and size % int(indices_or_sections):
        raise ValueError("array split does not result in an equal division")
    return array_split(ary, indices_or_sections, axis)


def array_split(ary: Array, indices_or_sections, axis=0):
    """Like `split`; the first parts are longer where equal ones are impossible."""
    axis = normalize_axis(axis, ary.ndim)
    size = ary.shape[axis]
    if is_number(indices_or_sections):
        count = int(indices_or_sections)
        small, more = divmod(size, count)
        bounds = [small * i + min(i, more) for i in range(count + 1)]
    else:
        cuts = [c + size if c < 0 else c for c in map(int, indices_or_sections)]
        bounds = [0, *(min(max(c, 0), size) for c in cuts), size]
    part = registry["slice_axis"]  # not indexing, which would give views along the first axis
    return [part(ary, axis=axis, begin=i, end=max(i, j)) for i, j in pairwise(bounds)]


# -- repeat and move -------------------------------------------------------------------------------


def tile(A: Array, reps):
    """`A` repeated as a whole, so often along each axis."""
    counts = full_shape(reps)
    ndim = max(len(counts), A.ndim)
    if not ndim:
        return registry["_copy"](A)
    shape = (1,) * (ndim - A.ndim) + tuple(A.shape)
    counts = (1,) * (ndim - len(counts)) + counts
    if 0 in counts or 0 in shape:
        return reshape_to(ravel(A)[:0], tuple(n * c for n, c in zip(shape, counts)))
    return registry["tile"](reshape_to(A, shape), reps=counts)


def repeat(a: Array, repeats, axis=None):
    """Each element so often in a row along `axis`, or of the flat array; `repeats` may be a list
    of one count for each."""
    if axis is None:
        a, axis = ravel(a), 0
    if is_number(repeats):
        return registry["repeat"](a, repeats=int(repeats), axis=axis)
    axis = normalize_axis(axis, a.ndim)
    counts = onp.broadcast_to(onp.asarray(repeats, int), a.shape[axis])
    return a[along(axis, onp.repeat(onp.arange(a.shape[axis]), counts))]

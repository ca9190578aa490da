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

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as onp

from d2lmini.ndarray import creation
from d2lmini.np.values import (
    as_type,
    check_array,
    constant,
    dtype_of,
    fill,
    full_shape,
    infer_size,
    is_number,
    promote,
    reshape_to,
)
from d2lmini.ops.chunking import along
from d2lmini.ops.core import normalize_axes, normalize_axis, registry


def reshape(a: Any, newshape: Any, order: str = "C", out: Any = None) -> Any:
    """A copy of shape `newshape`, in which one size may be -1. ValueError if the sizes do not
    fit, or for an order other than 'C'."""
    if order != "C":
        raise ValueError(f"np.reshape: only order='C' is supported, got {order!r}")
    check_array("reshape", a)
    return fill(out, reshape_to(a, infer_size(full_shape(newshape), a.size)))


def ravel(x: Any, order: str = "C") -> Any:
    """The elements in one axis."""
    return reshape(x, (-1,) if x.size else (0,), order)


def transpose(a: Any, axes: Any = None) -> Any:
    """The axes in another order, by default reversed. ValueError unless each is named once."""
    if len(check_array("transpose", a).shape) < 2:
        return registry["_copy"](a)
    order = range(len(a.shape))[::-1] if axes is None else normalize_axes(tuple(axes), len(a.shape))
    if sorted(order) != list(range(len(a.shape))):
        raise ValueError(f"np.transpose: axes {axes} do not name each axis of {a.shape} once")
    return registry["transpose"](a, axes=_ordered(axes, a) if axes is not None else tuple(order))


def _ordered(axes: Sequence[int], a: Any) -> tuple[int, ...]:
    return tuple(normalize_axis(axis, len(a.shape)) for axis in axes)


def swapaxes(a: Any, axis1: int, axis2: int) -> Any:
    """Two axes exchanged."""
    ndim = len(check_array("swapaxes", a).shape)
    axis1, axis2 = normalize_axis(axis1, ndim), normalize_axis(axis2, ndim)
    return registry["swapaxes"](a, dim1=axis1, dim2=axis2)


def moveaxis(a: Any, source: Any, destination: Any) -> Any:
    """Axes moved to new places; the others keep their order. ValueError unless each has a place."""
    ndim = len(check_array("moveaxis", a).shape)
    sources = _ordered([source] if is_number(source) else source, a)
    places = _ordered([destination] if is_number(destination) else destination, a)
    if len(sources) != len(places) or len(set(sources)) < len(sources):
        raise ValueError(f"np.moveaxis: cannot move axes {source} to {destination}")
    order = [axis for axis in range(ndim) if axis not in sources]
    for place, axis in sorted(zip(places, sources)):
        order.insert(place, axis)
    return transpose(a, order)


def expand_dims(a: Any, axis: Any) -> Any:
    """A new axis of size 1 at `axis` (of the result), or several."""
    axes = (axis,) if is_number(axis) else tuple(axis)
    ndim = len(check_array("expand_dims", a).shape) + len(axes)
    places = {normalize_axis(int(i), ndim) for i in axes}
    sizes = iter(a.shape)
    return reshape_to(a, tuple(1 if i in places else next(sizes) for i in range(ndim)))


def squeeze(a: Any, axis: Any = None, out: Any = None) -> Any:
    """Without axes of size 1, all or those given; ValueError for an axis of another size."""
    ndim = len(check_array("squeeze", a).shape)
    wanted = range(ndim) if axis is None else normalize_axes(axis, ndim) if axis != () else ()
    if axis is not None and any(a.shape[i] != 1 for i in wanted):
        raise ValueError(f"np.squeeze: axis {axis} of {a.shape} has not size 1")
    kept = tuple(n for i, n in enumerate(a.shape) if not (i in wanted and n == 1))
    return fill(out, reshape_to(a, kept))


def broadcast_to(array: Any, shape: Any) -> Any:
    """A copy repeated to `shape`, by NumPy's rules. ValueError if the sizes do not fit."""
    shape = full_shape(shape)
    if is_number(array):
        dtype = "bool" if isinstance(array, (bool, onp.bool_)) else "float32"
        return creation.full(shape, array, dtype=dtype).as_np_ndarray()
    check_array("broadcast_to", array)
    if onp.broadcast_shapes(array.shape, shape) != shape:
        raise ValueError(f"np.broadcast_to: {array.shape} does not broadcast to {shape}")
    kept = (1,) * (len(shape) - len(array.shape)) + tuple(array.shape)
    return registry["_spread"](array, kept=kept, shape=shape)


def _arrays(name: str, arrays: Any) -> list[Any]:
    """A sequence of arrays in one dtype; ValueError for an empty one."""
    found = [check_array(name, x) for x in arrays]
    if not found:
        raise ValueError(f"np.{name}: expected at least one array")
    return promote(name, *found)


def concatenate(seq: Any, axis: int | None = 0, out: Any = None) -> Any:
    """Arrays joined along an existing axis; None joins them flat."""
    arrays = _arrays("concatenate", seq)
    if axis is None:
        arrays, axis = [ravel(x) for x in arrays], 0
    return fill(out, registry["concat"](*arrays, dim=normalize_axis(axis, len(arrays[0].shape))))


def append(arr: Any, values: Any, axis: int | None = None) -> Any:
    """`values` joined to `arr`, both flat without `axis`."""
    return concatenate([arr, values], axis)


def stack(arrays: Any, axis: int = 0, out: Any = None) -> Any:
    """Arrays joined along a new axis. ValueError if their shapes differ."""
    found = _arrays("stack", arrays)
    if len({x.shape for x in found}) > 1:
        raise ValueError(f"np.stack: all shapes must be equal, got {[x.shape for x in found]}")
    return fill(out, concatenate([expand_dims(x, axis) for x in found], axis))


def vstack(arrays: Any, out: Any = None) -> Any:
    """Rows joined: along the first axis, vectors as rows."""
    return fill(out, concatenate([_at_least(2, x) for x in arrays]))


def hstack(arrays: Any) -> Any:
    """Columns joined: along the second axis; vectors along their only one."""
    found = [_at_least(1, x) for x in arrays]
    return concatenate(found, 0 if len(found[0].shape) == 1 else 1)


def dstack(arrays: Any) -> Any:
    """Arrays joined along the third axis."""
    return concatenate([_at_least(3, x) for x in arrays], 2)


def column_stack(tup: Any) -> Any:
    """Vectors as columns, matrices as they are, joined along the second axis."""
    return concatenate([x if len(x.shape) > 1 else reshape(x, (-1, 1)) for x in tup], 1)


def split(ary: Any, indices_or_sections: Any, axis: int = 0) -> list[Any]:
    """Parts along `axis`: so many equal ones, or cut at these indices. ValueError if the axis
    cannot be cut into equal parts."""
    if is_number(indices_or_sections):
        size = ary.shape[normalize_axis(axis, len(ary.shape))]
        if size % int(indices_or_sections):
            raise ValueError("array split does not result in an equal division")
    return array_split(ary, indices_or_sections, axis)


def array_split(ary: Any, indices_or_sections: Any, axis: int = 0) -> list[Any]:
    """Like `split`; the first parts are longer where equal ones are impossible."""
    check_array("array_split", ary)
    axis = normalize_axis(axis, len(ary.shape))
    size = ary.shape[axis]
    if is_number(indices_or_sections):
        count = int(indices_or_sections)
        small, more = divmod(size, count)
        sizes = [small + 1] * more + [small] * (count - more)
        bounds = [0, *onp.cumsum(sizes).tolist()]
    else:
        cuts = [c + size if c < 0 else c for c in map(int, indices_or_sections)]
        bounds = [0, *(min(max(c, 0), size) for c in cuts), size]
    part = registry["slice_axis"]  # not indexing, which would give views along the first axis
    return [part(ary, axis=axis, begin=i, end=max(i, j)) for i, j in pairwise(bounds)]


def hsplit(ary: Any, indices_or_sections: Any) -> list[Any]:
    """`split` along the second axis; a vector's only one."""
    return split(ary, indices_or_sections, min(1, len(ary.shape) - 1))


def vsplit(ary: Any, indices_or_sections: Any) -> list[Any]:
    """`split` along the first axis."""
    return split(ary, indices_or_sections, 0)


def dsplit(ary: Any, indices_or_sections: Any) -> list[Any]:
    """`split` along the third axis."""
    return split(ary, indices_or_sections, 2)


def tile(A: Any, reps: Any) -> Any:
    """`A` repeated as a whole, so often along each axis."""
    counts = full_shape(reps)
    ndim = max(len(counts), len(check_array("tile", A).shape))
    shape = (1,) * (ndim - len(A.shape)) + tuple(A.shape)
    counts = (1,) * (ndim - len(counts)) + counts
    if not ndim:
        return registry["_copy"](A)
    if 0 in counts or 0 in shape:
        result = tuple(n * c for n, c in zip(shape, counts))
        return reshape_to(ravel(A)[:0], result)
    return registry["tile"](reshape_to(A, shape), reps=counts)


def repeat(a: Any, repeats: Any, axis: int | None = None) -> Any:
    """Each element so often in a row along `axis`, or of the flat array; `repeats` may be a list
    of one count for each."""
    check_array("repeat", a)
    if axis is None:
        a, axis = ravel(a), 0
    if not is_number(repeats):
        size = a.shape[normalize_axis(axis, len(a.shape))]
        counts = onp.broadcast_to(onp.asarray(repeats, int), (size,))
        places = onp.repeat(onp.arange(size), counts)
        return a[along(normalize_axis(axis, len(a.shape)), places)]
    return registry["repeat"](a, repeats=int(repeats), axis=axis)


def flip(m: Any, axis: Any = None, out: Any = None) -> Any:
    """Elements in reverse order along the axes, by default all."""
    ndim = len(check_array("flip", m).shape)
    axes = range(ndim) if axis is None else normalize_axes(axis, ndim)
    key = tuple(slice(None, None, -1) if i in axes else slice(None) for i in range(ndim))
    return fill(out, m[key] if ndim else registry["_copy"](m))


def flipud(m: Any) -> Any:
    """Rows in reverse order."""
    return flip(m, 0)


def fliplr(m: Any) -> Any:
    """Columns in reverse order."""
    return flip(m, 1)


def roll(a: Any, shift: Any, axis: Any = None) -> Any:
    """Elements moved on by `shift` along the axes; what leaves at the end comes back in front."""
    check_array("roll", a)
    if axis is None:
        return reshape_to(roll(ravel(a), shift, 0), tuple(a.shape))
    axes = normalize_axes(axis, len(a.shape)) if not is_number(axis) else (axis,)
    shifts = [shift] * len(axes) if is_number(shift) else list(shift)
    for by, i in zip(shifts, axes):
        i = normalize_axis(i, len(a.shape))
        by = by % a.shape[i] if a.shape[i] else 0
        parts = slice(a.shape[i] - by, None), slice(None, a.shape[i] - by)
        a = concatenate([a[along(i, part)] for part in parts], i)
    return a if axes else registry["_copy"](a)


def rot90(m: Any, k: int = 1, axes: Sequence[int] = (0, 1)) -> Any:
    """A quarter turn, k times, in the plane of two axes."""
    first, second = axes
    k %= 4
    if k == 2:
        return flip(flip(m, first), second)
    if k == 0:
        return registry["_copy"](m)
    return flip(swapaxes(m, *axes), second if k == 3 else first)


def pad(x: Any, pad_width: Any = None, mode: str = "constant", constant_values: Any = 0) -> Any:
    """Elements added before and after each axis: pad_width is a number, (before, after), or one
    pair for each axis; modes constant, maximum, minimum, edge, reflect, symmetric. ValueError
    for others."""
    check_array("pad", x)
    modes = ("constant", "maximum", "minimum", "edge", "reflect", "symmetric")
    if mode not in modes:
        raise ValueError(f"np.pad: modes are {', '.join(modes)}; got {mode!r}")
    widths = onp.broadcast_to(onp.asarray(pad_width, int), (len(x.shape), 2)).tolist()
    for axis, (before, after) in enumerate(widths):
        if mode in modes[3:]:
            places = onp.pad(onp.arange(x.shape[axis]), (before, after), mode=mode)  # type: ignore[call-overload]
            x = x[along(axis, places)]
            continue
        if mode == "constant":
            sums = registry["sum"](x, axis=(axis,), keepdims=True)  # for their shape
            line = as_type(constant(constant_values, sums), dtype_of(x))
        else:
            line = registry[mode[:3]](x, axis=(axis,), keepdims=True)
        added = [repeat(line, width, axis) if width else None for width in (before, after)]
        x = concatenate([part for part in (added[0], x, added[1]) if part is not None], axis)
    return x


def _at_least(ndim: int, x: Any) -> Any:
    """`x` itself if it has `ndim` axes."""
    if len(x.shape) >= ndim:
        return x
    return reshape(x, {0: (1,) * ndim, 1: (1, -1, 1)[:ndim]}.get(len(x.shape), (*x.shape, 1)))


def _atleast(ndim: int, arrays: Any) -> Any:
    found = [_at_least(ndim, check_array(f"atleast_{ndim}d", x)) for x in arrays]
    found = [registry["_copy"](x) if x is y else x for x, y in zip(found, arrays)]
    return found[0] if len(found) == 1 else found


def atleast_1d(*arys: Any) -> Any:
    """A copy with one axis at least."""
    return _atleast(1, arys)


def atleast_2d(*arys: Any) -> Any:
    """A copy with two axes at least: vectors become rows."""
    return _atleast(2, arys)


def atleast_3d(*arys: Any) -> Any:
    """A copy with three axes at least."""
    return _atleast(3, arys)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    function.__name__: function
    for function in (
        reshape, ravel, transpose, swapaxes, moveaxis, expand_dims, squeeze, broadcast_to,
        concatenate, append, stack, vstack, hstack, dstack, column_stack, split,
        array_split, hsplit, vsplit, dsplit, tile, repeat, flip, flipud, fliplr, roll, rot90, pad,
        atleast_1d, atleast_2d, atleast_3d,
    )
}  # fmt: skip
FUNCTIONS["row_stack"] = vstack

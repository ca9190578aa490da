"""The functions of CuPy that the library uses, made of NumPy's (views: `cupy_module`).

A name that is not here, CuPy does not have, or the library does without so far; add it then, with
CuPy's own parameters.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fakes.cupy_arrays import launch, ndarray, refuse
from fakes.cupy_ufuncs import _array, _public, cupy

# -- making arrays -------------------------------------------------------------------------------


@_public
def empty(shape, dtype=float, order="C"):
    return ndarray(shape, dtype, order=order)


def _filled(shape: Any, value: Any, dtype: Any, order: str) -> ndarray:
    new = ndarray(shape, dtype, order=order)
    new.fill(value)
    return new


@_public
def zeros(shape, dtype=float, order="C"):
    return _filled(shape, 0, dtype, order)


@_public
def ones(shape, dtype=float, order="C"):
    return _filled(shape, 1, dtype, order)


@_public
def full(shape, fill_value, dtype=None, order="C"):
    if dtype is None:
        dtype = fill_value.dtype if isinstance(fill_value, ndarray) else np.array(fill_value).dtype
    return _filled(shape, fill_value, dtype, order)


def _like(name: str) -> None:
    def like(a, dtype, order, shape, *value):
        place = _array(a, name).shape if shape is None else shape
        return getattr(cupy, name)(place, *value, dtype=a.dtype if dtype is None else dtype)

    if name == "empty":

        def function(prototype, dtype=None, order="K", subok=None, shape=None):
            return like(prototype, dtype, order, shape)

    elif name == "full":

        def function(a, fill_value, dtype=None, order="K", subok=None, shape=None):
            return like(a, dtype, order, shape, fill_value)

    else:

        def function(a, dtype=None, order="K", subok=None, shape=None):
            return like(a, dtype, order, shape)

    function.__name__ = f"{name}_like"
    _public(function)


for _name in ("empty", "zeros", "ones", "full"):
    _like(_name)


@_public
def array(obj, dtype=None, copy=True, order="K", subok=False, ndmin=0, *, blocking=False):
    if isinstance(obj, ndarray):
        new = obj.astype(obj.dtype if dtype is None else dtype, copy=bool(copy))
        return new.reshape((1,) * max(0, ndmin - obj.ndim) + obj.shape) if ndmin else new
    if isinstance(obj, (list, tuple)) and any(isinstance(x, ndarray) for x in obj):
        return cupy.stack(obj).astype(dtype or obj[0].dtype, copy=False)
    values = np.array(obj, dtype, ndmin=ndmin)  # the staging copy
    return launch("array", lambda: values)


@_public
def asarray(a, dtype=None, order=None, *, copy=None, blocking=False):
    return array(a, dtype, copy=bool(copy))


@_public
def ascontiguousarray(a, dtype=None):
    a = array(a, dtype, copy=False)
    return a if a.flags.c_contiguous else a.copy()


@_public
def asnumpy(a, stream=None, order="C", out=None, *, blocking=True):
    return a.get(stream, order, out, blocking) if isinstance(a, ndarray) else np.asarray(a)


@_public
def copyto(dst, src, casting="same_kind", where=None):
    if not isinstance(dst, ndarray):
        raise TypeError("dst must be a cupy.ndarray")
    refuse(src)
    sort = src.dtype if isinstance(src, ndarray) else src
    if not isinstance(src, (bool, int, float)) and not np.can_cast(sort, dst.dtype, casting):
        raise TypeError(f"cannot cast {sort} to {dst.dtype} in {casting} casting mode")
    if where is None:
        dst[...] = src
    else:
        mixed = lambda d, s, w: np.where(w, s, d).astype(d.dtype)  # noqa: E731
        launch("copyto", mixed, dst, src, where, out=dst)


def _maker(name: str, *parameters: Any) -> None:
    """A function that makes an array of numbers alone; CuPy computes it on the device."""

    def function(*args, **kwargs):
        for a in (*args, *kwargs.values()):
            refuse(a)
            assert not isinstance(a, ndarray), f"{name} takes numbers"
        return launch(name, lambda: getattr(np, name)(*args, **kwargs))

    function.__name__ = name
    function.__wrapped__ = getattr(np, name)
    _public(function)


for _name in ("arange", "eye", "linspace"):
    _maker(_name)

# -- functions of arrays -------------------------------------------------------------------------

# name: the parameters that follow the array, as CuPy has them
_PLAIN = {
    "sum": "axis=None, dtype=None, out=None, keepdims=False",
    "prod": "axis=None, dtype=None, out=None, keepdims=False",
    "mean": "axis=None, dtype=None, out=None, keepdims=False",
    "nansum": "axis=None, dtype=None, out=None, keepdims=False",
    "var": "axis=None, dtype=None, out=None, ddof=0, keepdims=False",
    "max": "axis=None, out=None, keepdims=False",
    "min": "axis=None, out=None, keepdims=False",
    "all": "axis=None, out=None, keepdims=False",
    "any": "axis=None, out=None, keepdims=False",
    "cumsum": "axis=None, dtype=None, out=None",
    "clip": "a_min, a_max, out=None",
    "round": "decimals=0, out=None",
    "sort": "axis=-1, kind=None",
    "argsort": "axis=-1, kind=None",
    "searchsorted": "v, side='left', sorter=None",
    "repeat": "repeats, axis=None",
    "tile": "reps",
    "roll": "shift, axis=None",
    "diag": "k=0",
    "dot": "b, out=None",
    "take_along_axis": "indices, axis",
    "allclose": "b, rtol=1e-05, atol=1e-08, equal_nan=False",
}
#: What CuPy's argument is called where NumPy's has another name or there is none.
_FIRST = {"diag": "v", "tile": "A"}


def _plain(name: str, parameters: str) -> None:
    """A function with CuPy's signature that does what NumPy's of the same name does."""
    first = _FIRST.get(name, "a")
    names = [p.split("=")[0].strip() for p in parameters.split(",")]
    options = [n for n in names if n not in ("out", "kind", "kth", "b", "v", "indices", "sorter")]
    arrays = [first] + [n for n in names if n in ("kth", "b", "v", "indices")]
    given = ", ".join(f"{n}={n}" for n in options)
    code = (
        f"def {name}({first}, {parameters}):\n"
        f"    return _run({name!r}, ({', '.join(arrays)},), dict({given}),"
        f" {'out' if 'out' in names else 'None'})\n"
    )
    space: dict[str, Any] = {"_run": _run}
    exec(code, space)
    _public(space[name])


def _run(name: str, arrays: tuple, options: dict, out: Any) -> Any:
    first = _array(arrays[0], name)
    for option, value in options.items():
        refuse(value)
        assert not isinstance(value, ndarray) or name in ("clip", "repeat"), (name, option)
    if name == "repeat" and isinstance(options["repeats"], ndarray):
        raise ValueError("cupy.ndaray is not allowed as repeats")
    if name == "clip":
        low, high = options.values()
        return launch(name, lambda a, lo, hi: np.clip(a, lo, hi), first, low, high, out=out)
    if name == "take_along_axis":
        axis = options["axis"] % first.ndim
        key = [np.arange(n).reshape((-1,) + (1,) * (first.ndim - d - 1))
               for d, n in enumerate(first.shape)]  # fmt: skip

        def pick(a, i):
            key[axis] = i % max(a.shape[axis], 1)
            return a[tuple(key)]

        return launch(name, pick, first, arrays[1])
    if name in ("argsort", "sort"):
        options["kind"] = "stable"
    if name == "diag" and first.ndim == 2:
        return first.diagonal(options["k"])
    if options.get("dtype", 0) is None and name not in ("sum", "prod", "mean"):
        del options["dtype"]
    return launch(name, getattr(np, name), *arrays, out=out, **options)


for _name, _parameters in _PLAIN.items():
    _plain(_name, _parameters)
cupy.amax, cupy.amin, cupy.around = cupy.max, cupy.min, cupy.round


def _extreme(find):
    """argmax or argmin as CuPy's: of several nan the last."""

    def position(a, axis, keepdims):
        nan = np.isnan(a) if a.dtype.kind == "f" else np.zeros(a.shape, bool)
        flipped = np.flip(nan, axis)
        last = (a.size if axis is None else a.shape[axis]) - 1
        last = last - flipped.argmax(axis, keepdims=keepdims)
        found = find(a, axis, keepdims=keepdims)
        return np.where(nan.any(axis, keepdims=keepdims), last, found).astype(np.int64)

    return position


@_public
def argmax(a, axis=None, dtype=None, out=None, keepdims=False):
    found = _extreme(np.argmax)
    return launch("argmax", found, _array(a, "argmax"), axis, keepdims, out=out)


@_public
def argmin(a, axis=None, dtype=None, out=None, keepdims=False):
    found = _extreme(np.argmin)
    return launch("argmin", found, _array(a, "argmin"), axis, keepdims, out=out)


@_public
def where(condition, x=None, y=None):
    if x is None or y is None:
        return _array(condition, "where").nonzero()
    return launch("where", np.where, _array(condition, "where"), x, y)


@_public
def take(a, indices, axis=None, out=None):
    a = _array(a, "take")
    n = a.size if axis is None else a.shape[axis]
    wrapped = lambda a, i: np.take(a, np.mod(i, max(n, 1)), axis)  # noqa: E731
    return launch("take", wrapped, a, indices, out=out)


@_public
def put_along_axis(arr, indices, values, axis):
    def put(a, i, v):
        a = a.copy()
        np.put_along_axis(a, i, v, axis)
        return a

    launch("put_along_axis", put, _array(arr, "put_along_axis"), indices, values, out=arr)


@_public
def concatenate(tup, axis=0, out=None, *, dtype=None, casting="same_kind"):
    options = {} if dtype is None else {"dtype": dtype, "casting": casting}
    parts = [_array(x, "concatenate") for x in tup]
    return launch("concatenate", np.concatenate, parts, axis, out=out, **options)


@_public
def stack(tup, axis=0, out=None, *, dtype=None, casting="same_kind"):
    options = {} if dtype is None else {"dtype": dtype, "casting": casting}
    parts = [_array(x, "stack") for x in tup]
    return launch("stack", np.stack, parts, axis, out=out, **options)

"""The array class of CuPy, made of NumPy, and as strict: what CuPy refuses is refused here.

>>> from fakes.cupy_module import cupy
>>> x = cupy.arange(6, dtype="float32").reshape(2, 3)
>>> (x + 1).sum(axis=1).get()                  # `get` waits for the device and copies
array([ 6., 15.], dtype=float32)

What it stands in for: no implicit way from or to NumPy (an operand, an index or a value to be
stored that is a NumPy array is a TypeError, `np.asarray` of an array too); reductions give arrays
of no axes, never numbers; indices beyond the end wrap around; reading a value waits for the device,
which `host_syncs` records and `no_host_sync` forbids. Fresh memory holds NaN.

Every function goes through `hook` (see the package's first page).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from fakes.indices import leading_ones_off, wrapped

# -- the hook ------------------------------------------------------------------------------------


class Pointer:
    """Memory from one byte on."""

    device = 0

    def __init__(self, raw: np.ndarray):
        self.raw = raw

    @property
    def ptr(self) -> int:
        return self.raw.ctypes.data

    def __add__(self, n: int) -> Pointer:
        return Pointer(self.raw[n:])


class Immediate:
    """Does everything at once, as if the stream were always empty."""

    def allocate(self, nbytes: int) -> Pointer:
        return Pointer(np.full(nbytes, 0xFF, np.uint8))  # as floats: NaN

    def execute(
        self, name: str, function: Callable, inputs: Sequence[Any], out: Sequence[Any] | None = None
    ) -> tuple[Any, ...]:
        results = function(*(x.raw for x in inputs))
        if out is None:
            out = tuple(ndarray(r.shape, r.dtype) for r in results)
        for place, result in zip(out, results, strict=True):
            place.raw[...] = result
        return tuple(out)

    def synchronize(self, why: str, array: Any = None) -> None:
        """There is nothing to wait for."""

    def to_host(self, array: Any, out: np.ndarray, stream: Any) -> None:
        out[...] = array.raw

    def from_host(self, array: Any, source: np.ndarray, stream: Any) -> None:
        array.raw[...] = source


hook: Any = Immediate()

#: Why the host waited for the device, each time it did.
host_syncs: list[str] = []


class _Mode(threading.local):
    waiting_forbidden = False


_mode = _Mode()


@contextmanager
def no_host_sync() -> Iterator[None]:
    """Within, what must wait for the device raises AssertionError (on this thread)."""
    before, _mode.waiting_forbidden = _mode.waiting_forbidden, True
    try:
        yield
    finally:
        _mode.waiting_forbidden = before


def synchronize(why: str, array: Any = None) -> None:
    """The host waits for the current stream, to read `array`."""
    assert not _mode.waiting_forbidden, f"{why} waits for the device"
    host_syncs.append(why)
    hook.synchronize(why, array)


# -- one function ----------------------------------------------------------------------------------


def refuse(value: Any) -> None:
    """TypeError if a NumPy array stands where CuPy wants one of its own."""
    if isinstance(value, np.ndarray):
        raise TypeError(f"Unsupported type {np.ndarray}: a NumPy array of shape {value.shape}")


def arrays_in(args: Any) -> Iterator[ndarray]:
    """The arrays among arguments, in order; lists and tuples are looked into."""
    for a in args:
        if isinstance(a, ndarray):
            yield a
        elif isinstance(a, (list, tuple)):
            yield from arrays_in(a)
        else:
            refuse(a)


_PLACE: Any = object()


def _empty_places(args: Any) -> Any:
    """Arguments with a mark in the place of each array."""
    if isinstance(args, ndarray):
        return _PLACE
    return type(args)(map(_empty_places, args)) if type(args) in (list, tuple) else args


def launch(
    name: str, function: Callable, *args: Any, out: Any = None, casting: str = "same_kind",
    **kwargs: Any,
) -> Any:  # fmt: skip
    """`function(*args, **kwargs)` on NumPy arrays in the places of ours, by way of the hook.

    `out`: an array that takes the result, by `casting`. One result is returned as it is, several as
    a tuple.
    """

    inputs = tuple(arrays_in(args))
    args = _empty_places(args)  # work that is put off keeps no array alive

    def work(*raws: np.ndarray) -> tuple[np.ndarray, ...]:
        left = iter(raws)

        def fill(a: Any) -> Any:
            if a is _PLACE:
                return next(left)
            return type(a)(map(fill, a)) if type(a) in (list, tuple) else a

        with np.errstate(all="ignore"):
            results = function(*map(fill, args), **kwargs)
        results = results if isinstance(results, tuple) else (results,)
        return tuple(np.array(r) for r in results)

    if out is None:
        results = hook.execute(name, work, inputs)
    else:
        if not isinstance(out, ndarray):
            raise TypeError(f"{name}: out must be a cupy.ndarray, got {type(out)}")
        work = _fitting(name, work, out.shape, out.dtype, casting)
        results = hook.execute(name, work, inputs, (out,))
    return results[0] if len(results) == 1 else results


def _fitting(name: str, work: Callable, shape: tuple, dtype: np.dtype, casting: Any) -> Callable:
    """`work`, whose one result is checked against the array that takes it."""

    def checked(*raws: np.ndarray) -> tuple[np.ndarray]:
        (result,) = work(*raws)
        if result.shape != shape:
            raise ValueError(f"{name}: the result has shape {result.shape}, out has {shape}")
        if not np.can_cast(result.dtype, dtype, casting):
            raise TypeError(f"{name}: cannot cast {result.dtype} to out's {dtype}")
        return (result.astype(dtype),)

    return checked


def specs_of(function: Callable, inputs: Sequence[Any]) -> list[tuple[tuple, np.dtype]]:
    """(shape, dtype) of each result of a function that `execute` was given, without its data."""
    ghosts = [np.broadcast_to(np.zeros((), x.dtype), x.shape) for x in inputs]
    return [(r.shape, r.dtype) for r in function(*ghosts)]


# -- the array -------------------------------------------------------------------------------------


class ndarray:  # its name in CuPy
    """`cupy.ndarray`. `raw`: what it holds, as NumPy sees it; only the fakes look there."""

    __slots__ = ("__weakref__", "base", "data", "raw")
    __array_priority__ = 100
    __hash__ = None  # type: ignore[assignment]

    def __init__(
        self, shape: Any, dtype: Any = float, memptr: Any = None, strides: Any = None,
        order: str = "C",
    ):  # fmt: skip
        shape = (shape,) if isinstance(shape, (int, np.integer)) else tuple(shape)
        dtype = np.dtype(dtype)
        self.data = hook.allocate(max(1, int(np.prod(shape, dtype=int)) * dtype.itemsize)) \
            if memptr is None else memptr  # fmt: skip
        self.raw = np.ndarray(shape, dtype, self.data.raw, 0, strides, order)
        self.base: Any = None

    def _view(self, raw: np.ndarray) -> ndarray:
        """Another array on the same memory."""
        new = object.__new__(ndarray)
        new.raw = raw
        offset = raw.ctypes.data - self.raw.ctypes.data if raw.size else 0
        new.data = self.data + offset if offset else self.data
        new.base = self if self.base is None else self.base
        return new

    # what it is

    shape = property(lambda self: self.raw.shape)
    dtype = property(lambda self: self.raw.dtype)
    ndim = property(lambda self: self.raw.ndim)
    size = property(lambda self: self.raw.size)
    nbytes = property(lambda self: self.raw.nbytes)
    itemsize = property(lambda self: self.raw.itemsize)
    strides = property(lambda self: self.raw.strides)
    flags = property(lambda self: self.raw.flags)
    device = property(lambda self: self.data.device)

    def __len__(self) -> int:
        return len(self.raw)

    # reading values: the host waits

    def get(
        self, stream: Any = None, order: str = "C", out: Any = None, blocking: bool = True
    ) -> np.ndarray:
        """A NumPy copy."""
        if blocking or out is None:
            assert not _mode.waiting_forbidden, "get waits for the device"
            host_syncs.append("get")
        if out is None or blocking:  # into memory that is not pinned: waits
            values = np.empty_like(self.raw, subok=False)
            hook.to_host(self, values, stream)
            if out is None:
                return values
            out[...] = values
        else:
            hook.to_host(self, out, stream)
        return out

    def item(self, *index: int) -> Any:
        synchronize("item", self)
        return self.raw.item(*index)

    def tolist(self) -> list:
        synchronize("tolist", self)
        return self.raw.tolist()

    def tobytes(self, order: str = "C") -> bytes:
        synchronize("tobytes", self)
        return self.raw.tobytes(order)

    def __bool__(self) -> bool:
        synchronize("bool()", self)
        return bool(self.raw)

    def __int__(self) -> int:
        synchronize("int()", self)
        return int(self.raw)

    def __float__(self) -> float:
        synchronize("float()", self)
        return float(self.raw)

    def __repr__(self) -> str:
        synchronize("repr()", self)
        return repr(self.raw)

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        raise TypeError(
            "Implicit conversion to a NumPy array is not allowed. "
            "Please use `.get()` to construct a NumPy array explicitly."
        )

    def set(self, arr: np.ndarray, stream: Any = None) -> None:
        """Copy a NumPy array here."""
        if not isinstance(arr, np.ndarray) or arr.dtype != self.dtype or arr.shape != self.shape:
            raise TypeError(f"set: expected a NumPy array {self.shape} of {self.dtype}")
        hook.from_host(self, arr, stream)

    # NumPy's functions on it are CuPy's

    def __array_ufunc__(self, function: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        ours = getattr(_module(), function.__name__, None)
        if method != "__call__" or ours is None or any(isinstance(x, np.ndarray) for x in inputs):
            return NotImplemented
        if "out" in kwargs:
            (kwargs["out"],) = kwargs["out"]
        return ours(*inputs, **kwargs)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        ours = getattr(_module(), function.__name__, None)
        if ours is None or not all(issubclass(t, ndarray) for t in types):
            return NotImplemented
        return ours(*args, **kwargs)

    # indexing

    def __getitem__(self, key: Any) -> ndarray:
        parts = _parts(key)
        if not _has_arrays(parts):
            return self._view(self.raw[tuple(parts) + (() if ... in parts else (...,))])
        if any(isinstance(p, ndarray) and p.dtype.kind == "b" for p in parts):
            synchronize("indexing by a mask")
        return launch("getitem", lambda a, parts: a[wrapped(a.shape, parts)], self, parts)

    def __setitem__(self, key: Any, value: Any) -> None:
        refuse(value)
        parts, dtype = _parts(key), self.dtype
        if not _has_arrays(parts):
            place = self[key]
            shape = place.shape
            launch(
                "setitem",
                lambda v: np.broadcast_to(leading_ones_off(v), shape).astype(dtype),
                value, out=place,
            )  # fmt: skip
            return

        def assign(a: np.ndarray, parts: list, v: Any) -> np.ndarray:
            a = a.copy()
            a[wrapped(a.shape, parts)] = v
            return a

        launch("setitem", assign, self, parts, value, out=self)

    def __iter__(self) -> Iterator[ndarray]:
        return (self[i] for i in range(len(self)))

    # shapes

    T = property(lambda self: self._view(self.raw.T))

    def reshape(self, *shape: Any, order: str = "C", copy: Any = None) -> ndarray:
        shape = (
            tuple(shape[0]) if len(shape) == 1 and isinstance(shape[0], (tuple, list)) else shape
        )
        raw = self.raw.reshape(shape, order=order)
        if raw.size == 0 or np.may_share_memory(raw, self.raw):
            return self._view(raw)
        return launch("reshape", lambda a: a.reshape(shape, order=order), self)

    def ravel(self, order: str = "C") -> ndarray:
        return self.reshape(-1, order=order)

    def flatten(self, order: str = "C") -> ndarray:
        return launch("flatten", lambda a: a.flatten(order), self)

    def transpose(self, *axes: Any) -> ndarray:
        return self._view(self.raw.transpose(*axes))

    def swapaxes(self, axis1: int, axis2: int) -> ndarray:
        return self._view(self.raw.swapaxes(axis1, axis2))

    def squeeze(self, axis: Any = None) -> ndarray:
        return self._view(self.raw.squeeze(axis))

    def diagonal(self, offset: int = 0, axis1: int = 0, axis2: int = 1) -> ndarray:
        raw = self.raw.diagonal(offset, axis1, axis2)
        raw.flags.writeable = True  # CuPy's view is, NumPy's is not
        return self._view(raw)

    def view(self, dtype: Any = None, type: Any = None) -> ndarray:
        return self._view(self.raw.view() if dtype is None else self.raw.view(dtype))

    # copies

    def copy(self, order: str = "C") -> ndarray:
        return launch("copy", lambda a: a.copy(), self)

    def astype(
        self, dtype: Any, order: str = "K", casting: Any = None, subok: Any = None,
        copy: bool = True,
    ) -> ndarray:  # fmt: skip
        if not copy and self.dtype == np.dtype(dtype):
            return self
        return launch("astype", lambda a: a.astype(dtype), self)

    def fill(self, value: Any) -> None:
        self[...] = value

    def sort(self, axis: int = -1, kind: Any = None) -> None:
        launch("sort", lambda a: np.sort(a, axis), self, out=self)

    def nonzero(self) -> tuple[ndarray, ...]:
        synchronize("nonzero")
        found = launch("nonzero", lambda a: np.nonzero(a), self)
        return found if isinstance(found, tuple) else (found,)

    # what the module's functions do

    def _by(name: str) -> Any:  # type: ignore[misc]
        def method(self: Any, *args: Any, **kwargs: Any) -> Any:
            return getattr(_module(), name)(self, *args, **kwargs)

        method.__name__ = name
        return method

    for _name in (
        "all any argmax argmin argsort clip cumsum dot max mean min prod repeat round searchsorted "
        "sum take var"
    ).split():
        locals()[_name] = _by(_name)

    def _operator(name: str, swapped: bool = False, placed: bool = False) -> Any:  # type: ignore[misc]
        def method(self: Any, other: Any = None) -> Any:
            function = getattr(_module(), name)
            if other is None:
                return function(self)
            refuse(other)
            if placed:
                return function(self, other, out=self)
            return function(other, self) if swapped else function(self, other)

        return method

    for _name, _symbol in {
        "add": "add", "subtract": "sub", "multiply": "mul", "true_divide": "truediv",
        "floor_divide": "floordiv", "mod": "mod", "power": "pow", "matmul": "matmul",
        "bitwise_and": "and", "bitwise_or": "or", "bitwise_xor": "xor",
        "left_shift": "lshift", "right_shift": "rshift",
    }.items():  # fmt: skip
        locals()[f"__{_symbol}__"] = _operator(_name)
        locals()[f"__r{_symbol}__"] = _operator(_name, swapped=True)
        if _name != "matmul":
            locals()[f"__i{_symbol}__"] = _operator(_name, placed=True)
    for _name, _symbol in {
        "equal": "eq", "not_equal": "ne", "less": "lt", "less_equal": "le", "greater": "gt",
        "greater_equal": "ge", "negative": "neg", "positive": "pos", "absolute": "abs",
        "invert": "invert",
    }.items():  # fmt: skip
        locals()[f"__{_symbol}__"] = _operator(_name)
    del _name, _symbol


def _module() -> Any:
    from fakes.cupy_module import cupy

    return cupy


def _parts(key: Any) -> list:
    """An index as a list; lists of numbers become arrays."""
    parts = []
    for part in key if isinstance(key, tuple) else (key,):
        refuse(part)
        if isinstance(part, list):
            part = _module().asarray(part, dtype=None if part else np.int32)
        if isinstance(part, ndarray) and part.dtype.kind not in "iub":
            raise IndexError(f"arrays used as indices must be integer or boolean, not {part.dtype}")
        parts.append(part)
    return parts


def _has_arrays(parts: list) -> bool:
    return any(isinstance(p, ndarray) for p in parts)

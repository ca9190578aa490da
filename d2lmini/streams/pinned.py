"""Pinned memory as a NumPy array that checks each access of the host.

    buffer = empty_pinned(4)
    x.get(out=buffer, blocking=False)      # returns before the copy has run
    buffer.sum()                           # OrderError: the host has not waited for the copy

Elements, slices, NumPy's functions and operators are checked. `np.asarray(buffer)` and code in C
are not: they see NaN until the copy has run.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from d2lmini.streams import machine as machines
from d2lmini.streams.host_memory import alloc_pinned_memory, bounds


def _check(array: Any, writes: bool) -> None:
    """OrderError if `array` is pinned and work on it may conflict with the host's access."""
    if not isinstance(array, PinnedArray) or not array.size:
        return
    machine = machines.current()
    region = machine.region_at(*bounds(array.view(np.ndarray)))
    if region is not None:
        machine.check_host(region, writes)


def _plain(value: Any) -> Any:
    """The value with plain NumPy arrays instead of pinned arrays."""
    if isinstance(value, PinnedArray):
        return value.view(np.ndarray)
    if isinstance(value, (list, tuple)):
        return type(value)(_plain(part) for part in value)
    return value


def _check_all(values: Any, writes: bool) -> None:
    for value in values:
        if isinstance(value, (list, tuple)):
            _check_all(value, writes)
        else:
            _check(value, writes)


def _reading(name: str) -> Callable:
    method = getattr(np.ndarray, name)

    def read(self: PinnedArray, *args: Any, **kwargs: Any) -> Any:
        _check(self, False)
        return method(self.view(np.ndarray), *args, **kwargs)

    return read


class PinnedArray(np.ndarray):
    """A NumPy array in pinned memory. Views of it check, too; results of functions are plain."""

    def __getitem__(self, key: Any) -> Any:
        part = self.view(np.ndarray)[key]
        if isinstance(part, np.ndarray) and part.base is not None:
            return part.view(PinnedArray)
        _check(self[np.index_exp[key] + (...,)] if isinstance(key, int) else self, False)
        return part

    def __setitem__(self, key: Any, value: Any) -> None:
        part = np.ndarray.__getitem__(self.view(np.ndarray), key)
        is_view = isinstance(part, np.ndarray) and part.base is not None
        _check(part.view(PinnedArray) if is_view else self, True)
        _check(value, False)
        self.view(np.ndarray)[key] = _plain(value)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:  # type: ignore[override]
        out = kwargs.get("out", ())
        _check_all(inputs, False)
        _check_all(out, True)
        if out:
            kwargs["out"] = _plain(out)
        result = getattr(ufunc, method)(*_plain(inputs), **kwargs)
        return out[0] if len(out) == 1 else result

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        _check_all(args, False)
        _check_all(kwargs.values(), False)
        if func is np.copyto:
            _check(args[0], True)
        return func(*_plain(args), **{name: _plain(value) for name, value in kwargs.items()})

    def fill(self, value: Any) -> None:
        self[...] = value


for _name in (
    "__bool__", "__float__", "__int__", "__repr__", "__str__", "all", "any", "argmax", "argmin",
    "astype", "copy", "dot", "item", "max", "mean", "min", "prod", "std", "sum", "tobytes",
    "tolist", "var",
):  # fmt: skip
    setattr(PinnedArray, _name, _reading(_name))


def empty_pinned(shape: Any, dtype: Any = float, order: Any = "C") -> np.ndarray:
    """`cupyx.empty_pinned`: an array of the host to which copies run asynchronously."""
    shape = (shape,) if isinstance(shape, int) else tuple(shape)
    nbytes = int(np.prod(shape, dtype=int)) * np.dtype(dtype).itemsize
    return PinnedArray(shape, dtype, buffer=alloc_pinned_memory(nbytes), order=order)

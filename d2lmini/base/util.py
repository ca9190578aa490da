"""The switches of MXNet's NumPy interface, and the number of GPUs, for programs that ask.

`set_np` makes Gluon's parameters, data and results `np.ndarray`s (see `d2lmini.np`), for the whole
process; the scopes `np_array` and `np_shape` change the setting in one thread. `np_shape` gives ()
and a size of 0 their NumPy meaning, where MXNet 1.x otherwise takes them for "unknown". Arrays here
always have NumPy's meaning, so that switch only stores its setting.

>>> from d2lmini.base import util
>>> with util.np_array():
...     util.is_np_array()
True
>>> util.is_np_shape(), util.is_np_array()
(False, False)
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import FunctionType
from typing import Any

from d2lmini.base.scopes import Undo, scope, swap
from d2lmini.context import gpu_memory_info, num_gpus

__all__ = ["get_gpu_count", "get_gpu_memory", "is_np_array", "is_np_shape", "np_array",
           "np_shape", "reset_np", "set_np", "set_np_shape", "use_np", "use_np_array",
           "use_np_shape"]  # fmt: skip


get_gpu_count, get_gpu_memory = num_gpus, gpu_memory_info


class _ThreadState(threading.local):
    """This thread's settings; None: those of the process."""

    array: bool | None = None
    shape: bool | None = None


_own = _ThreadState()
_process = {"array": False, "shape": False}


def is_np_array() -> bool:
    """True if Gluon makes `np.ndarray`s in this thread."""
    return _process["array"] if _own.array is None else _own.array


def is_np_shape() -> bool:
    """The setting of `np_shape` in this thread."""
    return _process["shape"] if _own.shape is None else _own.shape


def set_np_shape(active: bool) -> bool:
    """Set this thread's switch `np_shape`; returns the former setting."""
    before = is_np_shape()
    _own.shape = bool(active)
    return before


def set_np(shape: bool = True, array: bool = True) -> None:
    """Use NumPy's arrays and shapes in the whole process. ValueError for `array` without `shape`:
    such arrays need them."""
    if array and not shape:
        raise ValueError("NumPy Shape semantics is required in using NumPy array semantics.")
    _own.array = _own.shape = None
    _process.update(array=bool(array), shape=bool(shape))


def reset_np() -> None:
    """Turn off what `set_np` turned on."""
    set_np(shape=False, array=False)


@scope
def np_array(undo: Undo, active: bool = True) -> None:
    """A scope with this setting of `is_np_array`; it also decorates functions."""
    swap(undo, _own, "array", bool(active))


@scope
def np_shape(undo: Undo, active: bool = True) -> None:
    """A scope with this setting of `is_np_shape`; it also decorates functions."""
    swap(undo, _own, "shape", bool(active))


def _decorate(target: Any, wrap: Callable[[Any], Any]) -> Any:
    """`target` wrapped: a function, or each method of a class."""
    if not isinstance(target, type):
        return wrap(target)
    for name, member in list(vars(target).items()):
        if isinstance(member, FunctionType):
            setattr(target, name, wrap(member))
    return target


def use_np_shape(target: Any) -> Any:
    """A decorator: a function, or the methods of a class, run with `np_shape` on."""
    return _decorate(target, np_shape())


def use_np_array(target: Any) -> Any:
    """A decorator: a function, or the methods of a class, run with `np_array` on."""
    return _decorate(target, np_array())


def use_np(target: Any) -> Any:
    """A decorator: a function, or the methods of a class, run with both switches on."""
    return use_np_shape(use_np_array(target))

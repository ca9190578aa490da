"""The switches of MXNet's NumPy interface, and the number of GPUs, for programs that ask.

MXNet 1.x keeps two of these switches per thread. `np_array` selects a second family of arrays,
which d2lmini does not have: it is always off. `np_shape` gives () and a size of 0 their NumPy
meaning, where MXNet otherwise takes them for "unknown". Arrays here always have NumPy's meaning, so
this switch only stores its setting. (One effect is left out: under `np_shape` MXNet gives x[0, 0]
the shape (), here it is always (1,).)

>>> from d2lmini import util
>>> with util.np_shape():
...     util.is_np_shape()
True
>>> util.is_np_shape(), util.is_np_array()
(False, False)
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FunctionType
from typing import Any

from d2lmini.context import gpu_memory_info, num_gpus

__all__ = ["get_gpu_count", "get_gpu_memory", "getenv", "is_np_array", "is_np_shape", "np_shape",
           "set_np_shape", "setenv", "use_np_shape"]  # fmt: skip


def get_gpu_count() -> int:
    """The number of GPUs: `num_gpus`."""
    return num_gpus()


def get_gpu_memory(gpu_dev_id: int = 0) -> tuple[int, int]:
    """(free, total) bytes of a GPU: `context.gpu_memory_info`."""
    return gpu_memory_info(gpu_dev_id)


def getenv(name: str) -> str | None:
    """The value of an environment variable, None if it is not set."""
    return os.environ.get(name)


def setenv(name: str, value: str | None) -> None:
    """Set an environment variable of this process; None removes it."""
    if value is None:
        os.environ.pop(name, None)
    else:
        os.environ[name] = value


class _Switch(threading.local):
    on = False


_shape = _Switch()


def is_np_array() -> bool:
    """Are new arrays of the NumPy kind? Always False."""
    return False


def is_np_shape() -> bool:
    """The setting of this thread's switch."""
    return _shape.on


def set_np_shape(active: bool) -> bool:
    """Set this thread's switch; returns the former setting."""
    before, _shape.on = _shape.on, bool(active)
    return before


@contextmanager
def np_shape(active: bool = True) -> Iterator[None]:
    """A scope with this setting; it also decorates functions."""
    before = set_np_shape(active)
    try:
        yield
    finally:
        set_np_shape(before)


def use_np_shape(target: Any) -> Any:
    """A decorator: a function, or the methods of a class, run with the switch on."""
    if not isinstance(target, type):
        return np_shape()(target)
    for name, member in list(vars(target).items()):
        if isinstance(member, FunctionType):
            setattr(target, name, np_shape()(member))
    return target

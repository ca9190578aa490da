"""Where arrays live: `cpu()`, `gpu(i)` and the current context.

A `Context` names a place; it holds no memory and starts nothing, so a Context can be made for a GPU
that does not exist (old programs probe for GPUs this way; the first array there raises MXNetError).

>>> from d2lmini import cpu, gpu, current_context
>>> current_context()
cpu(0)
>>> with cpu(1):
...     current_context()
cpu(1)
>>> gpu(0) == gpu(0), gpu(0) == cpu(0)
(True, False)

After `mxnet.context`: the same names, type codes and thread-local default.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import ClassVar

from d2lmini.base import loaders
from d2lmini.base.scopes import Scope, Undo, swap

# MXNet's device type codes; array files store them.
_CODES = {"cpu": 1, "gpu": 2, "cpu_pinned": 3, "cpu_shared": 5}
_NAMES = {code: name for name, code in _CODES.items()}

#: Functions that release a device's cached memory. The storage, one floor up, adds its own.
cache_releasers: list[Callable[[Context], None]] = []


class _Current(threading.local):
    """The calling thread's default."""

    value: Context


class _ContextMeta(type):
    """Lets `Context.default_ctx` be read and set on the class, as in MXNet."""

    @property
    def default_ctx(cls) -> Context:
        return current_context()

    @default_ctx.setter
    def default_ctx(cls, ctx: Context) -> None:
        Context._default_ctx.value = ctx


class Context(Scope, metaclass=_ContextMeta):
    """A device: a kind ('cpu', 'gpu', 'cpu_pinned', 'cpu_shared') and a number from 0.

    There is one object for each device, so contexts are equal exactly if they are the same object:
    `Context('gpu', 1) is gpu(1)`, and `Context(another) is another`. `with ctx:` makes it the
    default of the calling thread. ValueError for an unknown kind.
    """

    __slots__ = ("device_id", "device_typeid", "is_cpu")

    device_id: int
    device_typeid: int
    is_cpu: bool

    devtype2str = _NAMES
    devstr2type = _CODES
    _default_ctx = _Current()
    _known: ClassVar[dict[tuple[str, int], Context]] = {}

    def __new__(cls, device_type: str | Context, device_id: int = 0) -> Context:
        if isinstance(device_type, Context):
            return device_type
        if device_type not in _CODES:
            raise ValueError(f"Context: unknown device type {device_type!r}; known: {list(_CODES)}")
        device_id = int(device_id)
        known = cls._known.get((device_type, device_id))
        if known is not None:
            return known
        context = super().__new__(cls)
        context.device_typeid = _CODES[device_type]
        context.device_id = device_id
        context.is_cpu = device_type != "gpu"
        return cls._known.setdefault((device_type, device_id), context)

    @property
    def device_type(self) -> str:
        """'cpu', 'gpu', 'cpu_pinned' or 'cpu_shared'."""
        return _NAMES[self.device_typeid]

    def __repr__(self) -> str:
        return f"{self.device_type}({self.device_id})"

    def __reduce__(self) -> tuple:
        return Context, (self.device_type, self.device_id)

    def _begin(self, undo: Undo) -> Context:
        swap(undo, Context._default_ctx, "value", self)
        return self

    def memory_info(self) -> tuple[int, int]:
        """(free, total) bytes of this device; for the CPU, of the machine."""
        return loaders["devices"]().device_of(self).memory_info()

    def empty_cache(self) -> None:
        """Give the cached memory of this device back to the system."""
        for release in cache_releasers:
            release(self)


_CPU0 = _Current.value = Context("cpu", 0)


def cpu(device_id: int = 0) -> Context:
    """The CPU. All numbers share its cores and memory; each has its own memory account."""
    return _CPU0 if device_id == 0 else Context("cpu", device_id)


def gpu(device_id: int = 0) -> Context:
    """The GPU of that number. Making the Context never fails; an array on it may."""
    return Context("gpu", device_id)


def cpu_pinned(device_id: int = 0) -> Context:
    """Page-locked host memory, from which copies to a GPU are faster; without a GPU, plain."""
    return Context("cpu_pinned", device_id)


def cpu_shared(device_id: int = 0) -> Context:
    """Host memory shared between processes (used by data loading)."""
    return Context("cpu_shared", device_id)


def num_gpus() -> int:
    """The number of GPUs: virtual ones (`virtual_gpus`), else those that CuPy finds."""
    return len(loaders["devices"]().gpus())


def gpu_memory_info(device_id: int = 0) -> tuple[int, int]:
    """(free, total) bytes of gpu(device_id); MXNetError when there is none."""
    return gpu(device_id).memory_info()


def current_context() -> Context:
    """The context of the innermost `with ctx:` of this thread; without one, cpu(0)."""
    return Context._default_ctx.value

"""Implementations of a function for devices other than the CPU, registered by add-ons.

An op's `compute` and the helpers that several ops share (`products.matmul`) are written for NumPy.
An add-on registers a better implementation for its device; this module imports no add-on:

>>> import numpy as np
>>> @with_kernels
... def double(xp, x):
...     if xp is not np:
...         return double.kernels[kind_of(xp)](xp, x)
...     return x + x
>>> @double.kernel("cuda")                              # in the add-on
... def _(xp, x):
...     return "doubled on the GPU"
>>> double(np, 2), double(None, 2)
(4, 'doubled on the GPU')

An `Op` has `kernel` and `kernels` as well. Plans and programs call `op.kernel_for` once. An op
without a kernel for a device runs `compute` with that device's `xp`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Kernel = Callable[..., Any]


class Kernels(dict[str, Kernel]):
    """Kind of device ("cuda") -> implementation, which takes the function's own arguments."""

    def register(self, kind: str) -> Callable[[Kernel], Kernel]:
        """Decorate the implementation for this kind of device; at most one is allowed."""

        def add(kernel: Kernel) -> Kernel:
            assert kind not in self, f"a second kernel for {kind}: {kernel!r}"
            self[kind] = kernel
            return kernel

        return add


def with_kernels(function: Any) -> Any:
    """Let add-ons register kernels for a helper of several ops. The helper stays a plain function,
    which looks up its kernel when `xp` is not NumPy."""
    function.kernels = Kernels()
    function.kernel = function.kernels.register
    return function


def kind_of(xp: Any) -> str:
    """The kind of device whose array module `xp` is."""
    return "cpu" if xp is np else "cuda"

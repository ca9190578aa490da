"""Implementations of a function for other devices than the CPU, registered by add-ons.

An op's `compute` and the helpers that several ops share (`products.matmul`) are written on NumPy.
An add-on that knows a better way on its device registers that way; nothing here imports the add-on:

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

An `Op` has `kernel` and `kernels` as well. Whoever makes a plan or a program asks `op.kernel_for`
once; an op without a kernel for a device computes there by `compute`, with that device's `xp`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Kernel = Callable[..., Any]


class Kernels(dict[str, Kernel]):
    """Kind of device ("cuda") -> implementation, which takes what the function itself takes."""

    def register(self, kind: str) -> Callable[[Kernel], Kernel]:
        """Decorate the implementation for this kind of device. There is at most one."""

        def add(kernel: Kernel) -> Kernel:
            assert kind not in self, f"a second kernel for {kind}: {kernel!r}"
            self[kind] = kernel
            return kernel

        return add


def with_kernels(function: Any) -> Any:
    """Let add-ons register kernels for a helper of several ops. The helper itself stays a plain
    function, and looks its kernel up where arrays are not NumPy's."""
    function.kernels = Kernels()
    function.kernel = function.kernels.register
    return function


def kind_of(xp: Any) -> str:
    """The kind of device whose arrays are this module's."""
    return "cpu" if xp is np else "cuda"

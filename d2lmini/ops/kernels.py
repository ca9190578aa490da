"""Implementations of a function for devices other than the CPU, registered by add-ons.

An op's `compute` and the helpers that several ops share (`products.matmul`) are written for NumPy.
An add-on registers a better implementation for its device; this module imports no add-on:

>>> import numpy as np
>>> @with_kernels
... def double(xp, x):
...     return x + x
>>> @double.kernel("cuda")                              # in the add-on
... def _(xp, x):
...     return "doubled on the GPU"
>>> double(np, 2), double(None, 2)
(4, 'doubled on the GPU')

An `Op` has `kernel` and `kernels` as well. Plans and programs call `op.kernel_for` once. An op
without a kernel for a device runs `compute` with that device's `xp`.

**bfloat16** is computed on float32 copies, each result rounded once. The `compute` functions do not
know the dtype (those of recurrent layers neither know float16: an op says with `compute_in_float32`
what it needs as copies). Sums and products accumulate in float32, as on hardware for bfloat16. A
compiled program rounds at the same places, so its results are the same. The dtype saves memory
here, not time: the copies cost more than the computation.

>>> from d2lmini import nd
>>> x = nd.ones(1000, dtype="bfloat16")
>>> nd.sum(x).asscalar()                     # a sum in bfloat16 itself would stop at 256
1000
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from typing import Any

import numpy as np

from d2lmini.base.dtypes import CHAR

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


def with_kernels(function: Callable[..., Any]) -> Any:
    """Let add-ons register kernels for a helper of several ops; the function is for NumPy."""
    kernels = Kernels()

    @wraps(function)
    def helper(xp: Any, *args: Any, **options: Any) -> Any:
        if xp is np:
            return function(xp, *args, **options)
        return kernels[kind_of(xp)](xp, *args, **options)

    helper.kernel = kernels.register  # type: ignore[attr-defined]
    return helper


def kind_of(xp: Any) -> str:
    """The kind of device whose array module `xp` is."""
    return "cpu" if xp is np else "cuda"


# -- bfloat16 --------------------------------------------------------------------------------------


def has_bfloat16(specs: Iterable[Any]) -> bool:
    """True if one of the specs is of bfloat16."""
    return any([spec.dtype.char == CHAR for spec in specs])


def kernel_for(op: Any, kind: str, inputs: Iterable[Any], outputs: Sequence[Any]) -> Any:
    """The implementation of `op` for a kind of device and arrays of these specs. The formula of a
    composed op converts by itself."""
    kernel = op.kernel_for(kind)
    if op.formula is not None and kind not in op.kernels:
        return kernel
    return in_float32(kernel, op, outputs) if needs_copies(op, [*inputs, *outputs]) else kernel


def needs_copies(op: Any, specs: Iterable[Any]) -> bool:
    """True if `op` computes with arrays of these specs on float32 copies."""
    chars = op.compute_in_float32
    return any([spec.dtype.char in chars for spec in specs])


def widened(op: Any, dtype: np.dtype) -> np.dtype:
    """The dtype in which `op` gets an array of `dtype`."""
    return np.dtype(np.float32) if dtype.char in op.compute_in_float32 else dtype


def in_float32(kernel: Callable[..., Any], op: Any, specs: Sequence[Any]) -> Callable[..., Any]:
    """The kernel of `op` on float32 copies of bfloat16 arrays, those that it changes included;
    results are rounded to the dtypes of `specs`."""

    def widen(x: Any) -> Any:
        return x if x is None else x.astype(widened(op, x.dtype), copy=False)

    def run_wide(xp: Any, *arrays: Any, out: Any = None, **attrs: Any) -> Any:
        wide = [widen(x) for x in arrays]
        own = {k: widened(op, v) if isinstance(v, np.dtype) else v for k, v in attrs.items()}
        results = kernel(xp, *wide, **own)
        for i in op.mutated(len(arrays), {**op.defaults, **attrs}):
            if wide[i] is not arrays[i]:
                arrays[i][...] = wide[i]
        results = results if isinstance(results, (tuple, list)) else [results]
        if out is None:
            results = [y.astype(spec.dtype, copy=False) for y, spec in zip(results, specs)]
        return as_results(xp, results, out)

    return run_wide


def as_results(xp: Any, results: Sequence[Any], out: Any) -> Any:
    """The results of a kernel as a call returns them: one array or a tuple, in `out` if given."""
    if out is None:
        return results[0] if len(results) == 1 else tuple(results)
    for place, result in zip(out if isinstance(out, (tuple, list)) else (out,), results):
        if place is not result:
            xp.copyto(place, result, casting="same_kind")
    return out

"""How ops compute with bfloat16: on float32 copies, each result rounded once.

The `compute` functions do not know the dtype (those of recurrent layers neither know float16: an op
says with `compute_in_float32` what it needs as copies). Sums and products accumulate in float32, as
on hardware for bfloat16. A compiled program rounds at the same places, so its results are the same.
The dtype saves memory here, not time: the copies cost more than the computation.

>>> import numpy as np
>>> from d2lmini import nd
>>> x = nd.ones(1000, dtype="bfloat16")
>>> nd.sum(x).asscalar()                     # a sum in bfloat16 itself would stop at 256
1000
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from d2lmini.base.dtypes import CHAR


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
        own = {key: np.dtype(np.float32) if _is_bfloat16(v) else v for key, v in attrs.items()}
        if out is None:
            results = kernel(xp, *wide, **own)
            places: Any = None
        else:
            results = places = _each(widen, out)
            kernel(xp, *wide, out=places, **own)
        for i in op.mutated(len(arrays), {**op.defaults, **attrs}):
            if wide[i] is not arrays[i]:
                arrays[i][...] = wide[i]
        if out is None:
            dtypes = iter([spec.dtype for spec in specs])
            return _each(lambda y: y.astype(next(dtypes), copy=False), results)
        for place, result in zip(*[x if isinstance(x, tuple) else (x,) for x in (out, results)]):
            if place is not result:
                xp.copyto(place, result, casting="same_kind")
        return out

    return run_wide


def _each(function: Callable[[Any], Any], arrays: Any) -> Any:
    """The function of an array, or of each of several."""
    if isinstance(arrays, (tuple, list)):
        return tuple([function(x) for x in arrays])
    return function(arrays)


def _is_bfloat16(value: Any) -> bool:
    return isinstance(value, np.dtype) and value.char == CHAR

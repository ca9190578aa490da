"""A formula on arrays in one pass, where separate ops would make several.

    def squared_distance(xp, x, mean):
        d = x - mean
        return d * d

    y = apply_fused(cupy, squared_distance, [x, mean])

The result is that of NumPy, with broadcasting, but no intermediate result goes to memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from d2lmini.cuda.kernels.elementwise import Operand, elementwise
from d2lmini.cuda.kernels.launch import Kernel
from d2lmini.cuda.kernels.symbols import Body, names
from d2lmini.ops.symbolic import Proxy

Shape = tuple[int, ...]


def apply_fused(
    xp: Any, formula: Callable[..., Any], arrays: Sequence[Any], out: Any = None, **numbers: Any
) -> Any:
    """Compute `formula(xp, *arrays, **numbers)`, a function of one element of each array, into
    `out` or else a new array of the shape that the arrays broadcast to."""
    shape = np.broadcast_shapes(*(a.shape for a in arrays))
    operands = tuple(
        Operand(a.dtype, a.shape, tuple(s // a.dtype.itemsize for s in a.strides)) for a in arrays
    )
    given = tuple(numbers.items())
    dtype = _dtype(formula, tuple(a.dtype for a in arrays), given) if out is None else out.dtype
    place = out
    if place is None or not place.flags.c_contiguous:
        place = xp.empty(shape, dtype)
    kernel = _kernel(formula, operands, shape, dtype, given)
    size = place.size
    kernel(xp, -(-size // 4) if "Four<" in kernel.source else size, *arrays, place, size)
    if out is not None and out is not place:
        out[...] = place
    return place if out is None else out


@lru_cache(maxsize=1024)
def _kernel(
    formula: Callable[..., Any], operands: tuple[Operand, ...], shape: Shape, dtype: Any,
    numbers: tuple[tuple[str, Any], ...],
) -> Kernel:  # fmt: skip
    def body(*given: Proxy) -> list[Proxy]:
        return [formula(names, *given, **dict(numbers)).astype(dtype)]

    return elementwise(formula.__name__.strip("_"), operands, shape, body)


@lru_cache(maxsize=256)
def _dtype(
    formula: Callable[..., Any], dtypes: tuple[Any, ...], numbers: tuple[tuple[str, Any], ...]
) -> np.dtype:
    """The dtype of the result."""
    body = Body()
    return formula(names, *(body.add_input("x", d) for d in dtypes), **dict(numbers)).dtype

"""What CuPy's reductions do with a given `out=`, by the way that CuPy chooses for them.

CuPy 14.2 gives a reduction to CUB's compiled kernels where input and sum have one dtype that CUB
knows, else to kernels of its own that are made with CUB, both only for an input whose reduced axes
lie together in memory; else to a plain kernel. Two of these ways are wrong where `out=` is given:

- `min` hands (axis, out, dtype) to a function that takes (axis, dtype, out): `check` (issue 9032);
- kernels made with CUB, for an input in Fortran's order, rewrite the strides of `out`: `relaid`
  (issue 10300).
"""

from __future__ import annotations

from typing import Any

import numpy as np

REDUCTIONS = ("max", "mean", "min", "prod", "sum")
#: The dtypes of CUB's compiled kernels; sums and products of small integers are made wider first.
_COMPILED = "bhilqBHILQefd"
_SUMMED = "lqLQefd"
#: Of fewer numbers for each result CuPy's plain kernel takes the sum.
_FEWEST = 128


def check(name: str, x: Any, options: dict[str, Any], out: Any) -> None:
    """TypeError for `min` of an array that CUB could take."""
    if name == "min" and (x.flags.c_contiguous or x.flags.f_contiguous):
        raise TypeError(
            "operand type(s) all returned NotImplemented from __array_ufunc__(<ufunc 'equal'>, "
            f"'__call__', ..., {x.dtype!r}): 'ndarray', 'dtype'"
        )


def relaid(name: str, x: Any, options: dict[str, Any], out: Any) -> Any:
    """`out` as CuPy fills it: its memory in Fortran's order where its own kernels made with CUB
    compute an input in that order. The caller's array keeps the wrong strides, too."""
    axes = _axes(options.get("axis"), x.ndim)
    if not x.flags.f_contiguous or axes != tuple(range(len(axes))) or x.size == 0:
        return out
    kept_last = x.flags.c_contiguous and axes == tuple(range(x.ndim))
    each = np.prod([x.shape[a] for a in axes], dtype=int)
    if not axes or kept_last or each < _FEWEST or _is_compiled(name, x.dtype, options.get("dtype")):
        return out
    out.raw = np.ndarray(out.shape, out.dtype, out.data.raw, order="F")
    return out


def _is_compiled(name: str, dtype: np.dtype, asked: Any) -> bool:
    if asked is None:
        return dtype.char in (_SUMMED if name in ("prod", "sum") else _COMPILED)
    return np.dtype(asked) == dtype and dtype.char in _COMPILED


def _axes(axis: Any, ndim: int) -> tuple[int, ...]:
    if axis is None:
        return tuple(range(ndim))
    return tuple(sorted(a % ndim for a in (axis if isinstance(axis, tuple) else (axis,))))

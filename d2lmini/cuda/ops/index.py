"""The gradient of selecting rows on a GPU, added up in a fixed order, so that bits do not vary."""

from __future__ import annotations

from math import prod
from typing import Any

from d2lmini.cuda.kernels.rows import add_rows
from d2lmini.ops.core import registry
from d2lmini.ops.places import positions, scatter_add

_take_grad = registry["_take_grad"]


@scatter_add.kernel("cuda")
def _(xp: Any, places: Any, values: Any, shape: Any, out: Any) -> Any:
    add_rows(xp, places.ravel(), values.reshape(-1, 1), out.reshape(-1, 1))
    return out


@_take_grad.kernel("cuda")
def _(xp, g, indices, *, shape, axis, mode, out=None):
    if axis % len(shape):
        return _take_grad.compute(xp, g, indices, shape=shape, axis=axis, mode=mode, out=out)
    n, after = shape[0], prod(shape[1:])
    out = xp.empty(shape, g.dtype) if out is None else out
    rows = positions(xp, indices, n, mode).ravel()
    add_rows(xp, rows, g.reshape(rows.size, after), out.reshape(n, after))
    return out

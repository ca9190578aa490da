"""The gradient of selecting rows: if a row was selected several times, its gradients are added up.

Atomic adds would add in another order each time. So the positions are sorted by their row index
(the sort is stable), and one thread per column of each run of equal indices adds up the run from
begin to end: always the same sum, that of a loop over the positions.
"""

from __future__ import annotations

from math import prod
from typing import Any

from d2lmini.cuda.kernels.launch import TypedKernel
from d2lmini.ops.core import registry
from d2lmini.ops.index import positions, scatter_add

_ADD_RUNS = TypedKernel(
    "add_runs",
    """
// Position order[p] was sorted to p and belongs to row row_of[p]; the first of a run adds it up.
extern "C" __global__ void add_runs(
    const T* g, const long long* order, const long long* row_of, T* out,
    const Index places, const Index width
) {
    const Index threads = gridDim.x * blockDim.x;
    for (Index i = blockIdx.x * blockDim.x + threadIdx.x; i < places * width; i += threads) {
        const Index first = i / width, column = i % width;
        const long long row = row_of[first];
        if (first > 0 && row_of[first - 1] == row) continue;
        A sum = 0;
        for (Index p = first; p < places && row_of[p] == row; ++p)
            sum += loaded(g[order[p] * width + column]);
        out[row * width + column] = stored(sum);
    }
}
""",
)


def add_rows(xp: Any, rows: Any, g: Any, out: Any) -> None:
    """Fill out (R, width): row r is the sum of all g[i] with rows[i] == r, 0 if there is none.

    rows (n,) integers from 0 to R - 1, g (n, width) in order; g and out of one dtype, float16 added
    up in float32. Allocates two arrays of n integers."""
    out.fill(0)
    order = xp.argsort(rows).astype(xp.int64, copy=False)
    row_of = rows[order].astype(xp.int64, copy=False)
    kernel = _ADD_RUNS(g.dtype, g.size, out.size)
    kernel(xp, g.size, g, order, row_of, out, g.shape[0], g.size // max(g.shape[0], 1))


_take_grad = registry["_take_grad"]


@scatter_add.kernel("cuda")
def _(xp: Any, places: Any, values: Any, shape: Any, out: Any) -> Any:
    out = xp.empty(shape, values.dtype) if out is None else out
    add_rows(xp, places.ravel(), values.reshape(-1, 1), out.reshape(-1, 1))
    return out


@_take_grad.kernel("cuda")
def _(xp: Any, g: Any, indices: Any, *, shape: Any, axis: Any, mode: Any, out: Any = None) -> Any:
    if axis % len(shape):
        return _take_grad.compute(xp, g, indices, shape=shape, axis=axis, mode=mode, out=out)
    n, after = shape[0], prod(shape[1:])
    out = xp.empty(shape, g.dtype) if out is None else out
    rows = positions(xp, indices, n, mode).ravel()
    add_rows(xp, rows, g.reshape(rows.size, after), out.reshape(n, after))
    return out

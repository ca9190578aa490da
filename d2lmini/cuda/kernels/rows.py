"""The gradient of selecting rows: if a row was selected several times, its gradients are added up.

Atomic adds would add in another order each time. So the positions are sorted by their row index
(the sort is stable), and one thread per column of each run of equal indices adds up the run from
begin to end: always the same sum, that of a loop over the positions.
"""

from __future__ import annotations

from typing import Any

from d2lmini.cuda.kernels.launch import TypedKernel
from d2lmini.ops.index import scatter_add

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


@scatter_add.kernel("cuda")
def _(xp: Any, places: Any, values: Any, shape: Any, out: Any) -> Any:
    """Allocates two arrays of as many integers as there are places."""
    rows, out = places.ravel(), xp.empty(shape, values.dtype) if out is None else out
    out.fill(0)
    order = xp.argsort(rows).astype(xp.int64, copy=False)
    row_of = rows[order].astype(xp.int64, copy=False)
    kernel = _ADD_RUNS(values.dtype, values.size, out.size)
    width = values.size // max(rows.size, 1)
    g = xp.ascontiguousarray(values)
    kernel(xp, values.size, g, order, row_of, out, rows.size, width)
    return out

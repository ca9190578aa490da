"""Chunking: large copies and reductions in chunks whose boundaries depend on shapes alone.

Any idle core may take a chunk (`parallel_for`), so the number of workers affects the speed, never
the bits of the result: the chunks are the same with one worker and with eight, and partial results
are combined in the order of the chunks.

>>> from d2lmini.ops.chunking import split_evenly
>>> split_evenly(10, 3)
[slice(0, 3, None), slice(3, 6, None), slice(6, 10, None)]

Only NumPy arrays are chunked; a GPU parallelizes its own work.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from d2lmini.device.parallel import parallel_for
from d2lmini.ops.core import Shape

#: A chunk of a copy has at least this many elements, a chunk of a reduction (which only reads) four
#: times as many: both take about a quarter of a millisecond.
GRAIN = 1 << 18
MOST_PIECES = 16
#: From so many elements on, compiled programs compute in blocks (`graph/fusion.py`).
BLOCKED = 1 << 16
#: Arrays of so many elements are one block.
ONE_BLOCK = 1 << 17
#: Ops that read a reduction of rows are computed in its blocks if a row has no more bytes than
#: this: the memory for intermediate results that a thread keeps.
ROW_BYTES = 1 << 21
#: A reduction of fewer elements is not chunked.
LARGE = 8 * GRAIN
#: A transposing copy goes by square tiles, so that it uses every cache line completely.
TILE = 256
#: Chunks of a reduction lie in memory in contiguous runs of at least this many elements.
RUN = 1024


#: How a reduction is split: (axis, number of chunks, is that axis reduced).
Chunks = tuple[int, int, bool]


def split_evenly(length: int, n: int) -> list[slice]:
    """Split `length` into `n` slices of nearly equal size."""
    return [slice(length * i // n, length * (i + 1) // n) for i in range(n)]


def cut(length: int, step: int) -> list[slice]:
    """`length` in slices of `step`; the last may be shorter."""
    return [slice(i, min(i + step, length)) for i in range(0, length, step)]


def along(axis: int, *parts: Any) -> tuple[Any, ...]:
    """The index of `parts` along the axes from `axis` on, and of everything along those before."""
    return (slice(None),) * axis + parts


def share(xp: Any, length: int, n: int, body: Callable[[slice], None]) -> None:
    """Call body(part) for `n` slices of `length` of nearly equal size; on a GPU once for all."""
    if xp is not np or n < 2:
        body(slice(0, length))
        return
    parts = split_evenly(length, n)
    parallel_for(n, lambda i: body(parts[i]))


def copy(xp: Any, source: Any, out: Any) -> Any:
    """Write `source`, which may be a transposed or broadcast view, into `out`; returns `out`."""
    n = min(MOST_PIECES, out.size // GRAIN)
    axis = next((a for a, size in enumerate(out.shape) if size >= n), None)
    if xp is not np or n < 2 or axis is None:
        xp.copyto(out, source)
        return out
    source = np.broadcast_to(source, out.shape)
    transposes = out.ndim > 1 and abs(source.strides[-1]) > source.itemsize
    write = _copy_tiles if transposes else np.copyto
    share(xp, out.shape[axis], n, lambda p: write(out[along(axis, p)], source[along(axis, p)]))
    return out


def _copy_tiles(out: np.ndarray, source: np.ndarray) -> None:
    rows, columns = out.shape[-2:]
    for r in range(0, rows, TILE):
        for c in range(0, columns, TILE):
            tile = (..., slice(r, r + TILE), slice(c, c + TILE))
            out[tile] = source[tile]


def place_view(xp: Any, view: Any, out: Any) -> Any:
    """An op's result that is a view of its input: the view, or a copy in `out` if given."""
    return view if out is None else copy(xp, view, out)


def place(xp: Any, y: Any, dtype: Any, out: Any, copy: bool = False) -> Any:
    """An op's result y in the op's dtype: converted (`copy`: never y itself), or written to `out`
    if given."""
    if out is None:
        return y.astype(dtype, copy=copy)
    xp.copyto(out, y, casting="unsafe")
    return out


def plan(shape: Shape, axes: tuple[int, ...]) -> Chunks | None:
    """Where to split a reduction over `axes` of `LARGE` elements or more; None: nowhere.

    The result is the first axis that is long enough and whose chunks have contiguous runs of RUN
    elements or more. Chunks of a kept axis are independent; for a reduced axis the partial results
    must be small.
    """
    size = prod(shape)
    n = min(MOST_PIECES, size // (4 * GRAIN))
    kept = prod(s for a, s in enumerate(shape) if a not in axes)
    for axis, length in enumerate(shape):
        run = length // n * prod(shape[axis + 1 :])
        if length >= n and run >= RUN and (axis not in axes or n * kept <= size // 4):
            return axis, n, axis in axes
    return None


def reduce(
    data: np.ndarray, axes: tuple[int, ...], out: np.ndarray, chunks: Chunks,
    body: Callable[[Any, tuple[int, ...], Any], Any],
    combine: Callable[[Any, tuple[int, ...], Any], Any],
) -> None:  # fmt: skip
    """Reduce `data` over `axes`, in `chunks`, into `out`, whose shape has 1 for every such axis.

    `body(block, axes, out)` reduces a block of the data; `combine` reduces the partial results of
    the blocks, stacked on a new first axis.
    """
    axis, n, reduced = chunks
    places = [along(axis, part) for part in split_evenly(data.shape[axis], n)]
    if not reduced:
        parallel_for(n, lambda i: body(data[places[i]], axes, out[places[i]]))
        return
    partial = np.empty((n, *out.shape), out.dtype)
    parallel_for(n, lambda i: body(data[places[i]], axes, partial[i]))
    combine(partial, (0,), out[None])

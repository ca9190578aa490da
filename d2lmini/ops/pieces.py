"""Large copies and reductions in pieces, cut at places that depend on shapes alone.

A piece is handed to whichever core is idle (`parallel_for`), so the number of workers decides how
fast a result comes, never what its bits are: the cut is the same with one worker and with eight,
and partial results are put together in the order of the pieces.

>>> from d2lmini.ops.pieces import cut
>>> cut(10, 3)
[slice(0, 3, None), slice(3, 6, None), slice(6, 10, None)]

Only NumPy arrays are cut; a GPU shares out its own work, and pieces of it must not run elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from d2lmini.device.parallel import parallel_for
from d2lmini.ops.core import Shape

#: A piece of a copy has at least this many elements, a piece of a reduction (which reads only) four
#: times as many: both take about a quarter of a millisecond.
GRAIN = 1 << 18
MOST_PIECES = 16
#: A transposing copy goes by square tiles, so that every cache line it touches is used up.
TILE = 256
#: Pieces of a reduction lie in memory in runs of at least this many elements.
RUN = 1024


def cut(length: int, n: int) -> list[slice]:
    """`length` places as `n` slices of nearly the same size."""
    return [slice(length * i // n, length * (i + 1) // n) for i in range(n)]


def along(axis: int, part: slice) -> tuple[slice, ...]:
    """The index that takes `part` of one axis and all of the axes before it."""
    return (slice(None),) * axis + (part,)


def share(xp: Any, length: int, n: int, body: Callable[[slice], None]) -> None:
    """Call body(part) for `length` places in n slices of nearly the same size; on a GPU for all of
    them at once."""
    if xp is not np or n < 2:
        body(slice(0, length))
        return
    parts = cut(length, n)
    parallel_for(n, lambda i: body(parts[i]))


def copy(xp: Any, source: Any, out: Any) -> Any:
    """Write `source`, which may be a view in any order or broadcast, into `out`; returns `out`."""
    n = min(MOST_PIECES, out.size // GRAIN)
    axis = next((a for a, size in enumerate(out.shape) if size >= n), None)
    if xp is not np or n < 2 or axis is None:
        xp.copyto(out, source)
        return out
    source = np.broadcast_to(source, out.shape)
    parts = cut(out.shape[axis], n)
    transposes = out.ndim > 1 and abs(source.strides[-1]) > source.itemsize

    def piece(i: int) -> None:
        part = along(axis, parts[i])
        (_copy_tiles if transposes else np.copyto)(out[part], source[part])

    parallel_for(n, piece)
    return out


def _copy_tiles(out: np.ndarray, source: np.ndarray) -> None:
    rows, columns = out.shape[-2:]
    for r in range(0, rows, TILE):
        for c in range(0, columns, TILE):
            tile = (..., slice(r, r + TILE), slice(c, c + TILE))
            out[tile] = source[tile]


def placed(xp: Any, view: Any, out: Any) -> Any:
    """An op's result that is a view of its input: as it is, or copied to `out` if given."""
    return view if out is None else copy(xp, view, out)


def over_lines(
    xp: Any, shape: Shape, axis: int, body: Callable[[Any], Any], grain: int = GRAIN
) -> None:
    """Call `body(index)` for pieces of an array of `shape`; each holds whole lines along `axis`.

    One piece (index `...`) where there are less than two grains or no other axis to cut.
    """
    n = min(MOST_PIECES, prod(shape) // grain)
    other = None
    if xp is np and n > 1:
        other = next((a for a, length in enumerate(shape) if a != axis and length >= n), None)
    if other is None:
        body(...)
        return
    parts = cut(shape[other], n)
    parallel_for(n, lambda i: body(along(other, parts[i])))


def lines(xp: Any, block: Any, axis: int) -> Any:
    """`block` with `axis` last and every line in one run of memory: if need be copied, by tiles."""
    view = block if axis == block.ndim - 1 else xp.moveaxis(block, axis, -1)
    if xp is not np or view.strides[-1] == view.itemsize or view.ndim < 2:
        return view
    straight = np.empty(view.shape, view.dtype)
    _copy_tiles(straight, view)
    return straight


def plan(shape: Shape, axes: tuple[int, ...]) -> tuple[int, int, bool] | None:
    """Where to cut a reduction over `axes`: (axis, number of pieces, is that axis reduced).

    None: not worth cutting. The first axis is taken that is long enough and leaves pieces that lie
    in memory in runs of RUN elements or more. If it is a kept axis, the pieces are independent;
    if it is a reduced one, their partial results must be small.
    """
    size = prod(shape)
    n = min(MOST_PIECES, size // (4 * GRAIN))
    if n < 2:
        return None
    kept = prod(s for a, s in enumerate(shape) if a not in axes)
    for axis, length in enumerate(shape):
        run = length // n * prod(shape[axis + 1 :])
        if length >= n and run >= RUN and (axis not in axes or n * kept <= size // 4):
            return axis, n, axis in axes
    return None


def reduce(
    xp: Any,
    data: Any,
    axes: tuple[int, ...],
    out: Any,
    body: Callable[[Any, tuple[int, ...], Any], Any],
    combine: Callable[[Any, tuple[int, ...], Any], Any] | None = None,
) -> None:
    """Reduce `data` over `axes` into `out`, whose shape has 1 in the place of every such axis.

    `body(block, axes, out)` reduces a block of the data, `combine` (the same if not given) the
    partial results of blocks, stacked on a new first axis.
    """
    where = plan(data.shape, axes) if xp is np and data.size >= 8 * GRAIN else None
    if where is None:
        body(data, axes, out)
        return
    axis, n, reduced = where
    parts = cut(data.shape[axis], n)
    if not reduced:
        parallel_for(
            n, lambda i: body(data[along(axis, parts[i])], axes, out[along(axis, parts[i])])
        )
        return
    partial = np.empty((n, *out.shape), out.dtype)
    parallel_for(n, lambda i: body(data[along(axis, parts[i])], axes, partial[i]))
    (combine or body)(partial, (0,), out[None])

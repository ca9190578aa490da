"""What generated programs call: groups run piece by piece over the cores, block by block in each,
and long operations that do not need each other run side by side.

>>> import numpy as np
>>> def square_plus_x(x, y, t):
...     np.multiply(x, x, out=t)
...     np.add(t, x, out=y)
>>> x, y = np.arange(5.0), np.empty(5)
>>> in_blocks(np, square_plus_x, 5, 2, cut=[x, y], scratch=[((), "float64")])
>>> y
array([ 0.,  2.,  6., 12., 20.])

Blocks are for the cache, and long enough for several threads to gain; pieces, of one block or more,
are for the workers of the engine. Both cuts depend on sizes only: results are the same with any
number of workers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from d2lmini.device.parallel import parallel_for
from d2lmini.device.scratch import scratch as memory
from d2lmini.ops.chunking import along
from d2lmini.ops.chunking import split_evenly as cut_evenly
from d2lmini.ops.core import Shape

#: There are so many pieces at most, each of as many blocks as any other, or one less.
PIECES = 16

#: Where blocks are of more rows, they begin at a multiple of so many: of a line of the cache.
ALIGNED = 64

#: A block-sized array for intermediate results: shape of a row, dtype.
Room = tuple[Shape, Any]


def in_blocks(
    xp: Any,
    body: Callable[..., Any],
    rows: int,
    rows_in_block: int,
    cut: Sequence[Any],
    totals: Sequence[tuple[Any, Any]] = (),
    whole: Sequence[Any] = (),
    scratch: Sequence[Room] = (),
    axis: int = 0,
) -> None:
    """Call `body(*arrays)` for every block of rows of the arrays in `cut`: of `rows_in_block` at
    most, and all of about as many. Rows are the places along `axis`.

    Its arguments: the blocks of `cut`, places for its part of each total, the arrays that are
    `whole` in every block, scratch memory. A total (ufunc, out) is put together at the end.
    """
    if xp is not np:
        rows_in_block = rows  # a GPU shares out its own work
    rows_in_block = _even(rows, rows_in_block)
    blocks = -(-rows // rows_in_block)
    n = max(min(PIECES, blocks), 1)
    pieces = cut_evenly(blocks, n)
    parts = [xp.empty((blocks, *out.shape), out.dtype) for _, out in totals]

    def piece(i: int) -> None:
        for block in range(pieces[i].start, pieces[i].stop):
            begin = block * rows_in_block
            end = min(begin + rows_in_block, rows)
            here = along(axis, slice(begin, end))
            arrays = [x[here] for x in cut]
            arrays += [part[block, ...] for part in parts]
            rooms = [_room(xp, k, axis, end - begin, *room) for k, room in enumerate(scratch)]
            body(*arrays, *whole, *rooms)
            del rooms  # a thread lends its memory for the next block when no array uses it

    if n == 1:
        piece(0)
    else:
        parallel_for(n, piece)
    for (ufunc, out), part in zip(totals, parts):
        ufunc.reduce(part, axis=0, out=out)


def _even(rows: int, most: int) -> int:
    """How many rows to take at a time, so that the last block is no rest of a few.

    >>> _even(256, 202), _even(1000, 1000), _even(1_000_000, 131_072)
    (128, 1000, 125056)
    """
    if rows <= most:
        return max(rows, 1)
    even = -(-rows // -(-rows // most))
    return min(even + -even % ALIGNED, most) if even > ALIGNED else even


def side_by_side(*operations: Callable[[], Any]) -> None:
    """Run all of them, in any order, perhaps at once; whoever is done first helps the others."""
    parallel_for(len(operations), lambda i: operations[i]())


def _room(xp: Any, number: int, axis: int, rows: int, shape: Shape, dtype: Any) -> Any:
    """Scratch memory for one block, a thread's own."""
    shape = (*shape[:axis], rows, *shape[axis:])
    return memory.array(f"block{number}", shape, dtype) if xp is np else xp.empty(shape, dtype)


def place_or_new(xp: Any, place: Any, shape: Shape, dtype: Any) -> Any:
    """Where an output goes: the place that was given for it, else new memory."""
    return xp.empty(shape, dtype) if place is None else place

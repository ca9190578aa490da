"""Products with few rows, cut into blocks that BLAS computes on the thread that asks.

A recurrent step multiplies a batch of 32 rows with a weight of 256 x 768. BLAS shares such a
product among its threads, and then they wait for each other longer than they compute, much longer
when other programs want the cores as well. A product of at most `SERIAL` multiplications it
computes alone. As blocks of that size (32 rows, 256 inner, 32 columns; one call of `matmul` on
views does all of them) the whole took one thread less time than it had taken two: for so small
matrices OpenBLAS has kernels that need no copies. And the result never depends on threads.

>>> import numpy as np
>>> cuts(32, 256, 768), cuts(32, 768, 256)          # (parts of the inner size, columns of a block)
((1, 32), (3, 32))
>>> a, b, y = np.ones((32, 256)), np.ones((256, 768)), np.empty((32, 768))
>>> product(np, a, b, y)[0, 0]
np.float64(256.0)

Larger products are cut into pieces for the engine's workers, each of which BLAS computes serially
too.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from d2lmini.device import blas
from d2lmini.device.blas import SERIAL_PRODUCT
from d2lmini.device.parallel import parallel_for
from d2lmini.ops import pieces
from d2lmini.ops.linalg import matmul

#: From so many multiplications on the threads of BLAS pay.
LARGE = 1 << 24

#: Pieces that a large product is cut into, by rows of the result.
MOST_PIECES = 4

#: Columns of a block that are tried, the best ones first.
WIDTHS = (32, 48, 64, 40, 24, 56, 16, 36, 30, 28, 27, 26, 25, 22, 21, 20, 18, 15, 14, 13, 12)


@lru_cache(maxsize=1024)
def cuts(rows: int, inner: int, columns: int) -> tuple[int, int] | None:
    """Into how many parts to cut the inner size, and into blocks of how many columns; None if the
    product is too small or too large for that, or its sizes have no divisors that fit."""
    if not SERIAL_PRODUCT < rows * inner * columns <= LARGE or rows < 2:
        return None
    for width in WIDTHS:
        if columns % width == 0:
            for parts in range(1, 9):
                if inner % parts == 0 and rows * (inner // parts) * width <= SERIAL_PRODUCT:
                    return (parts, width) if inner // parts >= 16 else None
    return None


class Blocks:
    """A matrix b (inner, columns) made ready for products with many a of so many rows.

    copy: bring the blocks into an order that is quicker to read; pays if they are used often.
    """

    def __init__(self, xp: Any, b: Any, rows: int, copy: bool):
        self.xp, self.b = xp, b
        inner, columns = b.shape
        cut = cuts(rows, inner, columns) if xp is np and b.dtype.itemsize > 2 else None
        self.cut = cut
        if cut is None:
            self.b = b.copy() if copy and not b.flags.c_contiguous else b
            return
        parts, width = cut
        self.shape = (rows, columns // width, width)
        blocks = b.reshape(parts, inner // parts, columns // width, width).transpose(0, 2, 1, 3)
        self.blocks = blocks.copy() if copy else blocks
        self.room: Any = xp.empty((parts, rows, columns), b.dtype) if parts > 1 else None

    def product(self, a: Any, out: Any) -> Any:
        """a @ b into `out`; both may be views, whose rows are contiguous."""
        if self.cut is None:
            return matmul(self.xp, a, self.b, out)
        parts = self.cut[0]
        if parts == 1:
            place = out.reshape(self.shape).transpose(1, 0, 2)
            self.xp.matmul(a, self.blocks[0], out=place)
            return out
        rows, inner = a.shape
        a = a.reshape(rows, parts, inner // parts).transpose(1, 0, 2)[:, None]
        place = self.room.reshape(parts, *self.shape).transpose(0, 2, 1, 3)
        self.xp.matmul(a, self.blocks, out=place)
        return self.xp.add.reduce(self.room, axis=0, out=out)


def product(xp: Any, a: Any, b: Any, out: Any) -> Any:
    """a @ b into `out`, in blocks if that pays. Operands may be strided views."""
    rows, inner = a.shape
    columns = b.shape[1]
    if xp is not np or a.dtype.itemsize == 2:
        return matmul(xp, a, b, out)
    if rows > columns:
        cut = cuts(columns, inner, rows)
        if cut is not None and cut[0] == 1:
            width = cut[1]
            blocks = a.reshape(rows // width, width, inner)
            xp.matmul(blocks, b, out=out.reshape(rows // width, width, columns))
            return out
    elif cuts(rows, inner, columns) is not None:
        return Blocks(xp, b, rows, copy=False).product(a, out)
    n = min(MOST_PIECES, rows * inner * columns // LARGE)
    if n < 2:
        return matmul(xp, a, b, out)
    # Also a large one is not left to the threads of BLAS, but shared among our own.
    parts = pieces.cut(rows, n)
    with blas.alone():
        parallel_for(n, lambda i: xp.matmul(a[parts[i]], b, out=out[parts[i]]))
    return out

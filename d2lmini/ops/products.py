"""Every matrix product on the CPU: chunked by size, shared among idle workers, serial in BLAS.

>>> import numpy as np
>>> matmul(np, np.ones((2, 3)), np.ones((3, 2)))
array([[3., 3.],
       [3., 3.]])
>>> pieces_of(1024, 512, 2048), pieces_of(256, 784, 256), pieces_of(128, 256, 128)
(4, 2, 1)

A large product is split along rows or columns of its result, whichever are more: each chunk of rows
reads all of b once more, each chunk of columns all of a (BLAS copies its operands into a layout of
its own). A batch is split between its matrices. Idle workers of the engine share the chunks
(`parallel_for`), and BLAS computes each chunk on the calling thread (`blas.alone`). So the bits
depend on sizes only, neither on the number of workers nor on the number of BLAS threads; two
independent products run side by side; and no core spins in a wait. With BLAS's own threads,
a product of medium size took up to fifty times as long beside another program.

BLAS computes a product of up to `SERIAL_PRODUCT` multiplications serially anyway.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from d2lmini.base.dtypes import is_half
from d2lmini.device import blas
from d2lmini.device.blas import SERIAL_PRODUCT
from d2lmini.device.parallel import parallel_for
from d2lmini.ops import chunking
from d2lmini.ops.kernels import Kernels, kind_of

#: (multiplications, chunks): a product of at least this size is split into this many chunks. Half
#: of the smallest takes 0.2 ms, five times a hand-over to a worker; with four chunks instead of two
#: a late worker costs less; more chunks pay off where reading an operand again is cheap compared to
#: the product (on one thread, 512 x 512 x 512 took 4 % longer in 2 chunks, 7 % in 4, 14 % in 8).
PIECES = ((1 << 37, 16), (1 << 34, 8), (1 << 28, 4), (1 << 24, 2))

#: Reading or writing a number takes as long as this many multiplications; it dominates the cost of
#: a matrix-vector product.
MOVE = 8

#: Minimal number of rows or columns of a chunk.
NARROWEST = 32

#: Products on other devices.
kernels = Kernels()


def matmul(xp: Any, a: Any, b: Any, out: Any = None) -> Any:
    """a @ b into `out`: (..., M, K) x (..., K, N) -> (..., M, N), batches broadcast.

    Operands may be strided views. BLAS has no routine for float16 and bfloat16: the product is
    computed in float32 and rounded once.
    """
    if xp is not np:  # looked up here: `with_kernels` costs 6 % of a tiny product
        return kernels[kind_of(xp)](xp, a, b, out)
    if a.dtype.itemsize == 2 and is_half(a.dtype):
        product = matmul(xp, a.astype("float32"), b.astype("float32"))
        return chunking.place(xp, product, a.dtype, out)
    shape, columns = a.shape, b.shape[-1]
    inner = shape[-1]
    two = out is None and inner > 1 and len(shape) == b.ndim == 2
    if two and a.size * columns <= SERIAL_PRODUCT:
        return a.dot(b)  # equal, 0.7 us faster than matmul
    rows = shape[-2]
    # A column times a row needs no sums, and NumPy's matmul is slow at it.
    function = xp.multiply if inner == 1 else xp.matmul
    if a.size * columns <= SERIAL_PRODUCT and b.size * rows <= SERIAL_PRODUCT:
        return function(a, b, out=out)
    if out is None:
        batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
        out = np.empty((*batch, rows, columns), a.dtype)
    elif np.may_share_memory(out, a) or np.may_share_memory(out, b):
        np.copyto(out, matmul(xp, a, b))
        return out
    if rows * inner * columns <= SERIAL_PRODUCT:
        _share(function, a, b, out)
    else:
        with blas.alone():
            _share(function, a, b, out)
    return out


def pieces_of(rows: int, inner: int, columns: int, batch: int = 1) -> int:
    """Number of chunks for a product, or a batch of products, of this size."""
    moved = rows * inner + inner * columns + rows * columns
    work = batch * max(rows * inner * columns, MOVE * moved)
    return next((n for least, n in PIECES if work >= least), 1)


def _share(function: Callable[..., Any], a: Any, b: Any, out: Any) -> None:
    """function(a, b) into `out`, in chunks."""
    if out.ndim > 2:
        _share_batch(function, a, b, out)
        return
    rows, columns = out.shape
    n = min(pieces_of(rows, a.shape[1], columns), max(rows, columns) // NARROWEST)
    if n < 2:
        function(a, b, out=out)
    elif _is_transposed(a, b):
        _share_triangle(a, out, chunking.split_evenly(rows, n))
    elif rows >= columns:
        chunking.share(np, rows, n, lambda part: function(a[part], b, out=out[part]))
    else:
        chunking.share(np, columns, n, lambda part: function(a, b[:, part], out=out[:, part]))


def _share_batch(function: Callable[..., Any], a: Any, b: Any, out: Any) -> None:
    """Split a batch between matrices, along its longest axis; serial if that axis is too short."""
    *batch, rows, columns = out.shape
    n = pieces_of(rows, a.shape[-1], columns, out.size // (rows * columns))
    if n < 2:
        function(a, b, out=out)
        return
    axis = batch.index(max(batch))
    # Views of both operands with the axis in front; one operand may lack the axis.
    a, b = (np.broadcast_to(x, (*batch, *x.shape[-2:])).swapaxes(0, axis) for x in (a, b))
    out = out.swapaxes(0, axis)
    if len(out) < n:
        for i in range(len(out)):
            _share(function, a[i], b[i], out[i])
        return
    chunking.share(np, len(out), n, lambda part: function(a[part], b[part], out=out[part]))


def _is_transposed(a: Any, b: Any) -> bool:
    """True if b is the transpose of a in the same memory."""
    # `a.ctypes` imports a module on each use, which fails at interpreter exit.
    first, second = a.__array_interface__["data"], b.__array_interface__["data"]
    return first == second and a.T.shape == b.shape and a.T.strides == b.strides


def _share_triangle(a: Any, out: Any, parts: list[slice]) -> None:
    """a @ a.T: tiles of the lower triangle, each copied to its mirror image. NumPy recognizes the
    tiles on the diagonal and computes half of each."""
    tiles = [(r, c) for i, r in enumerate(parts) for c in parts[:i]]
    tiles += [(r, r) for r in parts]

    def tile(i: int) -> None:
        r, c = tiles[i]
        np.matmul(a[r], a[c].T, out=out[r, c])
        if r is not c:
            np.copyto(out[c, r], out[r, c].T)

    parallel_for(len(tiles), tile)

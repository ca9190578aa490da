"""Diagonals and triangles of matrices, products with them and solves: part of MXNet's `linalg_`.

>>> from d2lmini import nd
>>> L = nd.linalg.maketrian(nd.array([2, 1, 2]))
>>> L
<BLANKLINE>
[[2. 0.]
 [1. 2.]]
<NDArray 2x2 @cpu(0)>
>>> nd.linalg.trsm(L, nd.array([[4], [4]]))          # solves L y = b
<BLANKLINE>
[[2.]
 [1.]]
<NDArray 2x1 @cpu(0)>

All ops take a matrix on the last two axes or any batch of matrices, in float32 or float64.
Extracting a diagonal (or triangle) and inserting it are each other's gradients.
"""

from __future__ import annotations

from math import isqrt
from typing import Any

import numpy as np

from d2lmini.base import MXNetError
from d2lmini.ops.checks import check_float
from d2lmini.ops.composed import composed
from d2lmini.ops.core import ALL, Spec, op
from d2lmini.ops.diag import undiag
from d2lmini.ops.kernels import kind_of, with_kernels
from d2lmini.ops.linalg import gemm2, products_shape, transpose_last


@with_kernels
def lapack(xp: Any, name: str, *arrays: Any) -> Any:
    """The result of `xp.linalg.NAME`."""
    if xp is not np:
        return lapack.kernels[kind_of(xp)](xp, name, *arrays)
    return getattr(np.linalg, name)(*arrays)


def check_square(A: Spec) -> None:
    check_float(A, half=False)
    if len(A.shape) < 2 or A.shape[-1] != A.shape[-2]:
        raise MXNetError(f"needs square matrices on the last two axes, got {A.shape}")


def like_square(A: Spec, **_: Any) -> Spec:
    check_square(A)
    return A


# -- diagonals and triangles ----------------------------------------------------------------------


def _infer_extractdiag(A: Spec, *, offset: int) -> Spec:
    check_square(A)
    length = A.shape[-1] - abs(offset)
    if length < 0 or (length == 0 and offset):  # a 0 x 0 matrix has a main diagonal
        raise MXNetError(f"offset={offset} lies outside matrices of shape {A.shape}")
    return Spec((*A.shape[:-2], length), A.dtype)


@op("linalg_extractdiag", infer=_infer_extractdiag, flops=0)
def extractdiag(xp, A, *, offset: int = 0):
    """A diagonal of each matrix: (..., n, n) -> (..., n - |offset|); above the main one if > 0."""
    return xp.diagonal(A, offset, -2, -1)


def _infer_makediag(A: Spec, *, offset: int) -> Spec:
    check_float(A, half=False)
    if not A.shape:
        raise MXNetError("needs at least one axis, got a scalar")
    n = A.shape[-1] + abs(offset)
    return Spec((*A.shape[:-1], n, n), A.dtype)


@op("linalg_makediag", infer=_infer_makediag, flops=0)
def makediag(xp, A, *, offset: int = 0):
    """Matrices of zeros with a diagonal: (..., n) -> (..., m, m) with m = n + |offset|."""
    n = A.shape[-1] + abs(offset)
    return undiag.compute(xp, A, shape=(*A.shape[:-1], n, n), k=offset, axis1=-2, axis2=-1)


@extractdiag.gradient()
def _(g, *, offset):
    return makediag(g, offset=offset)


@makediag.gradient()
def _(g, *, offset):
    return extractdiag(g, offset=offset)


def _triangle(xp: Any, n: int, offset: int, lower: bool) -> tuple[Any, Any]:
    """Row and column numbers of a triangle: from diagonal `offset` down if negative, up if
    positive; for the main diagonal `lower` decides. A lower triangle goes row by row, an upper one
    column by column."""
    rows, columns = map(xp.asarray, np.tril_indices(n, -abs(offset)))
    return (rows, columns) if offset < 0 or (offset == 0 and lower) else (columns, rows)


def _infer_extracttrian(A: Spec, *, offset: int, **_: Any) -> Spec:
    side = _infer_extractdiag(A, offset=offset).shape[-1]
    return Spec((*A.shape[:-2], side * (side + 1) // 2), A.dtype)


@op("linalg_extracttrian", infer=_infer_extracttrian, flops=0)
def extracttrian(xp, A, *, offset: int = 0, lower: bool = True):
    """A triangle of each matrix as a vector: (..., n, n) -> (..., m (m + 1) / 2), m = n - |offset|.

    offset < 0: from that diagonal down, row by row; > 0: from it up, column by column; 0: `lower`
    decides.
    """
    rows, columns = _triangle(xp, A.shape[-1], offset, lower)
    return A[..., rows, columns]


def _infer_maketrian(A: Spec, *, offset: int, **_: Any) -> Spec:
    check_float(A, half=False)
    length = A.shape[-1] if A.shape else 0
    side = (isqrt(8 * length + 1) - 1) // 2
    if not A.shape or side * (side + 1) // 2 != length:
        raise MXNetError(
            f"a triangle of side m has m (m + 1) / 2 elements: 1, 3, 6, 10, ...; got {A.shape}"
        )
    n = side + abs(offset)
    return Spec((*A.shape[:-1], n, n), A.dtype)


@op("linalg_maketrian", infer=_infer_maketrian, flops=0)
def maketrian(xp, A, *, offset: int = 0, lower: bool = True):
    """Matrices of zeros with a triangle filled in: the inverse of `linalg_extracttrian`."""
    shape = _infer_maketrian(Spec(A.shape, A.dtype), offset=offset).shape
    rows, columns = _triangle(xp, shape[-1], offset, lower)
    y = xp.zeros(shape, A.dtype)
    y[..., rows, columns] = A
    return y


@extracttrian.gradient()
def _(g, *, offset, lower):
    return maketrian(g, offset=offset, lower=lower)


@maketrian.gradient()
def _(g, *, offset, lower):
    return extracttrian(g, offset=offset, lower=lower)


@op("_linalg_triangle", infer=like_square, flops=0)
def triangle(xp, A, *, lower: bool = True):
    """Each matrix with the other triangle set to zero; the main diagonal stays."""
    return xp.tril(A) if lower else xp.triu(A)


@triangle.gradient()
def _(g, *, lower):
    return triangle(g, lower=lower)


def one_per_matrix(A: Spec) -> Spec:
    check_square(A)
    return Spec(A.shape[:-2] or (1,), A.dtype)


@composed(
    "linalg_sumlogdiag", infer=one_per_matrix,
    flops=lambda A, *, out: 2.0 * out.size * A.shape[-1],
)  # fmt: skip
def sumlogdiag(A):
    """Sum of the logarithms of the main diagonal: (..., n, n) -> (...), or (1,) for one matrix."""
    return extractdiag(A).log().sum(axis=-1)


# -- triangular products and solves ---------------------------------------------------------------


def _infer_trsm(A: Spec, B: Spec, *, rightside: bool, **_: Any) -> Spec:
    check_square(A)
    check_float(A, B, half=False)
    left, right = (B, A) if rightside else (A, B)
    products_shape(left.shape, right.shape)
    return B


def _flops_beside(A: Spec, B: Spec, **_: Any) -> float:
    return 1.0 * B.size * A.shape[-1]


@composed("linalg_trmm", flops=_flops_beside)
def trmm(
    A, B, *, transpose: bool = False, rightside: bool = False, lower: bool = True,
    alpha: float = 1.0,
):  # fmt: skip
    """A triangular matrix times another: alpha op(A) B, or with `rightside` alpha B op(A).

    A (..., n, n), of which only the lower (or upper) triangle is read; B (..., n, m), or
    (..., m, n) -> the shape of B. op transposes if `transpose`.
    """
    A = triangle(A, lower=lower)
    if rightside:
        return gemm2(B, A, transpose_b=transpose, alpha=alpha)
    return gemm2(A, B, transpose_a=transpose, alpha=alpha)


@op("linalg_trsm", infer=_infer_trsm, flops=_flops_beside)
def trsm(
    xp, A, B, *, transpose: bool = False, rightside: bool = False, lower: bool = True,
    alpha: float = 1.0,
):  # fmt: skip
    """Solve a triangular system for y: op(A) y = alpha B, or with `rightside` y op(A) = alpha B.

    Shapes as for `linalg_trmm`. A zero on the diagonal fails at run time. (NumPy has no triangular
    solver; the general solver needs 2/3 n^3 more FLOPs.)
    """
    A = xp.tril(A) if lower else xp.triu(A)
    if transpose != rightside:
        A = transpose_last(A)
    if rightside:  # op(A)^T y^T = B^T
        y = transpose_last(lapack(xp, "solve", A, transpose_last(B)))
    else:
        y = lapack(xp, "solve", A, B)
    return y * y.dtype.type(alpha) if alpha != 1.0 else y


@trsm.gradient(saves="y A")
def _(g, y, A, *, transpose, rightside, lower, alpha, needs=ALL):
    s = trsm(A, g, transpose=not transpose, rightside=rightside, lower=lower)
    if not needs[0]:
        return None, s * alpha
    # d op(A) = -s y^T; on the right side -y^T s.
    a, b = (s, y) if transpose == rightside else (y, s)
    dA = gemm2(a, b, transpose_a=rightside, transpose_b=not rightside, alpha=-1.0)
    return triangle(dA, lower=lower), s * alpha if needs[1] else None

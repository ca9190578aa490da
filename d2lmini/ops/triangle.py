"""Diagonals and triangles of matrices, and triangular systems: part of MXNet's `linalg_`.

>>> from d2lmini import nd
>>> L = nd.array([[2, 0], [1, 2]])
>>> nd.linalg.trsm(L, nd.array([[4], [4]]))          # solves L y = b
<BLANKLINE>
[[2.]
 [1.]]
<NDArray 2x1 @cpu(0)>

All ops take a matrix on the last two axes or any batch of matrices, in float32 or float64.
Extracting a diagonal and inserting it are each other's gradients.
"""

from __future__ import annotations

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


# -- triangular systems ---------------------------------------------------------------------------


def _infer_trsm(A: Spec, B: Spec, *, rightside: bool, **_: Any) -> Spec:
    check_square(A)
    check_float(A, B, half=False)
    left, right = (B, A) if rightside else (A, B)
    products_shape(left.shape, right.shape)
    return B


@op("linalg_trsm", infer=_infer_trsm, flops=lambda A, B, **_: 1.0 * B.size * A.shape[-1])
def trsm(
    xp, A, B, *, transpose: bool = False, rightside: bool = False, lower: bool = True,
    alpha: float = 1.0,
):  # fmt: skip
    """Solve a triangular system for y: op(A) y = alpha B, or with `rightside` y op(A) = alpha B.

    A (..., n, n), of which only the lower (or upper) triangle is read; B (..., n, m), or
    (..., m, n) -> the shape of B. op transposes if `transpose`. A zero on the diagonal fails at
    run time. (NumPy has no triangular solver; the general solver needs 2/3 n^3 more FLOPs.)
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

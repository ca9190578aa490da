"""Factorizations, inverses and determinants of matrices: the rest of MXNet's `linalg_` family.

>>> from d2lmini import nd
>>> A = nd.array([[4, 2], [2, 5]])
>>> L = nd.linalg.potrf(A)                    # Cholesky: A = L L^T
>>> L
<BLANKLINE>
[[2. 0.]
 [1. 2.]]
<NDArray 2x2 @cpu(0)>
>>> nd.linalg.sumlogdiag(L) * 2               # log(det(A)) = log(16)
<BLANKLINE>
[2.7725887]
<NDArray 1 @cpu(0)>

All ops take a matrix on the last two axes or any batch of matrices, in float32 or float64, and call
LAPACK through NumPy. Wrong shapes and dtypes raise MXNetError at the call; a matrix that cannot be
factored or inverted fails at run time, and a wait on the result raises the error. (On a GPU, CuPy
returns nan or meaningless numbers for such a matrix: a check would wait for the GPU.)

The gradients of factorizations follow M. Seeger et al., "Auto-Differentiating Linear Algebra"
(2017), and I. Murray, "Differentiation of the Cholesky decomposition" (2016). They are a few
products and triangular solves, written in the ops of this family, so they are differentiable
again. `g` is the gradient of the result y.
"""

from __future__ import annotations

from typing import Any

from d2lmini.base import MXNetError
from d2lmini.ops.checks import check_float
from d2lmini.ops.composed import composed
from d2lmini.ops.core import Shape, Spec, op, registry
from d2lmini.ops.linalg import gemm2, transpose_last
from d2lmini.ops.triangle import (
    extractdiag,
    lapack,
    like_square,
    makediag,
    one_per_matrix,
    triangle,
    trsm,
)


def _cubic(factor: float) -> Any:
    """The cost of n^3 algorithms: factor * n^3 FLOPs per matrix."""
    return lambda A, *_, out, **_attrs: factor * A.size * A.shape[-1]


# -- Cholesky -------------------------------------------------------------------------------------


@op("linalg_potrf", infer=like_square, flops=_cubic(1 / 3), same_shape=True)
def potrf(xp, A, *, lower: bool = True):
    """Cholesky factor of a symmetric positive definite matrix: A = y y^T, or y^T y if not `lower`.

    Only the lower triangle of A is read. A matrix that is not positive definite fails at run time.
    """
    y = lapack(xp, "cholesky", A)
    return y if lower else y.swapaxes(-1, -2)


@potrf.gradient(saves="y")
def _(g, y, *, lower):
    # With y = L (or L^T): P is the lower triangle of L^T g with half its diagonal; the gradient
    # is the symmetric part of L^-T P L^-1.
    P = triangle(gemm2(y, g, transpose_a=lower, transpose_b=not lower))
    P = P - makediag(extractdiag(P)) * 0.5
    S = trsm(y, P, transpose=lower, lower=lower)
    S = trsm(y, S, transpose=not lower, lower=lower, rightside=True)
    return (S + transpose_last(S)) * 0.5


@composed("linalg_potri", infer=like_square, flops=_cubic(2.0), same_shape=True)
def potri(A, *, lower: bool = True):
    """The inverse of a matrix from its Cholesky factor A: (A A^T)^-1, or (A^T A)^-1 if not `lower`.

    Only that triangle of A is read. `linalg_trsm` is cheaper and more accurate where it applies.
    """
    T = inverse(triangle(A, lower=lower))
    return gemm2(T, T, transpose_a=lower, transpose_b=not lower)


# -- inverse and determinant ----------------------------------------------------------------------


@op("linalg_inverse", infer=like_square, flops=_cubic(2.0))
def inverse(xp, A):
    """A^-1. A singular matrix fails at run time. Cost: 2 n^3."""
    return lapack(xp, "inv", A)


@op("_linalg_inverse_or_zero", infer=like_square, flops=_cubic(3.0))
def inverse_or_zero(xp, A):
    """A^-1 where it exists, else zeros, so that `linalg_det` can continue after a singular A."""
    singular = (lapack(xp, "slogdet", A)[1] == -xp.inf)[..., None, None]
    return lapack(xp, "inv", xp.where(singular, xp.eye(A.shape[-1], dtype=A.dtype), A)) * ~singular


@inverse.gradient(saves="y")
@inverse_or_zero.gradient(saves="y")
def _(g, y):
    return gemm2(gemm2(y, g, transpose_a=True), y, transpose_b=True, alpha=-1.0)


@op("linalg_det", infer=one_per_matrix, flops=_cubic(2 / 3), output_names=("output0",),
    mxnet_outputs=3)  # fmt: skip
def det(xp, A):
    """Determinant: (..., n, n) -> (...), or (1,) for one matrix. A singular A gets no gradient."""
    return lapack(xp, "det", A).reshape(A.shape[:-2] or (1,))


@det.gradient(saves="y A A.shape")
def _(g, y, A, shape):
    return transpose_last(inverse_or_zero(A)) * (g * y).reshape((*shape[:-2], 1, 1))


@op(
    "linalg_slogdet", outputs=2, flops=_cubic(2 / 3),
    infer=lambda A: [one_per_matrix(A)] * 2, mxnet_outputs=4,
)  # fmt: skip
def slogdet(xp, A):
    """Sign of the determinant and log of its absolute value, each (...), or (1,) for one matrix.

    A singular matrix gives 0 and -inf. Neither the sign nor a singular A has a gradient.
    """
    sign, logabsdet = lapack(xp, "slogdet", A)
    sign = xp.where(logabsdet == -xp.inf, 0, sign)  # CuPy leaves it 1 or -1
    shape: Shape = A.shape[:-2] or (1,)
    return sign.reshape(shape), logabsdet.reshape(shape)


@slogdet.gradient(saves="A A.shape")
def _(g, A, shape):
    return transpose_last(inverse_or_zero(A)) * g[1].reshape((*shape[:-2], 1, 1))


# -- orthogonal factors ---------------------------------------------------------------------------


def _check_wide(A: Spec) -> Spec:
    """The spec of a square matrix for each A, which has no more rows than columns."""
    check_float(A, half=False)
    if len(A.shape) < 2 or A.shape[-2] > A.shape[-1]:
        raise MXNetError(f"needs matrices (m, n) with m <= n, got {A.shape}; transpose A first")
    return Spec((*A.shape[:-1], A.shape[-2]), A.dtype)


@op("linalg_gelqf", infer=lambda A: [A, _check_wide(A)], outputs=2, flops=_cubic(4.0))
def gelqf(xp, A):
    """LQ factors, A = L Q: A (..., m, n) with m <= n of full rank -> Q (..., m, n), L (..., m, m).

    The rows of Q are orthonormal, L is lower triangular.
    """
    Q, R = lapack(xp, "qr", A.swapaxes(-1, -2))
    return Q.swapaxes(-1, -2), R.swapaxes(-1, -2)


@gelqf.gradient(saves="y")
def _(g, y):
    (gQ, gL), (Q, L) = g, y
    # M = L^T gL - gQ Q^T, its lower triangle mirrored, gives L^-T (gQ + mirrored(M) Q).
    M = triangle(gemm2(L, triangle(gL), transpose_a=True) - gemm2(gQ, Q, transpose_b=True))
    M = M + transpose_last(M) - makediag(extractdiag(M))
    return trsm(L, gQ + gemm2(M, Q), transpose=True)


def _signs(xp: Any, rows: Any) -> Any:
    """Factors 1 or -1 that make the largest component of each row positive."""
    if not rows.size:  # no component is the largest
        return xp.ones((*rows.shape[:-1], 1), rows.dtype)
    largest = xp.take_along_axis(rows, abs(rows).argmax(-1, keepdims=True), -1)
    return xp.where(largest < 0, -1, 1).astype(rows.dtype)


@op(
    "linalg_syevd",
    infer=lambda A: [like_square(A), Spec(A.shape[:-1], A.dtype)],
    outputs=2,
    flops=_cubic(9.0),
)
def syevd(xp, A):
    """Eigenvectors and eigenvalues of a symmetric matrix: U A = diag(L) U, L ascending.

    (..., n, n) -> U (..., n, n) with the vectors in rows, each so that its largest component is
    positive, and L (..., n). The gradient needs all eigenvalues distinct. Reads the lower triangle.
    """
    L, vectors = lapack(xp, "eigh", A)
    U = vectors.swapaxes(-1, -2)
    return U * _signs(xp, U), L


@syevd.gradient(saves="y")
def _(g, y):
    (gU, gL), (U, L) = g, y
    # Rotations of the eigenvectors i and j are divided by the difference of their eigenvalues.
    gaps = L.expand_dims(-1) - L.expand_dims(-2)
    M = gemm2(gU, U, transpose_b=True) / (gaps + makediag(L.ones_like()))
    M = M - makediag(extractdiag(M) - gL)
    S = gemm2(gemm2(U, M, transpose_a=True), U)
    return (S + transpose_last(S)) * 0.5


def _infer_svd(A: Spec) -> list[Spec]:
    return [_check_wide(A), Spec(A.shape[:-1], A.dtype), A]


@op("_svd", infer=_infer_svd, outputs=3, flops=_cubic(20.0))
def svd(xp, A):
    """The singular value decomposition A = U diag(L) V, L descending, after MXNet's np.linalg.svd.

    (..., m, n) with m <= n -> U (..., m, m), L (..., m), V (..., m, n); U and the rows of V are
    orthonormal. The largest component of each row of V is positive. The gradient needs all singular
    values distinct and above 0.
    """
    U, L, V = lapack(xp, "svd", A, False)
    sign = _signs(xp, V)
    return U * sign.swapaxes(-1, -2), L, V * sign


@svd.gradient(saves="y")
def _(g, y):
    # J. Townsend, "Differentiating the Singular Value Decomposition" (2016), for m <= n.
    (gU, gL, gV), (U, L, V) = g, y
    row, column = registry["expand_dims"](L, axis=-2), registry["expand_dims"](L, axis=-1)
    gaps = row * row - column * column + makediag(L.ones_like())
    left, right = gemm2(U, gU, transpose_a=True), gemm2(V, gV, transpose_b=True)
    M = (left - transpose_last(left)) / gaps * row + makediag(gL)
    M = M + (right - transpose_last(right)) / gaps * column
    outside = (gV - gemm2(gemm2(gV, V, transpose_b=True), V)) / column
    return gemm2(U, gemm2(M, V) + outside)

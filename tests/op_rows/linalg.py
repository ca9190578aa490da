"""Rows of `ops/linalg.py`, `ops/triangle.py` and `ops/decompose.py`."""

from __future__ import annotations

import numpy as np

from op_rows.case import Case, draw

OWN = "an op of ours alone"
EMPTY = "MXNet takes a size of 0 for unknown"


def t(a):
    return a.swapaxes(-1, -2)


def first_axis_last(a):
    return np.moveaxis(a, 0, -1) if a.ndim > 1 else a


def dot(a, b, transpose_a=False, transpose_b=False):
    a = first_axis_last(a) if transpose_a else a
    b = np.moveaxis(b, -1, 0) if transpose_b and b.ndim > 1 else b
    return np.atleast_1d(np.tensordot(a, b, 1)).astype(a.dtype)


def batch_dot(a, b, transpose_a=False, transpose_b=False):
    return (t(a) if transpose_a else a) @ (t(b) if transpose_b else b)


def flags(a, b):
    """The two transpose flags as attributes, without those that are off."""
    return {k: True for k, on in (("transpose_a", a), ("transpose_b", b)) if on}


def turned(shape, on):
    return shape[:-2] + shape[-2:][::-1] if on else shape


BOTH = ((False, False), (True, False), (False, True), (True, True))
ROWS = [
    Case("dot", (draw(turned((2, 3), a)), draw(turned((3, 4), b), seed=1)), dot, flags(a, b))
    for a, b in BOTH
]
ROWS += [
    Case("dot", (draw(a), draw(b, seed=1)), dot, attrs)
    for a, b, attrs in (
        ((3,), (3,), {}),
        ((1,), (1,), {}),
        ((2, 3), (3,), {}),
        ((2, 3), (3,), {"transpose_b": True}),
        ((3, 2), (3,), {"transpose_a": True}),
        ((3,), (3, 2), {}),
        ((3,), (3, 2), {"transpose_a": True}),
        ((3,), (2, 3), {"transpose_b": True}),
        ((2, 3, 4), (4, 5), {}),
        ((2, 3), (3, 1, 1), {}),
        ((2, 3, 4), (4, 5, 6), {}),
        ((4, 2, 3), (4, 5, 6), {"transpose_a": True}),
        ((2, 3, 4), (5, 6, 4), {"transpose_b": True}),
        ((4, 2, 3), (5, 6, 4), {"transpose_a": True, "transpose_b": True}),
        ((1, 1), (1, 1), {}),
        ((1, 5), (5, 1), {}),
    )
]
ROWS += [
    Case("dot", (draw(a), draw(b)), dot, mxnet=False, why=EMPTY)
    for a, b in (((2, 0), (0, 3)), ((0, 3), (3, 2)), ((0,), (0,)), ((0, 2), (2, 0)))
]
for dtype in ("float16", "int32", "int64", "int8", "uint8"):
    pair = (draw((3, 4), 0, 5, dtype), draw((4, 2), 0, 5, dtype, seed=1))
    why = "MXNet refuses this dtype on the CPU"
    ROWS.append(Case("dot", pair, dot, mxnet=False, why=why, rtol=1e-3))
    batches = (draw((2, 3, 4), 0, 5, dtype), draw((2, 4, 2), 0, 5, dtype, seed=1))
    ROWS.append(Case("batch_dot", batches, batch_dot, mxnet=False, why=why, rtol=1e-3, atol=5e-3))
ROWS.append(Case("dot", (draw((3, 4), dtype="float64"), draw((4, 2), dtype="float64")), dot))

ROWS += [
    Case(
        "batch_dot", (draw(turned((5, 2, 3), a)), draw(turned((5, 3, 4), b), seed=1)), batch_dot,
        flags(a, b),
    )
    for a, b in BOTH
]  # fmt: skip
ROWS += [
    Case("batch_dot", (draw((2, 3, 4, 1)), draw((2, 3, 1, 5))), batch_dot),
    Case("batch_dot", (draw((1, 1, 1)), draw((1, 1, 1))), batch_dot),
    Case("batch_dot", (draw((2, 0, 3)), draw((2, 3, 4))), batch_dot, mxnet=False, why=EMPTY),
    Case("batch_dot", (draw((2, 2, 0)), draw((2, 0, 4))), batch_dot, mxnet=False, why=EMPTY),
]


# -- gemm2 ----------------------------------------------------------------------------------------


def gemm2(a, b, transpose_a=False, transpose_b=False, alpha=1.0, axis=-2):
    a, b = a.swapaxes(axis, -2), b.swapaxes(axis, -2)
    y = batch_dot(a, b, transpose_a, transpose_b) * np.asarray(alpha, a.dtype)
    return y.swapaxes(axis, -2)


for a, b in BOTH:
    for batch in ((), (2,)):
        left, right = draw(turned((*batch, 2, 3), a)), draw(turned((*batch, 3, 4), b), seed=1)
        ROWS += [
            Case("linalg.gemm2", (left, right), gemm2, {**flags(a, b), "alpha": 0.5}),
        ]  # fmt: skip
ROWS += [
    Case("linalg.gemm2", (draw((2, 3, 4, 5)), draw((2, 5, 4, 6), seed=1)), gemm2, {"axis": 1}),
    Case("linalg.gemm2", (draw((3, 4, 5)), draw((5, 4, 6), seed=1)), gemm2, {"axis": -3}),
    Case("linalg.gemm2", (draw((5, 4, 3)), draw((6, 4, 5), seed=1)), gemm2,
         {"axis": 0, "transpose_a": True, "transpose_b": True}, mxnet=False,
         why="MXNet mixes up the sizes of a transposed operand with another axis"),
    Case("linalg.gemm2", (draw((0, 3)), draw((3, 4))), gemm2, mxnet=False, why=EMPTY),
]  # fmt: skip
# -- diagonals and triangles ----------------------------------------------------------------------


def extractdiag(a, offset=0):
    return np.diagonal(a, offset, -2, -1)


def makediag(a, offset=0):
    y = np.zeros(a.shape[:-1] + (a.shape[-1] + abs(offset),) * 2, a.dtype)
    for i in range(a.shape[-1]):
        y[..., i + max(-offset, 0), i + max(offset, 0)] = a[..., i]
    return y


for offset in (0, 1, -1, 2):
    ROWS += [
        Case("linalg.extractdiag", (draw((3, 3)),), extractdiag, {"offset": offset}),
        Case("linalg.extractdiag", (draw((2, 4, 4)),), extractdiag, {"offset": offset}),
        Case("linalg.makediag", (draw((3,)),), makediag, {"offset": offset}),
        Case("linalg.makediag", (draw((2, 1, 2)),), makediag, {"offset": -offset}),
    ]
ROWS += [
    Case("_linalg_triangle", (draw((2, 3, 3)),),
         lambda a, lower=True: np.tril(a) if lower else np.triu(a), {"lower": lower},
         mxnet=False, why=OWN)
    for lower in (True, False)
]  # fmt: skip


def sumlogdiag(a):
    return np.atleast_1d(np.log(np.diagonal(a, 0, -2, -1)).sum(-1))


def positive(*batch, n=3):
    """Symmetric positive definite matrices."""
    a = draw((*batch, n, n), -1, 1)
    return a @ t(a) + n * np.eye(n, dtype="float32")


ROWS += [Case("linalg.sumlogdiag", (positive(*batch),), sumlogdiag) for batch in ((), (2,), (2, 1))]


def triangle_of(a, lower, transpose):
    a = np.tril(a) if lower else np.triu(a)
    return t(a) if transpose else a


def trsm(a, b, transpose=False, rightside=False, lower=True, alpha=1.0):
    a = np.linalg.inv(triangle_of(a, lower, transpose).astype("float64"))
    return ((b @ a if rightside else a @ b) * alpha).astype(b.dtype)


for transpose in (False, True):
    for rightside in (False, True):
        for lower in (True, False):
            attrs = {"transpose": transpose, "rightside": rightside, "lower": lower}
            b = draw((2, 4, 3) if rightside else (2, 3, 4))
            ROWS += [
                Case("linalg.trsm", (positive(2), b), trsm, {**attrs, "alpha": 2.0}, rtol=1e-4),
                Case("linalg.trsm", (positive(), b[0]), trsm, attrs, rtol=1e-4),
            ]

# -- factors, inverse, determinant ----------------------------------------------------------------

HALF = "half a matrix is read: the gradient is for symmetric changes, see test_linalg.py"


def potrf(a, lower=True):
    y = np.linalg.cholesky(a)
    return y if lower else t(y)


def potri(a, lower=True):
    a = triangle_of(a, lower, False).astype("float64")
    return np.linalg.inv(a @ t(a) if lower else t(a) @ a).astype("float32")


for batch in ((), (2,)):
    for lower in (True, False):
        factor = potrf(positive(*batch), lower)
        ROWS += [
            Case(
                "linalg.potrf", (positive(*batch),), potrf, {"lower": lower}, grad=False, why=HALF
            ),
            Case("linalg.potri", (factor,), potri, {"lower": lower}, rtol=1e-4),
        ]


def slogdet(a):
    return [np.atleast_1d(v) for v in np.linalg.slogdet(a)]


def inverse_or_zero(a):
    return np.stack([np.linalg.inv(m) if np.linalg.det(m) else 0 * m for m in a])


general = draw((2, 3, 3), -1, 1, seed=5) + 2 * np.eye(3, dtype="float32")
for a in (general[0], general, -general, general[:, :1, :1]):
    ROWS += [
        Case("linalg.inverse", (a,), np.linalg.inv, rtol=1e-4),
        Case("linalg.det", (a,), lambda a: np.atleast_1d(np.linalg.det(a)), rtol=1e-4),
        Case("linalg.slogdet", (a,), slogdet, rtol=1e-4),
    ]
singular = np.stack([general[0], np.ones((3, 3), "float32")])
ROWS += [
    Case("_linalg_inverse_or_zero", (general,), inverse_or_zero, rtol=1e-4, mxnet=False, why=OWN),
    Case("_linalg_inverse_or_zero", (singular,), inverse_or_zero, rtol=1e-4, grad=False,
         mxnet=False, why=OWN),
    Case("linalg.det", (np.ones((2, 2), "float32"),), lambda a: np.zeros(1, "float32"), grad=False),
    Case("linalg.slogdet", (np.ones((2, 2), "float32"),),
         lambda a: [np.zeros(1, "float32"), np.float32([-np.inf])], grad=False),
]  # fmt: skip


def gelqf(a):
    q, r = np.linalg.qr(t(a))
    return [t(q), t(r)]


def syevd(a):
    values, vectors = np.linalg.eigh(a)
    u = t(vectors).copy()
    for row in u.reshape(-1, u.shape[-1]):
        row *= np.sign(row[np.argmax(abs(row))])
    return [u, values]


for batch in ((), (2,)):
    ROWS += [
        Case("linalg.gelqf", (draw((*batch, 2, 3)),), gelqf, rtol=1e-4, atol=1e-5),
        Case("linalg.gelqf", (draw((*batch, 3, 3)),), gelqf, rtol=1e-4, atol=1e-5),
        Case(
            "linalg.syevd", (positive(*batch),), syevd, rtol=1e-4, atol=1e-5, grad=False, why=HALF
        ),
    ]


def svd(a):
    u, values, v = np.linalg.svd(a, full_matrices=False)
    sign = np.sign(np.take_along_axis(v, abs(v).argmax(-1, keepdims=True), -1))
    return [u * t(sign), values, v * sign]


ROWS += [
    Case(
        "_svd", (draw(shape),), svd, rtol=1e-4, atol=1e-5, mxnet=False, why="tests/np has its rows"
    )
    for shape in ((2, 3), (2, 3, 4), (3, 3))
]

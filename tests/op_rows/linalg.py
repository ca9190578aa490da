"""Rows of `ops/linalg.py`."""

from __future__ import annotations

import numpy as np

from op_rows.case import Case, draw

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
        ((2, 3), (3,), {}),
        ((3, 2), (3,), {"transpose_a": True}),
        ((3,), (3, 2), {}),
        ((3,), (2, 3), {"transpose_b": True}),
        ((2, 3, 4), (4, 5), {}),
        ((2, 3, 4), (4, 5, 6), {}),
        ((2, 3, 4), (5, 6, 4), {"transpose_b": True}),
        ((4, 2, 3), (5, 6, 4), {"transpose_a": True, "transpose_b": True}),
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
    Case("batch_dot", (draw((2, 2, 0)), draw((2, 0, 4))), batch_dot, mxnet=False, why=EMPTY),
]


# -- gemm2 ----------------------------------------------------------------------------------------


def gemm2(a, b, transpose_a=False, transpose_b=False, alpha=1.0):
    return batch_dot(a, b, transpose_a, transpose_b) * np.asarray(alpha, a.dtype)


for a, b in BOTH:
    for batch in ((), (2,)):
        left, right = draw(turned((*batch, 2, 3), a)), draw(turned((*batch, 3, 4), b), seed=1)
        ROWS += [
            Case("linalg.gemm2", (left, right), gemm2, {**flags(a, b), "alpha": 0.5}),
        ]  # fmt: skip
ROWS += [
    Case("linalg.gemm2", (draw((0, 3)), draw((3, 4))), gemm2, mxnet=False, why=EMPTY),
]  # fmt: skip

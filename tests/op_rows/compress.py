"""Rows of `ops/update.py`: gradients in 2 bits. Their residuals: test_kvstore.py."""

from __future__ import annotations

import numpy as np

from op_rows.case import EDGE_SHAPES, Case, draw

OURS = {"grad": False, "mxnet": False, "why": "an op of our own: MXNet has it inside its KVStore"}


def quantize(g, residual, threshold):
    """Code by code: 1 is up, 2 is down, the first of four in the lowest bits."""
    x = (g + residual).reshape(-1)
    codes = [1 if v >= threshold else 2 if v <= -threshold else 0 for v in x]
    codes += [0] * (-len(codes) % 4)
    rows = zip(codes[::4], codes[1::4], codes[2::4], codes[3::4])
    return np.array([a + 4 * b + 16 * c + 64 * d for a, b, c, d in rows], "uint8")


def dequantize(data, shape, threshold, dtype="float32"):
    codes = [(byte >> shift) & 3 for byte in data.tolist() for shift in (0, 2, 4, 6)]
    values = [(0, threshold, -threshold)[code] for code in codes[: int(np.prod(shape))]]
    return np.array(values, dtype).reshape(shape)


ROWS = [
    Case(
        "_quantize_2bit", (draw(shape, dtype=dtype), draw(shape, -0.4, 0.4, dtype, 1)), quantize,
        {"threshold": threshold}, **OURS,
    )
    for shape in (*EDGE_SHAPES, (3, 4), (70, 9))
    for dtype in ("float32", "float16", "float64")
    for threshold in (0.5, 1.25)
]  # fmt: skip
ROWS += [
    Case(
        "_dequantize_2bit", (quantize(draw(shape), np.float32(0), 0.5),), dequantize,
        {"shape": shape, "threshold": 0.25, "dtype": dtype}, **OURS,
    )
    for shape in ((1,), (0,), (7,), (3, 4), (70, 9))
    for dtype in ("float32", "float16")
]  # fmt: skip

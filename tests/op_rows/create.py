"""Rows for arrays made from nothing."""

from __future__ import annotations

import math

import numpy as np

from op_rows.case import EDGE_SHAPES, Case, draw


def _filled(value: float):
    return lambda shape, dtype="float32", **_: np.full(shape, value, dtype)


def _arange(start, stop=None, step=1.0, repeat=1, dtype="float32"):
    start, stop = (0, start) if stop is None else (start, stop)
    n = max(math.ceil((stop - start) / step), 0)
    kind = np.dtype(dtype).type
    if kind is np.float16:  # MXNet cuts off the fractions here
        numbers = [kind(np.float32(start) + np.float32(step) * i) for i in range(n)]
        return np.repeat(numbers, repeat)
    numbers = [kind(start) + kind(step) * kind(i) for i in range(n)]
    return np.repeat(np.array(numbers, dtype), repeat)


ROWS = [
    *(
        Case(name, (), expect, {"shape": shape})
        for name, expect in (("zeros", _filled(0)), ("ones", _filled(1)))
        for shape in (*EDGE_SHAPES, (40, 50))
    ),
    *(
        Case("zeros", (), _filled(0), {"shape": (2,), "dtype": dtype})
        for dtype in ("float16", "float64", "int8", "uint8", "int32", "int64", "bool")
    ),
    Case("full", (), lambda shape, val: np.full(shape, val, "float32"),
         {"shape": (2, 3), "val": 2.5}),
    *(
        Case("arange", (), _arange, attrs)
        for attrs in (
            {"start": 5},
            {"start": 2, "stop": 9, "step": 3},
            {"start": 0, "stop": 1, "step": 0.1},
            {"start": 5, "stop": 0, "step": -2},
            {"start": 0, "stop": 4, "repeat": 3},
            {"start": 4, "dtype": "int64"},
            {"start": 0, "stop": 3, "step": 0.3},  # 3 // 0.3 is 9
            {"start": 0, "stop": 4, "step": 0.9, "dtype": "int64"},
            {"start": 16777216, "stop": 16777221},
        )
    ),
    Case("arange", (), _arange, {"start": 2.2, "stop": 1.1, "step": -0.3, "dtype": "float16"},
         rtol=1e-3, mxnet=False, why="MXNet cuts off the fractions of start and step"),
    Case("arange", (), _arange, {"start": 3, "stop": 3}, mxnet=False, why="MXNet knows no size 0"),
    *(
        Case(
            "linspace", (), lambda start, stop, num, endpoint=True: np.linspace(
                start, stop, num, endpoint=endpoint
            ).astype("float32"), attrs,
        )
        for attrs in (
            {"start": 0, "stop": 1, "num": 5},
            {"start": 2, "stop": -2, "num": 4, "endpoint": False},
            {"start": 3, "stop": 9, "num": 1},
        )
    ),
    *(
        Case("eye", (), lambda N, M=0, k=0: np.eye(N, M or None, k, dtype="float32"), attrs)
        for attrs in ({"N": 3}, {"N": 2, "M": 4}, {"N": 4, "M": 3, "k": -1}, {"N": 3, "k": 2})
    ),
    *(
        Case("_copyto", (draw(shape),), lambda x, dtype: x.astype(dtype), {"dtype": dtype},
             mxnet=False, why="an internal op")
        for shape in EDGE_SHAPES
        for dtype in ("float32", "int32", "float64")
    ),
]  # fmt: skip

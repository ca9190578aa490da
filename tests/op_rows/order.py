"""Rows for sorting: sort, argsort, topk, and the gather and scatter of their gradients."""

from __future__ import annotations

import numpy as np

from op_rows.case import EDGE_SHAPES, Case, draw

UNSTABLE = "MXNet keeps the order of ties in short lines only"
SCALAR = "MXNet 1.9.1 knows neither scalars nor sizes of 0 outside its numpy mode"
NAN = "MXNet leaves the place of nan to chance; ours counts as the largest, as in NumPy"
OURS = "ours allows more: see the docstring"
X = draw((2, 3, 5))
TIES = draw((4, 6), 0, 3, "int32").astype("float32")


def order(x, axis=-1, is_ascend=True):
    """Positions in sorted order, ties by position."""
    x, axis = (x.ravel(), 0) if axis is None else (x, axis)
    if is_ascend:
        return np.argsort(x, axis=axis, kind="stable")
    # Exact in every dtype: sort by rank, falling.
    ranks = np.unique(x, return_inverse=True)[1].reshape(x.shape)
    return np.argsort(-ranks, axis=axis, kind="stable")


def stable(x, axis) -> dict:
    """Rows with ties in long lines are not for MXNet."""
    return {"mxnet": False, "why": UNSTABLE} if x is TIES and axis is None else {}


def along(x, index, axis):
    x, axis = (x.ravel(), 0) if axis is None else (x, axis)
    return np.take_along_axis(x, index, axis)


def argsort(x, axis=-1, is_ascend=True, dtype="float32"):
    return order(x, axis, is_ascend).astype(dtype)


def sort(x, axis=-1, is_ascend=True):
    return along(x, order(x, axis, is_ascend), axis)


def topk(x, axis=-1, k=1, ret_typ="indices", is_ascend=False, dtype="float32"):
    index = order(x, axis, is_ascend)
    at = 0 if axis is None else axis
    n = index.shape[at]
    index = np.take(index, np.arange(k if k > 0 else n), axis=at)
    value = along(x, index, axis)
    return {"value": value, "indices": index.astype(dtype), "both": [value, index.astype(dtype)]}[
        ret_typ
    ]


def _sorts():
    for x in (X, TIES):
        grad = x is X
        for axis in (-1, 0, 1, None):
            for rising in (True, False):
                attrs = {"axis": axis, "is_ascend": rising}
                yield Case("sort", (x,), sort, attrs, grad=grad)
                yield Case("argsort", (x,), argsort, attrs, **stable(x, axis))
    for dtype in ("float64", "int32", "int64", "int8", "uint8"):
        x = draw((3, 5), 0, 9, dtype)
        for rising in (True, False):
            yield Case("sort", (x,), sort, {"is_ascend": rising})
            yield Case("argsort", (x,), argsort, {"is_ascend": rising})
    for dtype in ("float16", "bool"):
        x = draw((3, 5), dtype=dtype)
        for rising in (True, False):
            yield Case("sort", (x,), sort, {"is_ascend": rising}, mxnet=False, why=OURS)
            yield Case("argsort", (x,), argsort, {"is_ascend": rising}, mxnet=False, why=OURS)
    for dtype in ("float16", "float64", "int32", "int64", "uint8"):
        yield Case("argsort", (TIES,), argsort, {"dtype": dtype})
    for shape in EDGE_SHAPES[1:]:
        mxnet = 0 not in shape
        yield Case("sort", (draw(shape),), sort, mxnet=mxnet, why=SCALAR)
        yield Case("argsort", (draw(shape),), argsort, mxnet=mxnet, why=SCALAR)
    yield Case("sort", (draw(()),), sort, {"axis": None}, mxnet=False, why=SCALAR)
    nan = np.float32([[1, np.nan, 3, -np.inf], [np.nan, 2, np.inf, np.nan]])
    last = lambda x, is_ascend=True: np.sort(x) if is_ascend else np.sort(x)[:, ::-1]  # noqa: E731
    for rising in (True, False):
        yield Case("sort", (nan,), last, {"is_ascend": rising}, grad=False, mxnet=False, why=NAN)


def _tops():
    for ret_typ in ("indices", "value", "both"):
        for attrs in (
            {}, {"k": 2}, {"k": 3, "axis": 1}, {"k": 2, "is_ascend": True}, {"k": 0}, {"k": -1},
            {"k": 4, "axis": None}, {"k": 2, "axis": 0}, {"axis": None}, {"is_ascend": True},
        ):  # fmt: skip
            # The positions that 'both' gives are no numbers to differentiate.
            for x, grad in ((X, ret_typ == "value"), (TIES, False)):
                yield Case("topk", (x,), topk, {"ret_typ": ret_typ, **attrs}, grad=grad,
                           **stable(x, attrs.get("axis", -1)))  # fmt: skip
        for dtype in ("float16", "float64", "int32", "int64", "int8", "uint8"):
            x = draw((3, 5), 0, 9, dtype)
            yield Case("topk", (x,), topk, {"ret_typ": ret_typ, "k": 2}, grad=False)
        for dtype in ("float16", "float64", "int32", "int64", "uint8"):
            yield Case(
                "topk", (TIES,), topk, {"ret_typ": ret_typ, "k": 2, "dtype": dtype}, grad=False
            )
        yield Case("topk", (draw((3, 0, 2)),), topk, {"ret_typ": ret_typ}, grad=False, mxnet=False,
                   why=SCALAR)  # fmt: skip
        yield Case("topk", (draw((1, 1)),), topk, {"ret_typ": ret_typ}, grad=False)


def _along():
    inner = {"mxnet": False, "why": "an op of our own, for gradients"}

    def put(x, index, axis, shape):
        y = np.zeros(shape, x.dtype)
        np.put_along_axis(y, index.astype("int64"), x, axis)
        return y

    def first(x, axis, k, is_ascend):
        return np.take(order(x, axis), range(k), axis=axis)

    for axis in (0, 1, -1):
        index = order(X, axis)
        yield Case(
            "_take_along", (X, index), lambda x, i, axis: along(x, i, axis), {"axis": axis}, **inner
        )
        few = np.take(index, [0, 1], axis=axis)
        yield Case("_first", (X,), first, {"axis": axis, "k": 2, "is_ascend": True}, **inner)
        values = along(X, few, axis)
        yield Case("_put_along", (values, few), put, {"axis": axis, "shape": X.shape}, **inner)


ROWS: list[Case] = [*_sorts(), *_tops(), *_along()]

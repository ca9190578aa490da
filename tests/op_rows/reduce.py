"""Rows for reductions: sum ... min, norm, argmax, cumsum, and what their gradients use."""

from __future__ import annotations

import numpy as np

from op_rows.case import EDGE_SHAPES, Case, draw

EMPTY = "MXNet 1.9.1 fails on some empty arrays and then on whatever comes next"
SCALAR = "MXNet 1.9.1 knows no scalars outside its numpy mode"
OURS = "ours is the kinder one: see the docstring"


def named(x: np.ndarray, axis, exclude: bool = False) -> tuple[int, ...]:
    """The axes that an attribute names."""
    if axis is None or axis == ():
        return tuple(range(x.ndim))
    axes = [a % x.ndim for a in ((axis,) if isinstance(axis, int) else axis)]
    return tuple(a for a in range(x.ndim) if (a in axes) != exclude)


def reduction(f, dtype=None):
    """`f(x, axis, keepdims)` of NumPy with MXNet's attributes, (1,) for (), and its dtype."""

    def expect(x, axis=None, keepdims=False, exclude=False):
        y = np.asarray(f(x, axis=named(x, axis, exclude), keepdims=keepdims))
        y = y.reshape(1) if y.ndim == 0 and not keepdims else y
        return y.astype(dtype or x.dtype)

    return expect


def wide(f):
    """The same in double precision."""

    def g(x, **how):
        return f(x.astype("float64") if x.dtype.kind == "f" else x, **how)

    return g


def average(x, axis, keepdims):
    """np.mean, without a warning where there is nothing."""
    count = np.prod([x.shape[a] for a in axis])
    return x.sum(axis=axis, keepdims=keepdims) / (count or np.nan)


REDUCTIONS = {
    "sum": wide(np.sum), "mean": wide(average), "prod": wide(np.prod), "max": np.max,
    "min": np.min, "nansum": wide(np.nansum),
}  # fmt: skip
ATTRS = (
    {}, {"axis": 1}, {"axis": -1}, {"axis": (0, 2)}, {"axis": (2, 1), "keepdims": True},
    {"keepdims": True}, {"axis": ()}, {"axis": 1, "exclude": True},
    {"axis": (0, -1), "exclude": True, "keepdims": True}, {"axis": (0, 1, 2)},
    {"axis": (0, 1, 2), "exclude": True},
)  # fmt: skip


def spoilt(shape, dtype="float32") -> np.ndarray:
    """Numbers with some nan among them."""
    x = draw(shape, 0.5, 2.0, dtype)
    x.reshape(-1)[::3] = np.nan
    return x


def _ties(shape) -> np.ndarray:
    return draw(shape, 0, 3, "int32").astype("float32")


def _rows_of_reductions():
    for name, f in REDUCTIONS.items():
        x = draw((2, 3, 4), 0.5, 2.0)
        # All go the same way through the attributes, so two of them try everything.
        tried = name in ("sum", "max")
        for attrs in ATTRS if tried else ATTRS[::3]:
            yield Case(name, (x,), reduction(f), attrs)
        extreme = name in ("max", "min")
        for shape in EDGE_SHAPES:
            if extreme and 0 in shape:
                continue
            mxnet = bool(shape) and 0 not in shape
            why = SCALAR if not shape else EMPTY
            for attrs in ({}, {"axis": 0}, {"axis": -1, "keepdims": True})[: 3 if tried else 1]:
                if shape or "axis" not in attrs:
                    yield Case(name, (draw(shape),), reduction(f), attrs, mxnet=mxnet,
                               why="" if mxnet else why)  # fmt: skip
        for dtype in ("float16", "float64", "int32", "int64", "int8", "uint8")[
            :: 1 if tried else 2
        ]:
            x = draw((3, 5), 1, 4, dtype)
            rtol = 2e-3 if dtype == "float16" else 1e-6
            yield Case(name, (x,), reduction(f), {"axis": 1}, rtol=rtol, grad=False)
        counted = {"max": bool, "min": bool, "mean": "float32"}.get(name, "int64")
        yield Case(
            name, (draw((3, 5), dtype="bool"),), reduction(f, counted), {"axis": 0},
            mxnet=extreme, why="" if extreme else OURS,
        )  # fmt: skip
        nan = {} if name.startswith("nan") else {"grad": False}
        yield Case(name, (spoilt((4, 5)),), reduction(f), {"axis": 1}, **nan)
    for name in ("max", "min"):
        yield Case(name, (_ties((4, 5)),), reduction(REDUCTIONS[name]), {"axis": 1}, grad=False)
    for at in ((), (1,), (1, 3)):  # the gradient of a product is right beside zeros as well
        x = draw((3, 4), 0.5, 2.0)
        x[0, list(at)] = 0
        yield Case("prod", (x,), reduction(wide(np.prod)), {"axis": 1})
    # Small integers wrap around; half precision and means of integers do not lose count.
    yield Case("sum", (np.ones(300, "int8"),), lambda x: np.array([44], "int8"))
    yield Case("sum", (np.ones(5000, "float16"),), lambda x: np.array([5000], "float16"))
    yield Case("mean", (np.full(5000, 30, "float16"),), lambda x: np.array([30], "float16"),
               mxnet=False, why=OURS)  # fmt: skip
    yield Case("mean", (np.array([-1, -2, -2], "int32"),), lambda x: np.array([-1], "int32"))
    big = np.array([2**31 - 1] * 2, "int32")
    yield Case("mean", (big,), lambda x: x[:1], mxnet=False, why=OURS)
    # Long enough to be cut in pieces, along a kept axis, a reduced one, and flat.
    for shape, axis in (((2100, 1024), 0), ((2100, 1024), 1), ((3, 5, 2**18), None)):
        for name in ("sum", "max", "mean"):
            yield Case(
                name, (draw(shape),), reduction(REDUCTIONS[name]), {"axis": axis}, rtol=1e-4,
                atol=1e-3, grad=False, mxnet=False, why="the same as for small ones",
            )  # fmt: skip


def length(x, ord=2, axis=None, keepdims=False):
    """The norm in double precision."""
    x64 = np.abs(x.astype("float64"))
    y = (x64**ord).sum(axis=named(x, axis), keepdims=keepdims) ** (1 / ord)
    y = y.reshape(1) if y.ndim == 0 and not keepdims else y
    return y.astype(x.dtype)


def _rows_of_norms():
    x = draw((2, 3, 4), 0.5, 2.0)
    for order in (1, 2):
        for attrs in ({}, {"axis": 1}, {"axis": (0, 2)}, {"axis": -1, "keepdims": True},
                      {"keepdims": True}):  # fmt: skip
            yield Case("norm", (x,), length, {"ord": order, **attrs})
        for shape in EDGE_SHAPES:
            mxnet = bool(shape) and 0 not in shape
            yield Case("norm", (draw(shape),), length, {"ord": order}, mxnet=mxnet,
                       why="" if mxnet else EMPTY)  # fmt: skip
        for dtype in ("float16", "float64"):
            yield Case("norm", (draw((3, 5), dtype=dtype),), length, {"ord": order, "axis": 1},
                       rtol=2e-3 if dtype == "float16" else 1e-6)  # fmt: skip
        yield Case("norm", (draw((3, 5), 1, 9, "int32"),), length, {"ord": order},
                   mxnet=order == 1, why="" if order == 1 else OURS)  # fmt: skip
    for tiny in (1e-30, 1e30):
        for attrs in ({}, {"axis": 1}):
            yield Case("norm", (draw((3, 5), 1, 2) * np.float32(tiny),), length, attrs, atol=0,
                       grad=False)  # fmt: skip
    yield Case("norm", (draw((2100, 1024)),), length, rtol=1e-6, grad=False, mxnet=False,
               why="the same as for small ones")  # fmt: skip


def position(f):
    """argmax or argmin with MXNet's shapes and dtype."""

    def expect(x, axis=None, keepdims=False):
        y = np.asarray(f(x, axis=axis, keepdims=keepdims))
        return (y.reshape(1) if y.ndim == 0 else y).astype("int64" if x.dtype == bool else x.dtype)

    return expect


def running(a, axis=None):
    """cumsum in double precision."""
    wider = a.astype("float64") if a.dtype.kind == "f" else a
    return np.cumsum(wider, axis=axis).astype("int64" if a.dtype == bool else a.dtype)


def _rows_of_positions():
    for name, f in (("argmax", np.argmax), ("argmin", np.argmin)):
        for x in (draw((2, 3, 4)), _ties((2, 3, 4))):
            for attrs in ({}, {"axis": 1}, {"axis": -1, "keepdims": True}, {"axis": 0},
                          {"keepdims": True}):  # fmt: skip
                yield Case(name, (x,), position(f), attrs)
        for shape in ((1,), (1, 5), (7,), (4, 1, 3)):
            yield Case(name, (draw(shape),), position(f), {"axis": 0})
        yield Case(name, (draw((3, 0, 2)),), position(f), {"axis": 0}, mxnet=False, why=EMPTY)
        yield Case(name, (draw(()),), position(f), mxnet=False, why=SCALAR)
        for dtype in ("float16", "float64", "int32", "int64", "int8", "uint8"):
            yield Case(name, (draw((3, 5), 0, 9, dtype),), position(f), {"axis": 1})
        yield Case(name, (draw((3, 5), dtype="bool"),), position(f), {"axis": 1}, mxnet=False,
                   why=OURS)  # fmt: skip
        yield Case(name, (spoilt((4, 5)),), position(f), {"axis": 1})
        for shape, axis in (((1600, 1400), 1), ((1600, 1400), 0), ((2**21 + 5,), None)):
            yield Case(name, (draw(shape, -9, 9, "int32").astype("float32"),), position(f),
                       {"axis": axis}, mxnet=False, why="the same as for small ones")  # fmt: skip
    x = draw((2, 3, 4))
    for attrs in ({}, {"axis": 0}, {"axis": 1}, {"axis": 2}):
        yield Case("cumsum", (x,), running, attrs)
    yield Case("cumsum", (x,), running, {"axis": -1}, mxnet=False, why="MXNet 1.9.1 fails for -1")
    for shape in EDGE_SHAPES:
        mxnet = bool(shape) and 0 not in shape
        yield Case("cumsum", (draw(shape),), running, mxnet=mxnet, why="" if mxnet else EMPTY)
    for dtype in ("float64", "int32", "int64", "int8", "uint8", "bool"):
        yield Case("cumsum", (draw((2, 3), 0, 3, dtype),), running, {"axis": 1})
    yield Case("cumsum", (np.ones(5000, "float16"),), running, mxnet=False, why=OURS)
    for shape, axis in (((1100, 500), 0), ((1100, 500), 1), ((2, 5, 300), 1)):
        yield Case("cumsum", (draw(shape),), running, {"axis": axis}, rtol=1e-4, atol=1e-4,
                   grad=False, mxnet=False, why="the same as for small ones")  # fmt: skip


def _rows_of_helpers():
    inner = {"mxnet": False, "why": "an op of our own, for gradients"}

    def spread(x, kept, shape):
        return np.broadcast_to(x.reshape(kept), shape)

    for x, kept, shape in (
        (draw((3,)), (1, 3, 1), (2, 3, 4)), (draw((1,)), (1, 1), (2, 3)),
        (draw((3,)), (1, 3), (0, 3)), (draw((0, 2)), (1, 0, 2), (3, 0, 2)),
        (draw((6,)), (2, 3), (2, 3)), (draw((3,), dtype="float16"), (1, 3), (2, 3)),
    ):  # fmt: skip
        yield Case("_spread", (x,), spread, {"kept": kept, "shape": shape}, **inner)

    def sum_to(x, shape):
        x64 = x.astype("float64").sum(axis=tuple(range(x.ndim - len(shape))))
        axes = tuple(a for a, n in enumerate(shape) if n == 1)
        return x64.sum(axis=axes, keepdims=True).astype(x.dtype)

    for x, shape in (
        (draw((2, 3, 4)), (3, 4)), (draw((2, 3, 4)), (3, 1)), (draw((2, 3, 4)), (2, 1, 4)),
        (draw((2, 3)), ()), (draw((2, 3)), (2, 3)), (draw((0, 3)), (1, 3)), (draw((2, 0)), (2, 0)),
        (draw((1, 1, 3)), (3,)),
    ):  # fmt: skip
        yield Case("_sum_to", (x,), sum_to, {"shape": shape}, **inner)
    half = np.ones((5000, 2), "float16")
    yield Case("_sum_to", (half,), sum_to, {"shape": (2,)}, **inner)


ROWS: list[Case] = [
    *_rows_of_reductions(), *_rows_of_norms(), *_rows_of_positions(), *_rows_of_helpers(),
]  # fmt: skip

"""Rows of `ops/index.py` and `ops/subscript.py`."""

from __future__ import annotations

import itertools

import numpy as np

from op_rows.case import Case, draw

LOOSE = "we allow what MXNet refuses"

rng = np.random.default_rng(7)


def cut(index):
    """Index arrays as the ops read them: floats cut towards zero."""
    return np.trunc(index).astype(np.int64)


def ids(*shape, low=0, high=3, dtype="int32"):
    """Index arrays: integers in [low, high), the same each time. Rows with float ones have
    grad=False: the check moves every float input, and 1.9999 is index 1."""
    return rng.integers(low, high, shape).astype(dtype)


# -- take and Embedding ----------------------------------------------------------------------------


def take(a, indices, axis=0, mode="clip"):
    mode = "clip" if mode == "raise" else mode
    return np.take(a, cut(indices), axis=axis, mode=mode)


ROWS = [
    Case("take", (draw((3, 4, 5)), ids(*shape, low=-4, high=7)), take, {"axis": axis, "mode": mode})
    for shape in ((6,), (2, 3))
    for axis in (0, 1, -1)
    for mode in ("clip", "wrap")
]
ROWS += [Case("take", (draw((3, 2)), ids(5)), take, {"mode": "raise", "axis": 0})]
ROWS += [
    Case("take", (draw((3, 2), dtype=d), ids(4, dtype=i)), take, grad=d == "float64" or i[0] != "f")
    for d, i in itertools.chain(
        [(d, "int32") for d in ("float16", "float64", "int32", "int64", "int8", "uint8", "bool")],
        [("float32", i) for i in ("float16", "float32", "float64", "int64", "int8", "uint8")],
    )
]
ROWS += [
    Case("take", (draw(shape), ids(*index, high=1)), take, {"axis": axis})
    for shape, index, axis in (
        ((3,), (), 0),
        ((3, 0), (2,), 0),
        ((0, 2), (0,), 0),
        ((4, 1, 3), (2, 1), 1),
    )
]
ROWS += [
    Case(
        "Embedding",
        (ids(*shape, low=-1, high=5, dtype=d), draw((4, 3))),
        lambda x, w, input_dim, output_dim: take(w, x),
        {"input_dim": 4, "output_dim": 3},
        grad=d == "int32",
    )
    for shape, d in (((5,), "float32"), ((2, 3), "int32"))
]
ROWS += [
    Case(
        "Embedding",
        (ids(2, dtype="int32"), draw((4, 3), dtype=d)),
        lambda x, w, input_dim, output_dim, dtype: take(w, x),
        {"input_dim": 4, "output_dim": 3, "dtype": d},
        grad=False,
    )
    for d in ("float64", "float16", "int32")
]

# -- pick ------------------------------------------------------------------------------------------


def pick(data, index, axis=-1, keepdims=False, mode="clip"):
    n = data.shape[axis]
    kept = np.array(data.shape)
    kept[axis] = 1
    index = cut(index).reshape(kept)
    index = index % n if mode == "wrap" else np.clip(index, 0, n - 1)
    y = np.take_along_axis(data, index, axis)
    return y if keepdims or data.ndim == 1 else y.squeeze(axis)


ROWS += [
    Case(
        "pick",
        (draw((2, 3, 4)), ids(*shape, low=-3, high=8)),
        pick,
        {"axis": axis, "keepdims": keepdims, "mode": mode},
    )
    for axis, shape in ((0, (3, 4)), (1, (2, 1, 4)), (1, (2, 4)), (-1, (2, 3)), (2, (2, 3, 1)))
    for keepdims in (False, True)
    for mode in ("clip", "wrap")
]
ROWS += [
    Case("choose_element_0index", (draw((5, 3)), ids(5)), pick),
    Case("pick", (draw((4,)), ids(1)), pick, {"keepdims": True}),
    Case("pick", (draw((5, 3), dtype="int32"), ids(5, dtype="int64")), pick, grad=False),
    Case("pick", (draw((5, 3), dtype="float16"), ids(5, dtype="uint8")), pick, grad=False),
    Case("pick", (draw((3, 0, 2)), ids(0, 2)), pick, {"axis": 0}),
]


def added_up(select):
    """The gradient of a selection: what came back, added up where `select` took it from."""

    def expect(g, index, shape, axis, mode):
        y = np.zeros(shape, g.dtype)
        places = select(np.arange(y.size).reshape(shape), index, axis=axis, mode=mode)
        np.add.at(y.reshape(-1), places.ravel(), g.ravel())
        return y

    return expect


ROWS += [
    Case(name, (draw(g), ids(*index, low=-2, high=5)), added_up(select),
         {"shape": (2, 3, 4), "axis": axis, "mode": mode}, mxnet=False, why="our own")
    for name, select, g, index, axis in (
        ("_take_grad", take, (6, 3, 4), (6,), 0),
        ("_take_grad", take, (2, 3, 3, 2), (3, 2), 2),
        ("_pick_grad", pick, (3, 4), (3, 4), 0),
        ("_pick_grad", pick, (2, 3), (2, 3, 1), -1),
    )
    for mode in ("clip", "wrap")
]  # fmt: skip
ROWS += [
    Case("batch_take", (draw((5, 3), dtype=d), ids(5, low=-1, high=5, dtype="int32")), pick,
         grad=d == "float32", mxnet=d == "float32", why=LOOSE)
    for d in ("float32", "int32")
]  # fmt: skip
ROWS += [Case("batch_take", (draw((5, 3)), ids(5, high=3, dtype="int32").reshape(5, 1)),
              lambda a, i: pick(a, i[:, 0])[:, None])]  # fmt: skip


def fill(lhs, mhs, rhs):
    y = lhs.copy()
    for i, j in enumerate(cut(rhs)):
        if 0 <= j < y.shape[1]:
            y[i, j] = mhs[i]
    return y


ROWS += [
    Case("fill_element_0index", (draw((4, 3)), draw((4,)), ids(4, dtype="float32")), fill,
         grad=False),
    Case("fill_element_0index", (draw((4, 3)), draw((4,)), ids(4, low=-1, high=5)), fill,
         grad=False, mxnet=False, why="MXNet writes beside the array"),
]  # fmt: skip

# -- one_hot ---------------------------------------------------------------------------------------


def one_hot(indices, depth, on_value=1.0, off_value=0.0, dtype="float32"):
    hit = cut(indices)[..., None] == np.arange(depth)
    return np.where(hit, np.array(on_value).astype(dtype), np.array(off_value).astype(dtype))


ROWS += [
    Case("one_hot", (ids(*shape, low=-1, high=5, dtype=d),), one_hot, {"depth": 4})
    for shape, d in (((6,), "float32"), ((2, 3), "int32"), ((3, 1), "int64"), ((4,), "float16"))
]
ROWS += [
    Case("one_hot", (ids(5),), one_hot,
         {"depth": 3, "on_value": 8.5, "off_value": -1.5, "dtype": d})
    for d in ("float16", "float64", "int32", "int64", "int8")
]  # fmt: skip
ROWS += [
    Case("one_hot", (ids(*shape),), one_hot, {"depth": depth})
    for shape, depth in (((), 3), ((0,), 3), ((2,), 0), ((3, 0, 2), 2))
]

# -- x[key] in its plain form ----------------------------------------------------------------------

KEYS = [
    (((1, None, -1), (0, 3, 2), 2), (2, 3, 4), None, lambda x: x[::-1, ::2, 2]),
    ((1, None, (0, 0, 1), (0, 4, 1)), (2, 3, 4), None, lambda x: x[1, None, 0:0]),
    (((0, 2, 1), ("at", (3,))), (2, 3), [0, 0, -1], lambda x: x[:, [0, 0, -1]]),
    (
        (("at", (2, 1)), (0, 3, 1), ("at", (2,))), (2, 3, 4), [0, 1, 1, 1],
        lambda x: x[[[0], [1]], :, [1, 1]],
    ),
    ((None, 0, Ellipsis, ("at", (2,))), (2, 3), [1, 1], lambda x: x[None, 0, ..., [1, 1]]),
    ((("at", ()), (0, 3, 1)), (2, 3), [1], lambda x: x[np.array(1), :]),
]  # fmt: skip


def subscript(index):
    return lambda x, *arrays, key: index(x)


def subscript_grad(index, shape):
    def expect(g, *arrays, key, shape=shape):
        y = np.zeros(shape, g.dtype)
        places = index(np.arange(y.size).reshape(shape))
        np.add.at(y.reshape(-1), places.ravel(), g.ravel())
        return y

    return expect


for key, shape, indices, index in KEYS:
    x = draw(shape)
    arrays = () if indices is None else (np.array(indices),)
    ROWS += [
        Case("_getitem", (x, *arrays), subscript(index), {"key": key}, mxnet=False, why="our own"),
        Case(
            "_getitem_grad",
            (draw(index(x).shape), *arrays),
            subscript_grad(index, shape),
            {"key": key, "shape": shape},
            mxnet=False,
            why="our own",
        ),
    ]
ROWS += [
    Case(
        "_assign",
        (draw(shape, dtype=d),),
        lambda x, shape, dtype: np.broadcast_to(x, shape).astype(dtype),
        {"shape": (2, 3), "dtype": dtype},
        mxnet=False,
        why="our own",
    )
    for shape in ((2, 3), (3,), (2, 1), ())
    for d, dtype in (("float32", "float32"), ("float64", "int32"), ("int64", "uint8"))
]

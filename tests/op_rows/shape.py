"""Rows for shapes: reshape, transpose, broadcast and tile, diag, and what is known of a shape."""

from __future__ import annotations

import numpy as np

from op_rows.case import EDGE_SHAPES, Case, draw

SCALAR = "MXNet 1.9.1 knows neither scalars nor sizes of 0 outside its numpy mode"
OURS = "ours allows more: see the docstring"
X = draw((2, 3, 4))


def known(shape) -> dict:
    """Rows with scalars or sizes of 0 are not for MXNet."""
    return {} if shape and 0 not in shape else {"mxnet": False, "why": SCALAR}


def to(result):
    """Reshaped to what the codes should mean."""
    return lambda x, shape, reverse=False: x.reshape(result)


RESHAPES = [  # input shape, target, result
    *(((2, 3, 4), target, result) for target, result in (
        ((4, 0, 2), (4, 3, 2)), ((2, 0, 0), (2, 3, 4)), ((6, 1, -1), (6, 1, 4)), ((-1,), (24,)),
        ((-2,), (2, 3, 4)), ((2, -2), (2, 3, 4)), ((-2, 1, 1), (2, 3, 4, 1, 1)), (24, (24,)),
        ((-3, 4), (6, 4)), ((0, -3), (2, 12)), ((-3, -2), (6, 4)), ((0, -1, -2), (2, 3, 4)),
        ((-4, 1, 2, -2), (1, 2, 3, 4)), ((2, -4, -1, 3, -2), (2, 1, 3, 4)), ((-1, 0), (8, 3)),
        ((0, 0, -4, 2, 2), (2, 3, 2, 2)), ((0, 0, 0, -1), (2, 3, 4, 1)), ((-1, -3), (2, 12)),
        ((-4, -1, 2, -2), (1, 2, 3, 4)),
    )),
    ((2, 3, 4, 5), (-3, -3), (6, 20)), ((1,), (1, 1), (1, 1)),
]  # fmt: skip
RESHAPES_OF_EDGES = [
    ((), (1,), (1,)), ((), (-1,), (1,)), ((), (), ()), ((1,), (), ()), ((0,), (-1,), (0,)),
    ((3, 0, 2), (-1,), (0,)), ((3, 0, 2), (0, -1), (3, 0)), ((3, 0), (0, 0, 1, -1), (3, 0, 1, 1)),
    ((0, 4), (0, -1), (0, 4)), ((0, 4), (0, 2, 2), (0, 2, 2)), ((0, 4), (-1, 4), (0, 4)),
    ((3, 0, 2), (6, 0), (6, 0)), ((2, 3, 4), (-2, -1), (2, 3, 4, 1)),
    ((2, 3, 4), (0, -4, 3, 1, -1), (2, 3, 1, 4)),
]  # fmt: skip
REVERSED = [
    ((10, 5, 4), (-1, 0), (50, 4)), ((2, 3, 4), (6, 0), (6, 4)), ((2, 3, 4), (1, -2), (1, 2, 3, 4)),
    ((2, 3, 4, 6), (0, 0, 2, 2, -4, 0), (2, 3, 2, 2, 6)), ((2, 3, 4, 6), (-2, -3), (2, 3, 24)),
    ((2, 3, 4, 6), (0, 0, 0, 2, -1, -4), (2, 3, 4, 2, 3)), ((8, 3, 5), (-1, 4, 0, 0), (2, 4, 3, 5)),
]  # fmt: skip


def _reshapes():
    for shape, target, result in RESHAPES:
        yield Case("reshape", (draw(shape),), to(result), {"shape": target})
    for shape, target, result in RESHAPES_OF_EDGES:
        yield Case(
            "reshape", (draw(shape),), to(result), {"shape": target}, mxnet=False, why=SCALAR
        )
    for shape, target, result in REVERSED:
        yield Case("reshape", (draw(shape),), to(result), {"shape": target, "reverse": True})
    for shape, target, result in (
        ((1,), (), ()), ((), (1, 1), (1, 1)), ((2, 3), (-1,), (6,)), ((0, 4), (2, 0), (2, 0)),
        ((0, 3), (-1, 3), (0, 3)), ((2, 6), (3, -1, 2), (3, 2, 2)),
    ):  # fmt: skip
        yield Case("_np_reshape", (draw(shape),), lambda x, newshape, result=result:
                   x.reshape(result), {"newshape": target}, mxnet=False,
                   why="MXNet has this op only under NumPy's rules of shapes")  # fmt: skip
    yield Case("reshape_like", (X, draw((6, 4))), lambda a, b: a.reshape(6, 4))
    for shape in (*EDGE_SHAPES[1:], (2, 3), (2, 3, 4)):
        n = shape[0]
        rest = int(np.prod(shape[1:]))
        yield Case("flatten", (draw(shape),), lambda x, n=n, rest=rest: x.reshape(n, rest),
                   **known(shape))  # fmt: skip
    for shape, axis in (((2, 3), 0), ((2, 3), 2), ((2, 3), -1), ((2, 3), -3), ((1,), 1), ((), 0),
                        ((3, 0), 1)):  # fmt: skip
        yield Case("expand_dims", (draw(shape),), np.expand_dims, {"axis": axis}, **known(shape))

    def squeeze(x, axis=None):
        y = np.squeeze(x, axis)
        return y if y.ndim or not x.ndim else y.reshape(1)

    for axis in (None, 0, 2, -1, (0, 2), (0, -1), ()):
        yield Case("squeeze", (draw((1, 2, 1, 3, 1)),), squeeze, {"axis": axis})
    for shape in ((1, 1), (1,), (2, 3), (1, 0), ()):
        yield Case("squeeze", (draw(shape),), squeeze, **known(shape))


def _orders():
    def transposed(x, axes=()):
        return np.transpose(x, axes or None)

    for axes in ((), (0, 2, 1), (2, 0, 1), (1, 2, 0)):
        yield Case("transpose", (X,), transposed, {"axes": axes})
    yield Case("transpose", (X,), transposed, {"axes": (-1, 0, 1)}, mxnet=False, why=OURS)
    for shape in EDGE_SHAPES:
        yield Case("transpose", (draw(shape),), transposed, **known(shape))
    for dtype in ("float16", "int32", "uint8", "bool"):
        yield Case("transpose", (draw((2, 3), dtype=dtype),), transposed, mxnet=dtype != "bool",
                   why=OURS)  # fmt: skip
    for dim1, dim2 in ((0, 1), (0, 2), (-1, 0), (1, 1)):
        swapped = lambda x, dim1, dim2: np.swapaxes(x, dim1, dim2)  # noqa: E731
        yield Case("swapaxes", (X,), swapped, {"dim1": dim1, "dim2": dim2})

    def blocks(x, block_size):
        N, C, H, W = x.shape
        b = block_size
        y = x.reshape(N, b, b, C // b**2, H, W).transpose(0, 3, 4, 1, 5, 2)
        return y.reshape(N, C // b**2, H * b, W * b)

    def depths(x, block_size):
        N, C, H, W = x.shape
        b = block_size
        y = x.reshape(N, C, H // b, b, W // b, b).transpose(0, 3, 5, 1, 2, 4)
        return y.reshape(N, C * b**2, H // b, W // b)

    for block, shape in ((2, (2, 8, 2, 3)), (1, (1, 4, 2, 3)), (3, (1, 9, 1, 2))):
        x = draw(shape)
        yield Case("depth_to_space", (x,), blocks, {"block_size": block})
        yield Case("space_to_depth", (blocks(x, block),), depths, {"block_size": block})


def _broadcasts():
    x = draw((1, 3, 1, 2))
    to_shape = lambda x, shape: np.broadcast_to(x, shape)  # noqa: E731
    for shape, result in (
        ((4, 3, 1, 2), None),
        ((4, 0, 0, 0), (4, 3, 1, 2)),
        ((0, 3, 5, 0), (1, 3, 5, 2)),
    ):
        expect = lambda x, shape, r=result: np.broadcast_to(x, r or shape)  # noqa: E731
        yield Case("broadcast_to", (x,), expect, {"shape": shape})
    for shape, target in (((3,), (2, 3)), ((), (2, 2)), ((1, 0), (3, 0)), ((), ())):
        yield Case(
            "broadcast_to", (draw(shape),), to_shape, {"shape": target}, mxnet=False, why=OURS
        )
    yield Case("broadcast_to", (draw((1, 3), dtype="int8"),), to_shape, {"shape": (2, 3)})

    def along(x, axis, size):
        shape = list(x.shape)
        for a, n in zip(np.atleast_1d(axis), np.atleast_1d(size)):
            shape[a] = n
        return np.broadcast_to(x, shape)

    for name in ("broadcast_axis", "broadcast_axes"):
        for axis, size in ((0, 4), ((0, 2), (4, 5)), ((), ())):
            yield Case(name, (x,), along, {"axis": axis, "size": size})
    yield Case("broadcast_like", (x, draw((4, 3, 5, 2))), lambda a, b: np.broadcast_to(a, b.shape))

    for shape in ((2, 3), (2, 1, 3), (4,)):
        for reps in (2, (2, 3), (2, 1, 2), (1, 1), ()):
            yield Case("tile", (draw(shape),), np.tile, {"reps": reps})
        for repeats, axis in ((2, None), (3, 0), (2, -1), (1, 0)):
            yield Case("repeat", (draw(shape),), np.repeat, {"repeats": repeats, "axis": axis})
    for shape, reps in (((), (2,)), ((), ()), ((3, 0), (2,)), ((2, 3), (0,)), ((2, 3), (0, 2))):
        yield Case("tile", (draw(shape),), np.tile, {"reps": reps}, mxnet=False, why=SCALAR)
    for shape, axis, n in (((), None, 2), ((3, 0), 0, 2), ((3, 0), None, 2), ((2, 3), 1, 0)):
        yield Case("repeat", (draw(shape),), np.repeat, {"repeats": n, "axis": axis}, mxnet=False,
                   why=SCALAR)  # fmt: skip


def _diagonals():
    def diag(x, k=0):
        return np.diag(x, k) if x.ndim == 1 else np.diagonal(x, k)

    for k in (0, 1, -2):
        yield Case("diag", (draw((3,)),), diag, {"k": k})
    for k in (0, 1, 3, -1, -2):
        yield Case("diag", (draw((3, 4)),), diag, {"k": k})
    for attrs in ({}, {"k": 1}):
        yield Case("diag", (X,), diag, attrs)

    def undiag(g, shape, k):
        y = np.zeros(shape, g.dtype)
        planes = np.moveaxis(y, (0, 1), (-2, -1))
        for i in range(g.shape[-1]):
            planes[..., i + max(-k, 0), i + max(k, 0)] = g[..., i]
        return y

    for attrs in ({"k": 0}, {"k": -1}, {"k": 2}):
        g = diag(X, **attrs)
        yield Case("_undiag", (g,), undiag, {"shape": X.shape, **attrs}, mxnet=False,
                   why="an op of our own, for gradients")  # fmt: skip


def _facts():
    for shape in EDGE_SHAPES:
        x = draw(shape)
        yield Case("shape_array", (x,), lambda x: np.array(x.shape, "int64"), **known(shape))
        yield Case("size_array", (x,), lambda x: np.array([x.size], "int64"), **known(shape))


ROWS: list[Case] = [*_reshapes(), *_orders(), *_broadcasts(), *_diagonals(), *_facts()]

"""Rows for parts of arrays: slice, reverse, pad, concat, stack, split."""

from __future__ import annotations

import numpy as np

from op_rows.case import EDGE_SHAPES, Case, draw

SCALAR = "MXNet 1.9.1 knows neither scalars nor sizes of 0 outside its numpy mode"
OURS = "ours allows more: see the docstring"
HELPER = {"mxnet": False, "why": "an op of our own, for gradients"}
X = draw((3, 4))


def _key(begin, end, step=()):
    b, e = np.atleast_1d(np.array(begin, object)), np.atleast_1d(np.array(end, object))
    s = np.atleast_1d(np.array(step, object)) if step != () else [None] * len(b)
    return tuple(slice(*k) for k in zip(b, e, s))


def _slices():
    def sliced(x, begin, end, step=()):
        return x[_key(begin, end, step)]

    for begin, end, step in (
        ((0, 1), (2, 4), ()), ((None, 0), (None, 3), (-1, 2)), ((1,), (3,), ()),
        ((2,), (None,), (-1,)),
        ((-2, -3), (3, -1), ()), ((0,), (9,), ()), ((0, 0), (3, 4), (2, None)), (0, 2, ()),
        ((2, None), (0, None), (-1, None)), ((2,), (-4,), (-1,)), ((-1,), (None,), ()),
    ):  # fmt: skip
        yield Case("slice", (X,), sliced, {"begin": begin, "end": end, "step": step})
    yield Case("crop", (X,), sliced, {"begin": (0, 1), "end": (2, 4)})
    for begin, end, step in (
        ((-9,), (2,), ()),
        ((2,), (1,), ()),
        ((5,), (None,), (-1,)),
        ((), (), ()),
    ):
        yield Case("slice", (X,), sliced, {"begin": begin, "end": end, "step": step}, mxnet=False,
                   why=OURS)  # fmt: skip
    yield Case(
        "slice", (draw((3, 0)),), sliced, {"begin": (1,), "end": (2,)}, mxnet=False, why=SCALAR
    )

    def unslice(x, shape, begin, end, step=()):
        y = np.zeros(shape, x.dtype)
        y[_key(begin, end, step)] = x
        return y

    for shape, begin, end, step in (
        ((2, 3), (0, 1), (2, 4), ()), ((3, 2), (None, 0), (None, 3), (-1, 2)),
        ((0, 4), (2,), (1,), ()),
    ):  # fmt: skip
        attrs = {"shape": (3, 4), "begin": begin, "end": end, "step": step}
        yield Case("_unslice", (draw(shape),), unslice, attrs, **HELPER)

    def on_axis(x, axis, begin, end=None):
        return x[(slice(None),) * (axis % x.ndim) + (slice(begin, end),)]

    for axis, begin, end in ((0, 1, 3), (1, 0, 2), (1, -3, -1), (1, 1, None), (-1, 0, -1)):
        yield Case("slice_axis", (X,), on_axis, {"axis": axis, "begin": begin, "end": end})
    for axis, begin, end in ((0, 1, 1), (1, 4, None)):
        yield Case("slice_axis", (X,), on_axis, {"axis": axis, "begin": begin, "end": end},
                   mxnet=False, why=OURS)  # fmt: skip

    def flip(x, axis):
        return np.flip(x, axis)

    for name in ("reverse", "flip"):
        for axis in (0, 1, (0, 1)):
            yield Case(name, (X,), flip, {"axis": axis})
    yield Case("reverse", (X,), flip, {"axis": -1}, mxnet=False, why=OURS)
    for shape in EDGE_SHAPES[1:]:
        mxnet = 0 not in shape
        yield Case("reverse", (draw(shape),), flip, {"axis": 0}, mxnet=mxnet, why=SCALAR)


def _pads():
    def pad(x, mode, pad_width, constant_value=0.0):
        pairs = list(zip(pad_width[::2], pad_width[1::2]))
        how = {"constant_values": constant_value} if mode == "constant" else {}
        return np.pad(x, pairs, mode, **how)

    image = draw((2, 2, 3, 4))
    for mode in ("constant", "edge", "reflect"):
        for width in (
            (0, 0, 0, 0, 1, 2, 2, 1),
            (0,) * 8,
            (0, 0, 0, 0, 2, 2, 3, 3),
            (0, 0, 0, 0, 0, 1, 0, 0),
        ):
            attrs = {"mode": mode, "pad_width": width, "constant_value": 7}
            yield Case("pad", (image,), pad, attrs)
        yield Case("Pad", (draw((1, 1, 2, 3, 3)),), pad,
                   {"mode": mode, "pad_width": (0, 0, 0, 0, 1, 1, 2, 1, 0, 1)})  # fmt: skip
        yield Case("pad", (draw((1, 1, 3, 4), dtype="float64"),), pad,
                   {"mode": mode, "pad_width": (0, 0, 0, 0, 1, 2, 0, 3)})  # fmt: skip
    for shape, mode, width in (
        ((1, 1, 1, 0), "constant", (0, 0, 1, 2)), ((1, 1, 0, 3), "edge", (0, 0, 1, 1)),
    ):  # fmt: skip
        attrs = {"mode": mode, "pad_width": (0, 0, 0, 0, *width)}
        yield Case("pad", (draw(shape),), pad, attrs, mxnet=False, why=SCALAR)


def _joins():
    def concat(*xs, dim=1):
        return np.concatenate(xs, axis=dim)

    def stack(*xs, axis=0):
        return np.stack(xs, axis=axis)

    a, b, c = draw((2, 3)), draw((2, 4)), draw((2, 1))
    yield Case("concat", (a, b, c), concat)
    yield Case("Concat", (a, b), concat, {"dim": 1})
    yield Case("concat", (a, b), concat, {"dim": -1})
    yield Case("concat", (draw((2, 1, 3)), draw((2, 5, 3))), concat)
    yield Case("concat", (draw((3,)), draw((2,))), concat, {"dim": 0})
    for dtype in ("float16", "float64", "int32", "int8"):
        x = draw((2, 3), dtype=dtype)
        yield Case("concat", (x, x), concat, {"dim": 0})
    yield Case(
        "concat", (draw((0, 3)), a, draw((0, 3))), concat, {"dim": 0}, mxnet=False, why=SCALAR
    )
    for axis in (0, 1, -1):
        yield Case("stack", (a, draw((2, 3), seed=1)), stack, {"axis": axis})
    yield Case("stack", (a,), stack, {"axis": 2})
    for shape in EDGE_SHAPES:
        x = draw(shape)
        yield Case("stack", (x, x), stack, mxnet=bool(shape) and 0 not in shape, why=SCALAR)
    yield Case(
        "stack", (draw((700, 500)), draw((700, 500), seed=1)), stack, {"axis": 1}, grad=False
    )


def _splits():
    x = draw((2, 6, 2))

    def split(x, num_outputs, axis=1, squeeze_axis=False):
        parts = np.split(x, num_outputs, axis)
        return [p.squeeze(axis) for p in parts] if squeeze_axis else parts

    for attrs in (
        {"num_outputs": 2}, {"num_outputs": 1}, {"num_outputs": 3, "axis": -2},
        {"num_outputs": 2, "axis": -1}, {"num_outputs": 2, "axis": 0, "squeeze_axis": True},
        {"num_outputs": 6, "squeeze_axis": True},
    ):  # fmt: skip
        yield Case("split", (x,), split, attrs)
    yield Case("SliceChannel", (x,), split, {"num_outputs": 2, "axis": 1})

    def split_v2(x, indices_or_sections, axis=0, squeeze_axis=False):
        parts = np.split(x, indices_or_sections, axis)
        return [p.squeeze(axis) for p in parts] if squeeze_axis else parts

    for where, attrs in (
        (2, {}), (1, {}), (3, {"axis": 1}), (2, {"axis": -1}), ((1, 3), {"axis": 1}),
        ((), {"axis": 1}),
        (2, {"squeeze_axis": True}), ((1,), {"squeeze_axis": True}),
    ):  # fmt: skip
        yield Case("split_v2", (x,), split_v2, {"indices_or_sections": where, **attrs})
    for where in ((0, 2), (2, 2, 6)):
        attrs = {"indices_or_sections": where, "axis": 1}
        yield Case("split_v2", (x,), split_v2, attrs, mxnet=False, why=SCALAR)


ROWS: list[Case] = [*_slices(), *_pads(), *_joins(), *_splits()]

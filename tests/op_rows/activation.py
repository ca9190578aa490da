"""Rows of `ops/activation.py` and `ops/softmax.py`."""

from __future__ import annotations

from math import erf

import numpy as np

from op_rows.case import EDGE_SHAPES, Case, draw

UNKNOWN = "MXNet takes () and a size of 0 for unknown"


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def wide(function):
    """Computed in float64, returned in the input's dtype."""

    def expect(x, *others, **attrs):
        others = [o.astype("float64") for o in others]
        return np.asarray(function(x.astype("float64"), *others, **attrs)).astype(x.dtype)

    return expect


@wide
def activation(x, act_type):
    return {
        "relu": lambda: np.maximum(x, 0),
        "sigmoid": lambda: sigmoid(x),
        "tanh": lambda: np.tanh(x),
        "softrelu": lambda: np.logaddexp(x, 0),
        "softsign": lambda: x / (1 + abs(x)),
    }[act_type]()


@wide
def leaky(x, gamma=None, act_type="leaky", slope=0.25):
    if gamma is not None and gamma.size > 1 and x.ndim > 1:
        gamma = gamma.reshape(-1, *(1,) * (x.ndim - 2))
    normal = np.vectorize(lambda v: (1 + erf(v / 2**0.5)) / 2, otypes="d")
    alpha, scale = 1.6732632423543772848170429916717, 1.0507009873554804934193349852946
    return {
        "leaky": lambda: np.where(x > 0, x, slope * x),
        "prelu": lambda: np.where(x > 0, x, gamma * x),
        "elu": lambda: np.where(x > 0, x, slope * np.expm1(x)),
        "selu": lambda: scale * np.where(x > 0, x, alpha * np.expm1(x)),
        "gelu": lambda: x * normal(x),
    }[act_type]()


ROWS = []
for kind in ("relu", "sigmoid", "tanh", "softrelu", "softsign"):
    attrs = {"act_type": kind}
    ROWS += [
        Case("Activation", (draw(shape),), activation, attrs, mxnet=bool(np.prod(shape) and shape),
             why=UNKNOWN)
        for shape in ((2, 3), *EDGE_SHAPES)
    ] + [
        Case("Activation", (draw((3, 4), dtype=dtype),), activation, attrs, rtol=2e-3, atol=1e-4)
        for dtype in ("float16", "float64")
    ] + [
        Case("Activation", (np.float32([-1e4, -100, 0, 100, 1e4]),), activation, attrs, grad=False)
    ]  # fmt: skip

for kind in ("leaky", "elu", "selu", "gelu"):
    attrs = {"act_type": kind}
    ROWS += [
        Case("LeakyReLU", (draw(shape),), leaky, attrs, mxnet=bool(np.prod(shape) and shape),
             why=UNKNOWN)
        for shape in ((2, 3), *EDGE_SHAPES)
    ] + [
        Case("LeakyReLU", (draw((3, 4), dtype=dtype),), leaky, attrs, rtol=2e-3, atol=1e-3)
        for dtype in ("float16", "float64")
    ]  # fmt: skip
ROWS += [
    Case("LeakyReLU", (draw((2, 3)),), leaky, {"act_type": "elu", "slope": 1.5}),
]  # fmt: skip
for shape, gamma in (
    ((2, 3), (3,)), ((2, 3), (1,)), ((2, 3, 4), (3,)), ((2, 3, 4), (1, 3)), ((4,), (1,)),
    ((4,), (4,)),
):  # fmt: skip
    ROWS.append(Case("LeakyReLU", (draw(shape), draw(gamma)), leaky, {"act_type": "prelu"}))

# -- softmax --------------------------------------------------------------------------------------


def softmax(x, axis=-1, temperature=None, sign=1):
    z = sign * x.astype("float64") / (temperature or 1)
    e = np.exp(z - z.max(axis, keepdims=True, initial=-np.inf))
    return (e / e.sum(axis, keepdims=True)).astype(x.dtype)


def softmin(x, **attrs):
    return softmax(x, sign=-1, **attrs)


def log_softmax(x, **attrs):
    return np.log(softmax(x.astype("float64"), **attrs)).astype(x.dtype)


FAMILY = (("softmax", softmax), ("log_softmax", log_softmax), ("softmin", softmin))
for name, expect in FAMILY:
    ROWS += [
        Case(name, (draw(shape),), expect, mxnet=bool(np.prod(shape)), why=UNKNOWN)
        for shape in ((2, 3), (2, 3, 4), *EDGE_SHAPES)
        if shape
    ] + [
        Case(name, (draw((2, 3, 4)),), expect, attrs)
        for attrs in ({"axis": 0}, {"axis": 1}, {"axis": -2}, {"temperature": 2.0},
                      {"axis": 1, "temperature": 0.5})
    ] + [
        Case(name, (draw((3, 4), dtype=dtype),), expect, rtol=2e-3, atol=2e-3)
        for dtype in ("float16", "float64")
    ] + [
        Case(name, (100 * draw((3, 4)),), expect, rtol=1e-4, grad=False),
    ]  # fmt: skip


def softmax_output(x, label, **_):
    return softmax(x.reshape(len(x), -1)).reshape(x.shape)


HEAD = "its gradient stands for a loss: test_nn.py"
for attrs, shape, label in (
    ({}, (4, 3), np.float32([0, 2, 1, -1])),
    ({"grad_scale": 2.0}, (2, 3, 2), np.float32([0, 5])),
    ({}, (2, 3), draw((2, 3))),
):
    odd = "grad_scale" in attrs
    ROWS.append(
        Case("SoftmaxOutput", (draw(shape), label), softmax_output, attrs, grad=False,
             mxnet=not odd, why="MXNet wants more labels than there are softmaxes" if odd else HEAD)
    )  # fmt: skip


# -- cross-entropy of labels, each way one op --


def losses(x, label, axis=-1, sparse_label=True, batch_axis=0, scale=1.0):
    """The loss of each place, the axis of the classes kept, times what it counts."""
    x = x.astype("float64")
    x = x - np.log(np.exp(x).sum(axis, keepdims=True))
    if sparse_label:
        where = np.clip(label, 0, x.shape[axis] - 1).astype(int).reshape(np.delete(x.shape, axis))
        places = -np.take_along_axis(x, np.expand_dims(where, axis), axis)
    else:
        places = -(x * label.reshape(x.shape)).sum(axis, keepdims=True)
    return places * scale * places.shape[batch_axis] / max(places.size, 1)


def cross_entropy_mean(x, label, axis=-1, sparse_label=True, batch_axis=0, scale=1.0):
    places = losses(x, label, axis, sparse_label, batch_axis, scale)
    others = tuple(a for a in range(x.ndim) if a != batch_axis % x.ndim)
    return places.sum(others).astype(x.dtype)


ROWS += [
    Case("_softmax_cross_entropy", (draw(shape, dtype=dtype), label), cross_entropy_mean, attrs,
         mxnet=False, rtol=1e-2 if dtype == "float16" else 1e-4,
         atol=1e-3 if dtype == "float16" else 1e-5,
         why="MXNet has no such op: gluon_rows/loss.py compares the loss")
    for shape, dtype, label, attrs in (
        ((4, 3), "float32", draw((4,), -1, 5, "int32"), {}),
        ((4, 3), "float64", draw((4,), 0, 3, "int32"), {"scale": 0.5}),
        ((4, 3), "float16", draw((4,), 0, 3, "int32"), {}),
        ((0, 3), "float32", draw((0,), 0, 1, "int32"), {}),
        ((2, 3, 4), "float32", draw((2, 4), 0, 3, "int64"), {"axis": 1}),
        ((4, 3), "float32", draw((4, 3), 0, 1), {"sparse_label": False}),
    )
]  # fmt: skip

# -- squared errors, each way one op --


def square_mean(x, label, scale=1.0, batch_axis=0):
    squares = (x.astype("float64") - label.reshape(x.shape)) ** 2 * scale
    return squares.mean(tuple(a for a in range(x.ndim) if a != batch_axis % x.ndim)).astype(x.dtype)


ROWS += [
    Case("_squared_error", (draw(shape, dtype=dtype), draw(label, dtype=dtype, seed=2)),
         square_mean, attrs, mxnet=False, rtol=1e-2 if dtype == "float16" else 1e-5,
         why="MXNet has no such op: gluon_rows/loss.py compares the loss")
    for shape, dtype, label, attrs in (
        ((5,), "float32", (5, 1), {}),
        ((4, 1), "float32", (4,), {"scale": 0.5}),
        ((2, 3, 4), "float32", (6, 4), {"batch_axis": 1}),
        ((0, 3), "float32", (0, 3), {}),
    )
] + [
    Case("_squared_error", (draw((4, 3), dtype="int32"), draw((4, 3), dtype="int32", seed=1)),
         square_mean, mxnet=False, grad=False, why="as above"),
]  # fmt: skip

# -- gradients of activations, each one op --

ROWS += [
    Case(name, (draw(shape), draw(shape, seed=1)), expect, mxnet=False, why="MXNet has it inside")
    for name, expect in (
        ("_relu_backward", lambda g, y: g * (y > 0)),
        ("_sigmoid_backward", lambda g, y: g * y * (1 - y)),
        ("_tanh_backward", lambda g, y: g * (1 - y * y)),
    )
    for shape in (*EDGE_SHAPES, (4, 5))
]

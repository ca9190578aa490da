"""At the edges of dtypes a compiled net gives what the eager one gives, and both what is right.

`generators/rules.py` draws such programs; these are the ones that were wrong, and their like.
"""

from __future__ import annotations

import numpy as np
import pytest

import d2lmini
from d2lmini import autograd, nd
from d2lmini.base.dtypes import is_float
from d2lmini.gluon import nn


def pixels(F, x, b):
    """A bias for each channel, under a sum over 65,536 pixels."""
    return F.sum(F.broadcast_add(F.broadcast_to(x, shape=(1, 2, 256, 256)), b), axis=(2, 3))


# name -> (function of F and the inputs, dtype, inputs, what is right: the value, and the gradients
# for a head gradient of `g` each)
VALUES = {
    "a count that is no float16": (
        lambda F, x: F.sum(F.broadcast_to(x, shape=(70000,))), "float16", [[0.1]], [7000]),
    "the mean of an image": (
        lambda F, x: F.Pooling(
            F.broadcast_to(x, shape=(1, 1, 256, 280)), pool_type="avg", global_pool=True
        ), "float16", [[[[0.5]]]], [[[[0.5]]]]),
    "a condition that is 0 as an integer": (
        lambda F, x: F.where(F.full((2,), 0.5, dtype="int32"), x, -x), "float32", [[1, 2]],
        [-1, -2]),
    "a number that wraps": (
        lambda F, x: x + F.slice_axis(
            F.reshape(F.full((300, 300), 255, dtype="int8"), shape=-1), axis=0, begin=0, end=2
        ), "int8", [[1, 2]], [0, 1]),
    "a number that rounds to 1 in bfloat16": (
        lambda F, x: x * 1.003, "bfloat16", [[1, 250]], [1, 251]),
    "a factor of bfloat16": (lambda F, x: x * 1.5 * 0.25, "bfloat16", [[1, 2]], [0.375, 0.75]),
    "an integer that is no float64": (
        lambda F, x: F.cast(F.cast(x, dtype="float64"), dtype="int64"), "int64", [[2**53 + 1]],
        [2**53]),
    "a factor without which the sum overflows": (
        lambda F, x, c: F.sum(x * c), "float32", [[3e38, 3e38], [0.25]], [1.5e38]),
    "the sum of one zero": (
        lambda F, x: F.sum(F.expand_dims(x, axis=0), axis=0), "float32", [[-0.0]], [0.0]),
    "the larger of two zeros": (
        lambda F, x, y: F.concat(F.maximum(x, y), F.maximum(y, x), dim=0), "float32",
        [[-0.0], [0.0]], [0.0, -0.0]),
    "a negative zero, then zero": (
        lambda F, x: F.reciprocal(F.full((1,), -0.0) * 0 + F.full((1,), 0.0)) * x, "float32",
        [[1.0]], [np.inf]),
}  # fmt: skip

GRADIENTS = {
    "a bias of 65,536 pixels": (pixels, "float16", [[[[[0.0]], [[0.0]]]]] * 2, 1e-4, 6.55),
    "a mean of 65,536 pixels": (
        lambda F, x, b: pixels(F, x, b) / 256 / 256, "float16", [[[[[0.0]], [[0.0]]]]] * 2, 1, 1.0),
    "a mean": (
        lambda F, x: F.mean(F.broadcast_to(x, shape=(2, 70000)), axis=1), "float16", [[[0.5]]], 1,
        2.0),
    "the mean of an image": (
        lambda F, x: F.Pooling(
            F.broadcast_to(x, shape=(1, 1, 256, 280)), pool_type="avg", global_pool=True
        ), "float16", [[[[[0.5]]]]], 1, 1.0),
    "a word that occurs often": (
        lambda F, w: F.sum(F.Embedding(F.zeros((8000,)), w, input_dim=1, output_dim=1)),
        "float16", [[[0.5]]], 1, 8000.0),
}  # fmt: skip


def eager(net):
    return net


def hybridized(net):
    net.hybridize()
    return net


def lazy(net):
    def call(*inputs):
        with d2lmini.lazy():
            return net(*inputs)

    return call


modes = pytest.mark.parametrize("mode", [eager, hybridized, lazy])


@modes
@pytest.mark.parametrize("row", VALUES.values(), ids=VALUES)
def test_values(row, mode):
    function, dtype, inputs, right = row
    net = mode(nn.HybridLambda(function))
    for _ in range(2):
        got = net(*[nd.array(x, dtype=dtype) for x in inputs]).asnumpy()
        rounded = np.array(right).astype(got.dtype)
        if is_float(got.dtype):
            wide = rounded.astype("float64")
            np.testing.assert_allclose(got.astype("float64"), wide, rtol=1e-3)
            np.testing.assert_array_equal(np.signbit(got), np.signbit(rounded))
        else:
            np.testing.assert_array_equal(got, rounded)


@modes
@pytest.mark.parametrize("row", GRADIENTS.values(), ids=GRADIENTS)
def test_gradients(row, mode):
    function, dtype, inputs, g, right = row
    net = mode(nn.HybridLambda(function))
    for _ in range(2):
        arrays = [nd.array(x, dtype=dtype) for x in inputs]
        for x in arrays:
            x.attach_grad()
        with autograd.record():
            y = net(*arrays)
        y.backward(nd.full(y.shape, g, dtype=dtype))
        np.testing.assert_allclose(arrays[-1].grad.asnumpy().ravel(), right, rtol=2e-3)

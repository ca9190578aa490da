"""The gradient of normalization in one go: large arrays in pieces, halves, nothing at all."""

from __future__ import annotations

import numpy as np
import pytest
from op_rows import nn as plain

from d2lmini import autograd, engine, nd
from d2lmini.ops import normalization_backward as backward
from d2lmini.ops.core import registry

pytestmark = pytest.mark.usefixtures("small_pieces")

KINDS = {
    "BatchNorm": ((16, 96, 196), (1, 96, 1), (0, 2)),
    "LayerNorm": ((600, 512, 1), (1, 512, 1), (1,)),
    "InstanceNorm": ((64, 24, 196), (1, 24, 1), (2,)),
    "GroupNorm": ((64, 4, 6, 196), (1, 4, 6, 1), (2, 3)),
}


@pytest.fixture
def small_pieces(monkeypatch):
    monkeypatch.setattr(backward, "GRAIN", 1 << 16)


def drawn(shape, scale, dtype="float32"):
    """g, x (far from a mean of 0) and gamma."""
    rng = np.random.default_rng(0)
    arrays = rng.normal(size=shape), rng.normal(3, 2, size=shape), rng.uniform(0.5, 2, scale)
    return [a.astype(dtype) for a in arrays]


@pytest.mark.parametrize("kind", KINDS)
def test_several_pieces(kind):
    shape, scale, axes = KINDS[kind]
    assert np.prod(shape) > 4 * backward.GRAIN
    arrays = drawn(shape, scale)
    want = plain.normalize_backward(*(a.astype("float64") for a in arrays), axes, 1e-5)
    got = backward.normalize_backward.compute(np, *arrays, axes=axes, eps=1e-5)
    for a, b in zip(got, want):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5 * np.std(b))


def test_workers_do_not_change_a_bit():
    for shape, scale, axes in KINDS.values():
        arrays = drawn(shape, scale)

        def step(arrays=arrays, axes=axes):
            values = [nd.array(a) for a in arrays]
            return [a.asnumpy() for a in backward.normalize_backward(*values, axes=axes, eps=1e-5)]

        with engine.use("naive"):
            want = step()
        for workers in (1, 3):
            with engine.use("threaded", workers=workers, inline_below=0):
                for got, expected in zip(step(), want):
                    np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("gamma_dtype", ["float16", "float32"])
def test_halves_are_computed_in_float32(gamma_dtype):
    """Sums of thousands of numbers, which float16 itself could not hold."""
    g, x, gamma = drawn((64, 3, 256), (1, 3, 1), "float16")
    g, gamma = g + np.float16(1), gamma.astype(gamma_dtype)
    want = plain.normalize_backward(
        *(a.astype("float64") for a in (g, x, gamma)), (0, 2), 1e-3
    )  # fmt: skip
    got = backward.normalize_backward.compute(np, g, x, gamma, axes=(0, 2), eps=1e-3)
    assert [a.dtype for a in got] == ["float16", gamma_dtype, gamma_dtype]
    for a, b in zip(got, want):
        np.testing.assert_allclose(a, b, rtol=2e-3, atol=2e-3 * np.std(b))


def test_nothing_has_a_gradient_of_nothing():
    x = nd.zeros((0, 2, 3))
    x.attach_grad()
    parameters = [nd.ones(2) for _ in range(4)]
    for p in parameters[:2]:
        p.attach_grad()
    with autograd.record():
        y = registry["BatchNorm"](x, *parameters, fix_gamma=False)
    y.backward()
    assert x.grad.shape == (0, 2, 3)
    assert [p.grad.asnumpy().tolist() for p in parameters[:2]] == [[0, 0], [0, 0]]

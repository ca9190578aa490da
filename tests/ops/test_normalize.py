"""Normalizations of large arrays, computed in blocks: gradients, halves, nothing at all."""

from __future__ import annotations

import numpy as np
import pytest
from op_rows import nn as plain

from d2lmini import autograd, engine, nd
from d2lmini.ops.core import registry

#: Op -> shape of data, that of gamma beside a view of data, the view, the axes of the means.
KINDS = {
    "BatchNorm": ((16, 96, 14, 14), (1, 96, 1, 1), (16, 96, 14, 14), (0, 2, 3), {}),
    "LayerNorm": ((600, 512), (1, 512), (600, 512), (1,), {}),
    "InstanceNorm": ((64, 24, 14, 14), (1, 24, 1, 1), (64, 24, 14, 14), (2, 3), {}),
    "GroupNorm": ((64, 24, 196), (1, 4, 6, 1), (64, 4, 6, 196), (2, 3), {"num_groups": 4}),
}


def drawn(shape, n, dtype="float32"):
    """g, x (far from a mean of 0), gamma and beta."""
    rng = np.random.default_rng(0)
    arrays = rng.normal(size=shape), rng.normal(3, 2, size=shape), rng.uniform(0.5, 2, n)
    return [a.astype(dtype) for a in (*arrays, rng.normal(size=n))]


def gradients(kind, g, x, gamma, beta, attrs):
    """Those of data, gamma and beta, of the second of two equal calls."""
    op = registry[kind]
    values = [nd.array(a, dtype=a.dtype) for a in (x, gamma, beta)]
    for value in values:
        value.attach_grad()
    moving = [nd.zeros_like(values[1]), nd.ones_like(values[1])] if kind == "BatchNorm" else []
    how = {**attrs, "eps": 1e-5, **({"fix_gamma": False} if moving else {})}
    for _ in range(2):
        with autograd.record():
            y = op(*values, *moving, **how)
        y.backward(nd.array(g, dtype=g.dtype))
    return [value.grad.asnumpy() for value in values]


@pytest.mark.parametrize("kind", KINDS)
def test_large_arrays(kind):
    shape, scale, view, axes, attrs = KINDS[kind]
    g, x, gamma, beta = drawn(shape, np.prod(scale))
    wide = [a.astype("float64") for a in (g.reshape(view), x.reshape(view), gamma.reshape(scale))]
    want = plain.normalize_backward(*wide, axes, 1e-5)
    for got, expected in zip(gradients(kind, g, x, gamma, beta, attrs), want):
        expected = expected.reshape(got.shape)
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5 * np.std(expected))


@pytest.mark.parametrize("kind", KINDS)
def test_workers_do_not_change_a_bit(kind):
    shape, scale, _, _, attrs = KINDS[kind]
    arrays = drawn(shape, np.prod(scale))
    with engine.use("naive"):
        want = gradients(kind, *arrays, attrs)
    for workers in (1, 3):
        with engine.use("threaded", workers=workers, inline_below=0):
            for got, expected in zip(gradients(kind, *arrays, attrs), want):
                np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("gamma_dtype", ["float16", "float32"])
def test_halves_are_computed_in_float32(gamma_dtype):
    """Sums of thousands of numbers, which float16 itself could not hold."""
    g, x, gamma, beta = drawn((64, 3, 256), 3, "float16")
    g, gamma, beta = g + np.float16(1), gamma.astype(gamma_dtype), beta.astype(gamma_dtype)
    wide = [a.astype("float64") for a in (g, x, gamma.reshape(1, 3, 1))]
    want = plain.normalize_backward(*wide, (0, 2), 1e-5)
    got = gradients("BatchNorm", g, x, gamma, beta, {})
    assert [a.dtype for a in got] == ["float16", gamma_dtype, gamma_dtype]
    for a, b in zip(got, want):
        b = b.reshape(a.shape)
        np.testing.assert_allclose(a, b, rtol=2e-3, atol=2e-3 * np.std(b))

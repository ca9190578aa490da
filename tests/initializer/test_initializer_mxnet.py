"""Initializers against the real MXNet 1.9.1, where one is at hand (`make test-mxnet`).

The same program runs in both libraries. What is deterministic must be equal, what is drawn must
agree in mean, deviation and bounds.
"""

from __future__ import annotations

from math import sqrt

import numpy as np
import pytest
from oracle import Oracle

import d2lmini


def initialize(mx):
    """Arrays that initializers filled, and texts about them, by name; `mx` is either library."""
    init, nd = mx.init, mx.nd
    mx.random.seed(1)
    results, texts = {}, {}

    def fill(key, made, shape, name="a_weight", **desc):
        x = nd.full(shape, 7)
        try:
            made(init.InitDesc(name, **desc), x)
            results[key] = x.asnumpy()
        except Exception as problem:
            texts[key + " fails"] = type(problem).__name__

    names = [
        "weight",
        "a_bias",
        "a_gamma",
        "a_beta",
        "a_min",
        "a_max",
        "a_running_mean",
        "a_state",
        "weight_2",
        "x",
    ]
    for name in names:
        fill("exact constant " + name, init.Constant(3), (2, 3), name)
        for own in ("zeros", "ones", init.Constant(4).dumps()):
            fill(f"exact own {own} {name}", init.One(), (2,), name, attrs={"__init__": own})
    for shape in ((1, 1, 4, 4), (2, 3, 4, 4), (2, 2, 3, 3), (1, 2, 3, 5), (1, 1, 5, 5)):
        fill(f"exact bilinear {shape}", init.Bilinear(), shape)
    for size in (8, 10, 4):
        fill(f"exact lstmbias {size}", init.LSTMBias(2.0), (size,))
    fill("exact constant array", init.Constant(nd.array([1, 2, 3])), (2, 3))

    big = (200, 60, 5, 2)
    for scale in (0.07, 1.5):
        fill(f"drawn uniform {scale}", init.Uniform(scale), big)
        fill(f"drawn normal {scale}", init.Normal(scale), big)
    for kind in ("uniform", "gaussian"):
        for factor in ("avg", "in", "out"):
            for magnitude in (3, 2.34, 0.5):
                key = f"drawn xavier {kind} {factor} {magnitude}"
                fill(key, init.Xavier(kind, factor, magnitude), big)
    for factor in ("avg", "in", "out"):
        for slope in (0.25, 0.0, 1.0):
            fill(f"drawn msra {factor} {slope}", init.MSRAPrelu(factor, slope), big)
    fill("fails", init.Xavier(), (3,))
    fill("fails too", init.Xavier(factor_type="x"), (3, 3))

    for name in (
        "zeros",
        "zero",
        "ones",
        "one",
        "uniform",
        "normal",
        "xavier",
        "msraprelu",
        "bilinear",
        "lstmbias",
        "Xavier",
    ):
        texts["dumps " + name] = mx.initializer.create(name).dumps()
    texts["dumps constant"] = init.Constant(nd.array([1, 2])).dumps()
    texts["dumps normal"] = mx.initializer.create("normal", sigma=2).dumps()
    return results, texts


@pytest.fixture(scope="module")
def theirs(mxnet: Oracle) -> tuple[dict, dict]:
    return mxnet.ask(initialize)


@pytest.fixture(scope="module")
def mine() -> tuple[dict, dict]:
    return initialize(d2lmini)


def keys(mine: dict, theirs: dict, kind: str) -> list[str]:
    assert mine.keys() == theirs.keys()
    chosen = [key for key in mine if key.startswith(kind)]
    assert len(chosen) > 5
    return chosen


def test_texts_are_the_same(mine, theirs):
    assert mine[1] == theirs[1]


def test_what_is_not_drawn_is_equal(mine, theirs):
    for key in keys(mine[0], theirs[0], "exact"):
        np.testing.assert_allclose(mine[0][key], theirs[0][key], rtol=1e-6, err_msg=key)


def test_draws_have_the_same_mean_deviation_and_bounds(mine, theirs):
    for key in keys(mine[0], theirs[0], "drawn"):
        a, b = mine[0][key].ravel(), theirs[0][key].ravel()
        # Five standard errors of the difference of two means, and of two deviations.
        error = 5 * a.std() * sqrt(2 / a.size)
        assert abs(a.mean() - b.mean()) < error, key
        assert abs(a.std() - b.std()) < error, key
        if "uniform" in key:
            assert abs(a).max() == pytest.approx(abs(b).max(), rel=1e-3), key
        else:
            assert np.quantile(a, 0.99) == pytest.approx(np.quantile(b, 0.99), rel=0.03), key

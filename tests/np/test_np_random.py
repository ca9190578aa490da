"""`np.random` and `npx.random`: shapes, dtypes, moments, seeds, devices."""

from __future__ import annotations

import math

import numpy as onp
import pytest
from np_rows.draws import DRAWS
from oracle import Oracle

import d2lmini as mx
from d2lmini import np, npx
from d2lmini.gluon import HybridBlock


def draw(text: str):
    return eval(text, {"np": np, "npx": npx})


@pytest.mark.parametrize("text", DRAWS)
def test_moments(text):
    mx.random.seed(11)
    mean, variance = DRAWS[text]
    x = draw(text).asnumpy().astype("float64")
    error = math.sqrt(variance / x.size)
    assert abs(x.mean() - mean) < 5 * error
    assert x.var() == pytest.approx(variance, rel=0.15)


@pytest.mark.parametrize("text", DRAWS)
def test_same_seed_same_numbers(text):
    mx.random.seed(5)
    first = draw(text).asnumpy()
    second = draw(text).asnumpy()
    mx.random.seed(5)
    assert onp.array_equal(draw(text).asnumpy(), first)
    assert not onp.array_equal(first, second)


@pytest.mark.parametrize("text", DRAWS)
def test_shape_and_dtype_equal_mxnet(text, mxnet: Oracle):
    def kind(mx, text):
        mx.util.set_np()
        try:
            x = eval(text, {"np": mx.np, "npx": mx.npx})
            return x.shape, str(x.dtype)
        finally:
            mx.util.reset_np()

    x = draw(text)
    assert (x.shape, str(x.dtype)) == mxnet.ask(kind, text)


def test_gradients_reach_the_parameters():
    """A draw is loc + scale * noise, so loc and scale have gradients."""
    loc, scale = np.zeros(3), np.ones(3)
    loc.attach_grad()
    scale.attach_grad()
    with mx.autograd.record():
        y = np.random.normal(loc, scale)
    y.backward()
    assert loc.grad.tolist() == [1, 1, 1]
    onp.testing.assert_allclose(scale.grad.asnumpy(), y.asnumpy(), rtol=1e-6)


@pytest.mark.parametrize("text", DRAWS)
def test_a_hybridized_net_draws_anew_at_each_call(text):
    class Net(HybridBlock):
        def hybrid_forward(self, F, x):
            return x + eval(text, {"np": F.np, "npx": F.npx}) * 1.0

    net = Net()
    net.hybridize()
    with mx.util.np_array(), mx.util.np_shape():
        mx.random.seed(4)
        first, second = (net(np.zeros(())).asnumpy() for _ in range(2))
        mx.random.seed(4)
        again = net(np.zeros(())).asnumpy()
    assert not onp.array_equal(first, second)
    assert onp.array_equal(first, again)
    mean, variance = DRAWS[text]
    assert abs(first.mean() - mean) < 5 * math.sqrt(variance / first.size)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("np.random.randint(3, 1)", ValueError),
        ("np.random.multinomial(2, [0.9, 0.9, 0.1])", ValueError),
        ("np.random.normal(size='a')", ValueError),
        ("np.random.multinomial(2, [-0.5, 1.5])", ValueError),
        ("np.random.multinomial(2, [0.5, float('nan')])", ValueError),
        ("np.random.multinomial(-1, [0.5, 0.5])", ValueError),
    ],
)
def test_refused(text, error):
    with pytest.raises(error):
        draw(text)


#: Draws of which {} is a parameter, and what it must be.
PARAMETERS = {"np.random.normal(0, {})": "0 or more", "np.random.uniform(0, {})": "finite"}
OUTSIDE = {"0 or more": ("-1.0", "float('nan')"), "finite": ("float('inf')", "float('nan')")}
WRONG = [(text, number) for text, needs in PARAMETERS.items() for number in OUTSIDE[needs]]


@pytest.mark.parametrize(("text", "number"), WRONG)
def test_a_parameter_out_of_range_is_refused(text, number):
    with pytest.raises(ValueError, match=f"must be {PARAMETERS[text]}, got"):
        draw(text.format(number))

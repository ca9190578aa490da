"""Random arrays: the right distributions, the same bits under any schedule, errors at the wait."""

from __future__ import annotations

import numpy as np
import pytest

from d2lmini import MXNetError, cpu, engine, nd, random

N = 200_000

# call, mean, variance
DISTRIBUTIONS = {
    "uniform": (lambda **k: nd.random.uniform(2, 5, **k), 3.5, 9 / 12),
    "normal": (lambda **k: nd.random.normal(-1, 2, **k), -1.0, 4.0),
    "randn": (lambda shape, **k: nd.random.randn(*shape, loc=1, scale=3, **k), 1.0, 9.0),
    "random_uniform": (lambda **k: nd.random_uniform(low=0, high=2, **k), 1.0, 1 / 3),
}  # fmt: skip


@pytest.mark.parametrize("name", DISTRIBUTIONS)
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_distribution_has_its_mean_and_variance(name: str, dtype: str):
    draw, mean, variance = DISTRIBUTIONS[name]
    random.seed(11)
    x = draw(shape=(N,), dtype=dtype)
    assert x.shape == (N,) and x.dtype == np.dtype(dtype).type
    values = x.asnumpy().astype("float64")
    # Five standard errors; the variance's own error is taken from the sample's fourth moment.
    assert abs(values.mean() - mean) < 5 * (variance / N) ** 0.5 + 1e-3 * abs(mean)
    spread = (((values - mean) ** 2).var() / N) ** 0.5
    assert abs(values.var() - variance) < 5 * spread + 2e-3 * variance


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_same_seed_same_bits_under_any_schedule(name: str):
    draw = DISTRIBUTIONS[name][0]

    def bits() -> list[bytes]:
        random.seed(9)
        return [draw(shape=shape).asnumpy().tobytes() for shape in ((3,), (700, 1000), (5,))]

    first = bits()
    for options in ({"workers": 1}, {"workers": 4, "inline_below": 0.0}):
        with engine.use("threaded", **options):
            assert bits() == first
    with engine.use("naive"):
        assert bits() == first


def test_seeding_one_context_leaves_the_others():
    random.seed(1)
    first = nd.random.uniform(shape=(4,), ctx=cpu(1)).asnumpy()
    random.seed(1)
    random.seed(77, ctx=cpu(0))
    np.testing.assert_array_equal(nd.random.uniform(shape=(4,), ctx=cpu(1)).asnumpy(), first)


def test_shapes_and_defaults():
    assert nd.random.uniform().shape == (1,)
    assert nd.random.uniform(shape=3).shape == (3,)
    assert nd.random.uniform(0, 1, 3).shape == (3,)
    assert nd.random.uniform(shape=(0, 2)).shape == (0, 2)
    assert nd.random.randint(0, 5, shape=(2,)).dtype == np.int32
    assert nd.random.uniform(ctx=cpu(1)).context == cpu(1)
    out = nd.zeros((3, 4))
    assert nd.random.normal(5, 0, out=out) is out
    assert (out.asnumpy() == 5).all()


def test_randint_covers_its_range():
    random.seed(0)
    values = nd.random.randint(-3, 4, shape=(10_000,)).asnumpy()
    assert set(values.tolist()) == set(range(-3, 4))
    with pytest.raises(MXNetError, match="low must be less than high"):
        nd.random.randint(5, 5)


def test_multinomial_draws_by_the_probabilities():
    random.seed(4)
    p = np.array([[0.1, 0.2, 0.7], [1, 0, 0]], "float32")
    x, log_p = nd.random.multinomial(nd.array(p), shape=(20_000,), get_prob=True)
    assert x.shape == (2, 20_000) and x.dtype == np.int32
    shares = [(x.asnumpy()[0] == k).mean() for k in range(3)]
    np.testing.assert_allclose(shares, p[0], atol=0.02)
    assert (x.asnumpy()[1] == 0).all()
    np.testing.assert_allclose(log_p.asnumpy()[0], np.log(p[0])[x.asnumpy()[0]], rtol=1e-5)
    assert nd.random.multinomial(nd.array(p)).shape == (2,)
    assert nd.random.multinomial(nd.array(p[0])).shape == (1,)
    assert nd.random.multinomial(nd.array(p[0]), shape=(2, 3)).shape == (2, 3)


@pytest.mark.parametrize(
    ("draw", "message"),
    [
        (lambda: nd.random.normal(0, -1, shape=(2,)), "scale must be 0 or more, got -1"),
        (lambda: nd.random.uniform(2, 1, shape=(2,)), "high must be at least low=2.0, got 1"),
    ],
)
def test_bad_parameters_are_raised_at_the_wait(draw, message: str, engine_kind: str):
    x = draw()
    with pytest.raises(MXNetError, match=message) as caught:
        x.asnumpy()
    assert "issued at" in str(caught.value) and "noticed at" in str(caught.value)
    assert "test_random.py" in str(caught.value)

"""Initializers: what a name decides, the numbers, the registry, and that nobody waits."""

from __future__ import annotations

import logging
from math import sqrt

import numpy as np
import pytest

import d2lmini
from d2lmini import engine, gluon, init, nd
from d2lmini.initializer import InitDesc


@pytest.fixture(autouse=True)
def seed():
    d2lmini.random.seed(5)


def filled(initializer, shape, name="w_weight", dtype="float32", **desc):
    x = nd.full(shape, 7, dtype=dtype)
    initializer(InitDesc(name, **desc), x)
    return x.asnumpy()


# -- names ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "own", [init.Constant(4), "ones", '["constant", {"value": 4}]', init.Constant(4).dumps()]
)
def test_an_initializer_of_its_own_beats_the_name(own):
    expected = 1 if own == "ones" else 4
    assert (filled(init.Zero(), (2,), "h_bias", attrs={"__init__": own}) == expected).all()
    assert (filled(init.Zero(), (2,), "whatever", attrs={"__init__": own}) == expected).all()


def test_a_plain_string_is_a_name():
    x = nd.zeros(2)
    for name, value in (("a_moving_mean", 0), ("a_moving_var", 1), ("a_bias", 0), ("weight", 9)):
        x[:] = 5
        init.Constant(9)(name, x)
        assert (x.asnumpy() == value).all()


def test_wrong_arguments_are_type_errors():
    with pytest.raises(TypeError, match="name"):
        init.One()(3, nd.zeros(1))
    with pytest.raises(TypeError, match=r"NDArray.*ndarray"):
        init.One()(InitDesc("weight"), np.zeros(1))


# -- registry -------------------------------------------------------------------------------------


def test_create_says_what_there_is():
    with pytest.raises(ValueError, match=r"named 'gaussian'.*normal.*xavier"):
        init.create("gaussian")
    with pytest.raises(TypeError, match=r"init.Xavier\(\)"):
        init.create(init.Xavier)
    with pytest.raises(TypeError):
        init.create(3)
    with pytest.raises(ValueError, match="already an object"):
        init.create(init.One(), 3)
    with pytest.raises(TypeError):
        init.create("xavier", magnitudes=3)


@pytest.mark.parametrize(
    "made",
    [init.Zero(), init.One(), init.Constant(2.5), init.Constant([1, 2]), init.Uniform(0.3),
     init.Constant(nd.array([1, 2])), init.Constant(np.float32(3)), init.Normal(0.5),
     init.Xavier("gaussian", "in", 2.34),
     init.MSRAPrelu("out", 0.1), init.Bilinear(), init.LSTMBias(2.0)],
    ids=lambda made: type(made).__name__,
)  # fmt: skip
def test_dumps_and_create_go_round(made):
    again = init.create(made.dumps())
    assert type(again) is type(made)
    assert again.dumps() == made.dumps()
    assert again == made and hash(again) == hash(made)
    assert made != init.Normal(77)


# -- values ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(1, 1, 4, 4), (2, 3, 4, 4), (2, 2, 3, 3), (1, 2, 3, 5)])
def test_bilinear_is_the_formula_element_by_element(shape):
    f = np.ceil(shape[3] / 2)
    c = (2 * f - 1 - f % 2) / (2 * f)
    values = filled(init.Bilinear(), shape)
    for index in np.ndindex(shape):
        y, x = index[2:]
        assert values[index] == pytest.approx((1 - abs(x / f - c)) * (1 - abs(y / f - c)))


# -- draws ----------------------------------------------------------------------------------------

SHAPE = (200, 60, 5, 2)
IN, OUT = 600, 2000


def close(values, mean, deviation):
    """Mean and deviation of 120000 numbers, within five standard errors."""
    n = values.size
    assert abs(values.mean() - mean) < 5 * deviation / sqrt(n)
    assert abs(values.std() / deviation - 1) < 5 / sqrt(n)


@pytest.mark.parametrize("kind", ["uniform", "gaussian"])
@pytest.mark.parametrize(("factor", "size"), [("avg", (IN + OUT) / 2), ("in", IN), ("out", OUT)])
@pytest.mark.parametrize("magnitude", [3, 0.7])
def test_xavier(kind, factor, size, magnitude):
    values = filled(init.Xavier(kind, factor, magnitude), SHAPE)
    scale = sqrt(magnitude / size)
    if kind == "uniform":
        assert abs(values).max() <= scale * (1 + 1e-6)
    close(values, 0, scale / sqrt(3) if kind == "uniform" else scale)


def test_xavier_explains_what_it_cannot_do():
    with pytest.raises(ValueError, match=r"w_weight of shape \(3,\).*2 axes"):
        filled(init.Xavier(), (3,))
    with pytest.raises(ValueError, match="factor type 'x'"):
        filled(init.Xavier(factor_type="x"), (3, 3))
    with pytest.raises(ValueError, match="random type 'x'"):
        filled(init.Xavier(rnd_type="x"), (3, 3))


class Waits(d2lmini.instrument.Instrument):
    """Remembers every wait."""

    def __init__(self):
        self.kinds = []

    def wait(self, kind, target, site, begin_ns, end_ns):
        self.kinds.append(kind)


@pytest.mark.parametrize(
    "made",
    [init.Xavier(), init.Normal(), init.Constant([1] * 8), init.One(), init.LSTMBias()],
    ids=lambda made: type(made).__name__,
)  # fmt: skip
def test_no_initializer_waits(made):
    with engine.use("threaded", inline_below=0.0, workers=1):
        x = nd.zeros((8, 8))
        with d2lmini.instrument.listening(Waits()) as waits:
            made(InitDesc("a_weight"), x)
        assert waits.kinds == []
        x.wait_to_read()


def test_verbosity(caplog):
    net = gluon.nn.Dense(1, prefix="d_")
    with caplog.at_level(logging.INFO):
        net.initialize("one", verbose=True)
    assert caplog.messages[1] == "Initialized d_bias as zeros"

"""Initializers: what a name decides, the numbers, the registry, and that nobody waits."""

from __future__ import annotations

import logging
from math import sqrt

import numpy as np
import pytest

import d2lmini
from d2lmini import engine, init, nd
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
    ("name", "value"),
    [("a_weight", 3), ("weight", 3), ("a_bias", 0), ("a_gamma", 1), ("a_beta", 0), ("a_min", 0),
     ("a_max", 1)],
)  # fmt: skip
def test_the_end_of_a_name_decides(name, value):
    assert (filled(init.Constant(3), (2, 3), name) == value).all()


@pytest.mark.parametrize("name", ["state", "a_running_mean", "a_moving_var", "weight_2", ""])
def test_a_name_that_says_nothing_is_an_error(name):
    with pytest.raises(ValueError, match=r"Unknown initialization pattern.*weight, bias"):
        filled(init.One(), (2,), name)


@pytest.mark.parametrize(
    "own", [init.Constant(4), "ones", '["constant", {"value": 4}]', init.Constant(4).dumps()]
)
def test_an_initializer_of_its_own_beats_the_name(own):
    expected = 1 if own == "ones" else 4
    assert (filled(init.Zero(), (2,), "h_bias", attrs={"__init__": own}) == expected).all()
    assert (filled(init.Zero(), (2,), "whatever", attrs={"__init__": own}) == expected).all()


def test_the_description_remembers_the_initializer_of_all():
    desc = InitDesc("a_weight")
    assert desc == "a_weight" and desc.attrs == {} and desc.global_init is None
    everywhere = init.One()
    everywhere(desc, nd.zeros(1))
    assert desc.global_init is everywhere
    init.Zero()(desc, nd.zeros(1))
    assert desc.global_init is everywhere


def test_plain_strings_are_deprecated_and_know_more_names():
    x = nd.zeros(2)
    for name, value in (("a_moving_mean", 0), ("a_moving_var", 1), ("a_bias", 0), ("weight", 9)):
        x[:] = 5
        with pytest.warns(DeprecationWarning, match="InitDesc"):
            init.Constant(9)(name, x)
        assert (x.asnumpy() == value).all()


def test_wrong_arguments_are_type_errors():
    with pytest.raises(TypeError, match="name"):
        init.One()(3, nd.zeros(1))
    with pytest.raises(TypeError, match=r"NDArray.*ndarray"):
        init.One()(InitDesc("weight"), np.zeros(1))


# -- registry -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "kind"),
    [("zeros", init.Zero), ("zero", init.Zero), ("ones", init.One), ("one", init.One),
     ("xavier", init.Xavier), ("Xavier", init.Xavier), ("normal", init.Normal),
     ("uniform", init.Uniform), ("msraprelu", init.MSRAPrelu),
     ("bilinear", init.Bilinear), ("lstmbias", init.LSTMBias)],
)  # fmt: skip
def test_create_by_name(name, kind):
    assert type(init.create(name)) is kind


def test_create_takes_objects_settings_and_nothing():
    assert init.create("normal", sigma=2) == init.Normal(2)
    assert init.create("normal", 2) == init.Normal(2)
    assert init.create('{"initializer": "normal", "sigma": 2}') == init.Normal(2)
    with pytest.raises(ValueError, match="no initializer is named 'norm'"):
        init.create('["norm", {"sigma": 2}]')
    one = init.One()
    assert init.create(one) is one
    assert init.create(None) == init.Uniform()


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


def test_register_and_alias():
    @init.alias("steps", "slope")
    class Stairs(init.Initializer):
        def _init_weight(self, name, arr):
            arr[:] = nd.arange(arr.size).reshape(arr.shape)

    for name in ("Stairs", "steps", "slope"):
        assert type(init.create(name)) is Stairs
    assert (filled(init.create("stairs"), (2, 2)) == [[0, 1], [2, 3]]).all()
    with pytest.raises(TypeError, match="subclasses of Initializer"):
        init.register(int)

    def other():
        class Slope(init.Initializer):
            """Takes a name that another class has."""

        return Slope

    with pytest.warns(UserWarning, match="it takes the name 'slope'"):
        init.register(other())


# -- values ---------------------------------------------------------------------------------------


def test_constants():
    assert (filled(init.Zero(), (2, 3)) == 0).all()
    assert (filled(init.One(), (2, 3)) == 1).all()
    assert (filled(init.Constant(2.5), (2, 3)) == 2.5).all()
    for value in ([1, 2, 3], np.array([1, 2, 3]), nd.array([1, 2, 3])):
        assert (filled(init.Constant(value), (2, 3)) == [[1, 2, 3]] * 2).all()
    assert (filled(init.Constant(3), (2,), dtype="int32") == 3).all()
    assert init.Zeros is init.Zero and init.Ones is init.One


@pytest.mark.parametrize("shape", [(1, 1, 4, 4), (2, 3, 4, 4), (2, 2, 3, 3), (1, 2, 3, 5)])
def test_bilinear_is_the_formula_element_by_element(shape):
    f = np.ceil(shape[3] / 2)
    c = (2 * f - 1 - f % 2) / (2 * f)
    values = filled(init.Bilinear(), shape)
    for index in np.ndindex(shape):
        y, x = index[2:]
        assert values[index] == pytest.approx((1 - abs(x / f - c)) * (1 - abs(y / f - c)))


def test_lstm_bias_opens_the_forget_gate():
    own = {"__init__": init.LSTMBias(2.0).dumps()}
    assert filled(init.Xavier(), (8,), "h2h_bias", attrs=own).tolist() == [0, 0, 2, 2, 0, 0, 0, 0]


# -- draws ----------------------------------------------------------------------------------------

SHAPE = (200, 60, 5, 2)
IN, OUT = 600, 2000


def close(values, mean, deviation):
    """Mean and deviation of 120000 numbers, within five standard errors."""
    n = values.size
    assert abs(values.mean() - mean) < 5 * deviation / sqrt(n)
    assert abs(values.std() / deviation - 1) < 5 / sqrt(n)


def test_uniform_and_normal():
    values = filled(init.Uniform(0.3), SHAPE)
    assert -0.3 <= values.min() < -0.299 and 0.299 < values.max() < 0.3
    close(values, 0, 0.3 / sqrt(3))
    values = filled(init.Normal(0.3), SHAPE)
    close(values, 0, 0.3)
    assert values.max() > 1.0


@pytest.mark.parametrize("kind", ["uniform", "gaussian"])
@pytest.mark.parametrize(("factor", "size"), [("avg", (IN + OUT) / 2), ("in", IN), ("out", OUT)])
@pytest.mark.parametrize("magnitude", [3, 0.7])
def test_xavier(kind, factor, size, magnitude):
    values = filled(init.Xavier(kind, factor, magnitude), SHAPE)
    scale = sqrt(magnitude / size)
    if kind == "uniform":
        assert abs(values).max() <= scale * (1 + 1e-6)
    close(values, 0, scale / sqrt(3) if kind == "uniform" else scale)


@pytest.mark.parametrize("slope", [0.25, 0])
def test_msra_prelu(slope):
    close(filled(init.MSRAPrelu("in", slope), SHAPE), 0, sqrt(2 / (1 + slope**2) / IN))


def test_xavier_explains_what_it_cannot_do():
    with pytest.raises(ValueError, match=r"w_weight of shape \(3,\).*2 axes"):
        filled(init.Xavier(), (3,))
    with pytest.raises(ValueError, match="factor type 'x'"):
        filled(init.Xavier(factor_type="x"), (3, 3))
    with pytest.raises(ValueError, match="random type 'x'"):
        filled(init.Xavier(rnd_type="x"), (3, 3))


@pytest.mark.parametrize("made", [init.Uniform(), init.Normal(), init.Xavier()])
def test_half_precision_and_the_seed(made):
    d2lmini.random.seed(3)
    first = filled(made, (4, 5), dtype="float16")
    second = filled(made, (4, 5), dtype="float16")
    d2lmini.random.seed(3)
    assert first.dtype == np.float16
    assert (first == filled(made, (4, 5), dtype="float16")).all()
    assert (first != second).any()


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
    loud = init.Constant(3).set_verbosity(True)
    with caplog.at_level(logging.INFO):
        filled(loud, (2, 2))
        filled(loud, (2, 2), attrs={"__init__": "ones"})
        filled(loud.set_verbosity(True, lambda x: f"{x.size} numbers"), (2, 2), "a_bias")
        filled(loud.set_verbosity(), (2, 2))
    assert caplog.messages == [
        "Initialized w_weight as weight: 3.0",
        "Initialized w_weight as ones: 1.0",
        "Initialized a_bias as bias: 4 numbers",
    ]

"""`d2l.mxnet`: its names, functions on arrays, text, files and data."""

from __future__ import annotations

import warnings

import numpy
import pytest

from d2lmini import gluon, np, npx
from d2lmini.d2l import mxnet as d2l

# Names of chapters on other subjects than training and performance.
REFUSED = """
    BERTModel MTFraEng MultiHeadAttention RNNLM Seq2Seq TimeMachine TokenEmbedding Vocab
    load_data_imdb multibox_prior train_ch11""".split()


@pytest.fixture(autouse=True)
def np_mode():
    npx.set_np()
    yield
    npx.reset_np()


# -- names -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", REFUSED)
def test_a_name_that_is_left_out_says_why(name):
    with pytest.raises(
        AttributeError, match=rf"d2l\.{name} is left out of d2lmini, as are the book"
    ):
        getattr(d2l, name)


@pytest.mark.parametrize("name", d2l.__all__)
def test_every_name_leads_somewhere(name):
    assert getattr(d2l, name) is not None


# -- arrays.py -------------------------------------------------------------------------------------

X = numpy.arange(6, dtype="float32").reshape(2, 3) / 6


@pytest.mark.parametrize(
    ("name", "arguments", "expected"),
    [
        ("numpy", (), X),
        ("size", (), 6),
        ("reshape", ((3, 2),), X.reshape(3, 2)),
        ("to", (npx.cpu(1),), X),
        ("reduce_sum", (1,), X.sum(1)),
        ("reduce_mean", (0,), X.mean(0)),
        ("argmax", (1,), X.argmax(1)),
        ("astype", ("int32",), X.astype("int32")),
        ("transpose", (), X.T),
        ("expand_dims", (1,), X[:, None]),
        ("repeat", (2, 0), X.repeat(2, 0)),
        ("cosh", (), numpy.cosh(X)),
        ("sigmoid", (), 1 / (1 + numpy.exp(-X))),
        ("zeros_like", (), 0 * X),
        ("tensor", (), X),
    ],
)
def test_a_function_on_an_array(name, arguments, expected):
    result = getattr(d2l, name)(np.array(X), *arguments)
    numpy.testing.assert_allclose(getattr(result, "asnumpy", lambda: result)(), expected, rtol=1e-5)


# -- data.py ---------------------------------------------------------------------------------------


@pytest.fixture
def no_network(monkeypatch):
    """Fashion-MNIST can't be had."""

    def unreachable(**options):
        raise ConnectionError("no network")

    monkeypatch.setattr(gluon.data.vision, "FashionMNIST", unreachable)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Fashion-MNIST is replaced")
        yield


def test_digits_stand_in_for_fashion(no_network):
    pytest.importorskip("sklearn")
    data = d2l.FashionMNIST(batch_size=16, resize=(8, 8))
    X, y = next(iter(data.train_dataloader()))
    assert isinstance(X, np.ndarray) and X.shape == (16, 1, 8, 8) and y.dtype == "int32"
    assert float(X.min()) >= 0 and 0.5 < float(X.max()) <= 1
    assert data.text_labels([0, 9]) == d2l.get_fashion_mnist_labels([0, 9])
    assert data.text_labels([0]) == ["t-shirt"]
    train_iter, test_iter = d2l.load_data_fashion_mnist(32, resize=8)
    assert next(iter(test_iter))[0].shape == (32, 1, 8, 8) and len(train_iter) > len(test_iter)


def test_the_stand_in_is_told(no_network):
    pytest.importorskip("sklearn")
    with pytest.warns(UserWarning, match="replaced by scikit-learn's handwritten digits. no net"):
        d2l.load_data_fashion_mnist(32)

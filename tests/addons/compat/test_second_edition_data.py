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
        ("swapaxes", (0, 1), X.T),
        ("repeat", (2, 0), X.repeat(2, 0)),
        ("abs", (), X),
        ("sin", (), numpy.sin(X)),
        ("cosh", (), numpy.cosh(X)),
        ("sigmoid", (), 1 / (1 + numpy.exp(-X))),
        ("zeros_like", (), 0 * X),
        ("ones_like", (), 0 * X + 1),
        ("tensor", (), X),
    ],
)
def test_a_function_on_an_array(name, arguments, expected):
    result = getattr(d2l, name)(np.array(X), *arguments)
    numpy.testing.assert_allclose(getattr(result, "asnumpy", lambda: result)(), expected, rtol=1e-5)


def test_functions_that_make_and_join_arrays():
    a = d2l.arange(4).reshape(2, 2)
    assert d2l.concat([a, a], axis=1).shape == (2, 4) and d2l.stack([a, a]).shape == (2, 2, 2)
    assert d2l.matmul(a, d2l.eye(2)).asnumpy().tolist() == a.asnumpy().tolist()
    assert d2l.batch_matmul(d2l.ones((2, 1, 3)), d2l.ones((2, 3, 1))).asnumpy().ravel()[0] == 3
    assert d2l.to(a, npx.cpu(1)).ctx == npx.cpu(1)
    assert d2l.randn(2, 3).shape == d2l.rand(2, 3).shape == d2l.normal(0, 1, (2, 3)).shape
    assert d2l.linspace(0, 1, 5)[1] == 0.25 and d2l.tensor([1], dtype=d2l.int64).dtype == "int64"
    assert [grid.shape for grid in d2l.meshgrid(d2l.arange(2), d2l.arange(3))] == [(3, 2)] * 2
    assert d2l.nn_Module is gluon.nn.Block


# -- text.py ---------------------------------------------------------------------------------------


TEXT = "The Time Machine, by H. G. Wells [1898]\n" * 30


# -- files.py --------------------------------------------------------------------------------------


# -- data.py ---------------------------------------------------------------------------------------


def test_synthetic_regression_data():
    np.random.seed(0)
    w, b = np.array([2, -3.4]), 4.2
    data = d2l.SyntheticRegressionData(w, b, noise=0, num_train=10, num_val=6, batch_size=4)
    numpy.testing.assert_allclose(
        data.y.asnumpy(), data.X.asnumpy() @ [[2], [-3.4]] + 4.2, rtol=1e-4
    )
    assert [len(X) for X, _ in data.train_dataloader()] == [4, 4, 2]
    X, y = next(iter(data.val_dataloader()))
    assert (data.X[10:14] == X).asnumpy().all() and y.shape == (4, 1)
    X, y = d2l.synthetic_data(w, b, 50)
    assert X.shape == (50, 2) and y.shape == (50, 1)
    assert float(np.abs(d2l.linreg(X, w.reshape(-1, 1), b) - y).max()) < 0.1


def test_load_array():
    X, y = np.arange(10).reshape(5, 2), np.arange(5)
    assert [a.tolist() for _, a in d2l.load_array((X, y), 2, is_train=False)] == [
        [0, 1],
        [2, 3],
        [4],
    ]
    assert sorted(v for _, a in d2l.load_array((X, y), 2) for v in a.tolist()) == [0, 1, 2, 3, 4]
    assert d2l.get_dataloader_workers() == 0


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


def test_fashion_by_its_files(monkeypatch):
    images = np.array(numpy.arange(32, dtype="uint8").reshape(2, 4, 4, 1))
    files = gluon.data.ArrayDataset(images, numpy.array([1, 2], "int32"))
    monkeypatch.setattr(gluon.data.vision, "FashionMNIST", lambda train: files)
    data = d2l.FashionMNIST(batch_size=2, resize=(2, 2))
    X, y = next(iter(data.val_dataloader()))
    assert X.shape == (2, 1, 2, 2) and y.tolist() == [1, 2]
    assert float(X.max()) < 32 / 255
    with pytest.raises(NotImplementedError, match="defines no get_dataloader"):
        d2l.DataModule().train_dataloader()

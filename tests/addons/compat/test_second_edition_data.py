"""`d2l.mxnet`: its names and data."""

from __future__ import annotations

import warnings

import pytest

from d2lmini import gluon, np, npx
from d2lmini.d2l import mxnet as d2l


@pytest.fixture(autouse=True)
def np_mode():
    npx.set_np()
    yield
    npx.reset_np()


# -- names -----------------------------------------------------------------------------------------


def test_a_name_that_is_left_out_says_why():
    with pytest.raises(AttributeError, match=r"no 'Seq2Seq', and helpers of chapters on detection"):
        d2l.Seq2Seq


@pytest.mark.parametrize("name", d2l.__all__)
def test_every_name_leads_somewhere(name):
    assert getattr(d2l, name) is not None


# -- data ------------------------------------------------------------------------------------------


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

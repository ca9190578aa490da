"""`test_utils` and `runtime`: a check passes what is right, refuses what is wrong, says where.
`tests/ndarray/test_nd_programs.py` compares what tests of MXNet say with these helpers."""

from __future__ import annotations

import numpy as np
import pytest

import d2lmini as mx
from d2lmini import autograd, nd, runtime
from d2lmini import test_utils as tu


@pytest.mark.parametrize(
    ("a", "b", "options"),
    [
        ([1.0, 2.0], [1.0, 2.000001], {}),
        (nd.array([1, 2]), np.array([1, 2.0005]), {}),  # the coarser tolerance
        (np.ones(3, "float16"), np.ones(3) + 0.05, {}),
        (np.array([1.0, np.nan]), np.array([1.0, np.nan]), {"equal_nan": True}),
        (np.array([1.0, 2.0]), 1.5, {"atol": 0.6, "rtol": 0}),
        (np.ones((2, 3)), np.ones(3), {}),
    ],
)
def test_alike(a, b, options):
    tu.assert_almost_equal(a, b, **options)
    assert tu.almost_equal(a, b, **options)


@pytest.mark.parametrize(
    ("a", "b", "options", "words"),
    [
        (np.eye(2), np.ones((2, 2)), {"names": ("ours", "theirs")}, ["ours and theirs", "2 / 4"]),
        ([1, 2], [1, 3], {}, ["rtol=0, atol=0"]),
        ([1.0, np.nan], [1.0, np.nan], {}, ["a and b differ"]),
        (np.ones((2, 3)), np.ones(3), {"use_broadcast": False}, ["shapes"]),
    ],
)
def test_unlike_and_where(a, b, options, words):
    with pytest.raises(AssertionError) as caught:
        tu.assert_almost_equal(a, b, **options)
    assert all(word in str(caught.value) for word in words)
    options.pop("names", None)
    assert not tu.almost_equal(a, b, **options)


def test_the_default_context():
    before = mx.current_context()
    try:
        tu.set_default_context(mx.cpu(1))
        assert tu.default_context() == mx.cpu(1) == nd.ones(1).context
    finally:
        tu.set_default_context(before)


def test_random_arrays():
    np.random.seed(0)
    assert set(tu.rand_shape_nd(50, dim=3)) == {1, 2, 3}
    assert 0 in tu.rand_shape_nd(50, dim=1, allow_zero_size=True)
    x = tu.rand_ndarray((100, 100), dtype="float64")
    assert x.dtype == np.float64 and abs(x.asnumpy().std() - 1) < 0.05
    with pytest.raises(mx.MXNetError, match="row_sparse"):
        tu.rand_ndarray((3,), "row_sparse")
    one, (two, three) = tu.random_arrays((2, 3)), tu.random_arrays((4,), ())
    assert (one.shape, two.shape, three.shape, one.dtype) == ((2, 3), (4,), (), np.float32)


class _WrongSquare(autograd.Function):
    """A square whose gradient lacks the 2."""

    def forward(self, x):
        self.save_for_backward(x)
        return x * x

    def backward(self, g):
        return g * self.saved_tensors[0]


def test_numeric_gradient_finds_a_wrong_rule():
    x = np.array([1.0, 2.0, -1.5])
    tu.check_numeric_gradient(lambda x: x * x, [x], rtol=1e-2, atol=1e-2)
    with pytest.raises(AssertionError, match="numeric_0 and backward_0 differ"):
        tu.check_numeric_gradient(lambda x: _WrongSquare()(x), [x], rtol=1e-2, atol=1e-2)


def test_numeric_gradient_of_some_inputs_in_double():
    location = [np.random.rand(2, 3), np.random.rand(3, 2)]

    def f(a, b):
        return nd.dot(a, b), nd.stop_gradient(a) * a.sum()

    how = {"numeric_eps": 1e-4, "rtol": 1e-5, "atol": 1e-7, "dtype": np.float64}
    tu.check_numeric_gradient(f, location, grad_nodes=[1], **how)
    with pytest.raises(AssertionError, match="numeric_0"):
        tu.check_numeric_gradient(f, location, **how)


def test_numeric_gradient_of_something_random():
    """Every call draws the same numbers, in training mode as asked."""
    x = np.random.rand(4, 5) + 1
    tu.check_numeric_gradient(lambda x: nd.Dropout(x * x, p=0.5), [x], rtol=1e-2, atol=1e-2)


def test_numeric_gradient_of_a_symbol_with_states():
    s = mx.sym.BatchNorm(mx.sym.var("x"), fix_gamma=False, eps=1e-3, name="bn")
    location = [np.random.RandomState(0).rand(4, 2), np.ones(2) * 3, np.ones(2)]
    states = {"bn_moving_mean": np.array([0.5, 1]), "bn_moving_var": np.array([4.0, 1])}
    for given in (list(states.values()), states):
        tu.check_numeric_gradient(s, location, given, 1e-2, 0.05, 0.05)


def test_names_that_are_left_out():
    with pytest.raises(NotImplementedError, match=r"test_utils\.get_mnist is left out .*numpy\."):
        tu.get_mnist()
    assert not hasattr(tu, "__wrapped__") and not hasattr(tu, "pytestmark")


def test_features():
    features = runtime.Features()
    assert list(features)[:2] == ["CUDA", "CUDNN"] and len(features) == 32
    # Virtual GPUs need no CUDA.
    assert features.is_enabled("cuda") is features["CUDA"].enabled is False
    assert features.is_enabled("LAPACK") and not features.is_enabled("TVM_OP")
    assert [f.name for f in runtime.feature_list()] == list(features)
    assert "✔ LAPACK" in repr(features) and "✖ TVM_OP" in repr(features)
    with pytest.raises(RuntimeError, match=r"Feature 'NOPE' is unknown, known .*'CUDA'"):
        features.is_enabled("nope")

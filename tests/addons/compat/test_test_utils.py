"""`test_utils` and `runtime`: a check passes what is right, refuses what is wrong, says where."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

import d2lmini as mx
from d2lmini import autograd, nd, runtime
from d2lmini import test_utils as tu

# --- are two arrays alike ---


@pytest.mark.parametrize(
    ("a", "b", "options"),
    [
        ([1.0, 2.0], [1.0, 2.000001], {}),
        (nd.array([1, 2]), nd.array([1, 2.0005]), {}),  # float32: the coarser tolerance
        (nd.array([1, 2]), np.array([1, 2.0005]), {}),
        (np.ones(3, "float16"), np.ones(3) + 0.05, {}),
        ([1, 2], [1, 2], {}),
        (np.array([1.0, np.nan]), np.array([1.0, np.nan]), {"equal_nan": True}),
        (np.array([np.inf, 1]), np.array([np.inf, 1]), {}),
        (np.array([1.0, 2.0]), 1.5, {"atol": 0.6, "rtol": 0}),
        (np.zeros(0), np.zeros(0), {}),
        (3.0, 3.1, {"rtol": 0.1}),
        (np.ones((2, 3)), np.ones(3), {}),
    ],
)
def test_alike(a, b, options):
    tu.assert_almost_equal(a, b, **options)
    assert tu.almost_equal(a, b, **options)


@pytest.mark.parametrize(
    ("a", "b", "options", "words"),
    [
        (
            np.array([[1.0, 2.0], [3.0, 4.0]]),
            np.array([[1.0, 2.0], [3.0, 5.0]]),
            {"names": ("ours", "theirs")},
            ["ours and theirs", "1 of 4 elements (25 %)", "(1, 1): ours=4.0, theirs=5.0"],
        ),
        ([0.0, 0.0, 3.0], [0.1, 0.0, 9.0], {"atol": 0, "rtol": 1e-3}, ["2 of 3"]),
        ([1, 2], [1, 3], {}, ["rtol=0, atol=0", "(1,): a=2, b=3"]),
        ([2**62], [2**62 + 1], {}, ["1 of 1"]),
        ([1.0, np.nan], [1.0, np.nan], {}, ["(1,): a=nan, b=nan"]),
        ([1.0, np.nan], [1.0, 5.0], {"equal_nan": True}, ["(1,): a=nan, b=5.0"]),
        ([np.inf, 1.0], [-np.inf, 9.0], {}, ["2 of 2", "(0,): a=inf, b=-inf"]),
        (np.ones((2, 3)), np.ones(2), {}, ["a has shape (2, 3), b has shape (2,)"]),
        (np.ones((2, 3)), np.ones(3), {"use_broadcast": False}, ["shape (3,)"]),
        (True, False, {}, ["a=True, b=False"]),
        ([1.0, 5.0], [1.0, 1.0], {"rtol": {"float64": 1e-3}}, ["rtol=0.001"]),
    ],
)
def test_unlike_and_where(a, b, options, words):
    with pytest.raises(AssertionError) as caught:
        tu.assert_almost_equal(a, b, **options)
    for word in words:
        assert word in str(caught.value)


def test_the_largest_error_is_measured_by_the_tolerance():
    """2 against 1 is farther off than 1000 against 1010."""
    with pytest.raises(AssertionError, match=r"most at \(1,\): a=2.0, b=1.0, 100 times"):
        tu.assert_almost_equal([1000.0, 2.0], [1010.0, 1.0], rtol=0.01 * 0.9, atol=0.001)


def test_other_comparisons():
    tu.assert_almost_equal_with_err([1.0, 2, 3, 4], [1.0, 2, 3, 5], etol=0.25)
    with pytest.raises(AssertionError):
        tu.assert_almost_equal_with_err([1.0, 2, 3, 4], [1.0, 2, 3, 5], etol=0.2)
    tu.assert_almost_equal_ignore_nan([1.0, np.nan], [1.0, 3.0])
    with pytest.raises(AssertionError):
        tu.assert_almost_equal_ignore_nan([1.0, np.nan], [2.0, 3.0])
    tu.assert_allclose([np.nan], [np.nan])
    assert tu.same(nd.ones(3), np.ones(3)) and not tu.same(np.ones(3), np.ones((1, 3)))
    x = nd.arange(3)
    assert tu.same_array(x, x[0:3]) and not tu.same_array(x, x.copy())
    assert x.asnumpy().tolist() == [0, 1, 2]


def test_tolerances_are_those_of_mxnet():
    assert tu.default_rtols()[np.dtype("float32")] == 1e-4
    assert tu.default_atols()[np.dtype("float16")] == 1e-1
    assert tu.default_atols()[np.dtype("float64")] == 1e-20
    assert tu.default_rtols()[np.dtype("int32")] == 0
    assert tu.get_tols(nd.ones(1), np.ones(1), None, None) == (1e-4, 1e-3)
    assert tu.get_tols(nd.ones(1), np.ones(1), 0.5, None) == (0.5, 1e-3)
    assert (tu.get_rtol(), tu.get_atol(), tu.get_rtol(0.3), tu.get_etol()) == (1e-5, 1e-20, 0.3, 0)
    assert tu.effective_dtype(nd.ones(1)) == np.float32
    assert tu.default_numeric_eps()[np.dtype("float64")] == 2.0**-14


# --- samples ---


def test_shapes_and_arrays():
    np.random.seed(0)
    for _ in range(20):
        assert len(tu.rand_shape_nd(4, dim=3)) == 4
        assert set(tu.rand_shape_nd(50, dim=3)) == {1, 2, 3}
        a, b = tu.rand_shape_2d(2, 9)
        assert 1 <= a <= 2 and 1 <= b <= 9
        assert len(tu.rand_shape_3d()) == 3
    assert 0 in tu.rand_shape_nd(50, dim=1, allow_zero_size=True)
    x = tu.rand_ndarray((100, 100), dtype="float64")
    assert x.dtype == np.float64 and abs(x.asnumpy().std() - 1) < 0.05
    assert abs(tu.rand_ndarray((3,), modifier_func=lambda v: 70)).max().asscalar() < 10
    with pytest.raises(mx.MXNetError, match="row_sparse"):
        tu.rand_ndarray((3,), "row_sparse")
    one, (two, three) = tu.random_arrays((2, 3)), tu.random_arrays((4,), ())
    assert one.shape == (2, 3) and one.dtype == np.float32
    assert two.shape == (4,) and three.shape == ()
    (u,) = tu.random_uniform_arrays((1000,), low=2, high=3)
    assert 2 <= u.min() < 2.1 and 2.9 < u.max() < 3 and u.dtype == np.float32
    with pytest.raises(TypeError, match="mean"):
        tu.random_uniform_arrays((3,), mean=1)
    assert sorted(tu.random_sample(range(4), 4)) == [0, 1, 2, 3]
    x, y = tu.rand_coord_2d(3, 4, 7, 9)
    assert x == 3 and y in (7, 8)


def test_arrays_with_a_pattern():
    assert tu.create_vector(3).asnumpy().tolist() == [0, 1, 2]
    assert tu.create_2d_tensor(2, 3).asnumpy().tolist() == [[0, 0, 0], [1, 1, 1]]
    assert tu.assign_each(np.array([1.0, 2]), lambda v: v + 1).tolist() == [2, 3]
    assert tu.assign_each2(np.array([1.0]), np.array([5.0]), lambda v, w: v * w).tolist() == [5]
    assert tu.assign_each(np.array([1.0]), None).tolist() == [1]


def test_reductions():
    x = np.arange(24.0).reshape(2, 3, 4)
    assert np.array_equal(tu.np_reduce(x, (0, -1), True, np.sum), x.sum((0, 2), keepdims=True))
    assert tu.np_reduce(x, None, False, np.max) == 23
    assert np.array_equal(tu.np_reduce(x, 1, False, np.prod), x.prod(1))
    assert np.array_equal(tu.collapse_sum_like(x, (3, 1)), x.sum(axis=(0, 2)).reshape(3, 1))


# --- surroundings ---


def test_default_context():
    before = mx.current_context()
    assert tu.default_context() == before and tu.default_dtype() is np.float32
    try:
        tu.set_default_context(mx.cpu(1))
        assert tu.default_context() == mx.cpu(1) == nd.ones(1).context
    finally:
        tu.set_default_context(before)
    assert list(tu.list_gpus()) == list(range(mx.num_gpus()))


def test_environment():
    os.environ["D2LMINI_TEST_A"] = "old"
    try:
        with pytest.raises(KeyError):
            with tu.environment({"D2LMINI_TEST_A": None, "D2LMINI_TEST_B": "new"}):
                assert "D2LMINI_TEST_A" not in os.environ
                assert os.environ["D2LMINI_TEST_B"] == "new"
                raise KeyError
        assert os.environ["D2LMINI_TEST_A"] == "old" and "D2LMINI_TEST_B" not in os.environ
        with tu.environment("D2LMINI_TEST_A", "x"):
            assert os.environ["D2LMINI_TEST_A"] == "x"
        with pytest.raises(TypeError, match="must be a str or None"):
            with tu.environment("D2LMINI_TEST_A", 1):
                raise AssertionError("not reached")
    finally:
        del os.environ["D2LMINI_TEST_A"]
    with pytest.raises(TypeError, match="a name and a value"):
        with tu.environment("D2LMINI_TEST_A"):
            raise AssertionError("not reached")


def test_discard_stderr():
    program = (
        "import os, sys\n"
        "from d2lmini.test_utils import discard_stderr\n"
        "with discard_stderr():\n"
        "    print('by Python', file=sys.stderr)\n"
        "    os.write(2, b'by C')\n"
        "print('after', file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "after\n")


def test_retry():
    tries = []

    @tu.retry(3)
    def test(limit):
        """Its docstring."""
        tries.append(1)
        assert len(tries) >= limit
        return "passed"

    assert test(3) == "passed" and len(tries) == 3 and test.__doc__ == "Its docstring."
    with pytest.raises(AssertionError):
        test(7)
    assert len(tries) == 6
    with pytest.raises(AssertionError, match="at least once"):
        tu.retry(0)


def test_assert_exception():
    tu.assert_exception(nd.dot, mx.MXNetError, nd.ones((2, 3)), nd.ones((2, 3)))
    with pytest.raises(AssertionError, match="raised no ValueError"):
        tu.assert_exception(abs, ValueError, 1)
    with pytest.raises(TypeError):
        tu.assert_exception(abs, ValueError, "x")


# --- checks of functions ---


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


def test_numeric_gradient_by_name_of_some_inputs_in_double():
    location = {"a": np.random.rand(2, 3), "b": np.random.rand(3, 2)}

    def f(a, b):
        return nd.dot(a, b), nd.stop_gradient(a) * a.sum()

    tu.check_numeric_gradient(
        f, location, grad_nodes=["b"], numeric_eps=1e-4, rtol=1e-5, atol=1e-7, dtype=np.float64
    )
    with pytest.raises(AssertionError, match="numeric_a"):
        tu.check_numeric_gradient(f, location, numeric_eps=1e-4, rtol=1e-5, dtype=np.float64)


def test_numeric_gradient_of_something_random():
    """Every call draws the same numbers, in training mode as asked."""
    x = np.random.rand(4, 5) + 1
    tu.check_numeric_gradient(lambda x: nd.Dropout(x * x, p=0.5), [x], rtol=1e-2, atol=1e-2)


def test_forward():
    x = np.array([1.0, 4.0])
    (y,) = tu.check_symbolic_forward(nd.sqrt, [x], [np.sqrt(x)])
    assert isinstance(y, nd.NDArray) and y.shape == (2,)
    tu.check_symbolic_forward(lambda p, q: p - q, {"q": x, "p": 2 * x}, x)
    with pytest.raises(AssertionError, match=r"expected_0=1.0, forward_0=2.0"):
        tu.check_symbolic_forward(nd.sqrt, [x], [np.ones(2)])
    with pytest.raises(AssertionError, match="1 outputs, but 2 are expected"):
        tu.check_symbolic_forward(nd.sqrt, [x], [x, x])


@pytest.mark.parametrize("req", ["write", "add"])
def test_backward(req):
    x, g = np.array([1.0, 2.0]), np.array([3.0, 5.0])
    grads = tu.check_symbolic_backward(nd.square, [x], [g], [2 * x * g], grad_req=req)
    assert list(grads) == [0]
    if req == "write":
        assert np.allclose(grads[0].asnumpy(), 2 * x * g)
    with pytest.raises(AssertionError, match="backward_0"):
        tu.check_symbolic_backward(nd.square, [x], [g], [x * g], grad_req=req)


def test_backward_of_some_inputs():
    a, b = np.array([1.0, 2.0]), np.array([3.0, 4.0])
    grads = tu.check_symbolic_backward(
        lambda a, b: a * b, {"a": a, "b": b}, None, {"a": b}, grad_req={"a": "write", "b": "null"}
    )
    assert list(grads) == ["a"]


def test_symbols_are_checked_by_order_and_by_name():
    a, b = mx.sym.var("a"), mx.sym.var("b")
    s = mx.sym.elemwise_add(a * b, a, name="s")
    A, B = np.array([[1, 2.0]]), np.array([[3, 4.0]])
    ones = [np.ones((1, 2))]
    assert tu.simple_forward(s, a=A, b=B).tolist() == [[4, 10]]
    for location in ([A, B], {"b": B, "a": A}):
        for expected in ([A * B + A], {"s_output": A * B + A}):
            (y,) = tu.check_symbolic_forward(s, location, expected)
            assert y.asnumpy().tolist() == [[4, 10]]
        for req in ("write", "add", {"a": "write", "b": "add"}):
            grads = tu.check_symbolic_backward(s, location, ones, [B + 1, A], grad_req=req)
            assert list(grads) == ["a", "b"]
        tu.check_numeric_gradient(s, location, rtol=1e-2, atol=1e-2)
    grads = tu.check_symbolic_backward(s, [A, B], ones, {"a": B + 1}, grad_req={"a": "write"})
    assert list(grads) == ["a"]
    with pytest.raises(AssertionError, match="forward_0"):
        tu.check_symbolic_forward(s, [A, B], [A * B])
    with pytest.raises(AssertionError, match="backward_a"):
        tu.check_symbolic_backward(s, [A, B], ones, [B, A])
    with pytest.raises(ValueError, match="do not match"):
        tu.check_symbolic_forward(s, {"a": A, "c": B}, [A])


def test_symbols_with_states():
    s = mx.sym.BatchNorm(mx.sym.var("x"), fix_gamma=False, eps=1e-3, name="bn")
    location = [np.random.RandomState(0).rand(4, 2), np.ones(2) * 3, np.ones(2)]
    mean, var = np.array([0.5, 1]), np.array([4.0, 1])
    want = (location[0] - mean) / np.sqrt(var + 1e-3) * 3 + 1
    states = {"bn_moving_mean": mean, "bn_moving_var": var}
    for given in ([mean, var], states):
        tu.check_symbolic_forward(s, location, [want], aux_states=given, rtol=1e-4, atol=1e-4)
        tu.check_numeric_gradient(s, location, given, 1e-2, 0.05, 0.05)
    with pytest.raises(mx.MXNetError, match="aux_states must be"):
        tu.check_symbolic_forward(s, location, [want])
    types = [{"ctx": mx.cpu(0), "x": (4, 2), "type_dict": {}}, {"ctx": mx.cpu(1), "x": (4, 2)}]
    tu.check_consistency(s, types)


def test_what_is_neither_symbol_nor_function_says_so():
    for check in (tu.check_symbolic_forward, tu.check_numeric_gradient):
        with pytest.raises(TypeError, match="a Symbol, a function"):
            check("a symbol", [np.ones(2)], [np.ones(2)])
    with pytest.raises(mx.MXNetError, match="aux_states"):
        tu.check_symbolic_forward(nd.sqrt, [np.ones(2)], [np.ones(2)], aux_states={"mean": 1})


def test_consistency():
    settings = [
        {"ctx": mx.cpu(0), "x": (3, 4), "type_dict": {"x": t}}
        for t in ("float16", "float32", "float64")
    ]
    truth = tu.check_consistency(lambda x: nd.exp(x) * x, settings)
    assert [t.dtype for t in truth] == [np.float64] * 2

    def unlike(x):
        return x + (1.0 if x.dtype == np.float32 else 0.0)

    with pytest.raises(AssertionError, match="run_1_0"):
        tu.check_consistency(unlike, settings)


def test_simple_forward():
    assert tu.simple_forward(nd.square, data=np.array([2.0, 3.0])).tolist() == [4, 9]
    dropped = tu.simple_forward(lambda x: nd.Dropout(x, p=0.9), is_train=True, x=np.ones(1000))
    assert (dropped == 0).sum() > 800
    two = tu.simple_forward(lambda x: (x, x + 1), x=np.zeros(1))
    assert [y.tolist() for y in two] == [[0], [1]]


class _Optimizer:
    """A step of size `lr`, and a state that counts."""

    def __init__(self, lr, start=0):
        self.lr, self.start = lr, start

    def create_state_multi_precision(self, index, weight):
        return (nd.zeros(1) + self.start, None)

    def update_multi_precision(self, index, weight, grad, state):
        if isinstance(index, int):
            weight, grad, state = [weight], [grad], [state]
        for w, g, s in zip(weight, grad, state):
            w -= self.lr * g
            s[0][:] += 1


@pytest.mark.parametrize("ntensors", [1, 3])
def test_compare_optimizer(ntensors):
    tu.compare_optimizer(_Optimizer(0.1), _Optimizer(0.1), (3, 4), "float32", ntensors=ntensors)
    with pytest.raises(AssertionError):
        tu.compare_optimizer(_Optimizer(0.1), _Optimizer(0.2), (3,), "float32", ntensors=ntensors)
    with pytest.raises(AssertionError):
        tu.compare_optimizer(_Optimizer(0.1), _Optimizer(0.1, 5), (3,), "float32")
    tu.compare_optimizer(_Optimizer(0.1), _Optimizer(0.1, 5), (3,), "float32", compare_states=False)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("get_mnist", "left out of d2lmini.*load_data_digits"),
        ("rand_sparse_ndarray", "left out of d2lmini, as all of MXNet's sparse"),
        ("nothing", "test_utils has no 'nothing'; it has DummyIter, almost_equal"),
    ],
)
def test_names_that_are_not_there(name, words):
    with pytest.raises(AttributeError, match=words):
        getattr(tu, name)


# --- random numbers, executors ---


def test_generators_are_judged():
    pytest.importorskip("scipy")
    np.random.seed(1)
    buckets, probs = tu.gen_buckets_probs_with_ppf(lambda q: 2 * q, 4)
    fair, tilted = (
        (lambda n: np.random.uniform(0, 2, n)),
        (lambda n: np.random.uniform(0, 2, n) ** 1.1),
    )
    p, observed, expected = tu.chi_square_check(fair, buckets, probs, nsamples=4000)
    assert p > 0.01 and observed.sum() == 4000 and expected.tolist() == [1000] * 4
    assert tu.chi_square_check(tilted, buckets, probs, nsamples=4000)[0] < 0.01
    assert len(tu.verify_generator(fair, buckets, probs, nsamples=4000, nrepeat=3)) == 3
    with pytest.raises(AssertionError, match="0 of 3 p-values exceed"):
        tu.verify_generator(tilted, buckets, probs, nsamples=100000, nrepeat=3)
    dice = lambda n: nd.random.randint(0, 3, shape=n)  # noqa: E731
    assert tu.chi_square_check(dice, [0, 1, 2], [1 / 3] * 3, nsamples=3000)[0] > 1e-3
    with pytest.raises(ValueError, match="in none of the buckets"):
        tu.chi_square_check(dice, [0, 1], [0.5, 0.5], nsamples=3000)


def test_a_list_of_symbols_is_consistent():
    x = mx.sym.var("x")
    one, two, three = (f(x, name="y") for f in (mx.sym.tanh, mx.sym.tanh, mx.sym.exp))
    settings = [{"ctx": mx.cpu(), "x": (2, 3)}] * 2
    tu.check_consistency([one, two], settings)
    with pytest.raises(AssertionError, match="truth_0 and run_1_0 differ"):
        tu.check_consistency([one, three], settings)
    with pytest.raises(AssertionError, match="1 Symbols for 2 entries"):
        tu.check_consistency([one], settings)
    with pytest.raises(AssertionError, match="the same arguments and outputs"):
        tu.check_consistency([one, mx.sym.tanh(x, name="z")], settings)


def test_numeric_gradients_of_an_executor():
    x, scale = mx.sym.var("x"), mx.sym.var("scale")
    bound = (mx.sym.square(x) * scale).simple_bind(mx.cpu(), x=(2,), scale=(2,))
    place = {"x": np.array([3.0, 4.0]), "scale": np.array([1.0, 2.0])}
    grads = tu.numeric_grad(bound, place, eps=1e-2)
    tu.assert_almost_equal(grads["x"], np.array([6.0, 16.0]), 1e-2, 1e-2)
    tu.assert_almost_equal(grads["scale"], np.array([9.0, 16.0]), 1e-2, 1e-2)
    assert bound.arg_dict["x"].asnumpy().tolist() == [3, 4]


# --- runtime ---


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

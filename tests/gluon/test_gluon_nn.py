"""The layers of `gluon.nn`: gradients, engines, errors. The rows are those that
`test_gluon_rows.py` compares with the real MXNet."""

from __future__ import annotations

import numpy as np
import pytest
from gluon_rows.nn import ROWS
from gluon_rows.runner import Row, check_gradients, compare, examine_here

import d2lmini as mx
from d2lmini import autograd, engine, init, nd
from d2lmini.base import MXNetError
from d2lmini.gluon import nn

# -- every row ------------------------------------------------------------------------------------

SMOOTH = [row for row in ROWS if row.grad]


@pytest.mark.parametrize("row", SMOOTH, ids=[row.id for row in SMOOTH])
def test_gradients_are_slopes(row):
    """Of every input and parameter, while training and not."""
    for mode in {"train", "predict"} & {*row.modes}:
        assert check_gradients(row, mode) > 0


@pytest.mark.parametrize("row", ROWS, ids=[row.id for row in ROWS])
def test_engines_agree_to_the_bit(row):
    """And what is recorded outside of training equals what is not recorded."""
    with engine.use("threaded"):
        first = examine_here(row)
    with engine.use("naive"):
        second = examine_here(row)
    assert first.keys() == second.keys()
    for key in first.keys() - {"about"}:
        np.testing.assert_array_equal(first[key], second[key], err_msg=key)
        if key.startswith("infer/out") and "predict" in row.modes:
            np.testing.assert_array_equal(first[key], first[key.replace("infer", "predict")])


# -- the runner can fail -----------------------------------------------------------------------


class WrongGradient(autograd.Function):
    """y = x, with a gradient that is 1 % too large."""

    def forward(self, x):
        return x * 1

    def backward(self, g):
        return g * 1.01


def test_a_wrong_gradient_is_found():
    row = Row("nn.Lambda(lambda x: mx.wrong(x))", ((2, 3),))
    mx.wrong = lambda x: WrongGradient()(x)
    try:
        with pytest.raises(AssertionError, match="train/in/0"):
            check_gradients(row, "train")
    finally:
        del mx.wrong


@pytest.mark.parametrize(
    "key", ["about", "train/out/0", "predict/in/0", "train/grad/0:dense0_weight", "infer/out/0"]
)
def test_every_difference_is_found(key):
    row = Row("nn.Dense(2)")
    mine, theirs = examine_here(row), examine_here(row)
    compare(row, mine, theirs)
    if key == "about":
        theirs[key] = theirs[key].replace("-> 2", "-> 3")
    else:
        theirs[key] = theirs[key] + np.float32(1e-3)
    with pytest.raises(AssertionError):
        compare(row, mine, theirs)


# -- what is known before the first call, and after -----------------------------------------------


def fresh(build):
    """The net that `build` says; its first counter in names is 0 after `zeroed`."""
    return eval(build, {"nn": nn, "init": init, "nd": nd})


# -- what is wrong --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("build", "error", "words"),
    [
        ("nn.Dense(4, foo=1)", TypeError, r"^Dense\(\): .* 'foo'"),
        ("nn.Conv2D(4, (1, 2, 3))", AssertionError, "kernel_size must be a number or a list of 2"),
        ("nn.Conv1D(4, 'a')", AssertionError, "kernel_size .* 'a'"),
        ("nn.Conv1D(4, 3, layout='NCHW')", AssertionError, "Only supports 'NCW' layout"),
        ("nn.Conv2D(4, 3, layout='NHWC')", AssertionError, "Only supports 'NCHW' layout"),
        ("nn.Conv2D(4, 3, strides=(1, 1, 1))", AssertionError, "strides .* list of 2 ints"),
        ("nn.Conv2D(4, 3, groups=3)", MXNetError, "groups=3 must divide channels=4"),
        (
            "nn.Conv1DTranspose(4, 3, output_padding=1)",
            MXNetError,
            r"output_padding=\(1,\) must be less than strides=\(1,\)",
        ),
        ("nn.MaxPool2D((1, 2, 3))", AssertionError, "pool_size must be a number or a list of 2"),
        ("nn.AvgPool3D(layout='NCHW')", AssertionError, "Only supports 'NCDHW' layout"),
        ("nn.LeakyReLU(-1)", AssertionError, "no less than 0"),
        ("nn.Lambda(3)", ValueError, "Unrecognized function in lambda: 3"),
        ("nn.Lambda('nothing')", AssertionError, "nothing is not found in symbol/ndarray"),
        ("nn.HybridLambda(3)", ValueError, "Unrecognized function in lambda: 3"),
        ("nn.HybridLambda('nothing')", AssertionError, "nothing is not found in symbol/ndarray"),
        ("nn.ReflectionPad2D((1, 2))", AssertionError, "eight"),
    ],
)
def test_errors_of_the_constructor(build, error, words):
    with pytest.raises(error, match=words):
        fresh(build)


@pytest.mark.parametrize(
    ("build", "shape", "words"),
    [
        ("nn.Dense(4, in_units=3)", (2, 5), r"weight .*\(4, 3\)"),
        ("nn.Dense(4, activation='foo')", (2, 5), "act_type"),
        ("nn.Dropout(2)", (2, 5), "p must be from 0 to 1"),
        ("nn.Conv2D(4, 3)", (2, 5), r"a kernel of 2 axes needs data NCHW, got \(2, 5\)"),
        ("nn.Conv2D(4, 3, in_channels=2)", (2, 5, 5, 5), r"\(4, 2, 3, 3\)"),
        ("nn.BatchNorm(3)", (2, 5), "BatchNorm: axis=3 is out of range"),
        ("nn.LayerNorm(2)", (2, 5), "LayerNorm: axis=2 is out of range"),
        ("nn.InstanceNorm()", (2, 5), "three axes"),
        ("nn.GroupNorm(2)", (2, 5, 3), "num_groups=2"),
    ],
)
def test_errors_of_the_call(build, shape, words):
    """At the call, whether the shapes were known before or not."""
    net = fresh(build)
    net.initialize()
    with autograd.train_mode(), pytest.raises((MXNetError, ValueError), match=words):
        net(nd.ones(shape))


# -- Dropout --------------------------------------------------------------------------------------


def test_dropout_drops_only_in_training():
    net = nn.Dropout(0.3)
    x = nd.ones((200, 100))
    np.testing.assert_array_equal(net(x).asnumpy(), x.asnumpy())
    mx.random.seed(1)
    with autograd.train_mode():
        y = net(x).asnumpy()
    assert set(np.unique(y)) == {np.float32(0), np.float32(1 / 0.7)}
    assert abs((y == 0).mean() - 0.3) < 0.02
    assert nn.Dropout(0, prefix="no_")(mx.sym.var("x")).name.startswith("no_identity")


# -- BatchNorm ------------------------------------------------------------------------------------


def test_batchnorm_keeps_float32_parameters_for_float16():
    net = nn.BatchNorm()
    net.initialize()
    net.cast("float16")
    y = net(nd.ones((2, 3), dtype="float16"))
    assert y.dtype == np.float16
    assert {np.dtype(p.dtype).name for p in net.collect_params().values()} == {"float32"}
    net.cast("float64")
    assert net(nd.ones((2, 3), dtype="float64")).dtype == np.float64

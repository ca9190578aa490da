"""The layers of `gluon.nn`: gradients, deferred shapes, names, reprs, errors, and how many ops a
call costs. The rows are those that `test_gluon_rows.py` compares with the real MXNet."""

from __future__ import annotations

import re

import numpy as np
import pytest
from gluon_rows.nn import ROWS
from gluon_rows.runner import Row, check_gradients, compare, examine_here, examine_in
from oracle import Oracle, OracleError

import d2lmini as mx
from d2lmini import autograd, engine, init, instrument, nd
from d2lmini.base import MXNetError
from d2lmini.gluon import nn
from d2lmini.ops.core import registry

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


class Spy:
    """`nd`, and what was taken from it."""

    def __init__(self):
        self.taken = set()

    def __getattr__(self, name):
        self.taken.add(name)
        return getattr(nd, name)


@pytest.mark.parametrize("row", ROWS, ids=[row.id for row in ROWS])
def test_layers_use_only_ops(row):
    """So that `F` can be `sym`: everything a layer takes from it has the name of an op."""
    from gluon_rows import peer

    scope = peer.names(mx)
    net = eval(row.build, scope)
    net.initialize()
    xs = [nd.array(a, dtype=a.dtype) for a in row.arrays()]
    net.cast(row.dtype)
    expected = peer.forward(scope, row.plain(), net, xs)
    if not hasattr(net, "hybrid_forward") or row.call != "net(*x)":
        return
    spy = Spy()
    own = {name: p.data() for name, p in net._reg_params.items()}
    got = net.hybrid_forward(spy, *xs, **own)
    np.testing.assert_array_equal(got.asnumpy(), expected[0].asnumpy())
    assert spy.taken <= registry.keys()


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


def test_a_net_that_mxnet_refuses_is_an_error(mxnet: Oracle):
    with pytest.raises(OracleError, match="no attribute 'Dance'"):
        examine_in(mxnet, Row("nn.Dance(2)"))


# -- what is known before the first call, and after -----------------------------------------------


def fresh(build):
    """The net that `build` says; its first counter in names is 0 after `zeroed`."""
    return eval(build, {"nn": nn, "init": init, "nd": nd})


def zeroed(text):
    return re.sub(r"\b([a-z]+(?:2d)?)\d+_", r"\g<1>0_", text)


@pytest.mark.parametrize(
    ("build", "shape", "before", "after"),
    [
        ("nn.Dense(4)", (2, 3, 5), {"weight": (4, 0), "bias": (4,)}, {"weight": (4, 15)}),
        ("nn.Dense(4, flatten=False)", (2, 3, 5), {"weight": (4, 0), "bias": (4,)},
         {"weight": (4, 5)}),
        ("nn.Dense(4, use_bias=False)", (2, 3), {"weight": (4, 0)}, {"weight": (4, 3)}),
        ("nn.Embedding(5, 3)", (2,), {"weight": (5, 3)}, {}),
        ("nn.PReLU(in_channels=3)", (2, 3), {"alpha": (3,)}, {}),
        ("nn.Conv1D(4, 3)", (2, 3, 7), {"weight": (4, 0, 3), "bias": (4,)}, {"weight": (4, 3, 3)}),
        ("nn.Conv2D(4, (3, 2), groups=2)", (2, 6, 7, 7), {"weight": (4, 0, 3, 2), "bias": (4,)},
         {"weight": (4, 3, 3, 2)}),
        ("nn.Conv3D(4, 1, use_bias=False)", (2, 3, 1, 1, 1), {"weight": (4, 0, 1, 1, 1)},
         {"weight": (4, 3, 1, 1, 1)}),
        ("nn.Conv2DTranspose(4, 3, groups=2)", (2, 6, 7, 7), {"weight": (0, 2, 3, 3), "bias": (4,)},
         {"weight": (6, 2, 3, 3)}),
        ("nn.BatchNorm()", (2, 3),
         {"gamma": (0,), "beta": (0,), "running_mean": (0,), "running_var": (0,)},
         {"gamma": (3,), "beta": (3,), "running_mean": (3,), "running_var": (3,)}),
        ("nn.LayerNorm()", (2, 3), {"gamma": (0,), "beta": (0,)}, {"gamma": (3,), "beta": (3,)}),
        ("nn.InstanceNorm(-1)", (2, 3, 5), {"gamma": (0,), "beta": (0,)},
         {"gamma": (5,), "beta": (5,)}),
        ("nn.GroupNorm(3)", (2, 6, 5), {"gamma": (3,), "beta": (3,)}, {}),
    ],
)  # fmt: skip
def test_shapes_are_completed_by_the_first_input(build, shape, before, after):
    net = fresh(build)
    net.initialize()
    own = net._reg_params

    def shapes():
        return {name: p.shape for name, p in own.items()}

    assert shapes() == before
    for name in after:
        with pytest.raises(mx.gluon.parameter.DeferredInitializationError):
            own[name].data()
    net(nd.ones(shape))
    assert shapes() == before | after
    assert all(p.data().shape == p.shape for p in own.values())


@pytest.mark.parametrize(
    ("build", "names"),
    [
        ("nn.Dense(4, activation='relu')", "dense0_weight dense0_bias"),
        ("nn.Embedding(4, 2)", "embedding0_weight"),
        ("nn.Conv2D(4, 3)", "conv0_weight conv0_bias"),
        ("nn.Conv3DTranspose(4, 3, use_bias=False)", "conv0_weight"),
        ("nn.PReLU()", "prelu0_alpha"),
        ("nn.BatchNorm()", "batchnorm0_gamma batchnorm0_beta batchnorm0_running_mean "
                           "batchnorm0_running_var"),
        ("nn.BatchNormReLU(center=False)", "batchnormrelu0_gamma batchnormrelu0_beta "
                               "batchnormrelu0_running_mean batchnormrelu0_running_var"),
        ("nn.LayerNorm()", "layernorm0_gamma layernorm0_beta"),
        ("nn.InstanceNorm()", "instancenorm0_gamma instancenorm0_beta"),
        ("nn.GroupNorm()", "groupnorm0_gamma groupnorm0_beta"),
        ("nn.Dense(4, prefix='out_')", "out_weight out_bias"),
    ],
)  # fmt: skip
def test_names_of_parameters(build, names):
    assert [zeroed(name) for name in fresh(build).collect_params()] == names.split()


@pytest.mark.parametrize(
    ("build", "prefix"),
    [
        ("nn.Activation('tanh')", "tanh0_"),
        ("nn.Dense(2, activation='relu').act", "dense0_relu_"),
        ("nn.Conv1D(2, 1, activation='relu').act", "conv0_relu_"),
        ("nn.MaxPool2D()", "pool0_"),
        ("nn.GlobalAvgPool1D()", "pool0_"),
        ("nn.Flatten()", "flatten0_"),
        ("nn.ReflectionPad2D(1)", "reflectionpad2d0_"),
        ("nn.HybridLambda('relu')", "hybridlambda0_"),
    ],
)
def test_prefixes(build, prefix):
    assert zeroed(fresh(build).prefix) == prefix


def test_what_learns_nothing_has_no_gradient():
    def without(net):
        return [name for name, p in net._reg_params.items() if p.grad_req == "null"]

    assert without(nn.BatchNorm()) == ["running_mean", "running_var"]
    assert without(nn.BatchNorm(center=False)) == ["beta", "running_mean", "running_var"]
    assert without(nn.BatchNorm(scale=False)) == ["gamma", "running_mean", "running_var"]
    assert without(nn.LayerNorm(scale=False)) == ["gamma"]
    assert without(nn.InstanceNorm()) == ["gamma"]
    assert without(nn.GroupNorm(center=False)) == ["beta"]


def test_running_statistics_stay_without_gradient():
    net = nn.BatchNorm(in_channels=2)
    net.collect_params().setattr("grad_req", "add")
    assert net.running_mean.grad_req == net.running_var.grad_req == "null"
    assert net.gamma.grad_req == "add"


POOL = "padding=(0, 0), ceil_mode=False, global_pool=False, pool_type=max, layout=NCHW"


@pytest.mark.parametrize(
    ("build", "text"),
    [
        ("nn.Dense(4)", "Dense(None -> 4, linear)"),
        ("nn.Dense(4, 'relu', in_units=3)", "Dense(3 -> 4, Activation(relu))"),
        ("nn.Dropout(0.5)", "Dropout(p = 0.5, axes=())"),
        ("nn.Embedding(9, 4)", "Embedding(9 -> 4, float32)"),
        ("nn.Flatten()", "Flatten"),
        ("nn.Lambda('tanh')", "Lambda(tanh)"),
        ("nn.HybridLambda(lambda F, x: x)", "HybridLambda(<lambda>)"),
        ("nn.Activation('relu')", "Activation(relu)"),
        ("nn.LeakyReLU(0.1)", "LeakyReLU(0.1)"),
        ("nn.GELU()", "GELU(\n\n)"),
        ("nn.Conv2D(4, 3)", "Conv2D(None -> 4, kernel_size=(3, 3), stride=(1, 1))"),
        (
            "nn.Conv2D(4, (3, 2), 2, 1, 2, 2, activation='tanh', use_bias=False, in_channels=6)",
            "Conv2D(3 -> 4, kernel_size=(3, 2), stride=(2, 2), padding=(1, 1), dilation=(2, 2), "
            "groups=2, bias=False, Activation(tanh))",
        ),
        ("nn.Conv1DTranspose(4, 3)", "Conv1DTranspose(4 -> 0, kernel_size=(3,), stride=(1,))"),
        ("nn.MaxPool2D()", f"MaxPool2D(size=(2, 2), stride=(2, 2), {POOL})"),
        ("nn.MaxPool2D(3, 1)", f"MaxPool2D(size=(3, 3), stride=(1, 1), {POOL})"),
        (
            "nn.GlobalAvgPool1D()",
            "GlobalAvgPool1D(size=(1,), stride=(1,), padding=(0,), ceil_mode=True, "
            "global_pool=True, pool_type=avg, layout=NCW)",
        ),
        (
            "nn.BatchNorm()",
            "BatchNorm(axis=1, eps=1e-05, momentum=0.9, fix_gamma=False, use_global_stats=False, "
            "in_channels=None)",
        ),
        ("nn.LayerNorm()", "LayerNorm(eps=1e-05, axis=-1, center=True, scale=True, in_channels=0)"),
        (
            "nn.InstanceNorm(in_channels=3)",
            "InstanceNorm(eps=1e-05, axis=1, center=True, scale=False, in_channels=3)",
        ),
        ("nn.GroupNorm(2)", "GroupNorm(eps=1e-05, num_groups=2, center=True, scale=True)"),
    ],
)
def test_reprs(build, text):
    assert repr(fresh(build)) == text


@pytest.mark.parametrize("size", [(5,), (4, 5), (3, 4, 5)])
def test_pools_with_the_channels_last_move_their_axes(size):
    n = len(size)
    x = nd.random.normal(shape=(2, 3, *size))
    last = x.transpose((0, *range(2, n + 2), 1))
    for kind in (f"MaxPool{n}D", f"GlobalAvgPool{n}D"):
        y = getattr(nn, kind)(layout="N" + "DHW"[-n:] + "C")(last)
        same = getattr(nn, kind)()(x)
        assert y.transpose((0, n + 1, *range(1, n + 1))).asnumpy().tobytes() == (
            same.asnumpy().tobytes()
        )


# -- what is wrong --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("build", "error", "words"),
    [
        ("nn.Dense(4, foo=1)", TypeError, "foo"),
        ("nn.Conv2D(4, (1, 2, 3))", AssertionError, "kernel_size must be a number or a list of 2"),
        ("nn.Conv1D(4, 'a')", AssertionError, "kernel_size .* 'a'"),
        ("nn.Conv1D(4, 3, layout='NCHW')", AssertionError, "Only supports 'NCW' layout"),
        ("nn.Conv2D(4, 3, layout='X')", AssertionError, "Only supports 'NCHW' and 'NHWC' layout"),
        ("nn.Conv2D(4, 3, strides=(1, 1, 1))", MXNetError, "stride .* list of 2 ints"),
        ("nn.Conv2D(4, 3, groups=3)", MXNetError, "groups=3 must divide channels=4"),
        (
            "nn.Conv1DTranspose(4, 3, output_padding=1)",
            MXNetError,
            r"output_padding=\(1,\) must be less than strides=\(1,\)",
        ),
        ("nn.MaxPool2D((1, 2, 3))", AssertionError, "pool_size must be a number or a list of 2"),
        ("nn.AvgPool3D(layout='NCHW')", AssertionError, "Only NCDHW and NDHWC layouts"),
        ("nn.LeakyReLU(-1)", AssertionError, "no less than 0"),
        ("nn.Lambda(3)", ValueError, "Unrecognized function in lambda: 3"),
        ("nn.Lambda('nothing')", AssertionError, "nothing is not found in ndarray"),
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
        ("nn.Dropout(2)", (2, 5), "p=2"),
        ("nn.Conv2D(4, 3)", (2, 5), r"Conv2D: needs data of 4 axes \(NCHW\), got \(2, 5\)"),
        ("nn.Conv2D(4, 3, in_channels=2)", (2, 5, 5, 5), r"\(4, 2, 3, 3\)"),
        ("nn.Conv2D(4, 3, layout='NHWC')", (2, 5, 5, 5), "layout='NHWC' is not supported"),
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


def test_dropout_gradient_has_the_same_mask():
    net = nn.Dropout(0.5)
    x = nd.ones((50, 20))
    x.attach_grad()
    with autograd.record():
        y = net(x)
    y.backward()
    np.testing.assert_array_equal(x.grad.asnumpy(), y.asnumpy())


def test_dropout_axes_share_a_fate():
    with autograd.train_mode():
        y = nn.Dropout(0.5, axes=(1, 2))(nd.ones((100, 3, 4))).asnumpy()
    assert (y == y[:, :1, :1]).all()
    assert 0 < (y == 0).mean() < 1


# -- BatchNorm ------------------------------------------------------------------------------------


def test_running_statistics_follow_the_batches_in_training_only():
    net = nn.BatchNorm(momentum=0.7)
    net.initialize()
    rng = np.random.default_rng(0)
    mean, var = np.zeros(3), np.ones(3)
    for _ in range(4):
        x = rng.normal(2, 3, (5, 3, 4)).astype("float32")
        with autograd.record():
            net(nd.array(x))
        mean = 0.7 * mean + 0.3 * x.mean(axis=(0, 2))
        var = 0.7 * var + 0.3 * x.var(axis=(0, 2))
        y = net(nd.array(x)).asnumpy()  # not training: nothing moves
        expected = (x - mean.reshape(3, 1)) / np.sqrt(var.reshape(3, 1) + 1e-5)
        np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(net.running_mean.data().asnumpy(), mean, rtol=1e-5)
    np.testing.assert_allclose(net.running_var.data().asnumpy(), var, rtol=1e-5)


def test_batchnorm_keeps_float32_parameters_for_float16():
    net = nn.BatchNorm()
    net.initialize()
    net.cast("float16")
    y = net(nd.ones((2, 3), dtype="float16"))
    assert y.dtype == np.float16
    assert {np.dtype(p.dtype).name for p in net.collect_params().values()} == {"float32"}
    net.cast("float64")
    assert net(nd.ones((2, 3), dtype="float64")).dtype == np.float64


# -- what a call costs ----------------------------------------------------------------------------


class Pushes(instrument.Instrument):
    """Names of the tasks that were pushed."""

    def __init__(self):
        self.names = []

    def push(self, task):
        self.names.append(task.name)


@pytest.mark.parametrize(
    ("build", "shape", "ops"),
    [
        ("nn.Dense(4)", (2, 3), "FullyConnected"),
        ("nn.Dense(4, activation='relu')", (2, 3), "FullyConnected Activation"),
        ("nn.Conv2D(4, 3)", (2, 3, 5, 5), "Convolution"),
        ("nn.Conv2D(4, 3, activation='relu')", (2, 3, 5, 5), "Convolution Activation"),
        ("nn.Conv1DTranspose(4, 3)", (2, 3, 5), "Deconvolution"),
        ("nn.MaxPool2D()", (2, 3, 4, 4), "Pooling"),
        ("nn.BatchNorm()", (2, 3, 4, 4), "BatchNorm"),
        ("nn.LayerNorm()", (2, 3), "LayerNorm"),
        ("nn.Embedding(9, 4)", (2, 3), "Embedding"),
        ("nn.Dropout(0.5)", (2, 3), "Dropout"),
        ("nn.PReLU()", (2, 3), "LeakyReLU"),
        ("nn.Flatten()", (2, 3, 4), "flatten"),
    ],
)
def test_ops_of_a_call(build, shape, ops):
    net = fresh(build)
    net.initialize()
    x = nd.ones(shape)
    net(x)
    with instrument.listening(Pushes()) as pushes:
        net(x)
    assert " ".join(pushes.names) == ops


def test_shared_parameters_are_one():
    first = nn.Dense(3, in_units=3)
    second = nn.Dense(3, in_units=3, params=first.params)
    first.initialize()
    assert second.weight is first.weight
    x = nd.ones((2, 3))
    with autograd.record():
        y = second(first(x))
    y.backward()
    twice = first.weight.grad().asnumpy().copy()
    hidden = first(x)
    with autograd.record():
        y = second(hidden)
    y.backward()
    assert not np.allclose(first.weight.grad().asnumpy(), twice)


def test_a_net_of_layers_learns():
    """Every kind of layer in one net: its loss falls."""
    net = nn.HybridSequential()
    net.add(
        nn.Conv2D(4, 3, padding=1), nn.BatchNorm(), nn.Activation("relu"), nn.MaxPool2D(),
        nn.Conv2D(4, 3, padding=1), nn.GroupNorm(2), nn.Swish(), nn.GlobalAvgPool2D(), nn.Flatten(),
        nn.Dropout(0.1), nn.Dense(8), nn.LayerNorm(), nn.PReLU(), nn.Dense(1),
    )  # fmt: skip
    mx.random.seed(3)
    net.initialize(init.Xavier())
    rng = np.random.default_rng(0)
    x = nd.array(rng.normal(size=(32, 2, 8, 8)))
    y = nd.array(np.abs(x.asnumpy()).mean(axis=(1, 2, 3), keepdims=True)[:, :, 0, 0] * 10)
    losses = []
    for _ in range(60):
        with autograd.record():
            loss = ((net(x) - y) ** 2).mean()
        loss.backward()
        for p in net.collect_params().values():
            if p.grad_req != "null":
                p.set_data(p.data() - 0.02 * p.grad())
        losses.append(loss)
    assert losses[-1].asscalar() < 0.1 * losses[0].asscalar()

"""`hybridize`: what runs when, what is compiled again and why, what is refused in which words."""

from __future__ import annotations

from contextlib import nullcontext

import numpy as np
import pytest

from d2lmini import autograd, cpu, nd, random, sym
from d2lmini.base import MXNetError
from d2lmini.gluon import HybridBlock, nn
from d2lmini.symbol import NotImplementedForSymbol

SYM = "d2lmini.symbol"


def mlp(*units: int, **kwargs) -> nn.HybridSequential:
    net = nn.HybridSequential(**kwargs)
    with net.name_scope():
        for n in units[:-1]:
            net.add(nn.Dense(n, activation="relu"))
        net.add(nn.Dense(units[-1]))
    net.initialize()
    return net


def close(a, b):
    np.testing.assert_allclose(a.asnumpy(), b.asnumpy(), rtol=1e-5, atol=1e-6)


class Told(HybridBlock):
    """Notes each time its Python runs: with which F."""

    def __init__(self):
        super().__init__()
        self.runs = []
        self.dense = nn.Dense(3)

    def hybrid_forward(self, F, x):
        self.runs.append(F.__name__)
        return self.dense(F.tanh(x))


# -- when the Python runs --------------------------------------------------------------------------


def test_hybrid_forward_runs_once_for_all_shapes_and_modes():
    net = Told()
    net.initialize()
    net.hybridize()
    for n in (2, 2, 5):
        net(nd.ones((n, 4)))
    with autograd.record():
        net(nd.ones((2, 4)))
    assert net.runs == [SYM]
    net.hybridize()
    net(nd.ones((2, 4)))
    assert net.runs == [SYM, SYM]
    net.hybridize(False)
    net(nd.ones((2, 4)))
    assert net.runs[2:] == [nd.__name__]


# -- inputs and outputs ----------------------------------------------------------------------------


class Nested(HybridBlock):
    def hybrid_forward(self, F, x, pair, last=None):
        a, (b,) = pair
        total = x + a * b
        return total, [total * 2, (b if last is None else last,)], None


def test_nested_inputs_and_outputs():
    net = Nested()
    x, a, b = nd.ones(2), nd.array([2, 3]), nd.array([4, 5])
    for hybridize in (False, True, True):
        if hybridize and not net._active:
            net.hybridize()
        y, (double, (same,)), nothing = net(x, [a, (b,)])
        assert y.asnumpy().tolist() == [9, 16] and double.asnumpy().tolist() == [18, 32]
        assert same.asnumpy().tolist() == [4, 5] and nothing is None
    assert net(x, [a, [b]], None)[0].asnumpy().tolist() == [9, 16]  # a None at the end is nothing
    with pytest.raises(ValueError, match=r"Stored format = \[0, \[0, \[0\]\]\], input format = "):
        net(x, [a, [b]], x)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ((3,), "must be one NDArray or one Symbol in the input.* Dense got int"),
        ((nd.ones((1, 2)), sym.var("x")), "do not support mixed NDArrays and Symbols"),
        ((nd.ones((1, 2)), 3), "must be \\(nested\\) list of Symbol or NDArray, but got 3 of type"),
        ((nd.ones((1, 2)), nd.ones((1, 2), ctx=cpu(1))), "multiple contexts.* cpu\\(0\\) and cpu"),
    ],
)
def test_inputs_that_cannot_be_compiled(args, message):
    net = nn.Dense(2)
    net.initialize()
    net.hybridize()
    with pytest.raises(ValueError, match=message):
        net(*args)


# -- errors in the trace ---------------------------------------------------------------------------


def branches(x):
    if x.sum() > 0:
        return x
    return -x


@pytest.mark.parametrize(
    ("function", "what", "line"),
    [
        (branches, "bool", r"if x.sum\(\) > 0:"),
        (lambda x: x * float(x.sum()), "float", "lambda x: x"),
        (lambda x: x + x.asnumpy(), "asnumpy", "lambda x: x"),
        (lambda x: x.wait_to_read(), "wait_to_read", "lambda x: x"),
        (lambda x: [x][x.sum()], "index", "lambda x:"),
    ],
)
@pytest.mark.parametrize("plain", [False, True])
def test_a_value_is_asked_for_in_the_trace(function, what, line, plain):
    class Net(HybridBlock):
        if plain:

            def forward(self, x):
                return function(x)
        else:

            def hybrid_forward(self, F, x):
                return function(x)

    net = Net()
    net.hybridize()
    for _ in range(2):
        with pytest.raises(
            NotImplementedForSymbol,
            match=rf"(?s)^{what} is not implemented for Symbol .* F.where for a choice by value.* "
            rf"net.hybridize\(False\)\n  at .*test_hybridize.py:\d+: .*{line}",
        ):
            net(nd.ones(3))
    net.hybridize(False)
    if what == "bool":
        assert net(nd.ones(3)).asnumpy().tolist() == [1, 1, 1]


def test_drawing_in_the_trace():
    """In the graph each call draws; beside it the numbers would be frozen, and that is refused."""

    class Noisy(HybridBlock):
        def __init__(self, draw):
            super().__init__()
            self.draw = draw

        def forward(self, x):
            return x + self.draw(x)

    x = nd.zeros(3)
    net = Noisy(lambda x: nd.random.normal(shape=x.shape))
    net(x)
    net.hybridize()
    with pytest.raises(MXNetError, match=r"would be the same in every call .*normal_like"):
        net(x)
    net = Noisy(nd.random.normal_like)
    random.seed(2)
    eager = [net(x).asnumpy() for _ in range(3)]
    net.hybridize()
    random.seed(2)
    np.testing.assert_allclose([net(x).asnumpy() for _ in range(3)], eager)
    assert not np.allclose(eager[0], eager[1])


# -- parameters ------------------------------------------------------------------------------------


def test_parameters_may_change_between_calls():
    """In place, by another type, another file, other contexts, anew."""
    net = mlp(3, 2)
    x = nd.random.normal(shape=(2, 4))
    net(x)
    net.hybridize()

    def check(*inputs):
        got = net(*inputs)
        net.hybridize(False)
        close(got, net(*inputs))
        net.hybridize()
        net(*inputs)

    check(x)
    net[0].weight.set_data(nd.ones((3, 4)))
    check(x)
    net.initialize(force_reinit=True)
    check(x)
    net.cast("float64")
    check(x.astype("float64"))
    net.cast("float32")
    net.collect_params().reset_ctx(cpu(1))
    check(x.as_in_context(cpu(1)))
    net.collect_params().reset_ctx([cpu(0), cpu(1)])
    check(x)
    check(x.as_in_context(cpu(1)))


def test_not_initialized_and_shapes_that_nobody_knows():
    net = nn.Dense(2, in_units=3)
    net.hybridize()
    with pytest.raises(RuntimeError, match=r"Parameter '.*weight'.* has not been initialized"):
        net(nd.ones((1, 3)))

    class Forgot(HybridBlock):
        def __init__(self):
            super().__init__()
            self.w = self.params.get("w", shape=(0, 2), allow_deferred_init=True)

        def hybrid_forward(self, F, x, w):
            return F.broadcast_mul(x.sum(), w)

    net = Forgot()
    net.initialize()
    net.hybridize()
    with pytest.raises(ValueError, match=r"cannot be inferred.*\(0, 2\).* write Forgot.infer_sha"):
        net(nd.ones((1, 2)))


def test_arrays_of_a_plain_forward():
    """A parameter's is looked up at each call and learns; another is used by reference."""

    class Net(HybridBlock):
        def __init__(self):
            super().__init__()
            self.w = self.params.get("w", shape=(3,), init="ones")
            self.shift = nd.ones(3)
            self.dense = nn.Dense(3, in_units=3)

        def forward(self, x):
            y = self.shift * x + self.w.data() * 2 + self.w.list_data()[0]
            return y + self.dense(self.shift.reshape((1, 3)))

    net = Net()
    net.initialize()
    x = nd.ones((2, 3))
    with autograd.record():
        expected = net(x)
    expected.backward()
    grads = {n: p.grad().copy() for n, p in net.collect_params().items()}
    net.hybridize()
    for _ in range(2):
        with autograd.record():
            y = net(x)
        y.backward()
        close(y, expected)
        for n, p in net.collect_params().items():
            close(p.grad(), grads[n])
    net.w.set_data(nd.zeros(3))
    net.shift[:] = 0
    close(net(x) - net.dense.bias.data(), nd.zeros((2, 3)))


# -- what is compiled again ------------------------------------------------------------------------


def test_a_shape_or_a_mode_is_compiled_once():
    net = mlp(3, prefix="net_")
    net.hybridize()
    counts = []
    for n, recording, training in (
        (1, False, False), (1, False, False), (4, False, False), (4, True, True), (4, True, False),
        (1, False, False),
    ):  # fmt: skip
        with autograd.record(training) if recording else nullcontext():
            net(nd.ones((n, 512)))
        counts.append(len(net.program()))
    assert counts == [1, 1, 2, 3, 4, 4]
    net.hybridize(False)
    with pytest.raises(RuntimeError, match="HybridSequential is not hybridized: call hybridize"):
        net.program()


def test_what_changes_the_net_forgets_what_was_compiled():
    net = mlp(3, 2)
    net.add(mlp(2))
    net.hybridize()
    x = nd.ones((1, 4))
    assert net(x).shape == (1, 2)
    net.add(nn.Dense(5))
    net[-1].initialize()
    assert net(x).shape == (1, 5)
    net[2].add(nn.Dense(7))  # deep inside
    net[2][-1].initialize()
    net[-1].initialize(force_reinit=True)
    net[-1].weight._shape = (5, 7)
    net[-1].initialize(force_reinit=True)
    assert net(x).shape == (1, 5)
    told = Told()
    told.initialize()
    told.hybridize()
    told(x)
    told.dense = nn.Dense(6)
    told.dense.initialize()
    assert told(x).shape == (1, 6) and told.runs == [SYM, SYM]

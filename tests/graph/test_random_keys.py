"""Random keys: each op that draws takes one, in the order of the program, in every mode."""

from __future__ import annotations

from contextlib import nullcontext

import numpy as onp
import pytest

import d2lmini
from d2lmini import autograd, gluon, nd
from d2lmini.gluon import nn
from d2lmini.gluon.compiled import flatten
from d2lmini.ops.core import registry

#: How a net runs, and the scope around it.
MODES = {
    "eager": ({"active": False}, nullcontext),
    "hybridized": ({}, nullcontext),
    "static": ({"static_alloc": True, "static_shape": True}, nullcontext),
    "mirror": ({"backward_do_mirror": True}, nullcontext),
    "lazy": ({"active": False}, d2lmini.lazy),
    "lazy and hybridized": ({}, d2lmini.lazy),
    "bulk": ({}, lambda: d2lmini.engine.bulk(8)),
}

#: Calls on x, (3, 4) positive numbers, and whether they draw: in prediction, in training.
ROWS = {
    "F.Dropout(x, p=0.5)": (False, True),
    "F.Dropout(x, p=0.5, axes=(0,))": (False, True),
    "F.Dropout(x, p=1)": (False, True),
    "F.Dropout(x, p=0)": (False, False),
    "F.Dropout(x, p=0, mode='always')": (False, False),
    "F.Dropout(x, p=0.5, mode='always')": (True, True),
    "F.LeakyReLU(x - 1, act_type='leaky')": (False, False),
    "F.LeakyReLU(x - 1, act_type='elu')": (False, False),
    "F.LeakyReLU(x - 1, act_type='selu')": (False, False),
    "F.LeakyReLU(x - 1, act_type='gelu')": (False, False),
    "F.LeakyReLU(x - 1, act_type='prelu', gamma=F.ones((1,)))": (False, False),
    **{
        f"F.RNN(F.expand_dims(x, 0), F.ones(({size},)), F.zeros(({layers}, 3, 2)), state_size=2, "
        f"num_layers={layers}, mode='rnn_tanh', p={p})": (False, layers > 1 and p > 0)
        for layers, size in ((1, 16), (2, 28))
        for p in (0, 0.5)
    },
    **{
        f"F.random.{call}": (True, True)
        for call in (
            "uniform(0, 1, shape=(2,))", "uniform(1, 1, shape=(2,))", "normal(shape=(2,))",
            "randn(2)", "uniform_like(x)", "normal_like(x)", "randint(0, 9, shape=(2,))",
            "randint(0, 1, shape=(2,))", "multinomial(x, get_prob=False)",
            "multinomial(x, get_prob=True)", "shuffle(x)",
        )
    },
}  # fmt: skip


def positive():
    return nd.array(onp.arange(1, 13).reshape(3, 4) / 12)


def test_every_random_op_has_a_row(monkeypatch):
    called = set()
    for name in {op.name for op in registry.values() if op.random}:
        draws = registry[name].draws
        monkeypatch.setitem(
            vars(registry[name]), "draws", lambda name=name, draws=draws, **a: (
                called.add(name), draws(**a))[1]
        )  # fmt: skip
    for call in ROWS:
        eval(call, {"F": nd, "x": positive()})
    assert called == {op.name for op in registry.values() if op.random}


class Net(gluon.HybridBlock):
    """A draw, the call, whose result is used or not, and another draw."""

    def __init__(self, call, used):
        super().__init__()
        self.call, self.used = call, used

    def hybrid_forward(self, F, x):
        before = F.random.uniform(shape=(2,))
        y = eval(self.call, {"F": F, "x": x})
        after = F.random.uniform(shape=(2,))
        return [y, after, before] if self.used else [after, before]


def run(net, x, mode, training):
    """What the net returns, and the next draw, all as lists of arrays."""
    flags, scope = MODES[mode]
    net.hybridize(**flags)
    d2lmini.random.seed(5)
    with scope(), autograd.train_mode() if training else nullcontext():
        found = flatten(net(x))[0]
        return [y.asnumpy() for y in [*found, nd.random.uniform(shape=(2,))]]


def assert_equal_in_all_modes(net, x, training):
    """What the net returns in all modes, and the next draw."""
    wanted = run(net, x, "eager", training)
    for mode in MODES:
        for y, want in zip(run(net, x, mode, training), wanted, strict=True):
            onp.testing.assert_allclose(y, want, 1e-5, 1e-6, err_msg=mode)
    return wanted


@pytest.mark.parametrize("used", [True, False])
@pytest.mark.parametrize("call", ROWS)
def test_all_modes_draw_the_same(call, used):
    d2lmini.random.seed(5)
    numbers = [nd.random.uniform(shape=(2,)).asnumpy() for _ in range(4)]
    for training, draws in zip((False, True), ROWS[call]):
        *_, after, before, then = assert_equal_in_all_modes(Net(call, used), positive(), training)
        for y, number in ((before, 0), (after, 1 + draws), (then, 2 + draws)):
            onp.testing.assert_array_equal(y, numbers[number])


@pytest.mark.parametrize("mode", MODES)
def test_initial_values_and_draws_take_keys_in_the_order_of_the_program(mode):
    """Parameters whose shape the first call tells are drawn between its other draws."""
    wanted = None
    for how in ("eager", mode):
        net = nn.HybridSequential()
        net.add(nn.Dense(8), nn.Dropout(0.5), nn.Dense(8), nn.Dropout(0.5), nn.Dense(8))
        net.initialize()
        found = []
        for _ in range(2):
            found += run(net, positive(), how, True)
        found += [p.data().asnumpy() for p in net.collect_params().values()]
        wanted = wanted or found
    for y, want in zip(found, wanted, strict=True):
        onp.testing.assert_allclose(y, want, 1e-5, 1e-6)

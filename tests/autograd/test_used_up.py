"""What backward has used up is a constant for what is recorded afterwards, as in MXNet 1.9.1
(`data/small_programs/autograd.txt`): what the reader is told, what is freed, what a refused call
leaves as it was."""

from __future__ import annotations

import gc
import re
import warnings

import pytest
from generators.agree import as_mxnet

from d2lmini import autograd, engine, nd, storage
from d2lmini.autograd import tape
from d2lmini.base import MXNetError
from d2lmini.gluon import nn

# -- what the reader is told -----------------------------------------------------------------------


def leaf(value: float) -> nd.NDArray:
    x = nd.array([value])
    x.attach_grad()
    return x


class Twice(autograd.Function):
    def forward(self, x):
        return x * 2

    def backward(self, dy):
        return dy * 2


def dense(hybrid: bool) -> nn.Dense:
    net = nn.Dense(1, in_units=1)
    net.initialize()
    net.hybridize(hybrid)
    return net


def used_up() -> nd.NDArray:
    with autograd.record():
        a = leaf(2) * 3
    a.backward()
    return a


CALLS = {
    "an op": lambda a: a * leaf(3),
    "an op of constants": nd.tanh,
    "a view": lambda a: a.reshape((1, 1)),
    "an index": lambda a: a[0:1],
    "a net": dense(False),
    "a hybridized net": dense(True),
    "a Function": Twice(),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_reader_is_told_once_a_line(name: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(tape, "_told", set())
    call, a = CALLS[name], used_up()
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for _ in range(3):
            with autograd.record():
                call(a)
    (only,) = told
    assert re.search(r"input 0 is a constant(.|\n)*recorded at .*test_used_up", str(only.message))
    assert only.category is UserWarning and only.filename == __file__


# -- what is freed ---------------------------------------------------------------------------------


@pytest.mark.parametrize("hybrid", [False, True])
def test_states_that_are_carried_keep_no_chain(hybrid: bool):
    """Reference counts alone free what a step has saved: memory does not grow."""
    net = nn.Dense(1000, in_units=1000, use_bias=False)
    net.initialize()
    net.hybridize(hybrid)
    state, live, nodes = nd.ones((1, 1000)), [], []
    gc.disable()
    try:
        with as_mxnet():
            for _ in range(12):
                with autograd.record():
                    state = net(state).tanh()
                    loss = state.sum()
                nodes.append(state._node[0])
                loss.backward()
                engine.waitall()
                live.append(storage.stats().live)
    finally:
        gc.enable()
    assert max(live[6:]) <= max(live[3:6])
    assert all(node.parents is None and not node.saved for node in nodes)


# -- a refused call uses nothing up ----------------------------------------------------------------

REFUSED = {
    "a variable that the head does not depend on": lambda y, x, w: autograd.grad(y, [x, w]),
    "no variable": lambda y, x, w: autograd.grad(y, []),
    "a constant as variable": lambda y, x, w: autograd.grad(y, [x, nd.ones(1)]),
    "a head without a history": lambda y, x, w: autograd.backward([y, nd.ones(1)]),
    "a head gradient of another size": lambda y, x, w: y.backward(nd.ones(3)),
    "too few head gradients": lambda y, x, w: autograd.backward([y, y * 1], [None]),
    "a gradient of another shape": lambda y, x, w: autograd.mark_variables(
        [x, w], [nd.ones(1), nd.ones(2)]
    ),
    "a grad_req that is none": lambda y, x, w: autograd.mark_variables(
        [x, w], [nd.ones(1), nd.ones(1)], ["add", "sum"]
    ),
}


@pytest.mark.parametrize("call", REFUSED.values(), ids=REFUSED)
def test_a_refused_call_uses_nothing_up(call):
    x, w = nd.array([3]), nd.array([1])
    x.attach_grad()
    w.attach_grad()
    with autograd.record():
        y = x * x
    with pytest.raises((MXNetError, ValueError, AssertionError)):
        call(y, x, w)
    y.backward()
    assert x.grad.asscalar() == 6


def test_a_backward_without_leaves_uses_nothing_up():
    x = nd.array([3])
    x.attach_grad("null")
    with autograd.record():
        y = x * x
    with pytest.raises(MXNetError, match="no inputs in computation graph that require gradients"):
        y.backward()
    assert x.grad is not None and autograd.grad(y, [y])[0].asscalar() == 1

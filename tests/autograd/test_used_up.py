"""What backward has used up is a constant for what is recorded afterwards, as in MXNet 1.9.1; and
which leaves and heads backward takes.

Each program stands beside what the real MXNet keeps; "error" where it refuses. Where
an interpreter with MXNet is at hand (`make test-mxnet`), the record is compared with it anew.
"""

from __future__ import annotations

import gc
import re
import warnings
from textwrap import dedent

import numpy as np
import pytest
from generators.agree import agree, as_mxnet, close
from oracle import Oracle

from d2lmini import autograd, engine, nd, storage
from d2lmini.autograd import tape
from d2lmini.base import MXNetError
from d2lmini.gluon import nn

BEGIN = """
def leaf(*values, req="write"):
    x = nd.array(values)
    x.attach_grad(req)
    return x

class Square(autograd.Function):
    def forward(self, x):
        self.save_for_backward(x)
        return x * x

    def backward(self, dy):
        x, = self.saved_tensors
        return 2 * x * dy

def net(hybrid):
    block = gluon.nn.Dense(1, in_units=1, use_bias=False)
    block.initialize(init.Constant(2.))
    if hybrid:
        block.hybridize()
    return block

def refused(head):
    try:
        head.backward()
    except mx.base.MXNetError:
        keep(-1.)

x, w = leaf(2.), leaf(5.)
"""

PROGRAMS = {
    "a loop that detaches nothing": (
        """
        w, s = leaf(2.), nd.array([1.])
        for i in range(3):
            for t in [s]:
                t.detach()
            with autograd.record():
                s = (s * w).tanh()
                l = s.sum()
            l.backward()
            keep(w.grad)
        """,
        [0.070650816, 0.078213714, 0.07941337],
    ),
    "retained, then not": (
        """
        with autograd.record():
            y = x * x * x
        y.backward(retain_graph=True)
        y.backward()
        keep(x.grad)
        refused(y)
        with autograd.record():
            c = y * w
        c.backward()
        keep(w.grad)
        """,
        [12, -1, 8],
    ),
    "autograd.grad uses up what leads to no variable": (
        """
        with autograd.record():
            b = w * 3
            c = x * x * b
        keep(autograd.grad(c, [x])[0])
        with autograd.record():
            d = b * x
        d.backward()
        keep(w.grad)
        keep(x.grad)
        """,
        [60, 0, 15],
    ),
    "a Function": (
        """
        f = Square()
        with autograd.record():
            a = f(x)
            b = a * 2
        b.backward()
        keep(x.grad)
        refused(b)
        with autograd.record():
            c = a * w
            d = Square()(a) * w
        autograd.backward([c, d])
        keep(w.grad)
        """,
        [8, -1, 20],
    ),
    "what a net has computed": (
        """
        for hybrid in (False, True):
            block, y = net(hybrid), nd.array([[3.]])
            with autograd.record():
                y = block(y)
                b = y * 2
            b.backward()
            with autograd.record():
                e = block(y) + y * w
            block.weight.grad()[:] = 0
            e.backward()
            keep(block.weight.grad())
            keep(w.grad)
        """,
        [6, 6] * 2,
    ),
    "a leaf with 'null' keeps its gradient until backward": (
        """
        x = leaf(2., req="null")
        x.grad[:] = 7
        with autograd.record():
            a = x * w
        a.backward(retain_graph=True)
        keep(x.grad)
        keep(w.grad)
        a.backward()
        keep(float(x.grad is None))
        refused(a)
        with autograd.record():
            x += 1
            c = x * w
        c.backward()
        keep(w.grad)
        """,
        [7, 2, 1, -1, 3],
    ),
    "the same head twice: the last counts": (
        """
        with autograd.record():
            a = x * 2
            c = a * 3
        autograd.backward([a, c, a], retain_graph=True)
        keep(x.grad)
        autograd.backward([a, a], [nd.array([10.]), nd.array([100.])], retain_graph=True)
        keep(x.grad)
        keep(autograd.grad([a, a], [x], [nd.array([10.]), None])[0])
        """,
        [8, 200, 2],
    ),
}


def text_of(name: str) -> str:
    return BEGIN + dedent(PROGRAMS[name][0])


def compare(name: str, found: list[np.ndarray], whose: str) -> None:
    record = [np.array(value, "float32") for value in PROGRAMS[name][1]]
    close([a.reshape(r.shape) for a, r in zip(found, record)], record, 1e-5, 0, whose, name)
    assert len(found) == len(record)


@pytest.mark.parametrize("name", PROGRAMS)
def test_backward_keeps_the_record(name: str):
    compare(name, agree(text_of(name)), "ours")


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_record_is_what_mxnet_keeps(name: str, mxnet: Oracle):
    compare(name, mxnet.results(text_of(name)), "MXNet")


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

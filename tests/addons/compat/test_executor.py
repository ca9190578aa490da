"""Executors: bound Symbols. The eager computation is the oracle for the numbers; what MXNet's tell
is in `data/small_programs/executors.txt`."""

from __future__ import annotations

import numpy as np
import pytest

from d2lmini import autograd, cpu, engine, gluon, nd, sym
from d2lmini.base import LeftOut
from d2lmini.compat.executor import Executor

DENSE = sym.tanh(sym.FullyConnected(sym.var("x"), num_hidden=3, name="fc"))


def test_forward_and_backward_are_those_of_eager():
    ex = DENSE.simple_bind(cpu(), x=(4, 2))
    for x in ex.arg_arrays:
        x[:] = nd.random.normal(shape=x.shape)
    head = nd.random.normal(shape=(4, 3))
    (y,) = ex.forward(is_train=True)
    ex.backward(head)
    args = {name: x.copy() for name, x in ex.arg_dict.items()}
    for x in args.values():
        x.attach_grad()
    with autograd.record():
        want = nd.tanh(nd.FullyConnected(*args.values(), num_hidden=3))
    want.backward(head)
    np.testing.assert_allclose(y.asnumpy(), want.asnumpy(), rtol=1e-6)
    for name, x in args.items():
        np.testing.assert_allclose(ex.grad_dict[name].asnumpy(), x.grad.asnumpy(), rtol=1e-5)


def test_each_direction_is_one_task():
    ex = DENSE.simple_bind(cpu(), x=(4, 2))
    ex.forward(is_train=True)
    nd.waitall()
    before = engine.stats().pushed
    ex.forward(is_train=True)
    assert engine.stats().pushed == before + 1
    ex.backward(nd.ones((4, 3)))
    head = 1  # nd.ones
    assert engine.stats().pushed == before + 2 + head


def test_bound_arrays_keep_their_own_history():
    x = nd.ones(2)
    x.attach_grad()
    ex = (sym.var("x") * 3).bind(cpu(), [x], args_grad=[nd.zeros(2)])
    ex.forward(is_train=True)
    ex.backward(nd.ones(2))
    assert x.grad.asnumpy().tolist() == [0, 0] and ex.grad_arrays[0].asnumpy().tolist() == [3, 3]
    with autograd.record():
        y = x * 2
    y.backward()
    assert x.grad.asnumpy().tolist() == [2, 2]


def test_outputs_are_always_the_same_arrays():
    ex = (sym.var("x") * 3).simple_bind(cpu(), x=(2,))
    (held,) = ex.outputs
    assert held.asnumpy().tolist() == [0, 0]
    for value in (1, 2):
        for is_train in (False, True):
            ex.forward(is_train, x=nd.full(2, value))
            assert ex.outputs[0] is held and held.asnumpy().tolist() == [3 * value] * 2


@pytest.mark.parametrize(
    "owner", [nd.NDArray, Executor, gluon.Parameter, gluon.HybridBlock], ids=lambda c: c.__name__
)
def test_a_method_that_is_left_out_is_told_by_its_own_name(owner):
    names = [name for name, value in vars(owner).items() if isinstance(value, LeftOut)]
    assert names
    for name in names:
        with pytest.raises(AttributeError, match=rf"\.{name} is left out of d2lmini, \w"):
            getattr(owner, name)

"""Composed ops: a program gives the bits of the interpreted formula, forward and backward; what a
call compiles, and what graphs contain."""

from __future__ import annotations

import numpy as np
import pytest
from op_rows.table import OP_ROWS, find

from d2lmini import autograd, cpu, gluon, nd
from d2lmini.device.errstate import run_quietly
from d2lmini.graph.program import compiled_formula
from d2lmini.ops.composed import COMPILED_CALL, Composed, interpret
from d2lmini.ops.spec import Spec

ROWS = [case for case in OP_ROWS if isinstance(find(case.op), Composed) and case.inputs]
OPS = sorted({find(case.op) for case in ROWS}, key=lambda op: op.name)


def both_ways(op: Composed, arrays: list, attrs: dict) -> list[np.ndarray]:
    """The results of the interpreted formula, after a look at those of its program."""
    specs = tuple([Spec(a.shape, a.dtype) for a in arrays])
    program = compiled_formula(op, specs, attrs, cpu())
    want = run_quietly(interpret, op, np, arrays, attrs)
    for got, expected in zip(run_quietly(program.run, arrays), want, strict=True):
        assert (got.shape, got.dtype) == (expected.shape, expected.dtype)
        np.testing.assert_array_equal(got, expected)
    return want


def prepared(op: Composed, case) -> tuple[list, dict]:
    """The arrays and attributes of a row."""
    arrays = [np.array(a) for a in case.inputs]
    _, attrs = op.bind(tuple(nd.array(a, dtype=a.dtype) for a in arrays), dict(case.attrs))
    modes = {"training": True, "rng": None}
    return arrays, {**op.defaults, **attrs, **{k: modes[k] for k in op.injects}}


@pytest.mark.parametrize("op", OPS, ids=lambda op: op.name)
def test_a_program_gives_the_bits_of_the_formula(op):
    rng = np.random.default_rng(0)
    for case in [case for case in ROWS if find(case.op) is op]:
        arrays, attrs = prepared(op, case)
        found = both_ways(op, arrays, attrs)
        outputs = found[: len(found) - op.extra]
        needs = [a.dtype.kind == "f" for a in arrays]
        wanted = op._wanted(attrs, needs)
        if op.rule is None or not any(wanted):
            continue
        g = rng.normal(size=outputs[0].shape).astype(outputs[0].dtype)
        saved = op.saved_of(arrays, outputs)
        backward, values, own = op._backward_call([g], saved, attrs, wanted)
        inputs = [a for a, is_wanted in zip(arrays, wanted) if is_wanted]
        for grad, a in zip(both_ways(backward, values, own), inputs, strict=True):
            assert grad.shape == a.shape


@pytest.mark.parametrize("shape", [(3, 4), (300, 400), (500, 600)])
def test_calls_give_the_same_bits_before_and_after_they_are_compiled(shape):
    x = nd.random.normal(shape=shape)
    gamma, beta = nd.random.normal(shape=shape[1:]), nd.random.normal(shape=shape[1:])
    g = nd.random.normal(shape=shape)
    found = set()
    for _ in range(COMPILED_CALL + 3):
        for value in (x, gamma, beta):
            value.attach_grad()
        with autograd.record():
            y = nd.softmax(nd.softmax(nd.LayerNorm(x, gamma, beta)), axis=0)
        y.backward(g)
        found.add(tuple([v.asnumpy().tobytes() for v in (y, x.grad, gamma.grad, beta.grad)]))
    assert len(found) == 1


@pytest.mark.parametrize(
    "shape",
    [(4, 16, 100, 100), (32, 64, 16, 8), (16, 64, 31, 10), (2000, 100, 1, 1)],
)
def test_so_do_norms_of_images(shape):
    x, g = nd.random.normal(shape=shape), nd.random.normal(shape=shape)
    channels = nd.random.normal(shape=shape[1:2])
    found = set()
    for _ in range(12):
        values = [x, *[v.copy() for v in [channels] * 4]]
        for value in values[:3]:
            value.attach_grad()
        with autograd.record():
            y = nd.BatchNorm(*values, fix_gamma=False)
            y = nd.GroupNorm(y, *values[1:3], num_groups=2)
        y.backward(g)
        values += [y, *[v.grad for v in values[:3]]]
        found.add(tuple([v.asnumpy().tobytes() for v in values]))
    assert len(found) == 1


def test_training_and_prediction_are_compiled_apart():
    x = nd.random.normal(3, 2, (6, 4))
    values = nd.ones(4), nd.zeros(4)
    for _ in range(COMPILED_CALL + 3):
        mean, var = nd.zeros(4), nd.ones(4)
        with autograd.record(train_mode=True):
            trained = nd.BatchNorm(x, *values, mean, var, fix_gamma=False)
        predicted = nd.BatchNorm(x, *values, nd.zeros(4), nd.ones(4), fix_gamma=False)
    assert abs(trained.mean().item()) < 1e-5 < abs(mean.mean().item())
    np.testing.assert_allclose(predicted.asnumpy(), x.asnumpy(), rtol=1e-3)


@pytest.mark.parametrize("shape", [-1, 6, np.int64(6), "(3, 2)", (3.0, 2), [3, 2], (0, -1), (3, 2)])
def test_a_formula_and_a_rule_reshape_as_arrays_do(shape):
    def flat(data):
        return data.reshape(shape).exp()

    x = nd.array(np.arange(6).reshape(2, 3))
    composed, want = Composed(flat, "_flat"), nd.reshape(x, shape).exp()

    class Net(gluon.HybridBlock):
        def hybrid_forward(self, F, data):
            return composed(data)

    for hybrid in (False, True):
        net = Net()
        net.hybridize(hybrid)
        x.attach_grad()
        with autograd.record():
            y = net(x)
        y.backward()
        np.testing.assert_array_equal(y.asnumpy(), want.asnumpy())
        np.testing.assert_array_equal(x.grad.asnumpy(), x.exp().asnumpy())

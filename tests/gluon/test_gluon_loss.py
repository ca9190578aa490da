"""The losses against NumPy's formulas and differences, their names and errors, and what they cost.

The rows are those that `test_gluon_rows.py` compares with the real MXNet.
"""

from __future__ import annotations

import numpy as np
import pytest
from gluon_rows.loss import ROWS, TABLE
from gluon_rows.runner import check_gradients, examine_here
from listeners import Pushes

import d2lmini
from d2lmini import autograd, engine, nd
from d2lmini.base import MXNetError, instrument
from d2lmini.gluon import loss as gloss

IDS = [row.id for row in ROWS]


@pytest.mark.parametrize(("row", "formula"), TABLE, ids=IDS)
def test_loss_equals_its_formula(row, formula):
    expected = formula(*[a.astype("float64") for a in row.arrays()])
    got = examine_here(row)["infer/out/0"]
    assert got.dtype == np.float32
    if expected is not None:
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)
        assert got.shape == np.shape(expected)


@pytest.mark.parametrize("row", [r for r in ROWS if r.grad], ids=[r.id for r in ROWS if r.grad])
def test_gradients_are_slopes(row):
    assert check_gradients(row, "train") > 0


# -- CTC ------------------------------------------------------------------------------------------


def test_ctc_label_that_does_not_fit_costs_nothing():
    pred = nd.random.normal(shape=(1, 3, 4))
    pred.attach_grad()
    with autograd.record():
        loss = gloss.CTCLoss()(pred, nd.array([[1, 1, 1]]))  # needs 5 steps
    loss.backward()
    assert loss.asnumpy().tolist() == [0]
    assert (pred.grad.asnumpy() == 0).all()


def test_ctc_errors():
    pred = nd.zeros((2, 5, 4))
    with pytest.raises(MXNetError, match=r"label is \(3, 1\), need \(2, 1\)"):
        gloss.CTCLoss()(pred, nd.zeros((3, 1)))
    with pytest.raises(MXNetError, match=r"\(T, N, C\)"):
        gloss.CTCLoss()(pred, nd.zeros(2))
    with pytest.raises(ValueError, match=r"layout.*'NCT'"):
        gloss.CTCLoss("NCT")
    with pytest.raises(ValueError, match=r"label_layout.*'N'"):
        gloss.CTCLoss(label_layout="N")
    with pytest.raises(MXNetError, match="data_lengths"):
        nd.CTCLoss(pred, nd.zeros((5, 1)), use_data_lengths=True)
    # Values are known only when it runs.
    for label, lengths in (([[3], [0]], None), ([[7], [0]], None), ([[0], [0]], [9, 5])):
        late = gloss.CTCLoss()(pred, nd.array(label), lengths and nd.array(lengths))
        with pytest.raises(MXNetError, match=r"CTCLoss: (labels|data_lengths) must be"):
            late.asnumpy()


# -- names, arguments, cost -----------------------------------------------------------------------


def test_shapes_that_do_not_fit():
    with pytest.raises(MXNetError, match="label is"):
        gloss.SoftmaxCELoss()(nd.ones((3, 2)), nd.ones(2))
    with pytest.raises((MXNetError, ValueError), match="reshape"):
        gloss.L2Loss()(nd.ones((3, 2)), nd.ones(2))
    with pytest.raises(ValueError, match="label_format"):
        gloss.LogisticLoss(label_format="yes or no")


@pytest.mark.parametrize("sparse", [True, False])
@pytest.mark.parametrize("axis, batch_axis", [(-1, 0), (1, 0), (1, 2), (0, 1), (2, 2)])
def test_softmax_cross_entropy_equals_its_parts(sparse, axis, batch_axis):
    """In one op, and in log_softmax, pick, mean; up to the gradient of the gradient."""
    rng = np.random.default_rng(5)
    pred = nd.array(rng.normal(size=(4, 3, 5)), dtype="float64")
    dropped = [n for a, n in enumerate(pred.shape) if a != axis % 3]
    label = rng.integers(-1, 6, dropped) if sparse else rng.uniform(size=(4, 15, 1))
    label = nd.array(label, dtype="int32" if sparse else "float64")
    options = dict(axis=axis, sparse_label=sparse, batch_axis=batch_axis, weight=0.7)
    whole = gloss.SoftmaxCELoss(**options)
    parts = gloss.SoftmaxCELoss(**options, from_logits=True)
    direction = nd.array(rng.normal(size=pred.shape), dtype="float64")
    found = []
    for loss in (lambda: whole(pred, label), lambda: parts(pred.log_softmax(axis=axis), label)):
        inputs = [pred] if sparse else [pred, label]
        for x in inputs:
            x.attach_grad()
        with autograd.record():
            l = loss()
            weights = nd.arange(l.size, dtype="float64") + 1
            grads = autograd.grad(l, inputs, head_grads=weights, create_graph=True)
            slope = (grads[0] * direction).sum()
        slope.backward()
        found.append([l, *grads, *(x.grad for x in inputs)])
    for got, want in zip(*found):
        np.testing.assert_allclose(got.asnumpy(), want.asnumpy(), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("row", ROWS, ids=IDS)
def test_no_loss_waits(row):
    from gluon_rows import peer

    scope = peer.names(d2lmini)
    net = eval(row.build, scope)
    with engine.use("threaded", inline_below=0.0):
        xs = [nd.array(a, dtype=a.dtype) for a in row.arrays()]
        for x in xs:
            x.attach_grad()
        with instrument.listening(Pushes()) as pushed:
            with autograd.record():
                heads = peer.forward(scope, row.plain(), net, xs)
            autograd.backward(heads)
        assert pushed.waits == []

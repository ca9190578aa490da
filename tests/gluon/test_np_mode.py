"""Gluon after `npx.set_np()`: each program gives the numbers that it gives with NDArrays, in arrays
of the class `np.ndarray`: training, optimizers, initializers, metrics, data, files."""

from __future__ import annotations

import threading

import numpy as onp
import pytest
from gpu_kinds import some_gpus

import d2lmini as mx
from d2lmini import autograd, gluon, init, metric, nd, np, npx
from d2lmini.base import util
from d2lmini.gluon import nn
from d2lmini.ndarray import NDArray


@pytest.fixture
def np_mode():
    npx.set_np()
    yield
    npx.reset_np()


def both(program):
    """What `program(array)` keeps, with NDArrays and with `np.ndarray`s: the same bits."""
    expected = program(nd.array)
    npx.set_np()
    try:
        got = program(np.array)
    finally:
        npx.reset_np()
    assert len(got) == len(expected) > 0
    for a, b in zip(got, expected):
        assert (type(a), type(b)) == (np.ndarray, NDArray)
        assert a.asnumpy().tobytes() == b.asnumpy().tobytes()
    return got


# -- training --------------------------------------------------------------------------------------


@pytest.mark.parametrize("hybridize", [False, True])
def test_training_on_several_devices(gpu_kind, hybridize):
    """A net with every usual layer, its gradients summed by the kvstore and scaled to a norm."""

    def train(array):
        mx.random.seed(2)
        net = nn.HybridSequential()
        net.add(nn.Conv2D(3, 3, activation="relu"), nn.BatchNorm(), nn.MaxPool2D(), nn.Dropout(0.3))
        net.add(nn.Dense(8, activation="tanh"), nn.LayerNorm(), nn.Dense(3))
        net.initialize(init.Xavier(), ctx=gpus)
        if hybridize:
            net.hybridize()
        loss = gluon.loss.SoftmaxCrossEntropyLoss()
        trainer = gluon.Trainer(net.collect_params(), "adam", {"learning_rate": 0.01})
        draw = onp.random.default_rng(3)
        for _ in range(3):
            X = array(draw.normal(size=(8, 1, 8, 8)), dtype="float32")
            y = array(draw.integers(0, 3, 8), dtype="int32")
            with autograd.record():
                losses = [
                    loss(net(a), b)
                    for a, b in zip(*(gluon.utils.split_and_load(x, gpus) for x in (X, y)))
                ]
            autograd.backward(losses)
            grads = [p.grad(gpus[0]) for p in net.collect_params().values() if p.grad_req != "null"]
            gluon.utils.clip_global_norm(grads, 1.0)
            trainer.step(8)
        return [*losses, *(x for p in net.collect_params().values() for x in p.list_data())]

    with some_gpus(gpu_kind, 2) as gpus:
        both(train)


# -- parameters ------------------------------------------------------------------------------------


def test_use_np_decorates_a_block():
    """Its parameters are np arrays although `initialize` is called outside."""

    @util.use_np
    class Weigh(nn.HybridBlock):
        def __init__(self):
            super().__init__()
            with self.name_scope():
                self.dense = nn.Dense(2)
                self.w = self.params.get("w", shape=(2,), init="ones")

        def hybrid_forward(self, F, x, w):
            assert npx.is_np_array()
            return F.np.dot(self.dense(x), w)

    net = Weigh()
    net.initialize()
    eager = net(np.ones((2, 3)))
    net.hybridize()
    compiled = net(np.ones((2, 3)))
    assert type(net.w.data()) is type(eager) is type(compiled) is np.ndarray
    onp.testing.assert_allclose(compiled.asnumpy(), eager.asnumpy(), rtol=1e-6)
    assert not npx.is_np_array() and type(nn.Dense(2).params) is gluon.ParameterDict


def test_scopes_are_of_one_thread_and_set_np_of_all():
    seen = []

    def look():
        thread = threading.Thread(
            target=lambda: seen.append((npx.is_np_array(), npx.is_np_shape()))
        )
        thread.start()
        thread.join()

    with util.np_array(), util.np_shape():
        look()
    npx.set_np()
    try:
        look()
    finally:
        npx.reset_np()
    look()
    assert seen == [(False, False), (True, True), (False, False)]


# -- metrics ---------------------------------------------------------------------------------------

CLASSES = [0, 1, 2, 1]
METRICS = {
    "Accuracy": CLASSES, "TopKAccuracy": CLASSES, "CrossEntropy": CLASSES,
    "NegativeLogLikelihood": CLASSES, "Perplexity": CLASSES, "F1": [0, 1, 0, 1],
    "MCC": [0, 1, 0, 1], "MAE": None, "MSE": None, "RMSE": None,
    "Loss": None,
}  # fmt: skip
OPTIONS = {"TopKAccuracy": {"top_k": 2}, "Perplexity": {"ignore_label": None}}


@pytest.mark.parametrize("name", METRICS)
def test_metrics(name, np_mode):
    draw = onp.random.default_rng(5)
    values = draw.random((4, 2 if name in ("F1", "MCC") else 3)).astype("float32")
    values /= values.sum(1, keepdims=True)
    labels = METRICS[name]
    labels = draw.random(values.shape).astype("float32") if labels is None else onp.array(labels)
    found = []
    for array in (nd.array, np.array):
        measure = getattr(metric, name)(**OPTIONS.get(name, {}))
        measure.update([array(labels, dtype=labels.dtype)], [array(values)])
        found.append(measure.get())
    assert found[0] == found[1]
    own = metric.np(lambda label, pred: float((label - pred).sum()))
    own.update([np.array([1, 2])], [np.array([0, 1])])
    assert own.get()[1] == 2

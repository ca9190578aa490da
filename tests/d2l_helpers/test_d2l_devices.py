"""d2l's helpers for several devices: the same numbers on any number of them."""

from __future__ import annotations

import re
import threading

import numpy as np
import pytest

import d2lmini
from d2lmini import cpu, d2l, engine, gluon, gpu, nd, virtual_gpus
from d2lmini.gluon import nn

RNG = np.random.default_rng(0)
X = RNG.normal(size=(90, 6)).astype("float32")
Y = (X[:, :3].argmax(1)).astype("float32")


def batches(size=20):
    """The last one has ten examples, which four devices cannot share evenly."""
    return [(nd.array(X[i : i + size]), nd.array(Y[i : i + size])) for i in range(0, 90, size)]


def make(devices):
    d2lmini.random.seed(2)
    net = nn.Sequential()
    net.add(nn.Dense(16, "relu", in_units=6), nn.Dense(3, in_units=16))
    net.initialize(d2lmini.init.Xavier(), ctx=devices)
    return net, gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.5})


def test_where_there_are_gpus():
    assert d2l.try_gpu(99) == cpu()
    with virtual_gpus(3):
        assert d2l.try_all_gpus() == [gpu(0), gpu(1), gpu(2)]
        assert (d2l.try_gpu(), d2l.try_gpu(2), d2l.try_gpu(3)) == (gpu(0), gpu(2), cpu())


def test_split_batch():
    Xs, ys = d2l.split_batch(X, Y, [cpu(i) for i in range(4)])
    assert [len(part) for part in Xs] == [23, 23, 22, 22] == [len(part) for part in ys]
    assert (np.concatenate([part.asnumpy() for part in Xs]) == X).all()
    with pytest.raises(ValueError, match="90 features and 89 labels"):
        d2l.split_batch(X, Y[1:], [cpu(0), cpu(1)])


@pytest.mark.parametrize("k", [1, 2, 4])
def test_k_devices_train_as_one(capsys, k):
    loss = gluon.loss.SoftmaxCrossEntropyLoss()

    def train(devices):
        net, trainer = make(devices)
        d2l.train_ch13(net, batches(), batches(), loss, trainer, 3, devices)
        lines = capsys.readouterr().out.splitlines()
        assert len(lines) == 3 and lines[-1].endswith(f"examples/sec on {devices}")
        numbers = [float(x) for line in lines for x in re.findall(r"(?:loss|acc) (\S+),", line)]
        return numbers, [p.data(devices[0]).asnumpy() for p in net.collect_params().values()]

    want, weights = train([cpu()])
    with virtual_gpus(k) as gpus:
        got, theirs = train(gpus)
    assert len(want) == 9 and want[-1] > 0.85
    np.testing.assert_allclose(got, want, atol=1.1e-3)  # they are printed with three digits
    for ours, one in zip(theirs, weights, strict=True):
        np.testing.assert_allclose(ours, one, rtol=1e-4, atol=1e-5)


def test_accuracy_is_counted_on_all_devices():
    devices = [cpu(0), cpu(1)]
    net, _ = make(devices)
    one, _ = make([cpu()])
    want = d2l.evaluate_accuracy(batches(), one)
    assert d2l.evaluate_accuracy_gpus(net, batches()) == want
    seen = []

    def halves(features, labels, ctxs):
        seen.append(ctxs)
        return d2l.split_batch(features, labels, ctxs)

    assert d2l.evaluate_accuracy_gpus(net, batches(), halves) == want
    assert seen == [devices] * 5


def test_a_step_does_not_wait():
    devices = [cpu(0), cpu(1)]
    net, trainer = make(devices)
    loss = gluon.loss.SoftmaxCrossEntropyLoss()
    (features, labels), *_ = batches()
    d2l.train_batch_ch13(net, features, labels, loss, trainer, devices)
    nd.waitall()
    with engine.use("threaded", inline_below=0):
        held = engine.new_var()
        release = _blocked_by(held, features)
        l, right = d2l.train_batch_ch13(net, features, labels, loss, trainer, devices)
        assert engine.stats().pending > 10
        release()
        assert np.isfinite(l.asscalar()) and 0 <= right.asscalar() <= 20


def _blocked_by(var, array):
    """Keep everything that reads `array` from beginning, until the function returned is called."""
    event = threading.Event()
    engine.push(lambda: event.wait(20), reads=[array], writes=[var, array])
    return event.set

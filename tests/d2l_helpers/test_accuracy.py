"""Devices and accuracy: the helpers that the chapters use."""

from __future__ import annotations

import numpy as np
import pytest

from d2lmini import cpu, d2l, gpu, nd, num_gpus, virtual_gpus

X = np.arange(540, dtype="float32").reshape(90, 6)
Y = np.arange(90)


def test_where_there_are_gpus():
    assert d2l.try_gpu(99) == cpu()
    assert d2l.try_gpu() == d2l.try_all_gpus()[0]
    assert len(d2l.try_all_gpus()) == max(1, num_gpus())
    with virtual_gpus(3):
        assert d2l.try_all_gpus() == [gpu(0), gpu(1), gpu(2)]
        assert (d2l.try_gpu(), d2l.try_gpu(2), d2l.try_gpu(3)) == (gpu(0), gpu(2), cpu())


def test_split_batch():
    Xs, ys = d2l.split_batch(X, Y, [cpu(i) for i in range(4)])
    assert [len(part) for part in Xs] == [23, 23, 22, 22] == [len(part) for part in ys]
    assert (np.concatenate([part.asnumpy() for part in Xs]) == X).all()
    with pytest.raises(ValueError, match="90 features and 89 labels"):
        d2l.split_batch(X, Y[1:], [cpu(0), cpu(1)])


def test_accuracy():
    def net(X):  # the class is 1 where X > 0
        return nd.stack(0 * X[:, 0], X[:, 0], axis=1)

    X, y = nd.array([[1], [-1], [2], [-3]]), nd.array([1, 0, 0, 0], dtype="int32")
    assert d2l.evaluate_accuracy([(X, y)], net) == 0.75
    assert d2l.evaluate_accuracy([(X, y), (X[:1], y[:1])], net, cpu()) == 0.8
    devices, seen = [cpu(0), cpu(1)], []

    def halves(features, labels, contexts):
        seen.append(contexts)
        return d2l.split_batch(features, labels, contexts)

    assert d2l.evaluate_accuracy([(X, y)], net, devices, halves) == 0.75
    assert seen == [devices]

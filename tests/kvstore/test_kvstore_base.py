"""KVStores of one's own: what a Trainer asks of them (against MXNet in test_kvstore_mxnet.py)."""

from __future__ import annotations

import pytest

from d2lmini import autograd, cpu, gluon, kvstore, nd

TWO = [cpu(0), cpu(1)]


class Summing(kvstore.KVStoreBase):
    """Adds up, and remembers what it was asked."""

    def __init__(self):
        self.asked = []

    def broadcast(self, key, value, out, priority=0):
        self.asked.append(("broadcast", key, len(out)))
        for x in out:
            x[:] = value

    def pushpull(self, key, value, out=None, priority=0):
        self.asked.append(("pushpull", key, priority))
        total = nd.add_n(*value)
        for x in value if out is None else out:
            total.copyto(x)


@pytest.fixture
def registry():
    known = dict(kvstore.KVStoreBase.kv_registry)
    yield kvstore.KVStoreBase.kv_registry
    kvstore.KVStoreBase.kv_registry.clear()
    kvstore.KVStoreBase.kv_registry.update(known)


def train(store, steps=2):
    net = gluon.nn.Dense(2, in_units=3, prefix="n_")
    net.initialize("ones", ctx=TWO)
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1}, kvstore=store)
    for step in range(steps):
        with autograd.record():
            losses = [net(nd.ones((step + 1, 3), ctx=c)).sum() for c in TWO]
        autograd.backward(losses)
        trainer.step(2)
    return [x.asnumpy().tolist() for x in net.weight.list_data()], net, trainer


def test_a_trainer_uses_it_by_two_calls():
    store = Summing()
    ours, net, trainer = train(store)
    assert ours == train("device")[0]
    per_step = [("pushpull", 0, 0), ("pushpull", 1, -1)]
    assert store.asked == [("broadcast", 0, 2), ("broadcast", 1, 2)] + per_step * 2
    net.weight.set_data(nd.zeros((2, 3)))
    trainer.step(1, ignore_stale_grad=True)
    assert [x.asnumpy().sum() for x in net.weight.list_data()] == [0, 0]


def test_create_knows_it_by_its_name(registry):
    assert kvstore.KVStoreBase.register(Summing) is Summing
    assert isinstance(kvstore.create("SUMMING"), Summing)
    assert train("summing")[0] == train("local")[0]

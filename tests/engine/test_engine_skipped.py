"""A write in place that was skipped changes nothing: the array keeps its value, the error is raised
once, and training goes on. As MXNet, on every engine; see the first page of `engine/core.py`."""

from __future__ import annotations

import numpy as np
import pytest
from generators.agree import ENGINES
from invariants import check_invariants

import d2lmini
from d2lmini import MXNetError, autograd, engine, gluon, nd, virtual_gpus
from d2lmini.gluon import nn


@pytest.fixture(params=list(ENGINES))
def any_engine(request):
    with engine.use(**ENGINES[request.param]):
        yield
        engine.current.wait_idle("test")
        check_invariants()


def failed(*shape):
    """An array that cannot be computed."""
    return nd.random.normal(0, -1, shape=shape)


def raises():
    return pytest.raises(MXNetError, match=r"scale must be 0 or more(.|\n)*issued at")


WRITES = {
    "x += y": lambda x: x.__iadd__(failed(4)),
    "x[:] = y": lambda x: x.__setitem__(slice(None), failed(4)),
    "x[1:3] = y": lambda x: x.__setitem__(slice(1, 3), failed(2)),
    "x[::2] = y": lambda x: x.__setitem__(slice(None, None, 2), failed(2)),
    "x[1:3] -= y": lambda x: x[1:3].__isub__(failed(2)),
    "an update": lambda x: nd.sgd_update(x, failed(4), lr=0.1, out=x),
    "a task": lambda x: engine.push(lambda: None, reads=[x, failed(4)], writes=[x]),
}


@pytest.mark.parametrize("how", WRITES)
def test_what_was_to_change_is_as_it_was_once_the_error_was_raised(any_engine, how):
    x = nd.array([1, 2, 3, 4])
    WRITES[how](x)
    before = x * 2  # nobody knows yet: not computed from the old value
    with raises():
        x.asnumpy()
    assert x.asnumpy().tolist() == [1, 2, 3, 4]
    assert (x * 2).asnumpy().tolist() == [2, 4, 6, 8]
    for _ in range(2):  # what was never computed is missing for good
        with raises():
            before.asnumpy()
    nd.waitall()


def test_results_of_a_task_are_not_kept_as_they_were(any_engine):
    """Gradients, sums over devices: an old one in their place would be a wrong one."""
    w = nd.ones(2)
    w.attach_grad()
    with autograd.record():
        (w * w).sum().backward()
    with autograd.record():
        l = (w * failed(2)).sum()
    l.backward()
    for _ in range(2):
        with raises():
            w.grad.asnumpy()
    with autograd.record():
        (w * w).sum().backward()
    assert w.grad.asnumpy().tolist() == [2, 2]


# -- training --------------------------------------------------------------------------------------


def build(ctx=None, hybridized=False, **options):
    d2lmini.random.seed(3)
    net = nn.HybridSequential()
    net.add(nn.Dense(16, activation="relu"), nn.BatchNorm(), nn.Dense(2))
    net.initialize(ctx=ctx)
    if hybridized:
        net.hybridize()
    return net, gluon.Trainer(net.collect_params(), *options.pop("optimizer"), **options)


def learnt(net):
    return [
        x.asnumpy()
        for p in net.collect_params().values()
        for x in p.list_data()
        if p.grad_req != "null"
    ]


DATA = np.random.default_rng(0).normal(size=(12, 4)).astype("float32")


def batch(net, trainer, good=True):
    X = nd.array(DATA)
    with autograd.record():
        l = (net(X) ** 2).sum()
        if not good:
            l = l * failed(1)
    l.backward()
    trainer.step(12)
    return l


@pytest.mark.parametrize("hybridized", [False, True], ids=["as written", "hybridized"])
@pytest.mark.parametrize(
    "optimizer",
    [("sgd", {"momentum": 0.9}), ("adam", {}), ("ftrl", {}), ("lamb", {})],
    ids=lambda optimizer: optimizer[0],
)
def test_one_failed_batch_changes_nothing_and_training_goes_on(any_engine, optimizer, hybridized):
    """The weights after it are those of a net that never saw it (its forward changes the running
    statistics, as in every training forward)."""
    net, trainer = build(hybridized=hybridized, optimizer=optimizer)
    batch(net, trainer).asscalar()
    before = learnt(net)
    l = batch(net, trainer, good=False)
    with raises():
        l.asscalar()
    for was, now in zip(before, learnt(net)):
        assert (was == now).all()
    nd.waitall()
    batch(net, trainer).asscalar()
    assert (before[0] != learnt(net)[0]).any()
    nd.waitall()


@pytest.mark.parametrize("kind", ["threaded", "naive"])
@pytest.mark.parametrize("n", [1, 2])
@pytest.mark.parametrize("on_kvstore", [True, False])
@pytest.mark.parametrize("hybridized", [False, True], ids=["as written", "hybridized"])
def test_out_of_memory_on_a_device(kind, n, on_kvstore, hybridized):
    """The batch that does not fit changes no weight on any device, and those that fit go on."""
    with engine.use(kind), virtual_gpus(n, memory=3e6) as gpus:
        options = {"update_on_kvstore": on_kvstore} if n > 1 else {}
        net, trainer = build(gpus, hybridized, optimizer=("sgd", {"momentum": 0.9}), **options)

        def go(rows):
            with autograd.record():
                sizes = [8] * (n - 1) + [rows]
                xs = [nd.array(np.resize(DATA, (r, 4)), ctx=c) for r, c in zip(sizes, gpus)]
                losses = [(net(x) ** 2).sum() for x in xs]
            autograd.backward(losses)
            trainer.step(8 * n)
            return losses

        for l in go(8):
            l.asscalar()
        before = learnt(net)
        losses = go(60_000)
        with pytest.raises(engine.OutOfMemoryError):
            losses[-1].asscalar()
        for was, now in zip(before, learnt(net)):
            assert (was == now).all()
        for l in (*go(8), *go(8)):
            assert np.isfinite(l.asscalar())
        after = learnt(net)
        assert (before[0] != after[0]).any()
        for i in range(0, len(after), n):  # the same on every device
            assert all((after[i] == other).all() for other in after[i : i + n])

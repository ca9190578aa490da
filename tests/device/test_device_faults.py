"""Faults on one of several devices: out of memory, a task that fails, a limit exceeded in the midst
of a step. The error says what and where; the other devices and the engine go on; the next step
works."""

from __future__ import annotations

import gc

import numpy as np
import pytest
from invariants import check_invariants

import d2lmini
from d2lmini import autograd, engine, gluon, nd, virtual_gpus
from d2lmini.engine import OutOfMemoryError
from d2lmini.gluon import nn

MEMORY = 600_000
DATA = np.random.default_rng(0).normal(size=(4000, 64)).astype("float32")


@pytest.fixture(params=["threaded", "naive"])
def gpus(request):
    """Two devices of 0.6 MB; all is quiet in the end."""
    with engine.use(request.param):
        with virtual_gpus(2, memory=MEMORY) as devices:
            yield devices
            engine.current.wait_idle("test")
            check_invariants()


def build(devices, norm=False, hybridized=False, **how):
    d2lmini.random.seed(1)
    net = nn.HybridSequential(prefix="n_")
    with net.name_scope():
        net.add(nn.Dense(32, in_units=64))
        if norm:
            net.add(nn.BatchNorm(in_channels=32))
        net.add(nn.Dense(4, in_units=32))
    net.initialize(d2lmini.init.Xavier(), ctx=devices)
    if hybridized:
        net.hybridize()
    options = {"learning_rate": 0.01, "momentum": 0.9}
    return net, gluon.Trainer(net.collect_params(), "sgd", options, **how)


def losses_of(net, devices, rows=(4, 4)):
    """Forward and backward on so many rows for each device."""
    with autograd.record():
        losses = [(net(nd.array(DATA[:n], ctx=c)) ** 2).sum() for n, c in zip(rows, devices)]
    autograd.backward(losses)
    return losses


def step(net, trainer, devices, rows=(4, 4)):
    """One step of a loop that looks at its losses before it uses their gradients."""
    values = [l.asscalar() for l in losses_of(net, devices, rows)]
    trainer.step(sum(rows))
    return values


def weights(net):
    return [x.asnumpy() for p in net.collect_params().values() for x in p.list_data()]


# -- out of memory ---------------------------------------------------------------------------------


@pytest.mark.parametrize("hybridized", [False, True], ids=["as written", "hybridized"])
def test_running_statistics_survive_a_batch_that_fails(gpus, hybridized):
    net, trainer = build(gpus, norm=True, hybridized=hybridized)
    step(net, trainer, gpus)
    before = net[1].running_mean.data(gpus[1]).asnumpy()
    losses = losses_of(net, gpus, (4, 1500))
    with pytest.raises(OutOfMemoryError, match=r"gpu\(1\)"):
        losses[1].asscalar()
    assert (net[1].running_mean.data(gpus[1]).asnumpy() == before).all()
    assert np.isfinite(step(net, trainer, gpus)).all()
    assert np.isfinite(weights(net)[0]).all()


# -- in the midst of a step ------------------------------------------------------------------------


@pytest.mark.parametrize("on_kvstore", [True, False], ids=["on the kvstore", "on each device"])
def test_a_limit_exceeded_in_the_midst_of_a_step(gpus, on_kvstore, tmp_path):
    """There is room for the gradients, and none for what the step makes beside. What it would have
    changed says so."""
    net, trainer = build(gpus, update_on_kvstore=on_kvstore)
    net.save_parameters(str(tmp_path / "net.params"))
    for l in losses_of(net, gpus):
        l.asscalar()
    nd.waitall()
    free = min(c.memory_info()[0] for c in gpus)
    hogs = [nd.zeros((free - 4000) // 4, ctx=c) for c in gpus]
    nd.waitall()
    trainer.step(8)
    with pytest.raises(OutOfMemoryError, match=r"out of memory on gpu\(\d\)"):
        weights(net)
    assert [(hog + 0).shape for hog in (nd.ones(9, ctx=c) for c in gpus)] == [(9,)] * 2
    del hogs
    gc.collect()
    net.load_parameters(str(tmp_path / "net.params"), ctx=gpus)
    again = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.01, "momentum": 0.9})
    twin, other = build(gpus)
    for _ in range(3):
        assert step(net, again, gpus) == step(twin, other, gpus)
    for ours, undisturbed in zip(weights(net), weights(twin)):
        assert (ours == undisturbed).all()
    # The others that found no room: the file reset the kvstore with what it kept; a trainer lives.
    dropped = pytest.warns(UserWarning, match="dropped unseen")
    with dropped if on_kvstore else pytest.raises(OutOfMemoryError, match="_zeros"):
        nd.waitall()

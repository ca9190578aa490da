"""predict_memory: the same bytes as measure_memory, from shapes alone, and nothing changes."""

from __future__ import annotations

import gc
import itertools
import threading

import pytest
from training_nets import OPTIMIZERS, make_amp_step, make_step

from d2lmini import (
    MXNetError,
    autograd,
    cpu,
    d2l,
    engine,
    gluon,
    nd,
    profile,
    random,
    storage,
)
from d2lmini.contrib import amp
from d2lmini.gluon import nn
from d2lmini.ops.core import registry


@pytest.fixture(autouse=True)
def formulas_are_new():
    """No formula is compiled in the step that is measured, as at its 64th call: its arena, which is
    kept, would be memory of this step alone."""
    for op in registry.values():
        op.plans.clear()


def agree(predicted, measured):
    """Rows, issued bytes and FLOPs: all of them to the byte."""
    assert predicted == measured, "\n" + predicted.compare(measured)


@pytest.mark.law
@pytest.mark.parametrize(
    ("net", "optimizer", "mixed", "hybrid"),
    [
        *itertools.product(["mlp", "lenet", "transformer"], OPTIMIZERS, *[(False, True)] * 2),
        ("resnet18", "adam", True, True),
    ],
)
def test_prediction_is_the_measurement(net, optimizer, mixed, hybrid):
    step, inputs, block = make_step(net, optimizer, mixed, hybrid)
    predicted = d2l.predict_memory(step, *inputs, net=block)
    agree(predicted, d2l.measure_memory(step, *inputs, net=block))
    # A float32 copy and Adam's two float32 states; BatchNorm's parameters need no copy.
    halves = [p.data().size for p in block.collect_params().values() if p.dtype == "float16"]
    assert bool(halves) is mixed
    assert predicted.rows["optimizer state"] >= 4 * sum(halves) * (3 if optimizer == "adam" else 1)


@pytest.mark.law
@pytest.mark.parametrize("hybrid", [False, True])
@pytest.mark.parametrize("target", ["float16", "bfloat16"])
@pytest.mark.parametrize("name", ["mlp", "transformer"])
def test_casts_and_a_scaled_loss(name, target, hybrid):
    """Steps that overflow are skipped before the measurement; the prediction skips none, and
    leaves the scale as it is."""
    if target == "bfloat16":
        pytest.importorskip("ml_dtypes")
    with amp.init(target):
        step, inputs, net = make_amp_step(name, hybrid)
        scaler = next(iter(net.collect_params().values()))._trainer._amp_loss_scaler
        before = dict(vars(scaler))
        predicted = d2l.predict_memory(step, *inputs, net=net)
        assert vars(scaler) == before
        agree(predicted, d2l.measure_memory(step, *inputs, net=net))


@pytest.mark.parametrize("hybrid", [False, True])
@pytest.mark.parametrize("name", ["lenet", "transformer"])
def test_recomputing_gives_the_same_bits_in_the_predicted_memory(name, hybrid):
    values, found = [], []
    for call in (lambda layer, X: layer(X), autograd.checkpoint):
        random.seed(5)
        step, inputs, net = make_step(name, "adam", hybrid=hybrid, call=call)
        found.append(d2l.predict_memory(step, *inputs, net=net))
        agree(found[-1], d2l.measure_memory(step, *inputs, net=net))
        values.append([p.data().asnumpy() for p in net.collect_params().values()])
    assert all(a.tobytes() == b.tobytes() for a, b in zip(*values))
    kept, again = found
    if name != "lenet":  # a layer's input is as large as what the layer keeps
        assert again.peak_bytes < kept.peak_bytes
    assert kept.flops < again.flops < 1.5 * kept.flops


def test_nothing_changes():
    step, inputs, net = make_step("lenet", "adam")
    params = list(net.collect_params().values())
    trainer = params[0]._trainer
    step(*inputs)
    before = [p.data().asnumpy() for p in params]
    arrays = [(p.data(), p.grad()) for p in params]
    updates = trainer.optimizer.num_update
    states = [s for state in trainer._updaters[0].states.values() for s in state]
    values = [s.asnumpy() for s in states]
    gc.collect()
    engine.waitall()
    live = storage.stats(cpu()).live
    peak = storage.stats(cpu()).peak
    pushed = engine.stats().pushed
    d2l.predict_memory(step, *inputs, net=net)
    assert engine.stats().pushed == pushed
    assert storage.stats(cpu()).live == live and storage.stats(cpu()).peak == peak
    assert all(p.data() is data and p.grad() is grad for p, (data, grad) in zip(params, arrays))
    assert all((p.data().asnumpy() == x).all() for p, x in zip(params, before))
    assert trainer.optimizer.num_update == updates
    assert states == [s for state in trainer._updaters[0].states.values() for s in state]
    assert all((s.asnumpy() == x).all() for s, x in zip(states, values))


@pytest.mark.parametrize("hybrid", [False, True])
def test_a_net_that_does_not_fit(hybrid):
    """Two layers of 4 TB each; no array of it is ever made."""
    net = nn.HybridSequential()
    net.add(nn.Dense(10**6, activation="relu"), nn.Dense(10**6))
    net.initialize()
    if hybrid:
        net.hybridize()
    loss = gluon.loss.L2Loss()
    trainer = gluon.Trainer(net.collect_params(), "adam")

    def step(X, y):
        with autograd.record():
            l = loss(net(X), y)
        l.backward()
        trainer.step(1)

    found = d2l.predict_memory(step, (1, 10**6), (1, 10**6), net=net)
    assert found.rows["weights"] == 2 * 4 * (10**12 + 10**6)
    assert 4 * found.rows["weights"] < found.peak_bytes < 4.001 * found.rows["weights"]
    # The net is as it was: another input decides the shapes.
    assert net[0].weight.shape == (10**6, 0)


def test_a_value_that_the_step_reads():
    net = nn.Dense(2)
    net.initialize()
    seen = []

    def step(X):
        with autograd.record():
            l = net(X).sum()
        l.backward()
        seen.append(l.asscalar())

    d2l.predict_memory(step, (3, 4), net=net)
    assert seen == [1, 1]


def test_what_asynchrony_adds():
    """While nothing can run, everything that a step issues is pending, for each step."""
    step, inputs, net = make_step("mlp", "adam")
    step(*inputs)
    nd.waitall()
    found = d2l.predict_memory(step, *inputs, net=net)
    for steps in (1, 3):
        with profile() as trace:
            go = threading.Event()
            engine.push(go.wait, writes=[inputs[0]], name="hold")
            for _ in range(steps):
                step(*inputs)
            go.set()
        assert trace.memory()[cpu()].peak_pending == steps * found.issued_bytes


def test_a_net_on_two_devices_is_refused():
    net = nn.Dense(1, in_units=1)
    net.initialize(ctx=[cpu(0), cpu(1)])
    with pytest.raises(MXNetError, match="one device"):
        d2l.predict_memory(lambda X: net(X), (1, 1), net=net)

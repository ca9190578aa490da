"""Training over several devices gives what one device gives: data parallelism by Gluon's Trainer.

The batch is split over k virtual GPUs, gradients are added up by the KVStore, and every device
makes the same step. Where copies of parameters lie, what is said when one is not there, and what a
file keeps of those that differ is compared with the real MXNet, on its CPU contexts.
"""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
from gpu_kinds import kinds_and_counts, some_gpus
from oracle import Oracle

import d2lmini
from d2lmini import autograd, cpu, engine, gluon, gpu, init, random
from d2lmini.gluon import nn

BATCH = 30


def mlp() -> nn.HybridSequential:
    net = nn.HybridSequential()
    net.add(nn.Dense(32, activation="relu"), nn.Dense(16, activation="tanh"), nn.Dense(4))
    return net


def data(step: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(step)
    return rng.standard_normal((BATCH, 12)).astype("float32"), rng.integers(0, 4, BATCH)


def train(
    ctxs, steps=20, hybridize=False, optimizer="sgd", rates=None, kvstore="device", on_kvstore=None
):
    """Parameters after `steps` steps: name -> what each device has."""
    random.seed(7)
    net = mlp()
    net.initialize(init.Xavier(), ctx=ctxs)
    if hybridize:
        net.hybridize()
    trainer = gluon.Trainer(
        net.collect_params(), optimizer, rates or {"learning_rate": 0.1},
        kvstore=kvstore, update_on_kvstore=on_kvstore,
    )  # fmt: skip
    loss = gluon.loss.SoftmaxCrossEntropyLoss()
    for step in range(steps):
        X, y = (gluon.utils.split_and_load(a, ctxs, even_split=False) for a in data(step))
        with autograd.record():
            losses = [loss(net(Xi), yi) for Xi, yi in zip(X, y, strict=True)]
        autograd.backward(losses)
        trainer.step(BATCH)
    return [[x.asnumpy() for x in p.list_data()] for p in net.collect_params().values()]


def devices(k: int) -> list:
    return [gpu(i) for i in range(k)]


@pytest.mark.law
@pytest.mark.parametrize(("gpu_kind", "k"), kinds_and_counts([1, 2, 3, 8]))
@pytest.mark.parametrize("on_kvstore", [True, False])
@pytest.mark.parametrize("hybridize", [False, True])
def test_k_devices_equal_one(gpu_kind, k, on_kvstore, hybridize):
    one = train([cpu()], hybridize=hybridize)
    options = {"hybridize": hybridize, "on_kvstore": on_kvstore}
    with some_gpus(gpu_kind, k, link_gb_s=100):
        many, again = (train(devices(k), **options) for _ in range(2))
    assert any(np.abs(w - w.mean()).max() > 0.01 for (w,) in one)
    for (want,), got, once_more in zip(one, many, again, strict=True):
        assert len(got) == k
        for a, b in zip(got, once_more, strict=True):
            np.testing.assert_allclose(a, want, rtol=1e-5, atol=1e-6)
            assert (a == b).all() and (a == got[0]).all()


def test_engines_agree_to_the_bit(gpu_kind):
    with some_gpus(gpu_kind, 2, link_gb_s=100):
        results = []
        for kind in ("threaded", "naive"):
            with engine.use(kind):
                results.append(train(devices(2)))
    for a, b in zip(*results, strict=True):
        assert all((x == y).all() for x, y in zip(a, b, strict=True))


# -- parameters on lists of devices, in the real MXNet ---------------------------------------------


def parameters_on_devices(mx, folder):
    """What each call gives, or the error it raises, by a name; `mx` is either library."""
    gluon, nd, autograd = mx.gluon, mx.nd, mx.autograd
    two, others = [mx.cpu(0), mx.cpu(1)], [mx.cpu(1), mx.cpu(2)]
    file = folder + "/net.params"
    seen = {}

    def say(value):
        if isinstance(value, (list, tuple)):
            return [say(each) for each in value]
        if isinstance(value, nd.NDArray):
            return [str(value.context), *[round(x, 4) for x in value.asnumpy().ravel().tolist()]]
        return str(value)

    def ask(name, call):
        try:
            seen[name] = say(call())
        except Exception as error:
            seen[name] = type(error).__name__ + ": " + str(error).split("\n")[0]

    def copies(p):
        return [p.list_ctx(), p.list_data()]

    # A parameter before initialize, on two devices, on others, deferred.
    net = gluon.nn.Dense(3, in_units=2, prefix="d_")
    w = net.weight
    ask("none: data", w.data)
    ask("none: list_ctx", w.list_ctx)
    ask("none: list_data", w.list_data)
    ask("none: grad", w.grad)
    ask("none: reset_ctx", lambda: net.collect_params().reset_ctx(two))
    net.initialize("ones", ctx=two)
    ask("two: copies", lambda: copies(w))
    ask("two: data()", w.data)
    ask("two: grad()", w.grad)
    ask("two: list_grad", w.list_grad)
    ask("two: another's data", lambda: w.data(mx.cpu(2)))
    ask("two: another's grad", lambda: w.grad(mx.cpu(2)))
    ask("two: called on another", lambda: net(nd.ones((1, 2), ctx=mx.cpu(3))))
    ask("two: set_data", lambda: [w.set_data(nd.full((3, 2), 4, ctx=mx.cpu(3))), copies(w)])
    net.initialize("ones", ctx=others, force_reinit=True)
    ask("others: data()", w.data)
    ask("others: grad()", w.grad)
    net.initialize("ones", ctx=tuple(others), force_reinit=True)
    ask("others: from a tuple", lambda: copies(w))
    for ctx in ([mx.cpu(2), mx.cpu(3)], mx.cpu(1), two):
        net.collect_params().reset_ctx(ctx)
        ask(f"reset_ctx {ctx}", lambda: [copies(w), w.list_grad()])
    ask("zero_grad", lambda: [net.collect_params().zero_grad(), w.list_grad()])
    late = gluon.nn.Dense(3, prefix="e_")
    late.initialize("ones", ctx=two)
    ask("deferred: list_ctx", late.weight.list_ctx)
    ask("deferred: data", lambda: late.weight.data(two[0]))
    ask("deferred: list_data", late.weight.list_data)
    ask("deferred: grad", lambda: late.weight.grad(two[0]))
    late.collect_params().reset_ctx(others)
    ask("deferred: reset_ctx", late.weight.list_ctx)
    late(nd.ones((1, 4), ctx=mx.cpu(1)))
    ask("deferred: there", lambda: copies(late.weight))
    w.grad_req = "null"
    ask("null: grad", lambda: w.grad(two[0]))
    ask("null: list_grad", w.list_grad)

    # A constant.
    k = gluon.Constant("k", [1, 2])
    k.initialize(ctx=two)
    ask("constant: copies", lambda: copies(k))
    ask("constant: grad", lambda: k.grad(two[1]))
    ask("constant: list_grad", k.list_grad)
    k.reset_ctx(others)
    ask("constant: reset_ctx", lambda: copies(k))

    # Statistics that differ from device to device, and files.
    norm = gluon.nn.BatchNorm(in_channels=2, prefix="b_", momentum=0.5)
    norm.initialize(ctx=two)
    batches = [[[0, 2], [2, 6]], [[10, 2], [20, 4]]]
    with autograd.record():
        ys = [norm(nd.array(x, ctx=ctx)) for x, ctx in zip(batches, two)]
    autograd.backward(ys)
    nd.waitall()
    ask("norm: mean", lambda: copies(norm.running_mean))
    ask("norm: var", lambda: copies(norm.running_var))
    norm.save_parameters(file)
    ask("file", lambda: [[name, x] for name, x in sorted(nd.load(file).items())])
    again = gluon.nn.BatchNorm(in_channels=2, prefix="b_")
    again.load_parameters(file, ctx=two)
    ask("loaded", lambda: copies(again.running_mean))
    ask("loaded elsewhere", lambda: again.load_parameters(file, ctx=[mx.cpu(2)]))
    again.load_parameters(file, ctx=[two[1], two[0]])
    ask("loaded in another order", lambda: copies(again.running_var))
    again.load_parameters(file)
    ask("loaded as it is", lambda: copies(again.running_var))
    fresh = gluon.nn.BatchNorm(in_channels=2, prefix="b_")
    fresh.load_parameters(file)
    ask("loaded without devices", lambda: copies(fresh.running_var))
    norm.collect_params().reset_ctx(mx.cpu(5))
    ask("norm: reset_ctx", lambda: copies(norm.running_mean))

    # Trainer.
    one, pair = (gluon.nn.Dense(2, in_units=2, prefix=f"t{i}_") for i in range(2))
    one.initialize()
    pair.initialize("ones", ctx=two)
    both = [*pair.collect_params().values(), *one.collect_params().values()]
    ask("trainer: different devices", lambda: gluon.Trainer(both, "sgd"))

    def step(devices, **how):
        trainer = gluon.Trainer(pair.collect_params(), "sgd", {"learning_rate": 0.5})
        with autograd.record():
            losses = [pair(nd.ones((1, 2), ctx=ctx)).sum() for ctx in devices]
        autograd.backward(losses)
        trainer.step(2, **how)
        return copies(pair.weight)

    ask("trainer: step", lambda: step(two))
    ask("trainer: a device without data", lambda: step(two[:1]))

    # Statistics of several devices: the first step gives all those of the first device.
    def statistics(kvstore, update_on_kvstore):
        net = gluon.nn.HybridSequential(prefix="s_")
        with net.name_scope():
            net.add(gluon.nn.BatchNorm(in_channels=2, momentum=0.5))
        net.initialize(ctx=two)
        trainer = gluon.Trainer(
            net.collect_params(), "sgd", kvstore=kvstore, update_on_kvstore=update_on_kvstore
        )
        after = []
        for shift in (0, 3, 1):
            with autograd.record():
                ys = [net(nd.array(x, ctx=ctx) + shift) for x, ctx in zip(batches, two)]
            autograd.backward(ys)
            trainer.step(4)
            nd.waitall()
            after += [copies(net[0].running_mean), copies(net[0].running_var)]
        return after

    for how in (("device", None), ("local", True), ("device", False), (None, False)):
        ask(f"statistics: {how}", lambda how=how: statistics(*how))
    return seen


@pytest.mark.filterwarnings("ignore")
def test_parameters_on_devices_are_as_in_mxnet(mxnet: Oracle, tmp_path):
    theirs = mxnet.ask(parameters_on_devices, str(tmp_path))
    # Ours says, too, where in the net a parameter is.
    text = json.dumps(parameters_on_devices(d2lmini, str(tmp_path)))
    ours = json.loads(re.sub(r" \(\w+ of \w+\)", "", text))
    assert ours.keys() == theirs.keys() and len(ours) > 40
    for name, want in theirs.items():
        assert ours[name] == want, name

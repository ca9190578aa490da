"""SyncBatchNorm: the parts of a batch on k devices against BatchNorm over the whole on one; runs
equal to the bit; and that nothing hangs when a device does not come."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest
from gpu_kinds import some_gpus

import d2lmini
from d2lmini import MXNetError, autograd, cpu, engine, gluon, nd, virtual_gpus
from d2lmini.gluon import nn
from d2lmini.gluon.contrib.nn import SyncBatchNorm

pytestmark = pytest.mark.filterwarnings("ignore:Accumulating with float16")

X = np.random.default_rng(0).normal(size=(11, 5)).astype("float32")
IMAGES = np.random.default_rng(1).normal(size=(9, 3, 6, 5)).astype("float32")


@pytest.fixture(params=["threaded", "naive"])
def kind(request):
    with engine.use(request.param):
        yield request.param
        engine.current.wait_idle("test")
        engine.current.check()
        assert engine.stats().pending == 0


@pytest.fixture
def pair():
    """A net with two such layers, and the parts of a batch for it."""
    places = [cpu(0), cpu(1)]
    net = nn.HybridSequential()
    net.add(SyncBatchNorm(in_channels=2), nn.Dense(3), SyncBatchNorm(in_channels=3))
    net.initialize(ctx=places)
    return net, [nd.array(X[4 * i : 4 * i + 4, :2], ctx=c) for i, c in enumerate(places)]


def train(net, parts) -> list:
    with autograd.record():
        ys = [net(x) for x in parts]
    autograd.backward(ys)
    return [y.asnumpy() for y in ys]


def dense_net(norm):
    net = nn.HybridSequential(prefix="n_")
    with net.name_scope():
        net.add(
            nn.Dense(6, in_units=5), norm(in_channels=6), nn.Activation("tanh"),
            nn.Dense(4, in_units=6), norm(in_channels=4, scale=False), nn.Dense(1, in_units=4),
        )  # fmt: skip
    return net


def image_net(norm):
    net = nn.HybridSequential(prefix="n_")
    with net.name_scope():
        net.add(
            norm(in_channels=3, momentum=0.7, epsilon=1e-3), nn.Conv2D(4, 3, in_channels=3),
            norm(in_channels=4, center=False), nn.Activation("relu"), nn.Dense(2, in_units=48),
        )  # fmt: skip
    return net


def named(cls):
    """So that both kinds of layer have the same names."""
    return lambda **how: cls(prefix=f"norm{how['in_channels']}_", **how)


def fit(build, cls, data, places, hybridized, one_by_one, dtype="float32", steps=3):
    """Outputs of all steps, predictions, parameters on all devices."""
    net = build(named(cls))
    d2lmini.random.seed(3)
    net.initialize(d2lmini.init.Xavier(), ctx=places)
    net.cast(dtype)
    if hybridized:
        net.hybridize()
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1, "momentum": 0.9})
    outputs = []
    cuts = [i * len(data) // len(places) for i in range(len(places) + 1)]
    parts = [
        nd.array(data[i:j], ctx=c, dtype=dtype) for i, j, c in zip(cuts, cuts[1:], places)
    ]  # fmt: skip
    for _ in range(steps):
        with autograd.record():
            ys = [net(x) for x in parts]
            losses = [(y * y).sum() for y in ys]
        if one_by_one:
            for l in losses:
                l.backward()
        else:
            autograd.backward(losses)
        trainer.step(len(data))
        outputs.append(np.concatenate([y.asnumpy() for y in ys]))
    outputs.append(np.concatenate([net(x).asnumpy() for x in parts]))
    learnt = {k: [x.asnumpy() for x in p.list_data()] for k, p in net.collect_params().items()}
    return outputs, learnt


@pytest.mark.parametrize("hybridized", [False, True], ids=["as written", "hybridized"])
@pytest.mark.parametrize("k", [2, 3])
@pytest.mark.parametrize("build, data", [(dense_net, X), (image_net, IMAGES)], ids=["mlp", "cnn"])
def test_k_devices_equal_one(kind, build, data, k, hybridized):
    """Forward in both modes, gradients, running statistics; losses walked back one by one, too."""
    want, parameters = fit(build, nn.BatchNorm, data, [cpu()], False, False)
    runs = []
    with virtual_gpus(k) as gpus:
        for places in (gpus, gpus, [cpu(i) for i in range(k)]):
            runs.append(fit(build, SyncBatchNorm, data, places, hybridized, places is gpus))
    for outputs, learnt in runs:
        for ours, whole in zip(outputs, want, strict=True):
            np.testing.assert_allclose(ours, whole, rtol=1e-4, atol=1e-5)
        for name, whole in parameters.items():
            for ours in learnt[name]:
                np.testing.assert_allclose(ours, whole[0], rtol=1e-4, atol=1e-5, err_msg=name)
                assert (ours == learnt[name][0]).all(), "devices differ"
    (a, p), (b, q), (c, _) = runs
    for other in (b, c):
        assert all((x == y).all() for x, y in zip(a, other)), "two runs differ"
    assert all((x == y).all() for n in p for x, y in zip(p[n], q[n])), "two runs differ"


@pytest.mark.parametrize("hybridized", [False, True], ids=["as written", "hybridized"])
def test_on_the_fake_of_cuda(hybridized):
    """Streams in a random legal order; what no event orders would raise."""
    want, _ = fit(image_net, nn.BatchNorm, IMAGES, [cpu()], False, False)
    with some_gpus("fake", 2, seed=5) as gpus:
        got, _ = fit(image_net, SyncBatchNorm, IMAGES, gpus, hybridized, True)
    for ours, whole in zip(got, want, strict=True):
        np.testing.assert_allclose(ours, whole, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype, tolerance", [("float64", 1e-12), ("float16", 2e-2)])
def test_dtypes(dtype, tolerance):
    want, _ = fit(image_net, nn.BatchNorm, IMAGES, [cpu()], False, False, dtype, steps=1)
    got, _ = fit(image_net, SyncBatchNorm, IMAGES, [cpu(0), cpu(1)], False, False, dtype, steps=1)
    np.testing.assert_allclose(got[0], want[0], rtol=tolerance, atol=tolerance)


def test_an_empty_part_counts_nothing(kind):
    x = nd.array(X[:4])
    whole, parted = nn.BatchNorm(in_channels=5), SyncBatchNorm(in_channels=5)
    whole.initialize()
    parted.initialize(ctx=[cpu(0), cpu(1)])
    empty = nd.zeros((0, 5), ctx=cpu(1))
    with autograd.record():
        want, got, nothing = whole(x), parted(x), parted(empty)
    autograd.backward([want, got, nothing])
    np.testing.assert_allclose(got.asnumpy(), want.asnumpy(), rtol=1e-5, atol=1e-6)
    assert nothing.asnumpy().shape == (0, 5)
    for c in (cpu(0), cpu(1)):
        running = parted.running_var.data(c).asnumpy()
        np.testing.assert_allclose(running, whole.running_var.data().asnumpy(), rtol=1e-5)


def test_a_layer_that_is_used_twice_meets_in_the_order_of_its_calls(kind):
    def run(norm, parts):
        norm.initialize(ctx=[x.context for x in parts])
        for x in parts:
            x.attach_grad()
        with autograd.record():
            ys = [norm(norm(x) + 1) * x + norm(x * 2) for x in parts]
        autograd.backward(ys)
        return np.concatenate([v.asnumpy() for v in ys + [x.grad for x in parts]])

    want = run(nn.BatchNorm(in_channels=5), [nd.array(X)])
    got = run(
        SyncBatchNorm(in_channels=5), [nd.array(X[:6], ctx=cpu(0)), nd.array(X[6:], ctx=cpu(1))]
    )
    np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-4)


def test_one_device_and_global_statistics_are_batch_norm():
    x = nd.array(X)
    for how in ({}, {"use_global_stats": True}, {"num_devices": 1}):
        layer = SyncBatchNorm(in_channels=5, **how)
        layer.initialize()
        plain = nn.BatchNorm(in_channels=5, use_global_stats="use_global_stats" in how)
        plain.initialize()
        layer.hybridize()
        with autograd.record():
            assert (layer(x).asnumpy() == plain(x).asnumpy()).all()
    assert layer(d2lmini.sym.var("x")).list_auxiliary_states() == [
        layer.running_mean.name, layer.running_var.name,
    ]  # fmt: skip


def test_words():
    layer = SyncBatchNorm(in_channels=3, num_devices=2, prefix="s_")
    assert repr(layer) == (
        "SyncBatchNorm(eps=1e-05, momentum=0.9, fix_gamma=False, use_global_stats=False, ndev=2, "
        "key='s_', in_channels=3)"
    )
    with pytest.raises(ValueError, match="1 or more, got 0"):
        SyncBatchNorm(num_devices=0)


# -- who does not come -----------------------------------------------------------------------------


def alone(net, x):
    with autograd.record():
        return net(x)


def test_a_missing_device_is_an_error_at_the_wait_and_the_next_step_works(kind, pair):
    net, parts = pair
    want = train(net, parts)
    running = net[0].running_mean.data(cpu(0)).asnumpy()
    y = alone(net, parts[0])
    begin = time.monotonic()
    with pytest.raises(MXNetError, match=r"1 of 2 devices came \(cpu\(0\)\)(.|\n)*issued at"):
        y.asnumpy()
    assert time.monotonic() - begin < 5
    with pytest.raises(MXNetError, match=r"Now cpu\(1\) comes too late"):
        alone(net, parts[1])
    assert (net[0].running_mean.data(cpu(0)).asnumpy() == running).all()
    for ours, before in zip(train(net, parts), want):
        assert (ours == before).all()


@pytest.mark.filterwarnings("ignore:.*dropped unseen")
@pytest.mark.parametrize("first", [0, 1])
def test_after_an_exception_that_was_caught_the_parts_of_a_step_meet(kind, pair, first):
    """One device came, then something went wrong: what it brought meets nobody of the next step."""
    net, parts = pair
    want = train(net, parts)
    came = []
    with pytest.raises(ZeroDivisionError), autograd.record():
        came.append(net(parts[first]))
        raise ZeroDivisionError
    for ours, before in zip(train(net, parts), want):
        assert (ours == before).all()
    with pytest.raises(MXNetError, match="then an exception ended the scope"):
        came[0].asnumpy()
    nd.waitall()


def test_an_exception_elsewhere_changes_nothing(pair):
    net, parts = pair
    want = train(net, parts)
    with autograd.record():
        a = net(parts[0])
        with pytest.raises(ZeroDivisionError), autograd.record():
            raise ZeroDivisionError  # caught within the step
        b = net(parts[1])
    c = autograd.grad([a, b], net[0].gamma.list_data())
    assert np.isfinite(c[0].asnumpy()).all() and len(want)
    nd.waitall()


def test_a_missing_device_is_an_error_of_waitall(kind, pair):
    net, parts = pair
    alone(net, parts[0])
    with pytest.raises(MXNetError, match=r"1 of 2 devices came \(cpu\(0\)\)"):
        nd.waitall()
    nd.waitall()
    train(net, parts)


def test_a_missing_backward_is_an_error_at_the_wait(kind, pair):
    net, parts = pair
    with autograd.record():
        ys = [net(x) for x in parts]
    ys[0].backward()
    with pytest.raises(MXNetError, match=r"\(backward\): 1 of 2 devices came \(cpu\(0\)\)"):
        net[0].gamma.grad(cpu(0)).asnumpy()
    train(net, parts)


def test_a_device_far_ahead_is_an_error_at_the_call(kind, pair):
    net, parts = pair
    with pytest.raises(MXNetError, match=r"called 17 times on cpu\(0\)"):
        for _ in range(30):
            alone(net[0], parts[0])
    with pytest.raises(MXNetError, match="1 of 2 devices came"):
        nd.waitall()
    train(net, parts)


def test_more_devices_than_there_are_is_an_error_at_the_call():
    layer = SyncBatchNorm(in_channels=5, num_devices=3)
    layer.initialize(ctx=[cpu(0), cpu(1)])
    with pytest.raises(MXNetError, match="num_devices=3, but its parameters are only on"):
        alone(layer, nd.array(X))


def test_devices_that_wait_for_each_other_are_an_error(kind, pair):
    net, parts = pair
    with autograd.record():
        y = net[0](net[0](parts[0]).as_in_context(cpu(1)))
    with pytest.raises(MXNetError, match="depends on its result on another"):
        y.asnumpy()
    train(net, parts)


def test_a_part_that_fails_fails_the_whole(kind, pair):
    net, parts = pair
    bad = nd.random.normal(0, -1, shape=(4, 2), ctx=cpu(1))
    with autograd.record():
        ys = [net(parts[0]), net(bad)]
    with pytest.raises(MXNetError, match="scale must be 0 or more"):
        ys[0].asnumpy()
    train(net, parts)
    with pytest.raises(MXNetError, match="scale must be 0 or more"):
        bad.wait_to_read()


def test_the_bound_on_pending_bytes_lets_the_others_come(pair):
    layer = SyncBatchNorm(in_channels=100)
    layer.initialize(ctx=[cpu(0), cpu(1)])
    with engine.use("threaded", limit=50_000):
        for _ in range(3):
            with autograd.record():
                ys = [layer(layer(nd.ones((99, 100), ctx=cpu(i)))) for i in range(2)]
            autograd.backward(ys)
        assert all(abs(y.asnumpy()).max() == 0 for y in ys)


def test_threads_one_for_each_device(pair):
    net, parts = pair
    want = train(net, parts)
    found: dict[int, np.ndarray] = {}

    def work(i: int) -> None:
        time.sleep(0.3 * i)  # the first is at its wait before the second comes
        with autograd.record():
            y = net(parts[i])
        y.backward()
        found[i] = y.asnumpy()

    threads = [threading.Thread(target=work, args=(i,)) for i in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all((found[i] == want[i]).all() for i in range(2))


def test_lazy_scopes_bulk_and_cancelling(pair):
    net, parts = pair
    want = train(net, parts)
    with d2lmini.lazy():
        lazily = train(net, parts)
    with engine.bulk(20):
        in_bulk = train(net, parts)
    for found in (lazily, in_bulk):
        assert all((x == y).all() for x, y in zip(found, want))
    y = alone(net, parts[0])
    engine.cancel_pending()
    with pytest.raises(MXNetError, match=r"cancelled|devices came"):
        y.asnumpy()
    nd.waitall()
    train(net, parts)


def test_second_order_gradients_are_refused(pair):
    net, parts = pair
    for x in parts:
        x.attach_grad()
    with autograd.record():
        ys = [net[0](x).sum() for x in parts]
        with pytest.raises(MXNetError, match="create_graph=True needs the history"):
            autograd.grad(ys, parts, create_graph=True)

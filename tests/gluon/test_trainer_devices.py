"""Trainer over devices: equal to one device, equal from run to run, and while backward goes on."""

from __future__ import annotations

import itertools
import time

import numpy as np
import pytest
from gpu_kinds import WITH_CPU, kinds_and_counts, some_gpus

from d2lmini import autograd, cpu, gluon, init, nd, optimizer, random
from d2lmini.base import instrument
from d2lmini.gluon import nn

BATCH = 24


def net_of(widths, ctx):
    random.seed(7)
    net = nn.Sequential()
    for width in widths:
        net.add(nn.Dense(width, activation="tanh"))
    net.initialize(init.Xavier(), ctx=ctx)
    return net


def batch(step, rows=BATCH):
    rng = np.random.default_rng(step)
    return rng.standard_normal((rows, 12)).astype("float32"), rng.integers(0, 4, rows)


def back(net, ctxs, step, rows=BATCH):
    loss = gluon.loss.SoftmaxCrossEntropyLoss()
    X, y = (gluon.utils.split_and_load(a, ctxs, even_split=False) for a in batch(step, rows))
    with autograd.record():
        losses = [loss(net(Xi), yi) for Xi, yi in zip(X, y, strict=True)]
    autograd.backward(losses)


def weights(net):
    return [[x.asnumpy() for x in p.list_data()] for p in net.collect_params().values()]


def train(ctxs, steps=20, rows=BATCH, **options):
    net = net_of((16, 8, 4), ctxs)
    options.setdefault("optimizer_params", {"learning_rate": 0.2, "momentum": 0.9})
    trainer = gluon.Trainer(net.collect_params(), "sgd", **options)
    for step in range(steps):
        back(net, ctxs, step, rows)
        trainer.step(rows)
    return weights(net)


# -- k devices, one result -------------------------------------------------------------------------


@pytest.fixture(scope="module")
def one() -> list:
    """The weights that one device has after 20 steps, of batches that few k divide."""
    return train([cpu()], rows=BATCH + 1)


@pytest.mark.law
@pytest.mark.parametrize(("gpu_kind", "k"), kinds_and_counts(range(1, 9)))
@pytest.mark.parametrize(("kind", "on_kvstore"), [("device", True), ("local", False)])
def test_k_devices_equal_one_and_runs_equal_to_the_bit(gpu_kind, k, kind, on_kvstore, one):
    with some_gpus(gpu_kind, k, link_gb_s=100) as gpus:
        options = {"kvstore": kind, "update_on_kvstore": on_kvstore, "rows": BATCH + 1}
        first, second = (train(gpus, **options) for _ in range(2))
    for (want,), got, again in zip(one, first, second, strict=True):
        assert len(got) == k
        for a, b in zip(got, again, strict=True):
            np.testing.assert_allclose(a, want, rtol=1e-5, atol=1e-6)
            assert (a == b).all() and (a == got[0]).all()


OPTIMIZERS = sorted(optimizer.Optimizer.opt_registry)
#: Their steps are as long as norms say, which a device adds up in an order of its own.
BY_NORMS = ("lamb",)
#: Rows and dtypes of parameters.
PARAMETERS = [(40, "float32"), (1, "float32"), (7, "float16"), (40, "float16")]


def update_everywhere(ctxs, name, steps):
    """The weights as they begin; and as the optimizer leaves them, if it updates on the CPU, on
    each device, on the device where the value lies, on each device again."""
    options = {"learning_rate": 0.01, "wd": 0.01, "multi_precision": True}
    if "momentum" in getattr(optimizer.Optimizer.opt_registry[name], "_fields", ()):
        options["momentum"] = 0.9
    found = []
    for kind, on_kvstore in itertools.product(("local", "device"), (True, False)):
        random.seed(7)
        params = [gluon.Parameter(f"{d}{n}", shape=(n, 3), dtype=d) for n, d in PARAMETERS]
        for p in params:
            p.initialize(init.Normal(1), ctx=ctxs)
        begin = [p.data(ctxs[0]).asnumpy() for p in params]
        trainer = gluon.Trainer(params, name, options, kind, update_on_kvstore=on_kvstore)
        for step in range(steps):
            rng = np.random.default_rng(step)
            for x in (x for p in params for x in p.list_data()):
                grad = nd.array(rng.standard_normal(x.shape), ctx=x.context, dtype=x.dtype)
                with autograd.record():
                    y = x * grad
                y.backward()
            trainer.step(4)
        found.append([[x.asnumpy() for x in p.list_data()] for p in params])
    return begin, found


@pytest.mark.law
@pytest.mark.parametrize("kind", WITH_CPU)
@pytest.mark.parametrize("k", [1, 2, 4])
@pytest.mark.parametrize("name", [name for name in OPTIMIZERS if name not in BY_NORMS])
def test_where_it_is_updated_does_not_matter(kind, name, k):
    """Sums are taken in one order, and each operation of an update is rounded, everywhere."""
    with some_gpus(kind, k) as ctxs:
        _, results = update_everywhere(ctxs, name, steps=3)
    for result in results:
        for copies, (want, *_) in zip(result, results[0], strict=True):
            assert all((x == want).all() for x in copies)


# -- while backward goes on ------------------------------------------------------------------------


class Times(instrument.Instrument):
    """(start, end, task) of every task that ran."""

    def __init__(self):
        self.began, self.ran = {}, []

    def start(self, task, worker):
        self.began[task] = time.perf_counter()

    def end(self, task, failure):
        if task in self.began:
            self.ran.append((self.began.pop(task), time.perf_counter(), task))


def travels(task) -> bool:
    """Does it bring gradients to where others are?"""
    return task.name.startswith("Copy") or task.name == "AllReduce"


@pytest.mark.parametrize("kind", ["local", "device"])
@pytest.mark.parametrize("on_kvstore", [True, False])
def test_sums_begin_before_backward_ends(gpu_kind, kind, on_kvstore):
    """The gradients of a late layer travel, and are added up, before the first layer has its."""
    layers, rows = 8, 128 if gpu_kind == "fake" else 2048  # the fake is slow
    with some_gpus(gpu_kind, 2, link_gb_s=12) as gpus:
        net = net_of([256] * layers, gpus)
        rates = {"learning_rate": 0.1}
        trainer = gluon.Trainer(net.collect_params(), "sgd", rates, kind, None, on_kvstore)
        for step in range(2):  # shapes and the KVStore are there
            back(net, gpus, step, rows)
            trainer.step(rows)
        nd.waitall()
        with instrument.listening(Times()) as times:
            back(net, gpus, 2, rows)
            trainer.step(rows)
            nd.waitall()
        grads_of = [[g._chunk for g in layer.weight.list_grad()] for layer in net]
        vars_of = [set(vars_) for vars_ in grads_of]
        sent = [
            min(begin for begin, _, t in times.ran if travels(t) and vars_ & {*t.reads})
            for vars_ in vars_of
        ]
        done = [
            max(
                end for _, end, t in times.ran
                if vars_ & {*t.writes} and not travels(t) and t.name != "add_n"
            )
            for vars_ in vars_of
        ]  # fmt: skip
        summed = min(begin for begin, _, t in times.ran if t.name in ("add_n", "AllReduce"))
        assert sent[-1] < done[0] and summed < done[0]
        # Each device sends those of later layers first, for they are there first. (Of two that
        # wait for the link the earlier layer's goes first: the next step needs it first.)
        for i in range(2):
            order = [
                layer
                for _, _, task in sorted(times.ran, key=lambda each: each[0])
                for layer, vars_ in enumerate(grads_of)
                if travels(task) and vars_[i] in task.reads
            ]
            assert len(order) > 1 and order.index(max(order)) < order.index(min(order))

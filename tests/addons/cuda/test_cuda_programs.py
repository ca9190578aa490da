"""Compiled nets on a GPU: the fake CUDA runs their work in a random legal order, and g++ the very
text of their kernels. What they learn is what they learn on the CPU."""

from __future__ import annotations

import numpy as np
import pytest
from fakes import cuda_cpp
from gpu_kinds import fake_gpus

from d2lmini import autograd, cpu, gluon, gpu, nd
from d2lmini.gluon import nn

pytestmark = pytest.mark.skipif(cuda_cpp.COMPILER is None, reason="there is no g++")


@pytest.fixture(params=[1, 2])
def on_gpu(request):
    """gpu(0), with another order of its work for each parameter."""
    with fake_gpus(1, request.param):
        yield gpu(0)


def made() -> nn.HybridSequential:
    net = nn.HybridSequential()
    net.add(
        nn.Conv2D(4, 3, padding=1), nn.BatchNorm(), nn.Activation("relu"), nn.MaxPool2D(2, 2),
        nn.Dense(8, activation="sigmoid"), nn.Dense(8), nn.LayerNorm(), nn.Dense(3),
    )  # fmt: skip
    return net


def learnt(ctx, optimizer: str, **how) -> tuple[list[float], list[np.ndarray], str]:
    """The losses and parameters of three steps, and the text of the program."""
    rng = np.random.default_rng(0)
    x = nd.array(rng.normal(size=(6, 2, 8, 8)), ctx=ctx)
    y = nd.array(rng.integers(0, 3, 6), ctx=ctx)
    net = made()
    net.initialize(ctx=ctx)
    net(x)
    parameters = list(net.collect_params().values())
    for i, p in enumerate(parameters):
        values = np.random.default_rng(i).normal(0, 0.3, p.shape)
        p.set_data(nd.array(np.ones(p.shape) if "var" in p.name else values))
    if how:
        net.hybridize(**how)
    trainer = gluon.Trainer(net.collect_params(), optimizer, {"learning_rate": 0.05, "wd": 0.01})
    loss = gluon.loss.SoftmaxCrossEntropyLoss()
    losses = []
    for _ in range(3):
        with autograd.record():
            l = loss(net(x), y)
        l.backward()
        trainer.step(6)
        losses.append(float(l.mean().asscalar()))
    text = str(net.program()) if how else ""
    return losses, [p.data(ctx).asnumpy() for p in parameters], text


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_a_net_learns_the_same_on_a_gpu(on_gpu, optimizer):
    want, parameters, _ = learnt(cpu(), optimizer)
    for how in ({}, {"static_alloc": False}, {"static_alloc": True}):
        losses, got, text = learnt(on_gpu, optimizer, **how)
        np.testing.assert_allclose(losses, want, rtol=1e-4)
        for a, b in zip(got, parameters, strict=True):
            np.testing.assert_allclose(a, b, rtol=5e-4, atol=5e-5)
        assert ("__global__" in text) == bool(how)

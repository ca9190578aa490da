"""Slow virtual GPUs: their times are exact on the virtual clock, and lower bounds in real time."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from d2lmini import (
    autograd,
    cpu,
    engine,
    gluon,
    gpu,
    init,
    nd,
    profile,
    random,
    virtual_gpus,
)
from d2lmini.context import Context
from d2lmini.gluon import nn
from d2lmini.gluon.utils import split_and_load
from d2lmini.profiler.tracing import Trace

BATCH = 24


def run_us(trace: Trace, name: str) -> list[float]:
    return [operation.run_ns / 1e3 for operation in trace.operations if operation.name == name]


def length_us(work: Callable[[], object]) -> float:
    with profile() as trace:
        work()
        nd.waitall()
    return (trace.end_ns - trace.begin_ns) / 1e3


# -- one operation ---------------------------------------------------------------------------------


def product(ctx: Context) -> nd.NDArray:
    """2 * 20 * 30 * 40 = 48 000 FLOPs, 4 * (600 + 1200 + 800) = 10 400 bytes."""
    return nd.dot(nd.ones((20, 30), ctx=ctx), nd.ones((30, 40), ctx=ctx))


@pytest.mark.parametrize(
    "rates, us",
    [
        ({"gflops": 1}, 48.0),
        ({"gflops": 0.5}, 96.0),
        ({"memory_gb_s": 1}, 10.4),
        ({"gflops": 1, "memory_gb_s": 1}, 48.0),  # the longer of the two
        ({"gflops": 1, "memory_gb_s": 0.1}, 104.0),
        ({"gflops": [1], "memory_gb_s": [None]}, 48.0),
    ],
)
def test_an_operation_takes_the_time_of_its_flops_or_of_its_bytes(rates, us):
    with virtual_gpus(1, **rates), engine.stepped(), profile() as trace:
        product(gpu(0))
    assert run_us(trace, "dot") == [pytest.approx(us)]


def test_a_copy_takes_the_time_of_the_slowest_link_on_its_way():
    with virtual_gpus(2, link_gb_s=[1, 0.1]) as (a, b), engine.stepped(), profile() as trace:
        x = nd.ones(1000)
        for ctx in (a, b, a, cpu(), b, cpu()):
            x = x.as_in_context(ctx)
    copies = [operation for operation in trace.operations if operation.is_copy]
    assert [operation.place for operation in copies] == [
        "gpu(0) in", "gpu(1) in", "gpu(0) in", "gpu(0) out", "gpu(1) in", "gpu(1) out"
    ]  # fmt: skip
    assert [operation.run_ns for operation in copies] == [4000, 40000, 40000, 4000, 40000, 40000]


def test_a_function_that_the_program_pushes_is_not_slowed():
    with virtual_gpus(1, gflops=1e-9), profile() as trace:
        engine.push(int, ctx=gpu(0))
    assert trace.operations[0].run_ns < 1e9


# -- training --------------------------------------------------------------------------------------


class Training:
    """A net on some devices, each with its part of a batch; one step is done."""

    def __init__(self, make: Callable, ctxs: list[Context], hybridize: bool = False):
        random.seed(0)
        self.net, shape = make()
        self.net.initialize(init.Xavier(), ctx=ctxs)
        self.loss = gluon.loss.SoftmaxCrossEntropyLoss()
        if hybridize:
            self.net.hybridize()
            self.loss.hybridize()
        self.trainer = gluon.Trainer(self.net.collect_params(), "sgd", kvstore="device")
        data = nd.ones((BATCH, *shape)), nd.zeros(BATCH)
        self.X, self.y = (split_and_load(part, ctxs) for part in data)
        self.step()
        nd.waitall()

    def backward(self) -> None:
        with autograd.record():
            losses = [self.loss(self.net(X), y) for X, y in zip(self.X, self.y, strict=True)]
        autograd.backward(losses)

    def update(self) -> None:
        self.trainer.step(BATCH)

    def step(self) -> None:
        self.backward()
        self.update()


def lengths(make: Callable, hybridize: bool, k: int, **rates: object) -> tuple[float, float, float]:
    """Microseconds on the virtual clock of backward, of the update, and of a step of both."""
    with engine.stepped(), virtual_gpus(k, **rates) as ctxs:
        training = Training(make, ctxs, hybridize)
        parts = (training.backward, training.update, training.step)
        return tuple(length_us(part) for part in parts)  # type: ignore[return-value]


def one_weight() -> tuple[nn.HybridSequential, tuple[int, ...]]:
    net = nn.HybridSequential()
    net.add(nn.Dense(10, use_bias=False))
    return net, (100,)


@pytest.mark.parametrize("k", [2, 3, 4])
def test_a_step_is_compute_then_communication_to_the_nanosecond(k):
    """One weight, so there is nothing to hide its sum behind: k - 1 copies in, one after another,
    a sum, and a copy to each other device, all at once."""
    backward_us, update_us, step_us = lengths(one_weight, False, k, gflops=0.1, link_gb_s=0.1)
    copy_us, sum_us = 4 * 1000 / 100, (k - 1) * 1000 / 100
    assert update_us == pytest.approx((k - 1) * copy_us + sum_us + copy_us)
    assert step_us == pytest.approx(backward_us + update_us)

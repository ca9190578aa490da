"""Slow virtual GPUs: their times are exact on the virtual clock, and lower bounds in real time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from itertools import pairwise

import pytest

from d2lmini import (
    MXNetError,
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
#: On the virtual clock times are whole nanoseconds; a sum of many is off by one for each at most.
ROUNDING_NS = 100


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


def test_each_device_has_its_own_rates():
    with virtual_gpus(3, gflops=[1, 2, None]) as ctxs, engine.stepped(), profile() as trace:
        for ctx in (*ctxs, cpu()):
            product(ctx)
    slow, fast, *others = run_us(trace, "dot")
    assert (slow, fast) == (pytest.approx(48.0), pytest.approx(24.0))
    assert others[0] == others[1]  # as predicted for the cores


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


def test_times_given_to_the_stepped_engine_come_first():
    with virtual_gpus(1, gflops=1), engine.stepped(times={"dot": 7}), profile() as trace:
        product(gpu(0)) + 1
    assert run_us(trace, "dot") == [7.0]
    assert run_us(trace, "_plus_scalar") == [pytest.approx(0.8)]


def test_a_function_that_the_program_pushes_is_not_slowed():
    with virtual_gpus(1, gflops=1e-9), profile() as trace:
        engine.push(int, ctx=gpu(0))
    assert trace.operations[0].run_ns < 1e9


# -- training --------------------------------------------------------------------------------------


def mlp() -> tuple[nn.HybridSequential, tuple[int, ...]]:
    net = nn.HybridSequential()
    net.add(nn.Dense(24, activation="relu"), nn.Dense(16, activation="tanh"), nn.Dense(4))
    return net, (12,)


def conv() -> tuple[nn.HybridSequential, tuple[int, ...]]:
    net = nn.HybridSequential()
    net.add(
        nn.Conv2D(4, 3, padding=1, activation="relu"), nn.MaxPool2D(2), nn.Conv2D(8, 3),
        nn.Flatten(), nn.Dense(4),
    )  # fmt: skip
    return net, (1, 8, 8)


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


@pytest.mark.parametrize("hybridize", [False, True])
@pytest.mark.parametrize("make", [mlp, conv])
def test_k_devices_compute_in_a_kth_of_the_time(make, hybridize):
    one, update_us, _ = lengths(make, hybridize, 1, gflops=0.1)
    assert update_us == 0  # one device sends nothing, and the rates of its memory have no bound
    with engine.stepped(), virtual_gpus(1) as ctxs:
        training = Training(make, ctxs, hybridize)
        with profile() as trace:
            training.backward()
    flops = sum(operation.flops for operation in trace.operations)
    assert one == pytest.approx(flops / 100)
    for k in (2, 4):
        backward_us, update_us, step_us = lengths(make, hybridize, k, gflops=0.1, link_gb_s=0.1)
        assert backward_us * k == pytest.approx(one)
        assert update_us > 0
        rounding_us = ROUNDING_NS / 1e3
        assert backward_us - rounding_us < step_us < backward_us + update_us + rounding_us


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


def test_the_slowest_device_and_the_slowest_link_decide():
    even = lengths(mlp, False, 2, gflops=0.1, link_gb_s=0.1)
    for rates in ([0.1, 1], [1, 0.1]):
        uneven = lengths(mlp, False, 2, gflops=rates, link_gb_s=0.1)
        assert uneven[0] == pytest.approx(even[0])
    slow = lengths(mlp, False, 2, gflops=0.1, link_gb_s=[0.1, 0.05])
    assert slow[0] == pytest.approx(even[0]) and even[1] < slow[1] < 2 * even[1]


# -- real time -------------------------------------------------------------------------------------


@pytest.fixture(params=["threaded", "naive"])
def engines(request) -> Iterator[str]:
    with engine.use(request.param):
        yield request.param


def test_traces_show_the_slowed_durations(engines):
    with virtual_gpus(2, gflops=0.1, link_gb_s=0.1) as ctxs:
        training = Training(mlp, ctxs, hybridize=True)
        with profile() as trace:
            training.step()
            nd.waitall()
    slowed = [operation for operation in trace.operations if not operation.ctx.is_cpu]
    assert {operation.place for operation in slowed} == {
        "gpu(0)", "gpu(1)", "gpu(0) in", "gpu(1) in"
    }  # fmt: skip
    for operation in slowed:
        needed_ns = operation.nbytes / 0.1 if operation.is_copy else operation.flops / 0.1
        assert operation.run_ns >= needed_ns, operation
    assert sum(operation.flops for operation in slowed) > 1e4


def test_devices_wait_asleep_and_side_by_side():
    """Three operations of 100 ms on each of four devices, on however many cores."""
    x = nd.ones((100, 100))
    with virtual_gpus(4, gflops=0.02) as ctxs:
        parts = [x.as_in_context(ctx) for ctx in ctxs]
        nd.waitall()
        begin_cpu_s = time.process_time()
        with profile() as trace:
            for _ in range(3):
                for part in parts:
                    nd.dot(part, part)
            nd.waitall()
        cpu_s = time.process_time() - begin_cpu_s
    by_place: dict[str, list] = {}
    for operation in trace.operations:
        by_place.setdefault(operation.place, []).append(operation)
    assert len(by_place) == 4
    for operations in by_place.values():
        operations.sort(key=lambda operation: operation.began_ns)
        assert all(a.ended_ns <= b.began_ns for a, b in pairwise(operations))
    # Each device begins before any device has ended its work: no lane waits for another.
    first_end_ns = min(operations[-1].ended_ns for operations in by_place.values())
    assert all(operations[0].began_ns < first_end_ns for operations in by_place.values())
    assert cpu_s < 12 * 0.1


def test_results_and_failures_are_those_of_the_cores():
    with virtual_gpus(1, gflops=1e-3) as (ctx,):
        assert (product(ctx).asnumpy() == 30).all()
        failed = nd.zeros((2,), ctx=ctx)
        engine.push(lambda: 1 / 0, writes=[failed], ctx=ctx, name="divide")
        with pytest.raises(MXNetError, match="division by zero"):
            (failed + 1).asnumpy()
        assert (product(ctx) + 1).asnumpy().max() == 31

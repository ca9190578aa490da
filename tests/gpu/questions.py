"""The questions that no stand-in for CUDA answers: right or wrong on a real GPU.

Collected by `run.py` alone, first of all groups.
"""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest
from gpu_kinds import logical_gpus

from d2lmini import autograd, cpu, cpu_pinned, gluon, gpu, nd
from d2lmini.cuda import module
from d2lmini.cuda.nccl import NcclWorker
from d2lmini.device.devices import device_of
from d2lmini.kvstore.allreduce import Side

#: The stand-ins for CUDA's libraries, where this runs on them (`stub/run.py behaviour`).
STUB = "gpu_stub_boot" if "gpu_stub_boot" in sys.modules else ""

#: A kernel writes to address 8. After that CUDA answers everything with an error, for that process.
#: Kernels on the stand-ins do nothing, so there the GPU is lost in another way.
POKE = f"""
{f"import {STUB}, time" if STUB else ""}
import cupy
from d2lmini import engine, gpu, nd

x = nd.ones(4, ctx=gpu(0))
x.wait_to_read()
poke = cupy.RawKernel('extern "C" __global__ void poke(int* p) {{ *p = 1; }}', "poke")
engine.push(lambda: poke((1,), (1,), (cupy.uint64(8),)), writes=[x], ctx=gpu(0))
{f"time.sleep(0.2); {STUB}.lose(700)" if STUB else ""}
print("issued", flush=True)
WAIT
"""


@pytest.mark.parametrize("wait", ["(x + 1).wait_to_read()", "nd.waitall()", "x.asnumpy()"])
def test_a_gpu_that_failed_is_told_of(wait: str):
    done = subprocess.run(
        [sys.executable, "-c", POKE.replace("WAIT", wait)],
        timeout=100,
        capture_output=True,
        text=True,
        env=dict(os.environ),
    )
    assert done.stdout == "issued\n", "it is told of by no wait"
    assert "MXNetError" in done.stderr and "gpu(0) failed" in done.stderr, done.stderr[-2000:]


def agree(function, shape, dtype: str, hybrid: bool = True) -> None:
    """A net of one function on the CPU and on the GPU."""

    class Net(gluon.HybridBlock):
        def hybrid_forward(self, F, x):
            return function(F, x)

    values = np.random.default_rng(0).uniform(0.1, 0.9, size=shape).astype(dtype)
    results = []
    for ctx in (cpu(), gpu(0)):
        net = Net()
        if hybrid:
            net.hybridize()
        results.append(net(nd.array(values, ctx=ctx, dtype=dtype)).asnumpy().astype("float64"))
    np.testing.assert_allclose(results[1], results[0], rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("name", ["erf", "erfinv", "rsqrt", "rcbrt", "round", "rint"])
def test_compiled_functions_that_cuda_has_too(name: str):
    agree(lambda F, x: getattr(F, name)(x), (8, 5), "float32")


@pytest.mark.parametrize("name", ["exp", "log", "sqrt", "tanh", "sin"])
def test_the_same_in_float16(name: str):
    agree(lambda F, x: getattr(F, name)(x), (8, 5), "float16")


@pytest.mark.parametrize("hybrid", [False, True])
@pytest.mark.parametrize("name", ["sum", "mean", "prod", "max", "min"])
@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_reductions_of_reversed_transposes(name: str, dtype: str, hybrid: bool):
    def reduce(F, x):
        return getattr(F.transpose(x, axes=(2, 1, 0)), name)(axis=0)

    agree(reduce, (2, 3, 512), dtype, hybrid)


def test_two_logical_devices_compute_and_copy():
    with logical_gpus(2) as contexts:
        x, y = (nd.ones((1000, 1000), ctx=ctx) for ctx in contexts)
        for _ in range(20):
            x, y = y.as_in_context(contexts[0]) + 1, x.as_in_context(contexts[1]) + 1
        assert x.asnumpy().mean() == y.asnumpy().mean() == 21


def test_nccl_sums_over_one_device():
    if module.nccl() is None:
        pytest.skip("NCCL is not installed: pip install nvidia-nccl-cu12")
    device = device_of(gpu(0))
    sums = NcclWorker([device])
    x, y = nd.array(np.arange(1000), ctx=gpu(0)), nd.zeros((1000,), ctx=gpu(0))
    nd.waitall()

    class Task:
        sides = (Side(gpu(0), (x._chunk,), (y._chunk,)),)

        @staticmethod
        def run() -> None:
            sums.sum_up([gpu(0)], [[(x._chunk.data, y._chunk.data)]])

    sums.run(Task)
    assert sums.finish()
    assert (y.asnumpy() == np.arange(1000)).all()


def test_pinned_memory_there_and_back():
    values = np.random.default_rng(0).normal(size=(1000, 1000)).astype("float32")
    x = nd.array(values, ctx=cpu_pinned())
    back = nd.zeros(x.shape, ctx=cpu_pinned())
    for _ in range(10):
        x.as_in_context(gpu(0)).copyto(back)
        x += 1
    assert np.allclose(back.asnumpy(), values + 9)


def test_a_captured_step_equals_an_eager_one():
    results = []
    for hybrid in (False, True):
        net = gluon.nn.HybridSequential()
        net.add(gluon.nn.Dense(16, in_units=8, activation="relu"), gluon.nn.Dense(4, in_units=16))
        net.initialize(ctx=gpu(0))
        for i, p in enumerate(net.collect_params().values()):
            values = np.random.default_rng(i).normal(size=p.shape).astype("float32")
            p.set_data(nd.array(values, ctx=gpu(0)))
        if hybrid:
            net.hybridize(static_alloc=True, static_shape=True)
        trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.01})
        x = nd.array(np.random.default_rng(9).normal(size=(6, 8)), ctx=gpu(0))
        for _ in range(6):
            with autograd.record():
                loss = (net(x) ** 2).mean()
            loss.backward()
            trainer.step(1)
        results.append([p.data().asnumpy() for p in net.collect_params().values()])
    for got, want in zip(results[1], results[0]):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)

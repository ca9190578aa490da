"""The CUDA device on the fake: how GPUs are found, what fails and how, memory, what libraries get.

That its work is in order is `test_cuda_order`'s business; what it shares with other devices is
`test_devices`'s.
"""

from __future__ import annotations

import gc
import types
import weakref

import pytest
from fakes import cupy_arrays
from gpu_kinds import logical_gpus, using
from worlds import run_program, until

from d2lmini import MXNetError, engine, gpu, kvstore, nd, num_gpus
from d2lmini.compat import runtime
from d2lmini.context import gpu_memory_info
from d2lmini.cuda import module
from d2lmini.device import devices
from d2lmini.device.devices import device_of

MB = 1 << 20


# -- how GPUs are found ----------------------------------------------------------------------------


def test_cupy_and_the_kernels_of_gpus_come_with_the_first_gpu_and_not_before():
    program = """
        import sys
        from d2lmini import addons, gpu, nd
        from d2lmini.ops.products import kernels
        x = nd.ones(3) + 1
        gpu(0)
        print("cupy" in sys.modules, x.asnumpy().tolist(), "cuda" in kernels)
        addons.find("gpu")
        print("cuda" in kernels)
    """
    assert run_program(program) == (0, "False [2.0, 2.0, 2.0] False\nTrue", "")


def test_gpus_are_those_that_cupy_finds(cupy):
    before = devices.state()
    devices.install([], None)  # nobody has looked yet
    try:
        assert num_gpus() == 2
        assert repr(device_of(gpu(1))) == "<cuda device gpu(1)>"
        assert nd.ones(2, ctx=gpu(1)).asnumpy().tolist() == [1, 1]
        assert gpu_memory_info(0) == (256 * MB, 256 * MB)
        features = runtime.Features()
        assert features.is_enabled("CUDA") and features.is_enabled("NCCL")
        with pytest.raises(MXNetError, match=r"gpu\(2\) is not available: this process has 2 GPUs"):
            nd.ones(2, ctx=gpu(2))
    finally:
        engine.waitall()
        devices.install(*before)


def no_driver() -> None:
    raise RuntimeError("cudaErrorInsufficientDriver")


WITHOUT = {
    "no CuPy": (None, r"CuPy is not installed: pip install 'd2lmini\[gpu\]'"),
    "no driver": (no_driver, r"CUDA's driver does not answer: cudaErrorInsufficientDriver"),
    "no GPU": (lambda: 0, r"CuPy is installed, but finds no GPU"),
}


@pytest.mark.parametrize("count, message", WITHOUT.values(), ids=WITHOUT)
def test_without_gpus_an_array_there_says_what_is_missing(count, message):
    runtime_ = types.SimpleNamespace(getDeviceCount=count)
    found = count and types.SimpleNamespace(cuda=types.SimpleNamespace(runtime=runtime_))
    with using(found):
        assert num_gpus() == 0 and not runtime.Features().is_enabled("CUDA")
        with pytest.raises(MXNetError, match=rf"virtual_gpus\(1\)(.|\n)*{message}"):
            nd.ones(2, ctx=gpu(0))
        with pytest.raises(MXNetError, match=message), logical_gpus(1):
            pass
        assert module.nccl() is None


# -- errors ----------------------------------------------------------------------------------------


def test_out_of_memory_of_cuda_reads_as_on_any_device(cupy):
    """The limit is as large as the card; somebody else has most of it."""
    with logical_gpus(1):
        taken = cupy.empty(200 * MB, "uint8")
        x = nd.ones((10 * MB,), ctx=gpu(0))
        y = nd.concat(x, x, dim=0)
        with pytest.raises(
            MemoryError, match=r"out of memory on gpu\(0\): (.|\n)*in use by arrays"
        ):
            y.asnumpy()
        assert x[:2].asnumpy().tolist() == [1, 1]
        del taken
        cupy.get_default_memory_pool().free_all_blocks()
        assert nd.concat(x, x, dim=0)[-1].asscalar() == 1


# -- the host and other libraries ------------------------------------------------------------------


def test_dlpack_shares_memory_that_is_complete(cupy, gpus, monkeypatch):
    x = nd.arange(6, ctx=gpu(1)).reshape((2, 3))
    lent = []

    def export(self, *, stream):
        lent.append(self)
        return stream

    monkeypatch.setattr(cupy_arrays.ndarray, "__dlpack__", export, raising=False)
    assert x.__dlpack_device__() == (2, 1)
    assert x[1:].__dlpack__() == -1  # no stream has to wait
    assert x._chunk.order.writer.passed
    chunk = x._chunk
    assert lent[0].data.ptr == chunk.data.data.ptr + 12 and lent[0].shape == (1, 3)
    del x
    assert lent[0].data.mem._owner is chunk


# -- sums ------------------------------------------------------------------------------------------


def test_devices_that_share_a_gpu_sum_by_copies(cupy):
    with logical_gpus(3) as contexts:
        store = kvstore.create("device")
        store.init("w", nd.zeros((3, 2)))
        outs = [nd.full((3, 2), i + 1, ctx=ctx) for i, ctx in enumerate(contexts)]
        store.pushpull("w", outs)
        assert [x.asnumpy().tolist() for x in outs] == [[[6, 6]] * 3] * 3
        assert not cupy.machine.issued["allReduce"]


def test_devices_end_with_their_scope(cupy):
    with logical_gpus(2) as contexts:
        for ctx in contexts:
            x = nd.ones((64, 64), ctx=ctx)
            (x + 1).as_in_context(contexts[0]).wait_to_read()
        devices = [weakref.ref(device_of(ctx)) for ctx in contexts]
        del x

    def all_gone() -> bool:
        gc.collect()
        return not any(ref() for ref in devices)

    until(all_gone)

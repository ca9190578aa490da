"""The CUDA device on the fake: how GPUs are found, what fails and how, memory, what libraries get.

That its work is in order is `test_cuda_order`'s business; what it shares with other devices is
`test_devices`'s.
"""

from __future__ import annotations

import gc
import subprocess
import sys
import types
import weakref

import pytest
from fakes import cupy_arrays
from worlds import run_program, until

from d2lmini import MXNetError, cpu, engine, gpu, kvstore, nd, num_gpus, storage
from d2lmini.base import instrument
from d2lmini.compat import runtime
from d2lmini.context import gpu_memory_info
from d2lmini.cuda import module
from d2lmini.cuda.device import logical_gpus
from d2lmini.device import devices
from d2lmini.device.devices import device_of

MB = 1 << 20


# -- how GPUs are found ----------------------------------------------------------------------------


def test_importing_the_library_imports_no_cupy():
    program = """
        import sys
        import d2lmini
        from d2lmini import gpu, nd
        x = nd.ones(3) + 1
        gpu(0)
        print("cupy" in sys.modules, x.asnumpy().tolist())
    """
    assert run_program(program) == (0, "False [2.0, 2.0, 2.0]", "")


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
    with module.using(found):
        assert num_gpus() == 0 and not runtime.Features().is_enabled("CUDA")
        with pytest.raises(MXNetError, match=rf"virtual_gpus\(1\)(.|\n)*{message}"):
            nd.ones(2, ctx=gpu(0))
        with pytest.raises(MXNetError, match=message):
            logical_gpus(1)
        assert module.nccl() is None


def test_tf32_is_off_until_it_is_allowed(cupy, gpus):
    assert cupy.machine.compute_types == {}
    assert module.allow_tf32(True) is False
    assert cupy.machine.compute_types == {"float32": 7}
    assert module.allow_tf32(False) is True
    assert cupy.machine.compute_types == {"float32": 1}


# -- errors ----------------------------------------------------------------------------------------


def test_an_error_at_the_call_is_kept_for_the_wait(cupy, gpus):
    x = nd.ones((2, 2), ctx=gpu(0))
    x.wait_to_read()
    cupy.machine.fail(0, status=1, at="issue", name="tanh_kernel", sticky=False)
    y = nd.tanh(x)
    with pytest.raises(MXNetError, match=r"tanh: CUDARuntimeError: (.|\n)*issued at"):
        y.asnumpy()
    assert nd.tanh(x * 0).asnumpy().tolist() == [[0, 0], [0, 0]]


@pytest.mark.parametrize("at", ["issue", "run"])
def test_a_device_that_failed_is_told_everywhere_and_others_go_on(cupy, gpus, at):
    x, other = nd.ones((2, 2), ctx=gpu(0)), nd.ones((2, 2), ctx=gpu(1))
    nd.waitall()
    cupy.machine.fail(0, status=700, at=at, name="tanh_kernel")
    y = nd.tanh(x) + 1
    for read in (y.wait_to_read, y.asnumpy, x.asnumpy, lambda: (x + 1).asnumpy()):
        with pytest.raises(MXNetError, match=r"gpu\(0\) failed and cannot be used any more"):
            read()
    assert (other + 1).asnumpy().tolist() == [[2, 2], [2, 2]]
    nd.waitall()  # all was told
    cupy.machine.lost.clear()


def test_waitall_tells_of_a_failure_nobody_waited_for(cupy, gpus):
    x = nd.ones((2, 2), ctx=gpu(1))
    nd.waitall()
    cupy.machine.fail(1, status=719, at="run", name="tanh_kernel")
    y = nd.tanh(x)
    with pytest.raises(MXNetError, match=r"gpu\(1\) failed(.|\n)*cudaErrorLaunchFailure"):
        nd.waitall()
    nd.waitall()
    del y
    cupy.machine.lost.clear()


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


# -- memory ----------------------------------------------------------------------------------------


def test_memory_is_used_again_and_given_back(cupy, gpus):
    for _ in range(20):
        x = nd.ones((MB,), ctx=gpu(0)) + 1
    x.wait_to_read()
    held = storage.stats(gpu(0))
    assert held.live == 4 * MB and held.cached <= 16 * MB
    del x
    gpu(0).empty_cache()
    assert storage.stats(gpu(0))[:2] == (0, 0)
    assert cupy.machine.used[0] == 0


# -- the host and other libraries ------------------------------------------------------------------


def test_tasks_of_the_cpu_wait_for_what_a_gpu_is_to_make(cupy, gpus):
    x, seen = nd.ones((2, 2), ctx=gpu(0)) + 1, []
    mark = device_of(gpu(0))
    engine.push(lambda: seen.append(x._chunk.order.writer.passed), reads=[x], ctx=cpu())
    engine.waitall()
    assert seen == [True] and mark.dead is None


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


class Names(instrument.Instrument):
    def __init__(self) -> None:
        self.seen: list[str] = []

    def start(self, task, worker):
        self.seen.append(task.name)


def summed(gpus: list) -> list[str]:
    """Sum an array of each device into another; the names of the tasks that did it."""
    store = kvstore.create("device")
    store.init("w", nd.zeros((3, 2)))
    values = [nd.full((3, 2), i + 1, ctx=ctx) for i, ctx in enumerate(gpus)]
    outs = [nd.zeros((3, 2), ctx=ctx) for ctx in gpus]
    nd.waitall()
    with instrument.listening(Names()) as names:
        store.pushpull("w", values, outs)
        store.pushpull("w", outs)  # in place
        nd.waitall()
    once = sum(range(1, len(gpus) + 1))
    got = nd.zeros((3, 2))
    store.pull("w", got)
    for x in (*outs, got):
        assert (x.asnumpy() == once * len(gpus)).all()
    for i, x in enumerate(values):
        assert (x.asnumpy() == i + 1).all()
    return names.seen


def test_sums_go_by_nccl(cupy, gpus, engine_kind):
    names = summed(gpus)
    assert names.count("AllReduce") == 2 and "CopyGPU2GPU" not in names and "add_n" not in names


def test_sums_go_by_copies_where_devices_share_a_gpu_or_nccl_is_not_there(cupy, monkeypatch):
    with logical_gpus(3) as contexts:
        assert "AllReduce" not in summed(contexts)
    monkeypatch.setattr(cupy.cuda.nccl, "available", False)
    with logical_gpus(2) as contexts:
        assert "AllReduce" not in summed(contexts)
        assert not runtime.Features().is_enabled("NCCL")


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


def test_a_program_that_asks_for_a_gpu_gets_the_kernels_of_gpus():
    """Nobody has to import them: the device does. (In a process in which no test has.)"""
    code = (
        "from d2lmini import addons; from d2lmini.ops.pool import reduce_windows\n"
        "from d2lmini.ops.products import matmul\n"
        "addons.find('gpu')\n"
        "print('cuda' in matmul.kernels, 'cuda' in reduce_windows.kernels)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100)
    assert (done.stdout, done.stderr) == ("True True\n", "")

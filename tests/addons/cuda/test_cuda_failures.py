"""What of a GPU fails, who is told, and which GPU is held to have failed; on the fake of CUDA."""

from __future__ import annotations

import gc
import threading

import numpy as np
import pytest
from fakes import nccl as fake_nccl
from fakes.cublas import CUBLASError, Library
from fakes.streams.errors import CUDARuntimeError
from worlds import until

from d2lmini import MXNetError, cpu_pinned, engine, gpu, nd, storage
from d2lmini.context import gpu_memory_info
from d2lmini.cuda import current, module, staging, streams
from d2lmini.cuda.device import logical_gpus
from d2lmini.device.devices import device_of
from d2lmini.gluon.data import ArrayDataset, DataLoader

# -- a GPU that fails while somebody waits ---------------------------------------------------------


WAITS = {
    "wait_to_read": lambda y: y.wait_to_read(),
    "asnumpy": lambda y: y.asnumpy(),
    "waitall": lambda y: nd.waitall(),
}


@pytest.mark.parametrize("status", [700, 719])
@pytest.mark.parametrize("wait", WAITS)
def test_a_wait_ends_when_the_gpu_fails(cupy, gpus, wait, status):
    """The failure comes behind the work: no call of the work itself told of it, and CuPy says of
    the work's event only that it is not done."""
    x = nd.ones((20,), ctx=gpu(0))
    nd.waitall()
    y = x * 2
    until(lambda: engine.stats().pending == 0)  # it is issued
    cupy.machine.lose(0, status, None)
    with pytest.raises(MXNetError, match=r"gpu\(0\) failed and cannot be used any more"):
        WAITS[wait](y)
    assert (nd.ones(3, ctx=gpu(1)) + 1).asnumpy().tolist() == [2, 2, 2]


def test_an_answer_of_another_gpu_is_doubted_where_this_one_failed(cupy, gpus):
    lane = device_of(gpu(0))._lanes["compute"]
    x = nd.ones((20,), ctx=gpu(0)) * 2
    until(lambda: engine.stats().pending == 0)
    cupy.machine.lose(0, 700, None)
    with pytest.raises(MXNetError, match=r"gpu\(0\) failed"):
        lane.check_errors(lane.stream.seq)
    with pytest.raises(MXNetError):
        x.wait_to_read()


# -- which errors are fatal, and whose they are ----------------------------------------------------


@pytest.mark.parametrize("status, fatal", [
    (700, True), (702, True), (710, True), (716, True), (719, True), (214, True), (999, True),
    (1, False), (98, False), (701, False), (703, False), (704, False), (711, False), (712, False),
    (720, False), (900, False),
])  # fmt: skip
def test_errors_that_end_a_device(cupy, gpus, status, fatal):
    device = device_of(gpu(0))
    found = device.task_error(CUDARuntimeError(status))
    assert (device.dead is not None) == fatal == isinstance(found, MXNetError)
    device.dead = None


def test_a_number_means_what_it_means_to_its_library(cupy, gpus):
    """2 is no memory to CUDA, and a system error to NCCL; 3 is no memory to cuBLAS, and to CUDA a
    driver that is shutting down."""
    device = device_of(gpu(0))
    nccl = fake_nccl.NcclError(5, "an invalid use")
    nccl.status = 2
    assert device.task_error(nccl) is nccl
    nccl.status = 700
    assert device.task_error(nccl) is nccl and device.dead is None
    assert isinstance(device.task_error(CUDARuntimeError(2)), MemoryError)
    assert isinstance(device.task_error(CUBLASError(3)), MemoryError)
    other = CUBLASError(13)
    assert device.task_error(other) is other and device.dead is None


def test_the_event_of_a_gpu_that_failed_is_that_gpus_failure(cupy, gpus, monkeypatch):
    """CUDA answers a stream of gpu(1) that is to wait for it with the error of gpu(0)."""
    one, two = (device_of(ctx)._lanes["compute"] for ctx in gpus)
    x, y = nd.ones((4,), ctx=gpu(0)), nd.ones((4,), ctx=gpu(1))
    nd.waitall()
    x = x + 1  # which reads gpu(0)'s error
    until(lambda: engine.stats().pending == 0)
    cupy.machine.lose(0, 700, None)

    def refuse(self, event):
        raise CUDARuntimeError(700)

    monkeypatch.setattr(cupy.cuda.Stream, "wait_event", refuse)
    z = x.as_in_context(gpu(1))
    with pytest.raises(MXNetError, match=r"gpu\(0\) failed"):
        z.wait_to_read()
    monkeypatch.undo()
    assert two.device.dead is None and one.device.dead is not None
    assert (y + 1).asnumpy().tolist() == [2] * 4


class CUSOLVERError(RuntimeError):
    """What `cupy.cuda.cusolver` raises."""

    def __init__(self, status: int):
        super().__init__("CUSOLVER_STATUS_ALLOC_FAILED")
        self.status = status


def test_a_library_that_finds_no_memory_is_called_again(cupy, gpus, monkeypatch):
    """cuBLAS takes memory for itself, which CuPy's pool may be keeping."""
    prepare, device = Library.prepare, device_of(gpu(0))
    errors = [CUBLASError(3)]

    def short(library, *arguments):
        gemm = prepare(library, *arguments)

        def multiply(*arrays):
            if errors:
                raise errors.pop()
            gemm(*arrays)

        return multiply

    x = nd.ones((40, 40), ctx=gpu(0))
    kept = nd.ones((40_000,), ctx=gpu(0)) + 1
    nd.waitall()
    del kept
    gc.collect()
    monkeypatch.setattr(Library, "prepare", short)
    used = cupy.machine.used[0]
    assert (nd.dot(x, x).asnumpy() == 40).all()
    assert not errors and cupy.machine.used[0] < used
    errors += [CUBLASError(3), CUBLASError(3)]
    with pytest.raises(MemoryError, match=r"out of memory on gpu\(0\)"):
        nd.dot(x, x).asnumpy()
    assert device.dead is None


# -- asking CUDA -----------------------------------------------------------------------------------


def test_events_let_threads_sleep_and_are_used_again(cupy, gpus):
    x = nd.ones((20,), ctx=gpu(0))
    for _ in range(10):
        x = x + 1
        nd.waitall()
    gc.collect()
    made = len(cupy.machine.events)
    for _ in range(50):
        x = x + 1
        nd.waitall()
    assert len(cupy.machine.events) - made < 5
    assert all(event.block for event in cupy.machine.events)


def test_a_wait_ends_at_most_20_us_after_the_gpu(cupy, monkeypatch):
    """On the main thread, which asks again and again; after long waits it may be a thousandth."""
    clock = [0.0]
    monkeypatch.setattr(streams.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(streams.time, "sleep", lambda s: clock.append(clock.pop() + s))
    stream = streams.Stream(cupy.cuda, cupy.cuda.Stream(non_blocking=True))
    for takes in (1e-6, 3.3e-4, 0.011, 0.071, 2.0):
        mark, end = stream.mark(), clock[0] + takes
        monkeypatch.setattr(streams.StreamMark, "query", lambda _, end=end: clock[0] >= end)
        assert mark.wait()
        assert 0 <= clock[0] - end <= max(20e-6, min(takes / 900, 1e-3))
    monkeypatch.setattr(streams.StreamMark, "query", lambda _: False)
    begin = clock[0]
    assert not stream.mark().wait(begin + 0.5)
    assert 0.5 <= clock[0] - begin <= 0.501


def test_a_thread_that_has_no_gpu_of_ours_asks_none(cupy, monkeypatch):
    """GPU 0 may be another program's. A thread whose current GPU it is, the main thread to begin
    with, makes a context there by nearly every call of CUDA."""
    asked = []

    def recorded(call):
        def function(event):
            asked.append(cupy.cuda.runtime.getDevice())
            return call(event)

        return function

    runtime = cupy.cuda.runtime
    monkeypatch.setattr(runtime, "eventQuery", recorded(runtime.eventQuery))
    monkeypatch.setattr(cupy.cuda.Event, "synchronize", recorded(cupy.cuda.Event.synchronize))
    monkeypatch.setattr(current, "in_use", set())

    def wait(x: nd.NDArray) -> None:
        (x + 1).wait_to_read()

    with logical_gpus(2):
        wait(nd.ones((2000,), ctx=gpu(1)))
        nd.ones((9,), ctx=gpu(1))
        nd.waitall()
        thread = threading.Thread(target=wait, args=(nd.ones((9,), ctx=gpu(1)),))
        thread.start()
        thread.join()
        assert asked and set(asked) == {1} and current.in_use == {1}
        assert runtime.getDevice() == 0  # nothing of the user's was changed


def test_a_serial_engine_makes_no_context_on_another_gpu(cupy, monkeypatch):
    """It runs tasks on the user's thread, whose current GPU is GPU 0."""
    monkeypatch.setattr(current, "in_use", set())
    cupy.machine.contexts.clear()
    with logical_gpus(2), engine.use("naive"):
        x = nd.array(np.arange(6).reshape(2, 3), ctx=gpu(1))
        y = nd.dot(x, x.T) + nd.ones((2, 2), ctx=gpu(1))
        assert y.asnumpy().tolist() == [[6, 15], [15, 51]]
        pinned = y.as_in_context(cpu_pinned(1))
        assert pinned.as_in_context(gpu(1)).copy().asnumpy().sum() == 87
        assert sum(gpu_memory_info(1)) > 0
        gpu(1).empty_cache()
        with pytest.raises(MXNetError, match="scale must be"):
            nd.random.normal(0, -1, shape=(2,), ctx=gpu(1)).wait_to_read()
        assert cupy.machine.contexts == {1}
        log = []
        # A user's function may push: it runs on his thread, which comes to GPU 1 for that.
        engine.push(lambda: engine.push(lambda: log.append("pushed")), writes=[x], ctx=gpu(1))
        nd.waitall()
        assert log == ["pushed"]
        assert cupy.cuda.runtime.getDevice() == 0
    assert current.in_use == {1}


@pytest.mark.parametrize("error, words", [
    (ImportError("libcudart.so.12: no such file"), "cannot be imported: libcudart.so.12: no such"),
    (ModuleNotFoundError("No module named 'x'", name="x"), "cannot be imported: No module named"),
    (RuntimeError("built for another NumPy"), "cannot be imported: built for another NumPy"),
])  # fmt: skip
def test_a_cupy_that_is_broken_is_not_called_missing(monkeypatch, error, words):
    def fail(name):
        raise error

    with module.using(None):
        monkeypatch.setattr(module, "_looked", False)
        monkeypatch.setattr(module.importlib, "import_module", fail)
        assert module.count() == 0
        assert f"CuPy is installed, but {words}" in module.missing()
        monkeypatch.undo()


# -- memory ----------------------------------------------------------------------------------------


def test_a_stream_waits_for_no_reader_of_dropped_memory(cupy, gpus, monkeypatch):
    """A slow copy reads an array that is dropped: what is computed next does not come after it.
    When memory is short it does."""
    waits = []
    wait = cupy.cuda.Stream.wait_event

    def noted(self, event):
        waits.append(self)
        wait(self, event)

    device = device_of(gpu(0))
    compute, out = device._lanes["compute"], device._lanes["out"]
    x = nd.ones((1000,), ctx=gpu(0))
    nd.waitall()
    with cupy.cuda.Device(0):
        x._chunk.order.readers[out.stream] = out.stream.mark()
    query = streams.StreamMark.query
    monkeypatch.setattr(
        streams.StreamMark,
        "query",
        lambda self: False if self.stream is out.stream else query(self),
    )
    monkeypatch.setattr(cupy.cuda.Stream, "wait_event", noted)
    del x
    gc.collect()
    y = nd.ones((10,), ctx=gpu(0)) + 1
    until(lambda: engine.stats().pending == 0)
    assert compute.stream.handle not in waits and len(compute.waiting) == 1
    device.ask(device.trim, "trim")
    assert compute.stream.handle in waits and not compute.waiting
    monkeypatch.undo()
    assert y.asnumpy().tolist() == [2] * 10


def test_pinned_arrays_are_copied_without_staging(cupy, gpus, monkeypatch):
    acquired = []
    acquire = staging.Staging.acquire
    monkeypatch.setattr(
        staging.Staging,
        "acquire",
        lambda self, nbytes: acquired.append(nbytes) or acquire(self, nbytes),
    )
    values = np.arange(40_000, dtype="float32")
    x = nd.array(values, ctx=cpu_pinned())
    for i in range(5):
        y = x.as_in_context(gpu(0))
        x += 1  # which the copy comes before
        back = nd.zeros(values.shape, ctx=cpu_pinned())
        y.copyto(back)
        assert (back.asnumpy() == values + i).all()
    assert not acquired
    assert (nd.array(values).as_in_context(gpu(0)).asnumpy() == values).all()
    assert acquired


def test_a_loader_with_pin_memory_gives_pinned_batches(cupy, gpus):
    data = ArrayDataset(np.arange(8192, dtype="float32").reshape(4, 2048))
    for batch in DataLoader(data, 2, pin_memory=True):
        assert batch.context == cpu_pinned()
        engine.waitall()
        assert staging.is_pinned(batch._chunk.data)
        assert (batch.as_in_context(gpu(1)).asnumpy() == batch.asnumpy()).all()


def test_pinned_is_plain_memory_where_there_is_no_gpu():
    storage.release_cached(cpu_pinned())
    x = nd.array(np.ones(4096), ctx=cpu_pinned())
    assert not staging.is_pinned(x._chunk.data) and x.asnumpy().sum() == 4096

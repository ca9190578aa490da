"""What of a GPU fails, who is told, and which GPU is held to have failed; on the fake of CUDA."""

from __future__ import annotations

import gc

import numpy as np
import pytest
from fakes.cublas import CUBLASError, Library
from fakes.streams.errors import CUDARuntimeError
from worlds import until

from d2lmini import MXNetError, cpu_pinned, engine, gpu, nd
from d2lmini.cuda import module
from d2lmini.cuda.memory import is_pinned
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


# -- which errors are fatal, and whose they are ----------------------------------------------------


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

#: Before the tests put another one in its place.
LOOK = module.look


@pytest.mark.parametrize("error, words", [
    (ImportError("libcudart.so.12: no such file"), "cannot be imported: libcudart.so.12: no such"),
    (ModuleNotFoundError("No module named 'x'", name="x"), "cannot be imported: No module named"),
    (RuntimeError("built for another NumPy"), "cannot be imported: built for another NumPy"),
])  # fmt: skip
def test_a_cupy_that_is_broken_is_not_called_missing(monkeypatch, error, words):
    def fail(name):
        raise error

    monkeypatch.setattr(module.importlib, "import_module", fail)
    _, gpus, missing = LOOK.__wrapped__()
    assert gpus == 0 and f"CuPy is installed, but {words}" in missing
    monkeypatch.undo()


# -- memory ----------------------------------------------------------------------------------------


def test_a_copy_from_pinned_memory_comes_before_what_changes_it(cupy, gpus):
    values = np.arange(40_000, dtype="float32")
    x = nd.array(values, ctx=cpu_pinned())
    for i in range(5):
        y = x.as_in_context(gpu(0))
        x += 1
        back = nd.zeros(values.shape, ctx=cpu_pinned())
        y.copyto(back)
        assert (back.asnumpy() == values + i).all()


def test_a_loader_with_pin_memory_gives_pinned_batches(cupy, gpus):
    data = ArrayDataset(np.arange(8192, dtype="float32").reshape(4, 2048))
    for batch in DataLoader(data, 2, pin_memory=True):
        assert batch.context == cpu_pinned()
        engine.waitall()
        assert is_pinned(batch._chunk.data)
        assert (batch.as_in_context(gpu(1)).asnumpy() == batch.asnumpy()).all()


def test_a_failed_gpu_keeps_its_first_reason(cupy, gpus):
    """Also after an error of nobody knows what; and an operation says that the GPU failed."""
    device = device_of(gpus[0])
    lane = device._lanes["compute"]

    def fail():
        raise RuntimeError("first")

    for _ in range(2):
        with pytest.raises(MXNetError, match=r"cannot be used any more in this process.*first"):
            lane.ask(fail)
    assert "first" in str(device.waiting_error(RuntimeError("second")))
    with pytest.raises(MXNetError, match=r"cannot be used any more in this process.*first"):
        (nd.ones(3, ctx=gpus[0]) + 1).asnumpy()

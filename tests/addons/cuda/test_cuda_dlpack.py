"""Arrays of other libraries on a GPU: shared memory, and streams that wait for each other."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from fakes import cuda_cpp
from fakes.dlpack import Capsule
from gpu_kinds import fake_gpus
from worlds import until

from d2lmini import MXNetError, engine, gpu, nd
from d2lmini.cuda.memory import Block
from d2lmini.device.devices import device_of

pytestmark = pytest.mark.skipif(cuda_cpp.COMPILER is None, reason="there is no g++")


@pytest.fixture(params=range(5))
def cupy(request):
    with fake_gpus(2, request.param) as fake:
        yield fake


class Tensor:
    """An array of a library with a stream of its own, on which work is pending."""

    def __init__(self, cupy: Any, device: int = 0, shape: tuple[int, ...] = (64, 32)):
        self.cupy, self.device, self.asked = cupy, device, []
        with cupy.cuda.Device(device):
            self.stream = cupy.cuda.Stream(non_blocking=True)
            with self.stream:
                self.array = cupy.zeros(shape, "float32")
                for _ in range(5):
                    self.array += 1

    def __dlpack_device__(self) -> tuple[int, int]:
        return (2, self.device)

    def __dlpack__(self, **options: Any) -> Capsule:
        self.asked.append(options["stream"])
        with self.cupy.cuda.Device(self.device), self.stream:
            return self.array.__dlpack__(**options)

    def numpy(self) -> np.ndarray:
        with self.cupy.cuda.Device(self.device), self.stream:
            return self.array.get()


@pytest.mark.parametrize("device", [0, 1])
def test_what_another_library_still_computes_is_waited_for(cupy, device):
    theirs = Tensor(cupy, device)
    x = nd.from_dlpack(theirs)
    assert x.context == gpu(device) and x.shape == (64, 32) and x.dtype == np.float32
    (stream,) = theirs.asked
    assert stream not in (-1, 0, None, theirs.stream.ptr), "the worker's, which waits"
    np.testing.assert_array_equal((x + 1).asnumpy(), np.full((64, 32), 6))
    x += 2
    x.wait_to_read()
    np.testing.assert_array_equal(theirs.numpy(), np.full((64, 32), 7))  # it is their memory


def test_a_part_of_an_array_is_copied(cupy):
    theirs = Tensor(cupy)
    theirs.array = theirs.array[:, ::2]
    x = nd.from_dlpack(theirs)
    np.testing.assert_array_equal(x.asnumpy(), np.full((64, 16), 5))


def test_their_memory_goes_back_when_nothing_of_ours_uses_it_any_more(cupy):
    """The worker comes by while the other GPU may still read what was dropped."""
    for _ in range(5):
        theirs = Tensor(cupy)
        x = nd.from_dlpack(theirs)
        y = (x + 1).as_in_context(gpu(1)) + x.as_in_context(gpu(1))
        del x
        theirs.array = None
        z = nd.zeros(4000, ctx=gpu(0))
        until(lambda z=z: z._chunk.data is not None)
        with cupy.cuda.Device(0), theirs.stream:
            again = cupy.full((64, 32), np.nan, "float32")
        assert (y + 0).asnumpy().tolist() == np.full((64, 32), 11).tolist()
        del y, again
    nd.waitall()
    nd.zeros(1, ctx=gpu(0)).wait_to_read()
    assert not device_of(gpu(0))._lanes["compute"].pending_free


def test_a_round_trip_is_the_same_memory(cupy):
    x = nd.ones((8, 4), ctx=gpu(1))
    y = nd.from_dlpack(x)
    y += 1
    y.wait_to_read()
    assert y.context == gpu(1)
    np.testing.assert_array_equal(x.asnumpy(), np.full((8, 4), 2))
    del x
    np.testing.assert_array_equal(y.asnumpy(), np.full((8, 4), 2))


# -- capsules --------------------------------------------------------------------------------------


def test_what_is_no_array_at_all():
    for what in (object(), 3, [1.0]):
        with pytest.raises(TypeError, match="an array with __dlpack__, got"):
            nd.from_dlpack(what)


def test_memory_that_goes_back_too_soon_is_found_out(monkeypatch):
    monkeypatch.setattr(Block, "is_unused", True)
    found = 0
    for seed in range(6):
        with fake_gpus(2, seed) as cupy:
            try:
                test_their_memory_goes_back_when_nothing_of_ours_uses_it_any_more(cupy)
                engine.waitall()
            except (AssertionError, MXNetError):
                found += 1
            found += len(cupy.machine.take_errors())
    assert found

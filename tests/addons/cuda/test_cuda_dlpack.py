"""Arrays of a GPU as other libraries see them: shared memory."""

from __future__ import annotations

import numpy as np
import pytest
from fakes import cuda_cpp
from gpu_kinds import fake_gpus

from d2lmini import MXNetError, gpu, nd

pytestmark = pytest.mark.skipif(cuda_cpp.COMPILER is None, reason="there is no g++")


@pytest.fixture(params=range(5))
def cupy(request):
    with fake_gpus(2, request.param) as fake:
        yield fake


def test_an_export_is_the_same_memory(cupy):
    x = nd.ones((8, 4), ctx=gpu(1))
    assert x.__dlpack_device__() == (2, 1)
    theirs = x.__dlpack__(stream=7).take()
    x += 1
    x.wait_to_read()
    del x
    with cupy.cuda.Device(1):
        np.testing.assert_array_equal(theirs.get(), np.full((8, 4), 2))


def test_a_round_trip_is_the_same_memory(cupy):
    x = nd.ones((8, 4), ctx=gpu(1))
    y = nd.from_dlpack(x)
    y += 1
    y.wait_to_read()
    assert y.context == gpu(1)
    np.testing.assert_array_equal(x.asnumpy(), np.full((8, 4), 2))
    del x
    np.testing.assert_array_equal(y.asnumpy(), np.full((8, 4), 2))


def test_an_array_of_another_library_on_a_gpu_is_refused(cupy):
    with cupy.cuda.Device(0):
        theirs = cupy.zeros((2, 3), "float32")
    with pytest.raises(MXNetError, match="copy it to the CPU first"):
        nd.from_dlpack(theirs)


def test_what_is_no_array_at_all():
    for what in (object(), 3, [1.0]):
        with pytest.raises(TypeError, match="an array with __dlpack__, got"):
            nd.from_dlpack(what)

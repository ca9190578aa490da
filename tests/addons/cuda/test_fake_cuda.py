"""The fake of CUDA's order can be trusted: right programs give the same values in every schedule,
and each way to go wrong is told by name."""

from __future__ import annotations

import doctest

import fakes.cuda
import fakes.streams.machine
import numpy as np
import pytest
from fakes.cuda import fake_cuda
from fakes.streams.errors import CUDARuntimeError, DeadlockError
from labs.streams import OrderError

SEEDS = range(40)


def streams_of(cupy, *devices: int) -> list:
    """A stream on each of the devices."""
    made = []
    for device in devices:
        with cupy.cuda.Device(device):
            made.append(cupy.cuda.Stream(non_blocking=True))
    return made


def marked(cupy, stream):
    """An event behind what was put on `stream` so far."""
    with cupy.cuda.Device(stream.device_id):
        return stream.record(cupy.cuda.Event(disable_timing=True))


@pytest.mark.parametrize("module", [fakes.cuda, fakes.streams.machine], ids=lambda m: m.__name__)
def test_examples(module):
    assert doctest.testmod(module).failed == 0


# -- memory ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", SEEDS)
def test_memory_freed_while_another_stream_reads_and_given_out_again(seed: int):
    with fake_cuda(devices=1, seed=seed) as cupy:
        owner, reader = streams_of(cupy, 0, 0)
        with owner:
            x = cupy.ones(16)
        reader.wait_event(marked(cupy, owner))
        with reader:
            y = x + 1
        address = x.data.ptr
        del x  # the owner does not wait for the reader
        with owner, pytest.raises(OrderError, match="given back and given out again"):
            z = cupy.zeros(16)
            assert z.data.ptr == address
        assert y.shape == (16,)  # and in it the ones, or the NaN of what was given out again


# -- memory of the host ----------------------------------------------------------------------------


@pytest.mark.parametrize("seed", SEEDS)
def test_pinned_memory_holds_nan_until_the_copy_was_waited_for(seed: int):
    with fake_cuda(devices=1, seed=seed, eagerness=0.0) as cupy:
        (stream,) = streams_of(cupy, 0)
        out = cupy.cupyx.empty_pinned(4, "float32")
        out[:] = 1
        with stream:
            cupy.arange(4, dtype="float32").get(stream=stream, out=out, blocking=False)
        event = marked(cupy, stream)
        assert np.isnan(out.view(np.ndarray)).all()
        event.synchronize()
        assert out.tolist() == [0, 1, 2, 3]


# -- faults ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", SEEDS)
def test_a_fault_on_the_device_is_sticky_and_of_that_device(seed: int):
    with fake_cuda(devices=2, seed=seed, eagerness=0.0) as cupy:
        first, second = streams_of(cupy, 0, 1)
        cupy.machine.fail(0, status=700, name="add")
        with first:
            x = cupy.ones(3)
            y = x + 1
        event = marked(cupy, first)
        with pytest.raises(CUDARuntimeError, match="illegal memory access"):
            event.synchronize()
        # CuPy hands on what CUDA answers to a question, and says that it is not done.
        assert cupy.cuda.runtime.eventQuery(event.ptr) == 700
        assert not event.done and not first.done
        for call in (first.synchronize, lambda: y * 2, lambda: y.get(first)):
            with first, pytest.raises(CUDARuntimeError) as error:
                call()
            assert error.value.status == 700
        with cupy.cuda.Device(1), second:
            second.wait_event(event)
            assert cupy.ones(3).get(second).tolist() == [1] * 3


# -- collectives -----------------------------------------------------------------------------------


def ranks(cupy, n: int):
    """n devices: communicators, streams, an array [rank, rank] on each."""
    streams = streams_of(cupy, *range(n))
    arrays = []
    for i, stream in enumerate(streams):
        with cupy.cuda.Device(i), stream:
            arrays.append(cupy.full(2, float(i), "float32"))
    return cupy.cuda.nccl.NcclCommunicator.initAll(list(range(n))), streams, arrays


def test_a_deadlock_is_found_and_explained():
    """Two cliques of the same devices, met in different order by their streams."""
    with (
        pytest.raises(DeadlockError, match="on its way to the front"),
        fake_cuda(devices=2, patience_s=0.05, seed=3) as cupy,
    ):
        nccl = cupy.cuda.nccl
        comms, streams, arrays = ranks(cupy, 2)
        others = nccl.NcclCommunicator.initAll([0, 1])
        with pytest.raises(DeadlockError) as error:
            for first, second in ((comms[0], others[1]), (others[0], comms[1])):
                nccl.groupStart()
                for comm, i in ((first, 0), (second, 1)):
                    ptr = arrays[i].data.ptr
                    comm.allReduce(ptr, ptr, 2, nccl.NCCL_FLOAT32, nccl.NCCL_SUM, streams[i].ptr)
                nccl.groupEnd()
            event = marked(cupy, streams[0])
            while not event.done:  # asking again and again is told too
                pass
        assert str(error.value).count("'allReduce'") == 4


# -- graphs ----------------------------------------------------------------------------------------


def test_what_a_graph_may_not_capture():
    with fake_cuda(devices=1) as cupy:
        (stream, other) = streams_of(cupy, 0, 0)
        with other:
            z = cupy.ones((2, 2))
        with stream:
            x = cupy.ones((2, 2))
            tries = {
                900: [lambda: x.get(), lambda: stream.synchronize()],
                905: [lambda: stream.wait_event(marked(cupy, other))],
            }
            for status, calls in tries.items():
                for call in calls:
                    stream.begin_capture()
                    with pytest.raises(CUDARuntimeError) as error:
                        call()
                    assert error.value.status == status
                    with pytest.raises(CUDARuntimeError) as error:
                        stream.end_capture()
                    assert error.value.status == 901
            stream.begin_capture()
            assert not stream.done  # which is refused, too, and CuPy does not say so
            with pytest.raises(CUDARuntimeError):
                stream.end_capture()
            stream.begin_capture()
            with pytest.raises(NotImplementedError, match="cuBLAS"):
                x @ x
            stream.end_capture()
            assert (x + 1).get().tolist() == [[2, 2], [2, 2]]
        assert z.shape == (2, 2)

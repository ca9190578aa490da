"""The fake of CUDA's order can be trusted: right programs give the same values in every schedule,
and each way to go wrong is told by name."""

from __future__ import annotations

import ctypes
import doctest
import gc
import inspect
import re
import threading
import types

import fakes.cuda
import fakes.streams.machine
import numpy as np
import pytest
from fakes.cuda import fake_cuda
from fakes.nccl import NcclError
from fakes.streams.errors import CUDARuntimeError, DeadlockError
from fakes.streams.memory import OutOfMemoryError
from labs.streams import OrderError

SEEDS = range(40)
#: No work runs before the host waits: the schedule in which most is pending.
LAZY = {"eagerness": 0.0}


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


# -- right programs --------------------------------------------------------------------------------


def two_streams(cupy) -> np.ndarray:
    """Two streams that hand an array to and fro, with all the waits they need."""
    a, b = streams_of(cupy, 0, 0)
    with a:
        x = cupy.arange(8, dtype="float32")
    b.wait_event(marked(cupy, a))
    with b:
        y = x * 2
    a.wait_event(marked(cupy, b))
    with a:
        x += 1
        z = x + y
    marked(cupy, a).synchronize()
    return z.get(a)


def two_devices(cupy) -> np.ndarray:
    """Compute on one device, copy to the other, compute on, and both at once."""
    first, second, link = streams_of(cupy, 0, 1, 1)
    with first:
        x = cupy.arange(8, dtype="float32") + 1
    link.wait_event(marked(cupy, first))
    with cupy.cuda.Device(1):
        with link:
            there = cupy.empty(8, "float32")
            there.data.copy_from_device_async(x.data, x.nbytes, link)
        second.wait_event(marked(cupy, link))
    with first:
        first.wait_event(marked(cupy, link))
        x *= 10
    with cupy.cuda.Device(1), second:
        sum_ = (there * 2).sum()
        return np.append(sum_.get(second), x.get(first))


def pinned_both_ways(cupy) -> np.ndarray:
    """In and out through pinned memory, the host waiting where it has to."""
    (stream,) = streams_of(cupy, 0)
    stage = cupy.cupyx.empty_pinned(8, "float32")
    stage[:] = np.arange(8)
    with stream:
        x = cupy.empty(8, "float32")
        x.set(stage, stream=stream)
        marked(cupy, stream).synchronize()
        stage[:] = -1  # the copy has read it
        y = x * 3
        y.get(stream=stream, out=stage, blocking=False)
    event = marked(cupy, stream)
    while not event.done:
        pass
    return stage.copy()


def memory_used_again(cupy) -> np.ndarray:
    """One stream may drop what it still works on: who gets the memory comes after."""
    (stream,) = streams_of(cupy, 0)
    with stream:
        total = cupy.zeros(64, "float32")
        for i in range(8):
            total = total + cupy.full(64, float(i), "float32") * 2
    return total.get(stream)


PROGRAMS = {
    two_streams: np.arange(8) * 3 + 1,
    two_devices: np.append(72, np.arange(10, 90, 10)),
    pinned_both_ways: np.arange(8) * 3,
    memory_used_again: np.full(64, 56.0),
}


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_right_programs_give_the_same_values_under_every_schedule(program):
    for seed in range(200):
        with fake_cuda(devices=2, seed=seed) as cupy:
            np.testing.assert_array_equal(program(cupy), PROGRAMS[program], f"seed {seed}")


def test_schedules_differ():
    """Two independent streams are seen in many orders, each in its own order in all of them."""

    def order(seed: int) -> tuple[str, ...]:
        log: list[str] = []
        with fake_cuda(devices=1, seed=seed) as cupy:
            queues = [stream.queue for stream in streams_of(cupy, 0, 0)]
            for i in range(3):
                for name, queue in zip("ab", queues):
                    cupy.machine.issue(queue, name, lambda word=f"{name}{i}": log.append(word))
        for name in "ab":
            assert [word for word in log if word[0] == name] == [f"{name}{i}" for i in range(3)]
        return tuple(log)

    assert len({order(seed) for seed in range(60)}) >= 10


def test_work_is_put_off_until_somebody_waits():
    with fake_cuda(devices=1, **LAZY) as cupy:
        (stream,) = streams_of(cupy, 0)
        with stream:
            x = cupy.full(4, 7.0)
        assert np.isnan(x.raw).all() and not stream.queue.pending[-1].done
        stream.synchronize()
        assert (x.raw == 7).all() and stream.done


# -- a wait that is missing ------------------------------------------------------------------------


@pytest.mark.parametrize("seed", SEEDS)
def test_a_missing_wait_event_is_an_error_in_every_schedule(seed: int):
    with fake_cuda(devices=1, seed=seed) as cupy:
        a, b = streams_of(cupy, 0, 0)
        with a:
            x = cupy.ones(4) + 1
        with b, pytest.raises(OrderError) as error:
            x * 2
        text = str(error.value)
        assert "'multiply'" in text and "'add'" in text
        assert repr(a.queue) in text and repr(b.queue) in text
        assert f"{b.queue} does not wait_event() for an event recorded on {a.queue}" in text


@pytest.mark.parametrize("seed", SEEDS)
def test_writing_what_another_stream_still_reads_is_an_error(seed: int):
    with fake_cuda(devices=1, seed=seed) as cupy:
        a, b = streams_of(cupy, 0, 0)
        with a:
            x = cupy.ones(4)
        b.wait_event(marked(cupy, a))
        with b:
            y = x * 2  # reads
        with a:
            x + 1  # reads too: no conflict
            with pytest.raises(OrderError, match=r"writes memory of device 0 .* reads"):
                x += 1
        a.wait_event(marked(cupy, b))
        with a:
            x += 1
        assert y.get(b).tolist() == [2] * 4 and x.get(a).tolist() == [2] * 4


def test_a_wait_for_an_event_recorded_too_early_does_not_help():
    with fake_cuda(devices=1, **LAZY) as cupy:
        a, b = streams_of(cupy, 0, 0)
        early = marked(cupy, a)
        with a:
            x = cupy.ones(4)
        b.wait_event(early)
        with b, pytest.raises(OrderError):
            x + 1


def test_a_wait_is_for_the_record_that_there_was_then():
    with fake_cuda(devices=1, **LAZY) as cupy:
        a, b = streams_of(cupy, 0, 0)
        event = cupy.cuda.Event()
        with a:
            x = cupy.ones(4)
            event.record()
        b.wait_event(event)
        with a:
            y = cupy.ones(4)
            event.record()  # after the wait
        with b:
            assert (x + 1).get(b).tolist() == [2] * 4
            with pytest.raises(OrderError):
                y + 1


def test_order_is_handed_on():
    """c waits for b, which waited for a: then c comes after a."""
    with fake_cuda(devices=2, **LAZY) as cupy:
        a, b, c = streams_of(cupy, 0, 1, 0)
        with a:
            x = cupy.arange(4)
        b.wait_event(marked(cupy, a))
        c.wait_event(marked(cupy, b))
        with c:
            assert (x + 1).get(c).tolist() == [1, 2, 3, 4]


def test_what_the_host_has_waited_for_comes_first():
    for wait in ("event", "poll", "stream", "device"):
        with fake_cuda(devices=1, **LAZY) as cupy:
            a, b = streams_of(cupy, 0, 0)
            with a:
                x = cupy.arange(4)
            event = marked(cupy, a)
            if wait == "event":
                event.synchronize()
            elif wait == "stream":
                a.synchronize()
            elif wait == "device":
                cupy.cuda.Device(0).synchronize()
            while wait == "poll" and not event.done:
                pass
            with b:
                assert (x + 1).get(b).tolist() == [1, 2, 3, 4]


def test_disjoint_parts_of_an_array_are_no_conflict():
    with fake_cuda(devices=1, **LAZY) as cupy:
        a, b = streams_of(cupy, 0, 0)
        with a:
            x = cupy.zeros((2, 4))
        b.wait_event(marked(cupy, a))
        with a:
            x[0] += 1
        with b:
            x[1] += 2
            with pytest.raises(OrderError):
                x[:, 1] += 1


def test_reading_on_the_host_without_order_is_an_error():
    with fake_cuda(devices=1, **LAZY) as cupy:
        a, b = streams_of(cupy, 0, 0)
        with a:
            x = cupy.ones(())
        with b:
            for read in (x.item, x.get, lambda: bool(x)):
                with pytest.raises(OrderError):
                    read()
        with a:
            assert x.item() == 1


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


@pytest.mark.parametrize("seed", SEEDS)
def test_memory_freed_after_waiting_for_the_readers(seed: int):
    with fake_cuda(devices=1, seed=seed) as cupy:
        owner, reader = streams_of(cupy, 0, 0)
        with owner:
            x = cupy.ones(16)
        reader.wait_event(marked(cupy, owner))
        with reader:
            y = x + 1
        owner.wait_event(marked(cupy, reader))
        address = x.data.ptr
        del x
        with owner:
            z = cupy.zeros(16)
        assert z.data.ptr == address
        assert y.get(reader).tolist() == [2] * 16 and z.get(owner).tolist() == [0] * 16


def test_memory_allocated_on_one_stream_and_first_written_on_another():
    with fake_cuda(devices=1, **LAZY) as cupy:
        a, b = streams_of(cupy, 0, 0)
        with a:
            x = cupy.ones(16)
            del x
            fresh = cupy.empty(16)
        with b, pytest.raises(OrderError, match="given out again"):
            fresh[...] = 0


def test_memory_given_out_again_is_poisoned_in_the_order_of_its_stream():
    for seed in range(20):
        with fake_cuda(devices=1, seed=seed) as cupy:
            (stream,) = streams_of(cupy, 0)
            with stream:
                x = cupy.ones(16)
                y = x + 1
                address = x.data.ptr
                del x
                z = cupy.empty(16)
                assert z.data.ptr == address
                assert np.isnan(z.get(stream)).all()
            assert y.get(stream).tolist() == [2] * 16


def test_pending_work_keeps_no_array_alive():
    """Else memory would be given back later than with CuPy, and races with it be hidden."""
    with fake_cuda(devices=1, **LAZY) as cupy:
        (stream,) = streams_of(cupy, 0)
        with stream:
            for work in (
                lambda x: x + 1,
                lambda x: x.sum(axis=0),
                lambda x: x @ x,
                lambda x: cupy.concatenate([x, x]),
                lambda x: cupy.where(x > 0, x, 0.0),
                lambda x: x.__setitem__(slice(1), x[1:2]),
                lambda x: cupy.maximum(x, 0, out=x),
                lambda x: x.astype("float64"),
                lambda x: cupy.clip(x, 0, 1),
                lambda x: cupy.copyto(x, 2.0),
            ):
                x = cupy.ones((4, 4))
                address = x.data.ptr
                work(x)
                assert stream.queue.pending
                del x
                again = [cupy.empty((4, 4)) for _ in range(4)]
                assert address in [y.data.ptr for y in again]


def test_out_of_memory():
    with fake_cuda(devices=2, memory=4096) as cupy:
        stream, other = streams_of(cupy, 0, 1)
        with stream:
            x = cupy.zeros(256)  # 2048 bytes
            assert cupy.cuda.Device(0).mem_info == (2048, 4096)
            with pytest.raises(OutOfMemoryError, match=r"allocating 2,560 bytes .*far: 2,048"):
                cupy.zeros(257)
            y = cupy.zeros(128)
            del y  # kept for reuse, and given back to the driver when memory runs out
            z = cupy.zeros(256)
            assert cupy.cuda.runtime.memGetInfo() == (0, 4096)
            assert x.get().sum() == z.get().sum() == 0
        with cupy.cuda.Device(1), other:
            assert cupy.ones(256).get().sum() == 256, "the other device has memory of its own"


def test_a_pool_has_books():
    with fake_cuda(devices=1) as cupy:
        pool = cupy.get_default_memory_pool()
        (stream,) = streams_of(cupy, 0)
        with stream:
            x = cupy.zeros(256)
            assert (pool.used_bytes(), pool.total_bytes()) == (2048, 2048)
            del x
            assert (pool.used_bytes(), pool.total_bytes()) == (0, 2048)
            pool.free_all_blocks()
            assert pool.total_bytes() == 0


def test_giving_memory_back_to_the_driver_while_another_device_reads():
    with fake_cuda(devices=2, **LAZY) as cupy:
        owner, link = streams_of(cupy, 0, 1)
        with owner:
            x = cupy.ones(16)
        link.wait_event(marked(cupy, owner))
        with cupy.cuda.Device(1), link:
            y = cupy.empty(16)
            y.data.copy_from_device_async(x.data, x.nbytes)
        del x
        with pytest.raises(OrderError, match="goes back to the driver"):
            cupy.get_default_memory_pool().free_all_blocks()


def test_pools_of_a_thread_and_memory_of_others():
    with fake_cuda(devices=1) as cupy:
        pool = cupy.cuda.MemoryPool()
        (stream,) = streams_of(cupy, 0)
        with stream, cupy.cuda.using_allocator(pool.malloc):
            x = cupy.zeros(100)
        assert pool.used_bytes() == 1024
        assert cupy.get_default_memory_pool().used_bytes() == 0
        part = cupy.cuda.UnownedMemory(x.data.ptr + 8, 16, x, 0)
        view = cupy.ndarray((2,), "float64", cupy.cuda.MemoryPointer(part, 0))
        with stream:
            view += 5
            assert x.get()[:4].tolist() == [0, 5, 5, 0]


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


def test_the_host_may_not_touch_pinned_memory_that_a_copy_uses():
    for way in ("in", "out"):
        with (
            pytest.raises(OrderError, match="wait for an event recorded after the copy first"),
            fake_cuda(devices=1, **LAZY) as cupy,
        ):
            (stream,) = streams_of(cupy, 0)
            stage = cupy.cupyx.empty_pinned(4, "float32")
            stage[:] = 1
            with stream:
                x = cupy.zeros(4, "float32")
                if way == "in":
                    x.set(stage, stream=stream)
                else:
                    x.get(stream=stream, out=stage, blocking=False)
            stage.view(np.ndarray)[1] = 2
            stream.synchronize()


def test_pinned_memory_may_not_be_given_back_while_a_copy_uses_it():
    with fake_cuda(devices=1, **LAZY) as cupy:
        (stream,) = streams_of(cupy, 0)
        stage = cupy.cupyx.empty_pinned(4, "float32")
        with stream:
            x = cupy.zeros(4, "float32")
            x.get(stream=stream, out=stage, blocking=False)
        del stage
        gc.collect()
        other = cupy.cupyx.empty_pinned(4, "float32")
        with pytest.raises(OrderError, match=r"pinned memory .* was given back while"):
            stream.synchronize()
        del other


def test_a_stage_that_devices_hand_on():
    """Out of one device and into the other through pinned memory, ordered by events alone."""
    for seed in SEEDS:
        with fake_cuda(devices=2, seed=seed) as cupy:
            out, into = streams_of(cupy, 0, 1)
            stage = cupy.cuda.alloc_pinned_memory(32)
            with out:
                x = cupy.arange(4)
                x.data.copy_to_host_async(ctypes.c_void_p(stage.ptr), 32, out)
            into.wait_event(marked(cupy, out))
            with cupy.cuda.Device(1), into:
                y = cupy.empty(4, int)
                y.data.copy_from_host_async(stage.ptr, 32, into)
                assert y.get(into).tolist() == [0, 1, 2, 3]
            with out, pytest.raises(OrderError, match="pinned"):
                z = cupy.arange(4)
                with cupy.cuda.Device(1), into:
                    y.data.copy_from_host_async(stage.ptr, 32, into)
                z.data.copy_to_host_async(stage.ptr, 32, out)
            into.synchronize()


def test_other_host_memory_is_copied_before_the_call_returns():
    with fake_cuda(devices=1, **LAZY) as cupy:
        (stream,) = streams_of(cupy, 0)
        source, out = np.arange(4.0), np.empty(4)
        with stream:
            x = cupy.empty(4)
            x.set(source)
            source[:] = -1
            x.get(stream=stream, out=out, blocking=False)
        assert out.tolist() == [0, 1, 2, 3]
        assert cupy.machine.waits[-1][1] == "a copy to memory that is not pinned"


# -- devices, streams, events, threads -------------------------------------------------------------


def test_devices_and_streams_are_current_per_thread():
    seen = {}

    def other() -> None:
        seen["device"] = cupy.cuda.runtime.getDevice()
        seen["stream"] = cupy.cuda.get_current_stream()

    with fake_cuda(devices=2) as cupy:
        (stream,) = streams_of(cupy, 1)
        cupy.cuda.Device(1).use()
        stream.use()
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        assert seen == {"device": 0, "stream": cupy.cuda.Stream.null}
        assert cupy.cuda.get_current_stream() == stream and cupy.cuda.Device() == cupy.cuda.Device(
            1
        )
        with cupy.cuda.Device(0):
            assert cupy.cuda.get_current_stream() == cupy.cuda.Stream.null
            with pytest.raises(RuntimeError, match=r"created on \(1\) does not match .* \(0\)"):
                stream.use()
        with cupy.cuda.Stream(non_blocking=True) as inner:
            assert cupy.cuda.get_current_stream() == inner != stream
        assert cupy.cuda.get_current_stream() == stream
        with pytest.raises(CUDARuntimeError, match="invalid device"):
            cupy.cuda.Device(2).use()


def test_arrays_of_another_device_are_refused():
    with fake_cuda(devices=2) as cupy:
        x = cupy.ones(3)
        with cupy.cuda.Device(1), pytest.raises(ValueError, match="array device = 0 while curr"):
            x + 1


def test_an_event_belongs_to_its_device():
    with fake_cuda(devices=2) as cupy:
        here, there = streams_of(cupy, 0, 1)
        event = cupy.cuda.Event()
        assert event.done, "never recorded"
        event.synchronize()
        with pytest.raises(CUDARuntimeError) as error:
            event.record(there)
        assert error.value.status == 400
        event.record(here)
        there.wait_event(event)  # waiting is allowed to all


def test_time_between_events():
    with fake_cuda(devices=1, **LAZY) as cupy:
        (stream,) = streams_of(cupy, 0)
        first, last = cupy.cuda.Event(), cupy.cuda.Event()
        first.record(stream)
        with stream:
            cupy.ones(1000)
        last.record(stream)
        with pytest.raises(CUDARuntimeError, match="not ready"):
            cupy.cuda.get_elapsed_time(first, last)
        last.synchronize()
        assert cupy.cuda.get_elapsed_time(first, last) > 0
        untimed = cupy.cuda.Event(disable_timing=True)
        untimed.record(stream)
        with pytest.raises(CUDARuntimeError, match="invalid resource handle"):
            cupy.cuda.get_elapsed_time(first, untimed)


class Relay(threading.Thread):
    """A thread with a stream of its own that adds to the array of the one before, ordered by its
    event, and hands the sum on: as workers of an engine do."""

    def __init__(self, cupy, stream, before: Relay | None):
        super().__init__()
        self.cupy, self.stream, self.before = cupy, stream, before
        self.problem: BaseException | None = None
        self.array = self.event = None
        self.issued = threading.Event()

    def run(self) -> None:
        try:
            self.stream.use()
            mine = self.cupy.zeros(64)
            for k in range(20):
                mine += k
            if self.before is not None:
                assert self.before.issued.wait(60)
                self.stream.wait_event(self.before.event)
                mine = self.before.array + mine
            self.array, self.event = mine, marked(self.cupy, self.stream)
        except BaseException as problem:
            self.problem = problem
        self.issued.set()


def test_threads_may_work_at_once():
    for seed in range(10):
        with fake_cuda(devices=1, seed=seed) as cupy:
            relays: list[Relay] = []
            for stream in streams_of(cupy, 0, 0, 0, 0):
                relays.append(Relay(cupy, stream, relays[-1] if relays else None))
            for relay in relays:
                relay.start()
            for relay in relays:
                relay.join()
            assert [relay.problem for relay in relays] == [None] * 4
            assert relays[-1].array.get(relays[-1].stream).tolist() == [4 * 190] * 64


def test_an_error_that_nobody_noticed_is_raised_at_the_end():
    with pytest.raises(OrderError), fake_cuda(devices=1, **LAZY) as cupy:
        stage = cupy.cupyx.empty_pinned(4)
        cupy.zeros(4).get(stream=None, out=stage, blocking=False)
        stage[:] = 0


def test_without_the_fake_there_is_no_driver():
    with pytest.raises(CUDARuntimeError) as error:
        fakes.cuda.Stream(non_blocking=True)
    assert error.value.status == 35


# -- faults ----------------------------------------------------------------------------------------


def test_a_fault_at_issue_concerns_one_call():
    with fake_cuda(devices=1) as cupy:
        cupy.machine.fail(0, status=719, at="issue", name="add", sticky=False)
        x = cupy.ones(3)
        with pytest.raises(CUDARuntimeError) as error:
            x + 1
        assert error.value.status == 719
        assert (x + 1).get().tolist() == [2] * 3


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


def test_an_allocation_may_fail():
    with fake_cuda(devices=1) as cupy:
        cupy.machine.fail(0, at="malloc", after=1, sticky=False)
        x = cupy.empty(3)
        with pytest.raises(OutOfMemoryError):
            cupy.empty(3)
        assert (x + 1).shape == (3,)


# -- collectives -----------------------------------------------------------------------------------


def ranks(cupy, n: int):
    """n devices: communicators, streams, an array [rank, rank] on each."""
    streams = streams_of(cupy, *range(n))
    arrays = []
    for i, stream in enumerate(streams):
        with cupy.cuda.Device(i), stream:
            arrays.append(cupy.full(2, float(i), "float32"))
    return cupy.cuda.nccl.NcclCommunicator.initAll(list(range(n))), streams, arrays


def sum_all(nccl, comms, streams, arrays) -> None:
    nccl.groupStart()
    for comm, stream, x in zip(comms, streams, arrays):
        comm.allReduce(x.data.ptr, x.data.ptr, x.size, nccl.NCCL_FLOAT32, nccl.NCCL_SUM, stream.ptr)
    nccl.groupEnd()


@pytest.mark.parametrize("seed", SEEDS)
def test_collectives(seed: int):
    with fake_cuda(devices=4, seed=seed) as cupy:
        nccl = cupy.cuda.nccl
        comms, streams, arrays = ranks(cupy, 4)
        for _ in range(3):
            sum_all(nccl, comms, streams, arrays)  # 6, 24, 96
        with cupy.cuda.Device(2), streams[2]:
            arrays[2] += 1
        nccl.groupStart()
        for comm, stream, x in zip(comms, streams, arrays):
            comm.broadcast(x.data.ptr, x.data.ptr, x.size, nccl.NCCL_FLOAT32, 2, stream.ptr)
        nccl.groupEnd()
        for x, stream in zip(arrays, streams):
            assert x.get(stream).tolist() == [97, 97]


def test_a_collective_is_ordered_as_any_access():
    with fake_cuda(devices=2, **LAZY) as cupy:
        comms, _, arrays = ranks(cupy, 2)
        others = streams_of(cupy, 0, 1)
        with pytest.raises(OrderError, match="'allReduce'"):
            sum_all(cupy.cuda.nccl, comms, others, arrays)


def test_ranks_called_one_after_another_without_a_group():
    with fake_cuda(devices=2) as cupy:
        nccl = cupy.cuda.nccl
        comms, streams, arrays = ranks(cupy, 2)
        call = [
            lambda i=i: comms[i].allReduce(
                arrays[i].data.ptr, arrays[i].data.ptr, 2, nccl.NCCL_FLOAT32, 0, streams[i].ptr
            )
            for i in range(2)
        ]
        call[0]()
        with pytest.raises(NcclError, match="groupStart"):
            call[1]()
        nccl.groupStart()  # so that the end finds nothing stuck
        call[1]()
        nccl.groupEnd()


def test_ranks_that_see_collectives_in_different_order():
    with fake_cuda(devices=2, patience_s=0.05) as cupy:
        nccl = cupy.cuda.nccl
        comms, streams, arrays = ranks(cupy, 2)
        p = [x.data.ptr for x in arrays]
        with pytest.raises(NcclError, match="same, in the same order"):
            nccl.groupStart()
            comms[0].allReduce(p[0], p[0], 2, nccl.NCCL_FLOAT32, 0, streams[0].ptr)
            comms[1].broadcast(p[1], p[1], 2, nccl.NCCL_FLOAT32, 0, streams[1].ptr)
            nccl.groupEnd()
        with pytest.raises(DeadlockError, match="1 more ranks to call it"):
            streams[0].synchronize()
        comms[1].allReduce(p[1], p[1], 2, nccl.NCCL_FLOAT32, 0, streams[1].ptr)
        streams[0].synchronize()


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


def test_a_communicator_belongs_to_one_thread():
    problems = []

    def other() -> None:
        try:
            sum_all(cupy.cuda.nccl, comms, streams, arrays)
        except NcclError as problem:
            problems.append(str(problem))
        finally:
            cupy.cuda.nccl.groupEnd()

    with fake_cuda(devices=2) as cupy:
        comms, streams, arrays = ranks(cupy, 2)
        sum_all(cupy.cuda.nccl, comms, streams, arrays)
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        assert len(problems) == 1 and "belongs to one thread" in problems[0]


def test_collectives_check_their_memory():
    with fake_cuda(devices=2) as cupy:
        nccl = cupy.cuda.nccl
        comms, streams, arrays = ranks(cupy, 1)
        ptr = arrays[0].data.ptr
        with pytest.raises(NcclError, match="are not in memory of device 0"):
            comms[0].allReduce(ptr, ptr, 10**6, nccl.NCCL_FLOAT32, nccl.NCCL_SUM, streams[0].ptr)
        comms[0].allReduce(ptr, ptr, 2, nccl.NCCL_FLOAT32, nccl.NCCL_SUM, streams[0].ptr)


# -- graphs ----------------------------------------------------------------------------------------


def test_a_graph_does_its_work_at_each_launch():
    for seed in range(20):
        with fake_cuda(devices=1, seed=seed) as cupy:
            (stream,) = streams_of(cupy, 0)
            with stream:
                x, y = cupy.ones(4), cupy.empty(4)
                stream.begin_capture()
                cupy.add(x, x, out=y)
                cupy.add(y, 1, out=x)
                graph = stream.end_capture()
                assert x.get().tolist() == [1] * 4, "captured, not done"
                for _ in range(3):
                    graph.launch()
                assert x.get().tolist() == [15] * 4
            assert "graph of 2" in cupy.machine.issued


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


def test_memory_of_a_graph_may_not_be_given_out_again():
    with fake_cuda(devices=1) as cupy:
        (stream,) = streams_of(cupy, 0)
        pool = cupy.cuda.MemoryPool()
        with stream:
            x = cupy.ones(64)
            for allocator in (None, pool.malloc):
                stream.begin_capture()
                with cupy.cuda.using_allocator(allocator):
                    y = x + 1
                    del y
                graph = stream.end_capture()
                z = cupy.ones(64)
                if allocator is None:
                    with pytest.raises(OrderError, match="since it was captured"):
                        graph.launch()
                else:
                    graph.launch()  # a pool of its own
                    assert z.get().tolist() == [1] * 64


# -- the real one ----------------------------------------------------------------------------------


OWN = {"queue", "has_timing", "work", "raw", "given_back", "add", "finish", "invalidate", "nccl"}


def public(thing) -> dict:
    return {name: vars(thing)[name] for name in vars(thing) if name not in OWN and name[0] != "_"}


def parameters(function) -> list[str]:
    """Their names; of a compiled function from the first line of its documentation."""
    if isinstance(function, types.FunctionType):
        names = list(inspect.signature(function).parameters)
    else:
        text = re.match(r"[\w.]+\((.*?)\)", function.__doc__ or "")
        parts = text[1].split(", ") if text else ["?"]
        names = [part.split("=")[0].split(":")[0].split(" ")[-1] for part in parts]
    return [name for name in names if name not in ("", "self", "*")]


def test_names_and_parameters_are_those_of_cupy():
    real = pytest.importorskip("cupy", reason="CuPy is not installed").cuda
    compared = 0
    with fake_cuda() as cupy:
        ours = cupy.cuda
        pairs = [(ours, real)]
        for name in ("runtime", "memory", "stream", "Device", "Stream", "Event", "Graph"):
            pairs.append((getattr(ours, name), getattr(real, name)))
        for name in ("MemoryPool", "MemoryPointer", "PinnedMemoryPool"):
            pairs.append((getattr(ours, name), getattr(real, name)))
        for mine, theirs in pairs:
            for name, value in public(mine).items():
                assert hasattr(theirs, name), (mine, name)
                if isinstance(value, types.FunctionType) and value.__name__ != "<lambda>":
                    asked = parameters(getattr(theirs, name))
                    assert asked == ["?"] or parameters(value) == asked, (mine, name)
                    compared += asked != ["?"]
    assert compared > 20

"""The module `cupy.cuda` of the fake, and `fake_cuda`, the scope in which its GPUs exist.

>>> from fakes.cuda import fake_cuda
>>> with fake_cuda(devices=2, seed=1) as cupy:
...     stream = cupy.cuda.Stream(non_blocking=True)
...     with stream:
...         x = cupy.arange(3) + 1
...     done = stream.record()
...     done.synchronize()
...     x.get(stream).tolist()
[1, 2, 3]

Names, parameters and rules are CuPy's: the current device belongs to the thread, the current stream
to the thread and the device, an event to its device. What CuPy has and our devices do not use is
not here. Every stream is non-blocking: the legacy stream's habit of waiting for others is not
played, so work on the null stream is ordered with nothing.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from fakes import cupy_arrays, graphs, nccl
from fakes import machine as machines
from fakes.cupy_arrays import ndarray, specs_of
from fakes.cupy_module import cupy
from fakes.machine import CUDARuntimeError, Machine
from fakes.memory import (
    MemoryPointer,
    MemoryPool,
    OutOfMemoryError,
    PinnedMemoryPool,
    UnownedMemory,
    bounds,
    from_host,
    to_host,
)
from fakes.order import Queue, Region, Work

# -- devices, streams, events ----------------------------------------------------------------------


class Device:
    """`cupy.cuda.Device`; without a number, the current one."""

    compute_capability = "90"

    def __init__(self, device: Any = None):
        self.id = machines.current().current_device if device is None else int(device)
        self._before: list[int] = []

    def use(self) -> Device:
        machines.current().use_device(self.id)
        return self

    def __enter__(self) -> Device:
        machine = machines.current()
        self._before.append(machine.current_device)
        machine.use_device(self.id)
        return self

    def __exit__(self, *exc: object) -> None:
        machines.current().use_device(self._before.pop())

    def synchronize(self) -> None:
        """The host waits for all work on it."""
        machine = machines.current()
        queues = [queue for queue in machine.queues if queue.device == self.id]
        machine.synchronize_queues(queues, "Device.synchronize")

    @property
    def mem_info(self) -> tuple[int, int]:
        machine = machines.current()
        return machine.memory - machine.used[self.id], machine.memory

    def __int__(self) -> int:
        return self.id

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Device) and self.id == other.id

    def __hash__(self) -> int:
        return hash(self.id)

    def __repr__(self) -> str:
        return f"<CUDA Device {self.id}>"


class Stream:
    """`cupy.cuda.Stream` with non_blocking=True, or the null stream."""

    null: Stream

    def __init__(
        self,
        null: bool = False,
        non_blocking: bool = False,
        ptds: bool = False,
        priority: int | None = None,
    ):
        if null or ptds or not non_blocking:
            raise NotImplementedError("the fake has Stream(non_blocking=True) and Stream.null")
        machine = machines.current()
        self.queue: Queue = machine.new_queue(machine.current_device)
        self.ptr = self.queue.ptr
        self.device_id = self.queue.device

    def use(self) -> Stream:
        """Make it the current one of this thread on its device."""
        machine = machines.current()
        device = machine.current_device
        if self.device_id not in (-1, device):
            raise RuntimeError(
                f"The device that the stream is created on ({self.device_id}) does not match with "
                f"the current device ({device})"
            )
        machine.streams[device] = self
        return self

    def __enter__(self) -> Stream:
        machine = machines.current()
        stack = machine.local.__dict__.setdefault("stack", [])
        stack.append((machine.current_device, machine.streams[machine.current_device]))
        try:
            return self.use()
        except RuntimeError:
            stack.pop()
            raise

    def __exit__(self, *exc: object) -> None:
        machine = machines.current()
        device, before = machine.local.stack.pop()
        machine.streams[device] = before

    @property
    def done(self) -> bool:
        machine, queue = machines.current(), self.queue
        machine.refuse_capture(queue)
        return not queue.pending or machine.poll(queue.pending[-1])

    def synchronize(self) -> None:
        machines.current().synchronize_queues([self.queue], "Stream.synchronize")

    def record(self, event: Event | None = None) -> Event:
        event = Event() if event is None else event
        event.record(self)
        return event

    def wait_event(self, event: Event) -> None:
        """What is put here from now on comes after `event` as it was recorded last."""
        if event.work is not None:
            machines.current().issue(self.queue, "wait_event", waits=[event.work])

    def begin_capture(self, mode: int | None = None) -> None:
        if self.ptr == 0:
            raise RuntimeError("cannot capture on the default (legacy) stream")
        machine = machines.current()
        with machine.call(self.device_id):
            if any(queue.capture is not None for queue in machine.queues):
                raise RuntimeError("one capture at a time: another stream is being captured")
            self.queue.capture = graphs.Graph()

    def end_capture(self) -> graphs.Graph:
        graph, self.queue.capture = self.queue.capture, None
        if graph is None:
            raise CUDARuntimeError(901)
        return graph.finish()

    def is_capturing(self) -> bool:
        return self.queue.capture is not None

    @property
    def is_non_blocking(self) -> bool:
        return self.ptr != 0

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stream) and self.ptr == other.ptr

    def __hash__(self) -> int:
        return self.ptr

    def __repr__(self) -> str:
        return f"<Stream {self.ptr} (device {self.device_id})>"


class _NullStream(Stream):
    def __init__(self) -> None:
        self.ptr, self.device_id = 0, -1

    @property
    def queue(self) -> Queue:  # type: ignore[override]
        return machines.current().queue_at(0, machines.current().current_device)


Stream.null = _NullStream()


class Event:
    """`cupy.cuda.Event`, of the device that is current when it is made."""

    def __init__(
        self, block: bool = False, disable_timing: bool = False, interprocess: bool = False
    ):
        self._device = machines.current().current_device
        self.has_timing = not disable_timing
        self.work: Work | None = None

    def record(self, stream: Stream | None = None) -> None:
        """Mark how far `stream`, or the current one, is now."""
        queue = machines.current().queue_of(stream)
        if queue.device != self._device:
            raise CUDARuntimeError(400)
        self.work = machines.current().issue(queue, "record")

    @property
    def done(self) -> bool:
        return self.work is None or machines.current().poll(self.work)

    def synchronize(self) -> None:
        """The host waits for it."""
        if self.work is not None:
            machines.current().synchronize(self.work, "Event.synchronize")


def get_current_stream(device_id: int = -1) -> Stream:
    machine = machines.current()
    device = machine.current_device if device_id == -1 else device_id
    return machine.streams[device] or Stream.null


def get_elapsed_time(start_event: Event, end_event: Event) -> float:
    """Milliseconds between two events, both of which the GPU has passed."""
    first, last = start_event.work, end_event.work
    if first is None or last is None or not (start_event.has_timing and end_event.has_timing):
        raise CUDARuntimeError(400)
    if not (first.done and last.done):
        raise CUDARuntimeError(600)
    return (last.time_s - first.time_s) * 1e3


# -- memory ----------------------------------------------------------------------------------------


def get_allocator() -> Callable[[int], MemoryPointer]:
    machine = machines.current()
    return getattr(machine.local, "allocator", None) or machine.allocator


def set_allocator(allocator: Callable[[int], MemoryPointer] | None = None) -> None:
    machine = machines.current()
    machine.allocator = allocator or machine.pool.malloc


@contextmanager
def using_allocator(allocator: Callable | None = None) -> Iterator[None]:
    """Of this thread, within."""
    local = machines.current().local
    before = getattr(local, "allocator", None)
    local.allocator = allocator
    try:
        yield
    finally:
        local.allocator = before


def alloc(size: int) -> MemoryPointer:
    return get_allocator()(size)


def alloc_pinned_memory(size: int) -> Any:
    return machines.current().pinned_pool.malloc(size)


def empty_pinned(shape: Any, dtype: Any = float, order: str = "C") -> np.ndarray:
    """`cupyx.empty_pinned`."""
    shape = (shape,) if isinstance(shape, int) else tuple(shape)
    nbytes = int(np.prod(shape, dtype=int)) * np.dtype(dtype).itemsize
    return np.ndarray(shape, dtype, buffer=alloc_pinned_memory(nbytes), order=order)  # type: ignore


# -- the hook of the arrays ------------------------------------------------------------------------

#: What cuBLAS and cuSOLVER do, which CuPy refuses while a stream is being captured.
LIBRARY = ("dot", "einsum", "inner", "linalg", "matmul", "outer", "tensordot", "vdot")


class Hook:
    """What the array half calls (see the package's first page): work goes to the current stream."""

    def allocate(self, nbytes: int) -> MemoryPointer:
        return alloc(nbytes)

    def execute(
        self,
        name: str,
        function: Callable[..., tuple[np.ndarray, ...]],
        inputs: Sequence[ndarray],
        out: Sequence[ndarray] | None = None,
    ) -> tuple[ndarray, ...]:
        machine = machines.current()
        queue = machine.current_queue
        for x in (*inputs, *(out or ())):
            if x.data.device_id != queue.device:
                raise ValueError(
                    f"Array device must be same as the current device: array device = "
                    f"{x.data.device_id} while current = {queue.device}"
                )
        if queue.capture is not None and name.split(".")[0] in LIBRARY:
            raise NotImplementedError(
                "calling cuBLAS API during stream capture is currently unsupported"
            )
        assert not _keeps_an_array(function), f"the work of {name} keeps an array alive"
        raws = [x.raw for x in inputs]
        specs = self._specs(machine, function, inputs)
        if out is None:
            out = [ndarray(shape, dtype) for shape, dtype in specs]
        places = [x.raw for x in out]

        def run() -> None:
            for place, result in zip(places, function(*raws), strict=True):
                place[...] = result

        reads, writes = (
            [region for region in map(region_of, arrays) if region] for arrays in (inputs, out)
        )
        machine.issue(queue, name, run, reads, writes)
        return tuple(out)

    @staticmethod
    def _specs(machine: Machine, function: Callable, inputs: Sequence[ndarray]) -> Sequence:
        """Shapes and dtypes of the results, from the values where the host has just waited for
        them: then the shapes may depend on them."""
        if not machine.local.__dict__.pop("has_waited", False):
            with np.errstate(all="ignore"):
                return specs_of(function, inputs)
        with machine.lock:
            return [(r.shape, r.dtype) for r in function(*(x.raw for x in inputs))]

    def synchronize(self, why: str, array: ndarray | None = None) -> None:
        """The host waits for the current stream, to read `array`."""
        machine = machines.current()
        reads = [] if array is None else [region for region in [region_of(array)] if region]
        machine.refuse_capture(machine.current_queue)
        work = machine.issue(machine.current_queue, why, reads=reads)
        assert work is not None
        machine.synchronize(work, why)
        machine.local.has_waited = True

    def to_host(self, array: ndarray, out: np.ndarray, stream: Any) -> None:
        """Copy to `out`, which is filled when this returns unless it is pinned."""
        region = region_of(array)
        if region is not None:
            to_host(array.raw, region, out, stream)

    def from_host(self, array: ndarray, source: np.ndarray, stream: Any) -> None:
        """Copy from `source`, which may be changed when this returns unless it is pinned."""
        region = region_of(array)
        if region is not None:
            from_host(array.raw, region, source, stream)


def _keeps_an_array(thing: Any, depth: int = 5) -> bool:
    """Whether a function holds an array of ours, itself or by what it holds."""
    if isinstance(thing, ndarray):
        return True
    inside: Sequence = ()
    if isinstance(thing, (list, tuple)):
        inside = thing
    elif isinstance(thing, dict):
        inside = list(thing.values())
    elif isinstance(thing, types.FunctionType) and thing.__closure__:
        inside = [cell.cell_contents for cell in thing.__closure__ if cell != _EMPTY_CELL]
    return depth > 0 and any(_keeps_an_array(part, depth - 1) for part in inside)


_EMPTY_CELL = types.CellType()


def region_of(array: ndarray) -> Region | None:
    """The bytes of its memory that an array spans; None if it is empty."""
    start, nbytes = bounds(array.raw)
    block = array.data.mem.block
    offset = start - block.address
    return Region(block, offset, offset + nbytes) if nbytes else None


# -- the scope -------------------------------------------------------------------------------------


def _device_synchronize() -> None:
    Device().synchronize()


def _namespaces(machine: Machine) -> dict[str, Any]:
    """What the module `cupy` has beside its array functions."""
    runtime = types.SimpleNamespace(
        CUDARuntimeError=CUDARuntimeError,
        getDeviceCount=lambda: machine.devices,
        getDevice=lambda: machine.current_device,
        setDevice=machine.use_device,
        memGetInfo=lambda: Device().mem_info,
        deviceSynchronize=_device_synchronize,
        deviceCanAccessPeer=lambda device, peer: int(device != peer),
        getDeviceProperties=lambda device: {
            "name": b"fake GPU",
            "totalGlobalMem": machine.memory,
            "major": 9,
            "minor": 0,
            "multiProcessorCount": 132,
        },
        driverGetVersion=lambda: 12080,
        runtimeGetVersion=lambda: 12080,
    )
    names = types.SimpleNamespace(
        MemoryPointer=MemoryPointer,
        MemoryPool=MemoryPool,
        OutOfMemoryError=OutOfMemoryError,
        UnownedMemory=UnownedMemory,
    )
    cuda = types.SimpleNamespace(
        Device=Device,
        Event=Event,
        Graph=graphs.Graph,
        MemoryPointer=MemoryPointer,
        MemoryPool=MemoryPool,
        PinnedMemoryPool=PinnedMemoryPool,
        Stream=Stream,
        UnownedMemory=UnownedMemory,
        alloc=alloc,
        alloc_pinned_memory=alloc_pinned_memory,
        get_allocator=get_allocator,
        get_current_stream=get_current_stream,
        get_elapsed_time=get_elapsed_time,
        is_available=lambda: machine.devices > 0,
        memory=names,
        nccl=nccl.namespace(machine),
        runtime=runtime,
        set_allocator=set_allocator,
        stream=types.SimpleNamespace(Event=Event, Stream=Stream),
        using_allocator=using_allocator,
    )
    return {
        "cuda": cuda,
        "is_available": cuda.is_available,
        "get_default_memory_pool": lambda: machine.pool,
        "get_default_pinned_memory_pool": lambda: machine.pinned_pool,
        "_core": types.SimpleNamespace(set_compute_type=machine.compute_types.__setitem__),
    }


@contextmanager
def fake_cuda(
    devices: int = 2, memory: int = 1 << 28, seed: int = 0, **options: Any
) -> Iterator[Any]:
    """`devices` GPUs with `memory` bytes each; gives the module `cupy`, with `machine` and `cupyx`
    beside CuPy's names. `options` are those of `Machine`. An OrderError that nobody noticed is
    raised at the end."""
    machine = Machine(devices, memory, seed, **options)
    machine.pool, machine.pinned_pool = MemoryPool(), PinnedMemoryPool()
    machine.allocator = machine.pool.malloc
    names = {
        **_namespaces(machine),
        "machine": machine,
        "cupyx": types.SimpleNamespace(empty_pinned=empty_pinned),
    }
    before = {name: vars(cupy).get(name) for name in names}
    hook, cupy_arrays.hook = cupy_arrays.hook, Hook()
    vars(cupy).update(names)
    try:
        with machines.running(machine):
            yield cupy
            machine.finish()
    finally:
        cupy_arrays.hook = hook
        for name, value in before.items():
            if value is None:
                delattr(cupy, name)
            else:
                setattr(cupy, name, value)

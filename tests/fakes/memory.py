"""Memory of the fake GPUs: CuPy's pools, pointers that copy, pinned memory of the host.

A pool has an arena of free blocks for each stream, as CuPy's has. A block that is let go is back in
the arena it came from at once, whatever still reads it, and the next who asks there gets the block
used last: the reuse that is a race in bad programs happens early and always. Given out again it is
full of NaN.

Host memory is of two kinds, as for CUDA. Copies to and from *pinned* memory return before they are
done: until the copy has run its target holds poison, and whoever changes its source or its target
meanwhile is told so. Other host memory is copied before the call returns.
"""

from __future__ import annotations

import ctypes
import gc
from collections import deque
from typing import Any

import numpy as np

from fakes import machine as machines
from fakes.machine import CUDARuntimeError, Machine
from fakes.order import POISON, Block, OrderError, Queue, Region, Work

UNIT = 512


class OutOfMemoryError(MemoryError):
    """As CuPy words it; `limit` 0: the card itself is full."""

    def __init__(self, size: int, total: int, limit: int = 0):
        text = f"Out of memory allocating {size:,} bytes (allocated so far: {total:,} bytes"
        super().__init__(text + (f", limit set to: {limit:,} bytes)." if limit else ")."))


class PooledMemory:
    """What a pool gives out: it goes back when nothing refers to it any more."""

    def __init__(self, block: Block, pool: MemoryPool, arena: tuple[int, int], size: int):
        self.block = block
        self.start = 0
        self.size = size
        self.device_id = block.device
        self.ptr = block.address
        self._give_back = pool._given_back.append
        self._arena = arena

    def __del__(self) -> None:
        # On any thread, in the middle of anything: no lock may be taken here.
        self._give_back((self._arena, self.block))


class UnownedMemory:
    """`cupy.cuda.UnownedMemory`: a piece of memory that `owner` keeps."""

    def __init__(self, ptr: int, size: int, owner: Any, device_id: int = -1):
        region = machines.current().region_at(ptr, size)
        if region is None or region.block.device is None:
            raise CUDARuntimeError(1)
        self.block = region.block
        self.start = region.start
        self.size = size
        self.device_id = region.block.device
        self.ptr = ptr
        self._owner = owner


class MemoryPool:
    """`cupy.cuda.MemoryPool`: arenas by device and stream."""

    def __init__(self) -> None:
        self._free: dict[tuple[int, int], list[Block]] = {}
        self._given_back: deque[tuple[tuple[int, int], Block]] = deque()
        self._blocks: list[Block] = []  # all of them, given out or free
        self._limit: dict[int, int] = {}

    def malloc(self, size: int) -> MemoryPointer:
        """Memory from the arena of this thread's current stream."""
        machine = machines.current()
        device = machine.current_device
        queue = machine.current_queue
        with machine.call(device):
            try:
                machine.strike(device, "malloc", "malloc")
            except CUDARuntimeError as error:
                raise OutOfMemoryError(size, self._total(device)) from error
            block = self._reuse(device, queue, size) or self._fresh(machine, device, size)
            block.life += 1
            self._poison(queue, block)
            return MemoryPointer(PooledMemory(block, self, (device, queue.ptr), size), 0)

    def _reuse(self, device: int, queue: Queue, size: int) -> Block | None:
        self._collect()
        free = self._free.get((device, queue.ptr), [])
        for block in reversed(free):
            if size <= len(block.bytes) <= max(4 * size, UNIT):
                free.remove(block)
                return block
        return None

    def _fresh(self, machine: Machine, device: int, size: int) -> Block:
        nbytes = max(UNIT, -(-size // UNIT) * UNIT)
        if not self._has_room(machine, device, nbytes):
            self.free_all_blocks()
        if not self._has_room(machine, device, nbytes):
            gc.collect(1)  # CuPy looks through all generations, which costs tests seconds
            self.free_all_blocks()
        if not self._has_room(machine, device, nbytes):
            raise OutOfMemoryError(nbytes, self._total(device), self._limit.get(device, 0))
        block = Block(nbytes, device)
        machine.used[device] += nbytes
        machine.add_block(block)
        self._blocks.append(block)
        return block

    def _has_room(self, machine: Machine, device: int, nbytes: int) -> bool:
        limit = self._limit.get(device, 0)
        return machine.used[device] + nbytes <= machine.memory and not (
            limit and self._total(device) + nbytes > limit
        )

    def _poison(self, queue: Queue, block: Block) -> None:
        """Fill with NaN, in the order of the stream, unless somebody is already in there."""
        life = block.life

        def poison() -> None:
            if not any(old.work.done and old.life == life for old in block.accesses):
                block.bytes.fill(POISON)

        if block.is_idle:
            poison()
        elif queue.capture is None:
            machines.current().enqueue(Work(queue, "poison", poison))

    def _collect(self) -> None:
        while self._given_back:
            arena, block = self._given_back.popleft()
            self._free.setdefault(arena, []).append(block)

    def _total(self, device: int) -> int:
        return sum(len(block.bytes) for block in self._blocks if block.device == device)

    def free_all_blocks(self, stream: Any = None) -> None:
        """Give free blocks back to the driver, which waits for their device first."""
        machine = machines.current()
        with machine.lock:
            self._collect()
            for (device, ptr), free in self._free.items():
                if not free or (stream is not None and stream.ptr != ptr):
                    continue
                queues = [queue for queue in machine.queues if queue.device == device]
                machine.synchronize_queues(queues, "free_all_blocks")
                for block in free:
                    self._release(machine, block)
                free.clear()

    def _release(self, machine: Machine, block: Block) -> None:
        for work in (access.work for access in block.accesses):
            if machine.host_clock.get(work.queue, 0) < work.seq:
                raise OrderError(
                    f"{block} goes back to the driver while {work} still uses it: whoever gave it "
                    f"back had to make its stream wait for {work.queue} first"
                )
        machine.used[block.device or 0] -= len(block.bytes)
        machine.remove_block(block)
        self._blocks.remove(block)

    def set_limit(self, size: int | None = None, fraction: float | None = None) -> None:
        """At most this much of the current device, in bytes or as a part of it; 0: no limit."""
        machine = machines.current()
        if (size is None) == (fraction is None):
            raise ValueError("set_limit takes size or fraction, one of them")
        limit = size if size is not None else int((fraction or 0) * machine.memory)
        self._limit[machine.current_device] = limit

    def get_limit(self) -> int:
        return self._limit.get(machines.current().current_device, 0)

    def total_bytes(self) -> int:
        return self._total(machines.current().current_device)

    def free_bytes(self) -> int:
        self._collect()
        device = machines.current().current_device
        free = (blocks for (place, _), blocks in self._free.items() if place == device)
        return sum(len(block.bytes) for blocks in free for block in blocks)

    def used_bytes(self) -> int:
        return self.total_bytes() - self.free_bytes()

    def n_free_blocks(self) -> int:
        self._collect()
        device = machines.current().current_device
        return sum(len(free) for (place, _), free in self._free.items() if place == device)


class MemoryPointer:
    """`cupy.cuda.MemoryPointer`: an address in memory that it keeps. `raw`: the bytes there."""

    def __init__(self, mem: PooledMemory | UnownedMemory, offset: int):
        self.mem = mem
        self.ptr = mem.ptr + offset
        self._offset = offset

    @property
    def raw(self) -> np.ndarray:
        mem = self.mem
        return mem.block.bytes[mem.start + self._offset : mem.start + mem.size]

    @property
    def device_id(self) -> int:
        return self.mem.device_id  # type: ignore[return-value]

    @property
    def device(self) -> Any:
        from fakes.cuda import Device

        return Device(self.device_id)

    def __add__(self, n: int) -> MemoryPointer:
        return MemoryPointer(self.mem, self._offset + n)

    def __int__(self) -> int:
        return self.ptr

    def _bytes(self, size: int) -> tuple[np.ndarray, Region]:
        raw, start = self.raw[:size], self.mem.start + self._offset
        if len(raw) < size:
            raise CUDARuntimeError(1)
        return raw, Region(self.mem.block, start, start + size)

    def copy_from_device_async(self, src: MemoryPointer, size: int, stream: Any = None) -> None:
        """`size` bytes from `src`, on any device, by `stream` or the current one."""
        machine, (target, written), (source, read) = (
            machines.current(),
            self._bytes(size),
            src._bytes(size),
        )
        queue = machine.queue_of(stream)
        machine.issue(queue, "copy", lambda: np.copyto(target, source), [read], [written])

    def copy_from_host_async(self, mem: Any, size: int, stream: Any = None) -> None:
        """`size` bytes from the host's address `mem`: see `from_host`."""
        from_host(*self._bytes(size), _host_bytes(mem, size), stream)

    def copy_to_host_async(self, mem: Any, size: int, stream: Any = None) -> None:
        """`size` bytes to the host's address `mem`: see `to_host`."""
        to_host(*self._bytes(size), _host_bytes(mem, size), stream)


# -- copies from and to the host -------------------------------------------------------------------


def from_host(target: np.ndarray, written: Region, source: np.ndarray, stream: Any) -> None:
    """Copy `source`, an array of the host, to a device. If it is pinned it must stay as it is until
    the copy has run; other memory has been copied when this returns."""
    machine, queue = _at_host(stream)
    pinned, source = _pinned(machine, source)
    was = source.copy() if pinned is None or pinned.block.is_idle else None

    def run() -> None:
        if pinned and was is not None and source.tobytes() != was.tobytes():
            raise OrderError(
                f"the host changed {pinned.block} while a copy to {written.block} was still to "
                "read it: it has to wait for an event recorded after the copy first"
            )
        np.copyto(target, source if was is None else was)

    machine.issue(queue, "copy from host", run, [pinned] if pinned else [], [written])


def to_host(source: np.ndarray, read: Region, target: np.ndarray, stream: Any) -> None:
    """Copy to `target`, an array of the host. If it is pinned this returns before the values are
    there, and until they are it is full of NaN; otherwise it waits."""
    machine, queue = _at_host(stream)
    pinned, target = _pinned(machine, target)
    poison = None
    if pinned is not None and pinned.block.is_idle:
        poison = np.full(target.nbytes, POISON, np.uint8).view(target.dtype).reshape(target.shape)
        np.copyto(target, poison)

    def run() -> None:
        if pinned and poison is not None and target.tobytes() != poison.tobytes():
            raise OrderError(
                f"the host wrote into {pinned.block} while a copy from {read.block} was still to "
                "fill it: it has to wait for an event recorded after the copy first"
            )
        np.copyto(target, source)

    work = machine.issue(queue, "copy to host", run, [read], [pinned] if pinned else [])
    if pinned is None and work is not None:
        machine.synchronize(work, "a copy to memory that is not pinned")


def _at_host(stream: Any) -> tuple[Machine, Queue]:
    """The machine, and the queue that a copy goes to."""
    machine = machines.current()
    queue = machine.queue_of(stream)
    machine.refuse_capture(queue)
    return machine, queue


def _host_bytes(mem: Any, size: int) -> np.ndarray:
    """`size` bytes at an address of the host."""
    address = mem.value if isinstance(mem, ctypes.c_void_p) else mem
    if not isinstance(address, int):
        raise TypeError(f"expected an address of the host, int or c_void_p, got {type(mem)}")
    return np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(address))


def _pinned(machine: Machine, host: np.ndarray) -> tuple[Region | None, np.ndarray]:
    """Where in pinned memory `host` lies, and the same array, which keeps no memory; None and
    `host` where it is not pinned."""
    region = machine.region_at(*bounds(host))
    if region is None:
        return None, host
    block = region.block
    if block.device is not None:
        raise CUDARuntimeError(1)  # memory of a device
    offset = host.ctypes.data - block.address
    return region, np.ndarray(host.shape, host.dtype, block.bytes, offset, host.strides)  # type: ignore


def bounds(array: np.ndarray) -> tuple[int, int]:
    """Where the memory of an array begins, and how many bytes it spans."""
    low, high = np.lib.array_utils.byte_bounds(array)
    return low, (high - low if array.size else 0)


# -- pinned memory ---------------------------------------------------------------------------------


class PinnedMemory:
    """What the pool of pinned memory gives out."""

    def __init__(self, block: Block, pool: PinnedMemoryPool):
        self.block = block
        self.ptr = block.address
        self._give_back = pool.given_back.append

    def __del__(self) -> None:
        self._give_back(self.block)


class PinnedMemoryPool:
    """`cupy.cuda.PinnedMemoryPool`: sizes rounded up to powers of two; reuses at once.

    CuPy gives a buffer out again as soon as nothing refers to it, whatever still reads it."""

    def __init__(self) -> None:
        self._free: dict[int, list[Block]] = {}
        self.given_back: deque[Block] = deque()

    def malloc(self, size: int) -> Any:
        machine = machines.current()
        nbytes = 1 << max(size - 1, UNIT - 1).bit_length()
        with machine.call():
            self._collect(machine)
            free = self._free.get(nbytes)
            block = free.pop() if free else Block(nbytes, None)
            if not block.life:
                machine.add_block(block)
            block.life += 1
            return _pinned_pointer(PinnedMemory(block, self), size)

    def _collect(self, machine: Machine) -> None:
        while self.given_back:
            block = self.given_back.popleft()
            for work in (access.work for access in block.accesses):
                if machine.host_clock.get(work.queue, 0) < work.seq:
                    machine.report(
                        OrderError(
                            f"{block} was given back while {work} may still use it: keep it until "
                            "the host waited for an event recorded after that"
                        )
                    )
            block.accesses.clear()
            self._free.setdefault(len(block.bytes), []).append(block)

    def free_all_blocks(self) -> None:
        machine = machines.current()
        with machine.call():
            self._collect(machine)
            for block in (block for free in self._free.values() for block in free):
                machine.remove_block(block)
            self._free.clear()

    def n_free_blocks(self) -> int:
        self._collect(machines.current())
        return sum(map(len, self._free.values()))


def _pinned_pointer(mem: PinnedMemory, size: int) -> Any:
    """A `PinnedMemoryPointer`: a buffer, so a ctypes array, with `mem`, `ptr` and `size()`."""
    nbytes = len(mem.block.bytes)
    if nbytes not in _pointer_types:
        fields = {"_type_": ctypes.c_uint8, "_length_": nbytes, "size": lambda self: self.nbytes}
        _pointer_types[nbytes] = type("PinnedMemoryPointer", (ctypes.Array,), fields)
    pointer: Any = _pointer_types[nbytes].from_address(mem.ptr)
    pointer.mem, pointer.ptr, pointer.nbytes = mem, mem.ptr, size
    return pointer


_pointer_types: dict[int, type] = {}
